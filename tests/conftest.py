"""Tests run in float64, with shapes checked and silent broadcasting forbidden."""

import os

import jaxtyping

jaxtyping.install_import_hook("mfauc_jax", "typecheck.checked")

import jax  # noqa: E402

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_num_cpu_devices", 4)
jax.config.update("jax_disable_most_optimizations", True)  # tests compile more than they run

from hypothesis import HealthCheck, settings  # noqa: E402

settings.register_profile(
    "mfauc",
    deadline=None,
    derandomize=True,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "mfauc"))
