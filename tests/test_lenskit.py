"""MFAUC as a component of a LensKit pipeline; skipped where LensKit is not installed."""

import importlib.util
import pickle

import numpy as np
import pytest

if importlib.util.find_spec("lenskit") is None:
    pytest.skip("LensKit is not installed: pip install '.[lenskit]'", allow_module_level=True)

import pandas as pd
from lenskit import batch, recommend
from lenskit.data import ItemList, RecQuery, from_interactions_df
from lenskit.pipeline import topn_pipeline
from lenskit.training import TrainingOptions

import mfauc_jax as mf
from mfauc_jax.lenskit import MFAUCScorer

RNG = np.random.default_rng(0)
LIKED = RNG.random((20, 15)) < 0.4
USERS, ITEMS = np.nonzero(LIKED)
FRAME = pd.DataFrame({"user_id": USERS + 100, "item_id": ITEMS * 10})
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def data():
    return from_interactions_df(FRAME)


@pytest.fixture(scope="module")
def pipeline(data):
    made = topn_pipeline(MFAUCScorer(rank=3, solver__iterations=2), n=4)
    made.train(data)
    return made


@pytest.fixture(scope="module")
def same():
    frame = FRAME.rename(columns={"user_id": "user", "item_id": "item"})
    return mf.MFAUC(rank=3).with_params(solver__iterations=2).fit(frame)


def test_a_pipeline_recommends_what_the_model_does(pipeline, same):
    for user in (100, 107, 119):
        assert recommend(pipeline, user).ids().tolist() == same.recommend(user, n=4)[0].tolist()
    runs = batch.recommend(pipeline, [101, 102], n=4, n_jobs=1)
    assert sum(len(items) for items in runs.lists()) == 8


def test_new_users_are_folded_in_and_the_rest_is_nan(pipeline, same):
    scorer = pipeline.component("scorer")
    query = RecQuery(user_id=999, history_items=ItemList([10, 30, 12345]))
    asked = ItemList([0, 20, 12345])
    found = scorer(query, asked).scores()
    folded = same.fold_in(pd.DataFrame({"user": [1, 1], "item": [10, 30]}))
    np.testing.assert_allclose(found[:2], folded.predict(1, [0, 20]), rtol=1e-4)
    assert np.isnan(found[2])
    assert np.isnan(scorer(RecQuery(user_id=999), asked).scores()).all()
    off = MFAUCScorer(rank=2, solver__iterations=1, fold_in=False)
    off.model_, off.users_, off.items_ = scorer.model_, scorer.users_, scorer.items_
    assert np.isnan(off(query, asked).scores()).all()


def test_it_trains_once_unless_asked_and_survives_a_pickle(data):
    scorer = MFAUCScorer(rank=2, solver__iterations=1)
    scorer.train(data, TrainingOptions(rng=1))
    first = scorer.model_
    scorer.train(data, TrainingOptions(retrain=False))
    assert scorer.model_ is first
    scorer.train(data, TrainingOptions(rng=2))
    assert scorer.model_.seed != first.seed
    again, asked = pickle.loads(pickle.dumps(scorer)), ItemList([0, 10])
    np.testing.assert_array_equal(again(105, asked).scores(), scorer(105, asked).scores())
    with pytest.raises(TypeError, match="rnk"):
        MFAUCScorer(rnk=2).train(data)
