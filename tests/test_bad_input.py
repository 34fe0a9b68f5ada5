"""Bad input gets a clear error: each case with the words that name the thing, the rule and the value received."""

import re

import numpy as np
import pytest

from kbrl import (
    KBRL,
    KBSF,
    FiniteMDP,
    Kernel,
    NotFittedError,
    Solver,
    Transitions,
    Variant,
    clone,
    join,
    load_log,
    open_log,
    solve,
)
from kbrl.mdp.dynamic_programming import evaluate_policy
from kbrl.mdp.factorization import reduce_mdp
from kbrl.model.kbsf_bounds import largest_rep_width
from kbrl.tasks import PuddleWorld
from samples import random_log

NAN, INF = float("nan"), float("inf")


def log(**changes):
    fields = {
        "states": [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]],
        "actions": [0, 1, 0],
        "rewards": [0.0, 1.0, 2.0],
        "next_states": [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]],
        "terminals": [False, False, True],
    }
    return Transitions(**(fields | changes))


def fit(learner=KBSF, data=None, **settings):
    return learner(**({"n_reps": 2} if learner is KBSF else {}) | settings).fit(log() if data is None else data)


def mdp(probabilities=(((1.0, 0.0), (0.0, 1.0)),), rewards=((0.0, 1.0),), discount=0.9, **more):
    return FiniteMDP(np.array(probabilities), np.array(rewards), discount, **more)


def ward(*, reward="score", terminated="home", episode="who", **changes):
    """Load a small table of two patients, with changes of its columns and rules."""
    rows = {
        "who": [1, 1, 1, 2, 2, 2],
        "map": [70, 60, 65, 80, 75, 70],
        "unit": ["icu", "icu", "ward", "icu", "ward", "ward"],
        "drug": list("abbaba"),
        "score": [1, 2, 1, 3, 1, 1],
        "home": [0, 0, 1, 0, 0, 1],
    }
    rows |= {name: changes.pop(name) for name in list(changes) if name in rows}
    roles = {"state": ["map", "unit"], "action": "drug", "reward": reward, "terminated": terminated, "episode": episode}
    return load_log(rows, columns={role: name for role, name in roles.items() if name} | changes)


