"""A forked child of a process that has used JAX answers or refuses; nothing waits for ever, as JAX itself does there."""

import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
SCRIPT = """
import json, os, select, signal, sys, warnings
warnings.simplefilter("ignore")  # JAX warns of forks
sys.path.insert(0, "tests")
import numpy as np
import mfauc_jax as mf
from mfauc_jax import export
from mfauc_jax._core.factors import Factors
from mfauc_jax.evaluation import metrics
from mfauc_jax.training.loop import Fitted

folder, used = sys.argv[1:]
users, items = np.divmod(np.arange(0, 60, 2), 10)


def loaded():
    X = mf.Interactions.from_pairs(users, items)
    draw = np.random.default_rng(0).normal
    factors = Factors(draw(size=(X.num_users, 3)), draw(size=(X.num_items, 3)))
    return mf.MFAUC(rank=3)._keep(X, Fitted(factors, [], "iterations"))


if used == "library":
    model = loaded()
    model.save(folder + "/m")
    model = mf.MFAUC.load(folder + "/m")
    X = model.train_
if used == "others":  # JAX has computed, but not through this library
    import jax.numpy as jnp

    jnp.arange(3).sum().block_until_ready()

works = {
    "user_factors_": lambda: float(model.user_factors_.sum()) == float(np.asarray(model.factors_.U).sum()),
    "item_factors_": lambda: model.item_factors_.shape == (5, 3),
    "predict": lambda: np.allclose(
        model.predict(0, 2), np.asarray(model.factors_.U)[0] @ np.asarray(model.factors_.V)[1]
    ),
    "item_vectors": lambda: len(export.item_vectors(model).ids) == 5,
    "user_vectors": lambda: len(export.user_vectors(model).ids) == 6,
    "save": lambda: model.save(folder + "/again") is None,
}
refused = {
    "recommend": lambda: model.recommend([0], n=3),
    "similar_items": lambda: model.similar_items(2, n=2),
    "popular": lambda: model.recommend([77], n=2, unknown="popular"),
    "fit": lambda: mf.MFAUC(rank=2).fit(X, progress=False),
    "fit with validation": lambda: mf.MFAUC(rank=2).fit(X, X, progress=False),
    "fit pairs": lambda: mf.MFAUC(rank=2).fit((users, items), progress=False),
    "partial_fit": lambda: model.partial_fit(X, progress=False),
    "fold_in": lambda: model.fold_in(X),
    "evaluate": lambda: model.evaluate(X),
    "certify": lambda: model.certify(X),
    "metrics": lambda: metrics.evaluate(model, None, X),
    "table": lambda: export.table(model, folder + "/a.csv"),
    "load": lambda: mf.MFAUC.load(folder + "/m"),
}
jobs = {"library": works | refused, "others": {"fresh": loaded}, "nobody": {"fresh": lambda: loaded().recommend([0], n=1)}}
found = {}
for name, job in jobs[used].items():
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = "right" if job() is not False else "wrong"
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    ready, _, _ = select.select([reading], [], [], 60)
    found[name] = os.read(reading, 4096).decode() if ready else "hangs"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if not ready:
        break
print(json.dumps([found, sorted(works)]))
"""


def children(folder: pathlib.Path, used: str) -> tuple[dict[str, str], list[str]]:
    words = [sys.executable, "-c", SCRIPT, str(folder), used]
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
    found, works = json.loads(ran.stdout.splitlines()[-1])
    return found, works


def test_a_forked_child_answers_from_numpy_and_refuses_the_rest_with_the_remedy(tmp_path):
    """Without the guards `recommend` of a new shape, `load`, `fit`, … hang: it kills each missing door."""
    found, works = children(tmp_path, "library")
    assert len(found) == 19
    for name, answer in found.items():
        if name in works:
            assert answer == "right", (name, answer)
        else:
            assert answer.startswith("RuntimeError: this process was forked"), (name, answer)
            assert "spawn" in answer and "--preload" in answer


@pytest.mark.parametrize(("used", "begins"), [("others", "RuntimeError: "), ("nobody", "right")])
def test_what_counts_is_whether_jax_was_used_before_the_fork(used, begins, tmp_path):
    found, _ = children(tmp_path, used)
    assert found["fresh"].startswith(begins)
