"""Intervals cover, tests are SciPy's, and Holm's correction is the textbook's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mfauc_jax._core.factors import Factors
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.evaluation import metrics, significance


def test_normal_interval_is_scipys_with_missing_users_left_out():
    values = np.random.default_rng(0).random(50)
    low, high = significance.normal({"auc": np.append(values, np.nan)}, 0.9)["auc"]
    want = stats.norm.interval(0.9, values.mean(), stats.sem(values))
    assert (low, high) == pytest.approx(want)


@pytest.mark.parametrize("kind", ["normal", "bootstrap"])
def test_intervals_cover_the_mean_as_often_as_they_say(kind):
    rng, covered = np.random.default_rng(1), 0
    for seed in range(200):
        values = {"auc": rng.beta(5, 2, 80)}
        if kind == "normal":
            low, high = significance.normal(values, 0.8)["auc"]
        else:
            low, high = significance.bootstrap(jax.random.key(seed), values, 0.8, 200)["auc"]
        covered += low <= 5 / 7 <= high
    assert stats.binomtest(covered, 200, 0.8).pvalue > 1e-4


def test_bootstrap_is_that_of_a_loop_over_users():
    rng = np.random.default_rng(2)
    a = rng.random(60)
    values = {"user": np.arange(60), "a": a, "b": np.where(rng.random(60) < 0.3, np.nan, a)}
    ours = significance.bootstrap(jax.random.key(0), values, 0.9, 4000)
    for name in ("a", "b"):
        draws = [np.nanmean(values[name][rng.integers(0, 60, 60)]) for _ in range(4000)]
        assert ours[name] == pytest.approx(np.quantile(draws, [0.05, 0.95]), abs=0.006)
    assert "user" not in ours
    again = significance.bootstrap(jax.random.key(0), values, 0.9, 4000)
    assert ours == again


def test_undefined_metrics_have_no_interval():
    values = {"auc": np.full(5, np.nan), "one": np.array([1.0])}
    assert np.isnan(significance.normal(values)["auc"]).all()
    assert np.isnan(significance.normal(values)["one"]).all()
    only = {"auc": np.full(5, np.nan)}
    assert np.isnan(significance.bootstrap(jax.random.key(0), only, 0.9, 10)["auc"]).all()


def test_paired_tests_are_scipys():
    rng = np.random.default_rng(3)
    a = rng.random(40)
    b = a + rng.normal(0.05, 0.1, 40)
    result = significance.paired(np.append(a, np.nan), np.append(b, 0.5), 0.99)
    t = stats.ttest_rel(a, b)
    assert (result.t, result.p_t) == pytest.approx((t.statistic, t.pvalue))
    assert (result.low, result.high) == pytest.approx(tuple(t.confidence_interval(0.99)))
    assert result.p_wilcoxon == pytest.approx(stats.wilcoxon(a, b).pvalue)
    assert result.difference == pytest.approx((a - b).mean())
    assert result.users == 40


def test_equal_and_constantly_different_models():
    a = np.linspace(0, 1, 30)
    same = significance.paired(a, a)
    assert (same.difference, same.t, same.p_t, same.p_wilcoxon) == (0, 0, 1, 1)
    shifted = significance.paired(np.arange(30.0), np.arange(30.0) + 1)
    assert (shifted.t, shifted.p_t) == (-np.inf, 0)
    assert shifted.p_wilcoxon < 1e-5


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_is_the_definition(p):
    """The corrected p of i: the largest (tests − rank) p among those no larger than p_i."""
    corrected = significance.holm(p)
    order = sorted(range(len(p)), key=lambda i: p[i])
    for place, i in enumerate(order):
        want = max((len(p) - r) * p[order[r]] for r in range(place + 1))
        assert corrected[i] == pytest.approx(min(want, 1))


def test_holm_on_a_textbook_example():
    np.testing.assert_allclose(
        significance.holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02]
    )


def models():
    rng = np.random.default_rng(4)
    place = rng.random((50, 40))
    train, test = (Interactions.of(x.astype(float)) for x in (place > 0.8, place < 0.15))
    taste = Factors(jnp.asarray(-place), jnp.eye(40))  # knows what is held out
    noise = Factors(jnp.asarray(rng.random((50, 40))), jnp.eye(40))
    return taste, noise, train, test


def test_comparing_two_models():
    taste, noise, train, test = models()
    each = [metrics.evaluate(x, train, test, per_user=True) for x in (taste, noise)]
    table = significance.compare(*each)
    raw = {k: significance.paired(each[0][k], each[1][k]) for k in each[0] if k != "user"}
    assert (each[0]["auc"] == 1).all()
    assert table["auc"].difference == pytest.approx(1 - each[1]["auc"].mean())
    assert table["auc"].p_t < 1e-6
    assert list(table) == list(raw)
    want = significance.holm([r.p_t for r in raw.values()])
    assert [r.p_t for r in table.values()] == pytest.approx(list(want))
    each[1]["user"] = each[1]["user"][::-1]
    with pytest.raises(ValueError, match="different users"):
        significance.compare(*each)
    with pytest.raises(ValueError, match="no metric in common"):
        significance.compare({"auc": np.ones(3)}, {"hit": np.ones(3)})


@pytest.mark.parametrize("kind", ["normal", "bootstrap"])
def test_evaluate_gives_an_interval_for_every_mean(kind):
    _, noise, train, test = models()
    plain = metrics.evaluate(noise, train, test)
    result = metrics.evaluate(noise, train, test, intervals=kind, key=jax.random.key(0))
    for name, value in plain.items():
        assert result[name] == value
        if name.split("@")[0] not in ("users", "users_skipped", "coverage"):
            assert result[f"{name}_low"] <= value <= result[f"{name}_high"]
    each = metrics.evaluate(noise, train, test, per_user=True)
    if kind == "normal":
        want = significance.normal(each)["auc"]
    else:
        want = significance.bootstrap(jax.random.key(0), each)["auc"]
    assert (result["auc_low"], result["auc_high"]) == pytest.approx(want)
    assert want[0] < plain["auc"] < want[1]
    assert "coverage@1_low" not in result


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="level = 95"):
        significance.normal({"auc": np.ones(3)}, 95.0)
    with pytest.raises(ValueError, match="repeats = 1"):
        significance.bootstrap(jax.random.key(0), {"auc": np.ones(3)}, repeats=1)
    with pytest.raises(ValueError, match=r"\(3,\) and \(4,\)"):
        significance.paired(np.ones(3), np.ones(4))
    with pytest.raises(ValueError, match="1 users have both"):
        significance.paired([1.0, np.nan], [0.5, 1.0])
    with pytest.raises(ValueError, match=r"in \[0, 1\]"):
        significance.holm([0.1, 1.2])
