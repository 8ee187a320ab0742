"""Records from before MFAUC had parts, said in the words of today: names and fingerprints change, numbers do not.

    python -m experiments.migrate_records [--folder=experiments/results]

Until then a cell was known by every flat field of the model, those of other solvers included, and fields that were 0,
False or None were left out. Here the flat fields become the objects that the row used, with what the library filled
in when the record was made (found in the history of `routes.py` and `model.py`, and for the square loss on synthetic
data confirmed by fitting with the code of that commit):

| flat                                     | object                                                       |
| no `iterations`, the square loss         | 8 sweeps with 6 and 3 steps (before be90b76), 9 with 4 and 2 |
| `batch`                                  | 128, read by minibatches only                                |
| a fixed `reg`, neither `spread` nor `tau`| `Fixed(reg)`, `Weights.paper()`                              |
| `reg` "auto"                             | `Auto` with the constants of `scaling.rule`, which are today's |
| `max_norm`, no `average_since`           | counted from 0, as `MFAUC.authors` said                      |

Running it again changes nothing. What was measured, when, where and by which commit stays as it is: this is checked
before anything is written. Records of a whole run, known by their `config`, are left alone.
"""

import dataclasses
import json
import pathlib
import sys
from typing import Any

from experiments import fig_roc, flags, results
from mfauc_jax import (
    MFAUC,
    Alternating,
    Auto,
    Averaging,
    Blockwise,
    Fixed,
    Minibatch,
    Sequential,
    Weights,
)
from mfauc_jax._core import atomic
from mfauc_jax.objective import losses, weightings

JOB = {  # what a cell of each kind is known by
    "select": (
        "setting",
        "method",
        "seed",
        "rank",
        "splits",
        "model",
        "grid",
        "iterations",
        "num_users",
        "first_rank",
        "positives",
        "folds",
    ),
    "fit": ("setting", "method", "seed", "rank", "hyper", "model"),
    "missing": (),
    "roc": ("loss", "seed", "rank", "iterations", "values", "model"),
    "timings": ("counted", "blocks", "seed", "batch", "iterations", "every", "model"),
    "speed": ("seed", "blocks", "devices", "timed", "users", "items", "positives", "model"),
    "split": ("method", "seed", "rank", "held_out", "model", "change"),
    "picture": ("seed", "rank", "model"),
    "gowalla": ("method", "rank", "model", "change"),
    "gowalla-validation": ("method", "rank", "model", "change"),
}
NAMES = {  # of hyper-parameters of an MFAUC row
    "reg": "penalty__reg",
    "strength": "penalty__strength",
    "learning_rate": "solver__learning_rate",
    "iterations": "solver__iterations",
}
RULE = {  # the constants of `scaling.rule`
    "rule.spread": "sigma",
    "rule.spread_power": "sigma_power",
    "rule.user_power": "reg_user_power",
    "rule.item_power": "reg_item_power",
    "strength": "strength",
    "spread": "spread",
}


@dataclasses.dataclass(frozen=True)
class Config:
    folder: str = flags.option("experiments/results", "whose *.jsonl are rewritten")


def job_of(record: dict[str, Any]) -> dict[str, Any]:
    """What a record's cell is known by."""
    return {k: record[k] for k in ("kind", "dataset", *JOB[record["kind"]]) if k in record}


def from_flat(flat: dict[str, Any]) -> MFAUC:
    """A row of Tables 2 and 4 from its flat fields."""
    named: dict[str, Any] = {"loss": losses.LOSSES[flat["loss"]]()}
    if "beta" in named["loss"].specs():
        named["loss"] = named["loss"].replace(beta=flat["beta"])
    named["weighting"] = (
        weightings.Tanh(rho=flat["rho"]) if flat["weighting"] == "tanh" else weightings.identity
    )
    if flat["reg"] == "auto":
        named["penalty"] = Auto(strength=flat["strength"])
        named["weights"] = Weights(tau=flat["tau"], tau_neg=0.0, user_power=flat["user_power"])
    else:
        named["penalty"] = Fixed(reg=flat["reg"], spread=0.0)
        named["weights"] = Weights.paper()
    named["start"] = flat["start"]
    return MFAUC(rank=flat["rank"], solver=_solver(flat), **named)


def _solver(flat: dict[str, Any]) -> Any:
    eta = flat["average_eta"]
    if flat["solver"] == "sequential":
        same = ("iterations", "learning_rate", "num_users", "num_items", "step_rule")
        return Sequential(
            **{name: flat[name] for name in same},
            fixed_order=flat["fixed_order"],
            new_user=flat["new_user"],
            max_norm=flat["max_norm"],
            average=Averaging(flat["average_start"], eta, since=0),
        )
    if flat["loss"] == "square":
        steps = flat["user_steps"], flat["item_steps"]
        return Alternating({(6, 3): 8, (4, 2): 9}[steps], *steps)
    same = ("learning_rate", "optimiser", "batch", "num_pos", "num_neg")
    kept = {name: flat[name] for name in same}
    return Minibatch(iterations=40, **kept, average=Averaging(0, eta))


