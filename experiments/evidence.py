"""Claims and what the records say about them: parts, each a number with its interval and the side it should be on."""

import math
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from experiments import claim_experiments, results

VERIFIED, REFUTED, OPEN = "verified", "refuted", "not testable here"
LEVEL = 0.05  # of an interval; divided by their number where the best of several is taken


class MissingRecords(Exception):  # noqa: N818  # what is missing, not what went wrong
    """The folder lacks the records that a claim needs."""


class Part(NamedTuple):
    """One number that a claim implies something about: `value` in [low, high] should be above or below `bound`."""

    what: str
    value: float
    low: float
    high: float
    relation: str  # ">" or "<"
    bound: float

    @property
    def holds(self) -> bool | None:
        """True or False if the whole interval is on one side of the bound, None if the bound is inside it."""
        if not (math.isfinite(self.low) and math.isfinite(self.high)):
            return None
        above, below = self.low > self.bound, self.high < self.bound
        if self.low == self.high:  # exact: the bound itself is on the wrong side
            above, below = self.low > self.bound, self.low < self.bound
            return above if self.relation == ">" else below
        if self.relation == ">":
            return True if above else False if below else None
        return True if below else False if above else None

    def __str__(self) -> str:
        """The number, its interval, and what it is or should be."""
        interval = "" if self.low == self.high else f" [{self.low:.3g}, {self.high:.3g}]"
        between = {True: "", False: ", not", None: ", undecided whether"}[self.holds]
        return f"{self.what}: {self.value:.3g}{interval}{between} {self.relation} {self.bound:.3g}"


class Claim(NamedTuple):
    """What the paper says, where, and what we make of it."""

    name: str
    place: str
    quote: str
    verdict: str  # recorded; `claims.judge` says whether the numbers bear it out
    parts: "Callable[[Records], list[Part]]"
    note: str = ""
    exists: bool = False  # one part that holds is enough, and none refutes


def registering(claims: list[Claim]) -> Callable[..., Any]:
    """A decorator for the functions that gather the parts of a claim; a function's name is the claim's."""

    def claim(place: str, quote: str, verdict: str, note: str = "", exists: bool = False):
        def register(parts: "Callable[[Records], list[Part]]"):
            name = parts.__name__.replace("_", "-")
            claims.append(Claim(name, place, quote, verdict, parts, note, exists))
            return parts

        return register

    return claim


def verdict_of(parts: Sequence[Part], exists: bool = False) -> str:
    """Verified if every part holds, refuted if one does not, else (or without any part) not testable here.

    With `exists`, one part that holds verifies the claim, and none refutes it: other data might.
    """
    found = [part.holds for part in parts]
    if exists:
        return VERIFIED if True in found else OPEN
    if False in found:
        return REFUTED
    return VERIFIED if found and all(found) else OPEN


def exact(what: str, value: float, relation: str, bound: float) -> Part:
    """A number without an interval."""
    return Part(what, float(value), float(value), float(value), relation, float(bound))


def mean(
    what: str, values: Iterable[float], relation: str, bound: float = 0.0, level: float = LEVEL
) -> Part:
    """The mean of independent values, with Student's interval."""
    found = np.asarray(list(values), float)
    if len(found) < 2:
        raise MissingRecords(f"{what}: {len(found)} values")
    half = float(
        stats.t.ppf(1 - level / 2, len(found) - 1) * found.std(ddof=1) / np.sqrt(len(found))
    )
    center = float(found.mean())
    return Part(what, center, center - half, center + half, relation, bound)


def likeliest(parts: Iterable[Part]) -> Part:
    """Of parts of which one is enough, the one that holds most clearly; their levels should be LEVEL / number."""
    found = list(parts)
    sign = 1 if found[0].relation == ">" else -1

    def margin(part: Part) -> float:
        return sign * ((part.low if sign > 0 else part.high) - part.bound)

    return max(found, key=margin)


