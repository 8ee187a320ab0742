import pytest

from experiments import bench_exact
from experiments.bench_exact import Config

TINY = Config(
    parts=("user", "matrix", "stream"),
    rank=3,
    items=60,
    positives=5,
    sizes=(50, 100),
    matrix=(12, 10, 40),
    repeats=1,
    stream_users=50,
    stream_items=100,
    stream_positives=4,
    negatives=3,
    batch=16,
)


def test_every_part_measures_something(capsys):
    records = bench_exact.run(TINY)
    assert [r["part"] for r in records] == ["user", *["matrix"] * 4, "stream"]
    assert all(r["seconds"] > 0 for r in records)
    assert records[0]["temporaries"] > 0 and records[-1]["wrong"] == 0
    bench_exact.draw(records)
    assert "60" in capsys.readouterr().out


def test_growth_is_the_slope_on_logarithms_and_a_missed_target_shows(capsys):
    common = {"part": "growth", "law": "fixed", "users": 1, "positives": 5, "temporaries": 1.0}
    slow = [{**common, "items": n, "seconds": 1e-6 * n**1.5} for n in (10, 100, 1000)]
    assert bench_exact.exponent(slow) == pytest.approx(1.5)
    assert not bench_exact.draw(slow)
    assert "MISSED" in capsys.readouterr().out
    assert bench_exact.draw([{**r, "seconds": 1e-6 * r["items"]} for r in slow])


def test_unknown_parts_are_named():
    with pytest.raises(ValueError, match="unknown part 'users': choose from user"):
        bench_exact.run(Config(parts=("users",)))
