"""Users and items that training does not know: left out and counted, refused, or given what is popular."""

import copy
import json
import re
import warnings

import numpy as np
import polars as pl
import pytest
from command import fails, home, run, table, untouched_jax  # noqa: F401
from hypothesis import given
from hypothesis import strategies as st

import mfauc_jax as mf
from mfauc_jax.data import ids
from mfauc_jax.serving import export

PEOPLE = ["ann", "bob", "cy", "dee", "eli", "fay", "gus", "hal"]
THINGS = ["tea", "jam", "rye", "oat", "fig", "nut", "pea", "egg"]
PAIRS = [
    (who, THINGS[(i + j) % 8]) for i, who in enumerate(PEOPLE) for j in range(4) if (i, j) != (0, 0)
]
UNSEEN = [(who, THINGS[(i + j) % 8]) for i, who in enumerate(PEOPLE) for j in (5, 6)]
STRANGE = [
    ("zoe", "tea"),
    ("zoe", "cake"),
    ("yan", "jam"),
    ("ann", "cake"),
    ("ann", "pie"),
    ("bob", "cake"),
]
pytestmark = pytest.mark.filterwarnings("ignore:interactions", "ignore:the frame")


def columns(pairs):
    return tuple(map(list, zip(*pairs, strict=True)))


@pytest.fixture(scope="module")
def model():
    return mf.MFAUC(rank=3).fit(columns(PAIRS))


