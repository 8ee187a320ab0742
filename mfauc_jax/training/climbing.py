"""A search that climbs along a few axes of settings from their middle, one fit per point."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

HOPELESS = 0.8  # a member whose first fit has less than this share of the best metric is left out
BEHIND = 0.9  # and after its first axis, one whose best fit has less than this share


@dataclasses.dataclass(frozen=True)
class Member:
    """A model and the settings that a search may change, with the values to try in their order."""

    name: str
    model: Any  # an MFAUC
    axes: dict[str, tuple]  # the search begins at the model's own values
    longest: int = 1  # iterations of its longer fit, at most
    every: int = 1  # iterations between two judgements of a fit

    def longer(self) -> "Member":
        """The member whose fits may take `longest` iterations."""
        return dataclasses.replace(
            self, model=self.model.with_params(solver__iterations=self.longest)
        )


@dataclasses.dataclass(frozen=True)
class Trial:
    """One fit of the search and what the held-out positives say of it."""

    member: str
    params: dict[str, Any]
    metric: float  # its mean over the users who judge, at the best iteration
    iterations: int  # the best
    seconds: float  # of the fit and its judgements
    values: Float[np.ndarray, "u"] = dataclasses.field(repr=False)  # the metric of each judge
    curve: dict[int, float] = dataclasses.field(repr=False)  # the mean by iteration

    def model(self, member: Member) -> Any:
        """The model of the trial, with as many iterations as were best, not fitted."""
        model = member.model.with_params(**self.params)
        if model.chosen_solver.iterations == self.iterations:
            return model
        return model.with_params(solver__iterations=self.iterations)


class Search:
    """The trials of each member by their points; a point has one place per axis."""

    def __init__(self, known: list[Member], fit: Callable[..., Trial], budget: int):
        """Args: known: the members. fit: (member, params) → Trial. budget: how many fits are allowed."""
        self.known, self.fit, self.budget = known, fit, budget
        self.trials: list[Trial] = []
        self.tried: dict[str, dict[tuple[int, ...], Trial]] = {m.name: {} for m in known}

    def run(self) -> None:
        """Every trial that the budget allows: first axes of all members, then all axes, the best member first."""
        for member in self.known:
            self.attempt(member, _middle(member))
        first = {trial.member: trial.metric for trial in self.trials}
        for member in self.known:
            if first.get(member.name, -np.inf) >= HOPELESS * max(first.values()):
                self.climb(member, axis=0)
        best_first = sorted(self.known, key=lambda member: -self.leader(member)[1])
        for member in best_first:
            if self.leader(member)[1] >= BEHIND * self.leader(best_first[0])[1]:
                while any([self.climb(member, a) for a in (*range(1, len(member.axes)), 0)]):
                    pass

    def leader(self, member: Member) -> tuple[Trial | None, float]:
        """The member's best trial so far and its metric."""
        best = max(self.tried[member.name].values(), key=lambda trial: trial.metric, default=None)
        return best, -np.inf if best is None else best.metric

    def attempt(self, member: Member, point: tuple[int, ...]) -> float:
        """The metric at a point; −∞ where there is no such point, or no budget left to fit it."""
        tried = self.tried[member.name]
        if point not in tried:
            axes = list(member.axes.items())
            inside = all(0 <= p < len(v) for p, (_, v) in zip(point, axes, strict=True))
            if not inside or len(self.trials) >= self.budget:
                return -np.inf
            params = {name: values[p] for p, (name, values) in zip(point, axes, strict=True)}
            tried[point] = self.add(self.fit(member, params))
        return tried[point].metric

    def add(self, trial: Trial) -> Trial:
        """Note a trial, and return it."""
        self.trials.append(trial)
        return trial

    def climb(self, member: Member, axis: int) -> bool:
        """Go along one axis from the member's best point for as long as that is better; whether it moved."""
        for step in (1, -1):
            moved = False
            while True:
                tried = self.tried[member.name]
                here = max(tried, key=lambda point: tried[point].metric)
                there = tuple(p + step * (place == axis) for place, p in enumerate(here))
                if self.attempt(member, there) <= tried[here].metric:
                    break
                moved = True
            if moved:
                return True
        return False


def _middle(member: Member) -> tuple[int, ...]:
    """The point of the model's own values."""
    own = member.model.get_params()
    return tuple(values.index(own[name]) for name, values in member.axes.items())
