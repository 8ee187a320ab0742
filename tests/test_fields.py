"""Settings: what is declared of a field is checked at construction, and everything else follows from it."""

import json
import math
import pathlib
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import sklearn.base
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mfauc_jax as mf
from mfauc_jax import MFAUC, losses, weightings
from mfauc_jax._core import fields
from mfauc_jax._core.fields import Spec
from mfauc_jax._core.settings import FAMILIES, GIVE_AGAIN, Settings, from_description
from mfauc_jax.baselines.pairwise import Descent
from mfauc_jax.evaluation import formulas
from mfauc_jax.objective.penalties import Penalty
from mfauc_jax.solvers import base
from mfauc_jax.solvers.minibatch import Sampled

CLASSES = [cls for cls in FAMILIES if cls.__module__.startswith("mfauc_jax.")] + [Descent, MFAUC]
GIVEN = {mf.Checkpoints: {"folder": "states"}}  # what has no default
NAMES = {**vars(mf), **vars(losses), **vars(weightings), "Descent": Descent, "partial": partial}
FIELDS = [(cls, name, spec) for cls in CLASSES for name, spec in cls.specs().items()]
NUMBERS = ("number", "count", "size", "series")
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the `random` module")  # beartype does


def each(*columns):
    """One test per class and field."""
    return pytest.mark.parametrize(
        columns, FIELDS, ids=lambda of: getattr(of, "__name__", of if isinstance(of, str) else "")
    )


def make(cls, **given):
    return cls(**(GIVEN.get(cls, {}) | given))


def test_every_class_of_the_library_is_here():
    parts = {type(part) for name, part in vars(mf).items() if isinstance(part, Settings)}
    public = {
        cls for cls in vars(mf).values() if isinstance(cls, type) and issubclass(cls, Settings)
    }
    assert public | parts <= set(CLASSES) and len(CLASSES) >= 22
    assert {spec.kind for _, _, spec in FIELDS} == {*NUMBERS, "flag", "text", "choice", "part"}
    assert all(spec.help for _, _, spec in FIELDS)


# what is refused


def soft(x, beta=1.0, shift=0.0):
    return jnp.logaddexp(0.0, -beta * (x - shift))


def two(a, b):
    return a + b


def nothing():
    return 0.0


NOT_FUNCTIONS = (print, two, nothing, math.sin, str.upper, "".join)  # of one number, or of α
GARBAGE = (
    "",
    "nonsense",
    "1",
    "None",
    b"auto",
    b"",
    True,
    False,
    math.nan,
    math.inf,
    -math.inf,
    np.float32("nan"),
    -1,
    -1e-9,
    0.5,
    1e300,
    10**400,
    -(10**400),
    2**31,
    1j,
    np.array([0.5]),
    np.array(["a"]),
    np.datetime64("2020"),
    np.bool_(True),
    (),
    [],
    {},
    {"name": "square"},
    [1.0, 0.5],
    (1.0, "2"),
    (1.0, 1.0),
    (1.0, math.nan),
    (0.0, 1.0),
    {1, 2},
    range(3),
    object(),
    object,
    float,
    Exception("no"),
    ...,
    None,
    losses.Loss(),
    losses.Loss,
    weightings.Weighting(),
    Penalty(),
    base.Solver(),
    base.Solver,
    base.Start,
    Sampled(),
    Sampled,
    Settings,
    optax.adam(0.1),
    *NOT_FUNCTIONS,
)


