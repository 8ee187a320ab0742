"""Every solver's step, ranking and fold-in compiled for TPUs, without one: do they fit, and what do they cost?

    pip install 'mfauc_jax[tpu,experiments]'
    python -m experiments.compile_tpu [--only=alternating,blockwise] [--results=FILE]

One record per program, size of the data and topology: bytes per chip against its memory, operations, bytes moved,
collectives, CPU seconds of compilation. Finished records are read back. The table is written beside them, as .md.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.sparse

from experiments import aot, flags, results
from mfauc_jax import MFAUC, Alternating, Blockwise, Interactions, data, losses, weightings
from mfauc_jax._core import atomic, programs
from mfauc_jax.evaluation import ranking
from mfauc_jax.objective.equation import Objective
from mfauc_jax.serving import fold_in
from mfauc_jax.solvers import base
from mfauc_jax.solvers.blockwise import design

SIMULATED = 8  # CPU devices on which arguments are made
SAMPLE = 2**15, 5000  # users and items of a sample
REAL = 1e6  # on several chips, data with more positives are described from a sample


class Size(NamedTuple):
    """The size of a data set."""

    name: str
    users: float
    items: float
    positives: float

    def rows(self) -> Interactions:
        """Random data of this size, with popular items and active users; if it is large, `regular` data."""
        m, n, nnz = int(self.users), int(self.items), int(self.positives)
        if nnz > REAL:
            return regular(m, n, nnz // m)
        return data.synthetic.power_law(jax.random.key(0), m, n, nnz)

    def sample(self) -> Interactions:
        """A few users with as many positives each, over a few items."""
        return regular(*SAMPLE, round(self.positives / self.users))


def regular(num_users: int, num_items: int, length: int) -> Interactions:
    """Users with `length` positives each."""
    first = np.random.default_rng(0).integers(0, num_items, num_users)
    items = np.sort((first[:, None] + 7 * np.arange(length)[None, :]) % num_items, axis=1)
    ends, shape = np.arange(num_users + 1) * length, (num_users, num_items)
    ones = np.ones(num_users * length)
    return Interactions.of(scipy.sparse.csr_array((ones, items.ravel(), ends), shape))


SIZES = {
    "tiny": Size("tiny", 300, 80, 3000),
    "ml-1m": Size("MovieLens 1M", 5950, 3380, 574_000),
    "1e6": Size("10⁶ × 10⁵", 1e6, 1e5, 2e7),
    "1e8": Size("10⁸ × 10⁶", 1e8, 1e6, 5e9),
    "1e9": Size("10⁹ × 10⁷", 1e9, 1e7, 5e10),
}


class Described(NamedTuple):
    """A program with the sizes that replace those of its sample, and its loops."""

    program: aot.Program
    sizes: dict[int, int]
    loops: aot.Loops


def step(model: MFAUC, X: Interactions) -> aot.Program:
    """One iteration of the model's solver on X."""
    solver = model.chosen_solver
    order = solver.order(X, model.seed)
    X = X if order is None else X.take(order)
    problem = model.problem(X)
    start = solver.start(model.start, jax.random.key(1), X, model.rank)
    state, inputs = solver.init(problem, start), solver.prepare(problem)
    args = solver, solver.seen_by_step(problem), jax.random.key(0), state, inputs
    return aot.Program(base.run, args)


def alternating(size: Size, rank: int, chips: int, shard_items: bool = False) -> Described:
    """The default solver on all chips: users are split, V is on every chip or, if `shard_items`, split by items."""
    real = size.positives <= REAL and chips <= SIMULATED
    devices = chips if real else 4
    solver = Alternating(devices=devices, shard_items=shard_items)
    X = size.rows() if real else size.sample()
    model = MFAUC(rank, solver=solver)
    program, tiling = step(model, X), solver._tiling(model.problem(X))[0]
    chunks, sizes = tiling.most, {}
    if not real:
        per_chip = size.users / chips
        chunks = programs.rounded(round(chunks * per_chip * devices / X.num_users), 8)
        users, items = programs.user_rows(round(per_chip)), programs.item_rows(int(size.items))
        items += -items % chips if shard_items else 0
        sizes = {
            devices * tiling.most: chips * chunks,
            devices * tiling.size: chips * users,
            programs.item_rows(X.num_items): items,
            devices: chips,
        }
        _check(sizes, rank, tiling.tile * tiling.tiles, tiling.tiles, tiling.systems)
    passes = solver.item_steps + 1
    return Described(program, sizes, aot.Loops((passes, chunks, solver.user_steps + 1), 1 / passes))


