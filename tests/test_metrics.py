"""Every metric against an independent oracle: loops, scikit-learn, recometrics, ranx."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import ranx
import recometrics
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score, roc_auc_score, roc_curve

from mfauc_jax._core.factors import Factors
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.evaluation import counts as counting
from mfauc_jax.evaluation import curves, formulas, metrics, ranking

AT = (1, 3, 5, 10)


def interactions(dense):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # users without a positive are part of the cases
        return Interactions.of(np.asarray(dense, float))


class Case:
    """Random factors, a training and a test set; `ties` makes the scores small integers."""

    def __init__(self, seed=0, shape=(40, 60), ties=False, dtype=np.float64, held_out=0.1):
        (m, n), rng = shape, np.random.default_rng(seed)
        draw = (lambda s: rng.integers(-2, 3, s)) if ties else rng.standard_normal
        self.factors = Factors(*(jnp.asarray(draw((s, 4)), dtype) for s in (m, n)))
        self.S = np.asarray(self.factors.U) @ np.asarray(self.factors.V).T
        place = rng.random((m, n))
        self.test, self.train = place < held_out, (place >= held_out) & (place < held_out + 0.2)
        self.test[0], self.train[0] = False, place[0] < 0.3  # a user with nothing held out
        self.test[1], self.train[1] = place[1] < 0.5, False  # one who trains on nothing
        self.train[:, 0], self.test[-1, 0] = False, True
        self.train[0, -1], self.test[0, -1] = True, False
        self.X, self.T = interactions(self.train), interactions(self.test)

    def sets(self):
        return self.factors, self.X, self.T

    def rows(self):
        """(user, scores of the candidates, which of them are held out)."""
        for i in np.flatnonzero(self.test.any(1)):
            free = ~self.train[i]
            yield i, self.S[i, free], self.test[i, free]


CASES = [dict(ties=False), dict(ties=True), dict(ties=True, dtype=np.float32), dict(held_out=0.6)]


@pytest.fixture(params=CASES, ids=["float64", "ties", "float32 ties", "many held out"])
def case(request):
    return Case(**request.param)


def test_auc_is_scikit_learns(case):
    auc = curves.auc(*case.sets())
    assert np.isnan(auc[~case.test.any(1)]).all()
    for i, s, y in case.rows():
        assert auc[i] == pytest.approx(roc_auc_score(y, s), abs=1e-12)


def recometrics_of(case, **options):
    U, V = (np.asarray(F, np.float64) for F in case.factors)
    X, T = (scipy.sparse.csr_matrix(X.astype(float)) for X in (case.train, case.test))
    return recometrics.calc_reco_metrics(X, T, U, V, as_df=False, nthreads=1, **options)


@pytest.mark.parametrize("held_out", [0.1, 0.6])
def test_metrics_are_recometrics(held_out):
    case = Case(held_out=held_out)
    ours = metrics.evaluate(*case.sets(), at=AT, per_user=True)
    names = {"precision": "P@K", "recall": "R@K", "map": "AP@K", "ndcg": "NDCG@K"}
    names |= {"hit": "Hit@K", "mrr": "RR@K"}
    for size in AT:
        theirs = recometrics_of(case, k=size, all_metrics=True, break_ties_with_noise=False)
        at = {f"{name}@{size}": their for name, their in names.items()}
        for name, their in (at | {"auc": "ROC_AUC"}).items():
            want = theirs[their][ours["user"]]
            known = ~np.isnan(want)  # it gives up on users with few candidates
            assert known.sum() > 30
            np.testing.assert_allclose(ours[name][known], want[known], atol=1e-9, err_msg=name)


def test_ties_count_half_as_recometrics_random_breaking_does_on_average():
    case = Case(ties=True)
    ours = curves.auc(*case.sets())
    draws = [recometrics_of(case, k=1, roc_auc=True, seed=s)["ROC_AUC"] for s in range(1, 401)]
    error = np.std(draws, axis=0) / np.sqrt(len(draws))
    known = ~np.isnan(ours)
    assert (error[known] > 0).any()
    assert (np.abs(np.mean(draws, axis=0) - ours)[known] <= 5 * error[known] + 1e-9).all()


def test_metrics_at_a_length_are_ranxs(case):
    """Ties go to the lower item: ranx is given that order as its scores.

    ranx compiles each metric for long, so those that are a count over a count are counted here.
    """
    qrels, run, hits = {}, {}, []
    for i in np.flatnonzero(case.test.any(1)):
        s = np.where(case.train[i], -np.inf, case.S[i])
        order = np.argsort(-s, kind="stable")[: (~case.train[i]).sum()]
        qrels[f"{i:03}"] = {str(j): 1 for j in np.flatnonzero(case.test[i])}
        run[f"{i:03}"] = {str(j): float(len(order) - r) for r, j in enumerate(order)}
        hits.append([case.test[i][order[:size]].sum() for size in AT])
    names = [f"{metric}@{size}" for metric in ("ndcg", "map", "mrr") for size in AT]
    want = ranx.evaluate(ranx.Qrels(qrels), ranx.Run(run), names, return_mean=False)
    relevant = np.array([len(found) for found in qrels.values()])
    for size, hit in zip(AT, np.array(hits).T, strict=True):
        want |= {f"hit@{size}": hit > 0, f"precision@{size}": hit / size}
        want |= {f"recall@{size}": hit / relevant, f"f1@{size}": 2 * hit / (size + relevant)}
    ours = metrics.evaluate(*case.sets(), at=AT, per_user=True)
    means = metrics.evaluate(*case.sets(), at=AT)
    for name, theirs in want.items():
        np.testing.assert_allclose(ours[name], theirs, atol=1e-12, err_msg=name)
        assert means[name] == pytest.approx(theirs.mean(), abs=1e-12)
    assert means["users"] == len(qrels)
    assert means["users_skipped"] == (~case.test.any(1)).sum() > 0


def test_ndcg_is_scikit_learns():
    case = Case(seed=3)
    ours = metrics.evaluate(*case.sets(), at=(5,), per_user=True)["ndcg@5"]
    for value, (_, s, y) in zip(ours, case.rows(), strict=True):
        assert value == pytest.approx(ndcg_score(y[None], s[None], k=5), abs=1e-12)


def loop_auc(scores, held_out, a, b, t):
    """Eq. 2, pair by pair; p counts if s_p reaches the ⌈t c⌉-th largest candidate."""
    reach = np.sort(scores)[::-1][int(np.ceil(round(t * len(scores), 9))) - 1]
    total = 0.0
    for p in np.flatnonzero(held_out):
        for q in np.flatnonzero(~held_out):
            if scores[p] >= reach:
                wins = (scores[p] > scores[q]) + 0.5 * (scores[p] == scores[q])
                total += a[p] / a[held_out].sum() * b[q] / b[~held_out].sum() * wins
    return total


@pytest.mark.parametrize("t", [0.1, 0.7, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_weighted_and_local_auc_are_the_double_loop(case, weighted, t):
    rng = np.random.default_rng(7)
    n = case.S.shape[1]
    a, b = (rng.random(n), rng.random(n)) if weighted else (np.ones(n), np.ones(n))
    weights = dict(positive_weights=a, negative_weights=b) if weighted else {}
    local = curves.local_auc(*case.sets(), t, **weights)
    for i, s, y in case.rows():
        free = ~case.train[i]
        assert local[i] == pytest.approx(loop_auc(s, y, a[free], b[free], t), abs=1e-9)
    if t == 1:
        np.testing.assert_array_equal(local, curves.auc(*case.sets(), **weights))


def curve_at(fpr, tpr, x):
    """scikit-learn's ROC curve at x; at a vertical step, its top."""
    last = np.flatnonzero(fpr <= x + 1e-12)[-1]
    if last + 1 == len(fpr):
        return tpr[last]
    share = max(0.0, x - fpr[last]) / (fpr[last + 1] - fpr[last])
    return tpr[last] + share * (tpr[last + 1] - tpr[last])


