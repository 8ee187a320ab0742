"""Small experiments for the claims that the figures and tables do not decide; `claims` judges their records.

Each is a function of its settings that returns plain numbers. `run` keeps them as cells in claims.jsonl, so that they
are computed once; a changed setting is another cell.
"""

import pathlib
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments import protocol, results
from mfauc_jax import MFAUC, Averaging, Continuation, FullBatch, Problem, Sequential
from mfauc_jax._core.factors import Factors
from mfauc_jax.certify import bounds, spectral
from mfauc_jax.data import splits
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.evaluation import curves, metrics
from mfauc_jax.objective import equation, exact, losses, sampling, weightings
from mfauc_jax.objective.penalties import Fixed
from mfauc_jax.objective.weights import Weights
from mfauc_jax.solvers import base, sequential
from theory import rademacher, verify_consistency

FILE = "claims.jsonl"


def small(seed: int, m: int = 6, n: int = 8, k: int = 2, scale: float = 1.0):
    """A random matrix with a positive and a negative per user, and random factors."""
    rng = np.random.default_rng(seed)
    dense = rng.random((m, n)) < 0.4
    dense[:, 0], dense[:, 1] = True, False
    factors = Factors(*(jnp.asarray(scale * rng.normal(size=(r, k))) for r in (m, n)))
    return Interactions.from_scipy(dense.astype(float)), factors


def curvature(losses_: list[str], points: int) -> dict[str, Any]:
    """The least eigenvalue of ∇²θ over random points: in U alone, in V alone, and in both."""
    X, _ = small(0)
    everything = sampling.everything(X, Weights.paper().of(X))
    least: dict[str, list[float]] = {}
    for name in losses_:
        objective = equation.make(name)

        def theta(U, V, objective=objective):
            return equation.value(objective, Factors(U, V), everything)

        def joint(flat, theta=theta):
            U, V = jnp.split(flat, [X.num_users * 2])
            return theta(U.reshape(-1, 2), V.reshape(-1, 2))

        hessians = [jax.jit(jax.hessian(theta, which)) for which in (0, 1)]
        together = jax.jit(jax.hessian(joint))
        found = []
        for seed in range(points):
            U, V = small(seed)[1]
            matrices = [
                hessians[0](U, V).reshape(U.size, -1),
                hessians[1](U, V).reshape(V.size, -1),
                together(jnp.concatenate([U.ravel(), V.ravel()])),
            ]
            found.append([float(np.linalg.eigvalsh(np.asarray(H)).min()) for H in matrices])
        least[name] = np.min(found, axis=0).tolist()
    return {"least_eigenvalue": least, "columns": ["U", "V", "both"]}


def steep(dataset: str, betas: list[float]) -> dict[str, Any]:
    """|data term of the sigmoid − (1 − AUC)| at a fitted model as β grows."""
    X = protocol.load(dataset, "")
    model = MFAUC.paper("square", solver="alternating").fit(X, progress=False)
    factors = Factors(*map(jnp.asarray, model.factors_))
    weights = Weights.paper().of(X)
    auc = float(np.nanmean(curves.auc(factors, None, X)))
    gaps = []
    for beta in betas:
        objective = equation.make(losses.Sigmoid(beta=beta))
        theta = float(exact.value(objective, factors, exact.plan(objective, X, weights)))
        gaps.append(abs(theta - (1 - auc)))
    return {"auc": auc, "gap": gaps}


def beta_choice(
    dataset: str, betas: list[float], series: list[list[float]], seeds: int, iterations: int
) -> dict[str, Any]:
    """Training and held-out AUC of L-BFGS on the sigmoid at each β, and through rising series, by their last β."""
    X = protocol.load(dataset, "")
    found: dict[str, list[list[float]]] = {}
    for seed in range(seeds):
        part = splits.hold_out(jax.random.key(seed), X, 5)
        solvers: dict[str, Any] = {
            f"{beta:g}": (beta, FullBatch(iterations=iterations)) for beta in betas
        }
        inner = FullBatch(iterations=iterations)
        for rising in series:
            solver = Continuation(inner, betas=tuple(rising))
            solvers[f"up to {rising[-1]:g}"] = rising[-1], solver
        for name, (beta, solver) in solvers.items():
            model = MFAUC.paper(
                losses.Sigmoid(beta=beta), solver=solver, penalty=Fixed(reg=0.0), seed=seed
            )
            model.fit(part.train, progress=False)
            aucs = (curves.auc(model, None, part.train), curves.auc(model, *part))
            found.setdefault(name, []).append([float(np.nanmean(a)) for a in aucs])
    return {"auc": found, "columns": ["training", "held out"]}


