"""Ids are whatever text people have: 200 odd ones go through files, models and the command, and come back equal."""

import csv
import io
import json
import string
import warnings

import numpy as np
import polars as pl
import pytest
from command import no_fit, run, untouched_jax  # noqa: F401

from mfauc_jax import MFAUC, Interactions, data, export

NUMERALS = str.split(
    "0 7 007 00 -5 +5 1.0 1.50 .5 1e5 1E-3 0x1F 1_000 1,5 ٣ Ⅳ ½ ² 1/2 -0 9223372036854775808"
)
WORDS = str.split(
    "nan NaN None null NULL NA N/A true false inf -inf undefined user item rating id # - -- = @x"
)
QUOTES = [
    "'",
    '"',
    '""',
    "''",
    '"a"',
    'a"b',
    "a'b",
    '"a',
    'a"',
    '\\"',
    "`",
    "«a»",
    "“a”",
    'a","b',
    "';--",
]
MARKS = [
    "a,b",
    "a;b",
    "a|b",
    "a::b",
    "a:b",
    "a\tb",
    ",",
    ";",
    "|",
    "::",
    "a,",
    ",a",
    "a b",
    "a/b",
    "a\\b",
    "\\",
]
MARKS += [
    "{}",
    "{0}",
    "%s",
    "%d",
    "$x",
    "a&b",
    "<b>",
    "a*b",
    "[a]",
    "a?b",
    "~",
    "a=b",
    "--out",
    "-h",
    "=1+1",
]
SPACES = [
    " a",
    "a ",
    "  a  ",
    "a  b",
    "\ta",
    "a\t",
    "a\u00a0b",
    "\u2003a",
    "a\u200bb",
    "\u200ba",
    "a\u3000b",
]
LINES = [
    "a\nb",
    "a\r\nb",
    "a\rb",
    "\na",
    "a\n",
    "a\u2028b",
    "a\x0bb",
    "a\x0cb",
    "a\x85b",
    "a\x1fb",
    "a\x1cb",
]
SCRIPTS = str.split(
    "é e\u0301 ß ẞ İ ı ﬁ Å A\u030a Ω Ω ж Ж ÿ ñ ą ø 日本 日本語 中文 한국어 ไทย हिन्दी עברית العربية ქართული Ελληνικά"
)
SCRIPTS += str.split("Հայերեն አማርኛ ᏣᎳᎩ 𝔘𝔫𝔦 𝟙𝟚 𐍈 ﷽ a\u0301\u0302\u0303 \u202eabc zoë ZOË Zoe\u0308")
EMOJI = str.split("☕ 😀 👩‍🚀 👨‍👩‍👧‍👦 🇫🇷 👍🏽 ❤️ ❤ 🏴󠁧󠁢󠁳󠁣󠁴󠁿 a☕b ☕☕ 🫠")
LONG = [
    "x" * 1000,
    "日" * 1000,
    "9" * 300,
    "a " * 499 + "b",
    "😀" * 250,
    '"' * 500,
    ",".join("ab" * 200),
    "-" * 999,
]
OTHERS = [
    "\ufeffa",
    "a\ufeff",
    "\x01",
    "a\x7fb",
    "\ud7ff",
    "\ue000",
    "\U0010ffff",
    "http://a.b/c?d=e&f#g",
]
OTHERS += ["a@b.org", "2020-01-01", "12:30", "C:\\x", "/etc", "../x", "a.b.csv", "é" * 7, "A", "a"]
ALL = [*NUMERALS, *WORDS, *QUOTES, *MARKS, *SPACES, *LINES, *SCRIPTS, *EMOJI, *LONG, *OTHERS]
ALL += [letter + mark for letter in "ab" for mark in string.punctuation]
IDS = list(dict.fromkeys(ALL))[:200]


def test_there_are_200_of_them():
    assert len(set(IDS)) == 200
    assert not any(one.strip() == "" or "\0" in one for one in IDS)


