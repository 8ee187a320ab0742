"""Section 3 in four figures: bounds and their floor, regimes, the printed theorem, the certificate.

    python -m experiments.fig_bounds [--out=DIR]

bounds       the two Rademacher bounds against users and against norm, with the floor of the first
regimes      the deviation term of Theorem 3.4 and the paper's three rates
certificate  held_out_unseen against the true AUC as training data grows, where the truth is known
printed      Theorem 3.7 as printed, below what it should bound, and as corrected

Each as PNG and PDF, fig_bounds_NAME.
"""

import dataclasses
import pathlib
import warnings
from functools import partial

import jax
import numpy as np
from matplotlib import ticker

from experiments import flags, results, style
from mfauc_jax._core.factors import Factors
from mfauc_jax.certify import bounds, held_out, spectral
from mfauc_jax.certify.rademacher import SYMMETRISATIONS, bound_terms, expected_norm
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective import losses
from mfauc_jax.solvers.base import randomised_svd
from theory import generalisation, mcdiarmid, rademacher

BLUE, RED, GREEN, ORANGE = (style.COLOURS[place] for place in (0, 1, 2, 6))
CAPTIONS = {
    "bounds": "The two Rademacher bounds on the sigmoid risk of a model of a synthetic world. No bound with signs per "
    "user can be below the floor, which lies above the risk of the all-zero model.",
    "regimes": "The deviation term of Theorem 3.4 as items or users grow, in the paper's three regimes and in a "
    "fourth, in which the second rate fails (E35).",
    "certificate": "The certificate held_out_unseen at 95 % against the true AUC, which is known in this synthetic "
    "world of 500 users with 5 held-out draws each; bands and bars: 90 % of the redraws.",
    "printed": "Theorem 3.7 for random designs: a lower bound of R̂, above the printed bound where n is large, and the "
    "corrected bound (E38).",
}


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes of the synthetic worlds; about two minutes on two cores."""

    users: tuple[int, ...] = flags.option(
        (100, 200, 400, 800, 1600, 3200), "numbers of users on the axis of the Rademacher bounds"
    )
    scales: tuple[float, ...] = flags.option(
        (0.01, 0.03, 0.1, 0.2, 0.4, 0.7, 1.0, 1.5, 2.5),
        "by what U is multiplied on the axis of the norm",
    )
    sizes: tuple[int, ...] = flags.option(
        (3, 6, 12, 25, 50, 75), "training positives per user of the certificate's figure"
    )
    designs: tuple[int, ...] = flags.option(
        (16, 32, 64, 128, 256, 512, 1024),
        "numbers of items n of the printed theorem's figure; m = 10 n",
    )
    num_items: int = 200
    rank: int = 8
    draws: int = flags.option(400, "random signs per Rademacher complexity")
    repeats: int = flags.option(200, "random held-out draws per point of the certificate's figure")
    delta: float = 0.05
    seed: int = 0
    results: str = "results/fig_bounds.jsonl"
    out: str = "results"


QUICK = {
    "users": (50, 100, 200),
    "scales": (0.1, 0.4, 1.0),
    "sizes": (3, 12, 50),
    "designs": (16, 64, 256),
    "draws": 20,
    "repeats": 20,
}


def tastes(seed: int, m: int, n: int, rank: int) -> np.ndarray:
    """P(next item = j | user i), [m, n]: a softmax of low-rank scores."""
    rng = np.random.default_rng(seed)
    scores = 3.0 * rng.normal(size=(m, rank)) @ rng.normal(size=(n, rank)).T / np.sqrt(rank)
    weights = np.exp(scores - scores.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)


def drawn(seed: int, taste: np.ndarray, size: int) -> Interactions:
    """`size` distinct items per user, drawn one after the other by taste (Gumbel's trick)."""
    m, n = taste.shape
    gumbel = np.random.default_rng(seed).gumbel(size=(m, n))
    items = np.argsort(-(np.log(taste) + gumbel), axis=1)[:, :size]
    return Interactions.from_pairs(np.repeat(np.arange(m), size), items.ravel(), shape=(m, n))


def model(config: Config, X: Interactions) -> Factors:
    """A model of X whose mean margin between positives and negatives is one.

    The bounds hold for all factors at once; the truncated SVD is the quickest that fits.
    """
    U, V = randomised_svd(jax.random.key(config.seed), X, config.rank)
    slope = bounds.user_risks(jax.tree_util.Partial(lambda x: x), Factors(U, V), X)
    return Factors(U / slope.mean(), V)


def run(config: Config) -> list[dict]:
    """One record per point of a figure, in float64."""
    with warnings.catch_warnings(), jax.enable_x64(True):
        warnings.simplefilter("ignore", UserWarning)
        return [*run_bounds(config), *run_regimes(), *run_certificate(config), *run_printed(config)]


def run_bounds(config: Config) -> list[dict]:
    """Both Rademacher bounds for the sigmoid loss, while m grows and while the scores grow."""
    records = []

    def record(axis, x, factors, X, norms):
        for norm in norms:
            terms = bound_terms(norm, factors, X)
            bound = terms["empirical_risk"] + terms["complexity"] + terms["deviation"]
            records.append(
                {
                    "figure": "bounds",
                    "axis": axis,
                    "x": x,
                    "kind": norm.kind,
                    "bound": bound,
                    **terms,
                }
            )

    def norms(X):
        key = jax.random.key(config.seed)
        return [
            expected_norm(key, X, kind, delta=config.delta, draws=config.draws)
            for kind in SYMMETRISATIONS
        ]

    for m in config.users:
        X = drawn(1, tastes(0, m, config.num_items, config.rank), 20)
        record("users", m, model(config, X), X, norms(X))
    X = drawn(1, tastes(0, 800, config.num_items, config.rank), 20)
    factors, both = model(config, X), norms(X)
    for scale in config.scales:
        scaled = Factors(scale * factors.U, factors.V)
        record("norm", spectral.nuclear_norm(scaled), scaled, X, both)
    return records


def run_regimes() -> list[dict]:
    """Theorem 3.4's term against n at m = 1000, and against m at n = 1000."""
    grid = [int(x) for x in np.geomspace(30, 1e5, 15)]
    records = []
    for name in mcdiarmid.REGIMES:
        for x in grid:
            for axis, m, n in (("items", 1000, x), ("users", x, 1000)):
                value = mcdiarmid.regime(name, m, n)
                records.append(
                    {"figure": "regimes", "axis": axis, "x": x, "regime": name, "term": value}
                )
    return records


def run_certificate(config: Config) -> list[dict]:
    """The true AUC, and over repeated held-out draws the measured one and the certified one, by training size."""
    m, taste = 500, tastes(3, 500, config.num_items, config.rank)
    rng = np.random.default_rng(config.seed)
    records = []
    for size in config.sizes:
        X = drawn(2, taste, size)
        truth = generalisation.world(model(config, X), X, taste)
        rows = {"held-out AUC": [], "bernstein": [], "hoeffding": []}
        for _ in range(config.repeats):
            ranks, users = generalisation.draw_held_out(rng, truth, np.full(m, 5))
            for method in ("bernstein", "hoeffding"):
                made = held_out.from_ranks(ranks, users, config.delta, method=method)
                rows[method].append(made.auc)
            rows["held-out AUC"].append(made.terms["held_out_auc"])
        for name, values in rows.items():
            low, middle, high = np.quantile(values, [0.05, 0.5, 0.95])
            wrong = float(np.mean(np.array(values) > truth.auc))
            records.append(
                {
                    "figure": "certificate",
                    "x": size,
                    "line": name,
                    "low": low,
                    "median": middle,
                    "high": high,
                    "above_truth": wrong,
                    "truth": truth.auc,
                }
            )
    return records


def run_printed(config: Config) -> list[dict]:
    """E38's designs, n × 10n: an explicit lower bound on R̂ between the two upper bounds."""
    records, gamma = [], 12.0
    for n in config.designs:
        m = 10 * n
        X, rho = rademacher.half_and_half(config.seed, m, n), 0.5 * gamma * np.sqrt(m * n)
        printed = rademacher.printed_bound(X, 1.0, rho)
        corrected = rademacher.corrected_bound(jax.random.key(0), X, 1.0, rho, draws=5)
        for loss in (losses.logistic, losses.square_hinge):
            B = bounds.constants(loss, gamma).lipschitz
            lower = rademacher.two_valued_excess(loss, X, gamma)
            records.append(
                {
                    "figure": "printed",
                    "x": n,
                    "loss": loss.name,
                    "lower": lower,
                    "printed": B * printed,
                    "corrected": B * corrected,
                }
            )
    return records


# --- Drawing, from the records alone ----------------------------------------------------------


def draw(records: list[dict], out: str) -> list[pathlib.Path]:
    """Each figure as PNG and PDF."""
    paths = []
    for name, drawing in DRAWINGS.items():
        figure = drawing([r for r in records if r["figure"] == name])
        paths += style.save(figure, out, f"fig_bounds_{name}", CAPTIONS[name])
    return paths


def series(records: list[dict], y: str, **where) -> tuple[list, list]:
    """x and y of the records that match."""
    chosen = [r for r in records if all(r[k] == v for k, v in where.items())]
    chosen.sort(key=lambda r: r["x"])
    return [r["x"] for r in chosen], [r[y] for r in chosen]


def panels(columns: int, height: float, width: float = 4.1):
    """A figure of panels side by side, and its axes."""
    figure, axes = style.panels(columns, width=width, height=height)
    return figure, axes[0]


def plain_ticks(axis):
    """1, 2, 5, 10, … instead of powers of ten."""
    axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    axis.set_minor_locator(ticker.NullLocator())


def draw_bounds(records):
    figure, axes = panels(2, 3.4)
    axes[1].sharey(axes[0])
    labels = (
        ("users", "users m", "mean margin fixed at 1"),
        ("norm", "nuclear norm ‖UVᵀ‖$_*$", "at 800 users"),
    )
    for ax, (axis, label, title) in zip(axes, labels, strict=True):
        ax.plot(
            *series(records, "bound", axis=axis, kind="rademacher_users"),
            color=BLUE,
            marker="o",
            ms=4,
            label="signs per user: the paper's, corrected",
        )
        ax.plot(
            *series(records, "bound", axis=axis, kind="rademacher_draws"),
            color=ORANGE,
            marker="s",
            ms=4,
            label="signs per draw",
        )
        x, floor = series(records, "floor", axis=axis, kind="rademacher_users")
        ax.plot(x, floor, color=RED, ls="--", lw=1.6, label="floor: Ê + R̂ cannot be below")
        ax.fill_between(x, 0.2, floor, color=RED, alpha=0.08, lw=0)
        ax.plot(
            *series(records, "empirical_risk", axis=axis, kind="rademacher_users"),
            color=GREEN,
            ls="-.",
            label="empirical risk Ê",
        )
        ax.axhline(0.5, color="0.35", lw=1, ls=":", label="all-zero model, L(0) = ½")
        ax.set(xscale="log", yscale="log", xlabel=label, title=title)
        plain_ticks(ax.xaxis)
        plain_ticks(ax.yaxis)
    axes[0].set(ylabel="sigmoid risk, and bounds on it")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def draw_regimes(records):
    figure, axes = panels(2, 3.3)
    axes[1].sharey(axes[0])
    looks = dict(
        zip(mcdiarmid.REGIMES, zip((BLUE, GREEN, ORANGE, RED), "os^D", strict=True), strict=True)
    )
    rates = {
        "|ω| fixed": "1/√m",
        "|ω| = n/2": "1/√(mn)",
        "|ω̄| fixed": "√(n/m)",
        "|ω| = n − 1": "√(n/m), though |ω| = Θ(n)",
    }
    for ax, axis, other in zip(axes, ("items", "users"), ("m = 1000", "n = 1000"), strict=True):
        for name, (colour, marker) in looks.items():
            x, y = series(records, "term", axis=axis, regime=name)
            ax.plot(x, y, color=colour, marker=marker, ms=4, label=f"{name}: {rates[name]}")
        ax.set(
            xscale="log",
            yscale="log",
            title=other,
            xlabel=f"{axis} {axis[0].replace('i', 'n').replace('u', 'm')}",
        )
    axes[0].set(ylabel="deviation term of Theorem 3.4")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def draw_certificate(records):
    figure, (ax,) = panels(1, 3.6, 5.6)
    x, truth = series(records, "truth", line="bernstein")
    ax.plot(x, truth, color="black", lw=1.8, label="true AUC")
    for line, colour, marker, text in (
        ("bernstein", BLUE, "o", "empirical Bernstein (default)"),
        ("hoeffding", ORANGE, "s", "Hoeffding"),
    ):
        x, middle = series(records, "median", line=line)
        low, high = series(records, "low", line=line)[1], series(records, "high", line=line)[1]
        ax.fill_between(x, low, high, color=colour, alpha=0.2, lw=0)
        ax.plot(x, middle, color=colour, marker=marker, ms=4, label=f"{text}: certified at 95 %")
    x, low = series(records, "low", line="held-out AUC")
    high = series(records, "high", line="held-out AUC")[1]
    ax.vlines(x, low, high, color=GREEN, lw=4, alpha=0.6, label="held-out AUC: no guarantee")
    ax.axhline(0.5, color="0.35", lw=1, ls=":")
    ax.annotate(
        "chance: the Rademacher bounds certify no better",
        (x[0], 0.5),
        (0, -11),
        ha="left",
        textcoords="offset points",
        color="0.35",
    )
    ax.set(xscale="log", xlabel="training positives per user", ylabel="AUC", ylim=(0.46, None))
    ax.set_xticks(x, [str(v) for v in x])
    ax.minorticks_off()
    ax.legend(loc="lower right", bbox_to_anchor=(1, 0.1))
    return figure


def draw_printed(records):
    figure, axes = panels(2, 3.4)
    for ax, name in zip(axes, ("logistic", "square_hinge"), strict=True):
        x, lower = series(records, "lower", loss=name)
        _, printed = series(records, "printed", loss=name)
        ax.plot(
            *series(records, "corrected", loss=name),
            color=BLUE,
            marker="o",
            ms=4,
            label="corrected: (2Bρ/m) E‖G‖₂",
        )
        ax.plot(x, lower, color="black", lw=1.8, label="R̂ is at least this")
        ax.plot(x, printed, color=RED, marker="s", ms=4, ls="--", label="printed: (2Bρ/m) ‖E − Ē‖₂")
        wrong = np.array(printed) < np.array(lower)
        ax.fill_between(
            x,
            printed,
            lower,
            where=wrong.tolist(),
            color=RED,
            alpha=0.15,
            lw=0,
            interpolate=True,
            label="the printed bound is violated",
        )
        ax.set(
            xscale="log",
            yscale="log",
            xlabel="items n (users m = 10n)",
            title=name.replace("_", " "),
        )
        plain_ticks(ax.yaxis)
        ax.set_xticks(x, [str(v) for v in x])
        ax.xaxis.set_minor_locator(ticker.NullLocator())
    axes[0].set(ylabel="empirical Rademacher average")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


DRAWINGS = {
    "bounds": draw_bounds,
    "regimes": draw_regimes,
    "certificate": draw_certificate,
    "printed": draw_printed,
}


if __name__ == "__main__":
    flags.run(Config, partial(results.artefact, run, draw))
