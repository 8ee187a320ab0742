"""The certificate table: held_out_unseen first and informative, the Rademacher kinds vacuous with the reason."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import certify, results
from mfauc_jax._core.factors import Factors
from mfauc_jax.data.interactions import Interactions


@pytest.fixture(scope="module")
def records():
    rng = np.random.default_rng(0)
    U, V = rng.normal(size=(300, 3)), rng.normal(size=(50, 3))
    order = np.argsort(-(U @ V.T + 0.5 * rng.normal(size=(300, 50))), axis=1)
    rows = np.repeat(np.arange(300), 4)
    held_out = Interactions.from_pairs(rows, order[:, 1:9:2].ravel(), shape=(300, 50))
    train = Interactions.from_pairs(rows, order[:, 0:8:2].ravel(), shape=(300, 50))
    config = certify.Config(draws=20, losses=("sigmoid",))
    model = Factors(jnp.asarray(U), jnp.asarray(V))
    return certify.certificates(jax.random.key(0), config, model, train, held_out)


def test_held_out_unseen_comes_first_and_says_something(records):
    first = records[0]
    assert first["name"] == first["kind"] == "held_out_unseen"
    assert first["method"] == "bernstein"
    assert not first["vacuous"] and first["sentence"].startswith("with probability 95 %")


def test_hoeffding_stands_beside_it(records):
    beside = next(r for r in records if r["method"] == "hoeffding")
    assert beside["bound"] == pytest.approx(
        records[0]["terms"]["held_out_auc"] - records[0]["terms"]["half_width_hoeffding"]
    )


def test_the_rademacher_kinds_are_vacuous_with_the_reason(records, tmp_path):
    results.write(tmp_path / "c.jsonl", certify.Config(), records)
    read = results.read(tmp_path / "c.jsonl")
    assert json.dumps(read[0]["terms"])
    of_norms = [r for r in read if r["kind"].startswith("rademacher")]
    assert {r["kind"] for r in of_norms} == {"rademacher_users", "rademacher_draws"}
    assert all(r["vacuous"] for r in of_norms)
    text = certify.draw(read)
    assert "Why the Rademacher kinds are vacuous" in text and "no bound of this form" in text
    assert text.startswith(f"Certificate held_out_unseen: {records[0]['sentence']}")
