"""The checks of Section 3's second half: Theorems 3.3–3.8, the lemmas, E33–E45, and certificate C."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from mfauc_jax import bounds, losses, spectral
from mfauc_jax.factors import Factors, gaussian
from mfauc_jax.interactions import Interactions
from theory import function_class, generalisation, mcdiarmid, rademacher
from theory.statement import CORRECTED, REFUTED, Statement, at_most, below, equal

DELTA = 0.1
KEY = jax.random.key(0)


def random_design(seed: int = 0, m: int = 30, n: int = 20) -> Interactions:
    """Users with 2 to n − 2 random positives."""
    rng = np.random.default_rng(seed)
    rows = [rng.permutation(n) < rng.integers(2, n - 1) for _ in range(m)]
    return Interactions.from_scipy(np.array(rows, float))


def theorem_3_3() -> list[Statement]:
    """McDiarmid's inequality against an exact binomial tail; the tightest case."""
    cases = [(n, p, e) for n in (5, 20, 80) for p in (0.1, 0.5, 0.7) for e in (0.05, 0.1, 0.2, 0.3)]
    sides = [
        (mcdiarmid.binomial_tail(n, p, e), mcdiarmid.tail(e, np.full(n, 1 / n)))
        for n, p, e in cases
    ]
    tight = max(sides, key=lambda pair: pair[0] / pair[1])
    return [at_most("Thm 3.3", "P{mean − p ≥ ε} ≤ exp(−2nε²), tightest of 36 coins", *tight)]


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
        at_most("Thm 3.4, E33", "the same, multisets, n ≤ 6, every sample", max(found - printed), 0,
                CORRECTED),
        at_most("Thm 3.4, E34", "new item: |change − c_a|, 12 cases", abs(new - printed).max(), 0),
        equal("Thm 3.4, E34", "item already drawn: (n−1)/(|ω|(|ω̄|+1))", repeat, formula),
        equal("Thm 3.4, E34", "the same as sets: max(1/|ω|, 1/(|ω̄|+1))", as_set, max(1 / 3, 1 / 6)),
        equal("Thm 3.4, E34", "R̂ of {Q, 1−Q} moves by 2c_a: n = 8, |ω| = 3", attained, twice),
    ]  # fmt: skip


def theorem_3_4() -> list[Statement]:
    """The final formula is 2ε₁ and covers; the regimes that follow it (E35)."""
    num_pos = np.array([3, 5, 2, 8])
    printed = mcdiarmid.theorem_3_4(num_pos, 20, DELTA)
    sim, R, deviation = simulated()
    found = [
        equal("Thm 3.4", "its term = 2 ε₁", printed, 2 * bounds.mcdiarmid(num_pos, 20, DELTA)),
        at_most("Thm 3.4", "R − R̂ ≤ term: .9-quantile over samples of a toy world",
                np.quantile(R - sim.rhat, 1 - DELTA), 2 * deviation(DELTA), CORRECTED),
    ]  # fmt: skip
    for name, rate in (("|ω| fixed", "1/√m"), ("|ω| = n/2", "1/√(mn)"), ("|ω̄| fixed", "√(n/m)")):
        ratios = [mcdiarmid.regime_ratio(name, m, n) for m, n in ((10**3, 10**4), (10**5, 10**5))]
        text = f"regime {name}: term ÷ {rate} constant to 1 %"
        found.append(equal("Thm 3.4, E35", text, *ratios, tolerance=0.01))
    grown = [mcdiarmid.regime("|ω| = n − 1", 10**4, n) for n in (10**3, 10**5)]
    text = "|ω| = Θ(n) suffices for 1/√(mn): |ω| = n − 1, n × 100"
    found.append(at_most("Thm 3.4, E35", text, grown[1], grown[0], REFUTED))
    return found


