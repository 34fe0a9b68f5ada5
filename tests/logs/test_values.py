"""Tables as people have them: missing values, categories, classes of doses, allowed actions.

Judges are slow loops over rows, hand calculations, and the simulator that a messy log was made by.
"""

import warnings
from itertools import pairwise

import numpy as np
import pandas
import polars
import pyarrow
import pytest
from pyarrow import parquet

from kbrl import KBRL, KBSF, check_log, join, load_log, load_model, open_log, save_model
from kbrl.checks import KbrlWarning
from kbrl.data.recipe import Recipe
from kbrl.data.state_column import StateColumn
from kbrl.logs.columns import resolve
from kbrl.logs.value_facts import look_at_values
from kbrl.model.model import as_model
from kbrl.tables.faults import LogError
from kbrl.tables.formats import open_table
from messy_ward import COLUMNS, DRUGS, STATE, clean_log, score, with_holes

NAN = float("nan")
ignored = pytest.mark.filterwarnings(
    "ignore:Missing values of", "ignore:.*rows are left out", "ignore:.*without an earlier value"
)


def table(**changes):
    """Two episodes of four rows."""
    columns = {
        "who": list("aaaabbbb"),
        "x": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
        "drug": list("pqpqpqpq"),
        "gain": [0.0, 0, 0, 1, 0, 0, 0, 1],
        "over": [0, 0, 0, 1, 0, 0, 0, 1],
    }
    return columns | changes


ROLES = {"state": "x", "action": "drug", "reward": "gain", "terminated": "over", "episode": "who"}


def load(rows, **columns):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KbrlWarning)
        return load_log(rows, columns=ROLES | columns)


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


@ignored
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


def test_a_category_has_a_variable_for_each_level_and_one_for_missing():
    log = load(table(x=["F", "M", None, "F", "M", "M", "F", "F"]), missing="level")
    assert log.state_names == ("x=F", "x=M", "x=(missing)")
    assert log.states[:3].tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]


def test_numbers_are_names_of_levels_if_the_user_says_so():
    assert load(table(), category=["x"]).state_names == tuple(f"x={k}" for k in range(1, 9))


def test_words_for_true_and_false_are_one_variable():
    log = load(table(x=["yes", "no", "no", "no", "yes", "No", "YES", "no"]))
    assert (log.state_names, log.states.ravel().tolist()) == (("x",), [1, 0, 0, 0, 1, 0, 1, 0])


def test_an_ordinal_column_is_the_place_in_the_stated_order():
    rows = table(x=["low", "high", "mid", "low", "low", "mid", "high", "mid"])
    assert load(rows, ordinal={"x": ["low", "mid", "high"]}).states.ravel().tolist() == [0, 2, 1, 0, 0, 1, 2, 1]


def test_rare_levels_are_put_together_and_unknown_ones_join_them():
    n = 4000
    levels = np.array(["F", "M"])[np.arange(n) % 2].astype(object)
    levels[[7, 8]] = "X"
    rows = {"x": levels, "drug": np.arange(n) % 3, "gain": np.ones(n), "over": np.arange(n) % 4 == 3}
    model = KBSF(n_reps=3, random_state=0).fit(rows, columns={k: v for k, v in ROLES.items() if k != "episode"})
    assert model.source_.state_names == ("x=F", "x=M", "x=(other)")
    np.testing.assert_array_equal(model.q_values({"x": ["X"]}), model.q_values({"x": ["never seen"]}))


def test_an_unknown_level_is_equally_far_from_all_known_ones_and_a_log_with_one_is_warned_of():
    model = KBSF(n_reps=2, random_state=0).fit(table(x=list("FMFMFMFM")), columns=ROLES).model_
    with pytest.warns(KbrlWarning, match="equally far from all of them"):
        rows = model.scaled({"x": ["F", "M", "?"]})
    apart = np.linalg.norm(rows[2] - rows[:2], axis=1)
    assert apart[0] == apart[1] > 0
    with pytest.warns(KbrlWarning, match=r"x must be one of 'F', 'M', but it is '\?': it is equally far from all"):
        model.predict({"x": ["F", "?"]})
    with pytest.warns(KbrlWarning, match=r"'x' has a level that the model does not know, '\?'"):
        list(open_log(table(x=list("FMFM?MFM")), columns=ROLES, recipe=model.recipe).chunks())


