"""What the exact θ and ∇θ cost, and what sampling negatives at a large scale needs.

    python -m experiments.bench_exact [--data_dir=DIR]

| part   | measured, each in a fresh process                                                |
| user   | one user, tanh-weighted square hinge, θ and ∇θ: time and memory                  |
| growth | the same for rising n, N_i fixed and N_i = n/10, with the slope of log t on log n |
| matrix | all users of MovieLens-1M's shape, θ and ∇θ, square and square hinge             |
| stream | negatives for every user of a very large matrix, in batches: peak memory         |

Times are the least of `repeats` after compilation. "Temporaries" are what XLA allocates besides
arguments and results. The exit code says whether the targets are met.
"""

import dataclasses
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from experiments import flags, measure, results

SECONDS, TEMPORARIES, EXPONENT, STREAM = 0.1, 50.0, 1.15, 1000.0  # targets; memory in MB


@dataclasses.dataclass(frozen=True)
class Config:
    """Issue 2's sizes."""

    parts: tuple[str, ...] = ("user", "growth", "matrix", "stream")
    data_dir: str = flags.option("", "where ml-1m is; empty: a power-law matrix of its shape")
    rank: int = 64
    items: int = flags.option(100_000, "n of the one user")
    positives: int = flags.option(100, "N_i of the one user")
    sizes: tuple[int, ...] = flags.option(
        (1_000, 10_000, 100_000, 1_000_000), "numbers of items over which growth is measured"
    )
    matrix: tuple[int, ...] = flags.option(
        (5950, 3380, 574_467), "m, n and nnz; the default is MovieLens 1M's"
    )
    stream_users: int = 1_000_000
    stream_items: int = 1_000_000
    stream_positives: int = 20
    negatives: int = 10
    batch: int = flags.option(65_536, "users per batch of the stream")
    repeats: int = 5
    seed: int = 0
    results: str = "results/bench_exact.jsonl"


def run(config: Config) -> list[dict]:
    """The records of every part, each from a process of its own."""
    unknown = set(config.parts) - set(PARTS)
    if unknown:
        raise ValueError(f"unknown part {unknown.pop()!r}: choose from {', '.join(PARTS)}")
    records = []
    for name in config.parts:
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=spawn) as process:
            records += process.submit(PARTS[name], config).result()
    return records


def user(config: Config) -> list[dict]:
    """θ and ∇θ of one user among n items."""
    return [{"part": "user", **one_user(config, config.items, config.positives)}]


def growth(config: Config) -> list[dict]:
    """One user again, for every n, with N_i as given and with N_i = n/10."""
    records = []
    for law in ("fixed", "tenth"):
        for n in config.sizes:
            positives = config.positives if law == "fixed" else n // 10
            records.append({"part": "growth", "law": law, **one_user(config, n, positives)})
    return records


def one_user(config: Config, n: int, positives: int) -> dict:
    """Seconds and temporaries (MB) of the tanh-weighted square hinge."""
    from mfauc_jax.data.interactions import Interactions

    rng = np.random.default_rng(config.seed)
    row = np.sort(rng.choice(n, positives, replace=False))
    return cost(config, Interactions.from_csr([0, positives], row, n), "square_hinge", "tanh")


def matrix(config: Config) -> list[dict]:
    """θ and ∇θ of a whole matrix."""
    import jax

    from mfauc_jax import data

    if config.data_dir:
        X, source = data.load("ml-1m", config.data_dir), "MovieLens 1M"
    else:
        X = data.synthetic.power_law(jax.random.key(config.seed), *config.matrix)
        source = "power law"
    return [
        {"part": "matrix", "source": source, **cost(config, X, loss, phi)}
        for loss in ("square", "square_hinge")
        for phi in ("identity", "tanh")
    ]


def cost(config: Config, X, loss: str, weighting: str) -> dict:
    """Seconds after compilation, and what the compiled program says it allocates."""
    import jax

    from mfauc_jax import Fixed, Gaussian, Problem, Weights
    from mfauc_jax.objective import exact

    problem = Problem.of(X, loss, weighting, Weights.paper(), Fixed(reg=0.1))
    objective, plan = problem.objective, exact.plan(problem.objective, X, problem.weights)
    at = Gaussian(scale=0.3).draw(jax.random.key(config.seed), X, config.rank)
    compiled = exact.value_and_grad.lower(objective, at, plan).compile()
    memory = compiled.memory_analysis()
    assert memory is not None, "this backend does not say what it allocates; use the CPU's"
    seconds = measure.warm_seconds(lambda: compiled(objective, at, plan), config.repeats)
    return {
        "loss": loss,
        "weighting": weighting,
        "users": X.num_users,
        "items": X.num_items,
        "positives": X.nnz,
        "seconds": seconds,
        "temporaries": memory.temp_size_in_bytes / 1e6,
        "gradient": memory.output_size_in_bytes / 1e6,
    }