def borrowed_theorems() -> list[Statement]:
    """Theorems 3.5 (scalar contraction) and 3.6 (multiplicative perturbation), spot-checked."""
    rng = np.random.default_rng(0)
    worst = (-np.inf, 0.0)
    for _ in range(50):
        F, slopes = rng.normal(size=(6, 7)), rng.uniform(0.2, 3, 7)
        phis = [lambda x, b=b: np.logaddexp(0, -b * x) for b in slopes]
        sides = rademacher.contraction_sides(F, phis, slopes)
        worst = max(worst, sides, key=lambda pair: pair[0] - pair[1])
    B, left, right = rng.normal(size=(4, 6)), rng.normal(size=(4, 4)), rng.normal(size=(6, 6))
    low, moved, high = rademacher.perturbed_singular_values(B, left, right)
    signs = np.diag(rng.choice([-1.0, 1.0], 6))
    same = rademacher.perturbed_singular_values(B, np.eye(4), signs)[1]
    return [
        at_most("Thm 3.5", "E sup Σσφ(f) ≤ E sup Σσγf, tightest of 50 classes", *worst),
        at_most("Thm 3.6", "σ̃ ≤ σ‖D_L‖‖D_R‖, largest excess", (moved - high).max(), 0),
        at_most("Thm 3.6", "σ / (‖D_L⁻¹‖‖D_R⁻¹‖) ≤ σ̃, largest excess", (low - moved).max(), 0),
        equal("Thm 3.6", "signs leave σ₁ alone (all that Thm 3.7 needs)", same[0], np.linalg.norm(B, 2)),
    ]  # fmt: skip


def lemma_3_1() -> list[Statement]:
    """E36: the value is right, the printed maximiser is not."""
    A = np.random.default_rng(3).normal(size=(6, 6))
    found, printed = [], rademacher.printed_sup_trace(A, 3)
    top = np.linalg.norm(A, 2)
    for k, C in ((1, np.ones((1, 1))), (3, np.array([[0.2, -1.0, 0.4]]))):
        value, point = rademacher.sup_trace(A, C)
        attained = rademacher.trace_value(A, point)
        found.append(
            equal("Lemma 3.1, E36", f"sup tr(UᵀAV) = σ₁ at U = p₁cᵀ, k = {k}", attained, value)
        )
    climbed = max_trace_by_power(A, 3)
    return [
        equal("Lemma 3.1, E36", "tr(UᵀAV) at the printed [q₁…], [p₁…]", printed, top, REFUTED),
        *found,
        equal("Lemma 3.1", "alternating maximisation reaches σ₁, k = 3", climbed, top, tolerance=1e-6),
    ]  # fmt: skip


def max_trace_by_power(A: np.ndarray, k: int, steps: int = 2000) -> float:
    V = np.random.default_rng(0).normal(size=(A.shape[1], k))
    for _ in range(steps):
        U = A @ V / np.linalg.norm(A @ V)
        V = A.T @ U / np.linalg.norm(A.T @ U)
    return float(np.trace(U.T @ A @ V))


def theorem_3_7() -> list[Statement]:
    """E37 to E40: equality for linear h, refuted for Lipschitz h, corrected with E‖G‖₂."""
    X = random_design()
    rng = np.random.default_rng(0)
    nus = rng.choice([-1.0, 1.0], (200, 30))
    linear = np.array([rademacher.linear_supremum(X, nu, 1.0) for nu in nus]) * 2 / 30
    printed = rademacher.printed_bound(X, 1.0, 1.0)
    found = [
        equal("Thm 3.7, E37", "linear h: R̂ = bound, 200 sign vectors (smallest)", linear.min(), printed),
        equal("Thm 3.7, E37", "the same, largest", linear.max(), printed),
        equal("Thm 3.7, E39", "no dimension in it: attained with k = 1", attained(X, 1), printed),
        equal("Thm 3.7, E39", "and with k = 4", attained(X, 4), printed),
        equal("Thm 3.7, E39", "R_U R_V/m of unit rows is √(n/m): it need not vanish",
              np.sqrt(30 * 20) / 30, function_class.norm_rate(1, 1, 30, 20)),
    ]  # fmt: skip
    for m, n, name in (
        (2560, 256, "logistic"),
        (2560, 256, "square"),
        (10240, 1024, "square_hinge"),
    ):
        design, gamma = rademacher.half_and_half(0, m, n), 12.0
        B, rho = bounds.constants(name, gamma).lipschitz, 6 * np.sqrt(m * n)
        lower = rademacher.two_valued_excess(losses.get(name), design, gamma)
        bound = rademacher.printed_bound(design, B, rho)
        text = f"{name}, {n} × {m}: R̂ ≤ (2Bρ/m)"
        found.append(at_most("Thm 3.7, E38", text + "‖E−Ē‖₂", lower, bound, REFUTED))
        bound = rademacher.corrected_bound(KEY, design, B, rho, draws=3)
        found.append(at_most("Thm 3.7, E38", text + " E‖G‖₂", lower, bound, CORRECTED))
        crude = rademacher.crude_bound(m, B, rho)
        found.append(
            at_most("Thm 3.7, E38", text.replace("(2Bρ/m)", "2√2Bρ/√m"), lower, crude, CORRECTED)
        )
    norms = spectral.sampled_norms(KEY, X, spectral.one_pair_each, 200)
    mean = spectral.spectral_norm(spectral.mean_difference(X))
    found.append(at_most("E38", "Jensen: ‖E−Ē‖₂ ≤ E‖G‖₂", mean, norms.mean(), CORRECTED))
    return found


