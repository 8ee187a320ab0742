"""LaTeX tables: what is bold is the best, what is marked differs, and no name can break a table."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from experiments import comparison, paper
from mfauc_jax.evaluation import latex
from mfauc_jax.training.outcome import Selection


def cells(table: str) -> list[list[str]]:
    """The rows between the first rule and the last."""
    body = table[table.index("\\toprule") : table.index("\\bottomrule")]
    lines = [line for line in body.splitlines() if line.endswith(r"\\")]
    return [re.split(r"(?<!\\)&", line[:-2]) for line in lines]


@given(st.text(max_size=30))
def test_any_name_is_one_cell_of_plain_text(name):
    table = latex.tabular(["", name], [[latex.escape(name), "1"]])
    assert [len(row) for row in cells(table)] == [2, 2]
    text = latex.escape(name)
    for command in latex.SPECIAL.values():
        text = text.replace(command, "")
    assert not set("&%$#_{}~^\\<>\n") & set(text)


def test_numbers_have_a_true_minus_sign_and_no_leading_zero():
    shown = [latex.number(x, 3) for x in (0.9265, -0.0031, 1.25, -0.0001, 0.0, float("nan"))]
    assert shown == [".926", "$-$.003", "1.250", ".000", ".000", "--"]


def values(shift: dict[str, float]) -> dict[str, dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    base, users = rng.random(60), np.arange(60)
    return {
        name: {"user": users, "auc": base + by + 0.02 * rng.normal(size=60), "ndcg@5": base}
        for name, by in shift.items()
    }


def test_a_comparison_marks_what_differs_from_the_baseline_after_holm():
    models = values({"base": 0.0, "better": 0.1, "a_bit": 0.0145})
    head, *rows = cells(latex.comparison(models, "base"))
    raw = [
        stats.ttest_rel(models[m]["auc"], models["base"]["auc"]).pvalue for m in ("better", "a_bit")
    ]
    assert (
        raw[1] < 0.05 and min(4 * raw[0], 1) < 0.05 <= 3 * raw[1]
    )  # four tests, two of them p = 1
    shown = [row[1].strip() for row in rows]
    means = [latex.number(models[m]["auc"].mean()) for m in models]
    assert shown == [means[0], f"\\textbf{{{means[1]}}}$^{{*}}$", means[2]]
    assert [row[2].strip().startswith("\\textbf") for row in rows] == [True] * 3  # all equal
    assert rows[2][0].strip() == r"a\_bit" and [h.strip() for h in head] == ["", "auc", "ndcg@5"]


def test_of_some_metrics_the_smallest_is_the_best():
    models = values({"a": 0.0, "b": 0.3})
    _, a, b = cells(latex.comparison(models, "a", metrics=["auc"], smaller=["auc"]))
    assert "textbf" in a[1] and "textbf" not in b[1]


def test_bad_comparisons_are_named():
    models = values({"a": 0.0, "b": 0.1})
    with pytest.raises(ValueError, match="'c' is none of"):
        latex.comparison(models, "c")
    with pytest.raises(ValueError, match="metric 'map' is not"):
        latex.comparison(models, "a", metrics=["map"])
    with pytest.raises(ValueError, match="alpha = 5"):
        latex.comparison(models, "a", alpha=5)
    models["b"]["user"] = models["b"]["user"][::-1]
    with pytest.raises(ValueError, match="different users"):
        latex.comparison(models, "a")
    with pytest.raises(ValueError, match="a row has 1 cells"):
        latex.tabular(["a", "b"], [["1"]])


def test_a_selection_is_a_table_with_the_best_first_and_in_bold():
    table = [
        {"split": s, "rank": k, "penalty__reg": 0.125, "auc": score + 0.01 * s}
        for k, score in ((8, 0.7), (16, 0.9), (32, np.nan))
        for s in range(2)
    ]
    points = [{"rank": k, "penalty__reg": 0.125} for k in (8, 16, 32)]
    found = Selection.choose(None, {}, "auc", points, table)
    text = found.to_latex(caption="k & λ", label="tab:k")
    head, *rows = cells(text)
    assert [h.strip() for h in head] == ["k", r"$\lambda$", "auc", r"$\pm$ sd", "splits"]
    assert [[c.strip() for c in row] for row in rows] == [
        ["16", "0.125", r"\textbf{.9050}", ".0071", "2"],
        ["8", "0.125", ".7050", ".0071", "2"],
        ["32", "0.125", "--", "--", "2"],
    ]
    assert "\\caption{k \\& $\\lambda$}\n\\label{tab:k}\n\\begin{tabular}{llrrr}" in text


def test_the_papers_tables_mark_what_is_below_the_best_and_what_is_not_the_papers():
    rng = np.random.default_rng(1)
    noise = 0.001 * rng.normal(size=(3, 5))

    def fit(method, seed, value):
        metrics = {c: {"mean": value, "error": 0.01} for c in paper.COLUMNS}
        same = {"dataset": "ml-100k", "setting": "ours", "rank": 8, "auc_one_negative": value}
        return {"kind": "fit", "method": method, "seed": seed, "metrics": metrics, **same}

    means = {"WRMF": 0.5, "MFAUC": 0.501, "Popularity": 0.1}
    records = [
        fit(m, s, v + noise[i, s]) for i, (m, v) in enumerate(means.items()) for s in range(5)
    ]
    rows = {row[0].strip(): row[-1].strip() for row in cells(comparison.to_latex(records))[1:]}
    assert rows["MFAUC"].startswith("\\textbf{.50") and "dagger" not in rows["MFAUC"]
    assert rows["Popularity"].endswith("$^{\\dagger}$")  # the paper has no such row
    assert rows["WRMF"].endswith("*}$")  # the paper has .891
    assert comparison.to_latex([]) == ""