@pytest.mark.parametrize(("scaling", "apart"), [("std", 2.0), ("range", 1.0)])
@pytest.mark.parametrize("share", [0.5, 0.02])
def test_two_levels_are_as_far_apart_as_the_decision_says_however_rare_one_is(scaling, apart, share):
    levels = np.where(np.arange(200) < 200 * share, "A", "B")
    rows = {"x": levels, "drug": np.arange(200) % 2, "gain": np.ones(200), "over": np.ones(200)}
    roles = {role: name for role, name in ROLES.items() if role != "episode"}
    for x, kind in ((levels, {}), ((levels == "A").astype(int), {"category": ["x"]})):
        model = KBSF(n_reps=2, scaling=scaling).fit(rows | {"x": x}, columns=roles | kind).model_
        one, other = model.scaled({"x": x[[0, -1]]})
        assert np.linalg.norm(one - other) == pytest.approx(apart)


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


def fitted(rows, **columns):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KbrlWarning)
        learner = KBSF(n_reps=120, sample_width=0.3, rep_width=0.3, discount=0.95, random_state=0)
        return learner.fit(rows, columns=COLUMNS | columns)


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


@ignored
def test_the_same_table_gives_the_same_model_in_every_format(ward, tmp_path):
    frame = with_holes(ward[:900])
    frame.to_csv(tmp_path / "ward.csv", index=False)
    frame.to_parquet(tmp_path / "ward.parquet")
    arrow = pyarrow.table(frame)
    parquet.write_table(arrow, tmp_path / "small.parquet", row_group_size=50)
    paths = [tmp_path / "ward.csv", tmp_path / "ward.parquet", tmp_path / "small.parquet"]
    models = [fitted(source) for source in (*paths, frame, polars.from_pandas(frame), arrow)]
    states = frame[STATE]
    for model in models[1:]:
        assert model.source_.recipe == models[0].source_.recipe
        np.testing.assert_array_equal(model.q_values(states), models[0].q_values(states))


def test_answers_have_the_index_of_the_frame_and_none_where_a_row_has_no_state(ward):
    model = fitted(ward)
    frame = ward[STATE][:4].set_axis([7, 3, 5, 1])
    right = [model.act(frame.iloc[place]) for place in range(4)]
    found = model.predict(frame)
    assert (found.index.tolist(), found.tolist(), found.name) == ([7, 3, 5, 1], right, "action")
    assert model.predict(polars.from_pandas(frame)).to_list() == right
    frame.loc[3, "map"] = NAN
    with pytest.warns(
        KbrlWarning, match="1 of 4 rows have no answer; the first is row 1: map is missing, which it never"
    ):
        assert model.predict(frame).isna().tolist() == [False, True, False, False]
    with pytest.raises(ValueError, match="row 1: map is missing, which it never was in the log of the model"):
        model.q_values(frame)
    assert model.feature_names_in_.tolist() == STATE


@ignored
def test_a_text_among_numbers_is_never_filled_in_as_if_it_were_missing(ward):
    model = fitted(with_holes(ward[:900]), missing={"map": "median"})
    frame = ward[STATE][:2].astype({"map": object})
    frame.loc[frame.index[1], "map"] = "often"
    with pytest.warns(KbrlWarning, match="row 1: map must be a number, but it is 'often'"):
        assert model.predict(frame).isna().tolist() == [False, True]
    with pytest.raises(ValueError, match="row 1: map must be a number, but it is 'often'"):
        model.q_values(frame)


@ignored
def test_a_model_file_keeps_the_recipe_and_the_answers(ward, tmp_path):
    model = fitted(with_holes(ward[:900]), allowed={"high": "map < 70"})
    save_model(model, tmp_path / "m.kbrl")
    loaded = load_model(tmp_path / "m.kbrl")
    assert as_model(loaded).recipe == model.model_.recipe
    np.testing.assert_array_equal(loaded.q_values(ward[STATE]), model.q_values(ward[STATE]))


