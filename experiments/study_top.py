"""The top of the list and the AUC: our default beside tuned peers, and every lever one at a time.

    python -m experiments.study_top --data_dir=DIR [--parts=methods,levers,gowalla,picture]

Five positives a user are held out. Everything was chosen on the split seeds 0–4; what is reported are
the split seeds from `first_seed` on, the same splits for all. implicit's ALS has the settings that were
tuned for these data (the best found at k = 64), lightfm-next's WARP likewise; `MFAUC()` has none. Differences
are paired: one a split seed, Student's interval over the seeds. Gowalla has its published split; what
was tried there was tried on a fifth of each user's training positives (`gowalla-validation`), and only the
best of it by Recall@20 sees the test positives, beside the default. A lever that sets a constant of
`scaling.rule` is written `rule.name`.
"""

import dataclasses
import functools
import os
import pathlib
import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
import threadpoolctl
from scipy import stats

from experiments import bench_baselines, flags, results, style
from mfauc_jax import MFAUC, data, item_weights, metrics, scaling, significance
from mfauc_jax.baselines import wrmf
from mfauc_jax.factors import Factors
from mfauc_jax.interactions import Interactions

TITLES = {"ml-100k": "MovieLens 100K", "ml-1m": "MovieLens 1M", "epinions": "Epinions",
          "book-crossing": "Book Crossing"}  # fmt: skip
COLUMNS = {"p@1": "precision@1", "p@3": "precision@3", "p@5": "precision@5", "AUC": "auc"}
ALS, WARP, OURS, AUC = "implicit ALS", "lightfm WARP", "MFAUC()", "MFAUC for AUC"
# implicit's (λ, α) and WARP's (k, epochs, and its own α where that helped)
PEERS = {
    "ml-100k": {"als": (30.0, 4.0), "warp": (32, 40, 1e-3)},
    "ml-1m": {"als": (60.0, 4.0), "warp": (64, 30)},
    "epinions": {"als": (200.0, 40.0), "warp": (64, 15)},
    "book-crossing": {"als": (50.0, 20.0), "warp": (64, 15)},
}
FOR_AUC = {
    "spread": 3.0,
    "strength": 0.45,
    "tau": -0.15,
    "tau_neg": -0.5,
}  # what docs/choosing.md recommends
METHODS = {
    OURS: {},
    AUC: FOR_AUC,
    ALS: {"peer": "als"},
    WARP: {"peer": "warp"},
    "our WRMF": {"peer": "wrmf"},
}
LEVERS: dict[str, dict[str, Any]] = {
    "no spread penalty": {"spread": 0.0},
    "σ halved": {"rule.spread": 0.8},
    "σ doubled": {"rule.spread": 3.2},
    "σ alike": {"rule.spread": 5.5, "rule.spread_power": 0.0},
    "σ ∝ M/N, as in iALS": {"rule.spread": 0.1, "rule.spread_power": 1.0},
    "strength × ½": {"strength": 0.2},
    "strength × 2": {"strength": 0.8},
    "λ_i alike": {"rule.user_power": 0.0},
    "λ_j alike": {"rule.item_power": 0.0},
    "users alike": {"user_power": 0.0},
    "users by N^½": {"user_power": 0.5},
    "users by N": {"user_power": 1.0},
    "positives alike, τ = 0": {"tau": 0.0},
    "rare positives, τ = −½": {"tau": -0.5},
    "popular positives, τ = ½": {"tau": 0.5},
    "popular negatives, τ′ = −1": {"tau_neg": -1.0},
    "rare negatives, τ′ = 2": {"tau_neg": 2.0},
    "tanh, ρ = ½": {"weighting": "tanh", "rho": 0.5},
    "square hinge": {"loss": "square_hinge"},
    "logistic": {"loss": "logistic"},
    "k = 32": {"rank": 32},
    "k = 128": {"rank": 128},
    "k = 256": {"rank": 256},
    "20 sweeps": {"iterations": 20},
    "3 seeds averaged": {"seeds": 3},
    "iALS (our WRMF)": {"peer": "wrmf"},
    "iALS, λ by frequency": {"peer": "wrmf", "reg_power": 1.0},
}
PICTURED = {"without the penalty": {"spread": 0.0}, OURS: {}}
# default: AUC at least; AUC alone: at least; p@5 strictly above ALS, or not below
TARGETS = {"ml-100k": (0.0, 0.929, True), "ml-1m": (0.943, 0.945, True),
           "epinions": (0.86, 0.88, False), "book-crossing": (0.86, 0.875, False)}  # fmt: skip