class Records:
    """The records in a folder, read when a claim needs them."""

    def __init__(self, folder: str | pathlib.Path):
        """Args: folder: where the .jsonl files are."""
        self.folder = pathlib.Path(folder)
        self._read: dict[str, list[dict]] = {}
        self._experiments: dict[str, dict] | None = None

    def of(self, name: str) -> list[dict]:
        """All records of an artefact."""
        if name not in self._read:
            path = self.folder / f"{name}.jsonl"
            if not path.exists():
                raise MissingRecords(path.name)
            self._read[name] = results.read(path)
        return self._read[name]

    def experiment(self, name: str) -> dict[str, Any]:
        """What an experiment of `claim_experiments` found."""
        if self._experiments is None:
            self._experiments = claim_experiments.read(self.folder)
        if name not in self._experiments:
            raise MissingRecords(f"{claim_experiments.FILE}: experiment {name}")
        return self._experiments[name]["found"]

    def scores(
        self, dataset: str, setting: str, method: str, column: str, name: str = ""
    ) -> dict[int, tuple[float, float]]:
        """A table's (mean over users, its standard error) by split; of the table with the data set unless named."""
        name = name or ("tab_synthetic" if dataset.startswith("synthetic") else "tab_real")
        fits = [r for r in self.of(name) if r.get("kind") == "fit"]
        fits = results.latest(fits, ("dataset", "setting", "method", "seed"))
        found = {
            r["seed"]: (r["metrics"][column]["mean"], r["metrics"][column]["error"])
            for r in fits
            if (r["dataset"], r["setting"], r["method"]) == (dataset, setting, method)
        }
        if not found:
            raise MissingRecords(f"{name}: {dataset}, {setting}, {method}")
        return found

    def gain(
        self,
        dataset: str,
        setting: str,
        method: str,
        over: str,
        column: str,
        relation: str = ">",
        bound: float = 0.0,
        level: float = LEVEL,
        in_setting: str | None = None,
    ) -> Part:
        """`method` minus `over` on the same splits; `over` is of the same setting unless `in_setting` is given.

        With fewer than three splits the interval is from the users' standard errors, as if independent.
        """
        mine = self.scores(dataset, setting, method, column)
        theirs = self.scores(dataset, in_setting or setting, over, column)
        seeds = sorted(mine.keys() & theirs.keys())
        short = column.replace("precision", "p").replace("auc", "AUC")
        what = f"{dataset}, {setting}, {short}: {method} − {over}"
        if in_setting:
            what = f"{dataset}, {short}, {method}: {setting} − {in_setting}"
        differences = [mine[s][0] - theirs[s][0] for s in seeds]
        if len(seeds) >= 3:
            return mean(what, differences, relation, bound, level)
        if not seeds:
            raise MissingRecords(f"{what}: no common split")
        variance = np.mean([mine[s][1] ** 2 + theirs[s][1] ** 2 for s in seeds]) / len(seeds)
        center, half = (
            float(np.mean(differences)),
            float(stats.norm.ppf(1 - level / 2) * np.sqrt(variance)),
        )
        return Part(what, center, center - half, center + half, relation, bound)

    def curves(self, dataset: str, loss: str, rate: float) -> dict[int, float]:
        """Fig. 3's true-positive rate of a loss at a false-positive rate, by split."""
        rows = [
            r
            for r in results.latest(self.of("fig_roc"), ("dataset", "loss", "seed"))
            if (r["dataset"], r["loss"]) == (dataset, loss)
        ]
        if not rows:
            raise MissingRecords(f"fig_roc: {dataset}, {loss}")
        return {r["seed"]: r["tpr"]["exact"][r["fpr"].index(rate)] for r in rows}

    def ahead(
        self,
        dataset: str,
        loss: str,
        over: str,
        rate: float,
        relation: str = ">",
        bound: float = 0.0,
    ) -> Part:
        """One loss's true-positive rate minus another's."""
        what = f"{dataset}, TPR at {100 * rate:g} %: {loss} − {over}"
        return paired(
            what,
            self.curves(dataset, loss, rate),
            self.curves(dataset, over, rate),
            relation,
            bound,
        )

    def timings(self, dataset: str, blocks: int) -> list[dict]:
        """Fig. 4's records by seed; 0 blocks are Algorithm 1."""
        rows = [
            r
            for r in results.latest(self.of("fig_timings"), ("dataset", "blocks", "seed"))
            if (r["dataset"], r["blocks"]) == (dataset, blocks)
        ]
        if not rows:
            raise MissingRecords(f"fig_timings: {dataset}, {blocks} blocks")
        return sorted(rows, key=lambda r: r["seed"])


def paired(
    what: str,
    mine: Mapping[int, float],
    theirs: Mapping[int, float],
    relation: str,
    bound: float = 0.0,
) -> Part:
    """The mean difference over the seeds that both have."""
    seeds = sorted(mine.keys() & theirs.keys())
    return mean(what, [mine[s] - theirs[s] for s in seeds], relation, bound)
