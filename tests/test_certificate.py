"""A certificate must be valid, say so plainly, and refuse what would make it invalid."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mfauc_jax._core.factors import Factors
from mfauc_jax.certify import certificate, held_out, rademacher
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective import losses
from mfauc_jax.solvers.base import gaussian
from theory import function_class, generalisation


def split(seed=0, m=40, n=30, t=3):
    """A random design with t positives per user held out, and factors that know something."""
    rng = np.random.default_rng(seed)
    taste = rng.normal(size=(m, 4)) @ rng.normal(size=(n, 4)).T
    order = np.argsort(-(taste + rng.gumbel(size=(m, n))), axis=1)[:, : t + 6]
    chosen = rng.permuted(order, axis=1)
    rows = np.arange(m)[:, None]
    test = Interactions.from_pairs(
        np.broadcast_to(rows, (m, t)).ravel(), chosen[:, :t].ravel(), shape=(m, n)
    )
    train = Interactions.from_pairs(
        np.broadcast_to(rows, (m, 6)).ravel(), chosen[:, t:].ravel(), shape=(m, n)
    )
    P, s, Qt = np.linalg.svd(taste)
    return Factors(jnp.asarray(P[:, :4] * s[:4]), jnp.asarray(Qt[:4].T)), train, test


# --- F_i(y) -----------------------------------------------------------------------------------


@pytest.mark.parametrize("reference", ["unseen", "all"])
def test_ranks_equal_a_loop_with_ties(reference):
    factors, train, test = split()
    factors = Factors(jnp.round(factors.U), jnp.round(2 * factors.V))  # many ties
    S = np.asarray(factors.U @ factors.V.T)
    seen, out = train.to_scipy().toarray() > 0, test.to_scipy().toarray() > 0
    expected = []
    for i, y in zip(*np.nonzero(out), strict=True):
        pool = [q for q in range(30) if q != y and not (reference == "unseen" and seen[i, q])]
        expected.append(np.mean([(S[i, q] < S[i, y]) + 0.5 * (S[i, q] == S[i, y]) for q in pool]))
    ranks, users = held_out.held_out_ranks(factors, train, test, reference)
    np.testing.assert_allclose(ranks, expected)
    np.testing.assert_array_equal(users, np.nonzero(out)[0])


def test_a_rank_does_not_depend_on_the_other_held_out_items():
    factors, train, test = split()
    ranks, users = held_out.held_out_ranks(factors, train, test)
    first = np.unique(users, return_index=True)[1]
    alone = Interactions.from_pairs(np.arange(40), np.asarray(test.indices)[first], shape=(40, 30))
    np.testing.assert_array_equal(held_out.held_out_ranks(factors, train, alone)[0], ranks[first])


# --- held_out_unseen, held_out_all ------------------------------------------------------------


def test_the_certificate_is_the_mean_of_user_means_minus_the_width():
    factors, train, test = split()
    made = certificate.certify(factors, train, test, delta=0.1)
    ranks, users = held_out.held_out_ranks(factors, train, test)
    measured = np.mean([ranks[users == i].mean() for i in range(40)])
    assert made.kind == "held_out_unseen" and made.method == "bernstein"
    assert made.bound == made.auc == pytest.approx(measured - made.terms["half_width_bernstein"])
    assert made.terms["half_width_hoeffding"] == pytest.approx(
        np.sqrt(np.log(10) / 2 * 40 / 3) / 40
    )


def test_hoeffding_width_with_unequal_holdouts():
    sizes = np.array([1, 2, 5])
    half = held_out.widths(np.ones(8), np.repeat(np.arange(3), sizes), 0.05)
    expected = np.sqrt(np.log(20) / 2 * (1 / sizes).sum()) / 3
    assert half["hoeffding"] == pytest.approx(expected)


def test_movielens_shape_gives_the_published_widths():
    """897 users × 5 held out, ranks of standard deviation .122: .0069, Hoeffding's .0183."""
    rng = np.random.default_rng(0)
    ranks = 1 - rng.beta(0.25, 3.0, 897 * 5)
    ranks = 0.928 + (ranks - ranks.mean()) * 0.122 / ranks.std()
    half = held_out.widths(ranks, np.repeat(np.arange(897), 5), 0.05)
    assert half["bernstein"] == pytest.approx(0.0069, abs=1e-4)
    assert half["hoeffding"] == pytest.approx(0.0183, abs=1e-4)


