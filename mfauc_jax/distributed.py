"""Fits in several processes, by JAX's own multi-process runtime.

    mf.distributed.initialize()                        # in every process, before any array exists
    mine = mf.distributed.users(lengths, blocks=8)     # the rows this process should load, in this order
    model = mf.MFAUC(solver=mf.Blockwise(blocks=8)).fit(X[mine])

Every process passes its own users, over the columns of all items, and ends with the factors of its own users and of all
items. On CPU the processes communicate by gloo, JAX's default.
"""

import os
import socket
import time
from typing import Any, NamedTuple

import jax
import numpy as np

from mfauc_jax._core import digests, host
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.solvers.blockwise import design as blocking


def initialize(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    timeout: int = 60,
    heartbeat: int = 20,
) -> None:
    """Join the other processes. Call it in every process, before any array exists.

    Args:
        coordinator: "host:port" of process 0; None: the environment variable MFAUC_COORDINATOR, or what JAX detects
            (Slurm, MPI, Kubernetes, cloud TPUs).
        num_processes: how many processes there are; None: MFAUC_NUM_PROCESSES.
        process_id: the number of this process, from 0; None: MFAUC_PROCESS_ID.
        timeout: seconds to wait for the others before a TimeoutError.
        heartbeat: a process that is silent for this many seconds counts as dead, and the others end.
    """
    given = {
        "coordinator_address": coordinator or os.environ.get("MFAUC_COORDINATOR"),
        "num_processes": _number(num_processes, "MFAUC_NUM_PROCESSES"),
        "process_id": _number(process_id, "MFAUC_PROCESS_ID"),
    }
    if given["coordinator_address"] and given["process_id"] is not None:
        at = _host_and_port(given["coordinator_address"])
        _reach(at, timeout) if given["process_id"] else _check_free(at)
    try:
        jax.distributed.initialize(
            **given, initialization_timeout=timeout, heartbeat_timeout_seconds=heartbeat
        )
    except ValueError as error:
        missing = [name for name, value in given.items() if value is None]
        if not missing or "be defined" not in str(error):
            raise
        raise ValueError(
            f"nothing says what {missing[0]} is: set MFAUC_COORDINATOR=host:port, MFAUC_NUM_PROCESSES and "
            "MFAUC_PROCESS_ID in every process, or start them by Slurm or MPI"
        ) from error


def _host_and_port(coordinator: str) -> tuple[str, int]:
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 2**16:
        raise ValueError(f"coordinator = {coordinator!r} must be host:port")
    return host, int(port)


def _check_free(at: tuple[str, int]) -> None:
    """Raise OSError if process 0 cannot listen at its address: JAX would crash (jaxlib 0.10.2)."""
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", at[1]))
    except OSError as error:
        raise OSError(
            error.errno,
            f"port {at[1]} of the coordinator is in use or not allowed here: choose another port",
        ) from error


def _reach(at: tuple[str, int], timeout: int) -> None:
    """Wait until process 0 listens: otherwise JAX would end this process without a Python error."""
    until = time.monotonic() + timeout
    while True:
        try:
            socket.create_connection(at, timeout=max(timeout, 1)).close()
            return
        except OSError as error:
            if time.monotonic() > until:
                raise TimeoutError(
                    f"nobody answered at {at[0]}:{at[1]} for {timeout} s ({error}): start process 0 "
                    "there, and check the address and that its port is open"
                ) from error
            time.sleep(0.2)


def _number(given: int | None, variable: str) -> int | None:
    if given is not None or variable not in os.environ:
        return given
    try:
        return int(os.environ[variable])
    except ValueError:
        raise ValueError(f"{variable} = {os.environ[variable]!r} must be an integer") from None


class Deal(NamedTuple):
    """The users that this process was given by `users`, which a fit checks."""

    lengths: np.ndarray  # N_i of its own users, in order
    facts: dict[str, Any]  # what every process must have dealt alike


_last_deal: Deal | None = None


def users(lengths: Any, blocks: int, seed: int = 0) -> np.ndarray:
    """The rows of X that this process should load, in the order in which to load them.

    A later fit in several processes checks that its rows are those that were dealt last.

    Args:
        lengths: N_i of all users, [m], which are shared out evenly.
        blocks: d of the fit, a multiple of the number of processes.
        seed: the seed of the fit.
    """
    global _last_deal  # noqa: PLW0603
    lengths, count = np.asarray(lengths), jax.process_count()
    if blocks % count:
        raise ValueError(f"blocks = {blocks} must be a multiple of the {count} processes")
    order = blocking.deal(blocking.deal_key(seed), lengths, blocks)
    ends = np.cumsum(blocking.sizes(len(lengths), blocks))[blocks // count - 1 :: blocks // count]
    mine = np.split(order, ends[:-1])[jax.process_index()]
    row_lengths = digests.text(str(lengths.tolist()))
    facts = {"blocks": blocks, "seed": seed, "users": len(lengths), "row lengths": row_lengths}
    _last_deal = Deal(lengths[mine], facts)
    return mine


def joined(rows: np.ndarray, mine: np.ndarray) -> np.ndarray:
    """The rows of the users of all processes, in the order of all users, on every host.

    Args:
        rows: those of this process's users, such as their factors.
        mine: the places of this process's users among all users, as `users` gave them.
    """
    everyone, places = host.everybody(np.asarray(rows)), host.everybody(np.asarray(mine))
    whole = np.empty_like(everyone)
    whole[places] = everyone
    return whole


def dealt() -> dict[str, Any] | None:
    """What was given to `users` last: facts that all processes must share. None if it was not called."""
    return None if _last_deal is None else _last_deal.facts


def check_rows(X: Interactions) -> None:
    """Raise ValueError if X has other rows than those that `users` gave this process, as far as their lengths tell."""
    if _last_deal is None:
        return
    wanted, found = _last_deal.lengths, X.on_host()[2]
    if len(wanted) != len(found) or (wanted != found).any():
        me = jax.process_index()
        where = (
            ""
            if len(wanted) != len(found)
            else f", first at its row {int(np.argmax(wanted != found))}"
        )
        raise ValueError(
            f"process {me} holds other rows than distributed.users gave it{where} ({len(found)} users, it gave "
            f"{len(wanted)}): give it the lengths of all rows of X, and "
            "load X[mine] in the order of mine (Interactions.take(mine) keeps ids)"
        )
