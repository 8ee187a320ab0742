"""The claims of the abstract, of Section 2, and of Section 3 about practice; see `claims`."""

import numpy as np

from experiments.evidence import (
    OPEN,
    REFUTED,
    VERIFIED,
    Claim,
    MissingRecords,
    Part,
    Records,
    exact,
    mean,
    registering,
)

CLAIMS: list[Claim] = []
claim = registering(CLAIMS)


# --- Abstract ---------------------------------------------------------------------------------


@claim(
    "Abstract",
    "a … stochastic gradient-descent-based algorithm which scales linearly with the size of the data",
    VERIFIED,
    "Our minibatch solver; linear is read as a slope below 1.2, and the slope is a little above 1.",
)
def linear_in_the_data(records: Records) -> list[Part]:
    rows = [
        r for r in records.of("bench_scaling") if (r["series"], r["route"]) == ("nnz", "minibatch")
    ]
    if len(rows) < 3:
        raise MissingRecords("bench_scaling: series nnz, minibatch")
    x, y = (np.log([r[name] for r in rows]) for name in ("nnz", "seconds"))
    slope = np.polyfit(x, y, 1)[0]
    return [exact("slope of log seconds per iteration over log positives", slope, "<", 1.2)]


# --- Section 2 --------------------------------------------------------------------------------


@claim("Sec. 2, ¶2", "item ratings often have a long tail distribution", VERIFIED)
def long_tail(records: Records) -> list[Part]:
    shares = records.experiment("long_tail")["share_of_positives"]
    text = "share of the positives of the most popular tenth of the items"
    return [exact(f"{name}: {text}", value, ">", 0.3) for name, value in shares.items()]


@claim(
    "Sec. 2, ¶3",
    "could have identical AUC value and yet s for example scores badly on the top few items",
    VERIFIED,
)
def same_auc_other_top(records: Records) -> list[Part]:
    found = records.experiment("same_auc")
    late, early = found["precision@1"]
    gap = abs(found["auc"][0] - found["auc"][1])
    return [
        exact("AUC of two lists, difference", gap, "<", 1e-12),
        exact("their p@1, difference", early - late, ">", 0.5),
    ]


@claim(
    "Sec. 2.1, ¶1", "the scoring function has k(m+n) parameters and hence scales linearly", VERIFIED
)
def linear_in_users_and_items(records: Records) -> list[Part]:
    found = records.experiment("visits")
    return [exact("|parameters − k(m + n)|", abs(found["parameters"] - found["k(m + n)"]), "<", 1)]


@claim(
    "Sec. 2.1, ¶3 and ¶4",
    "convex in the square and hinge loss cases for U and V but not both simultaneously",
    VERIFIED,
    "The earlier “convex in U and V” is to be read so.",
)
def convex_in_each(records: Records) -> list[Part]:
    parts = []
    for loss, (users, items, both) in records.experiment("curvature")["least_eigenvalue"].items():
        name = f"{loss}: least eigenvalue of ∇²θ in"
        parts += [
            exact(f"{name} U", users, ">", -1e-9),
            exact(f"{name} V", items, ">", -1e-9),
            exact(f"{name} both", both, "<", -0.01),
        ]
    return parts


@claim(
    "Sec. 2.1, ¶3",
    "The sigmoid function is perhaps the best approximation of the negative indicator function",
    VERIFIED,
)
def sigmoid_is_nearest(records: Records) -> list[Part]:
    rows = {r["loss"]: np.array(r["value"]) for r in records.of("fig_loss_plots")}
    away = {name: float(np.abs(y - rows["indicator"]).mean()) for name, y in rows.items()}
    text = "mean distance from the indicator on Fig. 1's margins: sigmoid −"
    return [
        exact(f"{text} {name}", away["sigmoid"] - value, "<", 0)
        for name, value in away.items()
        if name not in ("sigmoid", "indicator")
    ]


