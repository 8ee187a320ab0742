"""A folder of checkpoints belongs to one fit, and a resumed fit is the uninterrupted one, to the bit."""

import functools
import os
import pathlib
import shutil
import signal
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import quiet

import mfauc_jax as mf
from mfauc_jax import (
    MFAUC,
    Alternating,
    Blockwise,
    Checkpoints,
    Continuation,
    Dense,
    FullBatch,
    Interactions,
    Minibatch,
    Sequential,
    Watch,
)
from mfauc_jax.data import splits
from mfauc_jax.data.digest import digest
from mfauc_jax.training import agreement

RNG = np.random.default_rng(0)
TASTE = RNG.normal(size=(24, 3)) @ RNG.normal(size=(3, 18)) + RNG.normal(size=(24, 18))
X = quiet(np.quantile(TASTE, 0.6, axis=1, keepdims=True) < TASTE)
TRAIN, HELD_OUT = splits.hold_out(jax.random.key(0), X, 2)
OTHER_TRAIN, OTHER_HELD_OUT = splits.hold_out(jax.random.key(1), X, 2)
MODEL = MFAUC(rank=3, loss="square_hinge", solver=Minibatch(9, learning_rate=0.5))


class KilledError(Exception):
    """Stands for a kill: nothing of the fit but its folder is left."""


def killed_at(iteration):
    def kill(s, factors, record):
        if s == iteration:
            raise KilledError

    return kill


def end(model):
    """Everything a fit leaves, without times."""
    history = [{k: v for k, v in r.items() if k != "seconds"} for r in model.history_]
    return model.user_factors_.tobytes(), model.item_factors_.tobytes(), history, model.stopped_


def swapped(dense):
    """The same row and column sums and another matrix: two users exchange an item each."""
    for a in range(len(dense)):
        for b in range(a):
            mine, theirs = np.flatnonzero(dense[a] > dense[b]), np.flatnonzero(dense[b] > dense[a])
            if len(mine) and len(theirs):
                dense = dense.copy()
                dense[[a, b], mine[0]], dense[[a, b], theirs[0]] = [0, 1], [1, 0]
                return dense
    raise AssertionError


DENSE = X.to_scipy().toarray()
WEIGHTED = DENSE * (1 + np.arange(18) % 3)


def named(users, items):
    rows, columns = np.nonzero(DENSE)
    return Interactions.from_pairs(np.asarray(users)[rows], np.asarray(items)[columns])


USERS, ITEMS = [f"u{i:02d}" for i in range(24)], [f"i{j:02d}" for j in range(18)]


def steep(x):
    return jnp.exp(-2.0 * x)


def flat(x):
    return jnp.exp(-1.0 * x)


flat.__name__ = "steep"


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        ((MODEL, X), (MODEL, quiet(swapped(DENSE))), "data = "),
        ((MODEL, X), (MODEL, quiet(DENSE[::-1])), "data = "),
        (
            (MODEL, quiet(WEIGHTED, confidence=True)),
            (MODEL, quiet(WEIGHTED[:, ::-1] * DENSE + DENSE, confidence=True)),
            "data = ",
        ),
        ((MODEL, named(USERS, ITEMS)), (MODEL, named(USERS, [*ITEMS[:-1], "z"])), "data = "),
        (
            (MODEL.with_params(loss=steep), X),
            (MODEL.with_params(loss=flat), X),
            r"loss = \{'give again': 'steep', 'formula'",
        ),
        (
            (MFAUC.paper("sigmoid", solver=Continuation(Minibatch(2), betas=(1.0, 2.0))), X),
            (MFAUC.paper("sigmoid", solver=Continuation(Minibatch(4), betas=(1.0, 2.0))), X),
            "iterations = 2, here 4",
        ),
        ((MODEL, X), (MODEL.with_params(seed=1), X), "seed = 0, here 1"),
    ],
    ids=["data", "order", "confidence", "ids", "function", "β series", "seed"],
)
def test_a_folder_belongs_to_one_fit(tmp_path, first, second, says):
    """Kills: a fingerprint of sizes, of names, or of settings that leave out T where it matters."""
    states = Checkpoints(tmp_path, every=1)
    first[0].with_params().fit(first[1], checkpoints=states)
    before = sorted(p.name for p in tmp_path.rglob("*"))
    with pytest.raises(ValueError, match=f"holds another fit .{says}"):
        second[0].with_params().fit(second[1], checkpoints=states)
    assert sorted(p.name for p in tmp_path.rglob("*")) == before


