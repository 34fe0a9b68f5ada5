"""The puddle world's figure: its rows lead to the verdicts that CLAIMS.md's rules say."""

import numpy as np
import pytest

from experiments import puddle
from experiments.drawing import save_figure
from experiments.puddle import ALL_M, ALL_N, LONG_N, PAPER_KBRL, M, N, NoisierPuddleWorld, draw, jobs, measure, verdicts
from experiments.puddle_claims import LIKE

SEEDS = (0, 1, 2, 3)


def spread(value):
    """Four runs with this mean and a small spread."""
    return {seed: value + 0.01 * shift for seed, shift in zip(SEEDS, (-1, 1, -1, 1))}


def kbsf(over, n, m, value, tau=0.1):
    row = {"part": "KBSF", "over": over, "n": n, "m": m, "tau": tau, "tau_bar": 0.1}
    return [row | {"seed": seed, "return": found, "rep_return": found} for seed, found in spread(value).items()]


def kbrl(n, value, tau=0.1, seconds=1.0, **more):
    row = {"part": "KBRL", "n": n, "tau": tau, "cpu_seconds": seconds, "operations": 1000.0, "reached": 1.0}
    row |= {"alone": True} | more
    return [row | {"seed": seed, "return": found} for seed, found in spread(value).items()]


def times(n, seconds, m=M, over="n"):
    row = {"part": "times", "over": over, "n": n, "m": m, "cpu_seconds": seconds, "operations": 20.0}
    return [row | {"seed": seed} for seed in SEEDS]


def verdict(rows, claim):
    return next(found for found in verdicts(rows) if found.claim == claim)


def test_without_rows_of_the_papers_sizes_nothing_is_said():
    rows = kbsf("n", 400, 20, 1.0) + kbrl(400, 1.0) + times(400, 1.0, m=20)
    assert {found.claim: found.finding.value for found in verdicts(rows)} == dict.fromkeys(
        ("PW1", "PW2", "PW3", "PW4", "PW5", "PW6"), "not run at this scale"
    )


@pytest.mark.parametrize(
    "of_kbsf, expected",
    [(3.0, "holds"), (2.9, "holds"), (4.0, "does not hold"), (2.0, "does not hold"), (2.83, "does not hold")],
)
def test_kbsf_performs_like_kbrl_if_their_difference_lies_within_the_margin(of_kbsf, expected):
    """All runs are equally far apart, so that the interval has no width."""
    rows = kbsf("n", N, M, of_kbsf) + kbsf("n", N, M, 0.0, tau=1.0) + kbrl(N, 3.0)
    found = verdict(rows, "PW1")
    assert found.finding.value == expected
    assert "tau 0.1" in found.note  # the better of the two widths
    assert f"within {LIKE:g} of 0" in found.note
    assert found.n_runs == 4


@pytest.mark.parametrize("spread, expected", [(0.02, "holds"), (0.1, "undecided"), (1.0, "undecided")])
def test_overlapping_intervals_are_no_proof_of_equivalence(spread, expected):
    """The wider the intervals, the more they overlap and the less is known; 5.841 is the table's t of 3 degrees.

    The differences are -spread, spread, -spread, spread: their standard error is spread / sqrt(3), and the interval
    3.37 times the spread to either side: 0.067, 0.34 and 3.4, where the margin is 0.16.
    """
    rows = [row | {"return": 3.0} for row in kbrl(N, 3.0)]
    rows += [row | {"return": 3.0 + spread * (-1) ** (row["seed"] + 1)} for row in kbsf("n", N, M, 3.0)]
    found = verdict(rows, "PW1")
    assert found.judged.found.half == pytest.approx(5.841 * spread / np.sqrt(3), rel=1e-3)
    assert found.finding.value == expected


def test_one_run_of_either_method_decides_nothing():
    rows = [row for row in kbsf("n", N, M, 3.0) + kbrl(N, 3.0) if row["seed"] == 0]
    assert verdict(rows, "PW1").finding.value == "undecided"


@pytest.mark.parametrize(
    "values, expected",
    [
        ((1, 2, 3, 4, 5, 6, 7, 8), "holds"),
        ((8, 7, 6, 5, 4, 3, 2, 1), "does not hold"),
        ((5, 8, 7, 6, 4, 3, 2, 5.5), "does not hold"),
        ((5, 5, 5, 5, 5, 5, 5, 5), "undecided"),
    ],
)
def test_kbsf_improves_with_m_if_the_ends_and_the_ranks_say_so(values, expected):
    rows = [row for m, value in zip(ALL_M, values) for row in kbsf("m", N, m, value / 2)]
    assert verdict(rows, "PW2").finding.value == expected


def test_a_gain_that_differs_from_run_to_run_is_undecided():
    gains = {0: 3.0, 1: -1.0, 2: 3.0, 3: -1.0}  # 1 +- 6.7 on average
    rows = [row for m in ALL_M for row in kbsf("m", N, m, 1.0)]
    rows = [row | {"return": row["return"] + (gains[row["seed"]] if row["m"] == ALL_M[-1] else 0.0)} for row in rows]
    assert verdict(rows, "PW2").finding.value == "undecided"


