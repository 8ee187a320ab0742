"""The page of a model: its numbers are the library's, its text stays text, and it works in a browser."""

import base64
import hashlib
import json
import re
from unittest import mock

import numpy as np
import polars as pl
import pytest
from browser import Page, needs_chromium

import mfauc_jax as mf
from mfauc_jax import MFAUC, Interactions, losses
from mfauc_jax.data.titles import Titles
from mfauc_jax.data.titles import read as read_titles
from mfauc_jax.evaluation import curves
from mfauc_jax.explorer import contents, page

EVIL = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>"
TYPES = {"i4": np.int32, "u4": np.uint32, "f4": np.float32, "i2": np.int16, "u1": np.uint8}


def decoded(text, kind, width=None):
    values = np.frombuffer(base64.b64decode(text), TYPES[kind])
    return values if width is None else values.reshape(-1, width)


@pytest.fixture(scope="module")
def split():
    rng = np.random.default_rng(0)
    taste, kind = rng.integers(2, size=(40, 1)), rng.integers(2, size=(1, 30))
    liked = rng.random((40, 30)) < np.where(taste == kind, 0.6, 0.1)
    liked[0] = True  # has every item
    liked[:, 0] |= rng.random(40) < 0.8
    users, items = np.nonzero(liked)
    held = rng.random(len(users)) < 0.2
    held[users == 0] = False
    names = np.array([f"u{i}" for i in range(40)]), np.array([*(f"i{j}" for j in range(29)), EVIL])
    frames = (
        pl.DataFrame({"user": names[0][users[w]], "item": names[1][items[w]]})
        for w in (~held, held)
    )
    return tuple(map(Interactions.from_frame, frames))


@pytest.fixture(scope="module")
def model(split):
    return MFAUC(rank=4).fit(split[0])


@pytest.fixture(scope="module")
def titles(split):
    names = split[0].item_ids.tolist()
    return Titles({n: f"Title of {n}" for n in names if n != "i3"}, {"i1": "A", "i2": "B"})


@pytest.fixture(scope="module")
def shown(model, split, titles):
    held_out = mf.data.interactions.Interactions.of(split[1])
    held_out = contents.ids.over(held_out, model.train_, "skip")
    rows = np.arange(model.train_.num_users)
    return contents.of(model, held_out, titles, rows, "toy")


def test_lists_and_reasons_are_those_of_recommend_and_explain(model, shown):
    users, names = shown["users"], shown["items"]["ids"]
    length, most = users["length"], users["reasons"]
    lists = decoded(users["lists"], "i4", length)
    scores, why = decoded(users["scores"], "f4", length), decoded(users["why"], "i4", most)
    added = decoded(users["added"], "f4", most)
    for row, user in list(enumerate(users["ids"]))[::7]:
        items, expected = model.recommend(user, n=length)
        real = np.isfinite(expected)
        assert [names[j] for j in lists[row] if j >= 0] == items[real].tolist()
        np.testing.assert_allclose(scores[row][lists[row] >= 0], expected[real], rtol=1e-6)
        for place in np.flatnonzero(real)[::5]:
            told = model.explain(user, items[place])
            largest = [
                (i, c)
                for i, c in zip(told.items[:most], told.contributions[:most], strict=True)
                if c > 0
            ]
            at = row * length + place
            kept = why[at] >= 0
            assert [names[j] for j in why[at][kept]] == [i for i, _ in largest]
            np.testing.assert_allclose(added[at][kept], [c for _, c in largest], rtol=1e-5)
    full = model.train_.user_ids.tolist().index("u0")
    assert (lists[full] == -1).all() and (why[full * length : (full + 1) * length] == -1).all()


def test_neighbours_and_exposure_are_the_models(model, shown, split):
    items = shown["items"]
    near = decoded(items["near"], "i4", items["neighbours"])
    cosine = decoded(items["cosine"], "i2", items["neighbours"]) / 32767
    for j in (0, 7, 29):
        named, expected = model.similar_items(items["ids"][j], n=items["neighbours"])
        assert [items["ids"][k] for k in near[j]] == named.tolist()
        np.testing.assert_allclose(cosine[j], expected, atol=1e-4)
    every, _ = model.recommend(model.train_.user_ids, n=10)
    counts = [(every == name).sum() for name in items["ids"]]
    assert decoded(items["shown"], "u4").tolist() == counts
    assert shown["exposure"]["covered"] == pytest.approx(np.mean(np.array(counts) > 0))


