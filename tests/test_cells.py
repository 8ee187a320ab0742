"""Finished cells are kept, whatever happens after them, and never computed again."""

import dataclasses
import functools
import subprocess

import pytest

from experiments import flags, results
from experiments.results import Cells

JOBS = [{"kind": "fit", "method": name, "seed": seed} for name in "ab" for seed in range(3)]


@dataclasses.dataclass(frozen=True)
class Empty:
    results: str = "out/a.jsonl"


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


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository of its own whose experiments/results takes the place of ours."""

    def git(*words):
        identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        subprocess.run(
            ["git", "-C", str(tmp_path), *identity, *words], check=True, capture_output=True
        )

    folder = tmp_path / "experiments/results"
    folder.mkdir(parents=True)
    (tmp_path / "code.py").write_text("x = 1\n")
    (folder / "old.jsonl").write_text("")
    git("init")
    git("add", "-A")
    git("commit", "-m", "first")
    monkeypatch.setattr(results, "COMMITTED", folder)
    return tmp_path


def test_committed_records_are_written_from_a_clean_tree_only(repository):
    folder, config = repository / "experiments/results", Empty()
    results.write(folder / "old.jsonl", config, [{"a": 1}])
    (commit,) = {r["commit"] for r in results.read(folder / "old.jsonl")}
    assert len(commit) == 12
    Cells(folder / "cells.jsonl").run(JOBS, Work())  # changed results are no changed code
    assert {r["commit"] for r in results.read(folder / "cells.jsonl")} == {commit}

    (repository / "code.py").write_text("x = 2\n")
    words = r"must name the commit of their code, but code\.py is not committed: commit or stash it first, or write"
    with pytest.raises(results.DirtyTreeError, match=words):
        results.write(folder / "old.jsonl", config, [{"a": 2}])
    assert results.read(folder / "old.jsonl")[0]["a"] == 1
    work = Work()
    with pytest.raises(results.DirtyTreeError, match=words):
        Cells(folder / "new.jsonl").run(JOBS, work)
    assert work.done == []  # refused before the work
    assert Cells(folder / "cells.jsonl").run(JOBS, work) and work.done == []  # nothing to write


def test_a_new_file_is_a_change_and_other_folders_are_free(repository):
    (repository / "more.py").write_text("y = 1\n")
    with pytest.raises(results.DirtyTreeError, match=r"more\.py"):
        results.write(repository / "experiments/results/a.jsonl", Empty(), [])
    results.write(repository / "out/a.jsonl", Empty(), [{"a": 1}])
    assert results.read(repository / "out/a.jsonl")[0]["commit"].endswith("-dirty")


def test_a_command_is_refused_before_it_runs(repository, monkeypatch):
    (repository / "code.py").write_text("x = 2\n")
    path = str(repository / "experiments/results/a.jsonl")
    own, define = flags.flags.FlagValues(), flags.flags.DEFINE_string

    def run(start):
        own.mark_as_parsed()
        own.results = path
        return start(["prog"])

    monkeypatch.setattr(flags.app, "run", run)
    monkeypatch.setattr(flags.flags, "FLAGS", own)
    monkeypatch.setattr(flags.flags, "DEFINE_string", functools.partial(define, flag_values=own))
    with pytest.raises(results.DirtyTreeError):
        flags.run(Empty, lambda config: pytest.fail("it ran"))


def test_the_commits_of_a_row_are_short_and_say_dirty():
    rows = [
        {"commit": "0123456789ab-dirty"},
        {"commit": "ba9876543210"},
        {"commit": "ba9876543210"},
        {},
    ]
    assert results.commits(rows) == "0123456-dirty, ba98765"
