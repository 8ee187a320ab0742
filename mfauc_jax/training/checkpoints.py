"""Checkpoints of a fit, by orbax: all that the next iteration needs, written whole or not at all, and read with care.

A state holds the solver's state, the history, and what the watcher has seen (the best factors, and how long they have
been the best). Digests of all of it are kept beside it, so a damaged state is noticed, and the one before it is used.
"""

import json
import logging
import pathlib
import warnings
from typing import Any, NamedTuple

import jax
import numpy as np

from mfauc_jax._core import digests, host
from mfauc_jax._core.factors import Factors
from mfauc_jax._core.fields import size, text
from mfauc_jax._core.settings import Settings
from mfauc_jax.data.digest import digest
from mfauc_jax.problem import Problem
from mfauc_jax.solvers.base import Solver, State
from mfauc_jax.training.watch import Seen, Watcher

LOG = logging.getLogger("mfauc_jax")
BEST = ("best_U", "best_V")  # the names of the best factors among the arrays of a state


class Checkpoints(Settings):
    """Where the states of a fit are kept and resumed from, and how often they are written."""

    folder: str = text(None, help="folder where training states are kept and resumed from")
    every: int = size(10, help="iterations between training states")
    keep: int = size(2, help="how many of the newest states are kept")

    def open(self, fingerprint: dict[str, Any]) -> "States":
        """The folder's states of the fit that `fingerprint` describes."""
        return States(self.folder, fingerprint, self.every, self.keep)


def identity_of(
    settings: dict[str, Any],
    solver: Solver,
    problem: Problem,
    watcher: Watcher | None,
    order: np.ndarray | None = None,
) -> dict[str, Any]:
    """What makes a fit the same fit when it is resumed; the layout over devices and processes does not.

    Args:
        settings: the settings of the model, as from `describe(identity=True)`.
        solver: the solver of the fit.
        problem: the data in the solver's order, and the objective.
        watcher: what the fit watches, if anything.
        order: the solver's order of the users, as from `Solver.order`.
    """
    X = problem.X
    sizes = {"users": int(host.total(X.num_users)), "positives": int(host.total(X.nnz))}
    own = settings | sizes | {"items": X.num_items, "data": digest(X)}
    own["float"] = str(jax.dtypes.canonicalize_dtype(float))
    if len(solver.stages(problem.objective)) > 1:  # then each stage's share depends on T
        own["iterations"] = solver.iterations
    if problem.sides is not None:
        own["features"] = [None if side is None else side.digest() for side in problem.sides]
    return own | (watcher.identity(order) if watcher else {"watch": None, "validation": None})


class Kept(NamedTuple):
    """What a state holds."""

    state: State
    history: list[dict]
    seen: Seen | None = None  # None: the fit has no watcher
    stopped: str | None = None  # why the fit ended here; None: it went on


