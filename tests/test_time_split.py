"""Training is the past and test the future: `splits.by_time` against a loop over rows, on frames of all kinds."""

import csv
import datetime as dt
import io
import re
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from command import fails, run, untouched_jax  # noqa: F401
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


# --- mfauc data split ---

SHOP = '''order;customer_id;sku;qty;price;note;created_at
1;007;a;1;4;plain;2024-05-03 10:00
2;007;b;2;4.50;"semi;colon";2024-05-01
3;ann;a;1;3;;2024-05-02T08:00:00
4;007;c;10;1e3;é ☕;2024-05-04
5;ann;b;1;2;"a ""quote""";2024-05-05
6;ann;a;1;5;again;2024-05-06
7;zoe;d;1;5;alone;2024-05-06
'''


def shop_rows() -> list[tuple]:
    """The rows of the file, as text."""
    return [tuple(row) for row in csv.reader(io.StringIO(SHOP), delimiter=";")]


def as_text(path) -> list[tuple]:
    with open(path, encoding="utf-8", newline="") as file:
        return [tuple(row) for row in csv.reader(file)]


@pytest.fixture
def shop(tmp_path):
    (tmp_path / "shop.csv").write_text(SHOP, encoding="utf-8")
    return tmp_path / "shop.csv"


def divide(source, *how, ending=".csv"):
    """What `mfauc data split` says, and its two files."""
    halves = source.parent / f"train{ending}", source.parent / f"test{ending}"
    ran = run("data", "split", source, "--train", halves[0], "--test", halves[1], *how)
    assert ran.code == 0, ran.err
    return ran.err, *halves


@pytest.mark.parametrize(
    ("how", "train", "test", "says"),
    [
        (("--after", "2024-05-04"), "123", "457", "--after 2024-05-04: left out 1 of 4 test rows"),
        (("--after", "2024-05-03T10:00"), "23", "1457", "left out 1 of 5 test rows"),
        (("--last", "1"), "12357", "4", "--last 1: left out 1 of 2 test rows"),
        (("--last", "2"), "237", "145", "--last 2: left out 1 of 4 test rows"),
        (("--last", "9"), "237", "145", "left out 1 of 4"),
    ],
)
def test_the_rows_of_a_file_are_divided_as_they_are_written(shop, how, train, test, says):
    header, *whole = shop_rows()
    said, *halves = divide(shop, *how)
    for path, orders in zip(halves, (train, test), strict=True):
        assert as_text(path) == [header, *(row for row in whole if row[0] in orders)]
        assert f"wrote {len(orders)} rows to {path}" in said
    assert says in said and "repeat a pair of training" in said


def test_newcomers_are_told_and_left_out_by_evaluate(shop, tmp_path):
    said, train, test = divide(shop, "--after", "2024-05-04")
    assert f"1 user and 2 items are only in {test}: `mfauc evaluate` leaves them out" in said
    said, train, test = divide(shop, "--after", "2024-05-03T10:00")
    assert run("fit", train, "--out", tmp_path / "m", "--rank", "2").code == 0
    ran = run("evaluate", tmp_path / "m", test)
    assert ran.code == 0, ran.err
    assert "left out 2 of 4, training does not know 1 user and 2 items" in ran.err


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_a_split_file_fits_and_evaluates(tmp_path, ending):
    rng = np.random.default_rng(1)
    users, items = np.nonzero(rng.random((20, 9)) < 0.6)
    log = pl.DataFrame(
        {
            "visitor": [f"v{u}" for u in users],
            "sku": items,
            "seconds": rng.permutation(len(users)),
            "when": [
                dt.datetime(2024, 1, 1) + dt.timedelta(hours=int(h))
                for h in rng.permutation(len(users))
            ],
        }
    )
    log.write_parquet(tmp_path / "log.parquet")
    _, train, test = divide(tmp_path / "log.parquet", "--last", "1", ending=ending)
    expected = splits.by_time(log, last=1)
    for path, frame in zip((train, test), expected, strict=True):
        found = (
            pl.read_parquet(path)
            if ending == ".parquet"
            else pl.read_csv(path, try_parse_dates=True)
        )
        assert found.rows() == frame.rows() and found.columns == log.columns
    assert run("fit", train, "--out", tmp_path / "m", "--rank", "2").code == 0
    assert run("evaluate", tmp_path / "m", test).code == 0
    _, train, test = divide(
        tmp_path / "log.parquet", "--after", "20", "--time_column", "seconds", ending=ending
    )
    found = pl.read_parquet(train) if ending == ".parquet" else pl.read_csv(train)
    assert found["seconds"].to_list() == [s for s in log["seconds"].to_list() if s < 20]


