"""The certificate table: C2 first and informative, A and B printed as vacuous with the reason."""

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


def test_c2_comes_first_and_says_something(records):
    first = records[0]
    assert (first["name"], first["kind"], first["method"]) == ("C2", "C2", "bernstein")
    assert not first["vacuous"] and first["sentence"].startswith("with probability 95 %")


def test_hoeffding_stands_beside_it(records):
    beside = next(r for r in records if r["method"] == "hoeffding")
    assert beside["bound"] == pytest.approx(
        records[0]["terms"]["held_out_auc"] - records[0]["terms"]["half_width_hoeffding"]
    )


def test_a_and_b_are_vacuous_with_the_reason(records, tmp_path):
    results.write(tmp_path / "c.jsonl", certify.Config(), records)
    read = results.read(tmp_path / "c.jsonl")
    assert json.dumps(read[0]["terms"])
    assert all(r["vacuous"] for r in read if r["kind"] in "AB")
    text = certify.draw(read)
    assert "Why A and B are vacuous" in text and "no bound of this form" in text
    assert text.startswith(f"Certificate C2: {records[0]['sentence']}")
