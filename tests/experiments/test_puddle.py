"""The puddle world's figure: its rows lead to the verdicts that CLAIMS.md's rules say."""

import numpy as np
import pytest

from experiments import puddle
from experiments.drawing import save_figure
from experiments.puddle import ALL_M, ALL_N, LONG_N, PAPER_KBRL, M, N, NoisierPuddleWorld, draw, jobs, measure, verdicts

SEEDS = (0, 1, 2, 3)


def spread(value):
    """Four runs with this mean and a small spread."""
    return {seed: value + 0.01 * shift for seed, shift in zip(SEEDS, (-1, 1, -1, 1))}


def kbsf(over, n, m, value, tau=0.1):
    row = {"part": "KBSF", "over": over, "n": n, "m": m, "tau": tau, "tau_bar": 0.1}
    return [row | {"seed": seed, "return": found, "rep_return": found} for seed, found in spread(value).items()]


def kbrl(n, value, tau=0.1, seconds=1.0, **more):
    row = {"part": "KBRL", "n": n, "tau": tau, "cpu_seconds": seconds, "operations": 1000.0, "reached": 1.0} | more
    return [row | {"seed": seed, "return": found} for seed, found in spread(value).items()]


def times(n, seconds, m=M, over="n"):
    row = {"part": "times", "over": over, "n": n, "m": m, "cpu_seconds": seconds, "operations": 20.0}
    return [row | {"seed": seed} for seed in SEEDS]


def verdict(rows, claim):
    return next(found for found in verdicts(rows) if found.claim == claim)


def test_without_rows_of_the_papers_sizes_nothing_is_said():
    rows = kbsf("n", 400, 20, 1.0) + kbrl(400, 1.0) + times(400, 1.0, m=20)
    assert {found.claim: found.holds for found in verdicts(rows)} == dict.fromkeys(
        ("PW1", "PW2", "PW3", "PW4", "PW5", "PW6")
    )


@pytest.mark.parametrize("of_kbsf, holds", [(3.0, True), (4.0, True), (2.0, False)])
def test_kbsf_performs_like_kbrl_where_the_intervals_overlap_or_it_is_higher(of_kbsf, holds):
    rows = kbsf("n", N, M, of_kbsf) + kbsf("n", N, M, 0.0, tau=1.0) + kbrl(N, 3.01)
    found = verdict(rows, "PW1")
    assert found.holds is holds
    assert "tau 0.1" in found.note  # the better of the two widths
    assert found.n_runs == 4


@pytest.mark.parametrize(
    "values, holds",
    [((1, 2, 3, 4, 5, 6, 7, 8), True), ((8, 7, 6, 5, 4, 3, 2, 1), False), ((5, 8, 7, 6, 4, 3, 2, 5.5), False)],
)
def test_kbsf_improves_with_m_if_the_ends_and_the_ranks_say_so(values, holds):
    rows = [row for m, value in zip(ALL_M, values) for row in kbsf("m", N, m, value / 2)]
    assert verdict(rows, "PW2").holds is holds


@pytest.mark.parametrize("seconds, holds", [(0.0042, True), (0.001, True), (0.05, False)])
def test_work_saved_is_one_less_the_ratio_of_times(seconds, holds):
    found = verdict(times(N, seconds) + kbrl(N, 3.0, seconds=1.0), "PW3")
    assert found.ours.startswith(f"{100 * (1 - seconds):.2f} +- 0.00 % less time; 98.00 % fewer")
    assert found.holds is holds


def test_both_must_improve_with_n():
    better, worse = (1.0, 3.0), (3.0, 1.0)
    for own, other, holds in ((better, better, True), (better, worse, False), (worse, better, False)):
        rows = [row for n, value in zip((ALL_N[0], N), own) for row in kbsf("n", n, M, value)]
        rows += [row for n, value in zip((ALL_N[0], N), other) for row in kbrl(n, value)]
        assert verdict(rows, "PW4").holds is holds


@pytest.mark.parametrize("power, of_kbrl, holds", [(1.0, 2.5, True), (1.0, 2.0, False), (1.5, 2.5, False)])
def test_slopes_are_powers_of_n(power, of_kbrl, holds):
    rows = [row for n in sorted({*ALL_N, *LONG_N}) for row in times(n, 1e-6 * n**power)]
    rows += [row for n in ALL_N for row in kbrl(n, 3.0, seconds=1e-7 * n**of_kbrl)]
    found = verdict(rows, "PW5")
    assert found.ours == f"KBSF {power:.2f} +- 0.00, KBRL {of_kbrl:.2f} +- 0.00"
    assert found.holds is holds


def test_kbrl_over_widths_holds_if_it_meets_the_papers_intervals_and_the_closest_reading_is_named():
    paper = [row for tau, (mean, _) in PAPER_KBRL.items() for row in kbrl(N, mean, tau)]
    assert verdict(paper, "PW6").holds is True
    ours = [row for tau, mean in zip(PAPER_KBRL, (0.0, 3.8, 3.8)) for row in kbrl(N, mean, tau)]
    read = [
        row | {"part": "reading", "reading": name}
        for name, levels in (("raw", (0.0, 0.0, 3.8)), ("continue", (1.0, 3.0, 2.5)))
        for tau, mean in zip(PAPER_KBRL, levels)
        for row in kbrl(N, mean, tau)
    ]
    found = verdict(ours + read, "PW6")
    assert found.holds is False
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
