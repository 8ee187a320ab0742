"""Programs compiled ahead of time for devices that are not here: their arguments, and what the compiler says.

The arguments of a program are made for real, from a sample of the data on simulated CPU devices, and then described:
each array by its shape, its type and where it lies on the other devices. For data that no host here can hold, the
dimensions of the sample are replaced by those of the data, so that structure, types and places are the library's own.
"""

import dataclasses
import math
import os
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from unittest import mock

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from mfauc_jax._core import programs
from mfauc_jax.solvers import mesh as meshes

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4, "f64": 8}


class Chip(NamedTuple):
    """A TPU as its maker describes it: cloud.google.com/tpu/docs."""

    memory: float  # bytes
    bandwidth: float  # bytes per second
    flops: float  # per second, of bfloat16 products


CHIPS = {
    "v5e": Chip(16e9, 819e9, 197e12),
    "v5p": Chip(95e9, 2765e9, 459e12),
    "v6e": Chip(32e9, 1640e9, 918e12),
}


def tpu(topology: str) -> Mesh:
    """A mesh of TPU devices that exist for the compiler only, such as "v5e:2x2"; it needs libtpu (extra tpu)."""
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")  # do not look for a machine in the cloud
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")  # no process here holds a chip
    from jax.experimental import topologies

    found = topologies.get_topology_desc(platform="tpu", topology_name=topology)
    return Mesh(np.array(found.devices), (meshes.AXIS,), axis_types=(AxisType.Auto,))


class Program(NamedTuple):
    """A function of the library and the arguments of one call of it, arrays or descriptions of arrays."""

    function: programs.Jitted
    args: tuple
    options: Mapping[str, Any] = {}


def described(program: Program, mesh: Mesh, sizes: Mapping[int, int] | None = None) -> Program:
    """The program with its arrays described as arrays on `mesh`, or on its first device if they are on one device.

    Args:
        program: with arrays on devices of this process.
        mesh: the devices to compile for.
        sizes: dimensions that are replaced by others, wherever they occur.
    """
    sizes = sizes or {}
    arrays = [leaf for leaf in jax.tree.leaves(program.args) if isinstance(leaf, jax.Array)]
    split = any(len(array.sharding.device_set) > 1 for array in arrays)

    def describe(leaf: Any) -> Any:
        if isinstance(leaf, meshes.Devices):
            return dataclasses.replace(leaf, mesh=mesh)
        array = leaf if hasattr(leaf, "shape") and hasattr(leaf, "dtype") else np.asarray(leaf)
        dtype = jax.dtypes.canonicalize_dtype(array.dtype, allow_extended_dtype=True)
        shape = tuple(sizes.get(size, size) for size in array.shape)
        spec = getattr(getattr(array, "sharding", None), "spec", PartitionSpec())
        place = NamedSharding(mesh, spec) if split else SingleDeviceSharding(mesh.devices.flat[0])
        is_number = array is not leaf  # a number of Python takes on the type of what it meets
        return jax.ShapeDtypeStruct(shape, dtype, sharding=place, weak_type=is_number)

    is_leaf = lambda part: isinstance(part, meshes.Devices)  # noqa: E731
    return program._replace(args=jax.tree.map(describe, program.args, is_leaf=is_leaf))


def traced(program: Program, mesh: Mesh) -> Any:
    """The program as a `jax.stages.Traced`; solvers that make their own mesh of devices are given `mesh`."""
    with mock.patch.object(meshes, "ring", lambda devices=None: mesh):
        options = dict(program.options)
        function: Any = program.function
        plain = jax.jit(function.__wrapped__, static_argnames=tuple(options))
        return plain.trace(*program.args, **options)


@dataclasses.dataclass(frozen=True)
class Loops:
    """How often the loops run whose bounds are known only when the program runs."""

    turns: tuple[float, ...] = ()  # of such a loop by its depth among such loops; 1 beyond the last
    taken: float = 1.0  # how often the larger branch of a condition is taken


class Work(NamedTuple):
    """Arithmetic operations, and bytes of the rows that are gathered, scattered, multiplied or exchanged."""

    flops: float = 0.0
    bytes: float = 0.0

    def plus(self, other: "Work", times: float = 1.0) -> "Work":
        """The sum of this and `times` the other."""
        return Work(self.flops + times * other.flops, self.bytes + times * other.bytes)