def stream(config: Config) -> list[dict]:
    """Negatives for every user, one batch at a time; each batch is checked against its rows."""
    import jax
    import jax.numpy as jnp

    from mfauc_jax.data.interactions import Interactions
    from mfauc_jax.objective import lookups, sampling
    from mfauc_jax.objective.weights import Weights

    jax.random.bits(jax.random.key(0)).block_until_ready()  # the runtime itself is not counted
    before = measure.peak_resident()
    m, n, N = config.stream_users, config.stream_items, config.stream_positives
    rng = np.random.default_rng(config.seed)
    indices = np.empty((m, N), np.int32)
    for at in range(0, m, config.batch):  # N distinct sorted items: gaps summed up
        gaps = rng.integers(1, n // N + 1, (min(config.batch, m - at), N), np.int32)
        indices[at : at + config.batch] = np.cumsum(gaps, 1) - 1
    X = Interactions(
        jnp.arange(0, m * N + 1, N, dtype=jnp.int32),
        jnp.asarray(indices.ravel()),
        num_items=n,
        row_bits=N.bit_length(),
    )
    del indices
    weights = Weights.paper().of(X)
    made = measure.peak_resident() - before
    draw = jax.jit(sampling.draw_negatives, static_argnums=4)
    holds = jax.jit(lambda X, users, items: lookups.contains(X, users, items)[0].any())
    key, users = jax.random.key(config.seed), jnp.arange(min(config.batch, m))
    draw(key, X, weights, users, config.negatives)[0].block_until_ready()
    start, wrong = time.perf_counter(), 0
    for part in range(0, m, config.batch):
        users = (part + jnp.arange(min(config.batch, m))) % m
        items, _ = draw(jax.random.fold_in(key, part), X, weights, users, config.negatives)
        owners = jnp.repeat(users[:, None], config.negatives, 1)
        wrong += int(holds(X, owners, items) | (items.min() < 0) | (items.max() >= n))
    return [
        {
            "part": "stream",
            "users": m,
            "items": n,
            "positives": N,
            "negatives": config.negatives,
            "seconds": time.perf_counter() - start,
            "wrong": wrong,
            "peak": measure.peak_resident() - before,
            "made": made,  # the part of the peak that X and its weights reached by themselves
            "before": before,
        }
    ]


PARTS = {"user": user, "growth": growth, "matrix": matrix, "stream": stream}


def exponent(records: list[dict]) -> float:
    """The slope of log seconds on log n."""
    n, t = (np.log([r[name] for r in records]) for name in ("items", "seconds"))
    return float(np.polyfit(n, t, 1)[0])


def draw(records: list[dict]) -> bool:
    """The table, targets beside measurements; whether they were met."""
    met = []

    def target(holds: bool, text: str) -> str:
        met.append(holds)
        return f"(target {text}: {'met' if holds else 'MISSED'})"

    def told(r: dict) -> str:
        return (
            f"{r['users']:>8,} × {r['items']:<9,}{r['positives']:>9,} positives"
            f"{r['seconds'] * 1e3:>10.2f} ms{r['temporaries']:>9.1f} MB temporaries"
        )

    for r in (r for r in records if r["part"] == "user"):
        print(f"one user, {r['loss']}, {r['weighting']}\n{told(r)}")
        print(f"  time {target(r['seconds'] <= SECONDS, f'≤ {SECONDS * 1e3:.0f} ms')}")
        print(f"  memory {target(r['temporaries'] <= TEMPORARIES, f'≤ {TEMPORARIES:.0f} MB')}")
    for law, title in (("fixed", "N_i fixed"), ("tenth", "N_i = n/10")):
        chosen = [r for r in records if r["part"] == "growth" and r["law"] == law]
        if len(chosen) > 1:
            print(f"growth with n, one user, {title}")
            print("\n".join(map(told, chosen)))
            slope = exponent(chosen)
            print(f"  time ~ n^{slope:.2f} {target(slope <= EXPONENT, f'≤ {EXPONENT}')}")
    for r in (r for r in records if r["part"] == "matrix"):
        print(f"{r['source']}, {r['loss']}, {r['weighting']}, θ and ∇θ\n{told(r)}")
    for r in (r for r in records if r["part"] == "stream"):
        print(
            f"{r['negatives']} negatives for each of {r['users']:,} users of {r['items']:,} items"
        )
        print(
            f"  {r['seconds']:.1f} s, {r['wrong']} batches with a positive or a bad item", end=" "
        )
        print(target(r["wrong"] == 0, "0"))
        print(f"  peak {r['peak']:.0f} MB above the {r['before']:.0f} of the bare runtime", end=" ")
        print(target(r["peak"] <= STREAM, f"≤ {STREAM:.0f} MB"))
        print(f"  (making X and its weights alone peaked at {r['made']:.0f} MB)")
    return all(met)


def main(config: Config) -> int:
    records = run(config)
    results.write(config.results, config, records)
    return 0 if draw(records) else 1


if __name__ == "__main__":
    flags.run(Config, main)
