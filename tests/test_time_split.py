"""Training is the past and test the future: `splits.by_time` against a loop over rows, on frames of all kinds."""

import datetime as dt
import re
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mfauc_jax as mf
from mfauc_jax.data import splits, times

KINDS = {
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "arrow": pa.table,
    "lazy": lambda columns: pl.LazyFrame(columns),
}


def rows(frame) -> list[tuple]:
    """The rows of any frame, in order."""
    if isinstance(frame, pd.DataFrame):
        return list(frame.itertuples(index=False, name=None))
    frame = pl.from_arrow(frame) if isinstance(frame, pa.Table) else frame
    return frame.rows()


def quietly(frame, **rule):
    """(train, test, the repeats that the warning counts)."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        split = splits.by_time(frame, **rule)
    assert len(told) <= 1
    found = re.search(r"left out (\d+) of (\d+) test rows", str(told[0].message)) if told else None
    return split.train, split.test, int(found[1]) if found else 0


def expected(table: list[tuple], at=None, last=None) -> tuple[list, list, int]:
    """The same by a loop: rows are (user, item, time, note)."""
    later = []
    for user in {row[0] for row in table} if last else ():
        own = sorted(
            (row for row in table if row[0] == user), key=lambda r: (r[2], r[1], repr(r[3]))
        )
        later += own[max(1, len(own) - last) :]
    train, test, repeats = [], [], 0
    for row in table:
        is_later = row[2] >= at if last is None else row in later
        if is_later and last is not None:
            later.remove(row)
        (test if is_later else train).append(row)
    trained = {row[:2] for row in train}
    repeats = sum(row[:2] in trained for row in test)
    return train, [row for row in test if row[:2] not in trained], repeats


@st.composite
def tables(draw):
    """Rows in any order, with ties, repeated pairs and users with one row."""
    size = draw(st.integers(2, 24))
    user, item = st.sampled_from("abcde"), st.sampled_from(["x", "y", "z", "ü", "é"])
    cells = st.tuples(user, item, st.integers(-3, 3), st.integers(0, 10**6))
    return draw(st.lists(cells, min_size=size, max_size=size, unique_by=lambda row: row[3]))


def columns(table: list[tuple]) -> dict[str, list]:
    return dict(
        zip(("user", "item", "time", "note"), map(list, zip(*table, strict=True)), strict=True)
    )


@pytest.mark.parametrize("kind", ["pandas", "polars"])
@given(
    table=tables(),
    rule=st.one_of(
        st.tuples(st.just("at"), st.integers(-3, 3)), st.tuples(st.just("last"), st.integers(1, 3))
    ),
)
def test_by_time_is_a_loop_over_rows(kind, table, rule):
    train, test, repeats = expected(table, **dict([rule]))
    frame = KINDS[kind](columns(table))
    if not train or not test:
        with pytest.raises(ValueError, match="leaves no row to (train|test)"):
            splits.by_time(frame, **dict([rule]))
        return
    found_train, found_test, told = quietly(frame, **dict([rule]))
    assert (
        rows(found_train) == train
        if rule[0] == "at"
        else sorted(rows(found_train)) == sorted(train)
    )
    assert sorted(rows(found_test)) == sorted(test) and told == repeats
    assert type(found_train) is type(frame) is type(found_test)


@given(table=tables(), last=st.integers(1, 3), shuffled=st.randoms(use_true_random=False))
def test_the_order_of_the_rows_does_not_matter(table, last, shuffled):
    other = table.copy()
    shuffled.shuffle(other)
    answers = []
    for some in (table, other):
        try:
            train, test, told = quietly(pl.DataFrame(columns(some)), last=last)
            answers.append((sorted(rows(train)), sorted(rows(test)), told))
        except ValueError as error:
            answers.append(str(error))
    assert answers[0] == answers[1]


@given(table=tables(), last=st.integers(1, 3), at=st.integers(-3, 3))
def test_nothing_leaks(table, last, at):
    frame = pl.DataFrame(columns(table))
    for rule in ({"last": last}, {"at": at}):
        try:
            train, test, _ = quietly(frame, **rule)
        except ValueError:
            continue
        trained = rows(train)
        for user, item, time, _ in rows(test):
            assert (user, item) not in {row[:2] for row in trained}
            assert all(row[2] <= time for row in trained if row[0] == user)
            assert all(row[2] < at <= time for row in trained) or "last" in rule
        if "last" in rule:
            assert {row[0] for row in trained} == {row[0] for row in table}  # everybody trains
            assert all(sum(row[0] == user for row in rows(test)) <= last for user in "abcde")


@pytest.mark.parametrize("kind", KINDS)
def test_the_callers_kind_columns_types_and_index_stay(kind):
    given_columns = {
        "order_id": [9, 8, 7, 6],
        "sku": ["a", "b", "a", "c"],
        "customer_id": [2, 2, 1, 1],
        "price": [1.5, None, 2.5, 3.0],
        "created_at": [dt.datetime(2024, 5, day) for day in (3, 1, 2, 4)],
    }
    frame = KINDS[kind](given_columns)
    if kind == "pandas":
        frame.index = pd.Index([30, 10, 20, 40])
    train, test = splits.by_time(frame, at=dt.date(2024, 5, 3))
    assert [row[0] for row in rows(train)] == [8, 7] and [row[0] for row in rows(test)] == [9, 6]
    whole = frame.collect() if kind == "lazy" else frame
    for part in (train, test):
        assert type(part) is type(whole)
        if kind == "pandas":
            assert (part.dtypes == frame.dtypes).all()
        else:
            assert part.schema == whole.schema
    if kind == "pandas":
        assert test.index.tolist() == [30, 40]


NAIVE = [dt.datetime(2024, 5, 1, 10), dt.datetime(2024, 5, 2), dt.datetime(2024, 5, 3, 0, 0, 1)]
ZONE = dt.timezone(dt.timedelta(hours=2))
WRITTEN = {  # what a column may hold → the same three moments
    "datetime": NAIVE,
    "zoned": [time.replace(tzinfo=dt.UTC).astimezone(ZONE) for time in NAIVE],
    "iso": [str(time) for time in NAIVE],
    "T": [time.isoformat() for time in NAIVE],
    "Z": [time.isoformat() + "Z" for time in NAIVE],
    "offset": [time.replace(tzinfo=dt.UTC).astimezone(ZONE).isoformat() for time in NAIVE],
    "mixed precision": ["2024-05-01 10:00", "2024-05-02", "2024-05-03 00:00:01.000"],
}


@pytest.mark.parametrize(
    "at",
    [
        "2024-05-02",
        dt.date(2024, 5, 2),
        dt.datetime(2024, 5, 2),
        np.datetime64("2024-05-02"),
        pd.Timestamp("2024-05-02"),
        "2024-05-02T02:00+02:00",
        "2024-05-02 00:00:00",
    ],
    ids=repr,
)
@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
@pytest.mark.parametrize("written", WRITTEN)
def test_dates_are_understood_however_they_are_written(written, kind, at):
    frame = KINDS[kind]({"user": [1, 1, 1], "item": [1, 2, 3], "date": WRITTEN[written]})
    train, test = splits.by_time(frame, at=at)
    assert [row[1] for row in rows(train)] == [1] and [row[1] for row in rows(test)] == [2, 3]


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
@pytest.mark.parametrize(
    "values",
    [
        [1, 20, 300],
        [1.0, 20.5, 300.0],
        ["1", "20", "300"],  # as numbers, not as text, where 20 > 300
        ["1.5", "2e1", "300"],
        np.array([1, 20, 300], np.uint64),
        np.array([10**18 + 1, 10**18 + 2, 10**18 + 3]),  # beyond what a float tells apart
        [str(10**18 + i) for i in (1, 2, 3)],
    ],
    ids=repr,
)
def test_numbers_are_compared_exactly(values, kind):
    frame = KINDS[kind]({"user": [1, 1, 1], "item": [1, 2, 3], "ts": values})
    at = sorted(float(v) for v in values)[1] if float(values[2]) < 1e6 else int(values[1])
    for cut in (at, str(at)):
        train, test = splits.by_time(frame, at=cut)
        assert [row[1] for row in rows(train)] == [1] and [row[1] for row in rows(test)] == [2, 3]
    assert [row[1] for row in rows(splits.by_time(frame, last=1).test)] == [3]


def test_objects_and_categories_are_understood():
    dates = [dt.date(2024, 5, 1), dt.date(2024, 5, 3), dt.date(2024, 5, 2)]
    frame = pd.DataFrame({"user": list("aab"), "item": list("xyx"), "date": dates})
    assert splits.by_time(frame, at="2024-05-02").test.item.tolist() == ["y", "x"]
    frame = frame.astype({"user": "category", "item": "category"})
    frame["date"] = pd.Categorical([str(date) for date in dates])
    assert splits.by_time(frame, last=1).test.item.tolist() == ["y"]


@pytest.mark.parametrize(
    ("column", "says"),
    [
        ([1.0, None, float("nan"), 4.0], "of 4 times 2 are missing and 0 unreadable"),
        ([1, None, 3, 4], "of 4 times 1 are missing and 0 unreadable"),
        ([dt.datetime(2024, 1, 1), None, None, None], "of 4 times 3 are missing"),
        (["2024-05-01", "soon", "", "later"], r"1 are missing and 2 unreadable \('soon' …\)"),
        (["1", "2", "soon", "3"], r"0 are missing and 1 unreadable \('soon' …\)"),
        (["1", "2", None, "3"], "1 are missing and 0 unreadable"),
        (["01/05/2024", "2024-05-02", "2024-05-03", None], "1 are missing and 1 unreadable"),
        (
            ["2024-05-01", "2024-05-02", "2024-05-01T10:00Z", "2024-05-03"],
            "1 of 4 times have a time zone",
        ),
        ([float("inf"), 1.0, 2.0, 3.0], "1 are missing"),
        ([float("nan")] * 4, "4 are missing"),
        (["", "", "", ""], "4 are missing"),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_missing_and_unreadable_times_are_refused_with_their_count(kind, column, says):
    frame = KINDS[kind]({"user": [1, 1, 2, 2], "item": [1, 2, 1, 2], "time": column})
    for rule in ({"last": 1}, {"at": 2}):
        with pytest.raises(ValueError, match=says):
            splits.by_time(frame, **rule)


def frame(**changes):
    columns = {"user": [1, 1, 2], "item": [1, 2, 1], "time": [5, 6, 7]} | changes
    return pl.DataFrame({name: values for name, values in columns.items() if values is not None})


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: splits.by_time(frame()), ValueError, "either at= .* or last="),
        (lambda: splits.by_time(frame(), at=6, last=1), ValueError, "either at= .* or last="),
        (lambda: splits.by_time(frame(), last=0), ValueError, "last = 0 must be ≥ 1"),
        (
            lambda: splits.by_time(frame(), at=5),
            ValueError,
            "at = 5 leaves no row to train: 3 rows of 2 users, from 5 to 7",
        ),
        (lambda: splits.by_time(frame(), at=8), ValueError, "leaves no row to test"),
        (
            lambda: splits.by_time(frame(item=[1, 1, 1]), last=1),
            ValueError,
            "no row to test.* 1 repeat a pair",
        ),
        (
            lambda: splits.by_time(frame(), at="2024-05-01"),
            ValueError,
            "is a date and column 'time' has numbers, from 5 to 7: .* Unix seconds, 1714521600",
        ),
        (
            lambda: splits.by_time(frame(time=["2024-05-01"] * 3), at=5),
            ValueError,
            "has dates, from 2024-05-01 00:00:00 to",
        ),
        (
            lambda: splits.by_time(frame(), at="soon"),
            ValueError,
            "neither a number nor an ISO date",
        ),
        (lambda: splits.by_time(frame(), at=float("nan")), ValueError, "not finite"),
        (lambda: splits.by_time(frame(), at=True), TypeError, "must be a number, a date"),
        (lambda: splits.by_time(frame(), at=[5]), TypeError, "must be a number, a date"),
        (lambda: splits.by_time(frame(time=[True, False, True]), at=5), TypeError, "is Boolean"),
        (
            lambda: splits.by_time(frame(time=None), at=5),
            ValueError,
            "no column that looks like times",
        ),
        (lambda: splits.by_time(frame(), at=5, time="when"), ValueError, "no column 'when'"),
        (lambda: splits.by_time(frame(date=[1, 2, 3]), at=5), ValueError, "time and date"),
        (
            lambda: splits.by_time(frame(user=None), at=5),
            ValueError,
            "no column that looks like user ids",
        ),
        (
            lambda: splits.by_time(frame(user=[1.5, 1.5, 2.0]), at=6),
            TypeError,
            "user ids is Float64",
        ),
        (
            lambda: splits.by_time(frame(item=["a", None, None]), at=6),
            ValueError,
            "2 missing item ids",
        ),
        (lambda: splits.by_time(frame().head(0), at=6), ValueError, "no rows"),
        (lambda: splits.by_time(([1], [2]), at=6), TypeError, "not tuple"),
        (
            lambda: splits.by_time(mf.Interactions.of(np.eye(3)), at=6),
            TypeError,
            "use leave_last_out",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:interactions")
def test_bad_input_is_named(call, error, says):
    with pytest.raises(error, match=says):
        call()


def test_columns_may_be_named():
    odd = pl.DataFrame(
        {"a": [1, 1], "b": ["x", "y"], "c": ["2024-01-02", "2024-01-01"], "time": [1, 2]}
    )
    train, test = splits.by_time(odd, last=1, time="c", user="a", item="b")
    assert train["b"].to_list() == ["y"] and test["b"].to_list() == ["x"]


def test_both_halves_fit_and_evaluate():
    rng = np.random.default_rng(0)
    liked = rng.random((30, 12)) < 0.5
    users, items = np.nonzero(liked)
    log = pl.DataFrame({"user": users, "item": items, "time": rng.permutation(len(users))})
    train, test = splits.by_time(log, last=1)
    found = mf.MFAUC(rank=2).fit(train).evaluate(test)
    assert found["users"] == test["user"].n_unique() == (liked.sum(1) > 1).sum()
    again = mf.evaluate(mf.MFAUC(rank=2).fit(train), train, test)
    assert again["auc"] == found["auc"]


@given(
    st.datetimes(
        dt.datetime(1, 1, 3), dt.datetime(9999, 12, 29), timezones=st.none() | st.just(ZONE)
    )
)
def test_one_moment_is_the_same_number_everywhere(moment):
    value, dated = times.moment(moment)
    plain = moment if moment.tzinfo is None else moment.astimezone(dt.UTC).replace(tzinfo=None)
    assert dated and times.EPOCH + dt.timedelta(microseconds=int(value)) == plain
    assert times.moment(moment.isoformat()) == (value, True)
    import narwhals.stable.v2 as nw

    column = nw.from_native(pl.DataFrame({"t": [moment]}))["t"]
    assert times.read(column).values.tolist() == [value]
