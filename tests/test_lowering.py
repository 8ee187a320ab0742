"""Every program of the library lowers for CUDA, and compiles for TPUs where libtpu is installed."""

import json
import os
import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest

from experiments import aot, compile_tpu, results
from mfauc_jax import solvers

TINY = compile_tpu.SIZES["tiny"]
PROGRAMS = compile_tpu.PROGRAMS


def test_every_solver_is_among_the_programs():
    """Kills: a solver that nobody compiles. A continuation takes the steps of another solver."""
    assert set(solvers.base.SOLVERS) - {"continuation"} <= set(PROGRAMS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_lowers_for_cuda(name):
    """Kills: an operation that only CPUs have."""
    program = PROGRAMS[name](TINY, 6, 4).program
    leaves, structure = jax.tree.flatten(program.args)

    def function(*leaves):
        args = jax.tree.unflatten(structure, leaves)
        return jax.tree.leaves(program.function.__wrapped__(*args, **program.options))

    exported = jax.export.export(jax.jit(function), platforms=("cuda",))(*leaves)
    assert exported.platforms == ("cuda",)
    assert exported.nr_devices == (4 if name in compile_tpu.ON_MESH else 1)


def test_work_counts_loops_as_often_as_they_run():
    """Kills: a scan counted once, a product without its length, the wrong branch of a condition."""

    def function(A, x, count):
        x = jax.lax.fori_loop(0, 7, lambda _, x: A @ x, x)  # 7 · 2 · 5 · 5
        x = jax.lax.fori_loop(0, count, lambda _, x: A @ x, x)  # 3 · 2 · 5 · 5
        return jax.lax.cond(count > 2, lambda x: A @ x, lambda x: x, x)  # half of 2 · 5 · 5

    A, x = jax.numpy.zeros((5, 5)), jax.numpy.zeros(5)
    found = aot.work(jax.make_jaxpr(function)(A, x, 3).jaxpr, aot.Loops((3.0,), 0.5))
    assert found.flops == pytest.approx((7 + 3 + 0.5) * 50, abs=3)
    assert found.bytes == (7 + 3 + 0.5) * 8 * (25 + 5 + 5)


def test_a_sample_with_its_sizes_replaced_has_the_shapes_of_the_data():
    """Kills: a dimension that is replaced in one array and not in another."""
    size = compile_tpu.Size("", 2**17, 9000, 2**17 * 50)
    program, sizes, _ = compile_tpu.alternating(size, 6, 8)
    mesh = jax.sharding.Mesh(jax.devices()[:4], ("devices",))
    *_, state, inputs = aot.described(program, mesh, sizes).args
    assert inputs.devices.mesh is mesh
    assert state.factors.U.shape == (2**17, 6) and inputs.user.shape == (2**17,)
    assert state.factors.V.shape == (9216, 6) and inputs.b.shape == (9216,)
    chunks = {a.shape[0] for a in (inputs.users.rows, inputs.users.items, *inputs.users.values)}
    assert len(chunks) == 1 and inputs.users.count.shape == (8,)
    held = inputs.users.items.size / size.positives
    assert 1 <= held < 1.6  # with the padding of rows of 50 to tiles of 16


def test_the_table_in_the_docs_is_that_of_the_records():
    """Kills: a number of the table that was edited by hand, records that were not committed with it."""
    kept = results.COMMITTED / "compile_tpu.jsonl"
    records = results.read(kept)
    assert compile_tpu.table(records) + "\n" == kept.with_suffix(".md").read_text()
    assert {record["kind"] for record in records} == set(PROGRAMS)
    assert not any(record["commit"].endswith("-dirty") for record in records)


def test_every_dimension_of_a_sample_in_blocks_is_replaced():
    """Kills: a dimension of the blockwise layout that stays as in the sample."""
    size = compile_tpu.Size("", 2**16, 9000, 2**16 * 20)
    program, sizes, _ = compile_tpu.blockwise(size, 6, 2)
    items = sizes[program.args[-1].items.b.shape[0]]
    assert 9000 <= items < 9010
    leaves = [leaf for leaf in jax.tree.leaves(program.args[-2:]) if np.ndim(leaf)]
    found = {sizes.get(length, length) for leaf in leaves for length in leaf.shape}
    assert found == {2, 6, 2**15, 2**16, 2**15 * 20, items}


@pytest.mark.timeout(3600)
def test_every_program_compiles_for_tpus(tmp_path):
    """Kills: an operation that TPUs lack, a solver that stops compiling for v5e:2x2."""
    pytest.importorskip("libtpu", reason="needs the extra tpu: run by .ci/full")
    out = tmp_path / "tpu.jsonl"
    ran = subprocess.run(
        [sys.executable, "-m", "experiments.compile_tpu", "--quick", f"--results={out}"],
        cwd=pathlib.Path(__file__).parent.parent,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=3500,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert [record["kind"] for record in records] == list(PROGRAMS)
    found = {record["kind"]: record for record in records}
    assert all(record["fits"] and record["bytes"] > 0 for record in records)
    assert set(found["alternating"]["collectives"]) == {"all-reduce"}
    assert "all-gather" in found[compile_tpu.BY_ITEMS]["collectives"]  # a TPU sums by all-reduce
    assert "collective-permute" in found["blockwise"]["collectives"]
    assert not found["minibatch"]["collectives"]
