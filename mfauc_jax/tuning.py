"""`tune`: the member of the family that suits the data, chosen on held-out positives and fitted to all of them.

Two members of Eq. 3 are compared (docs/choosing.md): the square loss of `MFAUC()`, and softmax over unit rows, those of
items with a little of their popularity. Each has a few axes of settings, and a search climbs along them from the
middle, one fit per point:

1. the first point of each member, then along each member's first axis (the strength of the penalty, the inverse
   temperature β) for as long as it gets better;
2. along the other axes of each member, the better one first, and again along the first if that moved; a member that is
   far behind is left out.

A fit of softmax begins at the minimum of the square loss and takes `SHORT` iterations, one of the square loss takes the
default's sweeps; both are enough to compare settings. Then the best of each member, unless it is behind by more than
`CLOSE`, has one more fit, not counted, that goes on for as long as it gains: it is judged every few iterations, and
ends when two judgements in a row gain less than `GAIN`. Sparse data want many more sweeps than the default takes, dense
data none.

The first trial is `MFAUC()`, and another is chosen only if it is better beyond chance: its paired interval over the
users who judge, at 95 % for all trials together (Bonferroni), must lie above zero. Otherwise the winner of many trials
would often be the luckiest of them.
"""

import dataclasses
import logging
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from tqdm.auto import tqdm

from mfauc_jax._core.factors import Factors
from mfauc_jax.data import ids, splits
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.evaluation import formulas, metrics, significance
from mfauc_jax.model import MFAUC
from mfauc_jax.objective.losses import Exponential
from mfauc_jax.objective.penalties import UnitRows
from mfauc_jax.objective.weightings import Log
from mfauc_jax.objective.weights import Weights
from mfauc_jax.solvers import Dense, LeastSquares
from mfauc_jax.training.climbing import Member, Search, Trial

BUDGET = 16  # fits, unless the caller says otherwise
CRITERION = "ndcg@20"
FOLDS = 10  # one positive in so many is held out, per user
JUDGES = 10_000  # at most so many users judge a fit
USERS = 50_000  # at most so many users are in the fits that are compared
SHORT = 10  # iterations of softmax while settings are compared
CLOSE = 0.05  # a member behind by less than this share is given its longer fit
GAIN = 0.003  # a fit ends when two judgements in a row raise its metric by less than this share
LOG = logging.getLogger(__name__)


def members(rank: int | Sequence[int] = 64, seed: int = 0) -> list[Member]:
    """The members that `tune` compares; several ranks are an axis of both, and the first is where they begin."""
    ranks = [rank] if isinstance(rank, int) else list(rank)
    if not ranks:
        raise ValueError(f"rank = {rank!r} is empty: give one rank or several")
    also = {"rank": tuple(sorted(ranks))} if len(ranks) > 1 else {}
    square = MFAUC(rank=ranks[0], seed=seed)
    softmax = MFAUC(
        rank=ranks[0],
        loss=Exponential(beta=7.0),
        weighting=Log(),
        weights=Weights(tau=0.0, tau_neg=0.0, user_power=1.0),
        penalty=UnitRows(popularity=0.1),
        solver=Dense(iterations=SHORT),
        start=LeastSquares(),
        seed=seed,
    )
    square_axes = {
        "penalty__strength": (0.1, 0.14, 0.2, 0.28, 0.34, 0.4, 0.48, 0.56, 0.68, 0.8, 1.1),
        **also,
        "weights__tau": (-0.4, -0.25, -0.1, 0.05, 0.2),
        "penalty__sigma": (0.8, 1.2, 1.6, 2.2, 3.0),
    }
    softmax_axes = {
        "loss__beta": (1.5, 2.5, 3.5, 5.0, 7.0, 10.0, 14.0, 20.0),
        **also,
        "penalty__popularity": (-0.1, 0.0, 0.05, 0.1, 0.15, 0.2, 0.3),
    }
    return [
        Member("square", square, square_axes, longest=40, every=4),
        Member("softmax", softmax, softmax_axes, longest=90, every=5),
    ]


@dataclasses.dataclass(frozen=True)
class Tuning:
    """How `tune` chose: every trial, and the difference of the best one from the first, which is `MFAUC()`."""

    criterion: str
    trials: list[Trial]
    chosen: Trial
    best: Trial  # by its mean; not chosen if it is not better than the first beyond chance
    difference: (
        significance.Paired
    )  # best − first, over the judges; Bonferroni's interval for all trials
    seconds: float  # of the search, without the last fit

    def __str__(self) -> str:
        rows = sorted(self.trials, key=lambda t: -t.metric)
        lines = [f"{self.criterion:>10}  iterations  seconds  settings"]
        for t in rows:
            shown = ", ".join(f"{name} = {value}" for name, value in t.params.items())
            lines.append(f"{t.metric:10.4f}{t.iterations:12d}{t.seconds:9.1f}  {t.member}: {shown}")
        return "\n".join([*lines, self.sentence()])

    def sentence(self) -> str:
        """What was chosen, and by how much it is better, in one line."""
        chosen, gap = self.chosen, self.difference
        settings = ", ".join(f"{name} = {value}" for name, value in chosen.params.items())
        beyond = f"{gap.difference:+.4f} [{gap.low:+.4f}, {gap.high:+.4f}]"
        if chosen is not self.best:
            against = f"; the best of the others, {beyond}, is not better beyond chance"
        elif chosen is not self.trials[0]:
            against = f", {beyond} from MFAUC()"
        else:
            against = ""
        return (
            f"{chosen.member} with {settings}: held-out {self.criterion} {chosen.metric:.4f}{against}; "
            f"{len(self.trials)} fits in {self.seconds:.0f} s"
        )


