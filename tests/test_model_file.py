import json
import os
import pathlib
import signal
import subprocess
import sys

import jax
import numpy as np
import optax
import pandas as pd
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from toys import quiet, random_factors

import mfauc_jax as mf
from mfauc_jax import Minibatch
from mfauc_jax.serving import model_file
from mfauc_jax.serving.model_file import ModelFileError

RNG = np.random.default_rng(0)
DENSE = RNG.random((12, 9)) < 0.4
DENSE[0] = np.arange(9) < 8  # every user and item has a name
DENSE[:, 8] = np.arange(12) > 2
HELD_OUT = ~DENSE & (RNG.random((12, 9)) < 0.2)
RISING = mf.Continuation(Minibatch(2, batch=4), betas=(1.0, 2.0))
pytestmark = pytest.mark.filterwarnings("ignore:interactions")


def frame(dense=DENSE):
    users, items = np.nonzero(dense)
    return pd.DataFrame({"user": [f"naïve 🙂 {i}" for i in users], "item": items * 10**12})


@pytest.fixture(scope="module")
def named():
    return mf.MFAUC(rank=3, loss="logistic", solver=RISING).fit(frame())


@pytest.fixture(scope="module")
def good(named, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    named.save(path)
    return path


def same_answers(a, b, users, items):
    np.testing.assert_array_equal(a.recommend(users, n=4)[0], b.recommend(users, n=4)[0])
    np.testing.assert_array_equal(a.recommend(users, n=4)[1], b.recommend(users, n=4)[1])
    np.testing.assert_array_equal(a.similar_items(items[0])[0], b.similar_items(items[0])[0])
    np.testing.assert_array_equal(
        a.predict(users[: len(items)], items), b.predict(users[: len(items)], items)
    )


def test_a_loaded_model_is_the_saved_one(named, good):
    loaded = mf.MFAUC.load(good)
    assert loaded.get_params() == named.get_params() and loaded.solver == RISING
    timeless = [{k: v for k, v in r.items() if k != "seconds"} for r in named.history_]
    assert loaded.history_ == timeless and loaded.stopped_ == named.stopped_
    users, items = named.train_.user_ids, named.train_.item_ids
    assert (loaded.train_.user_ids == users).all() and (loaded.train_.item_ids == items).all()
    same_answers(loaded, named, users, items)
    assert loaded.evaluate(frame(HELD_OUT)) == named.evaluate(frame(HELD_OUT))
    assert loaded.certify(frame(HELD_OUT)) == named.certify(frame(HELD_OUT))


def test_positions_and_confidences_survive(tmp_path):
    X = quiet(DENSE * RNG.integers(1, 5, DENSE.shape), confidence=True)
    wrote = model_file.Contents(random_factors(0, X), X, {"rank": 2}, {"stopped": "yes"})
    model_file.write(tmp_path / "m", wrote)
    read = model_file.read(tmp_path / "m")
    pairs = zip(jax.tree.leaves(read[:2]), jax.tree.leaves(wrote[:2]), strict=True)
    assert all((a == b).all() for a, b in pairs)
    assert read.train.user_ids is None and read.train.item_ids is None
    assert (read.params, read.training) == ({"rank": 2}, {"stopped": "yes"})


def test_plain_safetensors_opens_it(good, named):
    tensors = safetensors.numpy.load_file(good)
    assert (tensors["user_factors"] == named.user_factors_).all()
    assert (tensors["item_ids"] == named.train_.item_ids).all()
    with safetensors.safe_open(good, "numpy") as file:
        about = file.metadata()
    assert json.loads(about["params"])["rank"] == 3
    assert json.loads(about["training"])["iterations"] == 2
    assert about["library_version"] == mf.__version__


def rewritten(good, path, **changes):
    """The file with other metadata and a checksum that fits."""
    with safetensors.safe_open(good, "numpy") as file:
        about = file.metadata() | changes
    tensors = safetensors.numpy.load_file(good)
    about.pop("sha256")
    about["sha256"] = model_file._digest(tensors, about)
    safetensors.numpy.save_file(tensors, path, about)
    return path


def test_versions(good, tmp_path):
    with pytest.raises(ModelFileError, match="has format 3.0, this library reads 2.x: upgrade"):
        mf.MFAUC.load(rewritten(good, tmp_path / "m", format_version="3.0"))
    with pytest.raises(
        ModelFileError, match="has format 1.4, .* does not read: fit the model again"
    ):
        mf.MFAUC.load(rewritten(good, tmp_path / "m", format_version="1.4"))
    params = '{"rank": 3, "loss": {"name": "square"}, "later": 1}'
    with pytest.warns(UserWarning, match="later of mfauc_jax 0.1.0 is unknown here"):
        model = mf.MFAUC.load(rewritten(good, tmp_path / "m", format_version="2.7", params=params))
    assert repr(model) == "MFAUC(rank=3)"  # what the file does not tell is the default
    assert len(model.recommend(model.train_.user_ids[0], n=3)[0]) == 3


def test_bad_files_are_named(good, tmp_path):
    bad, whole = tmp_path / "bad", good.read_bytes()
    flipped = bytearray(whole)
    flipped[-5] ^= 1
    other = safetensors.numpy.save({"weight": np.ones(3)})
    for text, says in (
        (b"", "is empty"),
        (b"user,item\n1,2\n" * 9, "no model file"),
        (whole[:-100], "is truncated"),
        (whole[:100], "no model file, or its beginning is damaged"),
        (bytes(flipped), "is corrupted"),
        (other, "not a model of mfauc_jax"),
    ):
        bad.write_bytes(text)
        with pytest.raises(ModelFileError, match=says):
            mf.MFAUC.load(bad)
    for params, says in (
        ("[1, 2]", "not a whole model"),
        ('{"loss": {"name": "crossentropy"}}', "loss = .* is unknown here .*unknown Loss 'crosse"),
        ('{"loss": {"name": "logistic", "gamma": 1.0}}', "Logistic has no field 'gamma'"),
        ('{"loss": {"name": "logistic", "beta": -1.0}}', "beta = -1.0 must be a finite number > 0"),
        ('{"rank": 0}', "MFAUC: rank = 0"),
        ('{"rank": "many"}', "MFAUC: rank = 'many'"),
        ('{"solver": {"betas": [1, 2]}}', "solver = .* is unknown here"),
        ('{"solver": 7}', "solver = 7"),
    ):
        with pytest.raises(ModelFileError, match=says):
            mf.MFAUC.load(rewritten(good, bad, params=params))
    with pytest.raises(FileNotFoundError):
        mf.MFAUC.load(tmp_path / "missing")


@given(st.data())
def test_whatever_the_bytes_only_a_model_file_error(good, tmp_path_factory, data):
    whole = bytearray(good.read_bytes())
    kind = data.draw(st.sampled_from(["random", "truncated", "header flip", "flip", "zeros"]))
    if kind == "random":
        whole = data.draw(st.binary(max_size=200))
    elif kind == "truncated":
        whole = whole[: data.draw(st.integers(0, len(whole) - 1))]
    elif kind == "zeros":
        at = data.draw(st.integers(0, len(whole) - 9))
        whole[at : at + 8] = bytes(8) if any(whole[at : at + 8]) else b"\x01" * 8
    else:
        at = data.draw(st.integers(0, 2000 if kind == "header flip" else len(whole) - 1))
        whole[at] ^= 1 << data.draw(st.integers(0, 7))
    path = tmp_path_factory.getbasetemp() / "fuzzed"
    path.write_bytes(whole)
    with pytest.raises(ModelFileError):
        mf.MFAUC.load(path)


def shifted(x, shift=0.5):
    return (x - 1 - shift) ** 2


def test_a_function_is_kept_by_name_and_asked_for_again(tmp_path):
    model = mf.MFAUC(rank=3, loss=shifted, solver=Minibatch(2, batch=4)).fit(quiet(DENSE))
    model.save(tmp_path / "m")
    with pytest.warns(UserWarning, match=r"loss was shifted.*MFAUC.load\(path, loss=…\)"):
        loaded = mf.MFAUC.load(tmp_path / "m")
    same_answers(loaded, model, np.arange(12), np.arange(9))
    for use in (loaded.fit, loaded.fold_in, loaded.partial_fit):
        with pytest.raises(ValueError, match=r"loss was shifted.*give it again"):
            use(quiet(DENSE))
    again = mf.MFAUC.load(tmp_path / "m", loss=shifted)
    assert again.get_params() == model.get_params()
    loaded.save(tmp_path / "n")  # it is still known by its name
    with pytest.warns(UserWarning, match="loss was shifted"):
        same_answers(mf.MFAUC.load(tmp_path / "n"), model, np.arange(12), np.arange(9))


def clipped(learning_rate):
    return optax.chain(optax.clip(1.0), optax.sgd(learning_rate))


def test_an_optimiser_of_ones_own_leaves_the_other_fields_to_give_again(tmp_path):
    solver = Minibatch(2, batch=4, optimiser=clipped)
    model = mf.MFAUC(rank=3, loss="logistic", solver=solver).fit(quiet(DENSE))
    model.save(tmp_path / "m")
    with pytest.warns(UserWarning, match=r"solver was clipped.*MFAUC.load\(path, solver=…\)"):
        loaded = mf.MFAUC.load(tmp_path / "m")
    same_answers(loaded, model, np.arange(12), np.arange(9))
    with pytest.raises(ValueError, match="solver was clipped"):
        loaded.fit(quiet(DENSE))
    assert mf.MFAUC.load(tmp_path / "m", solver=solver).get_params() == model.get_params()


def test_paths_that_cannot_be_written(named, tmp_path):
    with pytest.raises(IsADirectoryError, match="is a folder"):
        named.save(tmp_path)
    with pytest.raises(FileNotFoundError):
        named.save(tmp_path / "no" / "folder")
    with pytest.raises(RuntimeError, match="call fit"):
        mf.MFAUC().save(tmp_path / "m")
    assert not list(tmp_path.iterdir())


FULL = """
import resource, signal, sys
import mfauc_jax as mf
from mfauc_jax import Alternating, Minibatch, Watch, losses
model = mf.MFAUC.load(sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    model.save(sys.argv[1])
except OSError as error:
    print(error)
"""
KILLED = """
import sys, time
import mfauc_jax as mf
from mfauc_jax.serving import tensor_file
model = mf.MFAUC.load(sys.argv[1])
def slow(file, tensors, metadata):
    file.write(b"half of it")
    file.flush()
    print("writing", flush=True)
    time.sleep(60)
tensor_file.write = slow
model.save(sys.argv[1])
"""


def process(script, path):
    env = os.environ | {"PYTHONPATH": str(pathlib.Path(mf.__file__).parents[1])}
    return subprocess.Popen(
        [sys.executable, "-c", script, str(path)], env=env, text=True, stdout=subprocess.PIPE
    )


def test_a_full_disk_or_a_kill_leaves_the_old_file(good, tmp_path):
    path = tmp_path / "model"
    path.write_bytes(good.read_bytes())
    full, killed = process(FULL, path), process(KILLED, path)  # both at once: imports take long
    said, _ = full.communicate(timeout=120)
    assert f"cannot write {path}" in said and "what was there before is kept" in said
    assert killed.stdout is not None and killed.stdout.readline() == "writing\n"
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert path.read_bytes() == good.read_bytes()
    assert mf.MFAUC.load(path).stopped_ == "iterations"
