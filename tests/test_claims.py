"""The paper's claims: every recorded verdict is that of the committed numbers, and a wrong one is noticed."""

import json
import math
import pathlib
import shutil

import numpy as np
import pytest

from experiments import claim_experiments, claims, evidence, verify_claims
from experiments.evidence import OPEN, REFUTED, VERIFIED, Claim, Part, Records, verdict_of

FOLDER = pathlib.Path(claims.__file__).parent / "results"
NAMES = [c.name for c in claims.CLAIMS]


def part(low, high, relation=">", bound=0.0):
    return Part("x", (low + high) / 2, low, high, relation, bound)


@pytest.fixture(scope="module")
def judged():
    return claims.judge(FOLDER)


@pytest.mark.parametrize("name", NAMES)
def test_the_recorded_verdict_is_that_of_the_committed_numbers(name, judged):
    (one,) = [j for j in judged if j.claim.name == name]
    assert one.missing == ""
    assert one.found == one.claim.verdict, verify_claims.lines(one)
    assert one.claim.place and 10 < len(one.claim.quote) < 180


def test_the_claims_that_were_contradicted_or_unchecked_are_there():
    assert len(set(NAMES)) == len(NAMES) > 50
    wanted = {
        "square-is-worst", "order-on-synthetic1", "order-on-synthetic2", "slower-by-iteration",
        "three-times-with-eight", "all-losses-beat-wrmf", "mfauc-beats-soft-impute", "convex-in-each",
        "beta-to-infinity", "averages-converge-faster", "tanh-favours-the-top", "rising-betas",
        "rademacher-outweighs", "estimates-from-samples",
    }  # fmt: skip
    assert wanted <= set(NAMES)
    assert {c.verdict for c in claims.CLAIMS} == {VERIFIED, REFUTED, OPEN}


@pytest.mark.parametrize(
    ("made", "holds"),
    [
        (part(0.1, 0.3), True),
        (part(-0.3, -0.1), False),
        (part(-0.1, 0.3), None),
        (part(-0.3, -0.1, "<"), True),
        (part(0.1, 0.3, "<"), False),
        (part(0.1, 0.3, "<", 0.2), None),
        (part(0.5, 0.5), True),
        (part(0.0, 0.0), False),  # exact, and not above
        (part(0.0, 0.0, "<"), False),
        (part(math.nan, math.nan), None),
        (part(-math.inf, math.inf), None),
    ],
)
def test_a_part_holds_if_its_interval_is_on_the_right_side(made, holds):
    assert made.holds is holds


def test_a_verdict_needs_every_part_and_one_part_refutes():
    yes, no, unsure = part(1, 2), part(-2, -1), part(-1, 1)
    assert verdict_of([yes, yes]) == VERIFIED
    assert verdict_of([yes, unsure]) == verdict_of([unsure]) == verdict_of([]) == OPEN
    assert verdict_of([yes, no, unsure]) == REFUTED
    assert verdict_of([no, yes], exists=True) == VERIFIED
    assert verdict_of([no, no], exists=True) == OPEN


def test_intervals_are_students_and_the_best_of_several_pays_for_the_choice():
    found = evidence.mean("x", [1.0, 2.0, 3.0, 6.0], ">")
    half = 3.182446 * np.std([1, 2, 3, 6], ddof=1) / 2
    assert (found.value, found.low, found.high) == pytest.approx((3.0, 3 - half, 3 + half))
    wider = evidence.mean("x", [1.0, 2.0, 3.0, 6.0], ">", level=evidence.LEVEL / 4)
    assert wider.low < found.low
    assert evidence.likeliest([part(-1, 0.2), part(-0.1, 0.1)]).low == -0.1
    assert evidence.likeliest([part(-1, 0.2, "<"), part(-0.1, 0.1, "<")]).high == 0.1
    with pytest.raises(evidence.MissingRecords):
        evidence.mean("x", [1.0], ">")


