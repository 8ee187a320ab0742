"""Tables for papers: LaTeX with booktabs, the best value of a column in bold, marks for significance."""

import math
import re
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from mfauc_jax.evaluation import significance
from mfauc_jax.evaluation.significance import Values

SPECIAL = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"$\pm$",
    "−": "$-$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "λ": r"$\lambda$",
    "ρ": r"$\rho$",
    "τ": r"$\tau$",
    "σ": r"$\sigma$",
    "′": "$'$",
}


def escape(text: object) -> str:
    """The text with every character that LaTeX would take for a command written out; line ends become blanks."""
    return "".join(SPECIAL.get(c, c) for c in " ".join(str(text).split()))


def number(value: float, digits: int = 4) -> str:
    """A number with a true minus sign and, below one, without the leading zero: .9265, $-$.0031; – if undefined."""
    if math.isnan(value):
        return "--"
    text = re.sub(r"^0(?=\.\d)", "", f"{abs(value):.{digits}f}")
    return f"$-${text}" if value < 0 and float(text) != 0 else text


def tabular(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    text_columns: int = 1,
    caption: str = "",
    label: str = "",
) -> str:
    r"""A table with booktabs' rules; with a caption or a label a floating `table` around it.

    Args:
        head: names of the columns, plain text.
        rows: cells, already in LaTeX (`escape` and `number`).
        text_columns: so many columns from the left are text, the others are aligned to the right.
        caption: plain text; none if empty.
        label: the name for \ref; none if empty.
    """
    for row in rows:
        if len(row) != len(head):
            raise ValueError(f"a row has {len(row)} cells, the head {len(head)}: {list(row)}")
    columns = "l" * text_columns + "r" * (len(head) - text_columns)
    lines = [
        f"\\begin{{tabular}}{{{columns}}}",
        "\\toprule",
        " & ".join(map(escape, head)) + r" \\",
        "\\midrule",
        *(" & ".join(row) + r" \\" for row in rows),
        "\\bottomrule",
        "\\end{tabular}",
    ]
    if caption or label:
        named = [f"\\caption{{{escape(caption)}}}"] if caption else []
        named += [f"\\label{{{label}}}"] if label else []
        lines = ["\\begin{table}", "\\centering", *named, *lines, "\\end{table}"]
    return "\n".join(lines) + "\n"


def marked(value: float, *, best: bool, marks: str = "", digits: int = 4) -> str:
    """A number, in bold if it is the best of its column, followed by its marks."""
    text = number(value, digits)
    return (f"\\textbf{{{text}}}" if best else text) + (f"$^{{{marks}}}$" if marks else "")


def comparison(
    models: Mapping[str, Values],
    baseline: str,
    *,
    metrics: Sequence[str] | None = None,
    smaller: Collection[str] = (),
    alpha: float = 0.05,
    digits: int = 4,
    caption: str = "",
    label: str = "",
) -> str:
    r"""Models beside one another as LaTeX: mean metrics, the best in bold, and what differs from the baseline.

    $^{*}$ marks a mean that differs from the baseline's by the two-sided paired t test over users, with p-values
    corrected by Holm over all models and metrics of the table. The last line of the table says so.

    Args:
        models: per-user values by name, as from `evaluate(..., per_user=True)`, on the same users.
        baseline: the name of the model that the others are compared with.
        metrics: the columns; None: every metric that all models have.
        smaller: metrics of which the smallest is the best.
        alpha: the level of the tests, in (0, 1).
        digits: decimals.
        caption: caption of the table; with it or a label the table floats.
        label: the name for \ref.
    """
    if baseline not in models:
        raise ValueError(f"baseline = {baseline!r} is none of {list(models)}")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha = {alpha} must be in (0, 1), such as .05")
    shared = [n for n in models[baseline] if n != "user" and all(n in v for v in models.values())]
    names = shared if metrics is None else list(metrics)
    for name in names:
        if name not in shared:
            raise ValueError(f"metric {name!r} is not one that all models have: {shared}")
    means = {m: {n: float(np.nanmean(v[n])) for n in names} for m, v in models.items()}
    others = [m for m in models if m != baseline]
    for m in others:
        if not np.array_equal(_users(models[m]), _users(models[baseline])):
            raise ValueError(f"{m} and {baseline} were evaluated on different users")
    raw = [
        (m, n, significance.paired(models[m][n], models[baseline][n]).p_t)
        for m in others
        for n in names
    ]
    corrected = significance.holm([p for *_, p in raw])
    differs = {(m, n) for (m, n, _), p in zip(raw, corrected, strict=True) if p < alpha}
    best = {
        n: (min if n in smaller else max)(round(row[n], digits) for row in means.values())
        for n in names
    }
    rows = [
        [
            escape(m),
            *(
                marked(
                    row[n],
                    best=round(row[n], digits) == best[n],
                    marks="*" if (m, n) in differs else "",
                    digits=digits,
                )
                for n in names
            ),
        ]
        for m, row in means.items()
    ]
    table = tabular(["", *names], rows, caption=caption, label=label)
    users = len(next(iter(models.values()))[names[0]])
    note = (
        f"$^{{*}}$ differs from {escape(baseline)}: paired $t$ test over {users} users, Holm's "
        f"correction over {len(raw)} tests, level {number(alpha, 2)}."
    )
    line = f"\\multicolumn{{{len(names) + 1}}}{{l}}{{\\footnotesize {note}}} \\\\\n"
    return table.replace("\\bottomrule\n", f"\\bottomrule\n{line}")


def _users(values: Values) -> np.ndarray:
    return np.asarray(values.get("user", ()))
