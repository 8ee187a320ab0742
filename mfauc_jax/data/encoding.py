"""How the columns of a frame become features, by a rule that is stated once:

| column | features | value in a row |
| --- | --- | --- |
| numbers | one, `year` | (x − mean) / standard deviation; 0 where it is missing |
| text, categories, booleans, lists | one per value, `genre=Drama` | 1/√t for each of the t values of the row |

Text is cut at "|", as in MovieLens' "Action|Comedy", so a cell may hold several values. A value that only one row has
is left out: it could tell nothing about another row. So is a column of numbers that are all equal. Columns of other
frames are encoded by the same means, deviations and values (`Features.like`). A matrix is taken as it is.
"""

from typing import Any, NamedTuple

import numpy as np

from mfauc_jax.data import columns, frames, validation

SEPARATOR = "|"


class Column(NamedTuple):
    """How one column of a frame is encoded: by its mean and deviation, or by its values."""

    name: str
    mean: float = 0.0
    deviation: float = 0.0  # 0: the column holds values, not numbers
    values: tuple[str, ...] = ()

    def names(self) -> list[str]:
        """The names of its features."""
        return [self.name] if self.deviation else [f"{self.name}={value}" for value in self.values]


def read(frame: Any, id: str | None, kind: str) -> tuple[np.ndarray, dict[str, list], list[str]]:
    """The ids, the cells of each column of features, and notes."""
    import narwhals.stable.v2 as nw

    table = frames.table_of(frame)
    table = table.collect() if isinstance(table, nw.LazyFrame) else table
    labels = {str(name): name for name in table.columns}
    found = id if id is not None else _id_column(list(labels), kind)
    if found not in labels:
        raise ValueError(
            f"the {kind} features have no column {found!r}: they have {columns.shown(list(labels))}"
        )
    row_ids = [None if _is_missing(x) else x for x in table[labels[found]].to_list()]
    seen: dict[Any, int] = {}
    for place, name in enumerate(row_ids):
        if name is not None:
            seen.setdefault(name, place)
    rows = list(seen.values())
    missing = sum(name is None for name in row_ids)
    repeated = len(row_ids) - missing - len(rows)
    notes = [f"{missing} rows without an id left out"] * bool(missing)
    notes += [f"{repeated} rows with a repeated id left out (the first counts)"] * bool(repeated)
    cells = {}
    for name, label in labels.items():
        if name != found:
            values = table[label].to_list()
            cells[name] = [None if _is_missing(values[row]) else values[row] for row in rows]
    if not cells:
        raise ValueError(f"the {kind} features have no column besides the ids {found!r}")
    return validation.ids(kind, [row_ids[row] for row in rows]), cells, notes


def _id_column(names: list[str], kind: str) -> str:
    matches = columns.matching(names, kind) or [n for n in names if columns.plain(n) == "id"]
    if len(matches) != 1:
        which = "no column that looks" if not matches else f"several columns, {matches}, that look"
        raise ValueError(
            f"the {kind} features have {which} like {kind} ids among {columns.shown(names)}: write "
            'Features.from_frame(df, id="…")'
        )
    return matches[0]


def _is_missing(cell: Any) -> bool:
    """Whether a cell is None, nan, or pandas' NA or NaT."""
    is_nan = isinstance(cell, float | np.floating) and np.isnan(cell)
    return cell is None or bool(is_nan) or type(cell).__name__ in ("NAType", "NaTType")


def _is_number(cell: Any) -> bool:
    return isinstance(cell, int | float | np.number) and not isinstance(cell, bool)


def values_of(cell: Any) -> list[str]:
    """The distinct values of a cell, in order of first appearance."""
    if cell is None:
        return []
    if isinstance(cell, list | tuple | set | frozenset | np.ndarray):
        parts = [str(value) for value in cell if not _is_missing(value)]
    else:
        parts = str(cell).split(SEPARATOR)
    return [value for value in dict.fromkeys(part.strip() for part in parts) if value]


def rule_of(name: str, cells: list) -> Column:
    """How the cells of a column are encoded; a rule without names if nothing can be learned from it."""
    present = [cell for cell in cells if cell is not None]
    if present and all(map(_is_number, present)):
        numbers = np.array(present, np.float64)
        if not np.isfinite(numbers).all():
            raise ValueError(
                f"column {name!r} has {numbers[~np.isfinite(numbers)][0]}: make it finite"
            )
        deviation = float(numbers.std())
        return Column(name, float(numbers.mean()), deviation if deviation > 1e-12 else 0.0)
    counts: dict[str, int] = {}
    for cell in cells:
        for value in values_of(cell):
            counts[value] = counts.get(value, 0) + 1
    return Column(name, values=tuple(sorted(value for value, count in counts.items() if count > 1)))


def encode(rules: tuple[Column, ...], cells: dict[str, list]) -> tuple[Any, tuple[str, ...]]:
    """The sparse matrix of the features of all columns, and their names."""
    import scipy.sparse

    if not rules:
        raise ValueError("no column of the features has a value that two rows share")
    blocks = [_block(column, cells[column.name]) for column in rules]
    names = tuple(name for column in rules for name in column.names())
    return scipy.sparse.csr_array(scipy.sparse.hstack(blocks)), names


def _block(column: Column, cells: list) -> Any:
    """The features of one column, [rows, its features]."""
    import scipy.sparse

    if column.deviation:
        numbers = np.array([column.mean if cell is None else float(cell) for cell in cells])
        if not np.isfinite(numbers).all():
            raise ValueError(
                f"column {column.name!r} has {numbers[~np.isfinite(numbers)][0]}: make it finite"
            )
        return scipy.sparse.csr_array(((numbers - column.mean) / column.deviation)[:, None])
    place = {value: at for at, value in enumerate(column.values)}
    rows, features, weights = [], [], []
    for row, cell in enumerate(cells):
        known = [place[value] for value in values_of(cell) if value in place]
        rows += [row] * len(known)
        features += known
        weights += [max(len(known), 1) ** -0.5] * len(known)
    return scipy.sparse.csr_array((weights, (rows, features)), shape=(len(cells), len(place)))