def fits(folder, method, values, error=0.01, setting="ours", dataset="ml-100k"):
    with open(folder / "tab_real.jsonl", "a") as file:
        for seed, value in values.items():
            record = {
                "kind": "fit",
                "dataset": dataset,
                "setting": setting,
                "method": method,
                "seed": seed,
            }
            file.write(
                json.dumps({**record, "metrics": {"auc": {"mean": value, "error": error}}}) + "\n"
            )


def test_gains_are_paired_by_split(tmp_path):
    fits(tmp_path, "a", {0: 0.5, 1: 0.7, 2: 0.9, 7: 0.1})
    fits(tmp_path, "b", {2: 0.8, 1: 0.6, 0: 0.4})
    gain = Records(tmp_path).gain("ml-100k", "ours", "a", "b", "auc")
    assert (gain.value, gain.low, gain.high) == pytest.approx((0.1, 0.1, 0.1))
    fits(tmp_path, "c", {0: 0.4, 1: 0.6})  # two splits: the users' errors
    gain = Records(tmp_path).gain("ml-100k", "ours", "a", "c", "auc")
    half = 1.959964 * np.sqrt(2 * 0.01**2 / 2)
    assert (gain.low, gain.high) == pytest.approx((0.1 - half, 0.1 + half))
    with pytest.raises(evidence.MissingRecords, match="ml-100k, ours, d"):
        Records(tmp_path).gain("ml-100k", "ours", "a", "d", "auc")


def test_a_folder_without_records_bears_out_nothing(tmp_path):
    empty = claims.judge(tmp_path)
    about_nothing = [j for j in empty if j.found is not None]
    assert all(not j.parts or "Table 1" in str(j.parts[0]) for j in about_nothing)
    assert all(j.missing for j in empty if j.found is None)
    assert sum(j.found is None for j in empty) > 45


@pytest.fixture
def folder(tmp_path):
    for path in FOLDER.glob("*.jsonl"):
        shutil.copy(path, tmp_path)
    return tmp_path


def test_the_script_fails_if_a_verdict_is_not_borne_out(folder, monkeypatch, capsys, tmp_path):
    options = [f"--folder={folder}", f"--json={tmp_path / 'claims.json'}"]
    assert verify_claims.main(options) == 0
    written = json.loads((tmp_path / "claims.json").read_text())
    assert len(written) == len(claims.CLAIMS) and all(c["borne_out"] for c in written)
    false = Claim(
        "false", "nowhere", "two is less than one", VERIFIED, lambda records: [part(2, 2, "<", 1)]
    )
    monkeypatch.setattr(claims, "CLAIMS", (*claims.CLAIMS, false))
    assert verify_claims.main(options) == 1
    out = capsys.readouterr().out
    assert "NOT BORNE OUT: recorded verified, found refuted" in out and "1 not borne out" in out


def test_the_script_fails_if_records_are_missing_and_if_nothing_is_chosen(folder):
    assert verify_claims.main([f"--folder={folder}", "--only=no such claim"]) == 1
    (folder / "fig_roc.jsonl").unlink()
    assert verify_claims.main([f"--folder={folder}", "--only=square-is-worst"]) == 1


def test_experiments_with_a_record_are_not_run_again(folder, monkeypatch):
    def refuse(**settings):
        pytest.fail(f"computed again: {settings}")

    again = {
        name: (refuse, settings) for name, (_, settings) in claim_experiments.EXPERIMENTS.items()
    }
    monkeypatch.setattr(claim_experiments, "EXPERIMENTS", again)
    claim_experiments.run(folder, data_dir="anywhere")
    assert claim_experiments.read(folder).keys() == again.keys()


def test_small_experiments_find_what_is_known():
    found = claim_experiments.same_auc(20, 5)
    assert found["auc"][0] == pytest.approx(found["auc"][1]) and found["precision@1"] == [0.0, 1.0]
    least = claim_experiments.curvature(["square"], points=2)["least_eigenvalue"]["square"]
    assert least[0] > -1e-9 and least[1] > -1e-9 and least[2] < -0.01
    slopes = claim_experiments.slopes_of_tanh([2.0])["slopes"]["2"]
    assert slopes[0] <= 1e-12 and slopes[2] == pytest.approx(2.0)