def blockwise(size: Size, rank: int, chips: int) -> Described:
    """The paper's parallel algorithm with as many blocks as chips: users and items are split."""
    real = size.positives <= REAL and chips <= SIMULATED
    devices = chips if real else 4
    solver, X = Blockwise(blocks=devices), size.rows() if real else size.sample()
    program = step(MFAUC(rank, loss="logistic", solver=solver), X)
    if real:
        return Described(program, {}, aot.Loops())
    inputs: Any = program.args[-1]
    (_, entries), (_, users) = inputs.users.items.shape, inputs.users.length.shape
    per_chip = design.padded(-(-int(size.users) // chips), chips)
    sizes = {
        devices: chips,
        entries: round(size.positives / chips),
        users: per_chip,
        devices * users: chips * per_chip,
        inputs.items.b.shape[0]: design.padded(int(size.items), chips),
    }
    _check(sizes, rank)
    args = (solver.replace(blocks=chips), *program.args[1:])
    return Described(program._replace(args=args), sizes, aot.Loops())


def _check(sizes: dict[int, int], *others: int) -> None:
    if set(sizes) & set(others):
        raise ValueError(f"the sample's sizes {sizes} and {others} must differ: change SAMPLE")


def on_one_chip(model: MFAUC) -> Callable[[Size, int, int], Described]:
    """The step of a solver that runs on one device."""

    def make(size: Size, rank: int, chips: int) -> Described:
        del chips
        return Described(step(model.with_params(rank=rank), size.rows()), {}, aot.Loops())

    return make


def lists(size: Size, rank: int, chips: int) -> Described:
    """The 16 best items of a block of users."""
    del chips
    items, users = int(size.items), ranking.batch_size(1024, int(size.items))
    N = programs.item_rows(items)
    args = _array(users, rank), _array(N, rank), _array(users, N, dtype=bool)
    return Described(aot.Program(ranking._top, args, {"n": 16}), {}, aot.Loops())


def folded(size: Size, rank: int, chips: int) -> Described:
    """One Newton step of the fold-in of users with up to 64 positives, logistic loss (that of the square is NumPy)."""
    del chips
    P, N = 64, programs.item_rows(int(size.items))
    users = 1 << max(1, fold_in.BUDGET // (P * N)).bit_length() - 1
    vectors = (_array(users) for _ in range(3))
    block = fold_in.Block(
        _array(users, P, dtype=np.int32), _array(users, P), _array(users, P), *vectors
    )
    alone = Objective(losses.logistic, reg=0.0, spread=0.0)
    args = alone, _array(N, rank), _array(N), block, _array(users, rank)
    return Described(aot.Program(fold_in._by_pairs, args), {}, aot.Loops())


def _array(*shape: int, dtype: Any = np.float32) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


SOFTMAX = MFAUC(loss="exponential", weighting=weightings.Log(c=1000.0), solver="dense")
BY_ITEMS = "alternating_by_items"  # V is split too
PROGRAMS: dict[str, Callable[[Size, int, int], Described]] = {
    "alternating": alternating,
    BY_ITEMS: partial(alternating, shard_items=True),
    "blockwise": blockwise,
    "minibatch": on_one_chip(MFAUC(loss="logistic", solver="minibatch")),
    "dense": on_one_chip(SOFTMAX),
    "full_batch": on_one_chip(MFAUC(loss="logistic", solver="full_batch")),
    "sequential": on_one_chip(MFAUC.paper()),
    "recommend": lists,
    "fold_in": folded,
}
ON_MESH = ("alternating", BY_ITEMS, "blockwise")
SMALL = ("v5e:2x2", "v5p:2x2x1", "v6e:2x4")
LARGE = ("v5e:16x16", "v5p:4x8x8", "v6e:16x16")


def jobs() -> Iterator[dict[str, Any]]:
    """What is compiled: program, size, rank and topology of each record."""
    yield from _jobs("alternating", "ml-1m", 64, *SMALL)
    for name in ("recommend", "fold_in"):
        yield from _jobs(name, "ml-1m", 64, *SMALL)
        for size in ("1e6", "1e9"):
            yield from _jobs(name, size, 64, SMALL[0])
    yield from _jobs("alternating", "1e8", 64, LARGE[0])
    yield from _jobs("alternating", "1e9", 64, *LARGE)
    yield from _jobs(BY_ITEMS, "1e8", 64, LARGE[0])
    yield from _jobs(BY_ITEMS, "1e9", 64, *LARGE)
    for name in ("minibatch", "dense", "blockwise"):
        yield from _jobs(name, "ml-1m", 64, *SMALL)
    yield from _jobs("alternating", "1e9", 16, LARGE[0])
    yield from _jobs("blockwise", "1e9", 64, *LARGE)
    yield from _jobs("sequential", "ml-1m", 8, *SMALL)
    yield from _jobs("full_batch", "ml-1m", 64, *SMALL)
    for name in ("alternating", "minibatch", "dense"):
        yield from _jobs(name, "1e6", 64, SMALL[0])
    yield from _jobs("blockwise", "1e8", 64, LARGE[0])


def _jobs(name: str, size: str, rank: int, *topologies: str) -> Iterator[dict[str, Any]]:
    for topology in topologies:
        yield {"kind": name, "dataset": size, "rank": rank, "topology": topology}


def compiled(job: dict[str, Any]) -> dict[str, Any]:
    """What the compiler says about one job."""
    mesh = aot.tpu(job["topology"])
    program, sizes, loops = PROGRAMS[job["kind"]](SIZES[job["dataset"]], job["rank"], mesh.size)
    found = aot.compiled(aot.described(program, mesh, sizes), mesh, loops)
    chip = aot.CHIPS[job["topology"].partition(":")[0]]
    least = max(found["flops"] / chip.flops, found["bytes_moved"] / chip.bandwidth)
    return {"chips": mesh.size if job["kind"] in ON_MESH else 1, "least_seconds": least, **found}


@dataclasses.dataclass(frozen=True)
class Config:
    """What to compile, and where the records go."""

    only: tuple[str, ...] = flags.option(("all",), f"of {', '.join(PROGRAMS)}")
    quick: bool = flags.option(False, "every program once, of tiny data, for v5e:2x2")
    results: str = "results/compile_tpu.jsonl"
    limit: int = flags.option(0, "stop after so many new records; 0: no limit")
    draw_only: bool = flags.option(False, "the table of the records that are there")


def run(config: Config) -> list[dict]:
    """One record per job; finished ones are read back."""
    every = [job for name in PROGRAMS for job in _jobs(name, "tiny", 8, SMALL[0])]
    known = every if config.quick else jobs()
    wanted = [job for job in known if config.only == ("all",) or job["kind"] in config.only]
    return results.Cells(config.results, config.limit).run(wanted, compiled)


HEAD = (
    "program", "data", "k", "chips", "GB per chip", "of", "of it temporary", "Gflop", "GB moved",
    "least s", "collectives", "compiled in CPU s",
)  # fmt: skip


def table(records: list[dict]) -> str:
    """The records as a table in Markdown, by program and size."""
    programs_, sizes = list(PROGRAMS), list(SIZES)
    records = sorted(
        records, key=lambda r: (programs_.index(r["kind"]), sizes.index(r["dataset"]), -r["rank"])
    )
    lines = [f"| {' | '.join(HEAD)} |", "|" + " --- |" * len(HEAD)]
    for r in records:
        chip = aot.CHIPS[r["topology"].partition(":")[0]]
        one = r["kind"] not in ON_MESH
        cells = (
            r["kind"],
            SIZES[r["dataset"]].name,
            r["rank"],
            f"1 of {r['topology']}" if one else r["topology"],
            _short(r["bytes"] / 1e9) + ("" if r["fits"] else ": **does not fit**"),
            f"{chip.memory / 1e9:.0f}",
            _short(r["parts"]["temporaries"] / 1e9) if r["fits"] else "",
            _short(r["flops"] / 1e9),
            _short(r["bytes_moved"] / 1e9),
            _short(r["least_seconds"]),
            ", ".join(f"{count} {name}" for name, count in r.get("collectives", {}).items()),
            f"{r['compile_seconds']:.0f}",
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def by_items_table(records: list[dict]) -> str:
    """GB per chip of the largest data with V on every chip and with V split by items."""
    largest = [r for r in records if (r["dataset"], r["rank"]) == ("1e9", 64)]
    found = {(r["kind"], r["topology"]): r for r in largest}
    lines = ["| chips | GB of a chip | V on every chip | V split by items |", "|" + " --- |" * 4]
    for topology in LARGE:
        both = [found[kind, topology] for kind in ("alternating", BY_ITEMS)]
        cells = [
            f"{r['bytes'] / 1e9:.0f} GB, of it {r['parts']['temporaries'] / 1e9:.0f} temporary"
            if r["fits"]
            else f"{r['bytes'] / 1e9:.0f} GB: does not fit"
            for r in both
        ]
        memory = aot.CHIPS[topology.partition(":")[0]].memory / 1e9
        lines.append(f"| {both[1]['chips']} of {topology} | {memory:.0f} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def main(config: Config) -> int:
    """Compile, keep, and write the table of all that is kept; a program that does not compile raises."""
    if not config.draw_only:
        run(config)
    text = table(results.read(config.results))
    atomic.write_text(pathlib.Path(config.results).with_suffix(".md"), text + "\n")
    print(text)
    return 0


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", SIMULATED)
    flags.run(Config, main)
