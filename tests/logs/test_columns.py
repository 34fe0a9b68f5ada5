# ruff: noqa: E501 - one line per case
"""Which column is what: dialects of other libraries, mappings by the user, and what is ambiguous."""

import pytest

from kbrl.data.column_names import display_names
from kbrl.logs.columns import Columns, resolve
from kbrl.tables.faults import LogError

DIALECTS = {
    "canonical": (
        "episode_id step observation_x observation_v action reward next_observation_v next_observation_x "
        "terminated truncated",
        Columns(("observation_x", "observation_v"), "action", "reward", ("next_observation_x", "next_observation_v"),
                "terminated", "truncated", None, "episode_id", "step"),
    ),
    "Gymnasium": (
        "observation action reward next_observation terminated truncated info",
        Columns(("observation",), "action", "reward", ("next_observation",), "terminated", "truncated"),
    ),
    "Minari": (
        "observations actions rewards terminations truncations infos",
        Columns(("observations",), "actions", "rewards", (), "terminations", "truncations"),
    ),
    "D4RL": (
        "observations actions rewards terminals timeouts next_observations",
        Columns(("observations",), "actions", "rewards", ("next_observations",), "terminals", "timeouts"),
    ),
    "d3rlpy": (
        "observations actions rewards terminals timeouts",
        Columns(("observations",), "actions", "rewards", (), "terminals", "timeouts"),
    ),
    "RLlib": (
        "eps_id t agent_index obs actions rewards new_obs terminateds truncateds action_prob",
        Columns(
            ("obs",), "actions", "rewards", ("new_obs",), "terminateds", "truncateds", None, "eps_id", "t",
            action_prob="action_prob",
        ),
    ),
    "LeRobot": (
        "observation.state observation.images.top action next.reward next.done episode_index frame_index timestamp",
        Columns(("observation.state",), "action", "next.reward", (), None, None, "next.done", "episode_index",
                "frame_index"),
    ),
    "capital letters": ("Obs Action Reward Done", Columns(("Obs",), "Action", "Reward", (), None, None, "Done")),
}  # fmt: skip


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_columns_of_a_dialect_are_recognised(dialect):
    names, expected = DIALECTS[dialect]
    assert resolve(names.split()) == expected


def test_a_mapping_by_the_user_names_what_no_dialect_knows():
    names = ["patient", "age", "sofa", "dose", "r", "next_age", "next_sofa"]
    found = resolve(names, {"state": "age,sofa", "action": "dose", "reward": "r", "episode": "patient"})
    assert found == Columns(("age", "sofa"), "dose", "r", ("next_age", "next_sofa"), episode="patient")


def test_a_mapping_settles_what_is_ambiguous():
    names = ["obs", "state", "action", "reward", "done"]
    assert resolve(names, {"state": "obs"}).state == ("obs",)


def test_a_column_whose_name_has_a_comma_can_be_named():
    assert resolve(["a,b", "action", "reward"], {"state": "a,b"}).state == ("a,b",)


def test_the_mapping_found_can_be_given_again():
    found = resolve(DIALECTS["RLlib"][0].split())
    assert resolve(DIALECTS["RLlib"][0].split(), found.to_dict()) == found
    assert resolve(DIALECTS["RLlib"][0].split(), found) == found


def test_variables_are_named_without_the_prefix_of_the_dialect():
    assert display_names(resolve(["obs_x", "obs_v", "action", "reward"]).state) == ("x", "v")
    assert display_names(resolve(["age", "sofa", "action", "reward"], {"state": "age,sofa"}).state) == ("age", "sofa")
    assert display_names(["obs_0", "obs_1"]) == ("obs_0", "obs_1")  # nobody knows what a mere number is


def test_a_column_that_is_named_for_one_role_is_not_taken_for_another_by_its_usual_name():
    names = ["s", "t", "done", "action", "reward"]
    for state in ("s,t", ["s", "t"], "s, t"):
        found = resolve(names, {"state": state, "terminated": "done"})
        assert (found.state, found.step, found.terminated, found.done) == (("s", "t"), None, "done", None)


@pytest.mark.parametrize("role, option", [
    ("state", "--state NAME, "), ("next_state", "--next-state NAME, "), ("step", "--step NAME, "), ("done", ""),
])  # fmt: skip
def test_a_name_that_no_column_has_is_answered_by_the_option_of_its_role(role, option):
    advice = f"Say which column it is: {option}in Python columns={{'{role}': NAME}}."
    with pytest.raises(LogError) as refused:
        resolve(["obs", "action", "reward"], {role: "sofaa"})
    assert refused.value.fault.advice == advice


@pytest.mark.parametrize(("given", "found"), [
    ("next_age,next_sofa", "next_age,next_sofa"), ("next_sofa,next_age", "next_age,next_sofa"),
    ("sofa_next,age_next", "age_next,sofa_next"), ("later,after", "later,after"), ("after,later", "after,later"),
])  # fmt: skip
def test_next_states_are_paired_by_their_names_if_these_tell_and_else_in_the_order_given(given, found):
    names = ["age", "sofa", *given.split(","), "action", "reward"]
    assert resolve(names, {"state": "age,sofa", "next_state": given}).next_state == tuple(found.split(","))


REFUSED = {
    "no action": ("obs reward", None, "must have a column for the action, but it has 'obs', 'reward'. Say which column it is: --action NAME, "),
    "no state": ("age action reward", None, "must have a column for the state, .*--state NAME, "),
    "no reward": ("obs action", None, "must have a column for the reward, .*--reward NAME, "),
    "the action as state": ("obs action reward", {"state": "action"}, "a column for the action, but 'action' is already the state"),
    "the state as action": ("obs_x reward", {"action": "obs_x"}, "a column for the state, but 'obs_x' is already the action"),
    "two places for the state": ("obs state action reward", None, "Only one column or family of columns can be the state, but 'obs', 'state' all fit. Name the one to use: --state NAME, "),
    "two actions": ("obs action actions reward", None, "can be the action, but 'action', 'actions' all fit"),
    "a list and single columns": ("obs obs_x action reward", None, "Only one column or family of columns can be the state"),
    "two columns of one name": ("obs action action reward", None, "'action' occur more than once"),
    "a column that is not there": ("obs action reward", {"action": "dose"}, "The action should be in 'dose', but the columns are"),
    "other next variables": ("obs_x obs_y action reward next_obs_x next_obs_z", None, "must have the variables of the states"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_columns_that_cannot_be_told_are_refused(case):
    names, given, words = REFUSED[case]
    with pytest.raises(LogError, match=words):
        resolve(names.split(), given)


@pytest.mark.parametrize("given, error, words", [
    ({"states": "x"}, ValueError, "columns must map some of .* but it also has 'states'"),
    ({"state": 3}, TypeError, r"columns\['state'\] must be the name of a column or several, but it is 3"),
    ({"reward": ["a", "b"]}, ValueError, r"columns\['reward'\] must be one column"),
])  # fmt: skip
def test_a_mapping_that_is_none_is_refused(given, error, words):
    with pytest.raises(error, match=words):
        resolve(["obs", "action", "reward"], given)
