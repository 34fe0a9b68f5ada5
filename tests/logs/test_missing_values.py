"""What a missing value becomes: by rule, and by default.  Judges are slow loops over rows and a simulator."""

import warnings
from itertools import pairwise

import numpy as np
import pandas
import pyarrow as pa
import pytest

from eight_rows import NAN, ROLES, load, quietly, table
from kbrl import KBSF, join, load_log, open_log, read_log
from kbrl.checks import KbrlWarning
from kbrl.logs.columns import resolve
from kbrl.logs.value_facts import look_at_values
from kbrl.tables.formats import open_table
from messy_ward import DRUGS, clean_log, fitted, score, with_holes

HOLES = [NAN, 2.0, NAN, NAN, NAN, 6.0, NAN, 8.0]


ALONE = {role: name for role, name in ROLES.items() if role != "episode"}


def test_without_episodes_a_missing_number_is_the_median_by_default_and_a_variable_marks_it():
    with pytest.warns(KbrlWarning, match="'x', in 5 of 8 rows, become the median, 6, with a variable that marks them"):
        log = load_log(table(x=HOLES), columns=ALONE)
    assert log.state_names == ("x", "x is missing")
    assert log.states.tolist() == [[6, 1], [2, 0], [6, 1], [6, 1], [6, 1], [6, 0], [6, 1], [8, 0]]


def test_within_episodes_it_is_the_last_value_by_default_and_before_the_first_the_median():
    said = "become the last value of the same episode; before the first one, in 2 rows, the median, 6, with a variable"
    with pytest.warns(KbrlWarning, match=said):
        log = load_log(table(x=HOLES), columns=ROLES)
    assert log.states.tolist() == load(table(x=HOLES), missing="forward").states.tolist()
    assert log.source.recipe.episode == "who"


def chain(rho, seed=0, n_episodes=60, length=20):
    """A column whose values are correlated by rho from row to row, of which one in five is missing."""
    rng = np.random.default_rng(seed)
    steps = [rng.normal(size=n_episodes)]
    for _ in range(length - 1):
        steps.append(rho * steps[-1] + np.sqrt(1 - rho**2) * rng.normal(size=n_episodes))
    values = np.column_stack(steps).ravel()
    values[rng.random(len(values)) < 0.2] = NAN
    who = np.repeat(np.arange(n_episodes), length)
    ends = np.append(np.diff(who) > 0, True)
    return {"who": who, "x": values, "drug": np.arange(len(who)) % 2, "gain": np.zeros(len(who)), "over": ends}


def rule_of(rows, **columns):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KbrlWarning)
        return open_log(rows, columns=ROLES | columns).recipe.columns[0]


@pytest.mark.parametrize(("rho", "rule"), [(0.95, "forward"), (0.8, "forward"), (0.2, "median"), (-0.5, "median")])
def test_by_default_values_are_carried_forward_where_they_last_and_not_where_they_are_noise(rho, rule):
    # the mean square of a change is 2 (1 - rho) of the variance: the last value is nearer than the mean if rho > 1/2
    assert rule_of(chain(rho)).missing == rule


@pytest.mark.parametrize(("rho", "rule"), [(0.95, "forward"), (0.2, "forward"), (-0.5, "level")])
def test_by_default_a_level_is_carried_forward_where_it_comes_again_more_often_than_the_usual_one(rho, rule):
    words = [None if v != v else "low" if v < 0 else "high" for v in chain(rho)["x"]]
    assert rule_of(chain(rho) | {"x": words}).missing == rule


def test_a_value_that_is_recorded_once_per_episode_is_carried_forward():
    rows = table(x=[3.0, NAN, NAN, NAN, 5.0, NAN, NAN, NAN])
    assert load(rows).states.ravel().tolist() == [3, 3, 3, 3, 5, 5, 5, 5]
    sexes = load(table(x=["F", None, None, None, None, None, "M", None]))
    assert sexes.state_names == ("x=F", "x=M", "x=(missing)")
    assert sexes.states.argmax(axis=1).tolist() == [0, 0, 0, 0, 2, 2, 1, 1]


def test_rows_that_do_not_follow_each_other_keep_the_median():
    rows = chain(0.95)
    assert rule_of(rows | {"next_x": rows["x"]}).missing == "median"


def test_the_default_is_the_same_for_any_split_of_a_log_between_episodes():
    rows = pandas.DataFrame(chain(0.6))
    columns = resolve(list(rows.columns), ROLES)
    parts = [rows[rows.who < 20], rows[(rows.who >= 20) & (rows.who < 21)], rows[rows.who >= 21]]
    found = [look_at_values(open_table(part), columns) for part in (rows, *parts)]
    whole, added = found[0], found[1] + found[2] + found[3]
    assert whole.decided(columns)[0] == added.decided(columns)[0]
    one, other = whole.state["x"], added.state["x"]
    assert one.changes.mean_square() == other.changes.mean_square()
    before = [slow_forward(part.x, part.who) for part in parts]
    changes = [b - a for part, last in zip(parts, before) for (w, a), (v, b) in pairwise(zip(part.who, last))
               if w == v and b != a and a == a]  # fmt: skip
    assert one.changes.mean_square()[0] == pytest.approx(np.mean(np.square(changes)), rel=1e-12)