PUBLISHED = {"MF-BPR": (0.1627, 0.1378), "EASE": (0.1765, 0.1467), "LightGCN": (0.1820, 0.1547),
             "MF-CCL": (0.1837, 0.1493)}  # fmt: skip  # Gowalla, Recall@20 and NDCG@20
GOWALLA: dict[str, dict[str, Any]] = {
    OURS: {},
    "strength .2": {"strength": 0.2},
    "A: users by N^½, λ_j by h": {"user_power": 0.5, "rule.item_power": 1.0},
    "A, strength .3": {"user_power": 0.5, "rule.item_power": 1.0, "strength": 0.3},
    "strength .1": {"strength": 0.1},
    "strength .15, τ = −.4": {"strength": 0.15, "tau": -0.4},
    "strength .15, τ = −.8": {"strength": 0.15, "tau": -0.8},
    "strength .15, τ = −.4, 6 sweeps": {"strength": 0.15, "tau": -0.4, "iterations": 6},
    "strength .1, τ = −.4, 6 sweeps": {"strength": 0.1, "tau": -0.4, "iterations": 6},
}


def _help(default: Any, text: str) -> Any:
    return dataclasses.field(default=default, metadata={"help": text})


@dataclasses.dataclass(frozen=True)
class Config:
    """Which data and parts, on how many splits."""

    data_dir: str = "data"
    parts: tuple[str, ...] = _help(
        ("picture", "methods", "levers", "gowalla"), "which of these to run"
    )
    datasets: tuple[str, ...] = tuple(TITLES)
    lever_datasets: tuple[str, ...] = ("ml-100k",)
    methods: tuple[str, ...] = _help(("all",), "rows of METHODS, or all")
    levers: tuple[str, ...] = _help(("all",), "rows of LEVERS, or all")
    first_seed: int = _help(100, "the first split seed; 0–4 were for choosing")
    seeds: int = _help(10, "splits of MovieLens 100K")
    seeds_large: int = _help(5, "splits of the larger data sets")
    lever_seeds: int = _help(5, "splits for the levers")
    held_out: int = 5
    rank: int = 64
    gowalla_ranks: tuple[int, ...] = (64, 128, 256, 512)
    limit: int = _help(0, "stop after so many new cells")
    results: str = "out/study_top.jsonl"
    out: str = "out"
    images: str = _help("out", "where the picture of the penalty goes; docs/images has it")


def run(config: Config) -> list[dict]:
    """A cell a data set, split and method, the splits outermost."""
    unknown = set(config.parts) - {"picture", "methods", "levers", "gowalla"}
    if unknown:
        raise ValueError(
            f"parts = {unknown.pop()!r}: choose from picture, methods, levers, gowalla"
        )
    cells = results.Cells(config.results, config.limit)
    records = []
    with threadpoolctl.threadpool_limits(1, "blas"):
        if "picture" in config.parts:
            job = {"kind": "picture", "dataset": config.datasets[0], "seed": 0, "rank": config.rank}
            records += cells.run([job], functools.partial(_scores, config))
        if "methods" in config.parts:
            jobs = _jobs(config, config.datasets, _chosen(METHODS, config.methods), config.seeds)
            records += cells.run(jobs, functools.partial(_fit_and_rank, config))
        if "levers" in config.parts:
            table = {OURS: {}, **_chosen(LEVERS, config.levers)}
            jobs = _jobs(config, config.lever_datasets, table, config.lever_seeds)
            records += cells.run(jobs, functools.partial(_fit_and_rank, config))
        if "gowalla" in config.parts:
            records += _gowalla(config, cells)
    return records