def test_a_folder_belongs_to_its_validation_and_its_float_type(tmp_path):
    states = Checkpoints(tmp_path, every=1)
    fit = functools.partial(MODEL.with_params().fit, checkpoints=states)
    fit(TRAIN, HELD_OUT, watch=Watch(patience=3))
    for validation, watch, says in (
        (OTHER_HELD_OUT, Watch(patience=3), "validation = "),
        (HELD_OUT, Watch(patience=4), "watch = "),
        (None, None, "watch = .*, here None"),
    ):
        held_out = validation
        if validation is OTHER_HELD_OUT:  # positives that TRAIN does not have
            kept = validation.to_scipy().toarray() * (1 - TRAIN.to_scipy().toarray())
            held_out = quiet(kept)
        with pytest.raises(ValueError, match=f"holds another fit .{says}"):
            fit(TRAIN, held_out, watch=watch)
    with jax.enable_x64(False), pytest.raises(ValueError, match="float = float64, here float32"):
        narrow = Interactions.of(TRAIN.to_scipy())
        MODEL.with_params().fit(
            narrow,
            Interactions.of(HELD_OUT.to_scipy()),
            watch=Watch(patience=3),
            checkpoints=states,
        )


def test_fewer_iterations_than_the_folder_holds(tmp_path):
    """Kills: six iterations returned for a request of three."""
    states = Checkpoints(tmp_path, every=1, keep=2)
    MODEL.with_params(solver__iterations=6).fit(X, checkpoints=states)
    with pytest.raises(ValueError, match="states of iterations 5, 6, and iterations = 3: ask for"):
        MODEL.with_params(solver__iterations=3).fit(X, checkpoints=states)
    five = MODEL.with_params(solver__iterations=5)
    assert end(five.with_params().fit(X, checkpoints=states)) == end(five.fit(X))


WATCHED = {
    "nothing": {},
    "patience": {"validation": HELD_OUT, "watch": Watch(patience=1)},
    "records": {
        "validation": HELD_OUT,
        "watch": Watch(metric="ndcg@5", validate_every=2, record_every=3),
    },
    "tolerance": {"watch": Watch(tolerance=0.3)},
}


@pytest.mark.parametrize("watched", WATCHED)
@pytest.mark.parametrize("every", [1, 2])
def test_a_fit_that_is_killed_anywhere_ends_as_if_it_had_not_been(tmp_path, watched, every):
    """Kills: best factors, patience or objectives that are not in the state; a verdict that a resume skips."""
    given = WATCHED[watched]
    whole = end(MODEL.with_params(solver__iterations=12).fit(TRAIN, **given))
    length = len(whole[2])
    assert (length < 12) == (watched in ("patience", "tolerance"))
    for s in range(1, length + 1):
        states = Checkpoints(tmp_path / str(s), every=every)
        model = MODEL.with_params(solver__iterations=12)
        with pytest.raises(KilledError):
            model.fit(TRAIN, **given, checkpoints=states, callbacks=[killed_at(s)])
        resumed = model.with_params()
        assert end(resumed.fit(TRAIN, **given, checkpoints=states)) == whole
        assert end(resumed.fit(TRAIN, **given, checkpoints=states)) == whole  # the same call twice


@pytest.mark.parametrize(
    "solver",
    [
        Alternating(5),
        Sequential(4),
        FullBatch(5),
        Blockwise(5, blocks=2),
        Continuation(Minibatch(6), betas=(1.0, 2.0, 4.0)),
        Dense(5),
    ],
    ids=lambda solver: solver.name,
)
def test_every_solver_resumes_with_validation(tmp_path, solver):
    loss = "square" if isinstance(solver, Alternating) else "sigmoid"
    model = MFAUC(rank=3, loss=loss, penalty=mf.Fixed(), solver=solver)
    if isinstance(solver, Dense):
        model.set_params(loss="exponential", weighting="log", penalty=mf.UnitRows())
    given = {"validation": HELD_OUT, "watch": Watch(patience=3, record_every=2)}
    whole = end(model.fit(TRAIN, **given))
    states = Checkpoints(tmp_path, every=2)
    with pytest.raises(KilledError):
        model.with_params().fit(TRAIN, **given, checkpoints=states, callbacks=[killed_at(3)])
    assert end(model.with_params().fit(TRAIN, **given, checkpoints=states)) == whole


def test_a_callback_that_stopped_a_fit_is_asked_again(tmp_path):
    """Kills: a resumed fit that runs past the stop, or that can never go on."""
    asked = []

    def stop(s, factors, record):
        asked.append(s)
        return s == 3

    states = Checkpoints(tmp_path, every=10)
    first = end(MODEL.with_params().fit(X, checkpoints=states, callbacks=[stop]))
    assert first[3] == "callback" and asked == [1, 2, 3]
    assert end(MODEL.with_params().fit(X, checkpoints=states, callbacks=[stop])) == first
    assert asked == [1, 2, 3, 3]
    assert end(MODEL.with_params().fit(X, checkpoints=states)) == end(MODEL.with_params().fit(X))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_fit_after_its_iteration_and_keeps_the_state(tmp_path, number):
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]

    def interrupt(s, factors, record):
        if s == 4:
            os.kill(os.getpid(), number)

    states = Checkpoints(tmp_path, every=100)
    model = MODEL.with_params().fit(X, checkpoints=states, callbacks=[interrupt])
    assert model.stopped_ == "interrupted" and len(model.history_) == 4
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before
    whole = MODEL.with_params().fit(X)
    assert end(MODEL.with_params().fit(X, checkpoints=states)) == end(whole)