def averages(dataset: str, seeds: int, at: list[int]) -> dict[str, Any]:
    """θ of the averages and θ of the iterates of Algorithm 1, by its steps and by seed.

    The steps are the authors' (length .05, η = 5), and the rows' with a small and with a large α, averaged alike.
    """
    X = protocol.load(dataset, "")
    alike = Averaging(start=30, eta=0.0)
    solvers = {
        "authors": MFAUC.authors().solver,
        "rows, α = .05": Sequential(learning_rate=0.05, average=alike),
        "rows, α = .5": Sequential(learning_rate=0.5, average=alike),
    }
    problem = Problem.of(X, "square_hinge", "identity", Weights.paper(), Fixed(reg=0.1))
    plan = exact.plan(problem.objective, X, problem.weights)
    found: dict[str, Any] = {}
    for name, solver in solvers.items():
        rows = []
        for seed in range(seeds):
            start = base.gaussian(jax.random.key(seed), *X.shape, 8, 0.1)
            data, state, values = solver.prepare(problem), solver.init(problem, start), []
            for s in range(1, max(at) + 1):
                key = jax.random.fold_in(jax.random.key(seed), s)
                state, _ = base.run(solver, problem.objective, key, state, data)
                if s in at:
                    pair = (state.average, state.factors)
                    values.append([float(exact.value(problem.objective, F, plan)) for F in pair])
            rows.append(values)
        found[name] = rows
    return {"theta": found, "columns": ["average", "iterate"]}


def estimates(dataset: str, sizes: list[list[int]], items: int, repeats: int) -> dict[str, Any]:
    """Cosine and relative error of ∂θ′/∂v_j from κ_W users and κ_Y items against ∂θ/∂v_j, at a fitted model."""
    X = protocol.load(dataset, "")
    weights, objective = Weights.paper().of(X), equation.make("square_hinge")
    start = base.gaussian(jax.random.key(0), *X.shape, 8, 0.1)
    problem = Problem(X, weights, objective)
    solver = Sequential()
    data, state = solver.prepare(problem), solver.init(problem, start)
    for s in range(20):  # a model on its way, where a step still matters
        state, _ = base.run(solver, objective, jax.random.key(s), state, data)
    factors = state.factors
    truth = np.asarray(
        exact.value_and_grad(objective, factors, exact.plan(objective, X, weights))[1].V
    )
    chosen = np.argsort(-np.linalg.norm(truth, axis=1))[:items]
    found = []
    for users, per_user in sizes:

        def slope(key, j, users=users, per_user=per_user):
            sample = sampling.for_item(key, X, weights, j, users, per_user)
            return jax.grad(equation.item_risk, 1)(objective, factors.V[j], factors, sample)

        keys = jax.random.split(jax.random.key(1), repeats)
        drawn = np.asarray(
            jax.jit(jax.vmap(jax.vmap(slope, (0, None)), (None, 0)))(keys, jnp.asarray(chosen))
        )
        exactly = truth[chosen][:, None, :]
        lengths = np.linalg.norm(drawn, axis=2) * np.linalg.norm(exactly, axis=2)
        cosine = (drawn * exactly).sum(2) / np.maximum(lengths, 1e-300)
        error = np.linalg.norm(drawn - exactly, axis=2) / np.linalg.norm(exactly, axis=2)
        z = (drawn.mean(1) - exactly[:, 0]) / (drawn.std(1, ddof=1) / np.sqrt(repeats))
        found.append(
            [float(cosine.mean()), float(np.sqrt((error**2).mean())), float(np.sqrt((z**2).mean()))]
        )
    return {"sizes": sizes, "found": found, "columns": ["cosine", "relative error", "rms z"]}


def terms(datasets: list[str], delta: float) -> dict[str, Any]:
    """Theorem 3.8's two last terms for a fitted model: the bound on R (as printed, as corrected), and ε₁.

    B is that of the sigmoid with β = 1, ¼, the smallest of the four losses.
    """
    found = {}
    for dataset in datasets:
        X = protocol.load(dataset, "")
        model = MFAUC.paper("square", solver="alternating", penalty=Fixed(reg=0.1))
        factors = Factors(*map(jnp.asarray, model.fit(X, progress=False).factors_))
        rho = float(np.linalg.norm(factors.U) * np.linalg.norm(factors.V))
        B = bounds.constants("sigmoid", spectral.margin_range(factors)).lipschitz
        found[dataset] = {
            "printed": rademacher.printed_bound(X, B, rho),
            "corrected": rademacher.corrected_bound(jax.random.key(0), X, B, rho, draws=10),
            "last": bounds.mcdiarmid(spectral.defined_rows(X).num_pos, X.num_items, delta),
        }
    return {"terms": found}


