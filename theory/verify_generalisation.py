"""The checks around McDiarmid and Theorem 3.8: E33–E35, E41–E45, and the certificates."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from mfauc_jax._core.factors import Factors
from mfauc_jax.certify import bounds, certificate
from mfauc_jax.objective import losses
from theory import function_class, generalisation, mcdiarmid
from theory.statement import BEYOND, CORRECTED, REFUTED, Statement, at_most, below, equal
from theory.verify_rademacher import random_design, trained

DELTA = 0.1
KEY = jax.random.key(0)


def theorem_3_3() -> list[Statement]:
    """Both of McDiarmid's inequalities against exact binomial tails; the tightest cases."""
    cases = [(n, p, e) for n in (5, 20, 80) for p in (0.1, 0.5, 0.7) for e in (0.05, 0.1, 0.2, 0.3)]
    cases.append((1, 0.5, 0.5))
    found = []
    for tail, text in (
        (mcdiarmid.binomial_tail, "P{mean − p ≥ ε}"),
        (mcdiarmid.binomial_lower_tail, "P{p − mean ≥ ε}"),
    ):
        sides = [(tail(n, p, e), mcdiarmid.tail(e, np.full(n, 1 / n))) for n, p, e in cases]
        tight = max(sides, key=lambda pair: pair[0] / pair[1])
        found.append(at_most("Thm 3.3", f"{text} ≤ exp(−2nε²), tightest of 37 coins", *tight))
        found.append(_tight("Thm 3.3", f"{text}, the same", *tight))
    return found


def _tight(number: str, claim: str, measured: float, bound: float) -> Statement:
    """bound ÷ measured < 2: half of the bound would not hold."""
    return below(number, f"{claim}: bound ÷ measured", bound / measured, 2.0)


def bounded_differences() -> list[Statement]:
    """E33 and E34: sets fail, multisets give the printed constant exactly."""
    pairs = [(n, size) for n in (4, 5, 6) for size in range(1, n)]
    printed = np.array([mcdiarmid.average_difference(size, n) for n, size in pairs])
    found = np.array([mcdiarmid.enumerated_difference(n, size) for n, size in pairs])
    new = np.array([mcdiarmid.new_item_difference(n, size) for n, size in pairs])
    repeat, formula = mcdiarmid.repeated_item_difference(8, 3), 7 / (3 * 6)
    as_set = mcdiarmid.repeated_item_difference(8, 3, "set")
    constant = mcdiarmid.average_difference(25, 200)
    attained, twice = mcdiarmid.rademacher_change(8, 3), mcdiarmid.rademacher_difference(3, 8)
    text = "one draw moves Ê by ≤ c_a, sets: n = 200, n_i = 25"
    return [
        at_most("Thm 3.4, E33", text, mcdiarmid.set_difference(200, 25), constant, REFUTED),
        at_most(
            "Thm 3.4, E33",
            "the same, multisets, n ≤ 6, every sample",
            max(found - printed),
            0,
            CORRECTED,
        ),
        at_most("Thm 3.4, E34", "new item: |change − c_a|, 12 cases", abs(new - printed).max(), 0),
        equal("Thm 3.4, E34", "item already drawn: (n−1)/(|ω|(|ω̄|+1))", repeat, formula),
        equal("Thm 3.4, E34", "the same as sets: max(1/|ω|, 1/(|ω̄|+1))", as_set, max(1 / 3, 1 / 6)),
        equal("Thm 3.4, E34", "R̂ of {Q, 1−Q} moves by 2c_a: n = 8, |ω| = 3", attained, twice),
    ]


def theorem_3_4() -> list[Statement]:
    """The final formula is 2ε₁ and covers; the regimes that follow it (E35)."""
    num_pos = np.array([3, 5, 2, 8])
    printed = mcdiarmid.theorem_3_4(num_pos, 20, DELTA)
    sim, R, deviation = simulated()
    found = [
        equal("Thm 3.4", "its term = 2 ε₁", printed, 2 * bounds.mcdiarmid(num_pos, 20, DELTA)),
        at_most(
            "Thm 3.4",
            "R − R̂ ≤ term: .9-quantile over samples of a toy world",
            np.quantile(R - sim.rhat, 1 - DELTA),
            2 * deviation(DELTA),
            CORRECTED,
        ),
    ]
    for name, rate in (("|ω| fixed", "1/√m"), ("|ω| = n/2", "1/√(mn)"), ("|ω̄| fixed", "√(n/m)")):
        ratios = [mcdiarmid.regime_ratio(name, m, n) for m, n in ((10**3, 10**4), (10**5, 10**5))]
        text = f"regime {name}: term ÷ {rate} constant to 1 %"
        found.append(equal("Thm 3.4, E35", text, ratios[0], ratios[1], tolerance=0.01))
    grown = [mcdiarmid.regime("|ω| = n − 1", 10**4, n) for n in (10**3, 10**5)]
    text = "|ω| = Θ(n) suffices for 1/√(mn): |ω| = n − 1, n × 100"
    found.append(at_most("Thm 3.4, E35", text, grown[1], grown[0], REFUTED))
    return found


