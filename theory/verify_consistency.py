"""The checks of Section 3's first half: Definition 3.1, Theorems 3.1 and 3.2, E25–E32."""

from collections.abc import Iterator

import jax
import numpy as np
import scipy.stats

from mfauc_jax.objective import losses
from theory import consistency, function_class
from theory.statement import BEYOND, CORRECTED, REFUTED, Statement, at_most, below, equal

INSTANCES = 20  # random finite-item worlds
HINGE = np.array([0.40, 0.45, 0.60])


def worlds(count: int = INSTANCES, items: int = 6) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Random (η, item probabilities)."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        yield rng.uniform(0.05, 0.95, items), rng.dirichlet(np.ones(items))


def definition_3_1() -> list[Statement]:
    """Consistency, on finite worlds: the minimiser of R_L attains the Bayes risk."""
    found = []
    for loss in (losses.square, losses.square_hinge, losses.logistic):
        regret = 0.0
        for eta, w in worlds():
            s = consistency.minimiser(loss, eta, w)
            regret += consistency.auc_risk(s, eta, w) - consistency.bayes_risk(eta, w)
        text = f"R at the minimiser of R_{loss.name} exceeds R* by 0 ({INSTANCES} worlds)"
        found.append(at_most("Def 3.1", text, regret, 0.0, tolerance=1e-12))
    rng = np.random.default_rng(2)
    along = [consistency.sigmoid_sequence(eta, w, rng.normal(size=6)) for eta, w in worlds()]
    surrogate, auc = (np.max(parts, axis=0) for parts in zip(*along, strict=True))
    return [
        *found,
        below(
            "Def 3.1",
            "sigmoid: R_L(s⟨t⟩) − inf R_L at the end of 20 sequences",
            surrogate[-1],
            0.01,
        ),
        at_most("Def 3.1", "sigmoid: R(s⟨t⟩) − R* at their end", auc[-1], 0.0, tolerance=1e-12),
        below("Def 3.1", "sigmoid: the sequences begin with a regret in R", 0.0, auc[0]),
    ]


def users() -> list[Statement]:
    """Definition 3.1 over users: free scores for each user attain the mean of their Bayes risks (E30)."""
    rng = np.random.default_rng(3)
    eta, weights = rng.uniform(0.05, 0.95, (4, 5)), rng.dirichlet(np.ones(5), 4)
    shares = rng.dirichlet(np.ones(4))

    def regret(S):
        rows = zip(shares, S, eta, weights, strict=True)
        return sum(
            share * (consistency.auc_risk(s, e, w) - consistency.bayes_risk(e, w))
            for share, s, e, w in rows
        )

    found = []
    for loss in (losses.square, losses.square_hinge, losses.logistic):
        S = consistency.users_minimiser(loss, eta, weights, shares)
        text = f"4 users, 5 items, {loss.name}: R − R* at the minimiser over all s(w, y)"
        found.append(at_most("Def 3.1", text, regret(S), 0.0, tolerance=1e-12))
    rows = zip(shares, eta, weights, strict=True)
    regrets = np.array(
        [np.multiply(share, consistency.sigmoid_regrets(1e4 * e, e, w)) for share, e, w in rows]
    ).sum(0)
    text = "the same, sigmoid: R − R* summed over users, where R_L − inf R_L"
    found.append(at_most("Def 3.1", f"{text} = {regrets[1]:.0e}", regrets[0], 0.0, tolerance=1e-12))
    one = consistency.shared_minimiser(losses.square, eta, weights, shares)
    text = "one s(y) for all users, a class too small: R − R* of its minimiser is above 0"
    found.append(below("E30", text, 0.0, regret(np.tile(one, (4, 1)))))
    return found