def pairs(X: Interactions) -> set:
    users, items = X.to_scipy().nonzero()
    return set(zip(X.user_ids[users].tolist(), X.item_ids[items].tolist(), strict=True))


def quietly(read, *args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return read(*args, **options)


LIKES = [(one, other) for j, one in enumerate(IDS) for other in (IDS[j - 1], IDS[j - 7])]
FRAME = pl.DataFrame({"user": [u for u, _ in LIKES], "item": [i for _, i in LIKES]})


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The same likes as a csv by polars, a csv by Python, parquet, lines of JSON, and a model of them."""
    folder = tmp_path_factory.mktemp("odd")
    FRAME.write_csv(folder / "polars.csv")
    FRAME.write_csv(folder / "polars.tsv", separator="\t")
    with (folder / "python.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("user", "item"), *LIKES])
    FRAME.write_parquet(folder / "likes.parquet")
    rows = (json.dumps({"user": user, "item": item}) + "\n" for user, item in LIKES)
    (folder / "likes.jsonl").write_text("".join(rows))
    X = quietly(Interactions.of, FRAME)
    no_fit(MFAUC(), X).save(folder / "model")
    return folder


def test_frames_and_pairs_keep_them():
    for given in (
        FRAME,
        FRAME.to_pandas(),
        FRAME.to_arrow(),
        (FRAME["user"].to_list(), FRAME["item"].to_list()),
    ):
        assert pairs(quietly(Interactions.of, given)) == set(LIKES)


@pytest.mark.parametrize(
    "name", ["polars.csv", "polars.tsv", "python.csv", "likes.parquet", "likes.jsonl"]
)
def test_files_keep_them(home, name):
    X = quietly(data.read_ratings, home / name)
    assert pairs(X) == set(LIKES)
    assert X.user_ids.tolist() == sorted(IDS) == X.item_ids.tolist()


def test_a_model_file_keeps_them(home):
    assert pairs(MFAUC.load(home / "model").train_) == set(LIKES)


@pytest.mark.parametrize("place", range(len(IDS)), ids=lambda place: f"{IDS[place][:12]!a}")
def test_one_goes_round_alone(home, place, tmp_path):
    """csv → X → model file → the command's csv and JSON: the user asked for, and the items it lacks."""
    one, other = IDS[place], ("!" + IDS[place])[:1000]
    small = pl.DataFrame({"user": [one, one, "z"], "item": ["x", "y", other]})
    small.write_csv(tmp_path / "a.csv")
    small.write_parquet(tmp_path / "a.parquet")
    expected = {(one, "x"), (one, "y"), ("z", other)}
    for name in ("a.csv", "a.parquet"):
        X = quietly(data.read_ratings, tmp_path / name)
        assert pairs(X) == expected
    no_fit(MFAUC(), X).save(tmp_path / "m")
    asked = (
        ("--", one) if one != "--" else ("--users_file", "-")
    )  # argparse keeps this one to itself
    answered = run("recommend", "--quiet", tmp_path / "m", *asked, stdin=one)
    rows = list(csv.reader(io.StringIO(answered.out, newline="")))
    assert answered.code == 0 and [row[:2] for row in rows[1:]] == [[one, other]]
    assert [
        row["user"]
        for row in pl.read_csv(io.StringIO(answered.out), infer_schema=False).rows(named=True)
    ] == [one]
    every = ("--quiet", "--format", "json", "--n", 1000)
    answered = run("recommend", *every, home / "model", *asked, stdin=one)
    (found,) = json.loads(answered.out)
    seen = {item for user, item in LIKES if user == one}
    assert found["user"] == one
    assert {pick["item"] for pick in found["list"]} == set(IDS) - seen


def test_the_command_lists_all_of_them(home, tmp_path):
    lines = [one for one in IDS if not set(one) & set("\r\n")]
    (tmp_path / "users.txt").write_text("\n".join(lines), encoding="utf-8", newline="")
    for name in ("lists.csv", "lists.parquet"):
        out = ("--quiet", "--n", 1000, "--out", tmp_path / name)
        assert (
            run("recommend", home / "model", "--users_file", tmp_path / "users.txt", *out).code == 0
        )
        read = (
            pl.read_parquet
            if name.endswith("parquet")
            else lambda p: pl.read_csv(p, infer_schema=False)
        )
        found = read(tmp_path / name)
        assert found["user"].unique(maintain_order=True).to_list() == lines
        assert set(found["item"]) == set(IDS)


def test_a_split_keeps_them(home, tmp_path):
    out = ("--train", tmp_path / "train.csv", "--test", tmp_path / "test.parquet", "--per_user", 1)
    assert run("data", "split", home / "python.csv", "--quiet", *out).code == 0
    parts = [quietly(data.read_ratings, tmp_path / name) for name in ("train.csv", "test.parquet")]
    assert pairs(parts[0]) | pairs(parts[1]) == set(LIKES) and not pairs(parts[0]) & pairs(parts[1])


def test_what_no_file_can_keep_is_refused(tmp_path):
    for bad, words in (
        ("a\0", "a zero character"),
        ("x" * 1001, "has 1001 characters, more than 1000"),
    ):
        frame = pl.DataFrame({"user": [bad, "b"], "item": ["x", "y"]})
        with pytest.raises(ValueError, match=words):
            Interactions.of(frame)
        frame.write_parquet(tmp_path / "a.parquet")
        with pytest.raises(ValueError, match=words):
            data.read_ratings(tmp_path / "a.parquet")


def test_integers_stay_integers_and_their_like_stays_text(tmp_path):
    for ids, kind in (
        (["7", "-3"], np.int64),
        (["7", "03"], np.str_),
        (["7", "9" * 19], np.str_),
        (["7", "+3"], np.str_),
    ):
        (tmp_path / "a.csv").write_text("user,item\n" + "".join(f"{one},x{one}\n" for one in ids))
        found = data.read_ratings(tmp_path / "a.csv").user_ids
        assert np.issubdtype(found.dtype, kind) and sorted(map(str, found.tolist())) == sorted(ids)


TYPES = [np.uint8, np.uint16, np.uint32, np.uint64, np.int8, np.int32, ">i4", ">u8"]


@pytest.mark.parametrize("kind", TYPES, ids=str)
@pytest.mark.parametrize("door", ["pairs", "polars", "pandas"])
def test_integers_of_every_type_go_round(kind, door, tmp_path):
    """Lists end in −1, which an unsigned type cannot hold: it kills keeping the caller's type."""
    users = np.array([1, 1, 2, 100], kind)
    likes = {"user": users, "item": np.array([7, 8, 8, 9], kind)}
    made = {
        "pairs": lambda: tuple(likes.values()),
        "polars": lambda: pl.DataFrame(likes),
        "pandas": lambda: pl.DataFrame(likes).to_pandas(),
    }[door]()
    model = no_fit(MFAUC(), quietly(Interactions.of, made))
    model.save(tmp_path / "m")
    loaded = MFAUC.load(tmp_path / "m")
    for one in (model, loaded):
        items, scores = one.recommend(users[:1], n=4)
        assert items[0, -1] == -1 and scores[0, -1] == -np.inf
        assert items[0, 0] == 9 and one.train_.user_ids.tolist() == [1, 2, 100]
        export.table(one, tmp_path / "a.csv", n=4)
        assert pl.read_csv(tmp_path / "a.csv")["user"].unique().sort().to_list() == [1, 2, 100]


LARGE = 2**63 + 5
REFUSED = {
    "uint64": (np.array([1, LARGE], np.uint64), ValueError, str(LARGE)),
    "huge": ([1, 2**70], ValueError, str(2**70)),
    "float": ([1.0, 2.5], TypeError, "1.0 is float"),
    "bool": (np.array([True, False]), TypeError, "is bool"),
    "dates": (np.array(["2020-01-01", "2020-01-02"], "M8[D]"), TypeError, r"datetime64\[D\]"),
    "spans": (np.array([1, 2], "m8[s]"), TypeError, r"timedelta64\[s\]"),
    "bytes": (np.array([b"a", b"b"]), TypeError, r"b'a'\) is \|S1"),
    "some bytes": ([b"a", b"b"], TypeError, "b'a' is bytes"),
    "complex": (np.array([1j, 2j]), TypeError, "complex128"),
    "mixed": (["a", 1], TypeError, "mix strings and integers"),
    "none": (["a", None], ValueError, "1 of 2 user ids are missing"),
    "nan": ([1, float("nan")], ValueError, "1 of 2 user ids are missing"),
    "empty": (["a", " "], ValueError, "1 of 2 user ids are empty"),
    "zero at the end": (["a", "a\0"], ValueError, r"'a\\x00' has a zero character"),
    "objects with a zero": (np.array(["a", "a\0"], object), ValueError, "a zero character"),
    "zero inside": (np.array(["a\0b", "c"]), ValueError, "a zero character"),
    "variable width": (np.array(["a", "a\0"], np.dtypes.StringDType()), ValueError, "a zero"),
    "half a pair": (["a", "\ud800"], ValueError, r"'\\ud800' has half a surrogate pair"),
    "long": (["a", "b" * 1001], ValueError, "has 1001 characters, more than 1000"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_kept_whole_is_refused_at_the_door_by_value(name):
    ids, error, words = REFUSED[name]
    for given in ((ids, np.arange(2)), (ids, ["x", "y"])):
        with pytest.raises(error, match=words):
            Interactions.of(given)


def test_one_long_id_does_not_make_all_of_them_wide():
    """A million ids of 5 characters beside one of 900 would take 3.6 GB: NumPy's strings are equally wide."""
    many = [f"{j:05}" for j in range(10**5)]
    assert Interactions.of((many, many)).user_ids[-1] == "99999"
    with pytest.raises(ValueError, match="has 900 characters, but the mean is 5"):
        Interactions.of((["x" * 900, *many], ["x", *many]))
    with pytest.raises(ValueError, match="has 900 characters, but the mean is 5"):
        Interactions.of(pl.DataFrame({"user": ["x" * 900, *many], "item": ["x", *many]}))


def test_a_parquet_file_of_large_integers_is_read_as_text_as_a_csv_is(tmp_path):
    frame = pl.DataFrame(
        {"user": [1, LARGE], "item": [1, 2]}, {"user": pl.UInt64, "item": pl.UInt8}
    )
    frame.write_parquet(tmp_path / "a.parquet")
    frame.write_csv(tmp_path / "a.csv")
    for name in ("a.parquet", "a.csv"):
        X = quietly(data.read_ratings, tmp_path / name)
        assert X.user_ids.tolist() == ["1", str(LARGE)] and X.item_ids.tolist() == [1, 2]


def test_a_request_is_not_changed_into_another_id():
    """NumPy makes "a" of "a\\0", "1" of the 1 in ["x", 1], and floats of signed and unsigned integers together."""
    model = no_fit(MFAUC(), Interactions.of((["a", "1", "x"], ["a", "1", "x"])))
    with pytest.raises(ValueError, match=r"unknown user 'a\\x00'"):
        model.recommend(["a\0"])
    with pytest.raises(ValueError, match=r"unknown user 'a\\x00'"):
        model.recommend("a\0")
    with pytest.raises(TypeError, match="user ids are"):
        model.recommend(["x", 1])
    with pytest.raises(TypeError, match="user ids are"):
        model.recommend([b"a"])
    near = [2**53, 2**53 + 1]
    model = no_fit(MFAUC(), Interactions.of((near, near)))
    assert model.recommend(np.array(near, np.uint64), n=1).users.tolist() == near
    assert (model.predict(np.uint64(near[1]), near[1]) == model.predict(near[1], near[1])).all()
    assert quietly(model.recommend, [near[1], 2**64], unknown="skip").users.tolist() == near[1:]
