"""Checkpoints of a fit, by orbax: the solver's state and the history so far, written whole or not at all."""

import json
import pathlib
from typing import Any

import jax

from mfauc_jax._core.fields import size, text
from mfauc_jax._core.settings import Settings
from mfauc_jax.solvers.base import State


class Checkpoints(Settings):
    """Where the states of a fit are kept and resumed from, and how often they are written."""

    folder: str = text(None, help="folder where training states are kept and resumed from")
    every: int = size(10, help="iterations between training states")
    keep: int = size(2, help="how many of the newest states are kept")

    def open(self, fingerprint: dict[str, Any]) -> "States":
        """The folder's states of the fit that `fingerprint` describes."""
        return States(self.folder, fingerprint, self.every, self.keep)


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

    def save(self, state: State, history: list[dict]) -> None:
        """Write the state after `state.iteration` iterations, and the history."""
        args = self._ocp.args.Composite(
            state=self._ocp.args.StandardSave(_named(state)),
            about=self._ocp.args.JsonSave({"fingerprint": self._fingerprint, "history": history}),
        )
        self._manager.save(int(state.iteration), args=args)
        self._manager.wait_until_finished()

    def latest(self, like: State) -> tuple[State, list[dict]] | None:
        """The newest state, in the structure of `like`, and its history; None in an empty folder."""
        iteration = self._manager.latest_step()
        if iteration is None:
            return None
        about = self._restore(iteration, about=self._ocp.args.JsonRestore())["about"]
        for name, here in self._fingerprint.items():
            there = about["fingerprint"].get(name)
            if there != here:
                raise ValueError(
                    f"{self._folder} holds another fit ({name} = {there}, here {here}): choose "
                    "another folder for checkpoints or delete it"
                )
        target = jax.tree.map(self._ocp.utils.to_shape_dtype_struct, _named(like))
        state = self._restore(iteration, state=self._ocp.args.StandardRestore(target))["state"]
        restored = [state[name] for name in sorted(target)]
        return jax.tree.unflatten(jax.tree.structure(like), restored), list(about["history"])

    def _restore(self, iteration: int, **what):
        return self._manager.restore(iteration, args=self._ocp.args.Composite(**what))

    def close(self) -> None:
        """Release the folder."""
        self._manager.close()


def _named(state: State) -> dict[str, jax.Array]:
    """The leaves by number; of a leaf that is spread over processes, each process writes its own part."""
    return {f"{i:03d}": jax.numpy.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}
