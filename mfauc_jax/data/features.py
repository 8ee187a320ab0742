"""Features: what is known about items or users besides who has what, as a sparse matrix with names."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from mfauc_jax.data import encoding, frames, ids, reading, validation


@dataclasses.dataclass(frozen=True, eq=False)
class Features:
    """The features f_j of items, or of users, one row each.

    Attributes:
        matrix: f_j as rows, [rows, p], in float64.
        names: one per feature, such as "genre=Drama" or "year", [p].
        ids: the external id of each row; None: row j is item j.
        rules: how each column of the frame was encoded; empty for a matrix.
    """

    matrix: Any  # a scipy.sparse.csr_array
    names: tuple[str, ...]
    ids: np.ndarray | None = None
    rules: tuple[encoding.Column, ...] = ()

    def __repr__(self) -> str:
        what = "with external ids" if self.ids is not None else "by position"
        return f"Features({self.matrix.shape[0]} rows × {len(self.names)} features, {what})"

    @classmethod
    def of(cls, data: Any, kind: str = "item") -> "Features":
        """Features from any supported kind of data.

        Args:
            data: Features, a scipy sparse or dense matrix (rows × features), or a pandas, polars or arrow frame whose
                column of ids is found by name; `from_frame` takes its name.
            kind: "item" or "user": what a row is about.
        """
        if isinstance(data, Features):
            return data
        import scipy.sparse

        if scipy.sparse.issparse(data) or (isinstance(data, np.ndarray) and data.ndim == 2):
            return cls.from_matrix(data)
        if frames.is_frame(data):
            return cls.from_frame(data, kind=kind)
        raise TypeError(
            f"cannot read features from {type(data).__name__}: pass a frame with a column of {kind} ids, or a "
            f"matrix ({kind}s × features)"
        )

    @classmethod
    def from_matrix(cls, matrix: Any, names: Any = None, ids: Any = None) -> "Features":
        """Features from a matrix, rows × features, taken as it is.

        Args:
            matrix: sparse or dense, finite.
            names: one per feature; None: "0", "1", …
            ids: the external id of each row, all different; None: row j is item j.
        """
        import scipy.sparse

        made: Any = scipy.sparse.csr_array(matrix, dtype=np.float64)
        made.sum_duplicates()
        if not np.isfinite(made.data).all():
            raise ValueError(
                f"a feature is {made.data[~np.isfinite(made.data)][0]}: features must be finite"
            )
        rows, p = made.shape
        names = tuple(map(str, range(p) if names is None else names))
        if len(names) != p:
            raise ValueError(f"{len(names)} names for {p} features: give one each")
        if ids is not None:
            ids = validation.ids("feature row", ids)
            if len(ids) != rows:
                raise ValueError(f"{len(ids)} ids for {rows} rows of features: give one each")
            if len(np.unique(ids)) < rows:
                values, counts = np.unique(ids, return_counts=True)
                raise ValueError(
                    f"id {values[counts > 1].tolist()[0]!r} has several rows of features: give each id one row"
                )
        return cls(made, names, ids)

    @classmethod
    def from_frame(cls, frame: Any, *, id: str | None = None, kind: str = "item") -> "Features":
        """Features from a frame with one row per item, or per user, by the rule at the top of this module.

        Of several rows with one id the first counts, rows without an id are left out, and one warning says so.

        Args:
            frame: pandas, polars or arrow, with a column of ids and columns of features.
            id: name of the column of ids; None: recognised by its name (item_id, movieId, sku, user_id, …).
            kind: "item" or "user": which names mean ids.
        """
        row_ids, cells, notes = encoding.read(frame, id, kind)
        rules = tuple(encoding.rule_of(name, values) for name, values in cells.items())
        useless = [rule.name for rule in rules if not rule.names()]
        if useless:
            notes.append(f"nothing to learn from {', '.join(useless)} (no value is shared)")
        rules = tuple(rule for rule in rules if rule.names())
        reading.warn(f"{kind} features", notes)
        return cls(*encoding.encode(rules, cells), row_ids, rules)

    def like(self, data: Any, kind: str = "item") -> "Features":
        """Other rows with the same features: a frame is encoded as the one that made these was.

        Values that are not among these features are left out, and one warning counts them.

        Args:
            data: what `of` takes, with the same columns.
            kind: as in `of`.
        """
        if self.rules and not isinstance(data, Features) and frames.is_frame(data):
            row_ids, cells, notes = encoding.read(data, None, kind)
            lacking = [rule.name for rule in self.rules if rule.name not in cells]
            if lacking:
                raise ValueError(
                    f"the {kind} features lack the column {lacking[0]!r}, which fit was given"
                )
            unknown = sum(
                value not in known
                for rule in self.rules
                if not rule.deviation
                for known in [set(rule.values)]
                for cell in cells[rule.name]
                for value in encoding.values_of(cell)
            )
            notes += [f"left out {unknown} values that fit was not given"] if unknown else []
            reading.warn(f"{kind} features", notes)
            return Features(*encoding.encode(self.rules, cells), row_ids, self.rules)
        found = Features.of(data, kind)
        if found.names != self.names:
            raise ValueError(
                f"these {len(found.names)} {kind} features are not the {len(self.names)} that fit was given: give "
                "the same columns in the same order"
            )
        return found

    def take(self, rows: np.ndarray) -> "Features":
        """Some rows; −1 stands for a row of zeros, and then there are no ids."""
        import scipy.sparse

        picked = np.flatnonzero(rows >= 0)
        ones = np.ones(len(picked))
        choose = scipy.sparse.csr_array(
            (ones, (picked, rows[picked])), shape=(len(rows), self.matrix.shape[0])
        )
        taken = None if self.ids is None or len(picked) < len(rows) else self.ids[rows]
        return dataclasses.replace(self, matrix=choose @ self.matrix, ids=taken)


class Joined(NamedTuple):
    """Features in the order of X's items (or users), and of those that X lacks."""

    known: Features  # one row per item of X; zeros where nothing is known
    others: Features  # items that only the features know