def test_the_map_has_the_two_principal_components():
    rng = np.random.default_rng(1)
    V = rng.normal(size=(50, 6)) * [5, 0.1, 3, 0.2, 0.3, 0.4] + 7
    flat, shares = contents.projection(V)
    _, values, axes = np.linalg.svd(V - V.mean(0), full_matrices=False)
    expected = (V - V.mean(0)) @ axes[:2].T
    np.testing.assert_allclose(np.abs(flat), np.abs(expected), atol=1e-9)
    np.testing.assert_allclose(shares, values[:2] ** 2 / (values**2).sum())
    flat, shares = contents.projection(np.ones((3, 1)))
    assert flat.tolist() == [[0, 0]] * 3 and shares == [0.0, 0.0]


def test_groups_are_of_about_equally_many_users_with_means_and_intervals(model, split, shown):
    groups = shown["quality"]["groups"]
    held_out = contents.ids.over(split[1], model.train_, "skip")
    auc, length = curves.auc(model, split[0], held_out), np.asarray(split[0].row_lengths)
    assert sum(group[3] for group in groups) == np.sum(~np.isnan(auc))
    for least, most, _, count, mean, low, high in groups:
        mine = auc[(length >= least) & (length <= most) & ~np.isnan(auc)]
        assert len(mine) == count and mean == pytest.approx(mine.mean())
        if count > 1:
            half = 1.959964 * mine.std(ddof=1) / np.sqrt(count)
            assert (low, high) == pytest.approx((mean - half, mean + half))
    assert "the true AUC is at least" in shown["certificate"]["sentence"]
    assert curves.activity_groups(np.array([3, 3, 3])).tolist() == [0, 0, 0]


def test_titles_stand_in_for_ids_and_the_rest_has_no_category(shown):
    items = shown["items"]
    by_id = dict(zip(items["ids"], items["titles"], strict=True))
    assert by_id["i3"] == "i3" and by_id["i4"] == "Title of i4"
    code = decoded(items["category"], "u1")
    kinds = {n: items["categories"][c] for n, c in zip(items["ids"], code, strict=True)}
    assert (kinds["i1"], kinds["i2"], kinds["i3"]) == ("A", "B", "")


def test_a_file_of_titles_is_found_by_its_columns(tmp_path):
    path = tmp_path / "items.csv"
    path.write_text('movieId,title,genres\n1,"Toy, Story",Animation|Comedy\n2,,Drama\n1,again,X\n')
    found = read_titles(path)
    assert found.of([1, 2, 9]) == ["Toy, Story", "2", "9"]
    assert found.category_of(["1", "2", "9"]) == ["Animation", "Drama", ""]
    assert read_titles(path, title="genres").of([2]) == ["Drama"]
    with pytest.raises(ValueError, match="no column 'nome' for title=: it has movieId, title"):
        read_titles(path, title="nome")
    (tmp_path / "bare.dat").write_text("1::Ran::Drama\n2::Ikiru::Drama\n")
    named = read_titles(tmp_path / "bare.dat", columns_=["item", "title", "category"])
    assert named.of([2]) == ["Ikiru"] and named.category_of([1]) == ["Drama"]
    path.write_text("sku,price\na,1\nb,2\n")
    with pytest.raises(ValueError, match="no column that looks like titles among sku, price"):
        read_titles(path)


def test_large_catalogues_keep_popular_and_listed_items(model):
    with mock.patch.multiple(contents, MOST_ITEMS=3, LISTED=2):
        small = contents.of(model, None, None, np.array([5]), "toy")
    X, items = model.train_, small["items"]
    popularity = np.bincount(np.asarray(X.indices), minlength=30)
    popular = set(X.item_ids[np.argsort(-popularity, kind="stable")[:3]])
    listed = set(model.recommend(X.user_ids[5], n=2).items)
    assert popular | listed <= set(items["ids"]) and items["count"] < items["all"] == 30
    lists = decoded(small["users"]["lists"], "i4")
    assert {items["ids"][j] for j in lists} == listed
    near = decoded(items["near"], "i4")
    assert near.max() < items["count"] and (near == -1).any()
    first = model.similar_items(items["ids"][0], n=10)[0]
    kept = [name for name in first if name in items["ids"]]
    assert [items["ids"][k] for k in near[: items["neighbours"]] if k >= 0] == kept


