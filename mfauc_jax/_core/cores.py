"""One CPU device per core, by one explicit call: the only place of the library that touches `jax.config`."""

import os

import jax


def count() -> int:
    """The cores that this process may use: those it is bound to, or NPROC if that is fewer, as for XLA's threads."""
    known = getattr(os, "sched_getaffinity", None)  # not on every system
    bound = len(known(0)) if known is not None else os.cpu_count() or 1
    given = os.environ.get("NPROC", "")
    return max(1, min(bound, int(given))) if given.isdigit() else bound


def use_cores(cores: int | None = None) -> int:
    """Give this process one CPU device per core, so that the alternating solver uses all of them.

    Call it before any array exists, because JAX decides at its start how many CPU devices there are. Two calls with
    the same number are one.

    Args:
        cores: how many; None: as many as this process may use.

    Returns:
        The number of CPU devices.

    Raises:
        RuntimeError: JAX has started with another number of devices.
    """
    cores = count() if cores is None else cores
    if cores < 1:
        raise ValueError(f"cores = {cores} must be ≥ 1")
    try:
        jax.config.update("jax_num_cpu_devices", cores)
    except RuntimeError as error:
        present = jax.local_device_count("cpu")
        if present != cores:
            raise RuntimeError(
                f"JAX has started with {present} CPU devices, and use_cores({cores}) comes too late: call it before "
                f"any array exists, or start Python with JAX_NUM_CPU_DEVICES={cores}"
            ) from error
    return cores
