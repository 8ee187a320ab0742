"""X: who finds what relevant. A CSR matrix with sorted rows; validation lives here."""

import dataclasses
import warnings
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from mfauc_jax._core import host

if (
    TYPE_CHECKING
):  # scipy.sparse and narwhals wait for the first matrix or frame: imports stay quick
    import scipy.sparse

FIX_BINARY = (
    "relevance is 0 or 1: threshold ratings first, such as X = (ratings > 3), "
    "or pass confidence=True to use the values as weights on the positives"
)


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True, eq=False)
class Interactions:
    """The positives ω_i of every user, as a pytree of CSR arrays.

    `user_ids[i]` and `item_ids[j]` are the caller's names for row i and column j, or None when
    the caller used positions. They stay on the host: a pass through `jit` or `tree.map` drops them.

    Attributes:
        indptr: ω_i is `indices[indptr[i]:indptr[i + 1]]`, [m + 1].
        indices: items, sorted and distinct within a row, [nnz].
        confidence: weight of each positive within its row's g, [nnz]; None counts all alike.
        num_items: n.
        row_bits: 2**row_bits exceeds the longest row; the steps of a binary search.
    """

    indptr: Int[Array, "m_plus_1"]
    indices: Int[Array, "nnz"]
    confidence: Float[Array, "nnz"] | None = None
    num_items: int = 0
    row_bits: int = 31
    user_ids: np.ndarray | None = None
    item_ids: np.ndarray | None = None

    @property
    def num_users(self) -> int:
        """m."""
        return self.indptr.shape[0] - 1

    @property
    def nnz(self) -> int:
        """The number of positives, |ω|."""
        return self.indices.shape[0]

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n)."""
        return self.num_users, self.num_items

    @property
    def row_lengths(self) -> Int[Array, "m"]:
        """N_i = |ω_i|."""
        if not isinstance(self.indptr, Tracer):
            return host.ints(np.diff(np.asarray(self.indptr)))
        return self.indptr[1:] - self.indptr[:-1]

    @property
    def rows(self) -> Int[Array, "nnz"]:
        """The user of every positive."""
        if not isinstance(self.indptr, Tracer):
            return host.ints(self.on_host()[0])
        users = jnp.arange(self.num_users, dtype=self.indices.dtype)
        return jnp.repeat(users, self.row_lengths, total_repeat_length=self.nnz)

    def on_host(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """`rows`, `indices` and `row_lengths` as numpy arrays, without a compilation."""
        lengths = np.diff(np.asarray(self.indptr))
        return np.repeat(np.arange(len(lengths)), lengths), np.asarray(self.indices), lengths

    def tree_flatten(self):
        """Arrays are leaves; sizes are static; external ids do not cross."""
        return (self.indptr, self.indices, self.confidence), (self.num_items, self.row_bits)

    @classmethod
    def tree_unflatten(cls, aux, leaves):
        """The inverse of `tree_flatten`, without the ids."""
        return cls(*leaves, *aux)

    def __repr__(self) -> str:
        ids = "" if self.user_ids is None else ", with external ids"
        return f"Interactions({self.num_users} × {self.num_items}, {self.nnz} positives{ids})"

    def to_scipy(self) -> "scipy.sparse.csr_array":
        """X as a scipy CSR array of ones (or of confidences)."""
        import scipy.sparse

        data = np.ones(self.nnz, np.float32) if self.confidence is None else self.confidence
        arrays = np.asarray(data), np.asarray(self.indices), np.asarray(self.indptr)
        return scipy.sparse.csr_array(arrays, shape=self.shape)

    def transpose(self) -> "Interactions":
        """Xᵀ: the users of every item, sorted."""
        return _from_sorted_csr(self.to_scipy().T.tocsr(), self, self.item_ids, self.user_ids)

    def take(self, users: np.ndarray) -> "Interactions":
        """The rows of `users`, in their order."""
        ids = None if self.user_ids is None else self.user_ids[users]
        return _from_sorted_csr(self.to_scipy()[users], self, ids, self.item_ids)

    @classmethod
    def of(cls, data: Any, *, confidence: bool = False) -> "Interactions":
        """X from whatever holds it.

        Args:
            data: Interactions, a scipy sparse or dense 0/1 matrix (users × items), a pair of
                arrays (users, items) of external ids, or a pandas, polars or arrow frame with
                columns `user` and `item` (else its first two).
            confidence: read the matrix's values as weights on the positives.
        """
        if isinstance(data, Interactions):
            return data
        import narwhals.stable.v2 as nw
        import scipy.sparse

        if scipy.sparse.issparse(data) or (isinstance(data, np.ndarray) and data.ndim == 2):
            return cls.from_scipy(data, confidence=confidence)
        if isinstance(data, tuple | list) and len(data) == 2:
            return cls.from_pairs(*data)
        frame = nw.from_native(data, pass_through=True)
        if isinstance(frame, nw.DataFrame | nw.LazyFrame):
            columns = frame.collect_schema().names()
            named = {"user", "item"} <= set(columns)
            user, item = ("user", "item") if named else columns[:2]
            return cls.from_frame(data, user=user, item=item)
        raise TypeError(
            f"cannot read interactions from {type(data).__name__}: pass a scipy sparse matrix "
            "(users × items), a tuple (users, items), or a frame with columns user and item"
        )

    @classmethod
    def from_scipy(cls, matrix: Any, *, confidence: bool = False) -> "Interactions":
        """X from a users × items matrix of zeros and ones; positions are the ids."""
        import scipy.sparse

        if getattr(matrix, "ndim", 2) != 2:
            raise ValueError(f"X has {matrix.ndim} axes; it must be users × items")
        coo = scipy.sparse.coo_array(matrix)
        values = coo.data.astype(np.float64)
        _check_values(values, coo.row, coo.col, binary=not confidence)
        keep = values != 0
        weights = values[keep] if confidence else None
        return _from_coo(coo.row[keep], coo.col[keep], coo.shape, weights)

    @classmethod
    def from_pairs(
        cls, users: Any, items: Any, *, shape: tuple[int, int] | None = None, confidence: Any = None
    ) -> "Interactions":
        """X from one (user, item) pair for each positive.

        Args:
            users: one id a pair: integers or strings.
            items: the same for items.
            shape: (m, n) says that ids are positions in range(m) and range(n). Without it they
                are external ids: rows and columns follow their sorted order and `recommend`
                answers with them.
            confidence: weight of each pair, > 0.
        """
        users, items = _check_ids("user", users), _check_ids("item", items)
        if users.shape != items.shape:
            raise ValueError(f"{len(users)} users but {len(items)} items: one pair each, please")
        weights = None
        if confidence is not None:
            weights = np.asarray(confidence, np.float64)
            if weights.shape != users.shape:
                raise ValueError(f"{weights.shape[0]} confidences for {len(users)} pairs")
            _check_values(weights, users, items, binary=False)
        if shape is None:
            user_ids, users = np.unique(users, return_inverse=True)
            item_ids, items = np.unique(items, return_inverse=True)
            return _from_coo(
                users, items, (len(user_ids), len(item_ids)), weights, user_ids, item_ids
            )
        for kind, ids, size in (("user", users, shape[0]), ("item", items, shape[1])):
            if not np.issubdtype(ids.dtype, np.integer):
                raise TypeError(f"{kind} {ids[0]!r} is not a position: leave out shape=")
            bad = (ids < 0) | (ids >= size)
            if bad.any():
                raise ValueError(f"{kind} {ids[bad][0]} is outside range({size})")
        return _from_coo(users, items, shape, weights)

    @classmethod
    def from_frame(
        cls, frame: Any, *, user: str = "user", item: str = "item", confidence: str | None = None
    ) -> "Interactions":
        """X from a pandas, polars or arrow frame, one row for each positive pair."""
        import narwhals.stable.v2 as nw

        table = nw.from_native(frame)
        table = table.collect() if isinstance(table, nw.LazyFrame) else table
        missing = [c for c in (user, item, confidence) if c is not None and c not in table.columns]
        if missing:
            raise ValueError(f"no column {missing[0]!r}; the frame has {', '.join(table.columns)}")
        for column in (user, item):
            if table[column].null_count():
                raise ValueError(f"column {column!r} has {table[column].null_count()} missing ids")
        weights = None if confidence is None else table[confidence].to_numpy()
        return cls.from_pairs(table[user].to_numpy(), table[item].to_numpy(), confidence=weights)

    @classmethod
    def from_csr(cls, indptr: Any, indices: Any, num_items: int) -> "Interactions":
        """X from raw CSR arrays, which must already be sorted and distinct within rows."""
        indptr, indices = np.asarray(indptr), np.asarray(indices)
        for name, array in (("indptr", indptr), ("indices", indices)):
            if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
                raise TypeError(f"{name} must be a vector of integers, not {array.dtype}")
        if len(indptr) < 2 or indptr[0] != 0 or indptr[-1] != len(indices):
            raise ValueError(f"indptr must run from 0 to nnz = {len(indices)}, one entry a row + 1")
        if (np.diff(indptr) < 0).any():
            raise ValueError(f"indptr falls at row {int(np.argmax(np.diff(indptr) < 0))}")
        outside = (indices < 0) | (indices >= num_items)
        if outside.any():
            raise ValueError(f"item {indices[outside][0]} is outside range({num_items})")
        rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        falls = (np.diff(indices) <= 0) & (np.diff(rows) == 0)
        if falls.any():
            row = rows[:-1][falls][0]
            raise ValueError(f"row {row} is unsorted or repeats an item: use from_pairs, it sorts")
        return _from_coo(rows, indices, (len(indptr) - 1, num_items), None)


def _check_ids(kind: str, ids: Any) -> np.ndarray:
    ids = np.array(ids, object) if isinstance(ids, list | tuple) else np.asarray(ids)
    if ids.ndim != 1:
        raise ValueError(f"{kind} ids have shape {ids.shape}; they must be one vector")
    if np.issubdtype(ids.dtype, np.floating) or ids.dtype == bool:
        shown = ids[0] if len(ids) else ids.dtype
        raise TypeError(f"{kind} id {shown!r} is {ids.dtype}: cast ids to integers or strings")
    if ids.dtype == object:
        bad = [x for x in ids if not isinstance(x, str | int | np.integer) or isinstance(x, bool)]
        if bad:
            kind_found = type(bad[0]).__name__
            raise TypeError(
                f"{kind} id {bad[0]!r} is {kind_found}: cast ids to integers or strings"
            )
        kinds = {isinstance(x, str) for x in ids}
        if len(kinds) > 1:
            raise TypeError(f"{kind} ids mix strings and integers: make them one kind")
        ids = ids.astype(str if kinds == {True} else np.int64)
    return ids


def _check_values(values, rows, cols, binary: bool) -> None:
    for wrong, why in (
        (~np.isfinite(values), "is not finite: drop or repair it"),
        (values < 0, f"is negative: {FIX_BINARY}"),
        (
            (values != 0) & (values != 1) if binary else np.zeros(0, bool),
            f"is not 0 or 1: {FIX_BINARY}",
        ),
    ):
        if wrong.any():
            at = int(np.argmax(wrong))
            raise ValueError(f"value {values[at]} of user {rows[at]}, item {cols[at]} {why}")


def _from_coo(rows, cols, shape, weights, user_ids=None, item_ids=None) -> Interactions:
    """Sort, merge repeated pairs, and say once what was found."""
    import scipy.sparse

    m, n = shape
    if m < 1 or n < 1 or len(rows) == 0:
        raise ValueError(f"X is empty ({m} × {n}, {len(rows)} positives): nothing to learn from")
    if len(rows) >= 2**31 or m >= 2**31 or n >= 2**31:
        raise ValueError(f"X is {m} × {n} with {len(rows)} positives; int32 indices hold 2**31")
    ones = np.ones(len(rows)) if weights is None else weights
    csr = scipy.sparse.coo_array((ones, (rows, cols)), shape=(m, n)).tocsr()  # sums repeats
    csr.sort_indices()
    lengths = np.diff(csr.indptr)
    notes = [
        (len(rows) - csr.nnz, "repeated pairs merged"),
        (int((lengths == 0).sum()), "users without a positive (kept, contribute nothing)"),
        (int((lengths == n).sum()), "users with every item positive (kept, contribute nothing)"),
    ]
    found = "; ".join(f"{count} {what}" for count, what in notes if count)
    if found:
        warnings.warn(f"interactions {m} × {n}: {found}", stacklevel=4)
    confidence = None if weights is None else csr.data
    return _build(csr.indptr, csr.indices, confidence, n, user_ids, item_ids)


def _from_sorted_csr(csr, like: Interactions, user_ids, item_ids) -> Interactions:
    csr.sort_indices()
    confidence = None if like.confidence is None else csr.data
    return _build(csr.indptr, csr.indices, confidence, csr.shape[1], user_ids, item_ids)


def _build(indptr, indices, confidence, num_items, user_ids, item_ids) -> Interactions:
    return Interactions(
        host.ints(indptr),
        host.ints(indices),
        None if confidence is None else host.floats(confidence),
        int(num_items),
        int(np.diff(indptr).max()).bit_length(),
        user_ids,
        item_ids,
    )
