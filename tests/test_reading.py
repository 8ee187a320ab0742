"""What is understood of frames and files as people have them: a table, with the line that says so.

Every case has the pairs that are read or the words of the error, the log record in full, and the warning in full.
"""

import bz2
import gzip
import io
import json
import logging
import lzma
import warnings
import zipfile
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from command import fails, no_fit, run, untouched_jax  # noqa: F401

from mfauc_jax import MFAUC, Interactions, data
from mfauc_jax.data import compressed, splits

LIKES = {("ann", "tea"), ("ann", "jam"), ("bob", "tea"), ("cy", "rye")}
USERS, ITEMS = ["ann", "ann", "bob", "cy"], ["tea", "jam", "tea", "rye"]
STARS, TIMES = [5, 2, 4, 3], [100_000_001, 100_000_002, 100_000_003, 100_000_004]
NUMBERS = {(1, 10), (1, 20), (2, 10), (3, 30)}
SIZES = "4 rows, 3 users × 3 items, 4 positives"
UNUSED = "every row counts as a positive, whatever its {}: {} to leave low ratings out"
FRAME_UNUSED = UNUSED.format("{}", "use Interactions.from_frame(df, min_rating=…)")
FILE_UNUSED = UNUSED.format("{}", "pass min_rating=…")


class Case(NamedTuple):
    """A frame, or the content of a file, and what is to be understood."""

    content: Any  # columns of a frame; text or bytes of a file
    says: str  # the log record after its source; of an error, a part of it
    pairs: set | None = LIKES  # None: an error
    warns: str | None = None  # the warning after its source
    options: Mapping[str, Any] = MappingProxyType({})
    name: str = "likes.csv"
    error: type[Exception] = ValueError


def understood(read) -> tuple[set, list[str], list[str], Interactions]:
    """The pairs, the log records and the warnings of a reading."""
    records: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("mfauc_jax")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            X = read()
    finally:
        log.removeHandler(handler)
        log.setLevel(logging.NOTSET)
    users, items = X.to_scipy().nonzero()
    pairs = set(zip(X.user_ids[users].tolist(), X.item_ids[items].tolist(), strict=True))
    return pairs, records, [str(w.message) for w in caught], X


def check(case: Case, source: str, read) -> Interactions | None:
    if case.pairs is None:
        with pytest.raises(case.error) as caught:
            read()
        assert case.says in str(caught.value)
        return None
    pairs, records, warned, X = understood(read)
    assert pairs == case.pairs
    assert records == [f"{source}: {case.says}"]
    assert warned == ([] if case.warns is None else [f"{source}: {case.warns}"])
    return X


# --- frames ---