def told(call) -> tuple:
    """What a call answers, and its warnings about what was left out."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        answer = call()
    texts = [str(one.message) for one in caught]
    return answer, [text for text in texts if "left out" in text or "skipped" in text]


# --- evaluate, certify, validation ---


@given(st.lists(st.sampled_from(UNSEEN + STRANGE), min_size=1, unique=True))
def test_skipped_positives_are_counted_and_do_not_count(model, held_out):
    good = [pair for pair in held_out if pair in UNSEEN]
    bad = [pair for pair in held_out if pair in STRANGE]
    if not good:
        with pytest.raises(ValueError, match=f"none of {len(bad)} is left.*another catalogue"):
            model.evaluate(columns(held_out))
        return
    found, lines = told(lambda: model.evaluate(columns(held_out)))
    assert found == pytest.approx(model.evaluate(columns(good)), nan_ok=True)
    users = len({user for user, _ in bad} - set(PEOPLE))
    items = len({item for _, item in bad} - set(THINGS))
    expected = (
        f"held-out positives: left out {len(bad)} of {len(held_out)}, training does not know "
        f"{users} user{'s' * (users != 1)} and {items} item{'s' * (items != 1)}"
    )
    assert lines == ([expected] if bad else [])


def doors(model):
    """Every way in for held-out positives, as functions of (held_out, **unknown)."""
    train = mf.Interactions.of(columns(PAIRS))
    return {
        "model.evaluate": model.evaluate,
        "mf.evaluate": lambda held_out, **how: mf.evaluate(model, train, held_out, **how),
        "certify": lambda held_out, **how: model.certify(held_out, **how).terms,
    }


@pytest.mark.parametrize("door", ["model.evaluate", "mf.evaluate", "certify"])
def test_every_door_skips_or_raises(model, door):
    judge = doors(model)[door]
    right = judge(columns(UNSEEN))
    found, lines = told(lambda: judge(columns(UNSEEN + STRANGE)))
    assert found == pytest.approx(right, nan_ok=True)
    assert lines == [
        "held-out positives: left out 6 of 22, training does not know 2 users and 2 items"
    ]
    assert told(lambda: judge(columns(UNSEEN), unknown="raise"))[1] == []
    with pytest.raises(ValueError, match=r"unknown user 'yan' \(and 1 more\).*unknown='skip'"):
        judge(columns(UNSEEN + STRANGE), unknown="raise")
    with pytest.raises(ValueError, match="unknown item 'cake'"):
        judge(columns([*UNSEEN, ("ann", "cake")]), unknown="raise")
    with pytest.raises(ValueError, match="choose 'raise' or 'skip'"):
        judge(columns(UNSEEN), unknown="popular")
    with pytest.raises(TypeError, match="ids are"):
        judge((np.array([1, 2]), np.array([1, 2])))


def test_an_unknown_user_without_a_positive_is_no_news(model):
    whole = mf.Interactions.of(columns([*UNSEEN, ("zoe", "cake")]))
    rows = np.array([(u, i) != ("zoe", "cake") for u, i in sorted([*UNSEEN, ("zoe", "cake")])])
    _, lines = told(lambda: model.evaluate(mf.data.splits.select(whole, rows), unknown="raise"))
    assert lines == []


def test_validation_skips_and_counts(model):
    setting = mf.MFAUC(rank=3)
    fitted, lines = told(lambda: setting.fit(columns(PAIRS), columns(UNSEEN + STRANGE)))
    assert lines == [
        "held-out positives: left out 6 of 22, training does not know 2 users and 2 items"
    ]
    plain = mf.MFAUC(rank=3).fit(columns(PAIRS), columns(UNSEEN))
    assert [record["auc"] for record in fitted.history_] == [r["auc"] for r in plain.history_]


def test_a_split_by_date_is_evaluated_with_its_newcomers():
    log = pl.DataFrame(
        {
            "user": [user for user, _ in PAIRS + UNSEEN + STRANGE],
            "item": [item for _, item in PAIRS + UNSEEN + STRANGE],
            "date": ["2024-01-01"] * len(PAIRS) + ["2024-02-01"] * len(UNSEEN + STRANGE),
        }
    )
    train, test = mf.data.splits.by_time(log, at="2024-01-15")
    model = mf.MFAUC(rank=3).fit(train)
    found, lines = told(lambda: model.evaluate(test))
    assert len(lines) == 1 and "left out 6 of 22" in lines[0]
    assert found == pytest.approx(model.evaluate(columns(UNSEEN)), nan_ok=True)


# --- recommend ---


def popular(**rule) -> list[tuple[str, float]]:
    """By hand: items by falling share of users, then by name."""
    counts = {thing: sum(item == thing for _, item in PAIRS) for thing in THINGS}
    kept = [
        t
        for t in sorted(THINGS)
        if t not in rule.get("deny", ()) and t in rule.get("allow", THINGS)
    ]
    return [(t, counts[t] / len(PEOPLE)) for t in sorted(kept, key=lambda t: -counts[t])]


@given(
    st.lists(st.sampled_from([*PEOPLE, "zoe", "yan", "x" * 30]), min_size=1),
    st.integers(1, 10),
    st.sets(st.sampled_from(THINGS)),
)
def test_unknown_users_get_what_is_popular(model, users, n, deny):
    lists = {"filter_items": sorted(deny)} if deny else {}
    found = model.recommend(users, n, unknown="popular", **lists)
    places = min(n, len(THINGS))
    shape = (len(users), places)
    assert found.users.tolist() == users and found.items.shape == found.scores.shape == shape
    for user, items, scores in zip(users, *found, strict=True):
        if user in PEOPLE:
            own = model.recommend(user, n, **lists)
            assert items.tolist() == own.items.tolist()
            np.testing.assert_allclose(scores, own.scores, atol=1e-12)
            continue
        expected = (popular(deny=deny) + [("", -np.inf)] * n)[:places]
        assert items.tolist() == [item for item, _ in expected]
        np.testing.assert_allclose(scores, [score for _, score in expected])


def test_popular_lists_respect_what_may_be_shown(model):
    items, scores = model.recommend("zoe", 3, unknown="popular", allow_items=["tea", "egg"])
    assert (
        items.tolist() == [*(t for t, _ in popular(allow=["tea", "egg"])), ""]
        and scores[2] == -np.inf
    )
    own = mf.Interactions.of(columns(PAIRS))  # has a row for each user of training, none for others
    assert (model.recommend("zoe", 3, unknown="popular", allow_items=own)[1] == -np.inf).all()
    assert model.recommend("zoe", 3, unknown="popular", filter_items=own)[0].tolist() == [
        item for item, _ in popular()[:3]
    ]


@given(st.lists(st.sampled_from([*PEOPLE, "zoe", "yan", "a", "b"]), min_size=1))
def test_skipped_users_are_counted_and_the_answer_says_who_is_left(model, users):
    known = [user for user in users if user in PEOPLE]
    found, lines = told(lambda: model.recommend(users, 3, unknown="skip"))
    assert found.users.tolist() == known and found.items.shape == (len(known), 3)
    if known:
        np.testing.assert_array_equal(found.items, model.recommend(known, 3).items)
    skipped = len(users) - len(known)
    assert len(lines) == (skipped > 0)
    assert all(f"skipped {skipped} unknown of {len(users)}," in line for line in lines)
    items, scores = found  # it unpacks as a pair
    assert items is found.items and scores is found.scores
    np.testing.assert_array_equal(copy.deepcopy(found).users, found.users)


def test_one_unknown_user(model):
    found, lines = told(lambda: model.recommend("zoe", unknown="skip"))
    assert found.items.tolist() == found.scores.tolist() == [] and len(lines) == 1
    assert model.recommend("zoe", 2, unknown="popular").items.shape == (2,)
    with pytest.raises(ValueError, match="unknown user 'zoe'"):
        model.recommend("zoe")
    with pytest.raises(ValueError, match="choose 'raise' or 'skip' or 'popular'"):
        model.recommend("zoe", unknown="ignore")
    for way in ("raise", "skip", "popular"):  # a number is no name: an error, not a stranger
        with pytest.raises(TypeError, match="user ids are"):
            model.recommend([1, 2], unknown=way)


def test_rows_outside_the_matrix_are_unknown_users_too():
    dense = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 1, 0, 1]])
    model = mf.MFAUC(rank=2).fit(dense)
    found = model.recommend([0, 3, -1], 2, unknown="popular")
    assert found.items[1:].tolist() == [[1, 0]] * 2
    np.testing.assert_allclose(found.scores[1:], [[1, 1 / 3]] * 2)
    assert told(lambda: model.recommend([0, 3, -1], 2, unknown="skip"))[0].users.tolist() == [0]
    with pytest.raises(TypeError, match="not a position"):
        model.recommend(["ann"], unknown="popular")


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_exported_lists_are_those_of_recommend(model, tmp_path, ending):
    path, users = tmp_path / f"lists{ending}", ["zoe", "ann", "yan"]
    read = pl.read_csv if ending == ".csv" else pl.read_parquet
    export.table(model, path, users, 3, unknown="popular")
    expected = model.recommend(users, 3, unknown="popular")
    assert read(path)["user"].to_list() == [user for user in users for _ in range(3)]
    assert read(path)["item"].to_list() == expected.items.ravel().tolist()
    _, lines = told(lambda: export.table(model, path, users, 3, unknown="skip"))
    assert set(read(path)["user"]) == {"ann"} and len(lines) == 1
    with pytest.raises(ValueError, match="unknown user 'zoe'"):
        export.table(model, path, users, 3)
    with pytest.raises(ValueError, match="there is no list to write"):
        told(lambda: export.table(model, path, ["zoe"], 3, unknown="skip"))
    assert set(read(path)["user"]) == {"ann"}


# --- fold_in ---


@given(
    st.lists(
        st.tuples(st.sampled_from(["v", "w", "x"]), st.sampled_from([*THINGS[:5], "cake", "pie"])),
        min_size=1,
        unique=True,
    )
)
def test_unknown_items_of_a_basket_are_left_out_and_counted(model, baskets):
    good = [pair for pair in baskets if pair[1] in THINGS]
    visitors, lines = told(lambda: model.fold_in(columns(baskets)))
    names = sorted({user for user, _ in baskets})
    assert visitors.train_.user_ids.tolist() == names
    alone = {user for user, _ in good}
    if good:
        right = model.fold_in(columns(good))
        places = [names.index(user) for user in right.train_.user_ids.tolist()]
        np.testing.assert_allclose(visitors.user_factors_[places], right.user_factors_, atol=1e-12)
    empty = [place for place, user in enumerate(names) if user not in alone]
    assert (visitors.user_factors_[empty] == 0).all() and (visitors.fold_in_gap_[empty] == 0).all()
    lost = {item for _, item in baskets} - set(THINGS)
    if not lost:
        assert lines == []
        return
    (line,) = lines
    assert (
        f"left out {len(baskets) - len(good)} of {len(baskets)}, training does not know {len(lost)} item"
        in line
    )
    found = re.search(r"u = 0 for (\d+) user", line)
    assert (int(found[1]) if found else 0) == len(empty)
    with pytest.raises(ValueError, match="unknown item '(cake|pie)'"):
        model.fold_in(columns(baskets), unknown="raise")


def test_a_user_without_a_known_item_has_a_list_all_the_same(model):
    visitors, _ = told(lambda: model.fold_in((["v", "v"], ["cake", "pie"])))
    items, scores = visitors.recommend("v", 3)
    assert (scores == 0).all() and items.tolist() == sorted(THINGS)[:3]
    with pytest.raises(ValueError, match="choose 'raise' or 'skip'"):
        model.fold_in((["v"], ["tea"]), unknown="popular")


def test_ids_of_another_type_are_no_strangers():
    names, numbers = np.array(["a", "b"]), np.array([1, 2])
    for have, wanted in ((names, numbers), (numbers, names), (names, np.array([1.5]))):
        with pytest.raises(TypeError, match="user ids are"):
            ids.search("user", have, wanted)
    assert ids.search("user", names, np.array(["b", "c"], object))[1].tolist() == [True, False]
    assert ids.search("user", names, np.array([]))[1].tolist() == []


# --- the command ---


@pytest.fixture
def strange(home, tmp_path):
    """test.csv with two positives that the model cannot know."""
    extra = pl.DataFrame({"user": ["eve", "ann"], "item": ["i1", "new"]})
    pl.concat([pl.read_csv(home / "test.csv"), extra]).write_csv(tmp_path / "t.csv")
    return tmp_path / "t.csv"


@pytest.mark.parametrize("command", ["evaluate", "certify"])
def test_the_command_skips_by_default_and_says_so(home, strange, command):
    right = run(command, home / "model", home / "test.csv")
    size = pl.read_csv(home / "test.csv").height
    for how in ((), ("--unknown", "skip")):
        ran = run(command, home / "model", strange, *how)
        assert ran.code == 0 and ran.out == right.out
        line = f"left out 2 of {size + 2}, training does not know 1 user and 1 item\n"
        assert ran.err.count(line) == 1
    assert run(command, home / "model", strange, "--quiet").err == ""
    said = fails(command, home / "model", strange, "--unknown", "raise")
    assert "unknown user 'eve'" in said and "--unknown skip goes on without" in said
    strange.write_text("user,item\n1,2\n3,4\n")
    for how in ("skip", "raise"):
        said = fails(command, home / "model", strange, "--unknown", how)
        assert "another catalogue" in said if how == "skip" else "unknown user" in said
    assert "--skip_unknown" in fails(command, home / "model", strange, "--skip_unknown", code=2)


def test_the_command_lists_what_is_popular(home, tmp_path):
    requested = (
        "recommend",
        home / "model",
        "eve",
        "ann",
        "zed",
        "--n",
        "2",
        "--unknown",
        "popular",
    )
    ran = run(*requested)
    expected = mf.MFAUC.load(home / "model").recommend(["eve", "ann", "zed"], 2, unknown="popular")
    assert ran.code == 0 and "popular items for 2 unknown users: 'eve', 'zed'" in ran.err
    assert table(ran.out)["user"].to_list() == ["eve", "eve", "ann", "ann", "zed", "zed"]
    assert table(ran.out)["item"].to_list() == expected.items.ravel().tolist()
    np.testing.assert_allclose(table(ran.out)["score"], expected.scores.ravel(), rtol=5e-6)
    assert run(*requested, "--out", tmp_path / "a.parquet").code == 0
    whole = pl.read_parquet(tmp_path / "a.parquet")
    assert whole.with_columns(pl.col("score").round_sig_figs(6)).rows() == table(ran.out).rows()
    lists = json.loads(run(*requested, "--format", "json").out)
    assert [one["user"] for one in lists] == ["eve", "ann", "zed"]
    everyone = run("recommend", home / "model", "eve", "--n", "2", "--unknown", "popular")
    assert everyone.code == 0 and table(everyone.out).height == 2


def test_unknown_numbers_stay_numbers(tmp_path):
    lines = "".join(
        f"{user},{item}\n" for user in range(8) for item in range(9) if (user + item) % 3
    )
    (tmp_path / "n.csv").write_text("user,item\n" + lines)
    assert run("fit", tmp_path / "n.csv", "--out", tmp_path / "m", "--rank", "2").code == 0
    how = ("--n", "1", "--unknown", "popular", "--format", "json")
    found = json.loads(run("recommend", tmp_path / "m", "99", "3", *how).out)
    assert [one["user"] for one in found] == [99, 3]
    for odd in ("03", "zoe", "9" * 30):
        assert f"user '{odd}' is not a whole number" in fails(
            "recommend", tmp_path / "m", odd, "3", *how
        )
    assert "invalid choice" in fails("similar", tmp_path / "m", "1", "--unknown", "popular", code=2)
    ran = run("similar", tmp_path / "m", "1", "99", "--unknown", "skip", "--n", "1")
    assert ran.code == 0 and "skipped 1 unknown items of 2: '99'" in ran.err
