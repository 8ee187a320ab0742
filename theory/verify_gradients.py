"""Are the gradients right? Autodiff, differences, the corrected closed form, the form as printed.

    python -m theory.verify_gradients [--json=FILE] [--seed=0]

One row for each loss × φ × τ′, and some for the softmax loss, which the paper has not. Exit 0 only if
autodiff, central differences, the exact fast route and the corrected closed forms agree to 1e-8 in
float64, every misprint (E1, E2, E3, E5) shows as one, and the sampled gradients are unbiased for φ = identity.
"""

import argparse
import itertools
import json
import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from mfauc_jax._core import atomic
from mfauc_jax._core.factors import Factors
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective import equation, exact, losses, sampling, weightings
from mfauc_jax.objective.losses import Loss
from mfauc_jax.objective.weightings import Weighting
from mfauc_jax.objective.weights import Weights
from mfauc_jax.solvers.base import gaussian
from theory import closed_form, function_class

TOLERANCE = 1e-8
VISIBLE = 1e-3  # a misprint must move the gradient by more than this
DRAWS = 8_000
# rms of the z-scores of unbiased means of 8 parts of the draws, about 800 correlated coordinates: 1 ± .06
UNBIASED = (0.7, 1.3)


def toy(seed: int) -> tuple[Interactions, Factors]:
    """A matrix with a user of one positive and one of all but one, and scores of size one."""
    rng = np.random.default_rng(seed)
    dense = rng.random((10, 12)) < 0.35
    dense[0], dense[1] = False, True
    dense[0, 3], dense[1, 4] = True, False
    dense[2:, 0] |= ~dense[2:].any(1)
    X = Interactions.of(dense.astype(float))
    return X, gaussian(jax.random.key(seed), *X.shape, rank=4, scale=0.8)


def difference(a: Factors, b: Factors) -> float:
    """The largest absolute difference."""
    return max(float(jnp.abs(x - y).max()) for x, y in zip(a, b, strict=True))


def central_differences(function, at: Factors, step: float = 1e-5) -> Factors:
    """(f(x + h) − f(x − h)) / 2h in every coordinate."""
    flat, restore = ravel_pytree(at)
    eye = step * jnp.eye(flat.size)
    over = jax.vmap(lambda d: function(restore(flat + d)) - function(restore(flat - d)))
    return restore(over(eye) / (2 * step))


@jax.jit
def all_gradients(objective, at: Factors, sample, data: exact.Plan) -> dict[str, Factors]:
    """∇θ by every route."""
    forms = {"corrected": closed_form.CORRECTED} | closed_form.misprints(objective)
    printed = closed_form.printed(objective)
    if printed is not None:
        forms["printed"] = printed
    found = {k: closed_form.gradients(objective, at, sample, form) for k, form in forms.items()}
    if isinstance(objective.loss, losses.Square) and isinstance(
        objective.weighting, weightings.Identity
    ):
        found["short"] = closed_form.square_short_form(at, sample, objective.reg)
    return found | {
        "autodiff": jax.grad(equation.value, 1)(objective, at, sample),
        "differences": central_differences(lambda f: equation.value(objective, f, sample), at),
        "exact": exact.value_and_grad(objective, at, data)[1],
    }


def cases() -> list[tuple[Loss, Weighting, float]]:
    """The paper's losses × φ × τ′; what else is registered has no printed form to compare with."""
    phis = (weightings.identity, weightings.Tanh(rho=0.7))
    by_name = function_class.paper_losses(beta=2.0)
    return list(itertools.product(by_name.values(), phis, (0.0, 0.7)))


def further_cases() -> list[tuple[Loss, Weighting, float]]:
    """The members that the paper has not: the exponential loss and the log, together the softmax loss."""
    pairs = [(losses.Exponential(beta=2.0), weightings.Log(c=c)) for c in (None, 3.0)]
    alone = [
        (
            losses.Exponential(beta=0.5),
            weightings.identity,
        ),  # β small: differences lose digits of e^30
        (losses.Logistic(beta=2.0), weightings.Log(c=3.0)),
    ]
    return [(*pair, tau) for pair in [*pairs, *alone] for tau in (0.0, 0.7)]


