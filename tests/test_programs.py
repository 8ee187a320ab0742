"""A process that lives for months keeps few compiled programs, whatever shapes come.

Programs are counted where XLA makes them, so that one made by an eager operation counts as well.
"""

import pathlib
import re
import threading

import jax
import numpy as np
import pytest
from toys import quiet

from mfauc_jax import MFAUC, Alternating, Interactions
from mfauc_jax._core import host, programs

COMPILED: list[str] = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, seconds, **rest: (
        COMPILED.append(event) if event == "/jax/core/compile/backend_compile_duration" else None
    )
)


@pytest.fixture(autouse=True)
def nothing_compiled():
    """Each test begins without programs: those of other tests would be forgotten in the middle of it."""
    programs.forget()


def compiled(call) -> int:
    """How many programs XLA makes during a call."""
    before = len(COMPILED)
    call()
    return len(COMPILED) - before


def fitted(rng, m=60, n=50, ids=False):
    dense = rng.random((m, n)) < 0.15
    dense[:, 0] |= ~dense.any(1)
    data = tuple(
        np.char.add(kind, axis.astype(str))
        for kind, axis in zip("ui", np.nonzero(dense), strict=True)
    )
    return MFAUC(rank=3).set_params(solver__iterations=2).fit(data if ids else quiet(dense))


@pytest.mark.filterwarnings("ignore:interactions")
def test_forty_nights_of_new_users_items_and_positives_compile_once():
    """Kills exact shapes anywhere in partial_fit: users, items, positives, tiles, fold-in, concatenation."""
    rng = np.random.default_rng(0)
    model, (m, n) = fitted(rng), (60, 50)

    def night():
        nonlocal m, n
        m, n = m + int(rng.integers(1, 4)), n + int(rng.integers(0, 3))
        rows = np.concatenate([np.repeat(np.arange(m - 3, m), 3), rng.integers(0, m, 8)])
        items = np.concatenate([rng.integers(0, n, len(rows) - 1), [n - 1]])
        model.partial_fit(Interactions.from_pairs(rows, items, shape=(m, n)))

    first = compiled(lambda: [night() for _ in range(5)])
    later = compiled(lambda: [night() for _ in range(35)])
    assert model.factors_.U.shape == (m, 3) and m > 100
    assert first <= 24 and later <= 1  # fold-in may meet another number of new users


def test_five_hundred_requests_compile_eight_programs():
    """n in 1 … 100 and batches of 1 … 64, with every filter: kills a shape that follows n, the users or a filter."""
    rng = np.random.default_rng(1)
    model = fitted(rng, 90, 300)
    deny = quiet(rng.random((90, 300)) < 0.1)

    def request():
        filters = [
            {},
            {"exclude_seen": False},
            {"filter_items": rng.integers(0, 300, int(rng.integers(1, 30)))},
            {"allow_items": rng.integers(0, 300, int(rng.integers(1, 99)))},
            {"filter_items": deny},
            {"allow_items": deny, "exclude_seen": False},
        ][int(rng.integers(6))]
        n, users = int(rng.integers(1, 101)), rng.integers(0, 90, int(rng.integers(1, 65)))
        items, _ = model.recommend(users, n, **filters)
        assert items.shape == (len(users), n)

    assert compiled(lambda: [request() for _ in range(500)]) <= 8


def test_other_requests_compile_few_programs():
    rng = np.random.default_rng(2)
    model = fitted(rng, 90, 300)
    seen = model.train_.to_scipy().toarray() > 0

    def request():
        item = rng.integers(0, 300, int(rng.integers(1, 17)))
        model.similar_items(item, int(rng.integers(1, 17)))
        model.predict(rng.integers(0, 90, len(item)), item)
        new = rng.random((int(rng.integers(1, 20)), 300)) < 0.1
        model.fold_in(quiet(new | (np.arange(300) == 0)[None, :]))
        model.evaluate(quiet((rng.random((90, 300)) < rng.uniform(0.01, 0.05)) & ~seen))

    assert compiled(lambda: [request() for _ in range(20)]) <= 20
    assert compiled(lambda: [request() for _ in range(20)]) <= 3


def test_a_larger_catalogue_shares_the_programs():
    rng = np.random.default_rng(3)
    fitted(rng, 70, 300).recommend([1, 2])
    larger = fitted(rng, 75, 320)
    assert compiled(lambda: larger.recommend([1, 2])) == 0


def test_padding_does_not_change_the_factors(monkeypatch):
    rng = np.random.default_rng(4)
    X = quiet(rng.random((40, 30)) < 0.2)
    model = MFAUC(rank=4, weighting="tanh", solver=Alternating(iterations=4))
    padded = model.with_params().fit(X).factors_
    for rows in ("user_rows", "item_rows"):
        monkeypatch.setattr(programs, rows, lambda count: count)
    for F, G in zip(padded, model.fit(X).factors_, strict=True):
        np.testing.assert_allclose(F, G, rtol=1e-10, atol=1e-12)