@claim(
    "Sec. 2.1, ¶3",
    "As β → ∞ … we get an objective exactly corresponding to maximising AUC",
    VERIFIED,
)
def beta_to_infinity(records: Records) -> list[Part]:
    gaps = records.experiment("steep")["gap"]
    return [
        exact("|θ − (1 − AUC)| at β = 1e6", gaps[-1], "<", 1e-5),
        exact("the same at β = 1", gaps[1], ">", 0.01),
    ]


@claim(
    "Sec. 2.1, ¶3",
    "if β is too small then corresponding objective is a poor approximation of the AUC and if it is too "
    "large … hard to perform gradient descent",
    VERIFIED,
    "A small β is a poor approximation as a number; without λ it is only a scale of the scores, and the ranking need "
    "not suffer (the number in brackets, which decides nothing).",
)
def beta_in_between(records: Records) -> list[Part]:
    aucs = {k: np.array(v) for k, v in records.experiment("beta_choice")["auc"].items()}
    small = float((aucs["4"] - aucs["0.01"])[:, 0].mean())
    text = f"training AUC, L-BFGS: β = 4 minus β = 256 (and minus β = .01: {small:.2g})"
    return [
        exact("|θ − (1 − AUC)| at β = .01", records.experiment("steep")["gap"][0], ">", 0.1),
        mean(text, (aucs["4"] - aucs["256"])[:, 0], ">"),
    ]


@claim(
    "Sec. 2.1, ¶3",
    "To alleviate the problem … a series of increasing β values",
    OPEN,
    "The steeper the last β, the more it helps; up to 64 the training AUC does not show it.",
)
def rising_betas(records: Records) -> list[Part]:
    aucs = {k: np.array(v) for k, v in records.experiment("beta_choice")["auc"].items()}
    parts = []
    for last in ("64", "256"):
        rise = aucs[f"up to {last}"] - aucs[last]
        text = f"AUC: β = 1, 4, …, {last} minus β = {last} at once"
        parts += [
            mean(f"training {text}", rise[:, 0], ">"),
            mean(f"held-out {text}", rise[:, 1], ">"),
        ]
    return parts


@claim("Sec. 2.1, ¶4", "tanh(ρx) … is a concave function", VERIFIED)
def tanh_is_concave(records: Records) -> list[Part]:
    slopes = records.experiment("slopes_of_tanh")["slopes"]
    return [
        exact(f"ρ = {rho}: largest φ″ on x ≥ 0", bend, "<", 1e-9)
        for rho, (bend, *_) in slopes.items()
    ]


@claim(
    "Sec. 2.1, ¶4; Sec. 2.2, ¶3",
    "items with small losses have larger gradients towards the optimal solution and hence are prioritised",
    VERIFIED,
    "As a weight on an item's gradient; whether lists become better at their top is judged below.",
)
def tanh_weighs_small_losses(records: Records) -> list[Part]:
    slopes = records.experiment("slopes_of_tanh")["slopes"]
    return [
        exact(f"ρ = {rho}: largest rise of φ′", rise, "<", 1e-9)
        for rho, (_, rise, _) in slopes.items()
    ]


@claim("Sec. 2.1, ¶5", "when τ′ = 0 we sample from the uniform distribution", VERIFIED)
def no_exponent_is_uniform(records: Records) -> list[Part]:
    spread = records.experiment("exponent")["g"]["zero"]["spread_of_g"]
    return [exact("largest minus least N_i g_ij at τ′ = 0", spread, "<", 1e-6)]


@claim(
    "Sec. 2.1, ¶5",
    "when τ′ > 0 we give preference to items for which n_y is small",
    REFUTED,
    "The sign is wrong (theory/README.md, E6): τ′ > 0 prefers popular positives.",
)
def exponent_prefers_rare_items(records: Records) -> list[Part]:
    found = records.experiment("exponent")["g"]["positive"]["correlation"]
    return [exact("rank correlation of g with n_y at τ′ = ½", found, "<", 0)]


@claim("Sec. 2.2, ¶1", "inexpensive ways to compute derivatives in the square loss case", VERIFIED)
def square_is_cheap(records: Records) -> list[Part]:
    seconds = records.experiment("square_speed")["seconds_by_loss"]
    text = "time of θ and ∇θ over all pairs, of the square"
    return [
        exact(f"{name} ÷ {text}", seconds[name] / seconds["square"], ">", 1.5)
        for name in seconds
        if name != "square"
    ]