def test_roc_is_the_average_of_scikit_learns():
    case = Case(ties=True)
    grid = np.linspace(0, 0.4, 18)
    curve = curves.roc(*case.sets(), max_fpr=0.4, points=18, band=0.8)
    each = []
    for _, s, y in case.rows():
        fpr, tpr, _ = roc_curve(y, s, drop_intermediate=False)
        each.append([curve_at(fpr, tpr, x) for x in grid])
    np.testing.assert_allclose(curve.fpr, grid)
    np.testing.assert_allclose(curve.tpr, np.mean(each, 0), atol=1e-9)
    np.testing.assert_allclose(curve.deviation, np.std(each, 0), atol=1e-9)
    np.testing.assert_allclose(curve.low, np.quantile(each, 0.1, axis=0), atol=1e-9)
    np.testing.assert_allclose(curve.high, np.quantile(each, 0.9, axis=0), atol=1e-9)
    assert curve.users == len(each)


def test_area_under_the_average_roc_is_the_auc(case):
    curve = curves.roc(*case.sets(), points=20_001)
    area = np.trapezoid(curve.tpr, curve.fpr)
    assert area == pytest.approx(np.nanmean(curves.auc(*case.sets())), abs=1e-4)


def test_one_negative_auc_is_an_unbiased_draw():
    case = Case(ties=True)
    exact = np.nanmean(curves.auc(*case.sets()))
    draws = [curves.one_negative_auc(jax.random.key(s), *case.sets()) for s in range(30)]
    error = np.std(draws) / np.sqrt(len(draws))
    assert 0 < error < 0.02
    assert abs(np.mean(draws) - exact) < 4 * error