def _chosen(table: dict[str, dict], names: tuple[str, ...]) -> dict[str, dict]:
    if names == ("all",):
        return table
    missing = [name for name in names if name not in table]
    if missing:
        raise ValueError(f"no row {missing[0]!r}: choose from {', '.join(table)}")
    return {name: table[name] for name in names}


def _jobs(
    config: Config, datasets: tuple[str, ...], table: dict[str, dict], seeds: int
) -> list[dict]:
    """A row that stands in both tables is one cell."""
    return [
        {"kind": "split", "dataset": name, "method": method, "seed": config.first_seed + s,
         "rank": config.rank, "held_out": config.held_out, "change": _settings(name, change)}
        for name in datasets
        for s in range(seeds if name == "ml-100k" else config.seeds_large)
        for method, change in table.items()
    ]  # fmt: skip


def _settings(dataset: str, change: dict[str, Any]) -> dict[str, Any]:
    """The change with the peers' tuned numbers in it, so that the cell says them."""
    if "peer" not in change:
        return change
    if dataset not in PEERS:
        raise ValueError(f"no tuned peers for {dataset!r}: choose from {', '.join(PEERS)}")
    which = "warp" if change["peer"] == "warp" else "als"
    return {**change, "tuned": list(PEERS[dataset][which])}


@functools.lru_cache(1)
def _load(name: str, data_dir: str) -> Interactions:
    return data.load(name, data_dir)


@functools.lru_cache(1)
def _split(name: str, data_dir: str, seed: int, held_out: int) -> data.Split:
    return data.splits.hold_out(jax.random.key(seed), _load(name, data_dir), per_user=held_out)


def _fit_and_rank(config: Config, job: dict) -> dict[str, float]:
    train, test = _split(job["dataset"], config.data_dir, job["seed"], job["held_out"])
    factors = fitted(job["change"], train, job["rank"])
    found = metrics.evaluate(factors, train, test)
    return {name: found[name] for name in COLUMNS.values()}


def fitted(change: dict[str, Any], train: Interactions, rank: int) -> Factors:
    """A peer's factors, or those of `MFAUC` with fields, constants of its rule, or seeds changed."""
    if "peer" in change:
        return _peer(change, train, rank)
    rule = {k.removeprefix("rule."): v for k, v in change.items() if k.startswith("rule.")}
    fields = {k: v for k, v in change.items() if not k.startswith("rule.") and k != "seeds"}
    model = MFAUC(**{"rank": rank, "progress": False, **fields})
    if rule:
        weights = item_weights.make(train, model.tau, model.tau_neg, model.user_power)
        scale = scaling.rule(train, weights, **{"strength": model.strength, **rule})
        model.set_params(reg=scale.reg, spread=scale.spread)
    fits = [
        dataclasses.replace(model, seed=s).fit(train).factors_
        for s in range(change.get("seeds", 1))
    ]
    U, V = (jnp.concatenate(parts, axis=1) for parts in zip(*fits, strict=True))  # scores add up
    return Factors(U, V)


def _peer(change: dict[str, Any], train: Interactions, rank: int) -> Factors:
    if change["peer"] == "warp":
        return _warp(train, *change["tuned"])
    reg, alpha = change["tuned"]
    if change["peer"] == "als":
        setting = bench_baselines.Setting(rank, reg, alpha, rank, 0)
        return bench_baselines.wrmf_pair(setting, 15)[1](0, train)
    power = change.get("reg_power", 0.0)
    scaled = wrmf.scaled_reg(train, 1.0, power, 1 / alpha)[0].mean()  # mean λ_i stays the tuned λ
    return wrmf.fit(
        jax.random.key(0), train, rank=rank, reg=reg / scaled, alpha=alpha - 1, sweeps=15,
        cg_steps=3, reg_power=power, reg_offset=1 / alpha,
    )  # fmt: skip