def test_a_function_forgets_its_programs_when_they_are_many():
    """Kills a guard that never evicts, one that evicts at every call, and one that evicts what it has just made."""
    double = programs.jit(lambda x: 2 * x, limit=3)
    for size in (*range(1, 9), *range(1, 9)):
        np.testing.assert_array_equal(double(np.ones(size)), np.full(size, 2.0))
        assert double._compiled._cache_size() <= 3
    assert double.made == 16
    assert compiled(lambda: [double(np.ones(size)) for size in (9, 9, 10, 10, 11, 11)]) == 3


def test_all_functions_together_keep_a_bounded_number_of_programs(monkeypatch):
    """Kills a bound per function only: many functions with a few programs each would fill the process."""
    monkeypatch.setattr(programs, "ALL", 5)
    functions = [programs.jit(lambda x, i=i: x + i) for i in range(4)]
    for size in range(1, 9):
        for i, function in enumerate(functions):
            np.testing.assert_array_equal(function(np.zeros(size)), np.full(size, i))
            assert sum(f._compiled._cache_size() for f in functions) <= 5


def test_a_full_function_inside_another_one_makes_room():
    inner = programs.jit(lambda x: x + 1, limit=1)
    outer = jax.jit(lambda x: inner(x) + inner(x[:2]))
    np.testing.assert_array_equal(outer(np.ones(3)[:2]), [4.0, 4.0])
    assert float(jax.grad(lambda x: inner(x) * inner(x[None])[0])(2.0)) == 6.0


def test_threads_may_make_and_forget_programs_at_the_same_time():
    total, wrong = programs.jit(lambda x: x.sum(), limit=2), []

    def work(offset):
        for size in range(1, 15):
            if float(total(np.ones(size + offset))) != size + offset:
                wrong.append(size)

    threads = [threading.Thread(target=work, args=(offset,)) for offset in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong and not any(thread.is_alive() for thread in threads)


def test_every_function_of_the_library_is_compiled_with_the_bound():
    root = pathlib.Path(programs.__file__).parents[1]
    found = {
        path.relative_to(root).as_posix(): len(
            re.findall(r"jax\.jit\b(?!`)", path.read_text("utf-8"))
        )
        for path in root.rglob("*.py")
    }
    assert {path: count for path, count in found.items() if count} == {
        "_core/programs.py": 1,
        "solvers/blockwise/solver.py": 1,  # of an optimiser's init, which is new in every fit
    }


def test_sizes_are_few_and_padding_is_an_eighth_at_most():
    for count in range(1, 5000):
        size = programs.rounded(count)
        assert count <= size <= 1.125 * count and programs.rounded(size) == size
        assert programs.power(count) < 2 * count or count == 1
        assert count <= programs.user_rows(count) < max(1.125 * count, count + 1024)
        assert count <= programs.item_rows(count) <= max(1024, count + 255, 1.125 * count)
    assert len({programs.rounded(count) for count in range(1000, 10_001)}) <= 28
    assert [programs.power(count, 4) for count in (0, 1, 2, 4, 5, 64, 65)] == [
        1,
        1,
        4,
        4,
        16,
        64,
        256,
    ]


def test_what_many_requests_read_is_padded_once_and_not_kept():
    V = host.floats(np.ones((5, 2)))
    padded = host.padded_once(V, 8)
    assert padded is host.padded_once(V, 8) and padded.shape == (8, 2) and not padded[5:].any()
    assert host.padded_once(V, 5) is V and (id(V), "8 rows") in host._REMEMBERED
    key = id(V), "8 rows"
    del V
    assert key not in host._REMEMBERED


@pytest.mark.parametrize("ids", [True, False])
def test_no_users_no_items_and_more_places_than_items(ids):
    model = fitted(np.random.default_rng(5), ids=ids)
    assert model.recommend([], 7).items.shape == model.recommend([], 7).scores.shape == (0, 7)
    assert model.recommend([], 7, unknown="popular").users.shape == (0,)
    assert model.similar_items([], 2**31)[0].shape == (0, 50)
    assert model.predict([], []).shape == (0,)
    user, item = ("u1", "i1") if ids else (1, 1)
    lengths, names = np.asarray(model.train_.row_lengths), model.train_.user_ids
    seen = lengths[1 if names is None else names.tolist().index(user)]
    items, scores = model.recommend(user, 2**31)
    assert items.shape == (50,) and (scores == -np.inf).sum() == seen
    near, cosine = model.similar_items(item, 2**31)
    assert near.shape == (50,) and (cosine == -np.inf).sum() == 1  # the item itself