def work(jaxpr: Any, loops: Loops, depth: int = 0) -> Work:
    """The work of a program, loops counted as often as they run; XLA's own count takes each loop's body once."""
    total = Work()
    for equation in jaxpr.eqns:
        name, params = equation.primitive.name, equation.params
        if name == "scan":
            total = total.plus(work(params["jaxpr"].jaxpr, loops, depth), params["length"])
        elif name == "while":
            turns = loops.turns[depth] if depth < len(loops.turns) else 1.0
            total = total.plus(work(params["body_jaxpr"].jaxpr, loops, depth + 1), turns)
        elif name == "cond":
            branches = [work(branch.jaxpr, loops, depth) for branch in params["branches"]]
            total = total.plus(max(branches), loops.taken)
        else:
            inner = list(_inner(params))
            for one in inner:
                total = total.plus(work(one, loops, depth))
            total = total if inner else total.plus(_own(equation))
    return total


def _inner(params: Mapping[str, Any]) -> Iterator[Any]:
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        if name in params:
            yield getattr(params[name], "jaxpr", params[name])


def _own(equation: Any) -> Work:
    """The work of one operation; those that a compiler fuses into others move nothing of their own."""
    name, (out, *_) = equation.primitive.name, equation.outvars
    shape = getattr(out.aval, "shape", ())
    size = math.prod(shape)
    is_float = jax.numpy.issubdtype(getattr(out.aval, "dtype", int), np.floating)
    if name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        length = math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
        return Work(2.0 * size * length, sum(map(_bytes, (*equation.invars, out))))
    if name == "gather":
        return Work(0.0, 2.0 * _bytes(out))
    if name.startswith("scatter"):
        return Work(0.0, 3.0 * _bytes(equation.invars[2]))
    if name in ("psum", "psum_invariant", "ppermute", "dynamic_slice"):
        return Work(0.0, 2.0 * sum(map(_bytes, equation.outvars)))
    if name in ("all_gather", "reduce_scatter"):  # the larger of what goes in and what comes out
        return Work(0.0, 2.0 * max(_bytes(equation.invars[0]), _bytes(out)))
    if name in ("sort", "top_k"):
        return Work(0.0, 2.0 * sum(map(_bytes, equation.invars)))
    moves = (
        "broadcast_in_dim",
        "reshape",
        "transpose",
        "slice",
        "concatenate",
        "pad",
        "squeeze",
        "copy",
        "iota",
    )
    return Work(float(size) if is_float and name not in moves else 0.0)


def _bytes(variable: Any) -> float:
    aval = variable.aval
    return math.prod(aval.shape) * np.dtype(aval.dtype).itemsize if hasattr(aval, "shape") else 0.0


def collectives(hlo: str) -> dict[str, int]:
    """The collective operations in a compiled program, by kind."""
    names = "|".join(COLLECTIVES)
    return dict(sorted(Counter(re.findall(rf" ({names})(?:-start)?\(", hlo)).items()))


def compiled(program: Program, mesh: Mesh, loops: Loops = Loops()) -> dict[str, Any]:
    """What the compiler says about a described program: bytes per chip, work, collectives, CPU seconds."""
    tracing = traced(program, mesh)
    counted = work(tracing.jaxpr, loops)
    lowered, begun = tracing.lower(), time.process_time()
    record: dict[str, Any] = {"flops": counted.flops, "bytes_moved": counted.bytes}
    try:
        done = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        found = re.search(r"([\d.]+)([KMGT])\)? (?:of|exceeds)", str(error))
        if "RESOURCE_EXHAUSTED" not in str(error) or found is None:
            raise
        needed = float(found[1]) * 1024.0 ** ("KMGT".index(found[2]) + 1)
        if "temporaries" in str(error):
            needed += _arguments(program)
        return record | {"fits": False, "bytes": needed, "compile_seconds": _since(begun)}
    memory, cost = done.memory_analysis(), done.cost_analysis()
    parts = {
        "arguments": memory.argument_size_in_bytes,
        "results": memory.output_size_in_bytes - memory.alias_size_in_bytes,
        "temporaries": memory.temp_size_in_bytes,
        "code": memory.generated_code_size_in_bytes,
    }
    return record | {
        "fits": True,
        "bytes": sum(parts.values()),
        "parts": parts,
        "xla": {"flops": cost.get("flops", 0.0), "bytes": cost.get("bytes accessed", 0.0)},
        "collectives": collectives(done.as_text()),
        "compile_seconds": _since(begun),
    }


def _arguments(program: Program) -> float:
    """Bytes of the described arguments on one device."""
    leaves = jax.tree.leaves(program.args)
    return sum(
        math.prod(a.sharding.shard_shape(a.shape)) * np.dtype(a.dtype).itemsize
        for a in leaves
        if a.ndim
    )


def _since(begun: float) -> float:
    return round(time.process_time() - begun, 1)
