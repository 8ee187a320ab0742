"""Files about items, prefixes of ISBNs, the split by items, and the generator with features."""

import jax
import numpy as np
import pytest

import mfauc_jax as mf
from mfauc_jax.data import item_files, splits, synthetic

MOVIES = "1::Toy Story (1995)::Animation|Children's|Comedy\n2::Nothing::(no genres listed)\n"
ITEM = "1|Toy Story (1995)|01-Jan-1995||http://x|0|0|0|1|1|1|0|0|0|0|0|0|0|0|0|0|0|0|0\n"


def test_movielens_layouts_give_genres_and_years(tmp_path):
    (tmp_path / "movies.dat").write_text(MOVIES, encoding="latin-1")
    found = mf.data.read_movies(tmp_path)
    assert found.to_dicts() == [
        {"item": 1, "genres": "Animation|Children's|Comedy", "year": 1995.0},
        {"item": 2, "genres": None, "year": None},
    ]
    (tmp_path / "u.item").write_text(ITEM, encoding="latin-1")
    assert item_files.read_movies(tmp_path / "u.item").to_dicts() == found[:1].to_dicts()
    csv = 'movieId,title,genres\n1,"Toy, Story (1995)",Animation|Comedy\n'
    (tmp_path / "movies.csv").write_text(csv)
    row = {"item": 1, "genres": "Animation|Comedy", "year": 1995.0}
    assert item_files.read_movies(tmp_path / "movies.csv").to_dicts() == [row]
    (tmp_path / "movies.dat").write_text("1::a\n")
    with pytest.raises(ValueError, match="line 1: '1::a' is no line of movies.dat"):
        item_files.read_movies(tmp_path)


def test_isbns_have_the_prefixes_of_their_groups_and_publishers():
    """0-306-40615-2 is Plenum (306), 1-85326-… Wordsworth (85326), 3-423-… dtv, 84-204-… Alfaguara."""
    isbns = ["0306406152", "185326041X", "3423086513", "8420400000", "B0001ABCDE", "999"]
    found = mf.data.isbn_prefixes(isbns)
    assert found["group"].to_list() == ["0", "1", "3", "84", None, None]
    assert found["publisher"].to_list() == ["0306", "185326", "3423", "84204", None, None]
    assert found["shelf"].to_list()[:2] == ["030640", "18532604"]


def test_whole_items_are_held_out():
    X = synthetic.synthetic1(jax.random.key(0))
    train, test = splits.hold_out_items(jax.random.key(1), X, 0.1)
    in_train, in_test = (set(np.asarray(part.indices).tolist()) for part in (train, test))
    assert not in_train & in_test and len(in_test) == 20
    assert train.nnz + test.nnz == X.nnz and train.shape == test.shape == X.shape
    with pytest.raises(ValueError, match="share = 1 must be between 0 and 1"):
        splits.hold_out_items(0, X, 1)


def test_the_generator_draws_what_its_truth_says():
    world = synthetic.with_features(jax.random.key(0), 200, 150)
    again = synthetic.with_features(jax.random.key(0), 200, 150)
    assert (np.asarray(world.X.indices) == np.asarray(again.X.indices)).all()
    chosen = world.X.to_scipy().toarray() > 0
    assert world.scores[chosen].mean() > world.scores[~chosen].mean() + 1
    F = mf.Features.of(world.item_features).matrix.toarray()
    centred = world.scores.T - world.scores.T.mean(0)
    fitted = F @ np.linalg.lstsq(F, centred, rcond=None)[0]
    share = (fitted**2).sum() / (centred**2).sum()
    assert 0.6 < share < 0.95  # .6, and what 66 features fit by chance among 150 items
    nothing = synthetic.with_features(jax.random.key(0), 200, 150, informative=0.0)
    assert np.abs(nothing.scores - world.scores).max() > 1