def _warp(train: Interactions, rank: int, epochs: int, alpha: float = 0.0) -> Factors:
    """lightfm-next's WARP; its item biases become a last column."""
    from lightfm import LightFM

    model: Any = LightFM(rank, loss="warp", item_alpha=alpha, user_alpha=alpha, random_state=0)
    writable = scipy.sparse.coo_matrix(train.to_scipy(), copy=True)
    model.fit(writable, epochs=epochs, num_threads=os.cpu_count() or 1)
    U = np.pad(model.user_embeddings, ((0, 0), (0, 1)), constant_values=1.0)
    V = np.concatenate([model.item_embeddings, model.item_biases[:, None]], 1)
    return Factors(jnp.asarray(U), jnp.asarray(V))


def _gowalla(config: Config, cells: results.Cells) -> list[dict]:
    """Every variant on validation positives; the best of them at every rank on test."""
    ranks = config.gowalla_ranks
    tried = [_gowalla_job("gowalla-validation", v, c, ranks[0]) for v, c in GOWALLA.items()]
    found = cells.run(tried, functools.partial(_gowalla_fit, config))
    best = max(found, key=lambda r: r["recall@20"])
    rows = dict.fromkeys([(OURS, ranks[0]), *((best["method"], k) for k in ranks)])
    jobs = [_gowalla_job("gowalla", v, GOWALLA[v], k) for v, k in rows]
    return found + cells.run(jobs, functools.partial(_gowalla_fit, config))


def _gowalla_job(kind: str, method: str, change: dict, rank: int) -> dict:
    return {"kind": kind, "dataset": "gowalla", "method": method, "rank": rank, "change": change}


def _gowalla_fit(config: Config, job: dict) -> dict[str, float]:
    train, test = _published(config.data_dir)
    if job["kind"] == "gowalla-validation":
        train, test = next(data.splits.k_fold(jax.random.key(0), train, 5))
    found = metrics.evaluate(fitted(job["change"], train, job["rank"]), train, test, at=(20,))
    return {name: found[name] for name in ("recall@20", "ndcg@20", "auc")}


@functools.lru_cache(1)
def _published(data_dir: str) -> data.Split:
    return data.load_split("gowalla", data_dir)