def cosine(x, y):
    norms = np.linalg.norm(x) * np.linalg.norm(y)
    return x @ y / norms if norms else 0.0


def test_lists_are_those_of_ranking_and_what_is_said_of_them(case):
    counts = counting.count(*case.sets(), top=5)
    lists, _ = ranking.top_items(case.factors, counts.users, 5, exclude=case.X)
    np.testing.assert_array_equal(counts.lists, lists)
    m, n = case.S.shape
    result = metrics.evaluate(*case.sets(), at=(5,))
    each = metrics.evaluate(*case.sets(), at=(5,), per_user=True)
    assert result["coverage@5"] == len(set(lists.ravel().tolist()) - {-1}) / n
    V = np.asarray(case.factors.V, np.float64)
    seen = case.train.sum(0)
    for row, novelty, diversity in zip(lists, each["novelty@5"], each["diversity@5"], strict=True):
        surprise = [-np.log2(max(seen[j], 1) / m) for j in row]
        assert novelty == pytest.approx(np.mean(surprise), abs=1e-9)
        width = [1 - cosine(V[j], V[k]) for j in row for k in row if j != k]
        assert diversity == pytest.approx(np.mean(width), abs=1e-6)


def test_diversity_by_given_features():
    case = Case()
    same = metrics.evaluate(*case.sets(), at=(3,), features=np.ones((60, 2)))
    assert same["diversity@3"] == pytest.approx(0, abs=1e-12)
    different = metrics.evaluate(*case.sets(), at=(3,), features=np.eye(60))
    assert different["diversity@3"] == pytest.approx(1)


@settings(max_examples=6)  # each compiles
@given(
    st.tuples(st.integers(2, 12), st.integers(2, 40)),
    st.integers(1, 5),
    st.sampled_from([0.05, 0.4, 0.9]),
    st.integers(0, 2**32 - 1),
)
def test_any_shape_and_any_batch(shape, batch, held_out, seed):
    case = Case(seed, shape, ties=True, held_out=held_out)
    values = metrics.evaluate(*case.sets(), at=(2, 50), per_user=True, batch=batch)
    for place, (_, s, y) in enumerate(case.rows()):
        order = np.argsort(-s, kind="stable")
        assert values["precision@2"][place] == pytest.approx(y[order][:2].sum() / 2)
        assert values["recall@50"][place] == 1
        if y.all():
            assert np.isnan(values["auc"][place])
        else:
            assert values["auc"][place] == pytest.approx(roc_auc_score(y, s), abs=1e-12)