def belongs(spec: Spec, value) -> bool:
    """Whether the declaration allows a value, said once more and in other words."""
    if value is None:
        return spec.optional
    if spec.kind == "flag":
        return isinstance(value, bool | np.bool_)
    if spec.kind == "text":
        return isinstance(value, pathlib.Path) or (isinstance(value, str) and value != "")
    if spec.kind == "series":
        rising = isinstance(value, list | tuple) and len(value) > 0
        rising = rising and all(is_number(spec, one, float) for one in value)
        return rising and list(value) == sorted(set(value))
    if spec.kind in NUMBERS:
        return is_number(spec, value, float if spec.kind == "number" else int)
    if isinstance(value, str):
        return value in spec.others or value in (spec.choices or spec.base.registry)
    if spec.probe is formulas.not_a_metric:  # which is not called before there are counts
        return any(
            value is function for function in NOT_FUNCTIONS if function not in (two, nothing)
        )
    if spec.kind == "choice":
        return False
    kind = value if isinstance(value, type) else type(value)
    concrete = kind not in (spec.base, Sampled) or spec.base in CLASSES
    return issubclass(kind, spec.base) and concrete


def is_number(spec: Spec, value, kind) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return False
    if kind is int and isinstance(value, float | np.floating):
        return False
    if not abs(value) < math.inf:
        return False
    low = -math.inf if spec.least is None else spec.least
    high = math.inf if spec.most is None else spec.most
    return low <= value <= high and (spec.above is None or spec.above < value)


def refused(cls, name, value):
    """The error, which must tell class, field, value and bound."""
    with pytest.raises((TypeError, ValueError)) as caught:
        make(cls, **{name: value})
    said = str(caught.value)
    assert said.startswith(f"{cls.__name__}: {name} = {value!r} must be {cls.specs()[name].bounds}")
    return said


@each("cls", "name", "spec")
def test_values_beyond_each_bound_are_refused(cls, name, spec):
    whole = spec.kind in ("count", "size")
    beyond = []
    if spec.least is not None:
        beyond.append(spec.least - 1 if whole else math.nextafter(spec.least, -math.inf))
    if spec.above is not None:
        beyond += [float(spec.above), spec.above - 1e-300, -1.0]
    if spec.most is not None:
        beyond.append(spec.most + 1 if whole else math.nextafter(spec.most, math.inf))
    assert bool(beyond) == (spec.kind in NUMBERS)
    for value in beyond:
        limits = (spec.least, spec.above, spec.most)
        said = refused(cls, name, (value,) if spec.kind == "series" else value)
        assert any(f" {n:g}" in said or f" {n}" in said for n in limits if n is not None)
        if spec.most is not None and value > spec.most:
            assert f"≤ {spec.most}" in said or f"≤ {spec.most:g}" in said