@functools.cache
def simulated():
    """(simulation, R, ε₁) of the toy world."""
    world = generalisation.toy(m=11, n=8, size=4)
    m, n = world.D.shape
    sim = generalisation.simulate(KEY, world)
    return sim, sim.rhat.mean(), lambda delta: bounds.mcdiarmid(np.full(m, world.size), n, delta)


def lemmas_and_theorem_3_8() -> list[Statement]:
    """Lemmas 3.2 and 3.3, Theorem 3.8 and its two empirical forms, in a world that is known."""
    sim, R, eps = simulated()
    off, e1, high = sim.deviation, eps(DELTA), 1 - DELTA
    single, union = generalisation.single_form(eps, DELTA), generalisation.union_form(eps, DELTA)
    return [
        at_most(
            "Lemma 3.2",
            "sup(E−Ê) − E sup ≤ ε₁: .9-quantile",
            np.quantile(off - off.mean(), high),
            e1,
        ),
        at_most("Lemma 3.3", "E sup(Ẽ−Ê) ≤ R", sim.swap.mean(), R),
        at_most(
            "Thm 3.8",
            "sup_Q(E−Ê) ≤ R + ε₁, all Q at once: .9-quantile",
            np.quantile(off, high),
            R + e1,
        ),
        at_most(
            "E41",
            "sup(E−Ê) − R̂ ≤ 3ε₁(δ): .9-quantile",
            np.quantile(off - sim.rhat, high),
            single,
            CORRECTED,
        ),
        below("E41", "3ε₁(δ) is sharper than the union bound's 3ε₁(δ/2)", single, union, CORRECTED),
    ]


def tight_worlds() -> list[Statement]:
    """Worlds in which half of a bound would be too small: its constant is not slack that hides an error."""
    rare, found = 0.01, []
    coin = generalisation.one_coin(m=60, n=24, size=2)
    off = generalisation.simulate_free(KEY, coin, 20_000).deviation
    sides = np.quantile(off - off.mean(), 1 - rare), bounds.mcdiarmid(np.full(60, 2), 24, rare)
    text = "120 coins, one Q: .99-quantile of sup(E−Ê) − E sup ≤ ε₁"
    found += [at_most("Lemma 3.2", text, *sides), _tight("Lemma 3.2", "the same", *sides)]

    rhat = generalisation.coin_rhats(KEY, m=20, size=30, chance=0.75)
    sides = (
        np.quantile(rhat.mean() - rhat, 1 - rare),
        mcdiarmid.theorem_3_4(np.full(20, 30), 3000, rare),
    )
    text = "20 × 30 coins, {Q, 1−Q} by user: .99-quantile of R − R̂ ≤ term"
    found += [at_most("Thm 3.4", text, *sides), _tight("Thm 3.4", "the same", *sides)]

    fits = generalisation.simulate(KEY, generalisation.listed(generalisation.every_function(2, 5)))
    sides = fits.swap.mean(), fits.rhat.mean()
    text = "every 0/1 function of p by user, 2 users × 5 items: E sup(Ẽ−Ê) ≤ R"
    found += [at_most("Lemma 3.3", text, *sides), _tight("Lemma 3.3", "the same", *sides)]

    fits = generalisation.simulate_free(KEY, generalisation.every_function(40, 7), 300)
    e1 = bounds.mcdiarmid(np.full(40, 1), 7, DELTA)
    sides = np.quantile(fits.deviation, 1 - DELTA), fits.rhat.mean() + e1
    text = "the same, 40 users × 7 items: .9-quantile of sup(E−Ê) ≤ R + ε₁"
    found += [at_most("Thm 3.8", text, *sides), _tight("Thm 3.8", "the same", *sides)]
    return found


