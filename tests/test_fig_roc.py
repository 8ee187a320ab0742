"""Fig. 3's two curves: on the unseen items, and as printed, where training positives count as negatives."""

import numpy as np
import pytest
from toys import quiet, random_factors

from experiments import fig_roc, together
from mfauc_jax.data.splits import Split

RNG = np.random.default_rng(0)
ORDERS = np.argsort(RNG.random((12, 30)), axis=1)
TRAIN, TEST = (np.zeros((12, 30), bool) for _ in range(2))
for user, order in enumerate(ORDERS):
    TRAIN[user, order[:6]], TEST[user, order[6:9]] = True, True
PART = Split(quiet(TRAIN), quiet(TEST))


def rate(scores, positives, negatives):
    """The mean over users of the share of positives with at most a fifth of the negatives above them."""
    shares = []
    for s, p, q in zip(scores, positives, negatives, strict=True):
        above = (s[q][None, :] > s[p][:, None]).sum(1)
        shares.append((above <= fig_roc.MAX_FPR * q.sum()).mean())
    return np.mean(shares)


def test_the_printed_curve_counts_training_positives_as_negatives():
    """Kills: the printed curve made equal to the exact one."""
    factors = random_factors(2, PART.train)
    scores = np.asarray(factors.U @ factors.V.T)
    fits = [together.Fit(factors, 1.0, 1.0, 1.0)]
    found = fig_roc._best([{}], fits, PART)
    exact, printed = (found["tpr"][kind][-1] for kind in ("exact", "printed"))
    assert exact == pytest.approx(rate(scores, TEST, ~TRAIN & ~TEST), abs=1e-6)
    assert printed == pytest.approx(rate(scores, TEST, ~TEST), abs=1e-6)
    assert exact != printed


def test_the_chosen_number_is_best_on_the_training_positives():
    good, bad = (random_factors(seed, PART.train) for seed in (3, 4))
    rates = [rate(np.asarray(f.U @ f.V.T), TRAIN, ~TRAIN) for f in (good, bad)]
    found = fig_roc._best(
        [{"loss__beta": 1.0}, {"loss__beta": 2.0}],
        [together.Fit(f, 1.0, 1.0, 1.0) for f in (good, bad)],
        PART,
    )
    assert found["train_tpr"] == pytest.approx(rates, abs=1e-6)
    assert found["chosen"] == {"beta": 1.0 + int(np.argmax(rates))}
