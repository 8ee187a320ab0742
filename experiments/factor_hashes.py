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
from mfauc_jax import MFAUC, Factors, Interactions, baselines
from mfauc_jax.data import splits
from mfauc_jax.training import selection

PAPER_LOSSES = ("square_hinge", "square", "sigmoid", "logistic")


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
        setting = {"loss": "logistic", "rank": 6, "checkpoint_dir": folder, "checkpoint_every": 1}
        MFAUC(**setting, iterations=5).fit(X, callbacks=[lambda s, *_: s == 2])
        return MFAUC(**setting, iterations=5).fit(X).factors_


def grown(X: Interactions) -> Factors:
    """A fit of most users, then `partial_fit` with the rest."""
    first, rest = X.take(np.arange(50)), X.take(np.arange(50, 60))
    rows, columns = rest.to_scipy().tocoo().coords
    later = Interactions.from_pairs(rows + 50, columns, shape=X.shape)
    return MFAUC(rank=6).fit(first).partial_fit(later).factors_


def selected(X: Interactions) -> np.ndarray:
    """The scores of a small grid."""
    found = selection.select(
        0,
        MFAUC(loss="logistic", rank=4, iterations=3, spread=0.0),
        X,
        {"reg": [0.1, 1.0], "learning_rate": [0.1, 0.3]},
        splits=2,
        per_user=2,
        progress=False,
    )
    return np.array([row["mean"] for row in found.means()])


def rows() -> dict[str, Callable[[Interactions], Any]]:
    """What is fitted, by name."""

    def fitted(model: MFAUC) -> Callable[[Interactions], Factors]:
        return lambda X: model.fit(X).factors_

    few = {"rank": 6, "iterations": 3}
    found: dict[str, Callable[[Interactions], Any]] = {"default": fitted(MFAUC(rank=6))}
    for loss in PAPER_LOSSES:
        found[f"paper {loss}"] = fitted(MFAUC.paper(loss, iterations=4, average_start=1))
        found[f"authors {loss}"] = fitted(MFAUC.authors(loss, iterations=4, average_start=1))
        found[f"full_batch {loss}"] = fitted(MFAUC(loss=loss, solver="full_batch", **few))
        found[f"minibatch {loss}"] = fitted(MFAUC(loss=loss, solver="minibatch", **few))
    found["paper tanh"] = fitted(MFAUC.paper(weighting="tanh", rho=0.5, iterations=4))
    found["paper β rising"] = fitted(
        MFAUC.paper("sigmoid", beta=(1.0, 2.0, 4.0), iterations=6, learning_rate=0.3)
    )
    found["sequential, thousand, svd, stratified"] = fitted(
        MFAUC.authors(
            step_rule="thousand",
            max_norm=10.0,
            start="svd",
            iterations=4,
            average_start=1,
            average_eta=20.0,
            stratified=True,
            learning_rate=2.0**-4,
        )
    )
    found["alternating tanh"] = fitted(MFAUC(weighting="tanh", rho=0.5, rank=6))
    found["alternating svd, λ fixed"] = fitted(
        MFAUC(rank=6, reg=0.1, spread=0.0, start="svd", user_steps=6, item_steps=3)
    )
    found["alternating for AUC"] = fitted(
        MFAUC(rank=6, spread=3.0, strength=0.45, tau=-0.15, tau_neg=-0.5)
    )
    found["alternating confidence"] = lambda X: MFAUC(rank=6).fit(toy(confidence=True)).factors_
    for name in ("adam", "sgd", "rmsprop", "unit"):
        found[f"minibatch {name}"] = fitted(
            MFAUC(loss="logistic", optimiser=name, learning_rate=0.05, batch=16, **few)
        )
    found["minibatch β rising"] = fitted(MFAUC(loss="sigmoid", beta=(1.0, 2.0, 4.0), **few))
    for devices in (1, 2):
        found[f"blockwise on {devices}"] = fitted(
            MFAUC(loss="square_hinge", solver="blockwise", blocks=4, devices=devices, **few)
        )
    found["blockwise λ fixed"] = fitted(
        MFAUC.paper(
            "logistic", solver="blockwise", blocks=2, iterations=3, average_start=0, average_eta=3.0
        )
    )
    found["resumed"] = resumed
    found["partial_fit"] = grown
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
        pathlib.Path(config.out).write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    return 0 if equal and not missing else 1


if __name__ == "__main__":
    flags.run(Config, main)
