"""Forks: a child of a process that has used JAX cannot use it, and is told so instead of waiting for ever."""

import os
import sys

FORKED = (
    "this process was forked after JAX had been used, and a fork does not copy JAX's threads: it would wait for ever "
    'here. Start workers by spawn, multiprocessing.get_context("spawn"), or load the model in each worker after the '
    "fork, as gunicorn does without --preload; predict, user_factors_, item_factors_ and save work here, too"
)
_jax = {
    "used": False,
    "forked": False,
}  # whether JAX was used here, and before this process was forked


def check() -> None:
    """Raise RuntimeError if JAX was used before this process was forked, for JAX would wait for ever here.

    It stands at every door to JAX: arrays and keys, `Interactions.of`, the factors that are ranked or judged, and model
    files. What is plain NumPy goes on in the child.
    """
    if _jax["forked"]:
        raise RuntimeError(FORKED)
    _jax["used"] = True


def _in_child() -> None:
    _jax["forked"] = _jax["forked"] or _jax["used"] or _used_by_others()


def _used_by_others() -> bool:
    """Whether JAX has started its devices, by whoever; False if this version of JAX does not tell."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bool(getattr(bridge, "backends_are_initialized", lambda: False)())


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_in_child)