@each("cls", "name", "spec")
def test_garbage_is_refused(cls, name, spec):
    wrong = [value for value in GARBAGE if not belongs(spec, value)]
    wrong += [
        part
        for part in (other() for other in CLASSES if other is not mf.Checkpoints)
        if not belongs(spec, part)
    ]  # objects of another family
    assert len(wrong) > 40
    for value in wrong:
        refused(cls, name, value)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (
            lambda: mf.Minibatch(batch=-1),
            ValueError,
            "Minibatch: batch = -1 must be a whole number ≥ 1 or None",
        ),
        (
            lambda: mf.Minibatch(batch=10**12),
            ValueError,
            "Minibatch: batch = 1000000000000 must be a whole number ≥ 1 or None (and ≤ 2147483647)",
        ),
        (
            lambda: mf.Minibatch(learning_rate=1e9),
            ValueError,
            "Minibatch: learning_rate = 1000000000.0 must be a finite number > 0 and ≤ 1e+06",
        ),
        (
            lambda: mf.Fixed(reg=math.nan),
            ValueError,
            "Fixed: reg = nan must be a finite number ≥ 0 and ≤ 1e+06",
        ),
        (
            lambda: mf.Fixed(reg="big"),
            TypeError,
            "Fixed: reg = 'big' must be a finite number ≥ 0 and ≤ 1e+06",
        ),
        (
            lambda: mf.Continuation(betas=(2.0, 1.0)),
            ValueError,
            "Continuation: betas = (2.0, 1.0) must be a rising tuple, each a finite number > 0 and ≤ 1e+06",
        ),
        (
            lambda: mf.Sequential(step_rule="row"),
            ValueError,
            "Sequential: step_rule = 'row' must be one of rows, unit, thousand, plain (did you mean 'rows'?)",
        ),
        (
            lambda: mf.Sequential(stratified=1),
            TypeError,
            "Sequential: stratified = 1 must be True or False",
        ),
        (lambda: mf.Checkpoints(), TypeError, "Checkpoints: folder = None must be a path"),
        (
            lambda: MFAUC(weights=3),
            TypeError,
            "MFAUC: weights = 3 must be an object of the class Weights",
        ),
        (
            lambda: MFAUC(loss=weightings.Tanh()),
            TypeError,
            "MFAUC: loss = Tanh() must be one of square_hinge, square, sigmoid, logistic, exponential (or an object of the family Loss)",
        ),
        (lambda: MFAUC(loss=two), TypeError, "two cannot be evaluated on a number: "),
        (lambda: MFAUC(loss=print), TypeError, "print(0.0) is None: it must be one real number"),
        (lambda: mf.Minibatch(optimiser=print), TypeError, "(or α → optax.GradientTransformation)"),
        (
            lambda: MFAUC(loss="logistic", solver="alternating"),
            ValueError,
            "the alternating solver minimises the square loss, not logistic: use solver='minibatch' or 'full_batch'",
        ),
        (
            lambda: MFAUC(solver=mf.Continuation()),
            ValueError,
            "the loss square has no β to raise: use sigmoid or logistic",
        ),
        (
            lambda: MFAUC(loss="logistic", solver=mf.Continuation(mf.Continuation())),
            ValueError,
            "a Continuation ignores the betas of Continuation() inside it",
        ),
        (
            lambda: MFAUC(loss=lambda x: -x, weighting="tanh"),
            ValueError,
            "tanh needs a loss that is never negative, but <lambda> reaches -50",
        ),
        (
            lambda: MFAUC(reg=0.1),
            TypeError,
            "MFAUC has no field 'reg' (reg=0.1): it belongs to Fixed(reg=0.1)",
        ),
        (
            lambda: MFAUC(patience=3),
            TypeError,
            "MFAUC has no field 'patience' (patience=3): it belongs to Watch(patience=3)",
        ),
        (
            lambda: mf.Minibatch(learning_rat=1.0),
            TypeError,
            "Minibatch has no field 'learning_rat' (learning_rat=1.0): did you mean 'learning_rate'? choose from",
        ),
        (
            lambda: mf.Alternating(learning_rate=1.0),
            TypeError,
            "it belongs to Minibatch(learning_rate=1.0), Blockwise(learning_rate=1.0), Dense(learning_rate=1.0), Sequential(",
        ),
        (lambda: mf.Minibatch(1, iterations=2), TypeError, "multiple values for argument"),
        (lambda: mf.Averaging(1, 2.0, 3, 4), TypeError, "positional arguments"),
        (lambda: mf.Fixed(reg=jax.random.key(0)), TypeError, "Fixed: reg = Array("),
    ],
)
def test_what_errors_say(call, error, says):
    with pytest.raises(error) as caught:
        call()
    assert says in str(caught.value)


GARBAGE_OF_ANY_SIZE = st.one_of(
    st.sampled_from(GARBAGE),
    st.sampled_from([make(cls) for cls in CLASSES]),
    st.text(max_size=8),
    st.binary(max_size=8),
    st.booleans(),
    st.floats(),
    st.floats(max_value=0.0),
    st.integers(),
    st.integers(min_value=2**31),
    st.complex_numbers(),
    st.lists(st.floats(), max_size=3),
    st.lists(st.text(max_size=3), max_size=3).map(tuple),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    st.builds(object),
    st.builds(np.array, st.lists(st.floats(), min_size=1, max_size=3)),
)


def is_wrong(spec, value):
    return not belongs(spec, value)


def is_no_field(cls, name):
    return name not in cls.specs()


