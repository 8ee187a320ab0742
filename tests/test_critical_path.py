"""The modelled critical path, and the count of row updates."""

import jax
import numpy as np
import pytest
from toys import quiet

from experiments import critical_path, fig_timings
from mfauc_jax import MFAUC, Blockwise, Fixed


def test_the_critical_path_is_that_of_a_loop():
    """Kills: a mean in place of the slowest device, another schedule, a rest that is divided or forgotten."""
    rng = np.random.default_rng(0)
    d, drawn, visited = 4, rng.random(4), rng.random((4, 4))
    whole = drawn.sum() + visited.sum() + 0.5
    for devices in (1, 2, 4):
        here = d // devices
        path = 0.5 + max(drawn[g * here : (g + 1) * here].sum() for g in range(devices))
        for r in range(d):
            path += max(
                sum(visited[a, (a + r) % d] for a in range(g * here, (g + 1) * here))
                for g in range(devices)
            )
        assert critical_path.modelled(whole, drawn, visited, devices) == pytest.approx(path)


def test_a_row_is_counted_once_per_visit_or_batch():
    """Kills: users counted once per iteration, items once per draw, padding or unusable users that count."""
    dense = np.random.default_rng(0).random((20, 14)) < 0.4
    dense[3] = False
    model = MFAUC(
        2,
        loss="square_hinge",
        penalty=Fixed(),
        solver=Blockwise(blocks=2, devices=1, batch=100, num_pos=200, num_neg=200),
    )
    X = quiet(dense)
    usable = (dense.any(1) & ~dense.all(1)).sum()
    assert usable < X.num_users
    iteration = critical_path.Iteration(model, X)
    users = 2 * usable  # each in two visits
    # 200 draws of each user meet every item of both blocks, in one batch per row block
    assert critical_path.row_updates(iteration) == users + 2 * 14


def test_theta_is_compared_after_equally_many_updates():
    cells = [{"iteration": [1, 2], "updates": 10, "objective": [1.0, 0.5]}]
    assert fig_timings.at_updates(cells, 15) == 0.75


def test_the_blocks_are_timed():
    dense = np.random.default_rng(1).random((20, 14)) < 0.4
    solver = Blockwise(blocks=2, devices=1, batch=7, num_pos=2, num_neg=3)
    model = MFAUC(2, loss="square_hinge", penalty=Fixed(), solver=solver)
    iteration = critical_path.Iteration(model, quiet(dense))
    drawn, visited = critical_path.of_blocks(iteration, 1)
    assert np.shape(drawn) == (2,) and np.shape(visited) == (2, 2)
    assert min(drawn) > 0 and np.min(visited) > 0
    jax.block_until_ready(iteration())