def from_change(change: dict[str, Any], rank: int) -> dict[str, Any]:
    """A row of `study_top` from what it changed of MFAUC() at c8d9a14, whose defaults are written here."""
    if "peer" in change:
        return change
    penalty = {
        "strength": 0.4,
        "spread": None,
        "sigma": 1.6,
        "sigma_power": 1 / 3,
        "noise_power": 1 / 6,
        "reg_user_power": 0.5,
        "reg_item_power": 0.75,
    }
    penalty |= {RULE[name]: value for name, value in change.items() if name in RULE}
    weights = {"tau": -0.1, "tau_neg": 0.0, "user_power": 0.75}
    weights |= {name: value for name, value in change.items() if name in weights}
    loss = change.get("loss", "square")
    solver = Minibatch(40, 0.3, "adagrad", 128, 10, 20, Averaging(0, 3.0))
    if loss == "square":
        solver = Alternating(change.get("iterations", 9), 4, 2)
    weighting = weightings.Tanh(rho=change["rho"]) if "rho" in change else weightings.identity
    model = MFAUC(
        rank=change.get("rank", rank),
        loss=loss,
        weighting=weighting,
        weights=Weights(**weights),
        penalty=Auto(**penalty),
        solver=solver,
        start="gaussian",
    )
    repeated = {"seeds": change["seeds"]} if "seeds" in change else {}
    return {"rank": model.rank, **results.described(model), **repeated}


def _renamed(values: dict[str, Any]) -> dict[str, Any]:
    return {NAMES.get(name, name): value for name, value in values.items()}


def _table(record: dict[str, Any]) -> dict[str, Any]:
    """A selection or fit of Tables 2 and 4; rows without a model are baselines, with names of their own."""
    flat = record["model"]
    if not flat or isinstance(flat["solver"], dict):
        return record
    changed: dict[str, Any] = {
        name: _renamed(record[name]) for name in ("hyper", "grid") if name in record
    }
    if "scores" in record:
        changed["scores"] = [_renamed(row) for row in record["scores"]]
    return {**record, **changed, "model": results.described(from_flat(flat))}


def _study(record: dict[str, Any]) -> dict[str, Any]:
    if "change" not in record:
        return record
    kept = {name: value for name, value in record.items() if name != "change"}
    return {**kept, "model": from_change(record["change"], record["rank"])}


def _picture(record: dict[str, Any]) -> dict[str, Any]:
    changes = {"without the penalty": {"spread": 0.0}, "MFAUC()": {}}
    rows = {name: from_change(change, record["rank"]) for name, change in changes.items()}
    return record if "model" in record else {**record, "model": rows}


def _roc(record: dict[str, Any]) -> dict[str, Any]:
    setting = {"penalty": Fixed(reg=0.0), "solver__iterations": record["iterations"]}
    model = MFAUC.authors(**fig_roc.LOSSES[record["loss"]], **setting)
    return record if "model" in record else {**record, "model": results.described(model)}


def _timings(record: dict[str, Any]) -> dict[str, Any]:
    model = MFAUC.authors(solver__iterations=record["iterations"])
    if record["blocks"]:
        average = Averaging(start=30, eta=5.0, since=0)
        sizes = {"batch": record["batch"], "num_pos": 10, "num_neg": 10, "average": average}
        model.solver = Blockwise(
            record["iterations"], 0.05, "unit", **sizes, blocks=record["blocks"]
        )
    return record if "model" in record else {**record, "model": results.described(model)}


KINDS = {
    "select": _table,
    "fit": _table,
    "missing": lambda record: record,
    "roc": _roc,
    "timings": _timings,
    "speed": dict,
    "split": _study,
    "picture": _picture,
    "gowalla": _study,
    "gowalla-validation": _study,
}


def migrated(record: dict[str, Any]) -> dict[str, Any]:
    """The record in the words of today; itself if it is."""
    if "cell" not in record:
        return record
    new = KINDS[record["kind"]](record)
    new = {**new, "cell": results.identity(job_of(new))}
    _check_untouched(record, new)
    return new


def _check_untouched(old: dict[str, Any], new: dict[str, Any]) -> None:
    """All that was measured is the same, and so is every value of what is called otherwise."""
    said = {"cell", "model", "change", "hyper", "grid"} | (
        {"scores"} if old["kind"] == "select" else set()
    )
    kept, after = ({k: v for k, v in r.items() if k not in said} for r in (old, new))
    assert json.dumps(kept, sort_keys=True) == json.dumps(after, sort_keys=True), old["cell"]
    for name in ("hyper", "grid"):
        assert list(old.get(name, {}).values()) == list(new.get(name, {}).values()), old["cell"]
    rows = (r["scores"] if old["kind"] == "select" else [] for r in (old, new))
    for before, now in zip(*rows, strict=True):
        assert json.dumps(list(before.values())) == json.dumps(list(now.values())), old["cell"]


def _rewritten(line: str) -> str:
    record = json.loads(line)
    new = migrated(record)
    return line if new == record else json.dumps(new, sort_keys=True)


def main(config: Config) -> int:
    """Rewrite each file as a whole, or leave it as it is."""
    for path in sorted(pathlib.Path(config.folder).glob("*.jsonl")):
        lines = path.read_text().splitlines()
        after = [_rewritten(line) for line in lines]
        changed = sum(a != b for a, b in zip(lines, after, strict=True))
        if changed:
            atomic.write_text(path, "".join(line + "\n" for line in after))
        print(f"{path}: {changed} of {len(lines)} records renamed")
    return 0


if __name__ == "__main__":
    sys.exit(flags.run(Config, main))