def exponent(dataset: str, tau: float) -> dict[str, Any]:
    """The rank correlation of g with an item's number of users over all positives, at τ′, −τ′ and 0, and of g′."""
    from scipy import stats

    X = protocol.load(dataset, "")
    rows, items, lengths = X.on_host()
    popularity = np.bincount(items, minlength=X.num_items)
    found = {}
    for name, value in (("positive", tau), ("negative", -tau), ("zero", 0.0)):
        weights = Weights.paper(value).of(X)
        relative = np.asarray(weights.g) * lengths[rows]  # 1 where g is uniform
        uniform = np.ptp(relative) < 1e-6
        ranks = [stats.rankdata(values) for values in (relative, popularity[items])]
        found[name] = {
            "spread_of_g": float(np.ptp(relative)),
            "correlation": 0.0 if uniform else float(np.corrcoef(ranks)[0, 1]),
        }
    return {"g": found}


def same_auc(size: int, relevant: int) -> dict[str, Any]:
    """Two lists of one AUC: the relevant items at the places 2, 3, …, or one first and the others further down."""

    def auc(places):
        chosen = np.isin(np.arange(size), places)
        scores = -np.arange(size)
        margins = scores[chosen][:, None] - scores[~chosen][None, :]
        return float((margins > 0).mean())

    late = list(range(1, relevant + 1))  # the first place is missed, then all are relevant
    early = [
        *range(relevant - 1),
        2 * relevant - 1,
    ]  # the first places are relevant, the last one falls behind
    return {"auc": [auc(late), auc(early)], "precision@1": [float(0 in late), float(0 in early)]}


def square_speed(dataset: str, repeats: int) -> dict[str, Any]:
    """Seconds of θ and ∇θ over all pairs, by loss; the median of several."""
    X = protocol.load(dataset, "")
    factors = base.gaussian(jax.random.key(0), *X.shape, 8, 0.1)
    weights, found = Weights.paper().of(X), {}
    for name in losses.PAPER_LOSSES:
        objective = equation.make(name)
        plan, times = exact.plan(objective, X, weights), []
        for _ in range(repeats + 1):
            begun = time.perf_counter()
            jax.block_until_ready(exact.value_and_grad(objective, factors, plan))
            times.append(time.perf_counter() - begun)
        found[name] = float(np.median(times[1:]))
    return {"seconds_by_loss": found}


def long_tail(datasets: list[str], share: float, data_dir: str = "") -> dict[str, Any]:
    """The share of all positives that the most popular items have, e.g. those of the first tenth."""
    found = {}
    for dataset in datasets:
        X = protocol.load(dataset, data_dir)
        counts = np.sort(np.bincount(np.asarray(X.indices), minlength=X.num_items))[::-1]
        found[dataset] = float(counts[: round(share * len(counts))].sum() / counts.sum())
    return {"share_of_positives": found}


def popularity(datasets: list[str], taus: list[float], seeds: int) -> dict[str, Any]:
    """Held-out precision@5 and AUC of the paper's square loss, solved exactly, with g ∝ p̂^τ, by τ and split."""
    found: dict[str, Any] = {}
    for dataset in datasets:
        X = protocol.load(dataset, "")
        for seed in range(seeds):
            part = splits.hold_out(jax.random.key(seed), X, 5)
            for tau in taus:
                parts = {"weights": Weights.paper(tau), "penalty": Fixed(reg=0.1)}
                model = MFAUC.paper("square", solver="alternating", seed=seed, **parts)
                scores = metrics.evaluate(model.fit(part.train, progress=False), *part)
                row = [float(scores["precision@5"]), float(scores["auc"])]
                found.setdefault(dataset, {}).setdefault(f"{tau:g}", []).append(row)
    return {"scores": found, "columns": ["precision@5", "auc"]}


def visits(dataset: str) -> dict[str, Any]:
    """How often an iteration of Algorithm 1 moves each user and each item, and what a model has to store."""
    X = protocol.load(dataset, "")
    problem = Problem.of(X, "square_hinge", "identity", Weights.paper(), Fixed())
    solver = Sequential()
    data = solver.prepare(problem)
    orders = sequential._orders(solver, jax.random.key(0), data, max(X.shape))
    counts = [
        np.bincount(np.asarray(order), minlength=size)
        for order, size in zip(orders, X.shape, strict=True)
    ]
    parameters = sum(F.size for F in base.gaussian(jax.random.key(0), *X.shape, 8, 0.1))
    return {
        "visits": [[int(c.min()), int(c.max())] for c in counts],
        "parameters": int(parameters),
        "k(m + n)": 8 * sum(X.shape),
    }