WORDS = st.from_regex(r"[a-z][a-z_]{0,12}", fullmatch=True)


WRONG = {
    (cls, name): GARBAGE_OF_ANY_SIZE.filter(partial(is_wrong, spec)) for cls, name, spec in FIELDS
}
OTHERS = {
    cls: st.sampled_from(sorted({name for _, name, _ in FIELDS} - cls.specs().keys()))
    | WORDS.filter(partial(is_no_field, cls))
    for cls in CLASSES
}


@st.composite
def nonsense(draw):
    """A class, arguments of which at least one is wrong, and which are."""
    cls = draw(st.sampled_from(CLASSES))
    names = sorted(cls.specs())
    if not names or draw(st.integers(0, 4)) == 0:
        return cls, {draw(OTHERS[cls]): draw(GARBAGE_OF_ANY_SIZE)}, []
    wrong = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
    return cls, {name: draw(WRONG[cls, name]) for name in wrong}, wrong


@settings(max_examples=2000, suppress_health_check=list(HealthCheck))
@given(nonsense())
def test_no_nonsense_is_accepted(example):
    cls, arguments, wrong = example
    with pytest.raises((TypeError, ValueError)) as caught:
        make(cls, **arguments)
    said = str(caught.value)
    if wrong:
        assert any(said.startswith(f"{cls.__name__}: {n} = {arguments[n]!r} must") for n in wrong)
    else:
        (name,) = arguments
        assert said.startswith(f"{cls.__name__} has no field {name!r} ({name}=")


# what is accepted


def accepted(cls, spec):
    """Values of a field that belong."""
    if spec.kind in NUMBERS:
        whole = spec.kind in ("count", "size")
        low = spec.least if spec.above is None else math.nextafter(spec.above, math.inf)
        found = [spec.most, 3 if whole else 0.7, *([] if low is None else [low])]
        if spec.kind == "series":
            found = [(low, 0.5, spec.most), [1, 2], (0.25,)]
        else:
            found += [np.int32(3), np.uint8(4), jnp.asarray(5), np.asarray(6)]
            found += [] if whole else [2, np.float32(0.5), jnp.asarray(1.5), np.float64(0.25)]
        if spec.kind != "series" and spec.least is not None:
            found = [value for value in found if value >= spec.least]
    elif spec.kind == "flag":
        found = [True, False, np.bool_(True)]
    elif spec.kind == "text":
        found = ["a/b", pathlib.Path("c")]
    elif spec.kind == "choice":
        found = [name for name in spec.choices if name in spec.choices]
        found += [spec.choices[name] for name in found]
        found += [lambda value: optax.sgd(0.1)] if spec.probe else []
    else:
        own = dict(spec.base.registry)
        if cls is MFAUC and spec.base is base.Solver:  # whose loss is the square
            del own["continuation"]
        if cls is MFAUC and spec.base is weightings.Weighting:  # the pure log refuses the square
            del own["log"]
        found = [*own, *own.values(), *(part() for part in own.values()), *spec.others]
        found += [] if own else [spec.base, spec.base()]
        found += [soft, partial(soft, beta=2.0)] if spec.base is losses.Loss else []
    return found + ([None] if spec.optional else [])


@each("cls", "name", "spec")
def test_good_values_are_accepted_and_kept_plain(cls, name, spec):
    found = accepted(cls, spec)
    assert len(found) >= 2
    for value in found:
        kept = getattr(make(cls, **{name: value}), name)
        if value is None:
            assert kept is None
        elif spec.kind == "series":
            assert type(kept) is tuple and {type(one) for one in kept} == {float}
            assert list(kept) == [float(one) for one in value]
        elif spec.kind in NUMBERS:
            assert type(kept) is (float if spec.kind == "number" else int) and kept == value
        elif spec.kind == "flag":
            assert kept is bool(value)
        elif spec.kind == "text":
            assert kept == str(value)
        elif spec.kind == "part":
            assert isinstance(kept, spec.base) or kept in spec.others
        else:
            assert kept == value or spec.choices[kept] is value