@pytest.mark.parametrize("sizes", ["equal", "unequal"])
def test_the_certificate_covers_the_truth(sizes):
    """200 draws of a known distribution at δ = .1: at most 20 certificates exceed the truth."""
    factors, train, _ = split(1, m=200)
    S = np.asarray(factors.U @ factors.V.T)
    truth = generalisation.world(factors, train, np.exp(S - S.max(1, keepdims=True)))
    t = np.full(200, 5) if sizes == "equal" else np.random.default_rng(0).integers(2, 12, 200)
    found = generalisation.coverage(jax.random.key(0), truth, t, 0.1, draws=200)
    assert all(c.failures <= 0.1 for c in found.values()), found
    if sizes == "equal":  # few draws of a user weigh more, and widen Bernstein's
        assert found["bernstein"].width < found["hoeffding"].width
    rng = np.random.default_rng(2)
    naive = [generalisation.draw_held_out(rng, truth, t) for _ in range(200)]
    above = np.mean([(np.bincount(o, r) / np.bincount(o)).mean() > truth.auc for r, o in naive])
    assert above > 0.3  # without a width the claim fails about half of the time


def test_the_known_truth_is_the_long_run_mean():
    factors, train, _ = split(1)
    truth = generalisation.world(factors, train, np.ones((40, 30)))
    rng = np.random.default_rng(0)
    ranks, users = generalisation.draw_held_out(rng, truth, np.full(40, 20_000))
    assert (np.bincount(users, ranks) / 20_000).mean() == pytest.approx(truth.auc, abs=2e-3)


def test_groups_partition_the_users_and_share_delta():
    rng = np.random.default_rng(0)
    factors, _, test = split(m=60)
    dense = (rng.random((60, 30)) < rng.uniform(0.1, 0.6, (60, 1))) & (
        test.to_scipy().toarray() == 0
    )
    dense[:, 0] |= test.to_scipy().toarray()[:, 0] == 0
    train = Interactions.from_scipy(dense.astype(float))
    groups = held_out.by_activity(factors, train, test, 0.08, num_groups=4)
    assert len(groups) == 4
    assert sum(g.terms["num_users"] for g in groups) == 60
    assert all(g.delta == 0.02 for g in groups)
    assert "users with" in groups[0].sentence and "98 %" in groups[0].sentence
    whole = certificate.certify(factors, train, test, delta=0.08)
    weighted = sum(g.terms["num_users"] * g.terms["held_out_auc"] for g in groups) / 60
    assert weighted == pytest.approx(whole.terms["held_out_auc"])


def test_equally_active_users_make_one_group():
    groups = held_out.by_activity(*split(), num_groups=4)
    assert len(groups) == 1 and groups[0].delta == 0.05


# --- rademacher_users, rademacher_draws -------------------------------------------------------


