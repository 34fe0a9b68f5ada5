"""Tables as people have them: categories, times, other forms of the same table, rows without an action."""

import numpy as np
import pandas
import polars
import pyarrow
import pytest
from pyarrow import parquet

from eight_rows import NAN, ROLES, load, quietly, table
from kbrl import KBSF, check_log, join, load_log, load_model, open_log, save_model
from kbrl.checks import KbrlWarning
from kbrl.data.recipe import Recipe
from kbrl.data.state_column import StateColumn
from kbrl.model.model import as_model
from kbrl.tables.faults import LogError
from messy_ward import STATE, clean_log, fitted, with_holes


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


@pytest.fixture(scope="module")
def ward():
    return clean_log(700)


@quietly
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


@quietly
def test_a_text_among_numbers_is_never_filled_in_as_if_it_were_missing(ward):
    model = fitted(with_holes(ward[:900]), missing={"map": "median"})
    frame = ward[STATE][:2].astype({"map": object})
    frame.loc[frame.index[1], "map"] = "often"
    with pytest.warns(KbrlWarning, match="row 1: map must be a number, but it is 'often'"):
        assert model.predict(frame).isna().tolist() == [False, True]
    with pytest.raises(ValueError, match="row 1: map must be a number, but it is 'often'"):
        model.q_values(frame)


@quietly
def test_a_model_file_keeps_the_recipe_and_the_answers(ward, tmp_path):
    model = fitted(with_holes(ward[:900]), allowed={"high": "map < 70"})
    save_model(model, tmp_path / "m.kbrl")
    loaded = load_model(tmp_path / "m.kbrl")
    assert as_model(loaded).recipe == model.model_.recipe
    np.testing.assert_array_equal(loaded.q_values(ward[STATE]), model.q_values(ward[STATE]))


@quietly
def test_models_of_different_recipes_do_not_add_up_and_the_error_says_why(ward):
    one, other = (fitted(with_holes(ward[:900]), missing={"map": value}) for value in (60, 70))
    with pytest.raises(ValueError, match=r"differ in fill of 'map': 60\.0 and 70\.0"):
        one + other


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


@quietly
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
    with pytest.raises(
        LogError, match="With one_step, every row ends its episode, but 'over' has the role 'terminated'"
    ):
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


@quietly
@pytest.mark.parametrize("chunk_rows", [1, 3, 100])
def test_propensities_are_kept_with_their_rows(chunk_rows):
    rows = table(action_prob=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8], over=[0, 0, 0, 1, 0, 0, 0, 0])
    log = join(open_log(rows, columns=ROLES).chunks(chunk_rows))
    assert log.propensities.tolist() == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    assert log[2:4].propensities.tolist() == [0.3, 0.4]
    assert (log + load(table())).propensities is None
    with pytest.raises(LogError, match=r"'chance' has at least 1 faulty cell \(bad_propensity\).*row 3.*: 1.5"):
        load(table(chance=[0.5, 0.5, 1.5] + [0.5] * 5), action_prob="chance")