def test_a_row_without_history_is_answered_by_the_median_and_that_is_said():
    rows = table(x=[1.0, NAN, 3.0, 4.0, 5.0, NAN, 7.0, 8.0])
    with pytest.warns(KbrlWarning, match="become the last value of the same episode"):
        model = KBSF(n_reps=4, random_state=0, min_cases=1).fit(rows, columns=ROLES)
    said = "x is missing in 1 of 2 rows without an earlier value of the same episode: it is taken as the median, 4"
    with pytest.warns(KbrlWarning, match=said):
        answers = model.q_values({"x": [4.0, NAN]})
    np.testing.assert_array_equal(answers[0], answers[1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        history = model.q_values({"x": [7.0, NAN], "who": ["c", "c"]})
    np.testing.assert_array_equal(history[0], history[1])


def test_forward_takes_the_last_value_of_the_same_episode_and_before_the_first_the_median():
    log = load(table(x=HOLES), missing={"x": "forward"})
    assert log.states.tolist() == [[6, 1], [2, 0], [2, 0], [2, 0], [6, 1], [6, 0], [6, 0], [8, 0]]


def slow_forward(values, episodes):
    last, result = {}, []
    for value, episode in zip(values, episodes):
        if value == value:
            last[episode] = value
        result.append(last.get(episode, NAN))
    return result


@quietly
@pytest.mark.parametrize("chunk_rows", [1, 3, 1000])
def test_forward_is_that_of_a_slow_loop_in_chunks_of_any_size(chunk_rows):
    rng = np.random.default_rng(0)
    who = np.sort(rng.integers(0, 40, 500))
    x = np.where(rng.random(500) < 0.5, NAN, rng.normal(size=500))
    rows = {
        "who": who,
        "x": x,
        "drug": rng.integers(0, 2, 500),
        "gain": np.zeros(500),
        "over": np.append(np.diff(who) > 0, True),
    }
    log = open_log(rows, columns=ROLES | {"missing": "forward"})
    found = np.concatenate([chunk.states for chunk in log.chunks(chunk_rows)])
    right = np.array(slow_forward(x, who))
    known = ~np.isnan(right)
    np.testing.assert_array_equal(found[:, 1], ~known)
    np.testing.assert_array_equal(found[known, 0], right[known])


def test_a_constant_takes_the_place_of_a_missing_value():
    assert load(table(x=HOLES), missing={"x": -1}).states.ravel().tolist() == [-1, 2, -1, -1, -1, 6, -1, 8]


def test_drop_leaves_out_the_transitions_from_and_to_a_row_with_a_missing_value():
    log = load(table(x=[1.0, NAN, 3.0, 4.0, 5.0, 6.0, 7.0, NAN]), missing={"x": "drop"})
    assert log.states.ravel().tolist() == [3, 4, 5, 6]  # 1 -> ?, ? -> 3 and 7 -> ? are not known, nor is the last state
    assert log.next_states.ravel().tolist() == [4, 4, 6, 7]


def test_a_next_state_takes_the_value_of_its_own_row_forward_and_levels_of_the_state():
    rows = {
        "x": [1.0, NAN, 3.0],
        "next_x": [NAN, 5.0, NAN],
        "sex": ["F", "M", "F"],
        "next_sex": ["M", "F", None],
        "drug": [0, 1, 0],
        "gain": [0.0, 0, 1],
        "over": [0, 0, 1],
        "who": [1, 1, 1],
    }
    log = load(rows, state=["x", "sex"], missing={"x": "forward"})
    assert log.states.tolist() == [[1, 1, 0], [1, 0, 1], [3, 1, 0]]
    assert log.next_states[:2].tolist() == [[1, 0, 1], [5, 1, 0]]


@pytest.fixture(scope="module")
def ward():
    return clean_log(700)


@pytest.fixture(scope="module")
def clean_score(ward):
    random = score(lambda states: np.random.default_rng(0).choice(DRUGS, len(states)))
    clean = score(fitted(ward).predict)
    assert random < 0 < 10 < clean
    return clean


def measured_when_low(ward):
    high = (ward["map"] > 70) & (np.random.default_rng(1).random(len(ward)) < 0.6)
    return ward.assign(map=ward["map"].mask(high))


def recorded_at_admission(ward):
    return ward.assign(unit=ward["unit"].mask(ward["day"] > 0), ventilated=ward["ventilated"].mask(ward["day"] > 0))


def never_measured_in_some(ward):
    some = np.random.default_rng(1).random(ward["patient"].max() + 1) < 0.3
    return ward.assign(map=ward["map"].mask(some[ward["patient"]]))


HOLED = {
    "one cell in seven": with_holes,
    "two cells in five": lambda ward: with_holes(ward, 0.4),
    "measured when low": measured_when_low,
    "recorded at admission": recorded_at_admission,
    "never measured in some": never_measured_in_some,
}


@pytest.mark.parametrize("holes", HOLED)
def test_a_policy_from_a_log_with_holes_is_by_default_as_good_as_from_the_clean_one(ward, clean_score, holes):
    assert score(fitted(HOLED[holes](ward)).predict) > 0.95 * clean_score


@pytest.mark.parametrize("rule", [0, "median", "forward"])
def test_a_batch_without_gaps_is_read_like_one_with_them(rule):
    cells = [4.0, None, 3.0, 1.0, 2.0, None]
    held = pa.table({"x": cells, "act": ["a", "b"] * 3, "paid": [1.0] * 6, "stay": [0] * 6, "over": [0] * 5 + [1]})
    roles = {"state": "x", "action": "act", "reward": "paid", "episode": "stay", "terminated": "over"}
    roles["missing"] = {"x": rule}
    expected = load_log(held, columns=roles)
    for chunk_rows in (1, 2, 4):
        found = join(list(read_log(held, columns=roles, chunk_rows=chunk_rows)))
        assert found.states.tolist() == expected.states.tolist()
        assert found.next_states.tolist() == expected.next_states.tolist()
