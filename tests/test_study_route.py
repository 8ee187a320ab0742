"""`experiments.study_route`: the same objective, split and λ as the row, by another route."""

import json

import pytest

from experiments import methods, paper, protocol, study_route
from mfauc_jax import FullBatch

ROW = {
    "kind": "fit",
    "dataset": "synthetic2",
    "setting": "ours",
    "method": "MFAUC hinge",
    "seed": 0,
}
HYPER = {"penalty__reg": 0.5, "solver__iterations": 30}


def columns(value):
    return {c: {"mean": value, "error": 0.0} for c in paper.COLUMNS}


def test_a_row_is_fitted_again_by_l_bfgs_with_its_own_penalty(tmp_path, monkeypatch):
    """Kills: another λ, another setting's row, another split, minibatches again."""
    rows = tmp_path / "rows.jsonl"
    other = ROW | {"setting": "authors", "hyper": {"penalty__reg": 9.0}, "metrics": columns(0.1)}
    mine = ROW | {"hyper": HYPER, "metrics": columns(0.2)}
    rows.write_text("".join(json.dumps(r) + "\n" for r in (mine, other)))
    fitted = []

    def fit(model, X, progress):
        fitted.append((model, X.nnz))
        model.factors_ = None
        return model

    monkeypatch.setattr(study_route.protocol, "_ranked", lambda *args: {"metrics": columns(0.3)})
    monkeypatch.setattr("mfauc_jax.MFAUC.fit", fit)
    config = study_route.Config(("synthetic2",), ("MFAUC hinge",), splits=1, rows=str(rows))
    (record,) = study_route.run(config)
    ((model, positives),) = fitted
    assert isinstance(model.chosen_solver, FullBatch) and model.penalty.reg == 0.5
    row = methods.get("MFAUC hinge").model
    assert row is not None and model.loss == row.loss and model.rank == 8
    assert positives == protocol._split(protocol.load("synthetic2", ""), 0).train.nnz
    assert record["ours"] == columns(0.2) and record["metrics"] == columns(0.3)
    assert (
        study_route.draw([record])
        .splitlines()[-1]
        .endswith(
            "| MFAUC hinge | .428/.294/.240/.796 | .200/.200/.200/.200 | .300/.300/.300/.300 |"
        )
    )
    with pytest.raises(LookupError, match="no record of .*MFAUC sigmoid"):
        study_route.run(study_route.Config(("synthetic2",), ("MFAUC sigmoid",), rows=str(rows)))
