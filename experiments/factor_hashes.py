"""Hashes of the factors that every route finds on a fixed toy matrix: what a redesign must not change.

    python -m experiments.factor_hashes --out=before.json
    python -m experiments.factor_hashes --against=before.json

Everything runs in float64 on two simulated CPU devices. Bits depend on the processor and on jaxlib, so
hashes compare runs on one machine; the sums beside them compare runs on any.
"""

import dataclasses
import hashlib
import json
import pathlib
import tempfile
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from experiments import flags
from mfauc_jax import (
    MFAUC,
    Alternating,
    Auto,
    Averaging,
    Blockwise,
    Checkpoints,
    Continuation,
    Factors,
    Fixed,
    FullBatch,
    Interactions,
    Minibatch,
    Sequential,
    Weights,
    baselines,
    losses,
    selection,
    weightings,
)
from mfauc_jax._core import atomic
from mfauc_jax.data import splits

PAPER_LOSSES = tuple(losses.PAPER_LOSSES)


@dataclasses.dataclass(frozen=True)
class Config:
    out: str = dataclasses.field(default="", metadata={"help": "where to write the hashes"})
    against: str = dataclasses.field(default="", metadata={"help": "hashes to compare with"})


def toy(confidence: bool = False) -> Interactions:
    """60 users × 44 items; one user has no positive, one has every item."""
    rng = np.random.default_rng(7)
    taste, kind = rng.standard_normal((60, 3)), rng.standard_normal((44, 3))
    scores = taste @ kind.T + rng.standard_normal((60, 44))
    liked = scores > np.quantile(scores, 0.8, axis=1, keepdims=True)
    liked[5], liked[6] = False, True
    rows, columns = np.nonzero(liked)
    weight = rng.integers(1, 5, len(rows)) if confidence else None
    return Interactions.from_pairs(rows, columns, shape=liked.shape, confidence=weight)


def resumed(X: Interactions) -> Factors:
    """A fit that stopped after two of five iterations, gone on with by another."""
    with tempfile.TemporaryDirectory() as folder:
        model, kept = MFAUC(loss="logistic", rank=6, solver=Minibatch(5)), Checkpoints(folder, 1)
        model.fit(X, checkpoints=kept, callbacks=[lambda s, *_: s == 2])
        return model.with_params().fit(X, checkpoints=kept).factors_


def grown(X: Interactions, iterations: int | None = None) -> Factors:
    """A fit of most users, then `partial_fit` with the rest."""
    first, rest = X.take(np.arange(50)), X.take(np.arange(50, 60))
    rows, columns = rest.to_scipy().tocoo().coords
    later = Interactions.from_pairs(rows + 50, columns, shape=X.shape)
    return MFAUC(rank=6).fit(first).partial_fit(later, iterations).factors_


def selected(X: Interactions) -> np.ndarray:
    """The scores of a small grid."""
    model = MFAUC(loss="logistic", rank=4, solver=Minibatch(3), penalty=Fixed())
    grid = {"penalty__reg": [0.1, 1.0], "solver__learning_rate": [0.1, 0.3]}
    found = selection.select(0, model, X, grid, splits=2, per_user=2, progress=False)
    return np.array([row["mean"] for row in found.means()])