def test_users_are_sampled_and_named_ones_are_there(model, tmp_path):
    path = tmp_path / "m.html"
    mf.explore(model, path, users=5, named=["u7", "u39"])
    users = embedded(path)["users"]
    assert users["ids"][:2] == ["u7", "u39"] and users["count"] == len(set(users["ids"])) == 5
    whole = path.stat().st_size
    with mock.patch.object(page, "LARGEST", whole - 100):
        mf.explore(model, path, users=5, named=["u7"])
    assert embedded(path)["users"]["count"] == 2
    with (
        mock.patch.object(page, "LARGEST", 1000),
        pytest.raises(ValueError, match="name fewer users"),
    ):
        mf.explore(model, tmp_path / "other.html", users=1)
    assert not (tmp_path / "other.html").exists()
    with pytest.raises(ValueError, match="unknown user 'nobody'"):
        mf.explore(model, path, named=["nobody"])


def embedded(path):
    text = path.read_text("utf-8")
    return json.loads(re.search(r'id="contents">(.*?)</script>', text, re.DOTALL).group(1))


def test_ids_cannot_leave_the_json_and_only_the_own_script_may_run(model, tmp_path):
    path = tmp_path / "m.html"
    size = mf.explore(model, path, name=EVIL)
    text = path.read_text("utf-8")
    assert size == path.stat().st_size and EVIL not in text
    assert embedded(path)["name"] == EVIL and EVIL in embedded(path)["items"]["ids"]
    assert text.count("<script") == 2 and text.count("</script>") == 2
    script = re.search(r"<script>(.*?)</script>", text, re.DOTALL).group(1)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text).group(1)
    assert f"script-src 'sha256-{digest}'" in policy and "default-src 'none'" in policy
    assert not re.search(r"https?://|innerHTML|outerHTML|insertAdjacent|eval\(", script)


def test_a_model_whose_scores_cannot_be_split_says_why(split, tmp_path):
    model = MFAUC.paper("sigmoid", rank=2, solver__iterations=1).fit(split[0])
    mf.explore(model, tmp_path / "m.html")
    users = embedded(tmp_path / "m.html")["users"]
    assert users["explained"] == 0 and "explained for a convex loss" in users["why_not"]
    logistic = MFAUC(rank=2, loss=losses.Logistic()).with_params(solver__iterations=1).fit(split[0])
    with mock.patch.object(contents, "MOST_PAIRS", 1000):
        shown = contents.lists(logistic, np.array([3, 4, 5, 6, 7, 8]))
    pairs = np.cumsum(np.asarray(split[0].row_lengths)[3:9] * 30)
    assert shown.explained == (pairs <= 1000).sum() < 6
    assert (shown.reasons[: shown.explained] >= 0).any()
    assert (shown.reasons[shown.explained :] == -1).all()


# --- in a browser ---