FRAMES = {
    "user, item": Case({"user": USERS, "item": ITEMS}, f"user = user, item = item; {SIZES}"),
    "item first": Case(
        {"movieId": ITEMS, "userId": USERS}, f"user = userId, item = movieId; {SIZES}"
    ),
    "an order's id first": Case(
        {"order_id": [9, 8, 7, 6], "customer_id": USERS, "sku": ITEMS},
        f"user = customer_id, item = sku; {SIZES}",
    ),
    "a price and a country": Case(
        {"Visitor ID": USERS, "price": STARS, "Product-Code": ITEMS, "country": ITEMS},
        f"user = Visitor ID, item = Product-Code; {SIZES}",
    ),
    "Amazon": Case(
        {"reviewerID": USERS, "asin": ITEMS, "overall": STARS, "unixReviewTime": TIMES},
        f"user = reviewerID, item = asin; {SIZES}",
        warns=FRAME_UNUSED.format("overall"),
    ),
    "a session, where there is no user": Case(
        {"session_id": USERS, "article": ITEMS}, f"user = session_id, item = article; {SIZES}"
    ),
    "a user, where there is a session": Case(
        {"session_id": ITEMS, "member": USERS, "track_id": ITEMS},
        f"user = member, item = track_id; {SIZES}",
    ),
    "two kinds of user": Case(
        {"user_id": USERS, "customer_id": USERS, "sku": ITEMS},
        "2 columns that look like user ids, user_id and customer_id, among user_id, customer_id, sku: "
        'write Interactions.from_frame(df, user="…", item="sku")',
        None,
    ),
    "two kinds of user, one named": Case(
        {"user_id": ITEMS, "customer_id": USERS, "sku": ITEMS},
        f"user = customer_id, item = sku; {SIZES}",
        options={"user": "customer_id"},
    ),
    "a user and its exact name": Case(
        {"user": USERS, "user_id": USERS, "item": ITEMS}, "2 columns that look like user ids", None
    ),
    "two unknown names": Case(
        {"who": USERS, "what": ITEMS},
        "no column that looks like user ids among who, what: "
        'write Interactions.from_frame(df, user="…", item="…")',
        None,
    ),
    "unknown names, said": Case(
        {"what": ITEMS, "who": USERS},
        f"user = who, item = what; {SIZES}",
        options={"user": "who", "item": "what"},
    ),
    "a name that is not there": Case(
        {"user": USERS, "item": ITEMS},
        "the frame has no column 'nowhere' for rating=: it has user, item",
        None,
        options={"rating": "nowhere"},
    ),
    "one column for two": Case(
        {"user": USERS, "item": ITEMS},
        "column 'user' cannot be both item and user",
        None,
        options={"user": "user", "item": "user"},
    ),
    "a rating that is not used": Case(
        {"user": USERS, "item": ITEMS, "stars": STARS},
        f"user = user, item = item; {SIZES}",
        warns=FRAME_UNUSED.format("stars"),
    ),
    "a label that is not used": Case(
        {"user": USERS, "item": ITEMS, "clicked": [1, 0, 1, 0]},
        f"user = user, item = item; {SIZES}",
        warns=FRAME_UNUSED.format("clicked"),
    ),
    "a rating that is used": Case(
        {"user": USERS, "item": ITEMS, "stars": STARS},
        "user = user, item = item, rating = stars; 2 rows with a rating below 4 left out; "
        "4 rows, 2 users × 1 items, 2 positives",
        {("ann", "tea"), ("bob", "tea")},
        "1 users without a usable pair left out; 2 users with every item positive (kept, contribute nothing)",
        {"min_rating": 4},
    ),
    "two ratings, one wanted": Case(
        {"user": USERS, "item": ITEMS, "stars": STARS, "score": STARS},
        "2 columns that look like ratings, stars and score,",
        None,
        options={"min_rating": 4},
    ),
    "a minimum and no rating": Case(
        {"user": USERS, "item": ITEMS},
        'write Interactions.from_frame(df, user="user", item="item", rating="…")',
        None,
        options={"min_rating": 4},
    ),
    "a rating in words": Case(
        {"user": USERS, "item": ITEMS, "stars": list("abcd")},
        "column stars is String: a rating is a number",
        None,
        options={"min_rating": 4},
        error=TypeError,
    ),
    "a rating is missing": Case(
        {"user": USERS, "item": ITEMS, "stars": [5, None, 4, 3]},
        "1 bad rows of 4, 1 with no finite rating; the first is row 1, counted from 0: repair them, "
        "or use Interactions.from_frame(df, skip_bad=True) to leave them out",
        None,
        options={"min_rating": 3},
    ),
    "repeated pairs": Case(
        {"user": [*USERS, "ann"], "item": [*ITEMS, "tea"]},
        "user = user, item = item; 5 rows, 3 users × 3 items, 4 positives",
        warns="1 repeated pairs merged",
    ),
    "quantities": Case(
        {"user": [*USERS, "ann"], "item": [*ITEMS, "tea"], "quantity": [1, 2, 3, 4, 5]},
        "user = user, item = item, confidence = quantity; 5 rows, 3 users × 3 items, 4 positives",
        warns="1 repeated pairs merged, their confidences added",
        options={"confidence": "quantity"},
    ),
    "a quantity that was returned": Case(
        {"user": USERS, "item": ITEMS, "quantity": [1, -1, 3, 0]},
        "2 bad rows of 4, 2 with a confidence that is not > 0; the first is row 1",
        None,
        options={"confidence": "quantity"},
    ),
    "returned quantities left out": Case(
        {"user": USERS, "item": ITEMS, "quantity": [1.0, -1.0, 3.0, np.nan]},
        "user = user, item = item, confidence = quantity; 4 rows, 2 users × 1 items, 2 positives",
        {("ann", "tea"), ("bob", "tea")},
        "left out 2 bad rows of 4: 1 with no finite confidence, 1 with a confidence that is not > 0; "
        "1 users without a usable pair left out; 2 users with every item positive (kept, contribute nothing)",
        {"confidence": "quantity", "skip_bad": True},
    ),
    "ids are missing": Case(
        {"user": ["ann", None, "bob", ""], "item": ITEMS},
        "2 bad rows of 4, 2 with no user id; the first is row 1, counted from 0",
        None,
    ),
    "ids are missing and left out": Case(
        {"user": ["ann", None, "bob", " "], "item": ["tea", "jam", None, "rye"]},
        "user = user, item = item; 4 rows, 1 users × 1 items, 1 positives",
        {("ann", "tea")},
        "left out 3 bad rows of 4: 2 with no user id, 1 with no item id; 1 users without a usable pair left out; "
        "1 users with every item positive (kept, contribute nothing)",
        {"skip_bad": True},
    ),
    "integers with a gap": Case(
        {"user": [1, 1, 2, 3, None], "item": [10, 20, 10, 30, 10]},
        "user = user, item = item; 5 rows, 3 users × 3 items, 4 positives",
        NUMBERS,
        "left out 1 bad rows of 5: 1 with no user id",
        {"skip_bad": True},
    ),
    "fractions for ids": Case(
        {"user": [1.5, 2.0], "item": [1, 2]},
        "column user is Float64, such as 1.5: cast ids to integers or text",
        None,
        error=TypeError,
    ),
    "nan as text": Case(
        {"user": ["ann", "ann", "nan", "cy"], "item": ITEMS},
        f"user = user, item = item; {SIZES}",
        {("ann", "tea"), ("ann", "jam"), ("nan", "tea"), ("cy", "rye")},
        "user id 'nan': is it a missing value?",
    ),
    "numbers as text": Case(
        {"user": ["007", "7", "7.0", "+7"], "item": ITEMS},
        "user = user, item = item; 4 rows, 4 users × 3 items, 4 positives",
        {("007", "tea"), ("7", "jam"), ("7.0", "tea"), ("+7", "rye")},
    ),
    "integers as text": Case(
        {"user": ["1", "1", "2", "3"], "item": ITEMS},
        f"user = user, item = item; {SIZES}",
        {("1", "tea"), ("1", "jam"), ("2", "tea"), ("3", "rye")},
    ),
    "no rows": Case(
        {"user": [], "item": []}, "the frame has no ratings: nothing to learn from", None
    ),
}
KINDS = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.table, "lazy": pl.LazyFrame}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_is_understood_or_refused(name, kind):
    case = FRAMES[name]
    frame = KINDS[kind](case.content)
    X = check(case, "the frame", lambda: Interactions.from_frame(frame, **case.options))
    if "confidence" in case.options and X is not None:
        at = [(u, i) for u, i in zip(*(a.tolist() for a in X.to_scipy().nonzero()), strict=True)]
        weight = dict(zip(at, np.asarray(X.confidence).tolist(), strict=True))
        first = weight[X.user_ids.tolist().index("ann"), X.item_ids.tolist().index("tea")]
        assert first == (6.0 if name == "quantities" else 1.0)
    if not case.options:
        check(case, "the frame", lambda: Interactions.of(frame))