@pytest.mark.parametrize("cls", CLASSES)
def test_defaults_belong_and_show_nothing(cls):
    made = make(cls)
    given = ", ".join(f"{name}={value!r}" for name, value in GIVEN.get(cls, {}).items())
    assert repr(made) == f"{cls.__name__}({given})"
    assert set(made.changed()) == set(GIVEN.get(cls, {}))
    for name, spec in cls.specs().items():
        assert belongs(spec, getattr(made, name))


def good_values(spec: Spec):
    """A strategy of values that belong, other settings among them."""
    if spec.kind in ("number", "series"):
        low = spec.least if spec.above is None else spec.above
        one = st.floats(low, spec.most, exclude_min=spec.above is not None)
        if spec.kind == "series":
            return st.lists(one, min_size=1, max_size=3, unique=True).map(sorted).map(tuple)
        found = one
    elif spec.kind in ("count", "size"):
        found = st.integers(spec.least, spec.most)
    elif spec.kind == "flag":
        found = st.booleans()
    elif spec.kind == "text":
        found = st.text(min_size=1, max_size=9)
    elif spec.kind == "choice":
        names = [name for name in spec.choices if name in spec.choices]
        found = st.sampled_from([*names, "precision@3"] if "auc" in names else names)
    else:
        family = [cls for cls in CLASSES if issubclass(cls, spec.base)]
        found = st.sampled_from(family).flatmap(good_settings)
    return st.none() | found if spec.optional else found


def good_settings(cls):
    some = {n: good_values(s) for n, s in cls.specs().items() if n not in GIVEN.get(cls, {})}
    all_of = {n: good_values(cls.specs()[n]) for n in GIVEN.get(cls, {})}
    if cls is mf.Continuation:  # one inside the other is refused where it is used
        some["inner"] = st.sampled_from([mf.Minibatch, mf.FullBatch]).flatmap(good_settings)
    return st.fixed_dictionaries(all_of, optional=some).map(lambda given: cls(**given))


@st.composite
def good_models(draw):
    given = {"loss": draw(st.sampled_from(["sigmoid", "logistic", "square"]))}
    optional = {n: good_values(s) for n, s in MFAUC.specs().items() if n not in ("loss", "solver")}
    solvers = [mf.Minibatch, mf.Sequential, mf.FullBatch, mf.Blockwise]
    solvers += [mf.Alternating] if given["loss"] == "square" else [mf.Continuation]
    optional["solver"] = st.just("auto") | st.sampled_from(solvers).flatmap(good_settings)
    given |= draw(st.fixed_dictionaries({}, optional=optional))
    if isinstance(given.get("penalty"), mf.UnitRows):  # few solvers keep unit rows
        given["solver"] = draw(st.sampled_from([mf.Dense, mf.FullBatch]).flatmap(good_settings))
    if isinstance(given.get("weighting"), weightings.Log):  # the pure log wants a loss above 0
        given["weighting"] = weightings.Log(c=2.0)
    return MFAUC(**given)


ANY = st.sampled_from([cls for cls in CLASSES if cls is not MFAUC]).flatmap(good_settings)
MANY = settings(max_examples=150, suppress_health_check=list(HealthCheck))


@MANY
@given(ANY | good_models())
def test_repr_is_pasted_back(made):
    again = eval(repr(made), dict(NAMES))
    assert again == made and type(again) is type(made) and repr(again) == repr(made)


@MANY
@given(ANY | good_models())
def test_a_description_is_json_that_reads_back(made):
    told = json.loads(json.dumps(made.describe()))
    specs = type(made).specs()
    assert set(told) == set(specs)
    if isinstance(made, MFAUC):
        again = MFAUC(**{name: from_description(specs[name], told[name]) for name in told})
    else:
        family = next((c for c in type(made).__mro__ if c.__dict__.get("abstract")), type(made))
        family = family if family is not Settings else type(made)
        again = from_description(Spec("part", "", base=family), {"name": made.name, **told})
    assert again == made


