"""The study of judging: truths, counts of right and false verdicts, and the table."""

import numpy as np
import pytest

from experiments import trust
from experiments.drawing import save_figure
from experiments.trust import Cell, measure, table
from experiments.trust_worlds import world


def row(policy="learnt", truth=2.0, now=1.0, value=(2.0, 1.5, 2.5), verdict="better", **others):
    about = {"world": "puddle", "variant": "wide", "n": 200, "spread": 2.0, "truth_error": 0.01, "now_error": 0.01}
    about |= {"is_bounded": True, "by_sums": [list(value)] * 2, "by_rehearsal": [[1.0, 0.9, 1.1]] * 2}
    return about | {"policy": policy, "truth": truth, "now": now, "value": list(value), "verdict": verdict} | others


def test_a_cell_counts_what_is_covered_what_is_rightly_and_what_is_falsely_called_better():
    rows = [row(), row(verdict="cannot tell"), row(truth=0.5), row(truth=0.5, verdict="worse", value=(0.5, 0.0, 1.0))]
    cell = Cell.of(rows)
    assert (cell.n_logs, cell.n_not_better) == (4, 2)
    assert (cell.covered, cell.said_better, cell.false_better) == (75.0, 50.0, 50.0)
    assert cell.length == 0.5  # of a standard deviation
    assert (cell.by_sums, cell.by_rehearsal, cell.no_interval) == (75.0, 0.0, 0.0)
    refused = Cell.of([*rows, row(is_bounded=False, truth=9.0)])
    assert (refused.covered, refused.no_interval) == (75.0, 20.0)


def test_practice_is_never_better_than_itself():
    cell = Cell.of([row("practice", truth=1.001)])
    assert (cell.n_not_better, cell.false_better) == (1, 100.0)


def test_a_difference_within_the_errors_of_the_truths_is_no_gain():
    assert Cell.of([row(truth=1.02)]).n_not_better == 1


@pytest.mark.parametrize("name", ["cartpole", "pendulum"])
def test_truths_are_those_of_whole_episodes(name):
    there = world(name, "wide")
    rng = np.random.default_rng(0)
    log = there.collect(300, rng)
    starts = np.append(True, log.episodes[1:] != log.episodes[:-1])
    steps = np.arange(len(log)) - np.maximum.accumulate(np.where(starts, np.arange(len(log)), 0))
    returns = np.bincount(log.episodes, log.rewards * there.discount**steps)
    mean, error = there.truth(None, rng, 1000)
    # what the limit cuts off is worth discount^limit of a value
    slack = 4 * np.hypot(error, returns.std() / np.sqrt(300)) + there.discount**there.limit * abs(mean)
    assert abs(returns.mean() - mean) < slack


def test_the_same_seed_gives_the_same_rows_and_they_can_be_shown(tmp_path, monkeypatch):
    settings = {"world": "puddle", "variant": "hidden", "n": 60, "logs": 1}
    first, again = ([settings | found for found in measure(settings, 0)] for _ in range(2))
    assert first == again
    assert [found["policy"] for found in first] == ["learnt", "other"]
    save_figure(trust.draw(first), tmp_path, "trust")
    page = tmp_path / "trust.md"
    page.write_text(f"before\n{trust.START}\nstale\n{trust.END}\nafter\n")
    monkeypatch.setattr(trust, "PAGE", page)
    trust.write_page(first)
    text = page.read_text()
    assert "| puddle, hidden | 60 | learnt | 1 |" in text
    assert "stale" not in text
    assert text.startswith("before")
    assert text.endswith("after\n")
    assert table(first) in text