@ignored
def test_models_of_different_recipes_do_not_add_up_and_the_error_says_why(ward):
    one, other = (fitted(with_holes(ward[:900]), missing={"map": value}) for value in (60, 70))
    with pytest.raises(ValueError, match=r"differ in fill of 'map': 60\.0 and 70\.0"):
        one + other


# Actions.


def test_classes_of_a_dose_are_quantiles_with_the_range_as_label_and_the_median_as_dose():
    doses = np.arange(1.0, 9.0)
    log = open_log(table(drug=doses), columns=ROLES | {"bins": {"drug": 4}})
    (bins,) = log.recipe.bins
    assert bins.labels == ("up to 2", "above 2 to 4", "above 4 to 6", "above 6")
    assert bins.doses == (1.0, 3.0, 5.0, 7.0)
    assert join(log.chunks()).actions.tolist() == [bins.labels[k] for k in (0, 0, 1, 1, 2, 2, 3, 3)]


@pytest.mark.parametrize("rule", ["0+2", "0 + 2"])
def test_zero_may_be_a_class_of_its_own(rule):
    log = open_log(table(drug=[0.0, 0, 0, 0, 1, 2, 3, 4]), columns=ROLES | {"bins": {"drug": rule}})
    assert log.recipe.bins[0].labels == ("0", "above 0 to 2", "above 2")
    assert log.recipe.doses("above 2") == {"drug": 3.0}


def test_classes_may_lie_between_edges_of_the_user():
    log = open_log(table(drug=[0.0, 5, 10, 11, 49, 50, 51, 99]), columns=ROLES | {"bins": {"drug": [10, 50]}})
    assert log.recipe.bins[0].labels == ("up to 10", "above 10 to 50", "above 50")
    assert join(log.chunks()).action_indices.tolist() == [0, 0, 0, 1, 1, 1, 2, 2]


def test_classes_are_actions_in_the_order_of_their_doses():
    doses = [2.0, 9.0, 11.0, 30.0, 120.0, 1.0, 9.5, 100.0]
    log = open_log(table(drug=doses), columns=ROLES | {"bins": {"drug": [5, 10, 100]}})
    assert log.action_labels.tolist() == ["up to 5", "above 5 to 10", "above 10 to 100", "above 100"]


def test_several_columns_make_combinations():
    rows = table(dose=[0.0, 0, 5, 5, 0, 5, 0, 5])
    log = load_log(rows, columns=ROLES | {"action": ["drug", "dose"], "bins": {"dose": [1]}})
    assert log.actions.tolist()[:4] == ["p + up to 1", "q + up to 1", "p + above 1", "q + above 1"]
    plain = load_log(rows, columns=ROLES | {"action": "drug,dose"})
    assert plain.actions.tolist()[:4] == ["p + 0", "q + 0", "p + 5", "q + 5"]


def test_what_is_to_be_small_is_a_reward_with_the_other_sign():
    roles = {role: name for role, name in ROLES.items() if role != "reward"}
    rows = table(gain=np.arange(8.0))
    for minimize in ("gain", "2 * gain + 1"):
        log = load_log(rows, columns=roles | {"minimize": minimize})
        factor, rest = (1, 0) if minimize == "gain" else (2, 1)
        assert log.rewards.tolist() == [-(factor * k + rest) for k in range(8)]


# Allowed actions.


def slow_values(model, allowed, sweeps=2000):
    """Value iteration over the representative states, one number at a time, over the allowed actions."""
    mdp, values = model.mdp, [0.0] * model.basis.n_reps
    chances = np.asarray(mdp.stacked.toarray() if hasattr(mdp.stacked, "toarray") else mdp.stacked)
    chances = chances.reshape(len(model.action_labels), model.basis.n_reps, -1)
    for _ in range(sweeps):
        values = [
            max(
                mdp.rewards[action, rep] + mdp.discount * float(chances[action, rep] @ np.array(values))
                for action in range(len(model.action_labels))
                if allowed[rep][action]
            )
            for rep in range(model.basis.n_reps)
        ]
    return values


