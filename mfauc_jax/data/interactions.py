"""Interactions: the positives X, as a CSR matrix with sorted rows, from whatever kind of data they come in."""

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from mfauc_jax._core import forks, host
from mfauc_jax.data import reading, validation

# scipy.sparse and narwhals are imported with the first matrix or frame, which keeps our import quick
if TYPE_CHECKING:
    import scipy.sparse

    from mfauc_jax.data.pairs import Pairs


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True, eq=False)
class Interactions:
    """The positives ω_i of every user, as a pytree of CSR arrays.

    `user_ids[i]` and `item_ids[j]` are the caller's ids of row i and column j, or None if the caller used
    positions. They stay on the host: a pass through `jit` or `tree.map` drops them.

    Attributes:
        indptr: ω_i is `indices[indptr[i]:indptr[i + 1]]`, [m + 1].
        indices: items, sorted and distinct within a row, [nnz].
        confidence: weight of each positive within its row's g, [nnz]; None: all positives of a row count alike.
        num_items: n.
        row_bits: number of steps of a binary search in a row; 2**row_bits exceeds the length of the longest row.
        dislikes: items that users rejected, over the same rows and columns, none of them a positive (`data.dislikes`).
    """

    indptr: Int[Array, "m_plus_1"]
    indices: Int[Array, "nnz"]
    confidence: Float[Array, "nnz"] | None = None
    num_items: int = 0
    row_bits: int = 31
    user_ids: np.ndarray | None = None
    item_ids: np.ndarray | None = None
    dislikes: "Interactions | None" = None

    @property
    def num_users(self) -> int:
        """The number of users, m."""
        return self.indptr.shape[0] - 1

    @property
    def nnz(self) -> int:
        """The number of positives, |ω|."""
        return self.indices.shape[0]

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n): the numbers of users and items."""
        return self.num_users, self.num_items

    @property
    def row_lengths(self) -> Int[Array, "m"]:
        """N_i = |ω_i|: the number of positives of each user."""
        if not isinstance(self.indptr, Tracer):
            return host.ints(np.diff(np.asarray(self.indptr)))
        return self.indptr[1:] - self.indptr[:-1]

    @property
    def rows(self) -> Int[Array, "nnz"]:
        """The user of each positive."""
        if not isinstance(self.indptr, Tracer):
            return host.ints(self.on_host()[0])
        users = jnp.arange(self.num_users, dtype=self.indices.dtype)
        return jnp.repeat(users, self.row_lengths, total_repeat_length=self.nnz)

    def on_host(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """`rows`, `indices` and `row_lengths` as NumPy arrays; nothing is compiled."""
        lengths = np.diff(np.asarray(self.indptr))
        return np.repeat(np.arange(len(lengths)), lengths), np.asarray(self.indices), lengths

    def tree_flatten(self):
        """Arrays are leaves and sizes are static; external ids are dropped."""
        arrays = self.indptr, self.indices, self.confidence, self.dislikes
        return arrays, (self.num_items, self.row_bits)

    @classmethod
    def tree_unflatten(cls, aux, leaves):
        """The inverse of `tree_flatten`, without the ids."""
        return cls(*leaves[:3], *aux, dislikes=leaves[3])

    def __repr__(self) -> str:
        ids = "" if self.user_ids is None else ", with external ids"
        ids = ids if self.dislikes is None else f", {self.dislikes.nnz} dislikes{ids}"
        return f"Interactions({self.num_users} × {self.num_items}, {self.nnz} positives{ids})"

    def to_scipy(self) -> "scipy.sparse.csr_array":
        """X as a scipy CSR array of ones (or of confidences)."""
        import scipy.sparse

        data = np.ones(self.nnz, np.float32) if self.confidence is None else self.confidence
        arrays = np.asarray(data), np.asarray(self.indices), np.asarray(self.indptr)
        return scipy.sparse.csr_array(arrays, shape=self.shape)

    def transpose(self) -> "Interactions":
        """Xᵀ: the users of every item, sorted; without dislikes."""
        return _from_sorted_csr(self.to_scipy().T.tocsr(), self, self.item_ids, self.user_ids)

    def take(self, users: np.ndarray) -> "Interactions":
        """The rows `users` of X, in the given order."""
        ids = None if self.user_ids is None else self.user_ids[users]
        taken = _from_sorted_csr(self.to_scipy()[users], self, ids, self.item_ids)
        rejected = None if self.dislikes is None else self.dislikes.take(users)
        return taken if rejected is None else dataclasses.replace(taken, dislikes=rejected)

    @classmethod
    def of(cls, data: Any, *, confidence: bool = False) -> "Interactions":
        """X from any supported kind of data.

        Args:
            data: Interactions, a scipy sparse or dense 0/1 matrix (users × items), a pair of arrays
                (users, items) of external ids, or a pandas, polars or arrow frame, whose columns are found
                by name as in `from_frame`.
            confidence: read the values of a matrix as weights on the positives.
        """
        forks.check()
        if isinstance(data, Interactions):
            return data
        import scipy.sparse

        from mfauc_jax.data import frames

        if scipy.sparse.issparse(data) or (isinstance(data, np.ndarray) and data.ndim == 2):
            return cls.from_scipy(data, confidence=confidence)
        is_pair = isinstance(data, tuple | list) and len(data) == 2
        if confidence and (is_pair or frames.is_frame(data)):
            raise ValueError(
                "confidence=True reads the values of a matrix: with ids use Interactions.from_pairs("
                'users, items, confidence=weights) or Interactions.from_frame(df, confidence="column")'
            )
        if is_pair:
            return cls.from_pairs(*data)
        if frames.is_frame(data):
            return cls.from_frame(data)
        raise TypeError(
            f"cannot read interactions from {type(data).__name__}: pass a scipy sparse matrix "
            "(users × items), a tuple (users, items), or a frame with columns user and item"
        )

    @classmethod
    def from_scipy(cls, matrix: Any, *, confidence: bool = False) -> "Interactions":
        """X from a users × items matrix of zeros and ones, sparse or dense; the ids are positions.

        With `confidence` the values are weights > 0 on the positives.
        """
        import scipy.sparse

        if getattr(matrix, "ndim", 2) != 2:
            raise ValueError(f"X has {matrix.ndim} axes; it must be users × items")
        coo = scipy.sparse.coo_array(matrix)
        values = coo.data.astype(np.float64)
        validation.values(values, coo.row, coo.col, binary=not confidence)
        keep = values != 0
        weights = values[keep] if confidence else None
        return _from_coo(coo.row[keep], coo.col[keep], coo.shape, weights)

    @classmethod
    def from_pairs(
        cls, users: Any, items: Any, *, shape: tuple[int, int] | None = None, confidence: Any = None
    ) -> "Interactions":
        """X from one (user, item) pair per positive.

        Args:
            users: one id per pair, integers or strings.
            items: the same for items.
            shape: (m, n) says that ids are positions in range(m) and range(n). Without it they are external
                ids: rows and columns follow their sorted order, and `recommend` returns them.
            confidence: weight of each pair, > 0.
        """
        users, items = validation.ids("user", users), validation.ids("item", items)
        if users.shape != items.shape:
            raise ValueError(
                f"{len(users)} users but {len(items)} items: give one of each per pair"
            )
        weights = None
        if confidence is not None:
            weights = np.asarray(confidence, np.float64)
            if weights.shape != users.shape:
                raise ValueError(
                    f"{weights.shape[0]} confidences for {len(users)} pairs: give one per pair"
                )
            validation.values(weights, users, items, binary=False)
            if not weights.all():
                first = int(np.argmin(weights))
                raise ValueError(
                    f"confidence of user {users[first]}, item {items[first]} is 0: it must be > 0"
                )
        if shape is None:
            user_ids, users = np.unique(users, return_inverse=True)
            item_ids, items = np.unique(items, return_inverse=True)
            return _from_coo(
                users, items, (len(user_ids), len(item_ids)), weights, user_ids, item_ids
            )
        for kind, ids, size in (("user", users, shape[0]), ("item", items, shape[1])):
            if not np.issubdtype(ids.dtype, np.integer):
                raise TypeError(
                    f"{kind} {ids[0]!r} is not a position: leave out shape= to give ids"
                )
            bad = (ids < 0) | (ids >= size)
            if bad.any():
                raise ValueError(f"{kind} {ids[bad][0]} is outside range({size})")
        return _from_coo(users, items, shape, weights)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        user: str | None = None,
        item: str | None = None,
        rating: str | None = None,
        min_rating: float | None = None,
        confidence: str | None = None,
        skip_bad: bool = False,
    ) -> "Interactions":
        """X from a pandas, polars or arrow frame with one row per positive.

        The columns and the number of rows that were read go to the log `mfauc_jax`. One warning lists what deserves
        attention: a rating that is not used, repeated pairs, rows left out.

        Args:
            frame: with a column of users and one of items, integers or text; further columns do not matter.
            user: name of the column of users; None: recognised by its name (user_id, customer, …). If no column or
                several columns match, a ValueError shows the call to write.
            item: the same for items (item_id, movieId, sku, …).
            rating: the same for ratings.
            min_rating: leave out rows with lower ratings; None: every row counts.
            confidence: name of a column of weights > 0, such as a quantity; those of repeated pairs are added.
            skip_bad: leave out rows with a missing id, rating or confidence instead of raising.
        """
        from mfauc_jax.data import frames

        pairs, found = frames.read(
            frame,
            user=user,
            item=item,
            rating=rating,
            min_rating=min_rating,
            confidence=confidence,
            skip_bad=skip_bad,
        )
        X = gathered(pairs)
        found.notes += useless(X)
        found.tell(*X.shape, X.nnz)
        return X

    @classmethod
    def from_csr(cls, indptr: Any, indices: Any, num_items: int) -> "Interactions":
        """X from raw CSR arrays, which must already be sorted and distinct within rows."""
        rows, indices, m = validation.csr(indptr, indices, num_items)
        return _from_coo(rows, indices, (m, num_items), None)


def _from_coo(rows, cols, shape, weights, user_ids=None, item_ids=None) -> Interactions:
    """Sort, merge repeated pairs, and warn once about them and about users without a pair."""
    X = merged(rows, cols, shape, weights, user_ids, item_ids)
    repeats = len(rows) - X.nnz
    notes = [f"{repeats} repeated pairs merged"] if repeats else []
    reading.warn(f"interactions {shape[0]} × {shape[1]}", notes + useless(X))
    return X


def merged(rows, cols, shape, weights, user_ids=None, item_ids=None) -> Interactions:
    """X from positions that were checked before; repeated pairs are merged, and nothing is told."""
    import scipy.sparse

    m, n = shape
    validation.size(m, n, len(rows))
    ones = np.ones(len(rows)) if weights is None else weights
    csr = scipy.sparse.coo_array((ones, (rows, cols)), shape=(m, n)).tocsr()  # sums repeats
    csr.sort_indices()
    confidence = None if weights is None else csr.data
    return built(csr.indptr, csr.indices, confidence, n, user_ids, item_ids)


def gathered(pairs: "Pairs") -> Interactions:
    """X from distinct pairs, which are in the order of its rows, with their ids."""
    m, n = len(pairs.user_ids), len(pairs.item_ids)
    validation.size(m, n, len(pairs.users))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(pairs.users, minlength=m))])
    return built(indptr, pairs.items, pairs.confidence, n, pairs.user_ids, pairs.item_ids)


def useless(X: Interactions) -> list[str]:
    """Notes about users from whom nothing can be learned: those without a positive, or with every item."""
    lengths = np.diff(np.asarray(X.indptr))
    full, empty = int((lengths == X.num_items).sum()), int((lengths == 0).sum())
    over = reading.OVER_ANOTHER.get()  # a catalogue that is known already
    full, empty = 0 if over else full, 0 if over == "dislikes" else empty
    counts = {"without a positive": empty, "with every item positive": full}
    return [f"{c} users {what} (kept, contribute nothing)" for what, c in counts.items() if c]


def _from_sorted_csr(csr, like: Interactions, user_ids, item_ids) -> Interactions:
    csr.sort_indices()
    confidence = None if like.confidence is None else csr.data
    return built(csr.indptr, csr.indices, confidence, csr.shape[1], user_ids, item_ids)


def built(indptr, indices, confidence, num_items, user_ids, item_ids) -> Interactions:
    """X from CSR arrays that were checked before."""
    return Interactions(
        host.ints(indptr),
        host.ints(indices),
        None if confidence is None else host.floats(confidence),
        int(num_items),
        int(np.diff(indptr).max()).bit_length(),
        *(user_ids, item_ids),
    )