@MANY
@given(ANY | good_models())
def test_scikit_learn_clones_it(made):
    twin = sklearn.base.clone(made)
    assert twin == made and twin is not made and type(twin) is type(made)


@MANY
@given(ANY)
def test_a_settings_is_a_pytree_of_its_numbers(made):
    leaves, structure = jax.tree.flatten(made)
    assert jax.tree.unflatten(structure, leaves) == made
    assert {type(leaf) for leaf in leaves} <= {float, int}
    traced = [v for n, v in made.get_params().items() if type(v) is float]
    assert all(value in leaves for value in traced)  # every number may be traced
    hash(structure)
    same = made.replace()
    assert same == made and hash(same) == hash(made) and same is not made


def test_numbers_are_leaves_and_sizes_are_static():
    solver = mf.Minibatch(learning_rate=0.2, batch=7)
    paths = jax.tree_util.tree_flatten_with_path(solver)[0]
    told = {jax.tree_util.keystr(path): leaf for path, leaf in paths}
    assert told == {
        ".iterations": 40,
        ".learning_rate": 0.2,
        ".average.start": 0,
        ".average.eta": 3.0,
    }
    doubled = jax.tree.map(lambda leaf: 2 * leaf, solver)
    assert doubled == mf.Minibatch(80, 0.4, batch=7, average=mf.Averaging(0, 6.0))
    assert jax.tree.structure(solver) == jax.tree.structure(doubled)
    for other in (solver.replace(batch=8), solver.replace(optimiser="adam"), mf.Blockwise(batch=7)):
        assert jax.tree.structure(solver) != jax.tree.structure(other)
    batched = jax.vmap(lambda rate: solver.replace(learning_rate=rate).learning_rate * 2)
    np.testing.assert_allclose(batched(jnp.array([0.1, 0.2])), [0.2, 0.4])


def test_other_numbers_do_not_compile_again_and_other_sizes_do():
    traces = []

    @jax.jit
    def program(solver):
        traces.append(1)
        return solver.learning_rate * jnp.ones(solver.num_neg).sum()

    for rate in (0.1, 0.2, 0.4):
        assert float(program(mf.Minibatch(learning_rate=rate))) == pytest.approx(20 * rate)
    assert len(traces) == 1
    assert float(program(mf.Minibatch(learning_rate=0.1, num_neg=5))) == pytest.approx(0.5)
    assert len(traces) == 2
    program(mf.Minibatch(iterations=3, average=mf.Averaging(start=9, eta=0.0)))
    assert len(traces) == 2
    program(mf.Minibatch(average=mf.Averaging(since=1)))  # a number in the place of None
    assert len(traces) == 3


def test_equality_is_of_class_and_every_field():
    assert losses.Sigmoid(beta=2.0) == losses.Sigmoid(beta=2.0) != losses.Sigmoid(beta=3.0)
    assert losses.Sigmoid(beta=2.0) != losses.Logistic(beta=2.0)
    assert mf.Averaging(since=0) != mf.Averaging()
    assert mf.Minibatch(average=mf.Averaging(2)) != mf.Minibatch() != "minibatch"
    assert len({mf.Fixed(), mf.Fixed(), mf.Fixed(reg=0.1), mf.Fixed(reg=0.2), mf.Auto()}) == 3
    assert MFAUC() == MFAUC() != MFAUC(seed=1)
    assert MFAUC(penalty=mf.Fixed()) != MFAUC() != 3
    with pytest.raises(TypeError, match="unhashable"):
        hash(MFAUC())  # its fields may change


def test_settings_are_frozen():
    for made in (make(cls) for cls in CLASSES if cls is not MFAUC and cls.specs()):
        for name in type(made).specs():
            with pytest.raises(AttributeError, match="cannot assign to field"):
                setattr(made, name, getattr(made, name))