@pytest.mark.parametrize("seconds, expected", [(0.0042, "holds"), (0.001, "holds"), (0.05, "does not hold")])
def test_work_saved_is_one_less_the_ratio_of_times(seconds, expected):
    found = verdict(times(N, seconds) + kbrl(N, 3.0, seconds=1.0), "PW3")
    assert found.ours == f"{100 * (1 - seconds):.2f} +- 0.00 % less"
    assert found.finding.value == expected
    assert "Judged: the share of time, because" in found.note
    assert (
        "multiply-adds saved in per cent is 98 +- 0 (4 runs), must be between 99.08 and 100.1: does not" in found.note
    )


def test_both_must_improve_with_n():
    better, worse = (1.0, 3.0), (3.0, 1.0)
    same = (3.0, 3.0)
    for own, other, expected in (
        (better, better, "holds"),
        (better, worse, "does not hold"),
        (worse, better, "does not hold"),
        (better, same, "undecided"),
        (worse, same, "does not hold"),
    ):
        rows = [row for n, value in zip((ALL_N[0], N), own) for row in kbsf("n", n, M, value)]
        rows += [row for n, value in zip((ALL_N[0], N), other) for row in kbrl(n, value)]
        assert verdict(rows, "PW4").finding.value == expected


@pytest.mark.parametrize(
    "power, of_kbrl, expected",
    [(1.0, 2.5, "holds"), (1.0, 1.9, "does not hold"), (1.5, 2.5, "does not hold")],
)
def test_slopes_are_powers_of_n(power, of_kbrl, expected):
    rows = [row for n in sorted({*ALL_N, *LONG_N}) for row in times(n, 1e-6 * n**power)]
    rows += [row for n in ALL_N for row in kbrl(n, 3.0, seconds=1e-7 * n**of_kbrl)]
    found = verdict(rows, "PW5")
    assert found.ours == f"KBSF {power:.2f} +- 0.00, KBRL {of_kbrl:.2f} +- 0.00"
    assert found.finding.value == expected


def test_a_slope_whose_interval_reaches_two_is_not_above_two():
    rows = [row for n in sorted({*ALL_N, *LONG_N}) for row in times(n, 1e-6 * n)]
    powers = {0: 2.1, 1: 2.3, 2: 2.1, 3: 2.3}  # 2.2 +- 0.34
    for n in ALL_N:
        rows += [row | {"cpu_seconds": 1e-7 * n ** powers[row["seed"]]} for row in kbrl(n, 3.0)]
    assert verdict(rows, "PW5").finding.value == "undecided"


def test_kbrl_over_widths_holds_within_the_papers_intervals_and_the_closest_reading_is_named():
    paper = [row for tau, (mean, _) in PAPER_KBRL.items() for row in kbrl(N, mean, tau)]
    assert verdict(paper, "PW6").finding.value == "holds"
    ours = [row for tau, mean in zip(PAPER_KBRL, (0.0, 3.8, 3.8)) for row in kbrl(N, mean, tau)]
    read = [
        row | {"part": "reading", "reading": name}
        for name, levels in (("raw", (0.0, 0.0, 3.8)), ("continue", (1.0, 3.0, 2.5)))
        for tau, mean in zip(PAPER_KBRL, levels)
        for row in kbrl(N, mean, tau)
    ]
    found = verdict(ours + read, "PW6")
    assert found.finding.value == "does not hold"
    assert "Closest in sum: goal not terminal in the model." in found.note


def test_multiply_adds_are_counted_by_hand():
    # Two kernels 10 x 2 in two dimensions; 10 x 2 x 2 for K D; three backups of 4 actions, 2 x 2; no evaluation.
    assert puddle._kbsf_operations(10, 2, iterations=1) == 80 + 40 + 48
    # 10 x 10 distances in two dimensions, three backups of 100 each; then 33 sweeps of 100 / 4 and one backup.
    assert puddle._kbrl_operations(10, iterations=1) == 200 + 300
    assert puddle._kbrl_operations(10, iterations=2) == 200 + 400 + 33 * 25


def test_the_noisier_world_has_noise_as_large_as_a_move():
    states = np.full((20_000, 2), 0.5)
    moved = NoisierPuddleWorld().step(states, np.zeros(20_000, dtype=int), np.random.default_rng(0))[0]
    np.testing.assert_allclose(moved.mean(axis=0), [0.5, 0.55], atol=0.002)
    np.testing.assert_allclose(moved.std(axis=0), 0.05, rtol=0.03)


def test_seeds_are_fixed_and_what_is_timed_runs_alone():
    found = jobs("laptop")
    assert [job.seed for job in found if job.settings["part"] == "KBSF"] == list(range(12))
    assert {job.settings["part"] for job in found if job.alone} == {"KBRL", "times"}


def test_the_same_seed_gives_the_same_figures_and_few_of_them_can_be_drawn(tmp_path):
    def measured():
        parts = [{"part": "KBSF"}, {"part": "KBRL"}, {"part": "times"}, {"part": "reading", "reading": "raw"}]
        settings = [part | {"size": "smoke"} for part in parts]
        return [one | row | {"seed": 0} for one in settings for row in measure(one, 0)]

    first, again = measured(), measured()
    of_time = {"seconds", "cpu_seconds"}
    assert [{k: v for k, v in row.items() if k not in of_time} for row in first] == [
        {k: v for k, v in row.items() if k not in of_time} for row in again
    ]
    for part in (None, "KBSF"):  # all, and what an interrupted study has
        rows = [row for row in first if part in (None, row["part"])]
        save_figure(draw(rows), tmp_path, f"picture {part}")
    assert len(list(tmp_path.glob("*.png"))) == len(list(tmp_path.glob("*.svg"))) == 2