def check(loss: Loss, weighting: Weighting, tau: float, X: Interactions, at: Factors) -> dict:
    """One row of the table."""
    objective = equation.make(loss, weighting, reg=0.3)
    weights = Weights.paper(tau).of(X)
    untabled = weights._replace(pos_table=None, neg_table=None, row_table=None)  # one compilation
    data = exact.plan(objective, X, untabled)
    found = all_gradients(objective, at, sampling.everything(X, weights), data)
    away = {k: difference(found["autodiff"], g) for k, g in found.items() if k != "autodiff"}
    off = {k: away[k] for k in closed_form.misprints(objective)}
    agree = {k: away[k] for k in ("differences", "exact", "corrected")}
    agree["corrected"] = max(away["corrected"], away.get("short", 0.0))
    printed = away.get("printed")
    ok = all(d < TOLERANCE for d in agree.values()) and all(d > VISIBLE for d in off.values())
    ok &= printed is None or (printed < TOLERANCE) == (not off)
    if off:
        verdict = "misprinted: " + " ".join(f"{k} ({d:.0e})" for k, d in off.items())
    else:
        verdict = "not in the paper" if printed is None else "right as printed"
    row = {"loss": loss.name, "weighting": weighting.name, "tau": tau, **agree, "printed": printed}
    return row | {"misprints": off, "verdict": verdict if ok else f"FAILS ({verdict})", "ok": ok}


def check_masses(X: Interactions, at: Factors) -> dict:
    """E5: with unnormalised g, g′ the short square forms need their masses."""
    sample = sampling.everything(X, Weights.paper().of(X))
    sample = sample._replace(g_pos=3 * sample.g_pos, g_neg=5 * sample.g_neg)
    objective = equation.make("square", reg=0.3)
    auto = jax.grad(equation.value, 1)(objective, at, sample)
    corrected = difference(auto, closed_form.square_short_form(at, sample, 0.3))
    printed = difference(auto, closed_form.square_short_form(at, sample, 0.3, masses=False))
    return {
        "corrected": corrected,
        "printed": printed,
        "ok": corrected < TOLERANCE and printed > VISIBLE,
    }


def sampled_gradient(objective, at, X, weights, kappa, value=equation.value):
    """A function from a key to the sampled ∇θ′ as a flat vector: all users, κ × κ items each."""

    def one(key):
        key_users, key_items = jax.random.split(key)
        users = jax.random.choice(key_users, weights.usable, (4,))
        sample = sampling.uniform(key_items, X, weights, users, kappa, kappa)
        grads = jax.grad(value, 1)(objective, at, sample)
        return ravel_pytree(grads)[0]

    return one


def item_gradient(objective, at, X, weights, columns):
    """A function from a key to ∂θ′/∂v_j for all j, flat: κ_W = 5 users, κ_Y = 3 items."""

    def of_item(item, sample):
        return jax.grad(equation.item_risk, 1)(objective, at.V[item], at, sample)

    def one(key):
        items = jnp.arange(X.num_items)
        samples = sampling.for_items(key, X, weights, items, 5, 3, columns)
        return jax.vmap(of_item)(items, samples).ravel()

    return one


def moments(one, seed: int) -> tuple[jax.Array, jax.Array]:
    """Mean over the draws and its standard error."""
    draws = drawn(one, seed)
    return draws.mean(0), draws.std(0) / np.sqrt(DRAWS)


def drawn(one, seed: int) -> jax.Array:
    """The sampled gradients, [DRAWS, coordinates]."""
    keys = jax.random.split(jax.random.key(seed), DRAWS)
    return jax.jit(lambda keys: jax.lax.map(one, keys, batch_size=500))(keys)