def test_files_without_names_get_the_usual_ones(tmp_path):
    lines = ["1\t10\t5\t300", "1\t11\t4\t100", "2\t10\t2\t200", "2\t12\t5\t250", "2\t11\t5\t50"]
    (tmp_path / "u.data").write_text("\n".join(lines) + "\n")
    _, train, test = divide(tmp_path / "u.data", "--last", "1")
    assert pl.read_csv(train).columns == ["user", "item", "rating", "time"]
    assert pl.read_csv(test)["time"].to_list() == [300, 250]
    _, train, test = divide(tmp_path / "u.data", "--after", "250", "--min_rating", "4")
    assert pl.read_csv(train)["time"].to_list() == [100, 50]
    assert pl.read_csv(test)["time"].to_list() == [300, 250]
    said = fails(
        "data",
        "split",
        tmp_path / "u.data",
        "--train",
        train,
        "--test",
        test,
        "--after",
        "1970-02-01",
    )
    assert "--after '1970-02-01' is a date and column 'time' has numbers, from 50 to 300" in said
    assert "Unix seconds, 2678400" in said
    (tmp_path / "log.jsonl").write_text(
        '{"user": "a", "item": "x", "ts": 1, "k": [1]}\n{"user": "a", "item": "y", "ts": 2}\n'
    )
    _, train, test = divide(tmp_path / "log.jsonl", "--last", "1")
    assert as_text(train) == [("user", "item", "ts", "k"), ("a", "x", "1", "[1]")]
    assert as_text(test) == [("user", "item", "ts", "k"), ("a", "y", "2", "")]


def test_filters_choose_rows_before_the_split(tmp_path):
    rng = np.random.default_rng(2)
    table = [
        (f"u{u}", f"i{i}", str(r), str(t)) for u, i, r, t in rng.integers(0, (8, 8, 6, 99), (90, 4))
    ]
    text = "\n".join(map(",".join, [("user", "item", "rating", "time"), *table]))
    (tmp_path / "r.csv").write_text(text + "\n")
    said, train, test = divide(
        tmp_path / "r.csv",
        "--after",
        "60",
        "--min_rating",
        "2",
        "--user_min",
        "4",
        "--item_min",
        "3",
    )
    left = [row for row in table if int(row[2]) >= 2]
    while True:
        users = {u: len({r[1] for r in left if r[0] == u}) for u, *_ in left}
        items = {i: len({r[0] for r in left if r[1] == i}) for _, i, *_ in left}
        kept = [row for row in left if users[row[0]] >= 4 and items[row[1]] >= 3]
        if len(kept) == len(left):
            break
        left = kept
    assert 0 < len(left) < len(table)
    past = [row for row in left if int(row[3]) < 60]
    future = [row for row in left if int(row[3]) >= 60 and row[:2] not in {r[:2] for r in past}]
    assert as_text(train)[1:] == past and as_text(test)[1:] == future
    assert "rows with a rating below 2 left out" in said


def test_a_data_set_is_divided_by_time(tmp_path):
    (tmp_path / "ml-100k").mkdir()
    lines = [
        f"{u}\t{i}\t{5 if (u + i) % 3 else 1}\t{100 * u + i}"
        for u in range(1, 15)
        for i in range(1, 30)
    ]
    (tmp_path / "ml-100k" / "u.data").write_text("\n".join(lines) + "\n")
    named = ("data", "split", "--dataset", "ml-100k", "--data_dir", tmp_path, "--last", "1")
    halves = ("--train", tmp_path / "a.csv", "--test", tmp_path / "b.csv")
    assert run(*named, *halves).code == 0
    test = pl.read_csv(tmp_path / "b.csv")
    assert test["user"].to_list() == list(range(1, 15)) and (test["rating"] == 5).all()
    assert test["item"].to_list() == [29 if (u + 29) % 3 else 28 for u in range(1, 15)]
    assert "--time_column is for a file" in fails(*named, *halves, "--time_column", "time", code=2)


