"""The helicopter's figure: its rows lead to the verdicts that CLAIMS.md's rules say."""

import pytest

from experiments.drawing import save_figure
from experiments.helicopter import N_POINTS, draw, measure, verdicts

STEP = 10_000
N_BATCHES = 14


def flight(method, last, *, jump=1.3, within=1.0, microseconds=100.0, seed=0, **more):
    """Rows of one run whose last length is as given, and which grows by factors at and between lowerings."""
    n_points = N_BATCHES * N_POINTS
    lengths = [last]
    for point in range(n_points - 1, 0, -1):
        factor = jump if point % N_POINTS == 0 and point // N_POINTS <= 8 else within
        lengths.insert(0, lengths[0] / factor)
    return [
        {
            "method": method,
            "alone": True,
            "seed": seed,
            "transitions": (point + 1) * STEP,
            "batch": point // N_POINTS,
            "episodes": 100 * (point + 1),
            "length": length,
            "microseconds": microseconds,
            "seconds": 1e-6 * microseconds * STEP,
        }
        | more
        for point, length in enumerate(lengths)
    ]


def study(kbsf=135.0, sarsa=60.0, of_kbsf=120.0, **growth):
    rows = []
    for seed in (0, 1):
        rows += flight("KBSF", kbsf, microseconds=of_kbsf, seed=seed, **growth)
        rows += flight("SARSA", sarsa, seed=seed, **growth)
    return rows


def verdict(rows, claim):
    return next(found for found in verdicts(rows) if found.claim == claim)


def test_with_the_papers_ratio_and_costs_all_claims_hold():
    assert [found.holds for found in verdicts(study())] == [True, True, True]
    assert "2.25 times" in verdict(study(), "HE1").ours


def test_without_a_rival_nothing_is_said():
    assert [found.holds for found in verdicts(flight("KBSF", 100.0))] == [None, None, None]


def test_flying_no_longer_than_sarsa_is_no_advance():
    assert verdict(study(kbsf=60.0), "HE1").holds is False


def test_growth_that_is_the_same_everywhere_is_no_jump():
    assert verdict(study(jump=1.01, within=1.02), "HE2").holds is False


@pytest.mark.parametrize("of_kbsf, holds", [(90.0, True), (110.0, True), (300.0, False)])
def test_a_step_of_kbsf_may_cost_only_slightly_more_than_sarsas(of_kbsf, holds):
    assert verdict(study(of_kbsf=of_kbsf), "HE3").holds is holds


def test_other_readings_are_listed_and_do_not_count():
    rows = study() + flight("KBSF", 10.0, reading="std")
    assert verdict(rows, "HE1").ours == verdict(study(), "HE1").ours
    assert "standard deviations: 10" in verdict(rows, "HE1").note


def test_the_picture_is_drawn_from_one_method_alone(tmp_path):
    save_figure(draw(flight("SARSA", 60.0)), tmp_path, "helicopter")
    assert (tmp_path / "helicopter.png").stat().st_size > 0


@pytest.mark.parametrize("method", ["KBSF", "SARSA"])
def test_the_same_seed_gives_the_same_flights(method):
    first, again = ([row["length"] for row in measure({"method": method, "size": "smoke"}, 3)] for _ in range(2))
    assert first == again
