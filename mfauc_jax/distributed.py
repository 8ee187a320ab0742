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
from typing import Any

import jax
import numpy as np

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
    if given["process_id"] and given["coordinator_address"]:
        _reach(given["coordinator_address"], timeout)
    jax.distributed.initialize(
        **given, initialization_timeout=timeout, heartbeat_timeout_seconds=heartbeat
    )


def _reach(coordinator: str, timeout: int) -> None:
    """Wait until process 0 listens: otherwise JAX would end this process without a Python error."""
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"coordinator = {coordinator!r} must be host:port")
    until = time.monotonic() + timeout
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=max(timeout, 1)).close()
            return
        except OSError as error:
            if time.monotonic() > until:
                raise TimeoutError(
                    f"nobody answered at {coordinator} for {timeout} s ({error}): start process 0 "
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


def users(lengths: Any, blocks: int, seed: int = 0) -> np.ndarray:
    """The rows of X that this process should load, in the order in which to load them.

    Args:
        lengths: N_i of all users, [m], which are shared out evenly.
        blocks: d of the fit, a multiple of the number of processes.
        seed: the seed of the fit.
    """
    lengths, count = np.asarray(lengths), jax.process_count()
    if blocks % count:
        raise ValueError(f"blocks = {blocks} must be a multiple of the {count} processes")
    order = blocking.deal(blocking.deal_key(seed), lengths, blocks)
    ends = np.cumsum(blocking.sizes(len(lengths), blocks))[blocks // count - 1 :: blocks // count]
    return np.split(order, ends[:-1])[jax.process_index()]