def theorem_3_1() -> list[Statement]:
    """Its hypotheses, loss by loss (E27), and why "differentiable" is needed (the hinge)."""
    found = []
    for name, loss in function_class.paper_losses().items():
        holds = consistency.conditions(loss)
        claimed = consistency.COVERED_BY[name] == "Thm 3.1"
        text = f"{name}: convex {holds.convex}, non-increasing {holds.non_increasing}, L′(0) < 0"
        found.append(equal("Thm 3.1, E27", text, holds.sufficient, claimed))
    value, s = consistency.hinge_minimum(HINGE, np.ones(3))
    forced, _ = consistency.hinge_minimum(HINGE, np.ones(3), at_least=0.05)
    ties = consistency.misordered(s, HINGE)
    text = "the hinge, not differentiable, ties or misorders a pair of η = (.40, .45, .60)"
    found.append(at_most("Thm 3.1, E27", text, 1, ties))
    text = "hinge: the minimum 1.170 at a tie is below any s with s₂ − s₁ ≥ .05"
    found.append(below("Thm 3.1, E27", text, value, forced))
    return found


def theorem_3_2_logistic() -> list[Statement]:
    """The logistic half, printed signs included."""
    x, beta = 0.5, 2.0
    logistic = losses.Logistic(beta=beta)
    slope, curvature = jax.grad(logistic), jax.grad(jax.grad(logistic))
    printed = consistency.printed_logistic(x, beta), consistency.printed_logistic_slope(x, beta)
    bent = consistency.printed_logistic_curvature(x, beta)
    return [
        equal("Thm 3.2, E25", "−ln σ = ln(1/(1+e^(−βx)))", logistic(x), printed[0], REFUTED),
        equal("Thm 3.2, E25", "−ln σ = ln(1+e^(−βx))", logistic(x), -printed[0], CORRECTED),
        below("Thm 3.2, E26", "the printed slope −(−βe)/(1+e) < 0", printed[1], 0.0, REFUTED),
        equal("Thm 3.2, E26", "slope −βe/(1+e)", slope(x), -printed[1], CORRECTED),
        equal("Thm 3.2, E26", "slope at zero −β/2", slope(0.0), -beta / 2),
        equal("Thm 3.2, E26", "second derivative", curvature(x), bent),
    ]


def square_loss() -> list[Statement]:
    """E28: the square is consistent through its explicit minimiser."""
    off, gaps, wrong = 0.0, [], 0
    for eta, w in worlds():
        s = consistency.square_minimiser(eta, w)
        closed = consistency.mobius(s, eta, w)
        off = max(off, np.abs(closed - closed[0] - s).max())
        gaps.append(consistency.gap(s, eta, w))
        wrong += consistency.misordered(s, eta, tol=0.0)
    return [
        at_most("E28", "square: minimiser minus Möbius formula", off, 0.0, CORRECTED, 1e-10),
        at_most("E28", "square: Δ = E[s|+] − E[s|−] ≤ 1 at the optimum", max(gaps), 1.0, CORRECTED),
        at_most("E28", "square: Δ ≥ 0 at the optimum", 0.0, min(gaps), CORRECTED),
        at_most("E28", "square: misordered pairs", wrong, 0, CORRECTED),
    ]


def theorem_3_2_sigmoid() -> list[Statement]:
    """E29: the printed limit, and the regret bound that repairs the proof."""
    eta = np.array([0.2, 0.5, 0.5, 0.9])
    s, ones = 400.0 * eta, np.ones(4)
    reached = consistency.surrogate_risk(losses.sigmoid, s, eta, ones)
    reached = reached - consistency.pair_weights(eta, ones).sum()  # the paper's −σ
    printed, true = (consistency.sigmoid_limit(eta, flag) for flag in (True, False))
    rng = np.random.default_rng(1)
    ratio = 0.0
    for eta_r, w in worlds(300):
        scores = rng.normal(size=6) * rng.choice([0.01, 1, 10])
        if rng.random() < 0.3:
            scores = np.round(scores)  # ties
        auc, surrogate = consistency.sigmoid_regrets(scores, eta_r, w)
        ratio = max(ratio, auc / surrogate)
    text = "(R − R*) / (R_L − R_L*) over 300 random worlds and scores"
    slope = abs(float(jax.grad(losses.sigmoid)(-20.0)))
    return [
        equal("Thm 3.2, E29", "inf R′_L = −Σ_{η_i>η_j} η_i(1−η_j)", reached, printed, REFUTED),
        equal("Thm 3.2, E29", "the same minus pairs of equal η", reached, true, CORRECTED),
        at_most("Thm 3.2, E29", text, ratio, 2.0, CORRECTED),
        below("E30", "sigmoid: consistent, yet |L′| on a wrong gap of 20 vanishes", slope, 3e-9),
    ]