def attained(X: Interactions, k: int) -> float:
    """R̂ of linear h at Lemma 3.1's maximiser with k columns, ‖U‖_F = ‖V‖_F = 1."""
    operator = spectral.mean_difference(X)
    dense = np.asarray(operator @ np.eye(operator.shape[1]))
    _, point = rademacher.sup_trace(dense, np.arange(1.0, k + 1)[None, :])
    return 2 * rademacher.trace_value(dense, point) / operator.shape[1]


def hadamard() -> list[Statement]:
    """E38 on 7 × 8 with all 128 sign vectors, the suprema by ascent."""
    design, rho = rademacher.hadamard_design(), 80.0
    X, logistic = Interactions.from_scipy(np.asarray(design)), losses.get("logistic")
    nus = rademacher.sign_vectors(7)
    lower = rademacher.lower_bound(KEY, logistic, design, rho, nus, rank=1, steps=100, starts=2)
    printed, right = rademacher.printed_bound(X, 1.0, rho), rademacher.corrected_bound
    corrected, text = right(KEY, X, 1.0, rho, draws=300), "Hadamard 7 × 8, logistic: R̂ ≤ (2ρ/m)"
    return [
        at_most("Thm 3.7, E38", text + "‖E−Ē‖₂", lower, printed, REFUTED),
        at_most("Thm 3.7, E38", text + " E‖G‖₂", lower, corrected, CORRECTED),
    ]


def corollary_3_1() -> list[Statement]:
    """E40: it inherits E38. The deviation term is too small to hide it."""
    m, n, gamma = 2560, 256, 12.0
    X, rho = rademacher.half_and_half(0, m, n), 6 * np.sqrt(m * n)
    lower = rademacher.two_valued_excess(losses.get("logistic"), X, gamma)
    printed = generalisation.corollary_3_1(X, 1.0, rho, 0.05)
    deviation = mcdiarmid.theorem_3_4(spectral.defined_rows(X).num_pos, n, 0.05)
    corrected = rademacher.corrected_bound(KEY, X, 1.0, rho, draws=3) + deviation
    text = "R̂ ≤ R's bound, logistic, 256 × 2560"
    return [
        at_most("Cor 3.1, E40", text + ", as printed", lower, printed, REFUTED),
        at_most("Cor 3.1, E40", text + ", with E‖G‖₂", lower, corrected, CORRECTED),
    ]


def floor() -> list[Statement]:
    """SPEC 6.3: Ê + R̂ ≥ L(0), whatever the model."""
    X, found = random_design(), []
    model = trained(X)
    for name in losses.LOSSES:
        loss = losses.get(name)
        zero, risk = float(loss(0.0)), float(bounds.user_risks(loss, model, X).mean())
        R = rademacher.zeroed(loss, model, X)
        found.append(equal("floor", f"{name}: Ê + zeroed rows' R̂ = L(0)", risk + R, zero))
        R = rademacher.flipped(loss, model, X)
        text = f"{name}: 2L(0) − Ê ≤ Ê + flipped rows' R̂"
        found.append(at_most("floor", text, 2 * zero - risk, risk + R))
    return found