def joined(features: Features, names: np.ndarray | None, size: int, kind: str) -> Joined:
    """Features brought into the order of X's items (or users); one line says which ids have no partner.

    Args:
        features: of any items.
        names: the external ids of X's items; None: X has positions.
        size: the number of X's items.
        kind: "item" or "user", for messages.
    """
    rows = features.matrix.shape[0]
    if features.ids is None and names is not None:
        raise TypeError(
            f"X has {kind} ids, so the {kind} features need them too: give a frame with a column of ids, or "
            "Features.from_matrix(F, ids=…)"
        )
    wanted = np.arange(rows) if features.ids is None else features.ids
    if features.ids is not None and names is None and features.ids.dtype.kind == "U":
        raise TypeError(
            f"{kind} {features.ids.tolist()[0]!r} is not a position, but X has no ids: give features by position"
        )
    place, is_known = ids.known(kind, names, wanted, size)
    row = np.full(size, -1)
    row[place[is_known]] = np.flatnonzero(is_known)
    others = np.flatnonzero(~is_known)
    if names is None and len(others):  # positions from n on, without a gap
        others = others[np.argsort(wanted[others])]
        if not np.array_equal(wanted[others], size + np.arange(len(others))):
            raise ValueError(
                f"{kind} {wanted[others][-1]} of the features is beyond the {size} {kind}s of X: number further "
                f"{kind}s from {size} on"
            )
    missing = int((row < 0).sum())
    notes = [
        f"{ids.counted(missing, kind)} of X without features (learned from positives alone)"
    ] * bool(missing)
    if not is_known.any():
        first = (np.arange(size) if names is None else names)[:3].tolist()
        raise ValueError(
            f"none of the {rows} {kind} ids of the features is in X, which has {first}"
        )
    told = f"{ids.counted(len(others), kind)} known by features only (ranked too)"
    reading.LOG.info("%s features: %s", kind, "; ".join([repr(features), told, *notes]))
    reading.warn(f"{kind} features", notes)
    return Joined(features.take(row), features.take(others))