def test_a_frame_may_have_odd_columns():
    with pytest.raises(ValueError, match="a column name twice: user, user, item"):
        Interactions.of(pd.DataFrame([[1, 2, 3]], columns=["user", "user", "item"]))
    with pytest.raises(ValueError, match="looks like user ids among 0, 1: write"):
        Interactions.of(pd.DataFrame([[1, 2]]))
    X = Interactions.from_frame(pd.DataFrame([["x", 2], ["y", 3]]), user="0", item="1")
    assert X.user_ids.tolist() == ["x", "y"] and X.item_ids.tolist() == [2, 3]
    with pytest.raises(TypeError, match="user ids are int and str: make them all"):
        Interactions.of(pd.DataFrame({"user": [1, "a"], "item": [1, 2]}))
    with pytest.raises(TypeError, match="column user is Boolean"):
        Interactions.of(pl.DataFrame({"user": [True, False], "item": [1, 2]}))
    kept = pd.DataFrame(
        {"user": pd.Categorical([7, 8, 7]), "item": pd.Categorical(["a", "b", "c"])}
    )
    X = Interactions.of(kept)
    assert X.user_ids.tolist() == [7, 8] and X.item_ids.tolist() == ["a", "b", "c"]
    many = pl.DataFrame({f"c{j}": [j] for j in range(500)})
    with pytest.raises(ValueError, match=r"c29, … \(500 in all\)"):
        Interactions.of(many)


def test_fit_finds_columns_by_name_and_warns_at_the_callers_line():
    frame = pd.DataFrame({"sku": [*ITEMS, "tea"], "customer_id": [*USERS, "ann"]})
    seen = []

    def keep(model, X, validation=None, **options):
        seen.append(Interactions.of(X))
        return model

    with pytest.MonkeyPatch.context() as patch, pytest.warns(UserWarning, match="merged") as caught:
        patch.setattr(MFAUC, "fit", keep)
        MFAUC().fit(frame)
    assert seen[0].user_ids.tolist() == ["ann", "bob", "cy"]
    assert len(caught) == 1 and caught[0].filename == __file__


# --- files ---


def text(separator=",", header="user,item,stars", columns=(USERS, ITEMS, STARS), end="\n") -> str:
    lines = [header.replace(",", separator)] if header else []
    lines += [separator.join(map(str, row)) for row in zip(*columns, strict=True)]
    return end.join(lines) + end


def plain(separator=",", **more) -> str:
    return text(separator, **({"header": "user,item", "columns": (USERS, ITEMS)} | more))


def zipped(members: dict) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return made.getvalue()


def lines(*objects) -> str:
    return "\n".join(json.dumps(one) for one in objects) + "\n"


def parquet(frame: dict) -> bytes:
    made = io.BytesIO()
    pl.DataFrame(frame).write_parquet(made)
    return made.getvalue()


