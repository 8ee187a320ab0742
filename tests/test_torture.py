"""The torture can fail: each judge names what it is there to find, on something that is broken on purpose."""

import json
import math
import pathlib
import sys
import time
import types

import numpy as np
import pytest

from experiments.torture import __main__ as program
from experiments.torture import (
    children,
    commands,
    disagreements,
    folders,
    forks,
    kills,
    long_runs,
    methods,
    models,
    mutations,
    readers,
    samples,
    settings,
    states,
    tally,
)
from experiments.torture.tally import CRASHED, EQUAL, HUNG, OTHER, PARTIAL, REFUSED, SILENT, Outcome
from mfauc_jax import Interactions, ModelFileError


def test_a_refusal_is_clear_only_if_it_is_meant_for_the_caller_and_names_what_is_wrong():
    """Kills: any exception counts as a refusal; the name of the file is not looked for."""
    assert tally.refusal(ValueError("a.csv is cut"), "a.csv").what == REFUSED
    assert tally.refusal(ModelFileError("m is cut"), "m").what == REFUSED
    assert tally.refusal(ValueError("negative seek value -58"), "a.csv").what == CRASHED
    assert tally.refusal(ValueError("")).what == CRASHED
    for error in (
        IndexError("0"),
        OverflowError("big"),
        AssertionError("x"),
        BaseException("panic"),
    ):
        assert tally.refusal(error).what == CRASHED
    assert tally.refusal(type("XlaRuntimeError", (RuntimeError,), {})("INTERNAL")).what == CRASHED


def test_a_loader_that_returns_another_model_for_a_damaged_file_is_caught(tmp_path):
    """Kills: whatever loads counts as right."""
    model, other = samples.fitted(), samples.fitted(seed=1)
    path = tmp_path / "a.model"
    model.save(path)
    wanted = models.contents(model)
    assert models.judged(path, wanted).what == EQUAL
    assert models.judged(path, wanted, load=lambda path: other).what == SILENT
    path.write_bytes(path.read_bytes()[:-1])
    assert models.judged(path, wanted).what == REFUSED


def test_only_a_format_without_checksums_may_read_as_other_data():
    """Kills: other data from a damaged gzip count as other data."""
    X, Y = (Interactions.of(samples.matrix(seed)) for seed in (0, 1))
    assert readers.judged(X, True, X).what == EQUAL
    assert readers.judged(Y, False, X).what == OTHER
    assert readers.judged(Y, True, X).what == SILENT


def test_a_command_may_not_print_a_traceback_or_fail_in_silence():
    judged = readers.judged_command
    assert judged(0, "3 users", "").what == OTHER
    assert judged(0, "", "").what == SILENT
    assert judged(1, "", "mfauc: a.csv is cut", "a.csv").what == REFUSED
    assert judged(1, "", "mfauc: it is cut", "a.csv").what == CRASHED
    for code, err in ((1, ""), (3, "mfauc: x"), (1, "Traceback …"), (1, "mfauc: internal error")):
        assert judged(code, "", err).what == CRASHED


def test_a_command_that_fails_may_not_change_files():
    before = {"a": b"1"}
    judged = commands.judged
    assert judged(["fit"], 1, "", "mfauc: no", before, before, []).what == REFUSED
    assert judged(["fit"], 1, "", "mfauc: no", before, {"a": b"2"}, []).what == PARTIAL
    assert judged(["fit"], 0, "", "", before, {}, []).what == SILENT
    assert judged(["fit"], 0, "", "", before, before, [".mfauc-x.tmp"]).what == PARTIAL
    same = ["data", "split", "x", "--train", "y", "--test", "y"]
    assert judged(same, 0, "", "", before, before, []).what == SILENT


def test_a_resumed_fit_that_differs_or_leaves_files_is_caught():
    wanted = {"found": {"factors": "ab", "stopped": "iterations"}}
    done = {"found": dict(wanted["found"]), "left": []}
    assert kills.judged(done, wanted).what == EQUAL
    assert kills.judged(done | {"left": ["7.orbax-tmp"]}, wanted).what == PARTIAL
    other = kills.judged({"found": {"factors": "cd", "stopped": "iterations"}, "left": []}, wanted)
    assert other == (SILENT, "other factors than undisturbed")
    cut = {"error": "AssertionError: partial: drawn.png is cut", "refused": CRASHED}
    assert kills.judged(cut, wanted).what == PARTIAL
    refused = {"error": "ValueError: f holds another fit", "refused": REFUSED}
    assert kills.judged(refused, wanted).what == REFUSED