def _scores(config: Config, job: dict) -> dict[str, Any]:
    """One user's scores without and with the penalty: the user of median AUC among the active."""
    train, test = _split(job["dataset"], config.data_dir, job["seed"], config.held_out)
    models = {p: fitted(c, train, job["rank"]) for p, c in PICTURED.items()}
    auc = metrics.evaluate(models[OURS], train, test, per_user=True)
    lengths = np.diff(np.asarray(train.indptr))[auc["user"]]
    active = np.flatnonzero(lengths >= np.quantile(lengths, 0.5))
    place = active[np.argsort(auc["auc"][active], kind="stable")[len(active) // 2]]
    user = int(auc["user"][place])
    seen, held = (np.asarray(X.indices)[X.indptr[user] : X.indptr[user + 1]] for X in (train, test))
    negative = np.setdiff1d(np.arange(train.num_items), np.concatenate([seen, held]))
    found = {}
    for name, (U, V) in models.items():
        s = np.asarray(V @ U[user], float)
        s = (s - s[negative].mean()) / (s[seen].mean() - s[negative].mean())
        found[name] = {k: np.round(s[v], 4).tolist()
                       for k, v in (("seen", seen), ("held out", held), ("negative", negative))}  # fmt: skip
    return {"user": user, "scores": found}


def draw_picture(records: list[dict], out: str | pathlib.Path) -> list[pathlib.Path]:
    """Densities of one user's scores, without the penalty and with it."""
    kept = [r for r in records if r["kind"] == "picture"][-1]["scores"]
    scores = {name: kept[name] for name in PICTURED}
    figure, axes = style.panels(len(scores), width=3.9, height=2.9)
    every = np.concatenate([np.concatenate(list(s.values())) for s in scores.values()])
    bins = np.linspace(every.min(), every.max(), 61)
    for ax, (name, groups) in zip(axes[0], scores.items(), strict=True):
        negative = np.array(groups["negative"])
        above = (negative > np.median(groups["held out"])).sum()
        for place, kind in enumerate(("negative", "seen")):
            ax.hist(
                groups[kind], bins, density=True, color=style.COLOURS[place], alpha=0.55, label=kind
            )
        ax.plot(groups["held out"], [0.02] * len(groups["held out"]), "k^", ms=6, label="held out",
                transform=ax.get_xaxis_transform(), clip_on=False)  # fmt: skip
        ax.set(
            title=f"{name}\nnegatives: sd {negative.std():.2f}; {above} beat the median ▲",
            xlabel="score: 0 mean negative, 1 mean seen", yscale="log", ylim=(0.02, None),
        )  # fmt: skip
    axes[0][0].set_ylabel("density")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return style.save(figure, out, "spread")


class Row(NamedTuple):
    """One method on one data set: means, half intervals, and the paired difference from another."""

    dataset: str
    method: str
    splits: int
    mean: dict[str, float]
    half: dict[str, float]
    against: dict[str, significance.Paired]  # empty without two common splits


def rows(records: list[dict], names: dict[str, Any], against: str) -> list[Row]:
    """Rows of `names`, each beside `against` on the splits both have."""
    cells = [r for r in records if r["kind"] == "split" and r["method"] in names]
    by: dict[tuple, dict[int, dict]] = {}
    for r in results.latest(cells, ("dataset", "method", "seed", "rank")):
        by.setdefault((r["dataset"], r["method"]), {})[r["seed"]] = r
    found = []
    for (dataset, method), mine in by.items():
        mean, half, paired = {}, {}, {}
        other = by.get((dataset, against), {})
        both = sorted(mine.keys() & other.keys())
        for label, column in COLUMNS.items():
            values = np.array([r[column] for r in mine.values()])
            mean[label], half[label] = float(values.mean()), _half(values)
            if method != against and len(both) > 1:
                a, b = ([which[s][column] for s in both] for which in (mine, other))
                paired[label] = significance.paired(a, b)
        found.append(Row(dataset, method, len(mine), mean, half, paired))
    return found


def _half(values: np.ndarray) -> float:
    """Half of Student's 95 % interval of the mean."""
    if len(values) < 2:
        return float("nan")
    return float(stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))


def table(found: list[Row], against: str) -> str:
    """The rows in Markdown."""
    names = list(COLUMNS)
    lines = [f"| data, splits | method | {' | '.join(names)} | p@5 − {against} | AUC − {against} |",
             "| --- " * (len(names) + 4) + "|"]  # fmt: skip
    for row in sorted(found, key=lambda r: list(TITLES).index(r.dataset)):
        means = " | ".join(_short(row.mean[name]) for name in names)
        gaps = " | ".join(_gap(row.against.get(name)) for name in ("p@5", "AUC"))
        lines.append(f"| {TITLES[row.dataset]}, {row.splits} | {row.method} | {means} | {gaps} |")
    return "\n".join(lines)


def _short(value: float, digits: int = 4) -> str:
    return f"{value:.{digits}f}".replace("0.", ".", 1)


def _gap(paired: significance.Paired | None) -> str:
    if paired is None:
        return ""
    sign = "+" if paired.difference >= 0 else "−"
    half = (paired.high - paired.low) / 2
    return f"{sign}{_short(abs(paired.difference))} ± {_short(half)}"


def gowalla_table(records: list[dict]) -> str:
    """Validation and test beside what others published."""
    lines = ["| Gowalla | k | Recall@20 | NDCG@20 | AUC |", "| --- | --- | --- | --- | --- |"]
    for r in results.latest(records, ("kind", "method", "rank")):
        if r["kind"].startswith("gowalla"):
            where = "" if r["kind"] == "gowalla" else " (validation)"
            lines.append(f"| {r['method']}{where} | {r['rank']} | {_short(r['recall@20'])} | "
                         f"{_short(r['ndcg@20'])} | {_short(r['auc'])} |")  # fmt: skip
    for name, (recall, ndcg) in PUBLISHED.items():
        lines.append(f"| {name}, published | 64 | {_short(recall)} | {_short(ndcg)} | |")
    return "\n".join(lines)


def draw(records: list[dict], out: str | pathlib.Path) -> list[pathlib.Path]:
    """p@5 against AUC, a point a method, 95 % intervals, a panel a data set."""
    found = rows(records, METHODS, ALS)
    datasets = [name for name in TITLES if any(r.dataset == name for r in found)]
    figure, axes = style.panels(len(datasets), width=3.2, height=3.1)
    for ax, dataset in zip(axes[0], datasets, strict=True):
        for row in (r for r in found if r.dataset == dataset):
            place = list(METHODS).index(row.method)
            ax.errorbar(
                row.mean["AUC"], row.mean["p@5"], yerr=row.half["p@5"], xerr=row.half["AUC"],
                fmt=style.MARKERS[place], color=style.COLOURS[place], ms=6, lw=1, label=row.method,
            )  # fmt: skip
        ax.set(title=TITLES[dataset], xlabel="AUC")
    axes[0][0].set_ylabel("precision@5")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return style.save(figure, out, "study_top")


def missed(records: list[dict]) -> list[str]:
    """The targets of this study that the records do not meet; rows that were not run are not asked."""
    found = {(r.dataset, r.method): r for r in rows(records, METHODS, ALS)}
    told = []
    for dataset, (auc, alone, above) in TARGETS.items():
        mine, only = found.get((dataset, OURS)), found.get((dataset, AUC))
        if mine is not None and mine.against:
            gap = mine.against["p@5"]
            if mine.mean["AUC"] < auc:
                told.append(f"{dataset}: AUC {mine.mean['AUC']:.4f} < {auc}")
            if dataset == "ml-100k" and mine.against["AUC"].difference < 0.004:
                told.append(f"{dataset}: AUC only {mine.against['AUC'].difference:+.4f} from ALS")
            if (gap.low if above else gap.high) <= 0:
                told.append(
                    f"{dataset}: p@5 {gap.difference:+.4f} [{gap.low:+.4f}, {gap.high:+.4f}]"
                )
        if only is not None and only.mean["AUC"] < alone:
            told.append(f"{dataset}: AUC alone {only.mean['AUC']:.4f} < {alone}")
    recalls = [r["recall@20"] for r in records if r["kind"] == "gowalla"]
    if recalls and max(recalls) <= PUBLISHED["MF-BPR"][0]:
        told.append(f"gowalla: Recall@20 {max(recalls):.4f} ≤ {PUBLISHED['MF-BPR'][0]}")
    return told


def write_tables(records: list[dict], out: str | pathlib.Path) -> pathlib.Path:
    """The three tables as one page of Markdown, in sections that docs/choosing.md takes in."""
    levers = {OURS: {}, **LEVERS}
    tried = {r["dataset"] for r in records if r.get("method") in LEVERS}
    tables = {
        "methods": table(rows(records, METHODS, ALS), ALS),
        "levers": table([r for r in rows(records, levers, OURS) if r.dataset in tried], OURS),
        "gowalla": gowalla_table(records),
    }
    mark = "<!-- --8<-- [{}:{}] -->\n"
    text = (
        mark.format("start", k) + f"\n{t}\n\n" + mark.format("end", k) for k, t in tables.items()
    )
    path = pathlib.Path(out) / "study_top.md"
    path.write_text("\n".join(text))
    return path


def main(config: Config) -> int:
    """Run, print the tables, draw; the exit code is 1 if a target is missed."""
    run(config)
    records = results.read(config.results)
    paths = []
    if any(r["kind"] == "split" for r in records):
        paths += draw(records, config.out)
    if any(r["kind"] == "picture" for r in records):
        paths += draw_picture(records, config.images)
    page = write_tables(records, config.out)
    print(page.read_text(), *paths, page, sep="\n")
    wrong = missed(records)
    print(*(f"MISSED {line}" for line in wrong), sep="\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(flags.run(Config, main))