def check_sampling(X: Interactions, at: Factors, seed: int) -> list[dict]:
    """The mean of the sampled gradient against the exact one."""
    rows = []
    columns = X.transpose()
    for tau in (0.0, 0.7):
        weights = Weights(tau=tau, tau_neg=None, user_power=0.5).of(X)
        objective = equation.make("logistic", reg=0.3, spread=1.5)
        everything = sampling.everything(X, weights)
        truth = jax.grad(equation.value, 1)(objective, at, everything)
        flat = ravel_pytree(truth)[0]
        items = (truth.V - 0.3 / X.num_items * at.V).ravel()
        draws = {
            "κ = 3 for users": (sampled_gradient(objective, at, X, weights, 3), flat),
            "κ_W = 5, κ_Y = 3 for items": (item_gradient(objective, at, X, weights, None), items),
            "the same, stratified": (item_gradient(objective, at, X, weights, columns), items),
        }
        for name, (one, exactly) in draws.items():
            draws_ = drawn(one, seed)
            mean, error = draws_.mean(0), draws_.std(0) / np.sqrt(DRAWS)
            seen = error > 0
            # coordinates are correlated: the mean of all draws tells bias, those of 8 parts the noise
            parts = draws_.reshape(8, DRAWS // 8, -1).mean(1)[:, seen]
            z = _rms((mean - exactly)[seen] / error[seen])
            z_parts = _rms((parts - exactly[seen][None]) / (np.sqrt(8) * error[seen])[None])
            off = float(jnp.linalg.norm(mean - exactly) / jnp.linalg.norm(exactly))
            variance = float((error**2).sum() * DRAWS / (exactly**2).sum())
            ok = (
                UNBIASED[0] < z_parts < UNBIASED[1]
                and z < UNBIASED[1]
                and float(jnp.abs(mean - exactly)[~seen].sum()) < 1e-12
            )
            rows.append(
                {
                    "sample": name,
                    "weighting": "identity",
                    "tau": tau,
                    "rms_z": z,
                    "relative_bias": off,
                    "relative_variance": variance,
                    "ok": ok,
                }
            )
    return rows


def _rms(values: jax.Array) -> float:
    return float(jnp.sqrt((values**2).mean()))


def check_tanh_bias(X: Interactions, at: Factors, seed: int) -> list[dict]:
    """How far sampling an inner sum moves the tanh gradient (docs/derivations.md#tanh-bias): it must fall with κ."""
    weights = Weights.paper().of(X)
    objective = equation.make("square_hinge", weightings.Tanh(rho=2.0))
    truth = jax.grad(equation.value, 1)(objective, at, sampling.everything(X, weights))
    flat = ravel_pytree(truth)[0]
    rows = []
    for kappa, value, name in (
        (1, equation.value, "κ = 1"),
        (4, equation.value, "κ = 4"),
        (16, equation.value, "κ = 16"),
        (16, equation.richardson, "κ = 16, Richardson"),
    ):
        mean, error = moments(sampled_gradient(objective, at, X, weights, kappa, value), seed)
        off = float(jnp.linalg.norm(mean - flat) / jnp.linalg.norm(flat))
        noise = float(jnp.linalg.norm(error) / jnp.linalg.norm(flat))
        rows.append({"sample": name, "weighting": "tanh", "relative_bias": off, "noise": noise})
    bias = [row["relative_bias"] for row in rows]
    rows[0]["ok"] = bias[0] > 3 * rows[0]["noise"]  # the bias is real
    for row, larger in zip(rows[1:], bias, strict=False):
        row["ok"] = row["relative_bias"] < larger
    return rows


def report(rows: list[dict], masses: dict, samples: list[dict]) -> None:
    """The table, for a person."""
    print("Gradients of Eq. 3, largest absolute difference from autodiff (float64)\n")
    head = f"{'loss':13}{'φ':10}{'τ′':>4}{'differences':>13}{'exact':>9}{'corrected':>11}"
    print(head + f"{'printed':>9}  the paper's form is")
    for r in rows:
        printed = "–" if r["printed"] is None else f"{r['printed']:.0e}"
        print(
            f"{r['loss']:13}{r['weighting']:10}{r['tau']:>4}{r['differences']:>13.0e}"
            f"{r['exact']:>9.0e}{r['corrected']:>11.0e}{printed:>9}  {r['verdict']}"
        )
    print(
        f"\nE5, square short forms with unnormalised g, g′: with masses {masses['corrected']:.0e}, "
        f"as printed {masses['printed']:.0e}: {'shown' if masses['ok'] else 'FAILS'}"
    )
    print(
        f"\nMean of {DRAWS} sampled gradients against the exact one "
        "(unbiased: rms z ≈ 1; relative variance of one draw)\n"
    )
    for r in (r for r in samples if r["weighting"] == "identity"):
        print(
            f"identity  τ′ = {r['tau']:<4}{r['sample']:28} rms z {r['rms_z']:.2f}   variance "
            f"{r['relative_variance']:9.1f}   {'unbiased' if r['ok'] else 'FAILS'}"
        )
    print()
    for r in (r for r in samples if r["weighting"] == "tanh"):
        print(
            f"tanh ρ = 2  {r['sample']:20} relative bias {r['relative_bias']:.3f} "
            f"(noise {r['noise']:.3f})   {'as expected' if r['ok'] else 'FAILS'}"
        )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=pathlib.Path, help="also write the rows to this file")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    jax.config.update("jax_enable_x64", True)
    X, at = toy(args.seed)
    rows = [check(*case, X, at) for case in cases() + further_cases()]
    masses = check_masses(X, at)
    samples = check_sampling(X, at, args.seed) + check_tanh_bias(X, at, args.seed)
    report(rows, masses, samples)
    if args.json:
        text = json.dumps({"gradients": rows, "E5": masses, "sampling": samples}, indent=1)
        atomic.write_text(args.json, text + "\n")
    ok = all(r["ok"] for r in [*rows, masses, *samples])
    print("\nall as expected" if ok else "\nFAILED: see the rows marked FAILS")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