def test_values_are_maxima_over_the_actions_that_are_allowed_at_each_representative_state(ward):
    model = fitted(ward[:1500], allowed={"high": "map < 65 and unit == 'icu'", "low": "severity != 'mild'"}).model_
    states = [model.recipe.described(rep) for rep in model.reps]
    allowed = [
        [
            {"high": s["map"] < 65 and s["unit"] == "icu", "low": s["severity"] != "mild", "none": True}[a]
            for a in model.action_labels
        ]
        for s in states
    ]
    assert 0 < np.mean(allowed) < 1
    np.testing.assert_allclose(model.solution.values, slow_values(model, allowed), rtol=1e-4)


def test_no_answer_names_an_action_that_is_not_allowed_in_the_state_itself(ward):
    model = fitted(ward[:1500], allowed={"high": "map < 65", "none": "false"})
    states = ward[STATE]
    q, labels = model.q_values(states), model.action_labels_.tolist()
    assert (np.isneginf(q[:, labels.index("high")]) == (states["map"] >= 65)).all()
    assert np.isneginf(q[:, labels.index("none")]).all()
    answers = model.predict(states)
    assert not ((answers == "high") & (states["map"] >= 65)).any()
    assert [model.act(states.iloc[row]) for row in range(20)] == answers[:20].tolist()


