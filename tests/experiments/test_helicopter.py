"""The helicopter's figure: its rows lead to the verdicts that CLAIMS.md's rules say."""

from pathlib import Path

import pytest

from experiments import helicopter
from experiments.drawing import save_figure
from experiments.helicopter import (
    N_POINTS,
    PLAIN,
    SEARCHED,
    TUNED,
    TUNED_SEED,
    draw,
    jobs,
    measure,
    searched,
    verdicts,
)
from experiments.store import Store

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


def study(kbsf=135.0, sarsa=60.0, of_kbsf=120.0, shift=0.0, **growth):
    """Plain and tuned flights of both; the first are the best of the search, which had nothing else to try."""
    rows = []
    for seed, sign in ((0, -1), (1, 1)):
        for more in ({"seed": seed}, {"seed": TUNED_SEED + seed, "tuned": PLAIN["KBSF"]}):
            rows += flight("KBSF", kbsf + sign * shift, microseconds=of_kbsf, **more, **growth)
        for more in ({"seed": seed}, {"seed": TUNED_SEED + seed, "tuned": PLAIN["SARSA"]}):
            rows += flight("SARSA", sarsa, **more, **growth)
    return rows


def verdict(rows, claim):
    return next(found for found in verdicts(rows) if found.claim == claim)


def test_with_the_papers_ratio_and_costs_all_claims_hold():
    assert [found.finding.value for found in verdicts(study())] == ["holds"] * 3
    assert "2.25 times" in verdict(study(), "HE1").ours


def test_without_a_rival_nothing_is_said():
    found = [found.finding.value for found in verdicts(flight("KBSF", 100.0))]
    assert found == ["not run at this scale"] * 3


def test_flying_no_longer_than_sarsa_is_no_advance():
    assert verdict(study(kbsf=60.0), "HE1").finding.value == "does not hold"


@pytest.mark.parametrize(
    "shift, expected", [(0.1, "holds"), (1.0, "undecided")]
)  # 135 less twice 60 is 15; the interval of two runs reaches 63.66 times the shift to either side
def test_flying_longer_on_average_is_not_enough(shift, expected):
    assert verdict(study(shift=shift), "HE1").finding.value == expected


@pytest.mark.parametrize(
    "growth, expected",
    [({"jump": 1.01, "within": 1.02}, "does not hold"), ({"jump": 1.02, "within": 1.02}, "undecided")],
)
def test_growth_that_is_the_same_everywhere_is_no_jump(growth, expected):
    rows = study(**growth)
    if expected == "undecided":  # one run grows a little more there, the other a little less
        rows = [row | {"length": row["length"] * 1.01 ** ((row["seed"] % 2 - 0.5) * row["batch"])} for row in rows]
    assert verdict(rows, "HE2").finding.value == expected


@pytest.mark.parametrize(
    "of_kbsf, expected", [(90.0, "holds"), (110.0, "holds"), (300.0, "does not hold"), (150.0, "undecided")]
)
def test_a_step_of_kbsf_may_cost_only_slightly_more_than_sarsas(of_kbsf, expected):
    assert verdict(study(of_kbsf=of_kbsf), "HE3").finding.value == expected


def test_the_time_of_one_flight_decides_nothing():
    rows = [row | {"alone": row["seed"] == 0} for row in study()]
    assert verdict(rows, "HE3").finding.value == "undecided"


def test_other_settings_of_both_are_listed_and_do_not_count_if_they_are_worse():
    rows = study() + flight("KBSF", 10.0, reading="std") + flight("SARSA", 11.0, reading="2^16")
    assert verdict(rows, "HE1").ours == verdict(study(), "HE1").ours
    assert "standard deviations 10" in verdict(rows, "HE1").note
    assert "2^16 11" in verdict(rows, "HE1").note


@pytest.mark.parametrize("method, name", [("KBSF", "std"), ("SARSA", "2^22")])
def test_a_setting_that_the_search_finds_better_must_fly_before_there_is_a_verdict(method, name):
    rows = study() + flight(method, 500.0, reading=name)
    assert verdict(rows, "HE1").finding.value == "not run at this scale"
    assert f"{method} at its best setting, {name}" in verdict(rows, "HE1").note
    for seed in (100, 101):
        rows += flight(method, 20.0, tuned=name, seed=seed)
    found = verdict(rows, "HE1")
    assert f"{method} 20 +- 0 steps ({name})" in found.note  # of other seeds: what won the search may be worse
    assert found.finding.value == ("does not hold" if method == "KBSF" else "holds")


def test_both_methods_search_as_many_settings_in_as_many_flights():
    for scale in ("laptop", "paper"):
        found = jobs(scale)
        searches = {
            method: [job for job in found if job.settings["method"] == method and "reading" in job.settings]
            for method in SEARCHED
        }
        assert len(searches["KBSF"]) == len(searches["SARSA"]) > 0
        tuned = [job for job in found if "tuned" in job.settings]
        assert {job.seed for job in tuned}.isdisjoint(job.seed for job in found if "tuned" not in job.settings)
        assert not any(job.alone for job in tuned)


def test_the_search_of_the_stored_flights_is_what_is_flown():
    rows = Store(Path(helicopter.__file__).parents[1] / "results", "helicopter", "laptop").rows
    for method, name in TUNED.items():
        steps = searched(rows, method)
        assert set(steps) == {*SEARCHED[method], PLAIN[method]}
        assert max(steps, key=steps.get) == name


def test_the_picture_is_drawn_from_one_method_alone(tmp_path):
    save_figure(draw(flight("SARSA", 60.0)), tmp_path, "helicopter")
    assert (tmp_path / "helicopter.png").stat().st_size > 0


@pytest.mark.parametrize(
    "settings", [{"method": "KBSF"}, {"method": "SARSA"}, {"method": "SARSA", "tuned": "2^16"}], ids=str
)
def test_the_same_seed_gives_the_same_flights(settings):
    first, again = ([row["length"] for row in measure(settings | {"size": "smoke"}, 3)] for _ in range(2))
    assert first == again