def test_without_train_nothing_is_taken_out():
    case = Case()
    auc = curves.auc(case.factors, None, case.X)
    for i in np.flatnonzero(case.train.any(1)):
        assert auc[i] == pytest.approx(roc_auc_score(case.train[i], case.S[i]))
    result = metrics.evaluate(case.factors, None, case.T, at=(3,))
    assert "novelty@3" not in result and "precision@3" in result
    assert 0 < curves.one_negative_auc(jax.random.key(0), case.factors, None, case.T) < 1


def test_degenerate_users():
    """Everything held out or trained on: no negatives, no AUC, yet a list."""
    train = interactions([[1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0]])
    test = interactions([[0, 0, 1, 1], [1, 0, 0, 0], [0, 0, 0, 0], [0, 1, 1, 1]])
    factors = Factors(jnp.zeros((4, 2)), jnp.ones((4, 2)))
    each = metrics.evaluate(factors, train, test, (4,), per_user=True)
    assert each["user"].tolist() == [0, 1, 3]
    np.testing.assert_array_equal(each["auc"], [np.nan, 0.5, np.nan])
    np.testing.assert_allclose(each["precision@4"], [0.5, 0.25, 0.75])
    result = metrics.evaluate(factors, train, test, (4,))
    assert result["auc"] == 0.5
    assert (result["users"], result["users_skipped"]) == (3, 1)
    for b in (np.zeros(4), np.array([0.1, 0.2, 0.3, 0.0])):
        auc = curves.auc(factors, train, test, negative_weights=b)
        assert np.isnan(auc[[0, 2, 3]]).all()
        assert np.isnan(auc[1]) == (b.sum() == 0)
    with pytest.raises(ValueError, match="there is no curve"):
        curves.roc(factors, None, interactions(np.ones((4, 4))))


def test_popularity_gives_the_same_numbers_in_any_float_type():
    case = Case(shape=(40, 50))
    popularity = case.train.sum(0).astype(float)
    factors = Factors(jnp.ones((40, 1)), jnp.asarray(popularity[:, None]))
    single = Factors(*(F.astype(jnp.float32) for F in factors))
    result = metrics.evaluate(factors, case.X, case.T)
    assert result == metrics.evaluate(single, case.X, case.T)
    assert result["auc"] == pytest.approx(0.5301313129926911, abs=1e-12)


def test_few_programs_for_many_blocks():
    case = Case(shape=(300, 30))
    before = counting._count.made
    metrics.evaluate(*case.sets(), batch=16)
    assert counting._count.made <= before + 3  # one for each bucket of P


def test_comparisons_are_never_stored():
    b, n, P = 8, 5000, 5
    S, s, items = jnp.zeros((b, n)), jnp.zeros((b, P)), jnp.zeros((b, P), jnp.int32)
    everyone = jnp.arange(n, dtype=jnp.int32)[None, :]
    program = jax.jit(counting._compare).lower(s, items, S, everyone).compile()
    assert program.memory_analysis().temp_size_in_bytes < b * n * 4  # a plain sum takes 3 b P n × 4


def test_models_and_ids():
    case = Case()

    class Model:
        factors_ = case.factors

    assert metrics.evaluate(Model(), case.X, case.T) == metrics.evaluate(*case.sets())
    train = Interactions.from_pairs(["a", "a", "b", "c"], ["x", "y", "z", "w"])
    test = Interactions.from_pairs(["b", "c"], ["y", "x"])  # rows and columns of its own
    V = jnp.array([[0.0, 0.0, 3.0], [0.0, 0.0, 0.0], [0.0, 5.0, 0.0], [0.0, 9.0, 0.0]])  # w x y z
    auc = curves.auc(Factors(jnp.eye(3), V), train, test)
    assert np.isnan(auc[0])
    assert auc[1:].tolist() == [1.0, 0.5]
    unknown = Interactions.from_pairs(["b", "b"], ["q", "x"])
    with pytest.raises(ValueError, match="unknown item 'q'"):
        metrics.evaluate(Factors(jnp.eye(3), V), train, unknown, unknown="raise")


