"""The paper's synthetic matrices, power-law matrices of any size, and a world with features of items.

`synthetic1`, `synthetic1_table` and `power_law` draw from numpy's PCG64 seeded by the key
(`splits.generator`); `synthetic2` is one fixed matrix, from numpy's legacy generator.
"""

from typing import TYPE_CHECKING, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from mfauc_jax.data.interactions import Interactions
from mfauc_jax.data.splits import generator

if TYPE_CHECKING:
    import polars as pl

CHUNK = 2**21  # positives drawn at once by `power_law`
TASTE = 0.1  # Dirichlet concentration of `power_law`: a small one gives most users one taste
REDRAWS = 20  # rounds by preference before `power_law` fills a row with uniform items


def synthetic1(
    key: Key[Array, ""],
    num_users: int = 500,
    num_items: int = 200,
    rank: int = 8,
    *,
    relevant: float = 0.1,
    noise: int = 5,
    user_min: int = 10,
) -> Interactions:
    """Synthetic1 as in the paper's text and its ROC and timing figures: t_i = .1.

    Z = U diag(s) Vᵀ with U, V from the QR of uniform matrices and s ~ U[0, 1]. Item j is relevant
    to user i if Z_ij reaches the 1 - t_i quantile of row i over n columns drawn with replacement
    and shared by all users. Then noise·m uniform positions (overlaps allowed) become relevant,
    and users below `user_min` are dropped. 500 × 200, 12,550 ± 540 positives over 200 draws
    (the authors' draw: 12,973).
    """
    t = np.full(num_users, float(relevant))
    return _synthetic1(generator(key), t, num_items, rank, noise=noise, user_min=user_min)


def synthetic1_table(
    key: Key[Array, ""],
    num_users: int = 500,
    num_items: int = 200,
    rank: int = 8,
    *,
    relevant: float = 0.2,
    spread: float = 0.2,
    noise: int = 5,
    user_min: int = 10,
) -> Interactions:
    """Synthetic1 as in the paper's ranking table: t_i ~ N(.2, .2²) clipped to [0, 1].

    Otherwise as `synthetic1`. Users with a small t_i fall below `user_min`, so (415 ± 8) × 200
    remain, with 23,400 ± 900 positives (the authors' draw: 413 × 200, 23,090).
    """
    rng = generator(key)
    t = np.clip(rng.normal(relevant, spread, num_users), 0.0, 1.0)
    return _synthetic1(rng, t, num_items, rank, noise=noise, user_min=user_min)


def _synthetic1(
    rng: np.random.Generator,
    t: Float[np.ndarray, " m"],
    num_items: int,
    rank: int,
    *,
    noise: int,
    user_min: int,
) -> Interactions:
    m, n = len(t), num_items
    if not 1 <= rank <= min(m, n):
        raise ValueError(f"rank = {rank} must be between 1 and min(m, n) = {min(m, n)}")
    if (t < 0).any() or (t > 1).any():
        raise ValueError(f"relevant = {t[0]} must be a fraction in [0, 1]")
    U, V = np.linalg.qr(rng.random((m, rank)))[0], np.linalg.qr(rng.random((n, rank)))[0]
    Z = (U * rng.random(rank)) @ V.T  # [m, n]
    columns = np.sort(Z[:, rng.integers(n, size=n)], axis=1)
    place = (1 - t) * (n - 1)  # each row's own quantile, interpolated as np.quantile does
    low = np.floor(place).astype(int)
    at_low, at_high = columns[np.arange(m), low], columns[np.arange(m), np.minimum(low + 1, n - 1)]
    X = at_low + (place - low) * (at_high - at_low) <= Z.T
    X = X.T.copy()
    X.flat[rng.integers(m * n, size=noise * m)] = True
    return _drop_inactive_users(X, user_min)


