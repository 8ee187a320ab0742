"""Finished cells are kept, whatever happens after them, and never computed again."""

import pytest

from experiments import results
from experiments.results import Cells

JOBS = [{"kind": "fit", "method": name, "seed": seed} for name in "ab" for seed in range(3)]


class Work:
    def __init__(self):
        self.done = []

    def __call__(self, job):
        self.done.append((job["method"], job["seed"]))
        return {"value": len(self.done)}


def test_a_run_that_stopped_half_way_goes_on_and_repeats_no_cell(tmp_path):
    first, second, third = Work(), Work(), Work()
    with pytest.raises(results.Enough, match="4 new cells"):
        Cells(tmp_path / "c.jsonl", limit=4).run(JOBS, first)
    records = Cells(tmp_path / "c.jsonl").run(JOBS, second)
    assert first.done + second.done == [(j["method"], j["seed"]) for j in JOBS]
    assert [(r["method"], r["seed"]) for r in records] == first.done + second.done
    assert Cells(tmp_path / "c.jsonl").run(JOBS, third) == records and third.done == []
    assert {"commit", "device", "versions", "seconds", "time"} <= set(records[0])


@pytest.mark.parametrize("cut", [1, 20])
def test_a_line_cut_short_by_a_kill_is_its_cell_computed_again(cut, tmp_path):
    path, work = tmp_path / "c.jsonl", Work()
    Cells(path).run(JOBS, Work())
    path.write_bytes(path.read_bytes()[:-cut])
    assert len(results.read(path)) == 5
    Cells(path).run(JOBS, work)
    assert work.done == [("b", 2)]
    assert len(results.read(path)) == 6


def test_a_changed_setting_is_another_cell_and_the_later_one_counts(tmp_path):
    path, work = tmp_path / "c.jsonl", Work()
    Cells(path).run(JOBS, Work())
    Cells(path).run([job | {"iterations": 9} for job in JOBS[:2]], work)
    assert len(work.done) == 2
    latest = results.latest(results.read(path), ("method", "seed"))
    assert len(latest) == 6
    assert [r.get("iterations") for r in latest[:3]] == [9, 9, None]


def test_progress_says_what_is_left(tmp_path, capsys):
    cells = Cells(tmp_path / "c.jsonl")
    cells.run(JOBS[:1], Work())
    for record in cells._kept.values():
        record["seconds"] = 60.0
    cells.run(JOBS, Work())
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "c 1/1  fit a 0  (no estimate yet)"
    assert told[1] == "c 2/6  fit a 1  (about 5.0 min left)"


def test_cells_of_a_group_are_computed_together_and_only_those_missing(tmp_path):
    sizes = []

    def work(jobs):
        sizes.append(len(jobs))
        return [{} for _ in jobs]

    def by_method(job):
        return job["method"]

    Cells(tmp_path / "c.jsonl").run_together(JOBS[:1], work, by_method)
    records = Cells(tmp_path / "c.jsonl").run_together(JOBS, work, by_method)
    assert sizes == [1, 2, 3] and len(records) == 6
    with pytest.raises(results.Enough):
        Cells(tmp_path / "d.jsonl", limit=4).run_together(JOBS, work, by_method)
    assert sizes[3:] == [3, 1]
