"""A model is loaded, and then the process forks: the child's call works, or raises the remedy within seconds."""

import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import mfauc_jax as mf
from experiments.torture import children, samples
from experiments.torture.tally import CRASHED, EQUAL, HUNG, REFUSED, SILENT, Outcome

SECONDS = 10.0  # that a call in a forked child may take
SCENARIOS = {  # whole processes; each prints "works" or the error of its forked child
    "import, fork, load": """
import mfauc_jax as mf
def child(): return mf.MFAUC.load(PATH).recommend("ü1", 3)
forked(child)
""",
    "load, fork, recommend": """
import mfauc_jax as mf
model = mf.MFAUC.load(PATH)
forked(lambda: model.recommend("ü1", 3))
""",
    "preload and two workers": """
import mfauc_jax as mf
model = mf.MFAUC.load(PATH)
model.recommend("ü1", 3)
def worker():
    for n in (1, 3, 5): model.recommend(["ü1", "ü2"], n); model.similar_items(100)
forked(worker); forked(worker)
""",
    "a pool that forks": """
import multiprocessing
import mfauc_jax as mf
model = mf.MFAUC.load(PATH)
model.recommend("ü1", 3)
def ask(user): return model.recommend(user, 3)[0].tolist()
def child():
    with multiprocessing.get_context("fork").Pool(1) as pool: pool.map(ask, ["ü1", "ü2"])
try: child(); print("works")
except Exception as error: print(type(error).__name__, error)
""",
}
FORKED = """
import os, sys
PATH = sys.argv[1]
def forked(call):
    read, write = os.pipe()
    if os.fork() == 0:
        try: call(); said = "works"
        except BaseException as error: said = f"{type(error).__name__} {error}"
        os.write(write, said.encode()); os._exit(0)
    print(os.read(read, 10_000).decode()); os.wait()
"""


def count(quick: bool) -> int:
    return 4 if quick else len(_calls(pathlib.Path())) + len(SCENARIOS)


def _calls(path: pathlib.Path) -> dict[str, Callable[[mf.MFAUC], Any]]:
    X = samples.matrix()
    named = _named(X)
    return {
        "recommend": lambda m: m.recommend("ü1", 3)[0],
        "recommend to all": lambda m: m.recommend([f"ü{u}" for u in range(24)], 5)[0],
        "similar_items": lambda m: m.similar_items(100, 3)[0],
        "predict": lambda m: m.predict("ü1", 101),
        "evaluate": lambda m: m.evaluate(_named(samples.held_out(X)))["auc"],
        "certify": lambda m: m.certify(_named(samples.held_out(X))).bound,
        "fold_in": lambda m: m.fold_in(named).recommend("ü1", 3)[0],
        "partial_fit": lambda m: m.with_params().fit(named).partial_fit(named).user_factors_,
        "fit": lambda m: m.with_params().fit(named).user_factors_,
        "save": lambda m: m.save(path.with_name("again")),
        "load": lambda m: mf.MFAUC.load(path).recommend("ü1", 3)[0],
        "item_vectors": lambda m: mf.export.item_vectors(m)[0],
        "read and fit": lambda m: mf.MFAUC(rank=2).fit(X).item_factors_,
    }


def _named(X: np.ndarray) -> mf.Interactions:
    users, items = np.nonzero(X)
    return mf.Interactions.from_pairs([f"ü{u}" for u in users], items + 100)


def prepare(home: pathlib.Path) -> Any:
    """A model that was loaded from a file and has answered once."""
    folder = home / "forks"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    path = folder / "model"
    samples.fitted().save(path)
    model = mf.MFAUC.load(path)
    model.recommend("ü1", 3)
    return home, path, model


def attempt(bench: Any, seed: int, case: int) -> Outcome:
    """One call in a forked child, or one scenario of whole processes."""
    del seed
    home, path, model = bench
    calls = _calls(path)
    order = ["recommend", *SCENARIOS, *(name for name in calls if name != "recommend")]
    name = order[case]
    if name in SCENARIOS:
        return whole(home, path, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = _text(calls[name](model))
        said = in_fork(lambda: _text(calls[name](model)), SECONDS)
    outcome = judged(said, wanted)
    return Outcome(outcome.what, f"{name} in a forked child: {outcome.detail}")


def _text(answer: Any) -> str:
    return json.dumps(np.asarray(answer).tolist(), default=str)


def in_fork(call: Callable[[], str], seconds: float) -> dict[str, str] | None:
    """What the call says in a forked child: {"answer": …} or {"error": …}; None if it hangs."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX warns at every fork
        pid = os.fork()
    if pid == 0:
        try:
            said = {"answer": call()}
        except BaseException as error:
            said = {"error": type(error).__name__, "message": str(error)}
        os.write(write, json.dumps(said).encode())
        os._exit(0)
    os.close(write)
    try:
        ready, _, _ = select.select([read], [], [], seconds)
        text = os.read(read, 1_000_000) if ready else None
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(read)
    if text is None:
        return None
    return json.loads(text) if text else {"error": "death", "message": "the child died"}


def judged(said: dict[str, str] | None, wanted: str) -> Outcome:
    """How a call in a forked child ended."""
    if said is None:
        return Outcome(HUNG, f"no answer within {SECONDS:.0f} s")
    if "answer" in said:
        same = said["answer"] == wanted
        return Outcome(EQUAL) if same else Outcome(SILENT, "another answer than before the fork")
    return _remedied(f"{said['error']} {said['message']}")


def _remedied(text: str) -> Outcome:
    """An error is clear if it says that the process was forked and what to do."""
    clear = "fork" in text and "spawn" in text
    return Outcome(REFUSED if clear else CRASHED, text)


def whole(home: pathlib.Path, path: pathlib.Path, name: str) -> Outcome:
    """A scenario in a process of its own."""
    words = [sys.executable, "-c", FORKED + SCENARIOS[name], str(path)]
    process = subprocess.Popen(
        words,
        env=children.environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=2 * SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return Outcome(HUNG, f"{name}: no end within {2 * SECONDS:.0f} s")
    said = out.strip().splitlines()
    if not said or process.returncode:
        return Outcome(CRASHED, f"{name}: {(err.strip().splitlines() or ['nothing'])[-1]}")
    if all(line == "works" for line in said):
        return Outcome(EQUAL, name)
    outcome = _remedied(next(line for line in said if line != "works"))
    return Outcome(outcome.what, f"{name}: {outcome.detail}")