def slopes_of_tanh(rhos: list[float]) -> dict[str, Any]:
    """The largest φ″ and the largest rise of φ′ on x ≥ 0: at most 0 if φ is concave and small losses count more."""
    x = jnp.linspace(0.0, 6.0, 2001)
    found = {}
    for rho in rhos:
        slope = jax.vmap(jax.grad(weightings.Tanh(rho=rho)))(x)
        bend = jax.vmap(jax.grad(jax.grad(weightings.Tanh(rho=rho))))(x)
        found[f"{rho:g}"] = [float(bend.max()), float(jnp.diff(slope).max()), float(slope[0])]
    return {"slopes": found, "columns": ["largest φ″", "largest rise of φ′", "φ′(0)"]}


def consistent() -> dict[str, Any]:
    """Definition 3.1's statements of theory.verify_consistency for each loss, and the one about tanh."""
    regrets = [
        s
        for check in (verify_consistency.definition_3_1, verify_consistency.users)
        for s in check()
    ]
    tanh = verify_consistency.tanh_weighting()
    return {
        "statements": [[s.claim, bool(s.stands)] for s in regrets if s.number == "Def 3.1"],
        "tanh": [[s.claim, bool(s.stands)] for s in tanh],
    }


EXPERIMENTS: dict[str, tuple[Callable[..., dict[str, Any]], dict[str, Any]]] = {
    "curvature": (curvature, {"losses_": ["square", "square_hinge"], "points": 20}),
    "steep": (steep, {"dataset": "synthetic1", "betas": [0.01, 1.0, 1e2, 1e3, 1e4, 1e5, 1e6]}),
    "beta_choice": (
        beta_choice,
        {
            "dataset": "synthetic1",
            "betas": [0.01, 4.0, 64.0, 256.0],
            "series": [[1.0, 4.0, 16.0, 64.0], [1.0, 4.0, 16.0, 64.0, 256.0]],
            "seeds": 5,
            "iterations": 60,
        },
    ),
    "averages": (averages, {"dataset": "synthetic1", "seeds": 3, "at": [60, 100, 200, 300]}),
    "estimates": (
        estimates,
        {
            "dataset": "synthetic1",
            "sizes": [[3, 2], [30, 10], [300, 100]],
            "items": 10,
            "repeats": 100,
        },
    ),
    "terms": (terms, {"datasets": ["synthetic1", "synthetic2"], "delta": 0.05}),
    "exponent": (exponent, {"dataset": "synthetic2", "tau": 0.5}),
    "same_auc": (same_auc, {"size": 20, "relevant": 5}),
    "square_speed": (square_speed, {"dataset": "synthetic1", "repeats": 7}),
    "long_tail": (long_tail, {"datasets": ["ml-100k", "epinions", "book-crossing"], "share": 0.1}),
    "popularity": (
        popularity,
        {"datasets": ["synthetic1", "synthetic2"], "taus": [0.0, 0.5], "seeds": 5},
    ),
    "visits": (visits, {"dataset": "synthetic1"}),
    "slopes_of_tanh": (slopes_of_tanh, {"rhos": [0.5, 1.0, 2.0, 5.0]}),
    "consistent": (consistent, {}),
}
NEEDS_DATA = ("long_tail",)


def jobs() -> dict[str, dict[str, Any]]:
    """What each experiment's cell is known by."""
    return {
        name: {"kind": "claim", "experiment": name, "settings": settings}
        for name, (_, settings) in EXPERIMENTS.items()
    }


def run(folder: str | pathlib.Path, data_dir: str = "") -> None:
    """Compute the experiments that have no record in the folder; without a data_dir those that need none."""
    cells = results.Cells(pathlib.Path(folder) / FILE)
    wanted = [job for name, job in jobs().items() if data_dir or name not in NEEDS_DATA]

    def work(job):
        function, settings = EXPERIMENTS[job["experiment"]]
        extra = {"data_dir": data_dir} if job["experiment"] in NEEDS_DATA else {}
        return {"found": function(**settings, **extra)}

    cells.run(wanted, work)


def read(folder: str | pathlib.Path) -> dict[str, dict[str, Any]]:
    """The records of the experiments as they are set today, by name."""
    path = pathlib.Path(folder) / FILE
    records = results.read(path) if path.exists() else []
    identities = {results.identity(job): name for name, job in jobs().items()}
    return {identities[r["cell"]]: r for r in records if r.get("cell") in identities}