def trained(X: Interactions) -> Factors:
    """A model that fits: the top of the centred X."""
    dense = X.to_scipy().toarray().astype(float)
    P, s, Qt = np.linalg.svd(dense - dense.mean())
    return Factors(jnp.asarray(P[:, :5] * s[:5]), jnp.asarray(Qt[:5].T))


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
        at_most("Lemma 3.2", "sup(E−Ê) − E sup ≤ ε₁: .9-quantile", np.quantile(off - off.mean(), high), e1),
        at_most("Lemma 3.3", "E sup(Ẽ−Ê) ≤ R", sim.swap.mean(), R),
        at_most("Thm 3.8", "sup_Q(E−Ê) ≤ R + ε₁, all Q at once: .9-quantile", np.quantile(off, high), R + e1),
        at_most("E41", "sup(E−Ê) − R̂ ≤ 3ε₁(δ): .9-quantile", np.quantile(off - sim.rhat, high), single,
                CORRECTED),
        below("E41", "3ε₁(δ) is sharper than the union bound's 3ε₁(δ/2)", single, union, CORRECTED),
    ]  # fmt: skip


def function_classes() -> list[Statement]:
    """E42 to E44: slopes and ranges measured against the formulas."""
    found = []
    for name in ("logistic", "sigmoid"):
        slope = function_class.measured_slope(losses.get(name, 8.0), 6.0)
        found.append(
            at_most("E42", f"{name}, β = 8: Lipschitz with constant 1", slope, 1.0, REFUTED)
        )
    for name in losses.LOSSES:
        for gamma in (0.5, 4.0):
            loss, (B, w, _) = losses.get(name, 2.0), bounds.constants(name, gamma, 2.0)
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
        equal("E43", "its constant 3/2", function_class.measured_slope(losses.square_hinge, half), 1.5),
        equal("E43", "D² = (√2−1)/2: loss ≤ 1 unshifted",
              function_class.measured_range(losses.square_hinge, fits)[1], 1.0, CORRECTED),
        at_most("E44", "−σ(βx), as printed, maps to [0, 1]: 0 ≤ its least value", 0.0,
                function_class.measured_range(lambda x: -jax.nn.sigmoid(x), 5.0)[0], REFUTED),
        at_most("E44", "σ(−βx) ≤ 1", function_class.measured_range(losses.sigmoid, 50.0)[1], 1.0,
                CORRECTED),
    ]  # fmt: skip


def scope() -> list[Statement]:
    """E45: popularity weights and tanh are outside the theory."""
    moved, constant = generalisation.popularity_change(), mcdiarmid.average_difference(2, 8)
    outside, inside = generalisation.tanh_is_not_linear()
    return [
        at_most("E45", "extended to g ∝ p̂²: one draw moves mÊ by ≤ mc_a", moved, constant, REFUTED),
        equal(
            "E45",
            "extended to tanh: a term is an average of some Q(i, p, q)",
            outside,
            inside,
            REFUTED,
        ),
    ]


def regulariser() -> list[Statement]:
    """The penalty at its least over factorisations is (λ/√(mn)) ‖S‖_*."""
    model = gaussian(KEY, 30, 20, 4)
    least = function_class.penalty(function_class.balanced(model), 0.3)
    nuclear = 0.3 * spectral.nuclear_norm(model) / np.sqrt(600)
    return [equal("Thm 3.7", "least penalty = (λ/√(mn))‖UVᵀ‖_*", least, nuclear)]


def certificate_c() -> list[Statement]:
    """Coverage of the hold-out certificate on a known distribution, unequal t_i."""
    rng = np.random.default_rng(0)
    X, m = random_design(m=300), 300
    taste = rng.gamma(0.2, size=X.shape)
    model = Factors(jnp.asarray(np.log(taste + 1e-3)), jnp.eye(X.num_items))
    truth = generalisation.world(model, X, taste)
    covers = generalisation.coverage(KEY, truth, rng.integers(4, 9, m), DELTA)
    return [
        at_most("Cert. C", f"{name}: P{{certified > true AUC}}, 200 draws, mean width {c.width:.3f}",
                c.failures, DELTA)
        for name, c in covers.items()
    ]  # fmt: skip


CHECKS = [
    theorem_3_3, bounded_differences, theorem_3_4, borrowed_theorems, lemma_3_1, theorem_3_7,
    hadamard, corollary_3_1, floor, lemmas_and_theorem_3_8, function_classes, scope, regulariser,
    certificate_c,
]  # fmt: skip
