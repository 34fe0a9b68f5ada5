"""Incremental KBSF's figure: chunks give the batch's model, and verdicts follow the rules."""

import pytest

from experiments.drawing import save_figure
from experiments.incremental import INTERVALS, N, draw, measure, verdicts

SEEDS = (0, 1, 2)


def returns(value=3.0, difference=0.0, gap=0.0):
    """Runs at one pair of widths, whose models and returns differ from the batch's by so much."""
    rows = []
    for seed in SEEDS:
        for iota in INTERVALS:
            away = 0.0 if iota == N else 1.0
            found = value + 0.01 * seed + away * gap
            row = {"part": "returns", "seed": seed, "iota": iota, "tau": 0.1, "tau_bar": 0.1, "return": found}
            row |= dict.fromkeys(("p_difference", "r_difference", "q_difference"), away * difference)
            rows.append(row | {"other_decisions": 0.0, "seen": [N], "returns": [found]})
    return rows


def times(ratio):
    """A batch of 10 ms; chunks cost ``ratio`` times that, whether values are solved each time or once."""
    return [
        {"part": "times", "seed": seed, "iota": iota, "t_v": t_v, "cpu_seconds": 0.01 * (1.0 if iota == N else ratio)}
        for seed in SEEDS
        for iota in INTERVALS
        for t_v in {iota, N}
    ]


def verdict(rows, claim):
    return next(found for found in verdicts(rows) if found.claim == claim)


@pytest.mark.parametrize(
    "difference, gap, expected", [(1e-15, 0.0, "holds"), (1e-3, 0.0, "does not hold"), (1e-15, 1.0, "does not hold")]
)
def test_the_policy_is_the_same_if_models_and_returns_are(difference, gap, expected):
    found = verdict(returns(difference=difference, gap=gap), "IN1")
    assert found.finding.value == expected
    assert found.n_runs == 3


@pytest.mark.parametrize("ratio, expected", [(1.2, "holds"), (1.85, "does not hold"), (1.5, "undecided")])
def test_the_overhead_is_small_up_to_half_of_the_batch(ratio, expected):
    found = verdict(times(ratio), "IN2")
    assert found.finding.value == expected
    assert found.ours.count(f"{ratio:.2f}") == 3


def test_without_the_papers_chunks_nothing_is_said():
    rows = [row for row in returns() + times(1.0) if row["iota"] in (N, 500)]
    assert [found.finding.value for found in verdicts(rows)] == ["not run at this scale"] * 2


def test_chunks_of_any_size_give_the_model_of_the_batch_and_the_same_seed_the_same_figures():
    first, again = (list(measure({"part": "returns", "size": "smoke"}, 0)) for _ in range(2))
    assert first == again
    assert {row["iota"] for row in first} == {400, 100}
    for row in first:
        assert max(row["p_difference"], row["r_difference"]) < 1e-12
        assert row["returns"][-1] == first[0]["return"]


def test_few_rows_can_be_drawn(tmp_path):
    rows = [{"part": "returns"} | row for row in measure({"part": "returns", "size": "smoke"}, 0)]
    rows += [{"part": "times"} | row for row in measure({"part": "times", "size": "smoke"}, 0)]
    for number, some in enumerate((rows, returns(), times(1.2))):  # all, and what an interrupted study has
        save_figure(draw(some), tmp_path, f"picture {number}")
    assert len(list(tmp_path.glob("*.png"))) == len(list(tmp_path.glob("*.svg"))) == 3