OBJECTS = [{"customer": u, "sku": i, "x": {"y": [1]}} for u, i in zip(USERS, ITEMS, strict=True)]
NAMED = f"user = user, item = item; {SIZES}"
BY_POSITION = "no header, so columns by position"
NUMBERED = [[1, 1, 2, 3], [10, 20, 10, 30]]
EUROPE = "customer;item;price\nann;tea;1,5\nann;jam;2,5\nbob;tea;1,5\ncy;rye;3,0\n"
FILES = {
    # delimiters
    "comma": Case(plain(), NAMED),
    "semicolon": Case(plain(";"), f"user = user, item = item; separated by semicolon; {SIZES}"),
    "tab": Case(plain("\t"), f"user = user, item = item; separated by tab; {SIZES}"),
    "pipe": Case(plain("|"), f"user = user, item = item; separated by pipe; {SIZES}"),
    "two colons": Case(
        plain("::"), f"user = user, item = item; separated by ::; {SIZES}", name="likes.txt"
    ),
    "commas in a tsv": Case(plain(), NAMED, name="likes.tsv"),
    "decimal commas": Case(
        EUROPE, f"user = customer, item = item; separated by semicolon; {SIZES}"
    ),
    "decimal commas, and one in the header": Case(
        EUROPE.replace("price", "price, EUR"),
        f"user = customer, item = item; separated by semicolon; {SIZES}",
    ),
    "semicolons, and a short line": Case(
        plain(";") + "dee\n", "line 6: 1 columns instead of 2 (user, item)", None
    ),
    "spaces, said": Case(
        plain(" "),
        f"user = user, item = item; separated by space; {SIZES}",
        options={"delimiter": "space"},
        name="likes.txt",
    ),
    "a mark of one's own": Case(
        plain("§"), f"user = user, item = item; separated by §; {SIZES}", options={"delimiter": "§"}
    ),
    "spaces": Case(plain(" "), "pass delimiter='…'", None, name="likes.txt"),
    "two that would do": Case(
        "1;2,3\n4;5,6\n", "may be separated by comma or semicolon: pass delimiter='comma'", None
    ),
    "a delimiter of nothing": Case(
        plain(), "delimiter='' cannot separate fields", None, options={"delimiter": ""}
    ),
    "a delimiter in quotes": Case(
        'user,item,note\nann,tea,"a, b; c"\nann,jam,""\nbob,tea,"say ""x"", y"\ncy,rye,\n', NAMED
    ),
    "a line break in quotes": Case(
        'user,item,note\nann,tea,"a\nb"\nann,jam,\nbob,tea,\ncy,rye,c\n', NAMED
    ),
    # headers
    "item first": Case(
        text(header="movieId,userId", columns=(ITEMS, USERS)),
        f"user = userId, item = movieId; {SIZES}",
    ),
    "an index of pandas": Case(text(header=",user,item", columns=(range(4), USERS, ITEMS)), NAMED),
    "no header, two columns": Case(
        text(header="", columns=NUMBERED),
        f"user = user, item = item; {BY_POSITION}; {SIZES}",
        NUMBERS,
    ),
    "no header, ratings": Case(
        text(header="", columns=(USERS, ITEMS, STARS)),
        f"user = user, item = item, rating = rating; {BY_POSITION}; {SIZES}",
        warns=FILE_UNUSED.format("rating"),
    ),
    "no header, ratings and times": Case(
        text("\t", "", (*NUMBERED, STARS, TIMES)),
        "user = user, item = item, rating = rating, time = time; no header, so columns by position; "
        "separated by tab; 1 rows with a rating below 3 left out; 4 rows, 3 users × 2 items, 3 positives",
        {(1, 10), (2, 10), (3, 30)},
        None,
        {"min_rating": 3},
        "mine.data",
    ),
    "no header, times": Case(
        text(header="", columns=(*NUMBERED, TIMES)),
        f"user = user, item = item, time = time; {BY_POSITION}; {SIZES}",
        NUMBERS,
    ),
    "no header, five columns": Case(
        text(header="", columns=(*NUMBERED, STARS, STARS, TIMES)),
        "no header and 5 columns, such as '1, 10, 5, 5, 100000001': pass columns='user,item,…'",
        None,
    ),
    "no header, times before ratings": Case(
        text(header="", columns=(*NUMBERED, TIMES, STARS)), "no header and 4 columns", None
    ),
    "no header, named columns": Case(
        text(header="", columns=(TIMES, NUMBERED[1], STARS, NUMBERED[0], STARS)),
        f"user = user, item = item, time = time; {SIZES}",
        NUMBERS,
        options={"columns": "time,item,-,user,-"},
    ),
    "a header, and named columns": Case(
        plain(), "line 1 is a header, so leave columns= out", None, options={"columns": "user,item"}
    ),
    "no header, only words": Case(
        text(header="", columns=(USERS, ITEMS)),
        "line 1, 'ann, tea', may be a header or a row: pass user= its name and item= its name if it is a header, "
        "columns='user,item,…' in the order of the file if it is a row",
        None,
    ),
    "only words, said": Case(
        text(header="", columns=(USERS, ITEMS)), NAMED, options={"columns": "user,item"}
    ),
    "unknown header over numbers": Case(
        text(header="a,b", columns=NUMBERED),
        "no column that looks like user ids among a, b: pass user= its name, or columns=",
        None,
    ),
    "unknown header, said": Case(
        text(header="what,who", columns=(ITEMS, USERS)),
        f"user = who, item = what; {SIZES}",
        options={"user": "who", "item": "what"},
    ),
    "a half-known header with a number": Case(
        "user,thing,2020\nann,tea,1\n", "may be a header or a row", None
    ),
    "a header of numbers by pandas": Case(
        text(header="0,1", columns=NUMBERED),
        f"user = user, item = item; {BY_POSITION}; 5 rows, 4 users × 4 items, 5 positives",
        NUMBERS | {(0, 1)},
        "line 1 is 0,1, taken for a row: is it a header of pandas?",
    ),
    "a rating that is nowhere": Case(
        text(),
        "no column 'nowhere' for rating=: it has user, item, stars",
        None,
        options={"rating": "nowhere"},
    ),
    "a rating that is nowhere, by position": Case(
        text("\t", "", (*NUMBERED, STARS, TIMES)),
        "no column 'nowhere' for rating=: its columns are user, item, rating, time, by position",
        None,
        options={"rating": "nowhere"},
        name="u.data",
    ),
    "a column of a file without a header": Case(
        text(header="", columns=NUMBERED),
        "no header with a column 'who', line 1 is '1, 10': pass columns=",
        None,
        options={"user": "who"},
    ),
    # values
    "a rating that is not used": Case(
        text(),
        f"user = user, item = item, rating = stars; {SIZES}",
        warns=FILE_UNUSED.format("stars"),
    ),
    "an unused rating in words": Case(
        text(header="user,item,feedback", columns=(USERS, ITEMS, list("abcd"))),
        NAMED,
        warns=FILE_UNUSED.format("feedback"),
    ),
    "an unused rating is missing": Case(
        text(columns=(USERS, ITEMS, [5, "", 4, 3])),
        f"user = user, item = item, rating = stars; {SIZES}",
        warns=FILE_UNUSED.format("stars"),
    ),
    "a used rating is missing": Case(
        text(columns=(USERS, ITEMS, [5, "", 4, 3])),
        "line 3: rating '' is not a finite number (skip_bad=True leaves it out)",
        None,
        options={"min_rating": 2},
    ),
    "a used rating is missing, left out": Case(
        text(columns=(USERS, ITEMS, [5, "", 4, 3])),
        "user = user, item = item, rating = stars; 4 rows, 3 users × 2 items, 3 positives",
        LIKES - {("ann", "jam")},
        "left out 1 bad rows of 4: 1 with no finite rating",
        {"min_rating": 2, "skip_bad": True},
    ),
    "an id is missing": Case(
        plain(columns=(["ann", "", "bob", "cy"], ITEMS)),
        "line 3: user is empty (skip_bad=True",
        None,
    ),
    "an id is missing, left out": Case(
        plain(columns=([*USERS, ""], [*ITEMS, "tea"])),
        "user = user, item = item; 5 rows, 3 users × 3 items, 4 positives",
        warns="left out 1 bad rows of 5: 1 with no user id",
        options={"skip_bad": True},
    ),
    "short and long lines, left out": Case(
        plain() + "dee\nann,rye,1,2\n",
        "user = user, item = item; 6 rows, 3 users × 3 items, 4 positives",
        warns="left out 2 lines of {} that cannot be read",
        options={"skip_bad": True},
    ),
    "quantities": Case(
        text(
            header="user,sku,Quantity", columns=([*USERS, "ann"], [*ITEMS, "tea"], [1, 2, 3, 4, 5])
        ),
        "user = user, item = sku, confidence = Quantity; 5 rows, 3 users × 3 items, 4 positives",
        warns="1 repeated pairs merged, their confidences added",
        options={"confidence": "Quantity"},
    ),
    "a quantity of 0": Case(
        text(columns=(USERS, ITEMS, [1, 0, 1, 1])),
        "1 bad rows of 4, 1 with a confidence that is not > 0; the first is row 1",
        None,
        options={"confidence": "stars"},
    ),
    "ratings as confidence, by position": Case(
        text("\t", "", (*NUMBERED, STARS, TIMES)),
        "user = column 1, item = column 2, confidence = column 3, time = column 4; " + SIZES,
        NUMBERS,
        options={"confidence": "rating"},
        name="u.data",
    ),
    "leading zeros": Case(
        plain(columns=(["007", "7", "07", "7"], ITEMS)),
        NAMED,
        {("007", "tea"), ("7", "jam"), ("07", "tea"), ("7", "rye")},
    ),
    "spaces around ids": Case(
        plain(columns=([" ann", "ann ", "bob", "cy"], ITEMS)),
        "user = user, item = item; 4 rows, 4 users × 3 items, 4 positives",
        {(" ann", "tea"), ("ann ", "jam"), ("bob", "tea"), ("cy", "rye")},
    ),
    "whole numbers with a point": Case(
        plain(columns=(["1.0", "1.0", "2.0", "3.0"], ITEMS)),
        NAMED,
        {("1.0", "tea"), ("1.0", "jam"), ("2.0", "tea"), ("3.0", "rye")},
        "user ids are written as '1.0': were they whole numbers?",
    ),
    # encodings and line ends
    "Windows lines": Case(plain(end="\r\n"), NAMED),
    "old Macintosh lines": Case(plain(end="\r"), NAMED),
    "no line end at the end": Case(plain().rstrip("\n"), NAMED),
    "blank lines at the end": Case(plain() + "\n\r\n\n", NAMED),
    "a byte order mark": Case(plain().encode("utf-8-sig"), NAMED),
    "UTF-16 of Excel": Case(
        plain("\t").encode("utf-16"), f"user = user, item = item; separated by tab; {SIZES}"
    ),
    "Latin-1": Case(
        plain(columns=(["zoë", *USERS[1:]], ITEMS)).encode("latin-1"),
        "line 2: byte 0xeb is not utf-8: pass encoding='latin-1', or whatever",
        None,
    ),
    "Latin-1, said": Case(
        plain(columns=(["zoë", *USERS[1:]], ITEMS)).encode("latin-1"),
        "user = user, item = item; 4 rows, 4 users × 3 items, 4 positives",
        {("zoë", "tea"), ("ann", "jam"), ("bob", "tea"), ("cy", "rye")},
        options={"encoding": "latin-1"},
    ),
    "an encoding of bytes": Case(
        plain().encode() + "é".encode(),
        "encoding 'hex' is unknown",
        None,
        options={"encoding": "hex"},
    ),
    # compressions and archives
    "gzip": Case(gzip.compress(plain().encode()), NAMED, name="likes.csv.gz"),
    "bzip2": Case(bz2.compress(plain().encode()), NAMED, name="likes.csv.bz2"),
    "xz": Case(lzma.compress(plain().encode()), NAMED, name="likes.csv.xz"),
    "zstandard": Case(
        pa.compress(plain().encode(), "zstd", asbytes=True), NAMED, name="likes.csv.zst"
    ),
    "zip of one": Case(
        zipped({"likes.csv": plain()}),
        f"user = user, item = item; member likes.csv; {SIZES}",
        name="likes.zip",
    ),
    "zip of MovieLens": Case(
        zipped(
            {
                "ml/ratings.csv": plain(),
                "ml/movies.csv": "movieId,title\n",
                "ml/README.txt": "read me",
            }
        ),
        f"user = user, item = item; member ml/ratings.csv; {SIZES}",
        name="ml.zip",
    ),
    "zip of two": Case(
        zipped({"a.csv": plain(), "b.csv": plain()}),
        "2 members that may be ratings among a.csv, b.csv: name one",
        None,
        name="two.zip",
    ),
    "a member of a zip": Case(
        zipped({"a.csv": plain(), "b.csv": plain(";")}),
        f"user = user, item = item; member b.csv; separated by semicolon; {SIZES}",
        name="two.zip/b.csv",
    ),
    "a workbook": Case(
        zipped({"xl": "x"}), "is a spreadsheet: save it as .csv", None, name="likes.xlsx"
    ),
    "a workbook called csv": Case(
        zipped({"[Content_Types].xml": "x"}), "is an Excel workbook: save it as .csv", None
    ),
    "a bomb": Case(
        bz2.compress(b"0" * (65 << 20)),
        "unpacks to more than 64 MB from",
        None,
        name="likes.csv.bz2",
    ),
    "half a gzip": Case(
        gzip.compress(plain().encode())[:-9], "truncated or damaged gzip", None, name="likes.csv.gz"
    ),
    # JSON and parquet
    "lines of JSON": Case(
        lines(*OBJECTS), f"user = customer, item = sku; {SIZES}", name="log.jsonl"
    ),
    "lines of JSON, compressed": Case(
        gzip.compress(lines(*OBJECTS).encode()),
        f"user = customer, item = sku; {SIZES}",
        name="log.json.gz",
    ),
    "a list of JSON": Case(
        json.dumps(OBJECTS), f"user = customer, item = sku; {SIZES}", name="log.json"
    ),
    "numbers in JSON": Case(
        lines(*({"user": u, "item": i, "score": 1} for u, i in zip(*NUMBERED, strict=True))),
        NAMED,
        NUMBERS,
        FILE_UNUSED.format("score"),
        name="log.ndjson",
    ),
    "a bad line of JSON": Case(
        lines(*OBJECTS) + "oops\n", "log.jsonl, line 5: not JSON", None, name="log.jsonl"
    ),
    "a bad line of JSON, left out": Case(
        lines(*OBJECTS) + 'oops\n{"customer": null, "sku": "tea"}\n',
        "user = customer, item = sku; 6 rows, 3 users × 3 items, 4 positives",
        warns="left out 1 lines of {} that cannot be read; left out 1 bad rows of 5: 1 with no user id",
        options={"skip_bad": True},
        name="log.jsonl",
    ),
    "parquet": Case(
        parquet({"order": [1, 2, 3, 4], "buyer": USERS, "isbn": ITEMS}),
        f"user = buyer, item = isbn; {SIZES}",
        name="likes.parquet",
    ),
    "parquet with a rating": Case(
        parquet({"uid": USERS, "item": ITEMS, "rating": STARS}),
        "user = uid, item = item, rating = rating; 1 rows with a rating below 3 left out; "
        "4 rows, 3 users × 2 items, 3 positives",
        LIKES - {("ann", "jam")},
        options={"min_rating": 3},
        name="likes.parquet",
    ),
    "parquet with a gap": Case(
        parquet({"user": [None, *USERS], "item": ["tea", *ITEMS]}),
        "1 bad rows of 5, 1 with no user id; the first is row 0, counted from 0: repair them, or pass skip_bad=True",
        None,
        name="likes.parquet",
    ),
    "an encoding of parquet": Case(
        parquet({"user": USERS, "item": ITEMS}),
        "encoding= does not apply to a file of layout parquet",
        None,
        options={"encoding": "utf-8"},
        name="likes.parquet",
    ),
    # files whose names mean something
    "LightGCN": Case(
        "1 10 20\n2 10\n3 30\n",
        f"one line per user, as LightGCN has it; {SIZES}",
        NUMBERS,
        name="train.txt",
    ),
    "a train.txt of one's own": Case(
        text("\t", "", (*NUMBERED, STARS)),
        f"user = user, item = item, rating = rating; {BY_POSITION}; separated by tab; {SIZES}",
        NUMBERS,
        FILE_UNUSED.format("rating"),
        name="train.txt",
    ),
    "a train.txt with a rating after spaces": Case(
        text(" ", "", (*NUMBERED, STARS)),
        "user 1 has several lines, but LightGCN's files have one",
        None,
        name="train.txt",
    ),
    "a name without an ending": Case(
        plain(), "does not tell its layout: pass layout=", None, name="likes"
    ),
    "a name without an ending, said": Case(plain(), NAMED, options={"layout": "csv"}, name="likes"),
}