class States:
    """A folder with the states of one fit. A killed process loses the iterations since the last state only.

    `fingerprint` describes the fit. A folder that holds another fit is refused, not overwritten.
    """

    def __init__(self, folder: str, fingerprint: dict[str, Any], every: int, keep: int):
        import orbax.checkpoint as ocp

        self._ocp, self.every = ocp, every
        self._fingerprint = json.loads(json.dumps(fingerprint, default=str))
        options = ocp.CheckpointManagerOptions(max_to_keep=keep, enable_async_checkpointing=False)
        self._manager = ocp.CheckpointManager(pathlib.Path(folder).absolute(), options=options)
        self._folder = folder
        self._damaged: set[int] = set()

    def save(self, kept: Kept) -> None:
        """Write the state after `kept.state.iteration` iterations."""
        iteration, seen, arrays = int(kept.state.iteration), kept.seen, _named(kept.state)
        if seen is not None and seen.best is not None:
            arrays |= dict(zip(BEST, seen.best, strict=True))
        about = {
            "fingerprint": self._fingerprint,
            "history": kept.history,
            "watched": None if seen is None else {"value": seen.value, "waited": seen.waited},
            "stopped": kept.stopped,
            "has_best": BEST[0] in arrays,
            "digest": _digest(arrays),
        }
        if iteration in self._damaged:
            self._manager.delete(iteration)
            self._damaged.remove(iteration)
        args = self._ocp.args.Composite(
            state=self._ocp.args.StandardSave(arrays),
            about=self._ocp.args.JsonSave(about | {"sha256": _sha256(about)}),
        )
        self._manager.save(iteration, args=args, force=True)  # also below the newest iteration
        self._manager.wait_until_finished()

    def latest(self, like: State, iterations: int, best_like: Factors) -> Kept | None:
        """The newest state of at most `iterations` iterations that is whole; None in an empty folder.

        Args:
            like: a state of the same structure, shapes and placement.
            iterations: T of the fit.
            best_like: factors of the shape and placement of the best ones.
        """
        steps, damage = sorted(self._manager.all_steps(), reverse=True), ""
        for iteration in steps:
            kept, damage_here = self._kept(iteration, like, iterations, best_like)
            if damage_here:
                damage = damage_here
                self._damaged.add(iteration)
                continue
            if kept is None:  # of a longer fit
                continue
            if damage:
                warnings.warn(
                    f"{self._folder}: the state of iteration {min(self._damaged)} is damaged ({damage}); "
                    f"the fit goes on from iteration {iteration}",
                    stacklevel=4,
                )
            LOG.info("%s: the fit goes on from iteration %d", self._folder, iteration)
            return kept
        if not steps:
            return None
        if len(self._damaged) == len(steps):
            raise ValueError(
                f"{self._folder}: no state can be read ({damage}): delete the folder to start again"
            )
        raise ValueError(
            f"{self._folder} holds states of iterations {', '.join(map(str, reversed(steps)))}, and iterations = "
            f"{iterations}: ask for at least {steps[-1]}, or choose another folder for checkpoints"
        )

    def _kept(
        self, iteration: int, like: State, iterations: int, best_like: Factors
    ) -> tuple[Kept | None, str]:
        """A state, or None if its iteration is beyond `iterations`; and what is damaged, in this process or another."""
        about, arrays, damage, other_fit = {}, {}, "", ""
        try:
            about = self._about(iteration)
            other_fit = self._difference(about["fingerprint"])
            if not other_fit and iteration <= iterations:
                arrays = self._arrays(iteration, like, best_like if about["has_best"] else None)
        except Exception as error:  # orbax and tensorstore raise all kinds
            damage = (str(error).strip() or type(error).__name__).splitlines()[0][:160]
        problems = np.any(
            host.everyone(np.array([bool(other_fit), bool(damage)], np.int32)), axis=0
        )
        if problems[1]:
            return None, damage or "in another process"
        if problems[0]:
            raise ValueError(other_fit)
        if iteration > iterations:
            return None, ""
        if about["digest"] != _digest(arrays):
            return None, "its arrays do not match their checksum"
        best = Factors(*(arrays.pop(name) for name in BEST)) if about["has_best"] else None
        watched = about["watched"]
        seen = None if watched is None else Seen(best, watched["value"], watched["waited"])
        state = jax.tree.unflatten(jax.tree.structure(like), [arrays[n] for n in sorted(arrays)])
        return Kept(state, list(about["history"]), seen, about["stopped"]), ""

    def _about(self, iteration: int) -> dict[str, Any]:
        about = dict(self._restore(iteration, about=self._ocp.args.JsonRestore())["about"])
        if about.pop("sha256", None) != _sha256(about):
            raise ValueError("its description does not match its checksum")
        return about

    def _difference(self, there: dict[str, Any]) -> str:
        """What the fit of a state has otherwise than this one, as an error message; "" if nothing."""
        here = self._fingerprint
        for name in {**here, **there}:
            if there.get(name) != here.get(name):
                return (
                    f"{self._folder} holds another fit ({name} = {there.get(name)}, here {here.get(name)}): "
                    "choose another folder for checkpoints or delete it"
                )
        return ""

    def _arrays(
        self, iteration: int, like: State, best_like: Factors | None
    ) -> dict[str, jax.Array]:
        target: dict[str, Any] = _named(like)
        if best_like is not None:
            target |= dict(zip(BEST, best_like, strict=True))
        shapes = jax.tree.map(self._ocp.utils.to_shape_dtype_struct, target)
        return dict(self._restore(iteration, state=self._ocp.args.StandardRestore(shapes))["state"])

    def _restore(self, iteration: int, **what):
        return self._manager.restore(iteration, args=self._ocp.args.Composite(**what))

    def close(self) -> None:
        """Release the folder."""
        self._manager.close()


def _named(state: State) -> dict[str, jax.Array]:
    """The leaves by number; of a leaf that is spread over processes, each process writes its own part."""
    return {f"{i:03d}": jax.numpy.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}


def _digest(arrays: dict[str, jax.Array]) -> dict[str, str]:
    """The digest of each array, whatever its placement on devices and processes."""
    return {name: digests.total(_parts(array)) for name, array in sorted(arrays.items())}


def _parts(array: jax.Array) -> list[np.ndarray]:
    """The digests of the rows of an array that this process holds and that are its to count."""
    row = int(np.prod(array.shape[1:], dtype=np.int64))
    parts = [np.zeros(2, np.uint64)]
    for shard in array.addressable_shards:
        if shard.replica_id == 0:
            first = (shard.index[0].start or 0) * row if shard.index else 0
            parts.append(digests.array(shard.data, first))
    return parts


def _sha256(about: dict[str, Any]) -> str:
    return digests.text(json.dumps(about, sort_keys=True, default=str))