@needs_chromium
def test_a_person_finds_users_items_and_numbers(model, split, titles, tmp_path):
    path = tmp_path / "m.html"
    mf.explore(model, path, split[1], titles=titles, name=EVIL)
    with Page() as tab:
        tab.open(path)
        assert (
            tab.text("#name") == EVIL and "owned" not in tab.value("document.title").split("'")[0]
        )
        tab.type("#user-search", "u12")
        tab.click("#user-results button")
        assert tab.text("#user-name") == "User u12"
        items, scores = model.recommend("u12", n=contents.LISTED)
        first = tab.text("#list tbody tr td:nth-child(2)")
        assert first == titles.of(items[:1])[0]
        assert float(tab.text("#list tbody tr td:nth-child(3)")) == pytest.approx(
            scores[0], rel=1e-3
        )
        because = model.explain("u12", items[0]).items[0]
        assert tab.text("#list tbody tr td:nth-child(4) button") == titles.of([because])[0]
        tab.click("#list tbody tr td:nth-child(2) button")  # to the item
        assert tab.text("#item-name") == first and not tab.value(
            "document.getElementById('map').hidden"
        )
        near = model.similar_items(items[0], n=1)[0][0]
        assert tab.text("#near tbody button") == titles.of([near])[0]
        tab.type("#item-search", "title of </SCRIPT>")
        tab.click("#item-results button")
        assert tab.text("#item-name") == f"Title of {EVIL}"
        for name, expected in (
            ("quality", "the true AUC is at least"),
            ("exposure", "of the items are shown at all"),
            ("training", "chosen solver"),
        ):
            tab.click(f"[data-tab={name}]")
            assert expected in tab.text(f"#{name}")
            tab.until(
                f"[...document.querySelectorAll('#{name} canvas')].every(c => c.dataset.painted)"
            )
        assert tab.value("document.querySelectorAll('img, iframe').length") == 0
        assert tab.errors == [] and tab.requests == [path.resolve().as_uri()]


@needs_chromium
@pytest.mark.parametrize("width", [1300, 390])
def test_nothing_is_wider_than_the_window_and_pictures_have_ink(
    model, split, titles, tmp_path, width
):
    path = tmp_path / "m.html"
    mf.explore(model, path, split[1], titles=titles)
    with Page(width) as tab:
        tab.open(path)
        for name in ("lists", "map", "quality", "exposure", "training"):
            tab.click(f"[data-tab={name}]")
            assert tab.value("document.documentElement.scrollWidth") <= width, name
        tab.click("[data-tab=map]")
        tab.until("document.getElementById('map-canvas').dataset.painted")
        shades = """(() => {
            const c = document.getElementById('map-canvas'), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
            return new Set(new Uint32Array(d.buffer)).size; })()"""
        assert tab.value(shades) > 10
        tab.screenshot(tmp_path / "shot.png")
        assert (tmp_path / "shot.png").stat().st_size > 10_000


@needs_chromium
def test_fifty_thousand_items_are_points_of_a_canvas_that_the_mouse_finds(shown, tmp_path):
    n, rng = 50_000, np.random.default_rng(0)
    flat = rng.integers(-32767, 32768, size=(n, 2))
    items = shown["items"] | {
        "count": n,
        "all": n,
        "ids": [f"sku {j}" for j in range(n)],
        "titles": None,
        "categories": None,
        "had": contents.coded(rng.integers(1, 1000, n), "u4"),
        "shown": contents.coded(np.zeros(n), "u4"),
        "map": contents.coded(flat, "i2"),
        "near": contents.coded(np.full((n, 10), -1), "i4"),
        "cosine": contents.coded(np.zeros((n, 10)), "i2"),
        "neighbours": 10,
    }
    path = tmp_path / "big.html"
    path.write_text(page.page(shown | {"items": items}), "utf-8")
    with Page() as tab:
        tab.open(path)
        tab.click("[data-tab=map]")
        tab.until("document.getElementById('map-canvas').dataset.painted")
        assert tab.value("document.querySelectorAll('*').length") < 1500
        left, top, width, height = tab.value(
            "(() => { const b = document.getElementById('map-canvas').getBoundingClientRect(); "
            "return [b.x, b.y, b.width, b.height]; })()"
        )
        low, high = flat.min(0), flat.max(0)
        low, high = low - 0.04 * (high - low), high + 0.04 * (high - low)
        across = left + width * (flat[:, 0] - low[0]) / (high[0] - low[0])
        down = top + height * (high[1] - flat[:, 1]) / (high[1] - low[1])
        for x, y in ((left + 200, top + 150), (left + 417, top + 333)):
            nearest = np.argmin((across - x) ** 2 + (down - y) ** 2)
            tab.move(x, y)
            assert tab.text("#map .tip").startswith(f"sku {nearest},")
            tab.press(x, y)
            assert tab.text("#item-name") == f"sku {nearest}"
        tab.type("#item-search", "sku 4999")
        assert (
            tab.value("document.querySelectorAll('#item-results button').length") == 11
        )  # itself, and 49990 to 49999
        assert tab.errors == []