def written(folder, case: Case):
    path = folder / case.name
    target = path.parent if path.parent.suffix == ".zip" else path
    target.write_bytes(case.content.encode() if isinstance(case.content, str) else case.content)
    return path


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_understood_or_refused(name, tmp_path):
    case = FILES[name]
    path = written(tmp_path, case)
    case = case._replace(warns=case.warns and case.warns.replace("{}", str(path)))
    check(case, str(path), lambda: data.read_ratings(path, **case.options))


FLAGS = {"user": "user_column", "item": "item_column", "rating": "rating_column"}
FLAGS |= {"confidence": "confidence_column"}


@pytest.mark.parametrize("name", FILES)
def test_the_command_says_the_same_in_its_own_words(name, tmp_path):
    """One line of notes for each, or one line of error before any work is done, in options that exist."""
    case = FILES[name]
    path = written(tmp_path, case)
    flags = [
        word
        for option, value in case.options.items()
        for word in [f"--{FLAGS.get(option, option)}", *([str(value)] if value is not True else [])]
    ]
    if case.pairs is None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MFAUC, "fit", lambda *_, **__: pytest.fail("fitted"))
            said = fails("fit", path, "--out", tmp_path / "model", *flags)
        assert said.count("\n") == 1 and not (tmp_path / "model").exists()
        assert not any(f"{word}=" in said for word in (*FLAGS, "columns", "encoding", "skip_bad"))
        return
    ran = run("data", "describe", path, "--format", "json", *flags)
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["positives"] == len(case.pairs)
    notes = ran.err.splitlines()
    assert notes[0] == f"mfauc: {path}: {case.says}"
    assert len(notes) == 1 + (case.warns is not None)
    if case.warns is not None:
        assert notes[1].startswith(f"mfauc: note: {path}: {case.warns.split(':')[0].split('{')[0]}")
    assert run("data", "describe", path, "--quiet", *flags).err == ""


