"""The figures of Section 3, at a tiny size: numbers that say what the figure says, and files."""

import warnings

import pytest

from experiments import fig_bounds, results

TINY = fig_bounds.Config(
    users=(30, 60),
    scales=(0.1, 1.0),
    sizes=(5, 20),
    designs=(16, 32),
    num_items=40,
    draws=20,
    repeats=20,
)


@pytest.fixture(scope="module")
def records():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return fig_bounds.run(TINY)


def chosen(records, figure, **where):
    return [
        r for r in records if r["figure"] == figure and all(r[k] == v for k, v in where.items())
    ]


def test_the_bound_lies_above_its_floor_and_the_floor_above_the_zero_model(records):
    for r in chosen(records, "bounds", kind="rademacher_users"):
        assert r["bound"] >= r["floor"] >= r["risk_of_zero"] == 0.5


def test_the_truth_is_between_the_certificate_and_one(records):
    for r in chosen(records, "certificate", line="bernstein"):
        assert r["above_truth"] <= TINY.delta
        assert 0.5 < r["truth"] < 1


def test_the_corrected_bound_is_above_what_it_bounds(records):
    assert all(r["lower"] < r["corrected"] for r in chosen(records, "printed"))


def test_figures_are_drawn_from_the_records_alone(records, tmp_path, monkeypatch):
    for name in ("run", "run_bounds", "run_certificate", "run_printed", "run_regimes"):
        monkeypatch.delattr(fig_bounds, name)
    results.write(tmp_path / "r.jsonl", TINY, records)
    paths = fig_bounds.draw(results.read(tmp_path / "r.jsonl"), str(tmp_path))
    assert {p.name for p in paths} == {
        f"fig_bounds_{n}.{s}"
        for n in ("bounds", "regimes", "certificate", "printed")
        for s in ("png", "pdf")
    }
    assert all(p.stat().st_size > 5000 for p in paths)