def test_the_same_file_twice_is_refused_before_anything_is_written(shop, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    plain, other = folder / "a.csv", folder / "b.csv"
    plain.write_text("old")
    (folder / "link.csv").symlink_to(plain)
    (folder / "dangling.csv").symlink_to(folder / "new.csv")
    (folder / "hard.csv").hardlink_to(plain)
    (tmp_path / "way").symlink_to(folder)
    (folder / "source.csv").symlink_to(shop)
    before = {path.name for path in folder.iterdir()}
    same = [
        (plain, plain),
        (plain, folder / ".." / "out" / "a.csv"),
        (plain, folder / "link.csv"),
        (folder / "link.csv", plain),
        (folder / "new.csv", folder / "dangling.csv"),
        (plain, tmp_path / "way" / "a.csv"),
        (folder / "c.csv", tmp_path / "way" / "c.csv"),
        (plain, folder / "hard.csv"),
    ]
    for how in (("--last", "1"), ("--per_user", "1")):
        for train, test in same:
            said = fails("data", "split", shop, "--train", train, "--test", test, *how, code=2)
            assert "are the same file" in said
        for train, test in ((shop, other), (other, shop), (other, folder / "source.csv")):
            said = fails("data", "split", shop, "--train", train, "--test", test, *how, code=2)
            assert "is the file that is split" in said
    pattern = str(tmp_path / "sh*.csv")
    said = fails("data", "split", pattern, "--train", shop, "--test", other, "--last", "1", code=2)
    assert "is the file that is split" in said
    assert {path.name for path in folder.iterdir()} == before and plain.read_text() == "old"
    assert shop.read_text(encoding="utf-8") == SHOP


def test_bad_splits_are_named(shop, tmp_path):
    def refused(*how, code=1):
        halves = ("--train", tmp_path / "a.csv", "--test", tmp_path / "b.csv")
        said = fails("data", "split", tmp_path / "shop.csv", *halves, *how, code=code)
        assert not (tmp_path / "a.csv").exists() and not (tmp_path / "b.csv").exists()
        return said

    assert "not allowed with" in refused("--last", "1", "--after", "2024-01-01", code=2)
    assert "not allowed with" in refused("--last", "1", "--per_user", "1", code=2)
    assert "is for --last or --after" in refused("--time_column", "created_at", code=2)
    assert "no column 'when' for --time_column" in refused("--last", "1", "--time_column", "when")
    assert "--after soon" in refused("--after", "soon").replace("'", "")
    assert "--after 2020-01-01 leaves no row to train" in refused("--after", "2020-01-01")
    assert "from 2024-05-01 00:00:00 to 2024-05-06 00:00:00" in refused("--after", "2030-01-01")
    assert "has dates" in refused("--after", "17")
    shop.write_text(
        SHOP.replace("2024-05-02T08:00:00", "some day").replace("2024-05-04", "never"),
        encoding="utf-8",
    )
    said = refused("--last", "1")
    assert "of 7 times 0 are missing and 2 unreadable ('some day' …)" in said
    assert "with --skip_bad" in said
    said, train, test = divide(shop, "--last", "1", "--skip_bad")
    assert "left out 2 bad rows of 7: 2 with no time" in said
    assert {row[0] for half in (train, test) for row in as_text(half)[1:]} == set("12567")
    train.rename(tmp_path / "c.csv"), test.rename(tmp_path / "d.csv")
    shop.write_text(SHOP.replace("2024-05-02T08:00:00", ""), encoding="utf-8")
    said = refused("--last", "1")
    assert "1 bad rows of 7, 1 with no time" in said and "--skip_bad" in said
    said, train, _ = divide(shop, "--last", "1", "--skip_bad")
    assert "left out 1 bad rows of 7" in said and "3" not in [row[0] for row in as_text(train)]
    shop.write_text("user,item\na,b\na,c\n")
    assert "no column that looks like times among user, item: pass --time_column" in refused(
        "--last", "1"
    )
    nested = pl.DataFrame({"user": [1, 1], "item": [1, 2], "time": [1, 2], "tags": [["x"], ["y"]]})
    nested.write_parquet(tmp_path / "nested.parquet")
    halves = ("--train", tmp_path / "a.csv", "--test", tmp_path / "b.csv", "--last", "1")
    assert "try .parquet" in fails("data", "split", tmp_path / "nested.parquet", *halves)
    _, train, _ = divide(tmp_path / "nested.parquet", "--last", "1", ending=".parquet")
    assert pl.read_parquet(train)["tags"].to_list() == [["x"]]