def test_the_table_is_long_enough():
    assert len(FILES) >= 30 and len(FRAMES) >= 30


# --- patterns and folders ---


def test_parts_are_read_together(tmp_path):
    for kind in ("csv", "parquet"):
        for part in range(2):
            rows = slice(2 * part, 2 * part + 2)
            frame = pl.DataFrame({"item": ITEMS[rows], "user": USERS[rows]})
            write = frame.write_csv if kind == "csv" else frame.write_parquet
            write(tmp_path / f"part-{part}.{kind}")
        pattern = tmp_path / f"part-*.{kind}"
        pairs, records, warned, _ = understood(lambda path=pattern: data.read_ratings(path))
        assert pairs == LIKES and not warned
        assert records == [f"{pattern}: user = user, item = item; 2 files; {SIZES}"]
    (tmp_path / "spark").mkdir()
    (tmp_path / "spark" / "_SUCCESS").touch()
    for part in tmp_path.glob("*.parquet"):
        part.rename(tmp_path / "spark" / part.name)
    assert understood(lambda: data.read_ratings(tmp_path / "spark"))[0] == LIKES
    assert understood(lambda: data.read_ratings(str(tmp_path / "**" / "*.parquet")))[0] == LIKES
    (tmp_path / "spark" / "other.csv").touch()
    with pytest.raises(
        IsADirectoryError, match=r"is a folder: .*\(other.csv, part-0.parquet, part"
    ):
        data.read_ratings(tmp_path / "spark")
    with pytest.raises(FileNotFoundError, match="no file matches it as a pattern"):
        data.read_ratings(tmp_path / "none-*.csv")
    (tmp_path / "part-9.csv").write_text("user,item,time\nann,tea,1\n")
    with pytest.raises(
        ValueError, match=r"part-9.csv has user, item, time, but .*part-0.csv has item, user"
    ):
        data.read_ratings(tmp_path / "part-*.csv")