def test_a_pair_that_trains_in_silence_or_hangs_is_caught():
    """Kills: a refusal in one process is enough; any equal end counts as agreement."""
    fit = {"stopped": "iterations", "iterations": 5, "items": "ab"}
    no = {"error": "ValueError", "message": "the processes disagree about seed"}
    judged = disagreements.judged
    assert judged([no, no], None).what == REFUSED
    assert judged([fit, fit], None).what == SILENT
    assert judged([no, fit], None).what == SILENT
    assert judged([no, {"end": "hung"}], None).what == HUNG
    assert judged([no, {"end": -11}], None).what == CRASHED
    assert judged([no, {"error": "IndexError", "message": "x"}], None).what == CRASHED
    strange = {"error": "ValueError", "message": "cannot reshape array of size 3 into shape (2,2)"}
    assert judged([strange, strange], None).what == CRASHED
    assert judged([fit, fit], "iterations").what == EQUAL
    assert judged([fit, fit | {"items": "cd"}], "iterations").what == SILENT
    assert judged([fit, fit], "interrupted").what == SILENT


def test_a_forked_child_that_hangs_or_dies_or_answers_otherwise_is_caught():
    hung = forks.in_fork(lambda: time.sleep(60) or "", 0.3)
    assert hung is None and forks.judged(hung, "1").what == HUNG
    assert forks.judged(forks.in_fork(lambda: "1", 20), "1").what == EQUAL
    assert forks.judged({"answer": "2"}, "1").what == SILENT
    plain = {"error": "RuntimeError", "message": "deadlock"}
    assert forks.judged(plain, "1").what == CRASHED
    remedy = {"error": "RuntimeError", "message": "this process was forked: use spawn"}
    assert forks.judged(remedy, "1").what == REFUSED


def test_a_leak_is_not_flat():
    """Kills: only the last sample is looked at; the slack grows with the number of turns."""
    flat = [{"maps": 1000 + 20 * (i % 2), "rss": 300} for i in range(50)]
    leak = [{"maps": 1000 + 240 * i, "rss": 300} for i in range(50)]
    bump = [{"maps": 1000, "rss": 900 if i == 30 else 300} for i in range(50)]
    assert long_runs.judged("nights", flat, 0, "").what == EQUAL
    assert long_runs.judged("nights", leak, 0, "").what == SILENT
    assert long_runs.judged("nights", bump, 0, "").what == SILENT
    assert long_runs.judged("nights", flat, -11, "").what == CRASHED
    assert long_runs.judged("nights", flat, "hung", "").what == HUNG
    with pytest.raises(ValueError, match="more than the 5 of the start"):
        tally.is_flat([1.0] * 5, 5, 0.1, 0)


def test_factors_that_do_not_rank_are_caught():
    U, V = np.ones((3, 2)), np.arange(8.0).reshape(4, 2)
    assert settings.judged(U, V, []).what == EQUAL
    assert settings.judged(U, V * math.nan, ["a warning"]).what == SILENT
    assert settings.judged(U * 0, V, []).what == SILENT
    assert settings.judged(U * 0, V, ["every score is zero"]).what == EQUAL


def test_an_unsound_answer_is_caught():
    model = samples.fitted(ids=False)
    lists = model.recommend([0, 1], 3)
    assert methods.unsound(lists) is None
    assert methods.unsound(type(lists)(lists.items, lists.scores[:, ::-1], [0, 1])) is not None
    assert methods.unsound(type(lists)(lists.items, lists.scores, [0])) is not None
    assert methods.unsound({"auc": math.nan}) is not None
    assert methods.unsound(np.array([math.nan])) is not None


def test_damaged_cells_that_read_as_other_values_are_caught():
    def judged(found):
        return folders.judged(lambda: found, {"score": 0.5}, "cell", "cell").what

    assert judged({"score": 0.5}) == EQUAL and judged({"score": 0.6}) == SILENT