def test_bad_input_is_named():
    case = Case()
    wide = interactions(np.pad(case.test, ((0, 0), (0, 5)), constant_values=1))
    with pytest.raises(ValueError, match=r"\(40, 65\), the training catalogue is \(40, 60\)"):
        metrics.evaluate(case.factors, case.X, wide)
    with pytest.raises(ValueError, match="test item 60 is outside the training catalogue of 60"):
        metrics.evaluate(case.factors, None, wide)
    with pytest.raises(ValueError, match=r"\(39, 60\), the training catalogue is \(40, 60\)"):
        metrics.evaluate(case.factors, case.X, interactions(case.test[1:]))
    with pytest.raises(ValueError, match="is in train and in test"):
        metrics.evaluate(case.factors, case.T, case.T)
    for bad, says in (
        (dict(at=(0,)), "at ="),
        (dict(at=()), "at ="),
        (dict(intervals="guess"), "'guess'"),
        (dict(intervals="bootstrap"), "pass key="),
    ):
        with pytest.raises(ValueError, match=says):
            metrics.evaluate(*case.sets(), **bad)
    with pytest.raises(ValueError, match="t = 0"):
        curves.local_auc(*case.sets(), 0.0)
    with pytest.raises(ValueError, match="negative_weights has shape"):
        curves.auc(*case.sets(), negative_weights=np.ones(3))
    with pytest.raises(ValueError, match="positive_weights must be finite"):
        curves.auc(*case.sets(), positive_weights=-np.ones(60))
    with pytest.raises(ValueError, match="max_fpr = 2"):
        curves.roc(*case.sets(), max_fpr=2.0)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("ndgc@10", "did you mean 'ndcg@ℓ'"),
        ("ndcg", "unknown metric 'ndcg'"),
        ("auc@5", "unknown metric 'auc@5'"),
        ("ndcg@0", "unknown metric 'ndcg@0'"),
        ("ndcg@-1", "unknown metric 'ndcg@-1'"),
        ("precision@3.5", "unknown metric"),
        ("", "unknown metric ''"),
    ],
)
def test_names_that_are_no_metric_are_refused(name, says):
    assert name not in formulas.KNOWN
    with pytest.raises(ValueError, match=says):
        formulas.parse(name)


def test_every_metric_is_known_by_its_name():
    for name in formulas.METRICS:
        written = f"{name}@7" if formulas.of_lists(name) else name
        assert formulas.parse(written) == (name, 7 if formulas.of_lists(name) else None)
        assert written in formulas.KNOWN and formulas.KNOWN[written] is formulas.METRICS[name]
    assert len(list(formulas.KNOWN)) == len(formulas.KNOWN) == len(formulas.METRICS)


def test_a_metric_is_its_formula(monkeypatch):
    """One formula per user and one for everybody, entered at run time."""
    monkeypatch.setattr(formulas, "METRICS", dict(formulas.METRICS))

    @formulas.metric
    def first_place(counts):
        return np.minimum.reduceat(counts.place, counts.starts) + 1.0

    @formulas.metric
    def shown(counts, size):
        return float(len(np.unique(counts.lists[:, :size])))

    case = Case()
    result = metrics.evaluate(*case.sets(), at=(2, 4))
    each = metrics.evaluate(*case.sets(), at=(2, 4), per_user=True)
    for place, (_, s, y) in zip(each["first_place"], case.rows(), strict=True):
        assert place == np.flatnonzero(y[np.argsort(-s, kind="stable")])[0] + 1
    assert result["first_place"] == pytest.approx(each["first_place"].mean())
    assert result["shown@2"] == result["coverage@2"] * 60 < result["shown@4"]
    assert "shown@2" not in each and "shown@3" in formulas.KNOWN
    third = metrics.scores(*case.sets(), "shown@3")
    assert result["shown@2"] < third["shown@3"] == third["coverage@3"] * 60 < result["shown@4"]