# the model


def test_a_loss_by_name_class_or_object_is_the_same_model():
    models = [MFAUC(loss=loss) for loss in ("square", losses.square, losses.Square)]
    assert all(model == models[0] for model in models) and repr(models[2]) == "MFAUC()"
    assert [model.chosen_solver for model in models] == [mf.Alternating()] * 3
    steep = MFAUC(loss="logistic"), MFAUC(loss=losses.Logistic), MFAUC(loss=losses.Logistic(beta=1))
    assert steep[0] == steep[1] == steep[2] and steep[0].chosen_solver == mf.Minibatch()


def test_get_params_nests_as_scikit_learn_does():
    model = MFAUC(loss=losses.Logistic(beta=2.0), solver=mf.Continuation(mf.Minibatch(batch=9)))
    flat, deep = model.get_params(deep=False), model.get_params()
    assert set(flat) == set(MFAUC.specs()) and flat.items() <= deep.items()
    assert deep["loss__beta"] == 2.0 and deep["solver__betas"] == (1.0, 2.0, 4.0)
    assert deep["solver__inner__batch"] == 9 and deep["solver__inner__average__eta"] == 3.0
    assert MFAUC().set_params(**flat) == model
    assert MFAUC().set_params(**deep) == model


def test_set_params_reaches_every_part():
    model = MFAUC().set_params(rank=7, penalty__strength=0.2, weights__tau=0.0, start__scale=0.5)
    assert model.penalty == mf.Auto(strength=0.2) and model.weights == mf.Weights(tau=0.0)
    assert model.rank == 7 and model.start == mf.Gaussian(0.5)
    assert MFAUC().set_params(solver__iterations=3).solver == mf.Alternating(3)  # auto's choice
    changed = MFAUC().set_params(solver__learning_rate=0.5, loss__beta=2.0, loss="sigmoid")
    assert changed.solver == mf.Minibatch(learning_rate=0.5)  # auto's choice for the new loss
    assert changed.loss == losses.Sigmoid(beta=2.0)
    nested = changed.with_params(
        solver="continuation", solver__inner="blockwise", solver__inner__average__start=4
    )
    assert nested.solver == mf.Continuation(mf.Blockwise(average=mf.Averaging(4)))
    assert changed.solver == mf.Minibatch(learning_rate=0.5)  # with_params changed a copy
    assert MFAUC.paper(solver__iterations=4, seed=3).solver == mf.Sequential(4)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"rank": 5, "seed": -1}, "seed = -1"),
        ({"rank": 5, "solver__nope": 1}, "Minibatch has no field 'nope'"),
        ({"rank": 5, "nope": 1}, "MFAUC has no field 'nope'"),
        ({"rank": 5, "nope__nope": 1}, "MFAUC has no field 'nope'"),
        ({"rank": 5, "rank__nope": 1}, "rank = 5 has no fields of its own"),
        ({"rank": 5, "solver": "alternating"}, "square loss, not logistic"),
        ({"weighting": "tanh", "loss": lambda x: -x}, "never negative"),
        ({"loss__beta": 3.0, "penalty__reg": -1.0}, "Fixed: reg = -1.0"),
        ({"loss": "square", "solver__average__eta": math.nan}, "eta = nan"),
        ({"penalty": "auto", "penalty__reg": 0.1}, "Auto has no field 'reg'"),
        ({"penalty__strength": 0.1}, "it belongs to Auto(strength=0.1)"),
    ],
)
def test_set_params_changes_everything_or_nothing(changes, says):
    model = MFAUC(loss="logistic", penalty=mf.Fixed(), solver=mf.Minibatch(batch=3))
    before, shown = model.get_params(), repr(model)
    for change in (model.set_params, model.with_params):
        with pytest.raises((TypeError, ValueError)) as caught:
            change(**changes)
        assert says in str(caught.value)
        assert model.get_params() == before and repr(model) == shown