def rows() -> dict[str, Callable[[Interactions], Any]]:
    """What is fitted, by name."""

    def fitted(model: MFAUC) -> Callable[[Interactions], Factors]:
        return lambda X: model.fit(X).factors_

    found: dict[str, Callable[[Interactions], Any]] = {"default": fitted(MFAUC(rank=6))}
    short = {"solver__iterations": 4, "solver__average__start": 1}
    for loss in PAPER_LOSSES:
        found[f"paper {loss}"] = fitted(MFAUC.paper(loss, **short))
        found[f"authors {loss}"] = fitted(MFAUC.authors(loss, **short))
        found[f"full_batch {loss}"] = fitted(MFAUC(6, loss, solver=FullBatch(3)))
        found[f"minibatch {loss}"] = fitted(MFAUC(6, loss, solver=Minibatch(3)))
    tanh = weightings.Tanh(rho=0.5)
    found["paper tanh"] = fitted(MFAUC.paper(weighting=tanh, solver__iterations=4))
    algorithm_1 = Sequential(6, learning_rate=0.3)
    found["paper β rising"] = fitted(
        MFAUC.paper("sigmoid", solver=Continuation(algorithm_1, betas=(1.0, 2.0, 4.0)))
    )
    tables = Sequential(
        4,
        learning_rate=2.0**-4,
        step_rule="thousand",
        fixed_order=True,
        new_user=True,
        stratified=True,
        max_norm=10.0,
        average=Averaging(start=1, eta=20.0, since=0),
    )
    found["sequential, thousand, svd, stratified"] = fitted(
        MFAUC.authors(solver=tables, start="svd")
    )
    found["alternating tanh"] = fitted(MFAUC(6, weighting=tanh))
    more = Alternating(user_steps=6, item_steps=3)
    found["alternating svd, λ fixed"] = fitted(
        MFAUC(6, penalty=Fixed(reg=0.1), start="svd", solver=more)
    )
    for_auc = {"penalty": Auto(strength=0.45, spread=3.0), "weights": Weights(-0.15, -0.5)}
    found["alternating for AUC"] = fitted(MFAUC(6, **for_auc))
    found["alternating confidence"] = lambda X: MFAUC(rank=6).fit(toy(confidence=True)).factors_
    for devices in (1, 2):
        found[f"alternating on {devices}"] = fitted(MFAUC(6, solver=Alternating(devices=devices)))
    for name in ("adam", "sgd", "rmsprop", "unit"):
        solver = Minibatch(3, learning_rate=0.05, optimiser=name, batch=16)
        found[f"minibatch {name}"] = fitted(MFAUC(6, "logistic", solver=solver))
    rising = Continuation(Minibatch(3), betas=(1.0, 2.0, 4.0))
    found["minibatch β rising"] = fitted(MFAUC(6, "sigmoid", solver=rising))
    for devices in (1, 2):
        solver = Blockwise(3, blocks=4, devices=devices)
        found[f"blockwise on {devices}"] = fitted(MFAUC(6, "square_hinge", solver=solver))
    found["blockwise λ fixed"] = fitted(MFAUC.paper("logistic", solver=Blockwise(3, blocks=2)))
    found["resumed"] = resumed
    found["partial_fit"] = grown
    found["partial_fit over all"] = lambda X: grown(X, 2)
    found["selection"] = selected
    for loss in PAPER_LOSSES[:3]:
        model = MFAUC(loss=loss, rank=6)
        found[f"fold_in {loss}"] = lambda X, model=model: (
            model.fit(X).fold_in(X.take(np.arange(9))).factors_
        )
    for name in baselines.BASELINES:
        found[f"baseline {name}"] = lambda X, name=name: baselines.get(name)(jax.random.key(0), X)
    found["split"] = lambda X: splits.hold_out(jax.random.key(1), X, 2).train.indices
    return found


def describe(found: Any) -> dict[str, Any]:
    """A hash of all numbers, and sums that survive a change of machine."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(found)]
    joined = b"".join(f"{a.dtype}{a.shape}".encode() + a.tobytes() for a in leaves)
    sums = [float(np.abs(a.astype(np.float64)).sum()) for a in leaves]
    return {"hash": hashlib.sha256(joined).hexdigest()[:16], "sums": sums}


def compare(mine: dict[str, Any], theirs: dict[str, Any]) -> tuple[bool, str]:
    """Whether the bits are the same, and how far the sums differ relatively."""
    if mine["hash"] == theirs["hash"]:
        return True, "the same bits"
    pairs = zip(mine["sums"], theirs["sums"], strict=False)
    return False, f"sums differ by {max(abs(a - b) / max(abs(b), 1e-300) for a, b in pairs):.1e}"


def main(config: Config) -> int:
    jax.config.update("jax_num_cpu_devices", 2)
    jax.config.update("jax_enable_x64", True)
    X, found = toy(), {}
    before = json.loads(pathlib.Path(config.against).read_text()) if config.against else {}
    equal = True
    for name, fit in rows().items():
        found[name] = describe(fit(X))
        line = found[name]["hash"]
        if before:
            same, line = compare(found[name], before[name]) if name in before else (False, "new")
            equal = equal and same
        print(f"{name:40} {line}", flush=True)
    missing = before.keys() - found.keys()
    if missing:
        print(f"not computed here: {', '.join(sorted(missing))}")
    if config.out:
        atomic.write_text(config.out, json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    return 0 if equal and not missing else 1


if __name__ == "__main__":
    flags.run(Config, main)
