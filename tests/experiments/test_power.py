"""The learning table: its tasks are what it says, and its page follows from its rows."""

import numpy as np
import pytest

from experiments.drawing import save_figure
from experiments.glucose import Glucose
from experiments.power import LSPI_WIDTHS, METHODS, TREES, jobs, measure
from experiments.power_page import METHODS as SHOWN
from experiments.power_page import difference, draw, page
from experiments.power_tasks import TASKS, Inventory
from kbrl.checks import as_generator

SEEDS = (0, 1, 2)


def rows_of(**returns):
    """Rows of CartPole: for each method, with spaces as underscores, the returns on the logs."""
    return [
        {"task": "CartPole", "method": name.replace("_", " "), "seed": seed, "return": value, "cpu_seconds": 2.0}
        | {"chosen": "averages", "load_before": 1.0, "scale": "laptop"}
        for name, values in returns.items()
        for seed, value in zip(SEEDS, values)
    ]


def section(text, title):
    return text.split(f"## {title}\n")[1].split("\n## ")[0]


def test_a_figure_is_the_mean_over_logs_with_its_standard_error():
    text = page(rows_of(order_1=(30.0, 60.0, 90.0), order_0=(20.0, 20.0, 20.0)))
    assert "| 20.0 +- 0.00 | - | 60.0 +- 17.3 | - | - |" in section(text, "Returns")  # 30 / sqrt(3)
    assert "| 2.00 | - | 2.00 | - | - |" in section(text, "CPU seconds of one fit")
    assert "the same logs, 3 per task" in text


def test_methods_are_compared_log_by_log():
    found = difference(rows_of(order_1=(10.0, 20.0, 30.0), LSPI=(11.0, 22.0, 33.0)), "order 1", "LSPI")
    assert found == pytest.approx((-2.0, 1 / np.sqrt(3)))


@pytest.mark.parametrize(
    "theirs, words",
    [
        ((11.0, 21.0, 31.0), "more than twice its standard error"),
        ((41.0, 1.0, 31.0), "which may be chance"),
        ((9.0, 19.0, 29.0), "On none of these tasks"),
    ],
)
def test_the_page_says_where_order_1_loses_and_how_surely(theirs, words):
    text = page(rows_of(order_1=(10.0, 20.0, 30.0), fitted_Q=theirs))
    assert words in " ".join(section(text, "Where order 1 loses").partition("proof.")[2].split())


def test_within_three_percent_of_a_negative_best_return_counts_as_best():
    rows = rows_of(order_0=(-100.0,), order_1=(-102.9,), LSPI=(-103.1,))
    assert "| 1 of 1 | 0 of 1 | 1 of 1 | 0 of 1 | 0 of 1 |" in section(page(rows), "Returns")


def test_every_method_that_runs_has_a_column():
    assert tuple(METHODS) == SHOWN


def test_one_log_gives_a_row_for_every_method_and_the_same_returns_again():
    first, again = ([row for job in jobs("smoke")[:2] for row in measure(job.settings, job.seed)] for _ in range(2))
    assert {row["method"] for row in first} == {"as logged", *METHODS}
    assert [row["return"] for row in first] == [row["return"] for row in again]


def test_every_task_has_settings_for_the_rivals():
    assert set(TREES) == set(LSPI_WIDTHS) == set(TASKS)


def test_people_in_a_log_follow_their_habit_more_often_than_chance():
    pair = TASKS["HabitCartPole"]
    log = pair.log(2000, seed=0)
    leans = log.states[:, 2] + 0.3 * log.states[:, 3] > 0
    assert 0.7 < (log.action_indices == leans).mean() < 0.8  # half of the time by habit, half at random


def _glucose(task, states, rate, n_steps):
    rng, path = as_generator(1), []
    for _ in range(n_steps):
        states, _, _ = task.step(states, [rate], rng)
        path.append(states[0, 0])
    return path


def test_insulin_lowers_glucose_hours_later_and_hardly_at_once():
    task = Glucose()
    start = task.reset(1, as_generator(0))
    low, high = (_glucose(task, start, rate, 48) for rate in ("5", "0"))
    assert abs(high[2] - low[2]) < 2.0  # a quarter of an hour
    assert high[47] - low[47] > 100.0  # four hours