def function_classes() -> list[Statement]:
    """E42 to E44: slopes and ranges measured against the formulas."""
    found = []
    for loss in (losses.Logistic(beta=8.0), losses.Sigmoid(beta=8.0)):
        slope = function_class.measured_slope(loss, 6.0)
        found.append(
            at_most("E42", f"{loss.name}, β = 8: Lipschitz with constant 1", slope, 1.0, REFUTED)
        )
    for name, loss in function_class.paper_losses(beta=2.0).items():
        for gamma in (0.5, 4.0):
            B, w, _ = bounds.constants(loss, gamma)
            low, high = function_class.measured_range(loss, gamma)
            slope = function_class.measured_slope(loss, gamma)
            number = "E42" if name in ("logistic", "sigmoid") else "E43"
            text = f"{name}, β = 2, Γ = {gamma}: sup |L′| ≤ B"
            found.append(at_most(number, text, slope, B, CORRECTED))
            text = f"{name}, β = 2, Γ = {gamma}: range = w"
            found.append(equal("E44", text, high - low, w, CORRECTED))
    half = function_class.margin_of_rows(function_class.PRINTED_RADIUS)
    low, high = function_class.measured_range(losses.square_hinge, half)
    fits = function_class.margin_of_rows(function_class.unit_radius())
    return [
        *found,
        at_most("E43", "square hinge, D = 1/√4: loss ≤ 1", high, 1.0, REFUTED),
        equal("E43", "its width is 1, so L − ⅛ is in [0, 1]", high - low, 1.0, CORRECTED),
        equal(
            "E43", "its constant 3/2", function_class.measured_slope(losses.square_hinge, half), 1.5
        ),
        equal(
            "E43",
            "D² = (√2−1)/2: loss ≤ 1 unshifted",
            function_class.measured_range(losses.square_hinge, fits)[1],
            1.0,
            CORRECTED,
        ),
        at_most(
            "E44",
            "−σ(βx), as printed, maps to [0, 1]: 0 ≤ its least value",
            0.0,
            function_class.measured_range(lambda x: -jax.nn.sigmoid(x), 5.0)[0],
            REFUTED,
        ),
        at_most(
            "E44",
            "σ(−βx) ≤ 1",
            function_class.measured_range(losses.sigmoid, 50.0)[1],
            1.0,
            CORRECTED,
        ),
    ]


def scope() -> list[Statement]:
    """E45: the paper does not claim its theory for popularity weights and tanh, and it would not hold."""
    moved, constant = generalisation.popularity_change(), mcdiarmid.average_difference(2, 8)
    outside, inside = generalisation.tanh_is_not_linear()
    text = "g ∝ p̂² is outside: one draw can move mÊ by more than mc_a"
    averaged = "tanh is outside: of a mean it is more than the mean of tanhs"
    return [
        below("E45", text, constant, moved, BEYOND),
        below("E45", averaged, inside, outside, BEYOND),
    ]


def held_out_certificates() -> list[Statement]:
    """Coverage of the held-out certificate on a known distribution, unequal t_i."""
    rng = np.random.default_rng(0)
    X, m = random_design(m=300), 300
    taste = rng.gamma(0.2, size=X.shape)
    model = Factors(jnp.asarray(np.log(taste + 1e-3)), jnp.eye(X.num_items))
    truth = generalisation.world(model, X, taste)
    covers = generalisation.coverage(KEY, truth, rng.integers(4, 9, m), DELTA)
    return [
        at_most(
            "Certificate",
            f"held_out_unseen, {name}: P{{bound > AUC}}, 200 draws, mean width {c.width:.3f}",
            c.failures,
            DELTA,
            BEYOND,
        )
        for name, c in covers.items()
    ]


def rademacher_certificates() -> list[Statement]:
    """The corrected Theorem 3.8 as a certificate: valid, and never below the all-zero model."""
    X, found = random_design(), []
    for name, loss in function_class.paper_losses().items():
        options = {"kind": "rademacher_users", "loss": loss, "draws": 100, "key": KEY}
        made = certificate.certify(trained(X), X, **options)
        text = f"rademacher_users, {name}: the floor max(L(0), 2L(0) − Ê) is below it"
        found.append(at_most("Certificate", text, made.terms["floor"], made.bound, BEYOND))
    return found


CHECKS = [
    theorem_3_3,
    bounded_differences,
    theorem_3_4,
    lemmas_and_theorem_3_8,
    tight_worlds,
    function_classes,
    scope,
    held_out_certificates,
    rademacher_certificates,
]