def test_a_field_is_checked_whenever_it_is_set():
    model = MFAUC(solver="alternating")
    with pytest.raises(ValueError, match="MFAUC: rank = 0"):
        model.rank = 0
    assert model.rank == 64
    model.loss = "logistic"  # one by one they may pass through what does not go together,
    with pytest.raises(ValueError, match="square loss, not logistic"):
        model.fit(np.eye(4))  # which is never fitted
    model.solver = "minibatch"
    assert model.chosen_solver == mf.Minibatch()


# functions of one's own


def square(x):
    """Not the library's."""
    return (x - 2.0) ** 2


def test_a_function_becomes_a_loss_whose_defaults_are_numbers():
    model = MFAUC(loss=partial(soft, beta=2.0))
    assert model.get_params()["loss__beta"] == 2.0 and model.loss.shift == 0.0
    assert float(model.loss(0.5)) == pytest.approx(math.log1p(math.exp(-1.0)))
    assert model == MFAUC(loss=soft).set_params(loss__beta=2.0) != MFAUC(loss=soft)
    assert repr(model) == "MFAUC(loss=partial(soft, beta=2.0))"
    assert repr(MFAUC(loss=soft)) == "MFAUC(loss=soft)"
    for made in (model, MFAUC(loss=soft), MFAUC(solver=mf.Minibatch(optimiser=clipped))):
        assert eval(repr(made), NAMES | {"soft": soft, "clipped": clipped}) == made
        assert sklearn.base.clone(made) == made
    assert model.describe()["loss"] == {GIVE_AGAIN: "soft"}
    traces = []
    run = jax.jit(lambda loss: (traces.append(1), loss(0.5))[1])
    for beta in (1.0, 2.0):
        run(MFAUC(loss=partial(soft, beta=beta)).loss)
    assert len(traces) == 1


def clipped(learning_rate):
    return optax.chain(optax.clip(1.0), optax.sgd(learning_rate))


def test_a_function_called_as_a_known_loss_is_not_taken_for_it():
    model = MFAUC(loss=square)
    assert model != MFAUC(loss="square") and model.chosen_solver == mf.Minibatch()
    assert model.describe()["loss"] == {GIVE_AGAIN: "square"}
    assert MFAUC(loss="square").describe()["loss"] == {"name": "square"}


def test_a_known_metric_or_optimiser_is_kept_by_its_name():
    assert mf.Watch(metric=formulas.auc) == mf.Watch(metric="auc") == mf.Watch()
    assert mf.Minibatch(optimiser=optax.sgd) == mf.Minibatch(optimiser="sgd")
    with pytest.raises(TypeError, match="or a function of counts.Counts"):
        mf.Watch(metric=formulas.precision)  # at which length?


def test_what_a_declaration_says_is_what_is_checked():
    class Mine(Settings, listed=False):
        """A class of one's own."""

        size: int = fields.size(3, least=2, most=9, help="of something")
        rate: float = fields.number(0.5, above=0, help="of something")
        own: losses.Loss = fields.part("logistic", losses.Loss, help="a loss")

        free: float = fields.number(0.0, most=None, help="any number")

    for value in (math.nan, math.inf, -math.inf):
        with pytest.raises(ValueError, match=f"Mine: free = {value} must be a finite number$"):
            Mine(free=value)
    assert Mine(free=-1e300).free == -1e300
    assert Mine().own == losses.logistic and repr(Mine()) == "Mine()"
    assert Mine.specs()["size"].bounds == "a whole number ≥ 2 and ≤ 9"
    with pytest.raises(ValueError, match="Mine: size = 10 must be a whole number ≥ 2 and ≤ 9"):
        Mine(size=10)
    assert Mine(own=losses.Sigmoid(beta=2.0)).get_params() == {
        "size": 3,
        "rate": 0.5,
        "free": 0.0,
        "own": losses.Sigmoid(beta=2.0),
        "own__beta": 2.0,
    }
    assert Mine not in FAMILIES