def synthetic2() -> Interactions:
    """Synthetic2, equal to the authors' matrix in every bit: 573 × 300, 17,796 positives.

    Z = UVᵀ of rank 8, relevant where Z ≥ mean(Z). Pairs are drawn, the user and the item each
    with probability ∝ 1/x for x = ½, 1, 2, … in a shuffled order, and a relevant pair is marked,
    until a tenth of the 600 × 300 matrix is marked; users with fewer than 10 are dropped. The sha256 of
    `numpy.packbits(X)` is ab1af7c6d202b9d3….
    """
    m, n, rank, target = 600, 300, 8, 18_000  # .1 · 600 · 300
    rs = np.random.RandomState(21)  # the authors' stream
    U, V = np.linalg.qr(rs.rand(m, rank))[0], np.linalg.qr(rs.rand(n, rank))[0]
    Z = U @ V.T
    relevant = (np.mean(Z) <= Z).ravel()
    cdfs = []
    for size in (m, n):
        weight = 1.0 / np.concatenate([[0.5], np.arange(1.0, size)])
        weight /= weight.sum()
        rs.shuffle(weight)
        cdfs.append(np.cumsum(weight))
    marked = np.zeros(m * n, bool)
    while marked.sum() < target:
        draws = rs.rand(
            2**16, 2
        )  # a user and an item in turn, the same numbers as one rs.rand() each
        users, items = (np.searchsorted(cdf, u) for cdf, u in zip(cdfs, draws.T, strict=True))
        pairs = users * n + items
        first = np.sort(np.unique(pairs, return_index=True)[1])  # a repeated pair marks nothing
        new = pairs[first]
        new = new[relevant[new] & ~marked[new]]
        marked[new[: target - marked.sum()]] = True
    return _drop_inactive_users(marked.reshape(m, n), 10)


def _drop_inactive_users(X: Bool[np.ndarray, "m n"], user_min: int) -> Interactions:
    active = X.sum(1) >= user_min
    if not active.any():
        raise ValueError(f"no user has user_min = {user_min} positives: lower it")
    return Interactions.from_scipy(X[active])