def tanh_weighting() -> list[Statement]:
    """E31: Eq. 3 with φ = tanh is not consistent in general."""
    eta, w = np.array([0.3049, 0.7214, 0.7920]), np.array([0.0244, 0.1535, 0.8221])
    best, correct, s = consistency.tanh_grid_minimiser(losses.square_hinge, 5.0, eta, w)
    text = 'tanh(5x): the best correct order attains the minimum ("all loss functions")'
    wrong = consistency.misordered(s, eta)
    s = consistency.tanh_grid_minimiser(losses.square_hinge, 0.5, eta, w, step=0.05)[2]
    gentle = consistency.misordered(s, eta)
    return [
        at_most("E31", text, correct, best, REFUTED),
        at_most("E31", "tanh(5x): misordered pairs at the minimiser", 1, wrong),
        at_most("E31", "tanh(x/2): misordered pairs at the minimiser", gentle, 0),
    ]


def softmax() -> list[Statement]:
    """Beyond the paper: the exponential loss under the log (docs/derivations.md#softmax)."""
    off, wrong, slope = 0.0, 0, 0.0
    for eta, w in worlds(5):
        s = consistency.softmax_descent(eta, w, beta=2.0)
        closed = consistency.softmax_minimiser(eta, beta=2.0)
        off = max(off, np.abs(s - closed + closed.mean()).max())
        wrong += consistency.misordered(consistency.softmax_descent(eta, w, beta=2.0, c=3.0), eta)
        slope = max(slope, consistency.softmax_slopes(s, eta, w, beta=2.0))
    return [
        at_most("softmax", "minimiser minus log(η/(1 − η))/β", off, 0.0, BEYOND, 1e-6),
        at_most("softmax", "log(1 + 3x) of the exponential: misordered pairs", wrong, 0, BEYOND),
        at_most("softmax", "Σ |∂/∂s| of one user ≤ 2β, β = 2", slope, 4.0, BEYOND),
    ]


def mann_whitney(s: np.ndarray, x: np.ndarray) -> float:
    """The AUC of one user from the ranks of its positives."""
    positives, negatives = x.sum(), (~x).sum()
    above = scipy.stats.rankdata(s)[x].sum() - positives * (positives + 1) / 2
    return float(above / (positives * negatives))


def multi_user_auc() -> list[Statement]:
    """E32: ties must be ties of s(w, ·); the multi-user AUC is the mean of the users' AUCs."""
    rng = np.random.default_rng(0)
    S, X = rng.integers(0, 3, (5, 8)), rng.random((5, 8)) < 0.4
    X[:, 0], X[:, 1] = True, False
    margins = [(s[x][:, None] - s[~x][None, :]).ravel() for s, x in zip(S, X, strict=True)]
    by_hand = np.mean([1 - consistency.auc_loss(m).mean() for m in margins])
    shared = S[0]  # "s(y) = s(y′)" without w reads one user's scores for all
    printed = np.mean(
        [
            ((m > 0) + 0.5 * (shared[x][:, None] == shared[~x][None, :]).ravel()).mean()
            for m, x in zip(margins, X, strict=True)
        ]
    )
    oracle = np.mean([mann_whitney(s, x) for s, x in zip(S, X, strict=True)])
    return [
        equal("E32", "AUC with ties s(w,y) = s(w,y′) = Mann–Whitney", by_hand, oracle, CORRECTED),
        equal("E32", "AUC with the printed tie s(y) = s(y′)", printed, oracle, REFUTED),
    ]


CHECKS = [
    definition_3_1,
    users,
    theorem_3_1,
    theorem_3_2_logistic,
    square_loss,
    theorem_3_2_sigmoid,
    tanh_weighting,
    softmax,
    multi_user_auc,
]