def test_parts_of_integers_and_of_text_have_ids_of_text(tmp_path):
    (tmp_path / "a1.csv").write_text("user,item\n1,tea\n2,jam\n")
    (tmp_path / "a2.csv").write_text("user,item\nx1,tea\n")
    assert understood(lambda: data.read_ratings(tmp_path / "a*.csv"))[0] == {
        ("1", "tea"),
        ("2", "jam"),
        ("x1", "tea"),
    }


def test_a_folder_is_no_file(tmp_path):
    said = fails("fit", tmp_path, "--out", tmp_path / "m")
    assert "is a folder: name the file of ratings in it (it is empty)" in said


def test_a_missing_package_for_zstandard_is_named(tmp_path, monkeypatch):
    path = written(tmp_path, FILES["zstandard"])

    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(compressed.importlib, "import_module", absent)
    assert "pip install zstandard, or pyarrow" in fails("data", "describe", path)


def test_nothing_larger_than_the_limit_is_unpacked(tmp_path, monkeypatch):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(plain().encode()))
    monkeypatch.setattr(compressed, "LARGEST", 20)
    with pytest.raises(ValueError, match="unpacks to more than 0 MB"):
        data.read_ratings(path)


# --- times, confidence, seeds ---


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("timestamp", TIMES),
        ("created_at", ["2020-01-01", "2020-01-02", "2020-01-03", "2020-01-04"]),
        ("Event Time", [f"2020-01-01T00:00:0{j}Z" for j in range(4)]),
    ],
)
def test_times_are_found_by_name(tmp_path, column, values):
    (tmp_path / "a.csv").write_text(
        text(header=f"user,item,{column}", columns=(USERS, ITEMS, values))
    )
    X, times = data.read_timed(tmp_path / "a.csv")
    last = splits.leave_last_out(X, times).test
    assert understood(lambda: last)[0] == {("ann", "jam")}
    with pytest.raises(TypeError, match="read_timed has no option 'tim'"):
        data.read_timed(tmp_path / "a.csv", tim="x")