@pytest.mark.parametrize("kind", rademacher.SYMMETRISATIONS)
def test_the_terms_of_a_rademacher_bound_are_its_formula(kind):
    """Ê + (2 B R_l / m) E‖·‖₂ + 3 w ε(δ′), every term by hand; δ′ pays for both grids."""
    factors, train, _ = split()
    m, n, N, delta = 40, 30, 6, 0.05
    norm = rademacher.ExpectedNorm(kind, delta, mean=1.5, bound=1.7)
    loss = losses.Sigmoid(beta=2.0)
    terms = rademacher.bound_terms(norm, factors, train, loss)
    S = np.asarray(factors.U @ factors.V.T)

    def ceiling(value, unit):
        level = next(level for level in range(1000) if value <= unit * 2 ** (level / 4))
        return level, unit * 2 ** (level / 4)

    l_norm, nuclear = ceiling(np.linalg.norm(S, "nuc"), 1.0)
    l_margin, gamma = ceiling(np.ptp(S, axis=1).max(), 0.25)
    peeled = 0.9 * delta / ((l_norm + 1) * (l_norm + 2) * (l_margin + 1) * (l_margin + 2))
    squares = {"rademacher_users": (n - 1) ** 2 / (N * (n - N) ** 2), "rademacher_draws": 1 / N}[
        kind
    ]
    epsilon = np.sqrt(np.log(1 / peeled) / 2 * squares / m)
    width = 1 / (1 + np.exp(-2 * gamma)) - 1 / (1 + np.exp(2 * gamma))
    assert min(l_norm, l_margin) > 3
    assert terms["complexity"] == pytest.approx(2 * (2.0 / 4) * nuclear * 1.7 / m)
    assert terms["deviation"] == pytest.approx(3 * width * epsilon)
    made = rademacher.from_terms(norm, terms, loss)
    assert made.bound == pytest.approx(
        terms["empirical_risk"] + terms["complexity"] + terms["deviation"]
    )


@given(
    seed=st.integers(0, 1000),
    scale=st.sampled_from([0.0, 1e-3, 0.1, 1.0, 10.0]),
    loss=st.sampled_from(sorted(losses.PAPER_LOSSES)),
    beta=st.sampled_from([0.5, 1.0, 4.0]),
)
def test_signs_per_user_are_never_below_the_all_zero_model(seed, scale, loss, beta):
    """The structural floor (docs/derivations.md#floor): if this fails, the implementation is wrong."""
    factors, train, _ = split(seed % 5, m=12, n=10, t=1)
    random = gaussian(jax.random.key(seed), 12, 10, 4, 1.0)
    model = random if seed % 2 else factors
    model = Factors(scale * model.U, model.V)
    loss = function_class.paper_losses(beta)[loss]
    options = {"loss": loss, "draws": 5, "key": jax.random.key(0)}
    made = certificate.certify(model, train, kind="rademacher_users", **options)
    zero = float(loss(0.0))
    assert made.bound >= zero and made.bound >= made.terms["floor"] >= zero
    assert made.vacuous and made.auc == 0
    assert "vacuous" in made.sentence and "all-zero" in made.sentence


def test_signs_per_draw_compare_with_all_other_items_and_say_so():
    factors, train, _ = split()
    options = {"draws": 20, "key": jax.random.key(0)}
    made = certificate.certify(factors, train, kind="rademacher_draws", **options)
    assert made.vacuous and "floor" not in made.terms
    assert any("every other item" in line for line in made.assumptions)


def test_random_matrices_need_a_key_and_held_out_kinds_held_out_items():
    factors, train, _ = split()
    with pytest.raises(ValueError, match="pass key="):
        certificate.certify(factors, train)
    with pytest.raises(ValueError, match="needs held_out"):
        certificate.certify(factors, train, kind="held_out_unseen")


def test_a_loss_is_an_object_or_its_name():
    factors, train, _ = split()
    options = {"kind": "rademacher_users", "draws": 5, "key": jax.random.key(0)}
    by_name = certificate.certify(factors, train, loss="logistic", **options)
    assert certificate.certify(factors, train, loss=losses.Logistic(), **options) == by_name
    steep = certificate.certify(factors, train, loss=losses.Logistic(beta=2.0), **options)
    assert steep.bound > by_name.bound
    assert by_name.method == steep.method == "logistic loss"


def test_a_loss_without_constants_is_refused_before_anything_is_drawn():
    factors, train, _ = split()
    own = losses.Loss.from_function(lambda x: jnp.exp(-x))
    with pytest.raises(ValueError, match="choose from square_hinge, square, sigmoid, logistic"):
        certificate.certify(factors, train, loss=own, draws=10**9, key=jax.random.key(0))


# --- Words and refusals -----------------------------------------------------------------------