def tune(
    X: Any,
    budget: int = BUDGET,
    *,
    rank: int | Sequence[int] = 64,
    criterion: str = CRITERION,
    split: tuple[Any, Any] | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> MFAUC:
    """Choose among members of the family by held-out positives, and fit the best of them to all of X.

        model = mf.tune(X)
        print(model.tuning_)

    A tenth of each user's positives is held out at random, and at least one positive per user trains. The members,
    their settings and the order of the search are those of this module. With more than 50,000 users, a random sample of
    them is searched on. The same seed gives the same choice and, on one machine, the same bits. What was chosen is said
    in one line of the log, and `tuning_` of the returned model has every trial.

    Args:
        X: what `MFAUC.fit` takes.
        budget: the number of fits to compare, ≥ 1; the first is `MFAUC()`. The search may end before.
        rank: k; several values are searched, too, from the first on.
        criterion: the metric of which the largest mean wins, such as "ndcg@20", "recall@10" or "auc".
        split: your own (train, held out), such as from `splits.by_time`, to choose on; None: a tenth at random. A
            random tenth does not predict what users will like next year: if that is the question, hold it out.
        seed: of the split, the sample and the starts.
        progress: whether to show a progress bar; None: on a terminal only.
    """
    if not isinstance(budget, int) or budget < 1:
        raise ValueError(f"budget = {budget!r} must be a whole number of fits, ≥ 1")
    if criterion not in formulas.KNOWN:
        raise ValueError(f"criterion = {criterion!r}: name a metric such as 'ndcg@20' or 'auc'")
    if jax.process_count() > 1:
        raise ValueError("tune runs in one process: tune on a sample there, then fit its settings")
    X, begun = Interactions.of(X), time.perf_counter()
    part = held_out_part(X, seed) if split is None else _given(split)
    train, judge = part.train, judge_of(part, criterion, seed)
    hide = not sys.stderr.isatty() if progress is None else not progress
    known = {member.name: member for member in members(rank, seed)}
    with tqdm(total=budget, desc="tune", disable=hide, leave=False) as bar:

        def fit(*point: Any) -> Trial:
            trial = _fit(train, judge, *point)
            bar.update()
            bar.set_postfix({criterion: f"{trial.metric:.4g}"})
            return trial

        search = Search(list(known.values()), fit, budget)
        search.run()
        top = max(trial.metric for trial in search.trials)
        for member in known.values():
            short, metric = search.leader(member)
            if short is not None and metric > (1 - CLOSE) * top:
                search.add(_fit(train, judge, member.longer(), short.params))
        best = max(search.trials, key=lambda trial: trial.metric)
    first, trials = search.trials[0], search.trials
    chance = 0.05 / max(len(trials) - 1, 1)
    gap = significance.paired(best.values, first.values, 1 - chance)
    chosen = best if gap.low > 0 else first
    tuning = Tuning(criterion, trials, chosen, best, gap, time.perf_counter() - begun)
    LOG.info("tune chose %s", tuning.sentence())
    model = chosen.model(known[chosen.member]).fit(X, progress=progress)
    model.tuning_ = tuning
    return model


def held_out_part(X: Interactions, seed: int) -> splits.Split:
    """What trains and what judges in a search: a tenth of each user's positives is held out, of a sample of users."""
    if X.num_users > USERS:
        X = X.take(np.sort(splits.generator(seed).permutation(X.num_users)[:USERS]))
    return next(splits.k_fold(seed, X, FOLDS))


def _given(split: tuple[Any, Any]) -> splits.Split:
    """The caller's own positives to train on and to judge by; what training does not know cannot judge."""
    train = Interactions.of(split[0])
    return splits.Split(train, ids.over(split[1], train, "skip"))


def judge_of(split: splits.Split, criterion: str, seed: int) -> Callable[[Factors], np.ndarray]:
    """The function from factors to the metric of each judge, who are all users with held-out positives or a sample."""
    judges = np.flatnonzero(split.test.on_host()[2])
    if len(judges) < 2:
        raise ValueError(
            f"{len(judges)} users have two positives or more, so too little can be held out: fit MFAUC()"
        )
    judges = np.sort(splits.generator(seed).permutation(judges)[:JUDGES])
    seen, wanted = split.train.take(judges), split.test.take(judges)
    size = formulas.parse(criterion)[1]

    def judge(factors: Factors) -> np.ndarray:
        own = Factors(factors.U[judges], factors.V)
        found = metrics.evaluate(own, seen, wanted, (size or 1,), per_user=True)
        return np.asarray(found[criterion], np.float64)

    return judge


def _fit(
    train: Interactions,
    judge: Callable[[Factors], np.ndarray],
    member: Member,
    params: dict[str, Any],
) -> Trial:
    """Fit one point; a fit of many iterations ends early when it gains little."""
    model = member.model.with_params(**params)
    last = model.chosen_solver.iterations
    curve: dict[int, float] = {}
    best: list[Any] = [-np.inf, 0, None]
    begun = time.perf_counter()

    def look(iteration: int, factors: Factors, record: dict) -> bool:
        del record
        if iteration % member.every and iteration != last:
            return False
        values = judge(factors)
        mean = curve[iteration] = metrics.mean(values)
        if best[2] is None or mean > best[0]:
            best[:] = mean, iteration, values
        before = curve.get(iteration - 2 * member.every)
        return before is not None and mean < (1 + GAIN) * before

    model.fit(train, callbacks=[look], progress=False)
    if model.stopped_ == "interrupted":
        raise KeyboardInterrupt
    return Trial(member.name, params, best[0], best[1], time.perf_counter() - begun, best[2], curve)