def test_the_sensor_errs_and_does_not_show_the_depots():
    task = Glucose()
    states = task.reset(500, as_generator(0))
    seen = task.observe(states)
    assert seen.shape == (500, 6)
    assert 5.0 < (seen[:, 0] - states[:, 0]).std() < 11.0


@pytest.mark.parametrize("name, n_dims, n_actions", [("NoisyCartPole", 10, 2), ("Pendulum", 3, 5), ("Acrobot", 6, 3)])
def test_logs_have_the_variables_and_actions_of_the_task(name, n_dims, n_actions):
    log = TASKS[name].logged().collect(600, random_state=0)
    assert log.states.shape == (600, n_dims)
    assert log.n_actions == n_actions


def test_noise_variables_are_new_at_every_step_and_the_next_row_has_those_of_the_next_state():
    log = TASKS["NoisyCartPole"].logged().collect(200, random_state=0)
    goes_on = np.flatnonzero(log.episodes[1:] == log.episodes[:-1])
    np.testing.assert_array_equal(log.next_states[goes_on], log.states[goes_on + 1])
    assert (log.states[:, 4:] != log.next_states[:, 4:]).all()
    assert abs(np.corrcoef(log.states[:, 4], log.next_states[:, 4])[0, 1]) < 0.3


def test_logs_of_the_mountain_car_start_anywhere_and_its_tests_in_the_valley():
    logged, tested = TASKS["MountainCar"].logged(), TASKS["MountainCar"].tested()
    starts, usual = (np.vstack([task.reset(1, as_generator(seed)) for seed in range(30)]) for task in (logged, tested))
    assert np.ptp(starts[:, 0]) > 1.0
    assert (starts[:, 1] != 0).all()
    assert usual[:, 0].min() >= -0.6
    assert usual[:, 0].max() <= -0.4


def test_a_day_in_the_store_is_worth_what_the_hand_works_out():
    task = Inventory()
    rng, twin = as_generator(3), as_generator(3)
    wanted = float(twin.poisson(np.array([8.0]))[0])
    states, rewards, ends = task.step([[4.0, 10.0, 8.0]], ["15"], rng)
    sold = min(14.0, wanted)
    assert rewards[0] == pytest.approx(3 * sold - 15 - 2 - 0.1 * (14 - sold) - (wanted - sold))
    assert states[0, :2].tolist() == [14 - sold, 15.0]
    assert not ends[0]


def test_no_line_of_the_page_is_longer_than_120_characters():
    rows = [
        {"task": task, "method": method, "seed": seed, "return": -1234.5 * (seed + 1 + (method == "order 1"))}
        | {
            "cpu_seconds": 123.4,
            "chosen": f"lines, plans that begin as people do {seed}",
            "load_before": 10.0,
            "scale": "laptop",
        }
        for task in TASKS
        for method in ("as logged", *METHODS)
        for seed in SEEDS
    ]
    assert max(map(len, page(rows).splitlines())) <= 120


def test_a_loss_of_order_1_is_told_also_where_rehearsal_avoids_it():
    rows = rows_of(order_0=(10.0, 10.0, 10.0), kbrl_fit=(11.0, 11.0, 11.0), order_1=(1.0, 1.0, 1.0))
    told = section(page(rows), "Where order 1 loses")
    assert "order 1 earns 1.00, order 0 10.0" in told
    assert "kbrl fit earns" not in told


def test_rows_of_an_older_study_do_not_mix_with_those_of_the_present_one():
    older = rows_of(order_1=(1.0, 1.0, 1.0))
    present = [row | {"learners": "kbrl"} for row in rows_of(order_1=(5.0, 5.0, 5.0))]
    assert "| 5.00 +- 0.00 |" in section(page(older + present), "Returns")
    assert "| 1.00 +- 0.00 |" in section(page(older), "Returns")


def test_few_rows_can_be_drawn(tmp_path):
    save_figure(draw(rows_of(order_0=(1.0, 2.0), order_1=(3.0,))), tmp_path, "power")
    assert (tmp_path / "power.png").exists()