def power_law(
    key: Key[Array, ""], num_users: int, num_items: int, nnz: int, rank: int = 8
) -> Interactions:
    """Exactly `nnz` positives from a rank-k preference, with very active users and popular items.

    P(j | i) = Σ_k π_ik B_kj with B_kj ∝ b_jk / (10 + r_j), where π_i and b_j are Dirichlet and
    r_j is item j's place in popularity: a mixture of k tastes over a Zipf catalogue. User i draws
    N_i ∝ place^-½ distinct items, at most n/2 and at least 10 when nnz ≥ 20 m (else fewer).
    No dense matrix is made: memory is O(nnz + k n + CHUNK).
    """
    m, n = num_users, num_items
    if min(m, n - 1, rank) < 1:
        raise ValueError(f"num_users = {m}, num_items = {n}, rank = {rank}: need ≥ 1, 2 and 1")
    if not m <= nnz <= m * (n // 2):
        raise ValueError(f"nnz = {nnz} must be between m = {m} and m·⌊n/2⌋ = {m * (n // 2)}")
    rng = generator(key)
    lengths = rng.permutation(_zipf_lengths(m, n, nnz))
    popularity = rng.permutation(1.0 / (10.0 + np.arange(n)))
    taste = np.cumsum(popularity * rng.dirichlet(np.full(rank, TASTE), n).T, axis=1)  # [k, n]
    taste = (
        np.arange(rank)[:, None] + taste / taste[:, -1:]
    ).ravel()  # k + cdf_k as one rising array
    ends = np.cumsum(lengths)
    cuts = np.searchsorted(ends, np.arange(CHUNK, nnz + CHUNK, CHUNK))
    chunks = np.split(lengths, np.unique(cuts[cuts < m]))
    indices = np.concatenate([_draw_rows(rng, chunk, taste, n) for chunk in chunks if len(chunk)])
    return Interactions(
        jnp.asarray(np.concatenate([[0], ends]), jnp.int32),
        jnp.asarray(indices),
        num_items=n,
        row_bits=int(lengths.max()).bit_length(),
    )


class WithFeatures(NamedTuple):
    """Positives, features of the items, and the truth that both were drawn from."""

    X: Interactions
    item_features: "pl.DataFrame"  # item, category, tags (a list), year
    scores: Float[
        np.ndarray, "m n"
    ]  # the true s_ij: user i draws item j with probability ∝ exp(s_ij)


def with_features(
    key: Key[Array, ""],
    num_users: int = 1500,
    num_items: int = 1000,
    rank: int = 6,
    *,
    informative: float = 0.6,
    strength: float = 2.0,
) -> WithFeatures:
    """Positives of which a known part follows from features of the items: a world with known truth.

    An item has one of 25 categories, one to four of 40 tags, and a year. Each category and tag has a Gaussian vector,
    and so has the slope of the year; their sum, in unit variance, is a_j. The item's own part d_j is Gaussian too, and
    v_j = √informative a_j + √(1 − informative) d_j. s_ij = strength u_i·v_j/√k + p_j, where the popularity p_j has the
    same two parts. User i draws 8 to 60 items without replacement, ∝ exp(s_ij).

    Args:
        key: for all draws.
        num_users: m.
        num_items: n, at least 100.
        rank: k of the truth.
        informative: the share of the variance of v_j that the features carry, in [0, 1].
        strength: the standard deviation of the taste in s_ij.
    """
    import polars as pl

    if num_items < 100 or num_users < 1:
        raise ValueError(f"{num_users} users × {num_items} items: need at least 1 × 100")
    if not 0 <= informative <= 1:
        raise ValueError(f"informative = {informative} must be in [0, 1]")
    rng = generator(key)
    m, n = num_users, num_items
    category, year = rng.integers(25, size=n), rng.normal(size=n)
    tagged = rng.random((n, 40)).argsort(1) < rng.integers(1, 5, size=n)[:, None]
    F = np.concatenate(
        [np.eye(25)[category], tagged / np.sqrt(tagged.sum(1, keepdims=True)), year[:, None]], 1
    )
    A = rng.normal(size=(F.shape[1], rank + 1))
    by_features = F @ A
    by_features = (by_features - by_features.mean(0)) / by_features.std(0)
    own = rng.normal(size=(n, rank + 1))
    V = np.sqrt(informative) * by_features + np.sqrt(1 - informative) * own
    U = rng.normal(size=(m, rank))
    scores = strength / np.sqrt(rank) * U @ V[:, :rank].T + V[:, rank]
    lengths = np.minimum(8 + rng.geometric(1 / 12, size=m), 60)
    order = np.argsort(-(scores + rng.gumbel(size=(m, n))), axis=1)
    drawn = np.arange(n)[None, :] < lengths[:, None]
    rows, places = np.nonzero(drawn)
    X = Interactions.from_pairs(rows, order[rows, places], shape=(m, n))
    frame = pl.DataFrame(
        {
            "item": np.arange(n),
            "category": [f"c{c}" for c in category],
            "tags": [[f"t{t}" for t in np.flatnonzero(row)] for row in tagged],
            "year": year,
        }
    )
    return WithFeatures(X, frame, scores)


def _zipf_lengths(m: int, n: int, nnz: int) -> Int[np.ndarray, " m"]:
    """N_i = clip(c / √rank) with c such that they sum to nnz."""
    weight = 1 / np.sqrt(np.arange(1.0, m + 1))
    least, most = max(1, min(10, nnz // (2 * m))), n // 2
    low, high = 0.0, most / weight[-1]
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if np.clip(middle * weight, least, most).sum() < nnz else (low, middle)
        )
    ends = np.rint(np.cumsum(np.clip(high * weight, least, most))).astype(np.int64)
    ends[-1] = nnz
    return np.diff(ends, prepend=0)


def _draw_rows(
    rng: np.random.Generator,
    lengths: Int[np.ndarray, " b"],
    taste: Float[np.ndarray, " kn"],
    n: int,
) -> Int[np.ndarray, " nnz"]:
    """Distinct sorted items for each row: draw, drop repeats, and draw again what is missing."""
    b, k = len(lengths), len(taste) // n
    mixture = np.cumsum(rng.dirichlet(np.full(k, TASTE), b), axis=1)[:, :-1].astype(np.float32)
    have, lacking, rounds = np.empty(0, np.int64), lengths, 0
    while lacking.any():
        rows = np.repeat(np.arange(b), lacking)
        if rounds < REDRAWS:
            topics = (mixture[rows] < rng.random(len(rows), np.float32)[:, None]).sum(1)
            place = np.searchsorted(taste, topics + rng.random(len(rows)), side="right")
            items = np.minimum(
                place - topics * n, n - 1
            )  # topics + u may round up to the next topic
        else:
            items = rng.integers(n, size=len(rows))
        new = np.unique(rows * n + items)
        place = np.searchsorted(have, new)
        is_new = np.append(have, -1)[place] != new
        have = np.sort(np.concatenate([have, new[is_new]]), kind="stable")  # merges two sorted runs
        lacking = lengths - np.bincount(have // n, minlength=b)
        rounds += 1
    return (have % n).astype(np.int32)