def test_the_sentence_is_for_a_practitioner():
    made = held_out.from_ranks(np.full(4485, 0.9079), np.repeat(np.arange(897), 5), 0.05)
    assert made.sentence == "with probability 95 %, the true AUC is at least .905"
    assert "held_out_auc" in str(made) and "assuming" in str(made)


def test_a_certificate_is_not_rounded_up():
    assert certificate.at_least("the true AUC", 0.9019) == "the true AUC is at least .901"
    ranks, users = np.full(4485, 0.9019), np.repeat(np.arange(897), 5)
    width = held_out.widths(ranks, users, 0.05)["bernstein"]
    made = held_out.from_ranks(ranks + width, users, 0.05)
    assert made.bound == pytest.approx(0.9019) and ".901" in made.sentence


def test_chance_is_vacuous():
    made = held_out.from_ranks(np.full(500, 0.5), np.repeat(np.arange(100), 5), 0.05)
    assert made.vacuous and "no better than chance" in made.sentence


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1])
def test_delta_outside_the_unit_interval(delta):
    with pytest.raises(ValueError, match=f"delta = {delta}"):
        certificate.certify(*split(), delta=delta)


def test_a_seen_item_cannot_certify():
    factors, train, _ = split()
    with pytest.raises(ValueError, match="in train and in test"):
        certificate.certify(factors, train, train)


def test_shapes_must_agree():
    factors, train, test = split()
    with pytest.raises(ValueError, match="29"):
        certificate.certify(Factors(factors.U, factors.V[:-1]), train, test)


def test_a_diverged_model_is_refused():
    factors, train, test = split()
    with pytest.raises(ValueError, match="not finite"):
        certificate.certify(Factors(factors.U * np.nan, factors.V), train, test)


@pytest.mark.parametrize("bad", [{"kind": "held_out_unsen"}, {"method": "bernstien"}])
def test_unknown_names_are_met_with_a_suggestion(bad):
    with pytest.raises(ValueError, match="choose from"):
        certificate.certify(*split(), **bad)


def test_an_option_of_another_kind_is_sent_to_its_home():
    with pytest.raises(TypeError, match="belongs to rademacher_users, rademacher_draws"):
        certificate.certify(*split(), loss="sigmoid")
    with pytest.raises(TypeError, match="did you mean 'method'"):
        certificate.certify(*split(), methods="bernstein")


# --- The registry -----------------------------------------------------------------------------


def test_a_certificate_is_its_function(monkeypatch):
    """One function and its decorator: the door and its choices follow."""
    monkeypatch.setattr(certificate, "CERTIFICATES", dict(certificate.CERTIFICATES))

    @certificate.register
    def optimist(factors, train, held_out, delta, *, hope=0.9):
        """A toy that believes in the model."""
        claim = certificate.at_least("the hoped-for AUC", hope)
        return certificate.Certificate("optimist", hope, hope, False, delta, "hope", {}, (), claim)

    assert certificate.options_of("optimist") == {"hope": 0.9}
    made = certificate.certify(*split(), kind="optimist", hope=0.8)
    assert made.sentence == "with probability 95 %, the hoped-for AUC is at least .800"
    with pytest.raises(TypeError, match="belongs to held_out_unseen, held_out_all"):
        certificate.certify(*split(), kind="optimist", method="bernstein")


def test_every_certificate_has_one_calling_convention():
    assert list(certificate.CERTIFICATES) == [
        "held_out_unseen",
        "held_out_all",
        "rademacher_users",
        "rademacher_draws",
    ]
    factors, train, test = split()
    given = {"key": jax.random.key(0), "draws": 5}
    for kind, make in certificate.CERTIFICATES.items():
        options = {n: given[n] for n in certificate.options_of(kind) if n in given}
        made = make(factors, train, test, 0.1, **options)
        assert (made.kind, made.delta) == (kind, 0.1)
        assert made == certificate.certify(factors, train, test, 0.1, kind=kind, **options)
        assert make.__doc__