@pytest.mark.parametrize("kind", mutations.KINDS)
def test_damage_is_damage_and_repeats_with_its_seed(kind):
    data = bytes(range(256)) * 2
    damaged = [
        bytes(mutations.KINDS[kind](np.random.default_rng(s), bytearray(data))) for s in range(40)
    ]
    assert sum(d != data for d in damaged) > 30
    again = bytes(mutations.KINDS[kind](np.random.default_rng(0), bytearray(data)))
    assert again == damaged[0]
    assert mutations.mutated(np.random.default_rng(0), b"")[0] != b""


ROOM = """
import os, time
from experiments.torture.tally import Outcome
def count(quick): return 5
def prepare(home): return None
def attempt(bench, seed, case):
    if case == 1: os.abort()
    if case == 2: time.sleep(60)
    if case == 3: bench = bytearray(700 * 2**20); bench[::4096] = b"x" * len(bench[::4096])
    return Outcome("equal", f"case {case}")
"""


def test_a_child_that_dies_hangs_or_swells_is_noticed_and_the_other_cases_go_on(
    tmp_path, monkeypatch
):
    """Kills: a crash ends the room; a hang is waited for; the culprit is counted as another case."""
    package = tmp_path / "broken"
    package.mkdir()
    (package / "broken_room.py").write_text(ROOM)
    room = types.ModuleType("experiments.torture.broken_room")
    exec(ROOM, room.__dict__)
    monkeypatch.setitem(sys.modules, room.__name__, room)
    script = (
        f"import sys; sys.path.insert(0, {str(package)!r}); import broken_room; "
        f"sys.modules[{room.__name__!r}] = broken_room; "
        "from experiments.torture import children; children.main(*sys.argv[1:])"
    )
    (package / "child.py").write_text(script)
    original = children.environment

    def environment(home: pathlib.Path, **changes: str) -> dict[str, str]:
        found = original(home, **changes)
        return found | {"PYTHONPATH": f"{package}:{found['PYTHONPATH']}"}

    monkeypatch.setattr(children, "environment", environment)
    monkeypatch.setattr(children, "HERE", "child")
    monkeypatch.setattr(children, "LIMIT", 5.0)
    monkeypatch.setattr(children, "LARGEST", 600)
    found = children.run(children.Plan(tmp_path, 0, True, 100.0), "broken_room")
    ends = {f["case"]: f["outcome"] for f in found.failures}
    assert ends == {"1": CRASHED, "2": HUNG, "3": tally.MEMORY}
    assert found.counts[EQUAL] == 2 and found.tried == 5 and not found.held


def test_the_table_says_what_was_counted_and_the_page_takes_it():
    good, bad = tally.Tally("models", 3), tally.Tally("kills", 1)
    for _ in range(3):
        good.add(Outcome(REFUSED), "0", "again")
    bad.add(Outcome(SILENT, "other\nfactors"), "0", "python -m experiments.torture")
    assert good.held and not bad.held and not tally.Tally("nothing").held
    run = {"seed": 0, "quick": False, "commit": "abc", "seconds": 3600}
    run |= {"kinds": [json.loads(json.dumps(t.as_record())) for t in (good, bad)]}
    assert run["kinds"][1]["failures"][0]["detail"] == "other factors"
    assert "models      3                3" in tally.table(run["kinds"])
    page = pathlib.Path(program.__file__).parents[2] / "docs" / "reliability.md"
    filled = tally.into_page(page.read_text(), run)
    assert "| models | 3 | 3 | 0 |" in filled and "abc, 60 minutes" in filled
    assert tally.into_page(filled, run) == filled
    with pytest.raises(ValueError, match="lacks the markers"):
        tally.into_page("text", run)


def test_kinds_are_known_by_name():
    assert program.chosen(()) == [*program.OWN, *program.CASES]
    assert program.chosen(("nonsense", "forks")) == ["settings", "methods", "commands", "forks"]
    with pytest.raises(ValueError, match="'kils' is no kind: choose from damages"):
        program.chosen(("kils",))


def test_the_full_run_is_as_large_as_it_is_said_to_be():
    """300 kills, 20,000 mutated inputs, 30 disagreements, 500 nights and 5,000 requests."""
    assert kills.count(False) >= 300 and len(disagreements.cases(False)) >= 30
    assert long_runs.SIZES == {"nights": (60, 500), "requests": (300, 5_000)}
    rooms = (readers, models, states, folders, settings, methods, commands)
    assert sum(room.count(False) for room in rooms) >= 20_000