def test_two_times_are_an_error_only_where_one_is_needed(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(text(header="user,item,date,time", columns=(USERS, ITEMS, TIMES, TIMES)))
    assert understood(lambda: data.read_ratings(path))[0] == LIKES
    with pytest.raises(ValueError, match="2 columns that look like times, date and time"):
        data.read_timed(path)
    assert data.read_timed(path, time="date").times.tolist() == [
        TIMES[1],
        TIMES[0],
        TIMES[2],
        TIMES[3],
    ]


def test_confidence_reaches_the_model(tmp_path):
    (tmp_path / "a.csv").write_text(text(header="user,item,quantity"))
    fitted = []

    def keep(model, X, validation=None, **options):
        fitted.append(X)
        return no_fit(model, X)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MFAUC, "fit", keep)
        argv = (
            "fit",
            tmp_path / "a.csv",
            "--confidence_column",
            "quantity",
            "--out",
            tmp_path / "m",
        )
        assert run(*argv).code == 0
    assert np.asarray(fitted[0].confidence).tolist() == [2.0, 5.0, 4.0, 3.0]
    assert np.asarray(MFAUC.load(tmp_path / "m").train_.confidence).tolist() == [2.0, 5.0, 4.0, 3.0]


def test_confidence_is_described(tmp_path):
    (tmp_path / "a.csv").write_text(text(header="user,item,quantity"))
    described = ("data", "describe", tmp_path / "a.csv")
    weighted = run(*described, "--confidence_column", "quantity")
    words = "least 2, quarter 2, median 3, three quarters 4, most 5"
    assert f"confidence of one positive: {words}\n" in weighted.out
    assert "confidence" not in run(*described).out


def test_selection_takes_confidence(tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_text(text(header="user,item,quantity"))
    seen = []

    def select(seed, model, X, *_, **__):
        seen.append(X.confidence)
        raise ArithmeticError("enough")

    monkeypatch.setattr("mfauc_jax.training.selection.select", select)
    argv = (
        "select",
        tmp_path / "a.csv",
        "--confidence_column",
        "quantity",
        "--grid",
        "strength=1,2",
    )
    assert run(*argv).code == 1 and np.asarray(seen[0]).tolist() == [2.0, 5.0, 4.0, 3.0]


def test_options_of_files_are_refused_for_data_sets_known_by_name(tmp_path):
    for flags in (("--rating_column", "x"), ("--delimiter", ";"), ("--skip_bad",)):
        said = fails("fit", "--dataset", "ml-100k", *flags, "--out", tmp_path / "m", code=2)
        assert f"{flags[0]} is for a file of ratings" in said


def test_a_minimum_and_a_filter_are_not_both_given(tmp_path):
    (tmp_path / "a.csv").write_text(text())
    with pytest.raises(ValueError, match="either min_rating = 4 or a filter with above = 3"):
        data.read_ratings(tmp_path / "a.csv", min_rating=4, filter=data.Filter(above=3))
    for value in (np.nan, np.inf):
        with pytest.raises(ValueError, match="is not a finite number"):
            data.read_ratings(tmp_path / "a.csv", min_rating=value)


def test_a_known_data_set_is_logged_and_not_warned_of(tmp_path):
    (tmp_path / "ml-100k").mkdir()
    (tmp_path / "ml-100k" / "u.data").write_text(text("\t", "", (*NUMBERED, STARS, TIMES)))
    read = lambda: data.load("ml-100k", tmp_path, "everything")  # noqa: E731
    pairs, records, warned, _ = understood(read)
    assert pairs == NUMBERS and warned == []
    assert len(records) == 1 and "every row counts as a positive" in records[0]


FRAME = pl.DataFrame({"user_id": np.repeat(np.arange(5), 4), "sku": np.tile(np.arange(4), 5) * 2})


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("split", [splits.hold_out, lambda *a: next(splits.k_fold(*a))])
@pytest.mark.parametrize(
    "X",
    [FRAME, (FRAME["user_id"].to_numpy(), FRAME["sku"].to_numpy()), sp.csr_array(np.ones((5, 4)))],
)
def test_a_seed_is_a_key_and_a_frame_is_x(split, X):
    expected = split(jax.random.key(3), Interactions.of(X))
    for key in (3, np.int64(3), jax.random.key(3)):
        found = split(key, X)
        for part, whole in zip(found, expected, strict=True):
            np.testing.assert_array_equal(part.indices, whole.indices)
            np.testing.assert_array_equal(part.indptr, whole.indptr)
    assert expected[1].nnz > 0
    with pytest.raises(ValueError, match="seed = -1 must be ≥ 0"):
        split(-1, X)