def test_a_handler_of_the_application_is_left_alone():
    noted = []
    before = signal.signal(signal.SIGTERM, lambda *_: noted.append(1))
    try:
        kill = lambda s, f, r: s == 2 and os.kill(os.getpid(), signal.SIGTERM)  # noqa: E731
        model = MODEL.with_params().fit(X, callbacks=[kill])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert noted == [1] and model.stopped_ == "iterations"


def test_a_second_control_c_ends_the_fit_at_once_and_loses_no_iteration(tmp_path):
    def twice(s, factors, record):
        if s == 4:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    states = Checkpoints(tmp_path, every=100)
    model = MODEL.with_params().fit(X, checkpoints=states, callbacks=[twice])
    assert model.stopped_ == "interrupted" and len(model.history_) == 4
    assert end(MODEL.with_params().fit(X, checkpoints=states)) == end(MODEL.with_params().fit(X))


def damaged(path: pathlib.Path, rng) -> None:
    """Flip a bit, cut, empty or remove a file."""
    content = bytearray(path.read_bytes())
    kind = rng.integers(4) if content else 3
    if kind == 0:
        content[rng.integers(len(content))] ^= 1 << rng.integers(8)
        path.write_bytes(content)
    elif kind in (1, 2):
        path.write_bytes(content[: rng.integers(len(content)) * (kind == 1)])
    else:
        path.unlink()


def test_a_damaged_newest_state_is_noticed_and_the_one_before_is_used(tmp_path):
    """Kills: restoring without a checksum, and giving up although an older state is whole."""
    given = {"validation": HELD_OUT, "watch": Watch()}
    whole, home = end(MODEL.fit(TRAIN, **given)), tmp_path / "home"
    states = Checkpoints(home, every=2)
    with pytest.raises(KilledError):
        MODEL.with_params().fit(TRAIN, **given, checkpoints=states, callbacks=[killed_at(7)])
    files = sorted(p for p in (home / "6").rglob("*") if p.is_file())
    rng, warned = np.random.default_rng(0), 0
    for trial in range(2 * len(files)):
        folder = tmp_path / str(trial)
        shutil.copytree(home, folder)
        damaged(folder / files[trial % len(files)].relative_to(home), rng)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            model = MODEL.with_params().fit(
                TRAIN, **given, checkpoints=Checkpoints(folder, every=2)
            )
        assert end(model) == whole
        warned += any("iteration 6 is damaged" in str(w.message) for w in said)
        assert any("goes on from iteration 4" in str(w.message) for w in said) or not said
        again = MODEL.with_params().fit(TRAIN, **given, checkpoints=Checkpoints(folder, every=2))
        assert end(again) == whole
    assert warned > len(files) / 3  # much of what orbax writes is never read


def test_a_folder_without_a_whole_state_is_refused(tmp_path):
    states = Checkpoints(tmp_path, every=2)
    MODEL.with_params().fit(X, checkpoints=states)
    for path in tmp_path.rglob("*"):
        if path.is_file():
            path.write_bytes(b"")
    with pytest.raises(ValueError, match="no state can be read .* delete the folder"):
        MODEL.with_params().fit(X, checkpoints=states)


def test_a_digest_knows_the_places_the_confidences_and_the_ids():
    """Kills: digests of sorted values, of sizes, or of a prefix."""
    data = [X, quiet(DENSE[::-1]), quiet(DENSE[:, ::-1]), quiet(swapped(DENSE))]
    data += [quiet(WEIGHTED, confidence=True), named(USERS, ITEMS), named(USERS[::-1], ITEMS)]
    data += [named(range(24), range(18)), named(range(1, 25), range(18))]
    data += [quiet(np.pad(DENSE, pad)) for pad in (((0, 1), (0, 0)), ((0, 0), (0, 1)))]
    found = [digest(one) for one in data]
    assert len(set(found)) == len(data)
    assert digest(quiet(DENSE)) == found[0] and all(len(one) == 32 for one in found)


def test_what_is_no_watch_and_no_folder_is_named():
    with pytest.raises(TypeError, match="watch = 'auc' must be a Watch, such as Watch"):
        agreement.ready(MODEL.describe, MODEL.solver, X, None, "auc")
    with pytest.raises(TypeError, match="Checkpoints: folder = 7 must be a path"):
        agreement.ready(MODEL.describe, MODEL.solver, X, None, None, 7)