CASES = {
    # transitions
    "a NaN in a state": (lambda: log(states=[[0, 0], [NAN, 1], [2, 2]]), "states must be finite, but 1 of 3 rows are not; the first is row 1: [nan, 1.0]"),
    "an infinite reward": (lambda: log(rewards=[0, INF, -INF]), "rewards must be finite, but 2 of 3 rows are not; the first is row 1: inf"),
    "a NaN in a next state": (lambda: log(next_states=[[0, 0], [1, 1], [2, NAN]]), "next_states must be finite, but 1 of 3 rows are not; the first is row 2"),
    "states in one dimension": (lambda: log(states=[0, 1, 2]), "states must have two dimensions, one row per state, but its shape is (3,)"),
    "no rows": (lambda: log(states=np.empty((0, 2))), "states must have at least one row, but it is empty: shape (0, 2)"),
    "no columns": (lambda: log(states=np.empty((3, 0))), "states must have at least one column, but its shape is (3, 0)"),
    "next states with other variables": (lambda: log(next_states=[[1.0]] * 3), "next_states must have 2 columns, one per state variable, but its shape is (3, 1)"),
    "fields of unequal length": (lambda: log(rewards=[0, 1]), "but states has 3, actions has 3, rewards has 2"),
    "actions in two dimensions": (lambda: log(actions=[[0], [1], [0]]), "actions must have one dimension, one entry per transition, but its shape is (3, 1)"),
    "a missing action": (lambda: log(actions=["a", None, "b"]), "actions must be labels, but 1 of 3 rows are not; the first is row 1: None"),
    "a NaN for an action": (lambda: log(actions=[0.0, NAN, 1.0]), "actions must be finite, but 1 of 3 rows are not; the first is row 1: nan"),
    "actions of mixed kinds": (lambda: log(actions=np.array(["a", 1, "b"], dtype=object)), "actions must be labels of one kind, but they mix ['int', 'str']"),
    "an action that is not in the list": (lambda: log(action_labels=[0, 2]), "actions must be among the action_labels [0, 2], but 1 of 3 rows are not; the first is row 1: 1"),
    "a list of actions with repeats": (lambda: log(action_labels=[0, 1, 0]), "action_labels must differ from each other, but they are [0, 1, 0]"),
    "a terminal flag of 2": (lambda: log(terminals=[0, 2, 1]), "terminals must be true or false, but 1 of 3 rows are not; the first is row 1: 2"),
    "terminal flags as words": (lambda: log(terminals=["no", "no", "yes"]), "terminals must be true or false, but their type is"),
    "words for rewards": (lambda: log(rewards=["1", "2", "3"]), "rewards must be real numbers, but row 0 holds '1'"),
    "complex rewards": (lambda: log(rewards=[1j, 0, 0]), "rewards must be real numbers, but their type is complex128"),
    "ragged states": (lambda: log(states=[[0, 0], [1], [2, 2]]), "states must be real numbers, but"),
    "episodes of another length": (lambda: log(episodes=[0, 0]), "terminals has 3, episodes has 2"),
    "one row by its number": (lambda: log()[0], "use log[i:i + 1]"),
    "an empty selection": (lambda: log()[3:], "Transitions must have at least one row"),
    "joining logs of other dimensions": (lambda: join([log(), random_log(n_dims=3)]), "Logs to join must have the same state variables, but they have [2, 3]"),
    "joining words with numbers": (lambda: log() + log(actions=["a", "b", "a"]), "must be of one kind"),
    "joining one log that is not in a list": (lambda: join(log()), "join needs a list of Transitions, as in join([log, other]), but it got Transitions(3 rows"),
    "joining a number": (lambda: join(3), "join needs a list of Transitions, as in join([log, other]), but it got 3"),
    "adding a number to a log": (lambda: log() + 1, "Only Transitions can be joined, but number 1 is 1"),
    "states behind a mask": (lambda: log(states=np.ma.array(np.ones((3, 2)), mask=[[0, 0], [0, 1], [0, 0]])), "states must be free of masked entries, but 1 of 3 rows are not; the first is row 1: [1.0, None]"),
    "rewards behind a mask": (lambda: log(rewards=np.ma.array([0.0, 1.0, 2.0], mask=[0, 0, 1])), "rewards must be free of masked entries, but 1 of 3 rows are not; the first is row 2: None"),
    "actions behind a mask": (lambda: log(actions=np.ma.array([0, 1, 0], mask=[1, 0, 1])), "actions must be free of masked entries, but 2 of 3 rows are not; the first is row 0: None"),
    "terminals behind a mask": (lambda: log(terminals=np.ma.array([False] * 3, mask=[1, 0, 0])), "terminals must be free of masked entries"),
    "asking about states behind a mask": (lambda: fit().predict(np.ma.array([[0.0, 1.0]], mask=[[0, 1]])), "states must be free of masked entries"),
    "joining nothing": (lambda: join([]), "join needs at least one log"),
    # kernels
    "a negative width": (lambda: Kernel(-0.1), "width must be a finite number above 0, but it is -0.1"),
    "a width of zero": (lambda: Kernel(0), "width must be a finite number above 0, but it is 0"),
    "a NaN width": (lambda: Kernel(NAN), "width must be a finite number above 0, but it is nan"),
    "no neighbours": (lambda: Kernel(1.0, neighbors=0), "neighbors must be at least 1, but it is 0"),
    "half a neighbour": (lambda: Kernel(1.0, neighbors=1.5), "neighbors must be a whole number, but it is 1.5"),
    "a norm below 1": (lambda: Kernel(norm=0.5), "norm must be a number from 1 to 16, or infinity, but it is 0.5. Below 1 it is not a norm"),
    "a norm whose powers underflow": (lambda: KBSF(variant=Variant(norm=20)).fit(random_log()), "norm must be a number from 1 to 16, or infinity, but it is 20. Below 1"),
    "an unknown profile": (lambda: Kernel(1.0, "cubic"), "profile must be one of 'exponential', 'gaussian', 'uniform', but it is 'cubic'"),
    "a profile that rises": (lambda: Kernel(1.0, lambda z: 1 + z), "profile must never rise with z"),
    "a profile below zero": (lambda: Kernel(1.0, lambda z: 1 - z), "none below 0"),
    # learners
    "learning from an opened log": (lambda: fit(data=open_log({"obs": [0.0, 1.0], "action": [0, 1], "reward": [0, 1]})), "fit_log"),
    "learning from a list": (lambda: fit(data=[[1, 2]]), "learns from Transitions, but it got list"),
    "learning from nothing": (lambda: fit(data=iter([])), "the iterable is empty"),
    "a negative sample width": (lambda: fit(sample_width=-1.0), "sample_width must be a finite number above 0, but it is -1.0"),
    "a negative representative width": (lambda: fit(rep_width=-1.0), "rep_width must be a finite number above 0, but it is -1.0"),
    "one negative width of several": (lambda: fit(rep_width=[0.1, -1.0]), "rep_width must be a finite number above 0, or one for each representative state"),
    "too few widths": (lambda: fit(rep_width=[0.1, 0.1, 0.1]), "it has 3 widths for 2 points"),
    "a discount of one": (lambda: fit(discount=1.0), "discount must lie in [0, 1), but it is 1.0"),
    "a discount for KBRL below zero": (lambda: fit(KBRL, discount=-0.5), "discount must lie in [0, 1), but it is -0.5"),
    "no representative states": (lambda: fit(n_reps=0), "n_reps must be at least 1, but it is 0"),
    "2.5 representative states": (lambda: fit(n_reps=2.5), "n_reps must be a whole number, but it is 2.5"),
    "representative states of other dimensions": (lambda: fit(reps=[[0.0]]), "reps must have 2 columns"),
    "NaN representative states": (lambda: fit(reps=[[0.0, NAN]]), "reps must be finite, but 1 of 1 rows are not"),
    "an unknown way to choose": (lambda: fit(reps="k-mean"), "but it is 'k-mean'"),
    "a cover without a distance": (lambda: fit(reps="cover"), "cover_distance"),
    "an unknown scaling": (lambda: fit(scaling="max"), "scaling must be one of 'std', 'range', but it is 'max'"),
    "a scale of zero": (lambda: fit(scaling=[1.0, 0.0]), "scaling must be finite numbers above 0, but it is [1.0, 0.0]"),
    "a scale for other variables": (lambda: fit(scaling=[1.0]), "one number for each of the 2 state variables, but its shape is (1,)"),
    "an unknown treatment of ends": (lambda: fit(variant=Variant(terminals="stop")), "terminals must be one of 'absorb', 'continue', but it is 'stop'"),
    "an unknown aggregation": (lambda: fit(variant=Variant(aggregation="firm")), "aggregation must be one of 'soft', 'hard', but it is 'firm'"),
    "an unknown kind of neighbourhood": (lambda: fit(variant=Variant(neighborhoods="near")), "neighborhoods must be one of 'exact', 'per_chunk', but it is 'near'"),
    "an unknown solver": (lambda: fit(solver=Solver(method="guess")), "but it is 'guess'"),
    "a tolerance of zero": (lambda: fit(solver=Solver(tolerance=0.0)), "tolerance must be a finite number above 0, but it is 0.0"),
    "minus one thread": (lambda: fit(n_jobs=-1), "n_jobs must be at least 1, but it is -1"),
    "a seed that is a word": (lambda: fit(random_state="lucky"), "random_state must be None, a whole number not below 0, or a numpy.random.Generator, but it is 'lucky'"),
    "states whose distances overflow": (lambda: fit(data=log(states=[[0, 0], [1e200, 0], [0, 1e200]]), scaling=None), "variable 0 reaches 1e+200"),
    "asking before learning": (lambda: KBSF().predict([[0.0, 0.0]]), "This KBSF has not learnt anything yet"),
    "asking about one state as a vector": (lambda: fit().predict([0.0, 0.0]), "a single state is [[x, y]]"),
    "asking about other variables": (lambda: fit().predict([[0.0]]), "states must have 2 columns"),
    "asking about NaN": (lambda: fit().q_values([[NAN, 0.0]]), "states must be finite, but 1 of 1 rows are not"),
    "acting on NaN": (lambda: fit().act([NAN, 0.0]), "states must be finite"),
    "samples that were not kept": (lambda: fit().q_from_samples([[0.0, 0.0]]), "this model has not kept them"),
    "further data with a new action": (lambda: fit().partial_fit(log(actions=[0, 7, 0])), "must use the actions known from the first data, [0, 1], but they also have [7]"),
    "further data with other variables": (lambda: fit().partial_fit(random_log(n_dims=3)), "Transitions must have 2 state variables, but they have 3"),
    "a parameter that does not exist": (lambda: KBSF().set_params(width=1), "KBSF has no parameter width; it has n_reps"),
    "a clone of a class": (lambda: clone(KBSF), "clone needs a learner with get_params, such as KBSF(), but it got <class"),
    "a clone of nothing": (lambda: clone(None), "such as KBSF(), but it got None"),
    # finite MDPs and planning
    "planning in a learner": (lambda: solve(KBSF()), "Planning needs a FiniteMDP, such as model.mdp_ of a fitted KBSF, but it got KBSF()"),
    "planning in an array": (lambda: evaluate_policy(np.eye(2), [0, 0]), "Planning needs a FiniteMDP"),
    "rewards of one dimension": (lambda: mdp(rewards=(0.0, 1.0)), "rewards must have the shape (n_actions, n_states), but it is (2,)"),
    "probabilities of another shape": (lambda: mdp(probabilities=((1.0,),)), "probabilities must have the shape (n_actions, n_states, n_states) = (1, 2, 2)"),
    "probabilities above one": (lambda: mdp(probabilities=(((1.0, 0.5), (0.0, 1.0)),)), "must sum to at most 1, but row 0 sums to 1.5"),
    "probabilities below zero": (lambda: mdp(probabilities=(((1.5, -0.5), (0.0, 1.0)),)), "finite and not below 0"),
    "an infinite expected reward": (lambda: mdp(rewards=((0.0, INF),)), "rewards must be finite wherever an action is available"),
    "availability of another shape": (lambda: mdp(available=[[True]]), "available must have the rewards' shape (1, 2), but it is (1, 1)"),
    "an MDP with a discount of one": (lambda: mdp(discount=1.0), "discount must lie in [0, 1), but it is 1.0"),
    "a warm start of another length": (lambda: solve(mdp(), values=np.zeros(3)), "values"),
    "no iterations": (lambda: solve(mdp(), max_iterations=0), "max_iterations must be at least 1, but it is 0"),
    "factors that are not stochastic": (lambda: reduce_mdp(np.ones((2, 1)), np.full((1, 1, 2), 0.4), np.zeros(2), 0.9), "0.8"),
    "a negative alpha": (lambda: largest_rep_width(np.array([1.0, 2.0]), 1, -1.0), "alpha"),
    # tasks
    "an unknown goal": (lambda: PuddleWorld(goal="circle"), "goal must be one of 'triangle', 'square', but it is 'circle'"),
    "a negative number of transitions": (lambda: PuddleWorld().collect(-5), "n must be at least 1, but it is -5"),
    "an action beyond the last": (lambda: PuddleWorld().step([[0.5, 0.5]], [4]), "the first is row 0: 4"),
    "a state of three numbers": (lambda: PuddleWorld().step([[0.5, 0.5, 0.5]], [0]), "must have 2 columns"),
    "a state that is NaN": (lambda: PuddleWorld().step([[NAN, 0.5]], [0]), "must be finite"),
    "an unknown test set": (lambda: PuddleWorld().test_states("hard"), "but it is 'hard'"),
    "a policy that answers too little": (lambda: PuddleWorld().evaluate(lambda s: [0]), "must return one action per state, shape (13,), but the shape of the actions is (1,)"),
    # tables as people have them
    "a word among numbers": (lambda: ward(map=[70, "low", 60, 65, 70, 80]), "'map' has at least 1 faulty cell (not_a_number) beside 5 numbers; the first is row 2 (counting from 1): 'low'. Write numbers there, or leave the cells empty. If it stands for a missing value: --na \"map=low\"; if it has a unit: --suffix \"map=UNIT\"; if all are names of levels: --category map"),
    "a unit among numbers": (lambda: ward(map=[70, "60 mmHg", 60, 65, 70, 80]), "row 2 (counting from 1): '60 mmHg'. Write numbers there"),
    "marks of a column that is not there": (lambda: ward(na={"lactate": 999}), "na, suffix or fill_down name 'lactate', but the columns are"),
    "an unknown order of dates": (lambda: ward(dates="year first"), "dates must be 'day first' or 'month first', but it is 'year first'"),
    "rows to skip in words": (lambda: ward(skip="two"), "as in 2+1, at most 1000 each, but it is 'two'"),
    "the last row of no episode": (lambda: load_log({"x": [1.0, 2.0], "a": [0, 1], "r": [0, 1]}, columns={"state": "x", "action": "a", "reward": "r", "terminated": "last_row"}), "no column is named as the episode"),
    "a unit without a column": (lambda: ward(suffix="mg"), "suffix must be written as name=unit; name=unit, but it is 'mg'"),
    "a number among words": (lambda: ward(unit=["icu", "icu", 3, "icu", "ward", "icu"]), "--category unit"),
    "a state column without a value": (lambda: ward(map=[None] * 6), "'map' has no value in any of its 6 rows. Say what to do: --missing"),
    "dates in a state": (lambda: ward(map=["2024-01-01"] * 6), "'map' has dates, such as 2024-01-01. Use the time since the episode began: --elapsed 'map=1 day'"),
    "elapsed time of numbers": (lambda: ward(elapsed={"map": "1 day"}), "Elapsed time needs dates or times such as 2024-02-27 09:30, but 'map' has other values"),
    "elapsed time without a unit": (lambda: ward(map=["2024-01-01"] * 6, elapsed={"map": "7"}), "The stride is '7', but the steps in 'map' are datetimes, which need a unit"),
    "missing times": (lambda: ward(map=["2024-01-01", None, "2024-01-03", "2024-01-04", "2024-01-05", "2024-01-06"], elapsed={"map": "1 day"}), "'map' has 1 cells without a time. Carry the last one forward or drop these rows: --missing map=forward"),
    "a level outside its order": (lambda: ward(unit=["low", "mid", "low", "top", "low", "mid"], ordinal={"unit": ["low", "mid"]}), "'unit' must have the levels 'low', 'mid', but it also has 'top'. Add the levels to the stated order"),
    "an order of one level": (lambda: ward(ordinal={"unit": ["low"]}), "ordinal['unit'] must list different levels from low to high, but it is ['low']"),
    "an order with a level twice": (lambda: ward(ordinal={"unit": "low<mid<low"}), "ordinal['unit'] must list different levels from low to high, but it is 'low<mid<low'"),
    "a rule for a column outside the state": (lambda: ward(missing={"score": "median", "drug": "median"}), "The rule 'missing' must name columns of the state, 'map', 'unit', but it names 'drug'. Name a column of the state, as in --missing map="),
    "numbers as texts in a frame": (lambda: ward(map=["61", "70", "65", "80", "75", "66"]), "'map' holds 6 numbers as texts. Convert the column: frame['map'].astype(float). If they are names of levels: --category map"),
    "a median for a reward": (lambda: ward(missing={"score": "median"}), "missing['score'] must be a number, because it is about the reward, but it is 'median'"),
    "a category outside the state": (lambda: ward(category=["drug"]), "The rule 'category' must name columns of the state, 'map', 'unit', but it names 'drug'"),
    "a missing word for a number": (lambda: ward(map=[None, 1, 2, 3, 4, 5], missing={"map": "none"}), "missing['map'] must be median, forward, drop or a number, but it is 'none'"),
    "a missing level that is none": (lambda: ward(unit=[None, "icu", "icu", "ward", "icu", "ward"], missing={"unit": "day"}), "missing['unit'] must be one of the levels 'icu', 'ward', but it is 'day'"),
    "a level for a missing number": (lambda: ward(map=[None, 1, 2, 3, 4, 5], missing={"map": "level"}), "missing['map'] must be median, forward, drop or a number, as it is not a category, but it is 'level'"),
    "a rule for missing values that is true": (lambda: ward(missing={"map": True}), "A rule for missing values must be 'median', 'forward', 'drop', 'level' or a constant, but it is True"),
    "forward without episodes": (lambda: ward(missing="forward", episode=None), "can be carried forward only within an episode, but no column tells episodes apart. Name it: --episode NAME"),
    "rules in a broken text": (lambda: ward(missing="map=forward; unit"), "missing must be written as name=value; name=value, each name once, but it is 'map=forward; unit'"),
    "rules that are a number": (lambda: ward(bins=4), "bins must map names to rules, but it is 4"),
    "classes of a column that is no action": (lambda: ward(bins={"map": 4}), "The rule 'bins' must name the column of the action, 'drug', but it names 'map'. Name it: --bins drug=4"),
    "one class": (lambda: ward(bins={"drug": 1}), "bins['drug'] must be a number of classes such as 4, '0+4' to set 0 apart, or edges such as [10, 50], but it is 1"),
    "edges that fall": (lambda: ward(bins={"drug": [50, 10]}), "edges such as [10, 50], but it is [50, 10]"),
    "classes by a word": (lambda: ward(bins={"drug": "few"}), "edges such as [10, 50], but it is 'few'"),
    "classes of words": (lambda: ward(bins={"drug": 2}), "An action that is put into classes must be a number, but 'drug' is 'a' at row 1 (counting from 1). Write a number there"),
    "zero apart where all is zero": (lambda: ward(drug=[0] * 6, bins={"drug": "0+2"}), "'drug' has no number above 0, so only one class"),
    "a reward that cannot be read": (lambda: ward(reward="-0.1 * (score"), "The reward must be a column or an expression. '-0.1 * (score' cannot be read: character 14 should start ')'"),
    "a reward of an unknown column": (lambda: ward(reward="-0.1 * sofa"), "The reward, '-0.1 * sofa', reads 'sofa', but the columns are 'who', 'map', 'unit', 'drug', 'score', 'home'"),
    "a reward that is a text": (lambda: ward(reward="'high'"), "'high'\" must be a number, but it is a text"),
    "a reward of a text": (lambda: ward(reward="2 * unit + 1"), "'2 * unit + 1' has at least 6 faulty cells (not_a_number); the first is row 1 (counting from 1): 'icu' in 'unit'"),
    "an end that is a number": (lambda: ward(terminated="score + 1"), "'score + 1' must be a truth, but it is a number"),
    "an end by a single equals sign": (lambda: ward(terminated="unit = 'icu'"), "Instead of '=' write '=='"),
    "a reward that is missing": (lambda: ward(score=[1, None, 1, 1, 1, 1], reward="2 * score"), "'2 * score' has at least 1 faulty cell (missing_reward); the first is row 2 (counting from 1): nothing"),
    "a reward and what to make small": (lambda: ward(minimize="score"), "columns must have 'reward' or 'minimize', but it has both"),
    "an action allowed by another column": (lambda: ward(allowed={"a": "score > 3"}), "Where 'a' is allowed, 'score > 3', must depend on the state alone, 'map', 'unit', but it reads 'score'. Add these columns to the state"),
    "a rule for an unknown action": (lambda: ward(allowed={"c": "map > 3"}), "The rule 'allowed' must name actions, 'a', 'b', but it names 'c'. Write the labels as they are in the log"),
    "a rule that cannot be read": (lambda: ward(allowed={"a": "60 < map < 70"}), "allowed['a']: '60 < map < 70': write two comparisons joined by 'and'"),
    "a rule that is a number": (lambda: ward(allowed={"a": "map + 1"}), "allowed['a']: 'map + 1' must be a truth, but it is a number"),
    "an action missing before the last row": (lambda: ward(drug=["a", None, "b", "a", "b", "a"]), "Only the last row of an episode may have no action, but 'drug' has at least 1 faulty cell (missing_action) before it; the first is row 2 (counting from 1)"),
    "one step with episodes that go on": (lambda: ward(one_step=True), "With one_step, every row ends its episode, but 'home' has the role 'terminated'. Leave out --one-step"),
    "columns for transitions": (lambda: KBSF().fit(log(), columns={"state": "x"}), "columns name those of a frame or a file, but the log is Transitions. Leave them out"),
    "asking about a row without a value": (lambda: KBSF(n_reps=2, min_cases=1).fit(ward()).q_values({"map": [NAN], "unit": ["icu"]}), "the first is row 0: map is missing, which it never was in the log of the model"),
    "asking about a frame that lacks a column": (lambda: KBSF(n_reps=2, min_cases=1).fit(ward()).predict({"map": [60.0]}), "The states must have the variables that the model was fitted to"),
    "asking about a column that nobody knows": (lambda: KBSF(n_reps=2, min_cases=1).fit(ward()).predict({"map": [60.0], "unit": ["icu"], "wbc": [3]}), "which the model does not know"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bad_input_gets_a_clear_error(case):
    call, message = CASES[case]
    with pytest.raises((ValueError, TypeError, NotFittedError), match=re.escape(message)):
        call()


def test_there_are_at_least_forty_cases():
    assert len(CASES) >= 40
