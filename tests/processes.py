"""One of several processes that fit together: `python tests/processes.py OPTIONS_JSON`.

Started by tests/test_distributed.py; process 0 writes nothing but its own part of the factors.
"""

import json
import os
import signal
import sys
import threading

import jax
import numpy as np
import orbax.checkpoint as ocp

import mfauc_jax as mf
from mfauc_jax import distributed
from mfauc_jax._core import programs

SAVE = ocp.CheckpointManager.save


def matrix(m: int = 40, n: int = 24) -> np.ndarray:
    """The same toy in every process."""
    rng = np.random.default_rng(0)
    X = (rng.random((m, n)) < 0.25).astype(float)
    X[np.arange(m), rng.integers(0, n, m)] = 1
    return X


def model(**changes) -> mf.MFAUC:
    """What every process fits, and the one that the others are compared with."""
    solver = mf.Blockwise(6, batch=8, num_pos=2, num_neg=3, blocks=4)
    return mf.MFAUC(rank=3, loss="square_hinge", solver=solver.replace(**changes))


def dies_while_saving(self, iteration, **options):
    """Orbax's save of a process that is killed when it has begun."""
    if iteration == 4:
        threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGKILL)).start()
    return SAVE(self, iteration, **options)


def main(options: dict) -> None:
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_num_cpu_devices", options["devices"])
    where = options["coordinator"], options["count"], options["id"]
    distributed.initialize(*where, heartbeat=options.get("heartbeat", 20))
    X = matrix()
    fitting = model()
    if options.get("shard_items"):
        programs.item_rows = lambda count: count  # so that every device has items
    if options.get("solver") == "alternating":
        solver = mf.Alternating(options.get("sweeps", 6), shard_items=options.get("shard_items"))
        fitting = mf.MFAUC(rank=3, solver=solver)
        mine = np.array_split(np.arange(len(X)), options["count"])[options["id"]]
    else:
        mine = distributed.users(X.sum(1), 4)

    def killed(s, factors, record):
        if s == options.get("kill_at"):
            os.kill(os.getpid(), signal.SIGKILL)
        if s == 3 and options.get("kill_after") is not None:  # at any moment of a later sweep
            dying = (os.getpid(), signal.SIGKILL)
            threading.Timer(options["kill_after"], os.kill, dying).start()

    if options.get("kill_in_save"):
        setattr(ocp.CheckpointManager, "save", dies_while_saving)  # noqa: B010
    folder = options.get("folder")
    states = None if folder is None else mf.Checkpoints(folder, every=2)
    fitted = fitting.fit(X[mine], checkpoints=states, callbacks=[killed])
    np.savez(options["out"], users=mine, U=fitted.user_factors_, V=fitted.item_factors_)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
