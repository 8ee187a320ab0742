import json

import numpy as np

from experiments import results, tab_datasets
from experiments.tab_datasets import Config


def write_ml_100k(folder):
    """12 users with 12 items each, rated 5: its own core."""
    rows = [(u, i, 5, 0) for u in range(12) for i in range(12)] + [(0, 99, 5, 0), (1, 98, 2, 0)]
    folder.mkdir(parents=True)
    (folder / "u.data").write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))


def test_sizes_stand_beside_the_papers(tmp_path):
    write_ml_100k(tmp_path / "ml-100k")
    config = Config(
        data_dir=str(tmp_path),
        datasets=("synthetic2", "synthetic1", "ml-100k", "flixster"),
        results=str(tmp_path / "out" / "tab.jsonl"),
    )
    records = {r["dataset"]: r for r in tab_datasets.run(config)}
    assert records["synthetic2"]["equal"] is True
    assert records["synthetic2"]["ours"] == (573, 300, 17_796)
    assert records["synthetic1"]["equal"] is None and records["synthetic1"]["ours"][:2] == (
        500,
        200,
    )
    assert records["ml-100k"]["ours"] == (12, 12, 144) and records["ml-100k"]["equal"] is False
    missing = records["flixster"]
    assert missing["ours"] is None and missing["paper"] == (43_979, 32_024, 5_147_187)
    assert missing["note"].startswith(f"Flixster not found at {tmp_path}")
    assert "get it by" in missing["note"]


def test_the_table_is_drawn_from_the_file_alone_and_a_difference_is_an_error(tmp_path, capsys):
    write_ml_100k(tmp_path / "ml-100k")
    path = tmp_path / "tab.jsonl"
    config = Config(data_dir=str(tmp_path), datasets=("synthetic2", "ml-100k", "flixster"))
    config = Config(**{**vars(config), "results": str(path)})
    assert tab_datasets.main(config) == 1
    printed = capsys.readouterr().out
    assert printed.strip() == tab_datasets.draw(results.read(path), str(tmp_path / "t.txt"))
    assert (tmp_path / "t.txt").read_text().strip() == printed.strip()
    rows = dict(zip(("head", "synthetic2", "ml", "flixster"), printed.splitlines(), strict=True))
    assert "573 × 300" in rows["synthetic2"] and rows["synthetic2"].endswith("yes")
    assert "54,883" in rows["ml"] and "12 × 12" in rows["ml"] and rows["ml"].endswith("NO")
    assert "not found at" in rows["flixster"]
    record = json.loads(path.read_text().splitlines()[0])
    assert {"config", "commit", "device", "versions"} <= set(record)
    only_equal = Config(**{**vars(config), "datasets": ("synthetic2",)})
    assert tab_datasets.main(only_equal) == 0


def test_density_is_positives_over_cells():
    record = {
        "dataset": "a",
        "filter": "b",
        "paper": None,
        "ours": [10, 20, 50],
        "equal": None,
        "note": "",
    }
    assert f"{np.round(50 / 200, 4):.4f}" in tab_datasets.draw([record])