@claim(
    "Sec. 2.2, ¶4",
    "can be estimated effectively using κ_W users, and κ_Y items",
    VERIFIED,
    "Unbiased, and good for κ large enough. At the paper's κ_W = 30 and κ_Y = 10 a single estimate is "
    "mostly noise: its relative error is shown.",
)
def estimates_from_samples(records: Records) -> list[Part]:
    found = records.experiment("estimates")
    by_size = {
        tuple(size): values for size, values in zip(found["sizes"], found["found"], strict=True)
    }
    parts = [
        exact(f"κ = {size}: rms z of the mean of ∂v_j", z, "<", 1.3)
        for size, (_, _, z) in by_size.items()
    ]
    first, middle, last = (by_size[size][1] for size in by_size)
    return [
        *parts,
        exact(
            f"relative error at κ = (30, 10), {middle:.2g}, ÷ that at (3, 2)",
            middle / first,
            "<",
            0.5,
        ),
        exact(
            f"relative error at κ = (300, 100), {last:.2g}, ÷ that at (30, 10)",
            last / middle,
            "<",
            0.5,
        ),
        exact("mean cosine with ∂θ/∂v_j at κ = (300, 100)", found["found"][-1][0], ">", 0.8),
    ]


@claim("Sec. 2.2, ¶5", "each iteration updates all of the rows of U and V at least once", VERIFIED)
def every_row_is_updated(records: Records) -> list[Part]:
    users, items = records.experiment("visits")["visits"]
    return [
        exact("least visits of a user", users[0], ">", 0),
        exact("least visits of an item", items[0], ">", 0),
    ]


@claim(
    "Sec. 2.2, ¶5",
    "These matrices can be shown to converge more rapidly than U and V",
    REFUTED,
    "As the authors ran it they do, and with large steps. With our reading of Algorithm 1 at the paper's α = .05 they "
    "are behind after 300 iterations.",
)
def averages_converge_faster(records: Records) -> list[Part]:
    text = "θ of the averages − θ of the iterates, 300 iterations"
    parts = []
    for steps, rows in records.experiment("averages")["theta"].items():
        average, iterate = np.array(rows)[:, -1].T  # [seeds] each
        parts.append(mean(f"{steps}: {text}", average - iterate, "<"))
    return parts


@claim(
    "Sec. 2.2, Parallel, ¶1; Fig. 2",
    "no two concurrent blocks share the same row or column",
    VERIFIED,
)
def blocks_are_disjoint(records: Records) -> list[Part]:
    clashes = 0
    for r in records.of("fig_blocks"):
        schedule = np.array(r["schedule"])
        clashes += sum(len(set(columns)) < len(columns) for columns in schedule.T)
    return [exact("rounds with a column block twice", clashes, "<", 1)]


@claim(
    "Sec. 2.2, Parallel, ¶1",
    "blocks are sized so that the number of nonzero elements within each one is approximately constant",
    VERIFIED,
)
def blocks_are_even(records: Records) -> list[Part]:
    parts = []
    for r in records.of("fig_blocks"):
        positives = np.array(r["positives"], float)
        ratio = positives.max() / positives.mean()
        parts.append(exact(f"iteration {r['iteration']}: fullest block ÷ mean", ratio, "<", 1.5))
    return parts


# --- Section 3, on practice -------------------------------------------------------------------


@claim(
    "Sec. 3.1, last ¶",
    "In practice one finds that the bound on the Rademacher term is larger than the last term",
    VERIFIED,
)
def rademacher_outweighs(records: Records) -> list[Part]:
    parts = []
    for dataset, found in records.experiment("terms")["terms"].items():
        for form in ("printed", "corrected"):
            parts.append(
                exact(f"{dataset}: bound on R as {form} ÷ ε₁", found[form] / found["last"], ">", 1)
            )
    return parts