def test_an_edge_of_a_rule_is_exact_whatever_the_scale():
    n = 40
    rows = {
        "x": np.repeat([64.9, 65.0], n // 2),
        "drug": np.arange(n) % 2,
        "gain": np.arange(n) % 2.0,
        "over": np.ones(n),
    }
    roles = {role: name for role, name in ROLES.items() if role != "episode"}
    model = KBSF(n_reps=2, random_state=0).fit(rows, columns=roles | {"allowed": {"1": "x < 65"}})
    assert model.predict({"x": [64.9, 65.0, 64.99999]}).tolist() == [1, 0, 1]


def test_where_no_action_is_allowed_there_is_no_recommendation(ward):
    model = fitted(ward[:900], allowed=dict.fromkeys(DRUGS, "map < 60"))
    with pytest.raises(ValueError, match="none is allowed there"):
        model.predict(ward[STATE])


def test_learners_without_such_rules_refuse_them(ward):
    log = load_log(ward[:90], columns=COLUMNS | {"allowed": {"high": "map < 65"}})
    with pytest.raises(ValueError, match="KBRL takes the maximum over all actions"):
        KBRL().fit(log)


# The record itself.


def test_what_was_encoded_is_decoded():
    recipe = Recipe(
        (
            StateColumn("age"),
            StateColumn("sex", "category", ("F", "M"), missing="level"),
            StateColumn("map", missing="median", fill=70.0, has_indicator=True),
            StateColumn("pain", "ordinal", ("none", "some", "much")),
            StateColumn("vent", "boolean"),
        )
    )
    rows = {
        "age": [61.3, 47.0],
        "sex": ["M", None],
        "map": [NAN, 64.7],
        "pain": ["much", "none"],
        "vent": [True, False],
    }
    encoded = recipe.encode(rows)
    assert encoded.usable.all()
    assert recipe.described(encoded.rows[0]) == {"age": 61.3, "sex": "M", "map": None, "pain": "much", "vent": 1.0}
    assert recipe.described(encoded.rows[1]) == {"age": 47.0, "sex": None, "map": 64.7, "pain": "none", "vent": 0.0}
    assert Recipe.from_dict(recipe.to_dict()) == recipe


@pytest.mark.parametrize("change", [
    {"columns": []}, {"columns": [{"name": "x"}]}, {"bins": 3}, {"allowed": [["high", "wbc < 3"]]},
    {"allowed": [["high", "map <"]]}, {"episode": 3}, {"actions": [1]}, {"more": 1},
])  # fmt: skip
def test_a_record_that_no_recipe_gives_is_refused(change):
    facts = Recipe((StateColumn("map"),)).to_dict()
    with pytest.raises(ValueError, match=r"the recipe is wrong|cannot be read"):
        Recipe.from_dict(facts | change)


# Rows without an action, and rows that nothing follows.


def last_states():
    """Two episodes whose last row only says where the last step led; the first of them says that it ended there."""
    return {
        "who": list("aaabb"),
        "x": [1.0, 2.0, 3.0, 4.0, 5.0],
        "drug": ["p", "q", None, "p", None],
        "gain": [0.0, 1.0, None, 1.0, None],
        "over": [0, 0, 1, 0, 0],
    }


@ignored
@pytest.mark.parametrize("chunk_rows", [1, 2, 3, 100])
def test_a_last_row_without_an_action_is_where_the_row_before_it_led(chunk_rows):
    log = join(open_log(last_states(), columns=ROLES).chunks(chunk_rows))
    assert log.states.ravel().tolist() == [1, 2, 4]
    assert log.next_states[[0, 2]].ravel().tolist() == [2, 5]
    assert log.terminals.tolist() == [False, True, False]  # the step that led to the end is the one that ended
    assert check_log(last_states(), columns=ROLES, chunk_rows=chunk_rows).n_transitions == 3


@pytest.mark.parametrize("chunk_rows", [1, 2, 100])
def test_a_row_without_an_action_before_the_last_one_is_refused_with_its_place(chunk_rows):
    rows = last_states() | {"drug": ["p", None, None, "p", None]}
    with pytest.raises(
        LogError, match=r"Only the last row of an episode may have no action.*row 2 \(counting from 1\)"
    ):
        list(open_log(rows, columns=ROLES).chunks(chunk_rows))
    (fault,) = [f for f in check_log(rows, columns=ROLES, chunk_rows=chunk_rows).faults if f.stops_learning]
    assert (fault.name, fault.rows) == ("missing_action", (1,))


def test_one_step_data_need_neither_next_states_nor_episodes():
    rows = {"x": [1.0, 2.0, 3.0], "arm": ["a", "b", "a"], "click": [0, 1, 1]}
    roles = {"state": "x", "action": "arm", "reward": "click"}
    with pytest.raises(LogError, match="--one-step"):
        load_log(rows, columns=roles)
    log = load_log(rows, columns=roles | {"one_step": True})
    assert log.terminals.all()
    model = KBSF(n_reps=3, sample_width=1e-3, rep_width=1e-3, discount=0.9).fit(log)
    np.testing.assert_allclose(model.q_values([[2.0]])[0, 1], 1.0)  # the reward alone: nothing follows
    with pytest.raises(LogError, match="With one_step, every row ends its episode, but 'over' is the terminated"):
        load_log(rows | {"over": [0, 0, 1]}, columns=roles | {"one_step": True, "terminated": "over"})


def test_times_in_the_state_are_the_time_since_the_episode_began():
    days = ["2024-01-01", "2024-01-03", "2024-01-03 12:00", "2024-01-04"]
    rows = table(x=[*days, "2024-02-27", "2024-02-28T00:00:00+02:00", "2024-02-29", "2024-03-02"])
    right = [0, 2, 2.5, 3, 0, 1 - 2 / 24, 2, 4]
    log = load(rows, elapsed={"x": "1 day"})
    np.testing.assert_allclose(log.states.ravel(), right)
    frame = pandas.DataFrame(table(x=pandas.to_datetime(days + ["2024-02-27"] * 4, format="ISO8601")))
    np.testing.assert_allclose(load(frame, elapsed={"x": "1 hour"}).states.ravel()[:4], 24 * np.array(right[:4]))
    with pytest.raises(LogError, match=r"--elapsed 'x=1 day'"):
        load(rows)


@ignored
@pytest.mark.parametrize("chunk_rows", [1, 3, 100])
def test_propensities_are_kept_with_their_rows(chunk_rows):
    rows = table(action_prob=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8], over=[0, 0, 0, 1, 0, 0, 0, 0])
    log = join(open_log(rows, columns=ROLES).chunks(chunk_rows))
    assert log.propensities.tolist() == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    assert log[2:4].propensities.tolist() == [0.3, 0.4]
    assert (log + load(table())).propensities is None
    with pytest.raises(LogError, match=r"'chance' has at least 1 faulty cell \(bad_propensity\).*row 3.*: 1.5"):
        load(table(chance=[0.5, 0.5, 1.5] + [0.5] * 5), action_prob="chance")
