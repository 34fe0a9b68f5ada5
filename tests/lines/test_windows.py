"""Windows: what follows an action over many steps, in the same sums, with slopes that actions share."""

import runpy

import numpy as np
import pytest

from kbrl import KBSF, Plan, Transitions, explain, load_model, save_model
from kbrl.choosing.rehearsal import choose_by_rehearsal
from kbrl.choosing.window_choice import best_window
from kbrl.insight.residual_bound import residual_bound
from kbrl.lines.windows import Windows, complete_windows, window_lines, windows_at
from kbrl.model.model import first_model
from kbrl.serving.export import export_policy
from kbrl.settings import checked
from kbrl.storage.older_formats import upgraded
from kbrl.storage.sealed_file import Contents
from naive_lines import nearest


def walks(n_episodes=12, seed=0, n_actions=2, n_dims=2, offset=0.0, scale=1.0):
    """Return random walks of 1 to 12 steps, some of which end, some of which are cut."""
    rng = np.random.default_rng(seed)
    parts = []
    for episode in range(n_episodes):
        n = int(rng.integers(1, 13))
        path = offset + scale * np.cumsum(rng.normal(size=(n + 1, n_dims)), axis=0)
        ends = np.arange(n) == (n - 1 if rng.random() < 0.5 else -1)
        parts.append((path[:-1], rng.integers(n_actions, size=n), rng.normal(size=n), path[1:], ends, [episode] * n))
    return Transitions(*(np.concatenate(part) for part in zip(*parts)), action_labels=np.arange(n_actions))


def naive_windows(log, length, discount):
    """Return (row, rewards, next state, end) of each complete window, by walking along the log."""
    found = []
    for row in range(len(log)):
        total, at = 0.0, row
        for ahead in range(length):
            total += discount**ahead * log.rewards[at]
            if log.terminals[at] or ahead == length - 1:
                found.append((row, total, log.next_states[at], log.terminals[at]))
                break
            if at + 1 == len(log) or log.episodes[at + 1] != log.episodes[at]:
                break  # cut: nobody knows what would have come
            at += 1
    return found


@pytest.mark.parametrize("length", [1, 3, 7])
def test_windows_are_those_of_a_walk_along_the_log(length):
    log = walks()
    expected = naive_windows(log, length, 0.9)
    found = windows_at(log, complete_windows(log, length), length, 0.9)
    assert complete_windows(log, length).tolist() == [row for row, *_ in expected]
    np.testing.assert_allclose(found.rewards, [total for _, total, *_ in expected], atol=1e-12)
    np.testing.assert_array_equal(found.next_states, [state for *_, state, _ in expected])
    assert found.terminals.tolist() == [bool(end) for *_, end in expected]
    np.testing.assert_array_equal(found.actions, log.actions[[row for row, *_ in expected]])


def test_a_row_follows_only_if_it_starts_where_the_one_before_it_ended():
    states = np.array([[0.0], [1.0], [5.0], [6.0]])
    log = Transitions(states, [0, 0, 0, 0], [1.0, 1.0, 1.0, 1.0], states + 1.0)  # from 2 to 5 is a gap
    assert complete_windows(log, 2).tolist() == [0, 2]


@pytest.mark.parametrize("size", [1, 2, 5, 30])
def test_chunks_make_the_windows_of_the_whole_log(size):
    log, windows = walks(), Windows(4, 0.9)
    found = [each for chunk in log.chunks(size) if (each := windows.of(chunk)) is not None]
    whole = Windows(4, 0.9).of(log)
    np.testing.assert_array_equal(np.concatenate([each.rewards for each in found]), whole.rewards)
    np.testing.assert_array_equal(np.concatenate([each.next_states for each in found]), whole.next_states)


def learner(window=3, **more):
    options = {
        "order": 1,
        "n_reps": 6,
        "reps": "k-means",
        "discount": 0.9,
        "random_state": 0,
        "min_cases": 1,
        "n_jobs": 1,
    }
    return KBSF(**options | more, plan=Plan(window=window))


def test_lines_of_windows_are_weighted_least_squares_with_a_level_per_action():
    log = walks(60)
    model = learner().fit(log).model_
    found = window_lines(model.sums, 3, n_cases=60, ridge=0.0)
    cases = model.cases(model.prepared(log))
    states, reps = model.scaled(cases.states), found.reps
    moves = model.scaled(cases.next_states) - states
    cells = np.array([nearest(state, reps) for state in states])
    for rep in range(len(reps)):
        weights = _weights(cells, np.linalg.norm(reps - reps[rep], axis=1), 60)
        level = (cases.action_indices[:, None] == np.arange(2)) * 1.0
        for rows, targets, place in (
            (~cases.terminals, moves, slice(0, 2)),
            (np.ones(len(cases), dtype=bool), np.column_stack([cases.rewards, cases.terminals]), slice(2, 4)),
        ):
            root = np.sqrt(weights[rows])[:, None]
            design = np.column_stack([level, states - reps[rep]])[rows]
            expected = np.linalg.lstsq(root * design, root * targets[rows], rcond=None)[0]
            for action in range(2):
                np.testing.assert_allclose(found.lines[action, rep, place, 0], expected[action], atol=1e-8)
                np.testing.assert_allclose(found.lines[action, rep, place, 1:], expected[2:].T, atol=1e-8)


def _weights(cells, distances, n_cases):
    order = np.argsort(distances, kind="stable")
    n_used = int((np.cumsum([(cells == j).sum() for j in order]) < n_cases).sum()) + 1
    reach = distances[order[n_used]] if n_used < len(order) else 1.001 * distances[order[-1]]
    weights = np.zeros(len(cells))
    for j in order[:n_used]:
        weights[cells == j] = 1 - (distances[j] / reach) ** 2
    return weights


def test_an_effect_that_comes_after_the_window_began_is_learnt_exactly():
    rng = np.random.default_rng(1)
    parts = []
    for episode in range(80):  # nothing happens for three steps; the fourth moves by what was done in the first
        start, first = rng.normal(size=2), int(rng.integers(2))
        path = np.vstack(
            [start + 1e-3 * k for k in range(4)] + [start + [2.0 * first - 1.0, 0.5] @ np.eye(2) + 0.1 * start]
        )
        parts.append((path[:-1], [first, 0, 0, 0], [0.0, 0.0, 0.0, 3.0 * first + start[0]], path[1:], [episode] * 4))
    states, actions, rewards, following, episodes = (np.concatenate(part) for part in zip(*parts))
    log = Transitions(states, actions, rewards, following, episodes=episodes)
    model = learner(window=4, scaling=None).fit(log).model_
    for action in range(2):
        for rep, line in zip(model.reps, model.lines.lines[action]):
            np.testing.assert_allclose(line[:2, 0], [2.0 * action - 1.0, 0.5] + 0.1 * rep, atol=1e-8)
            np.testing.assert_allclose(line[2, 0], 0.9**3 * (3.0 * action + rep[0]), atol=1e-8)


def test_models_of_windows_add_up_and_forget_whole_episodes():
    log = walks(40)
    first, second = log[log.episodes < 20], log[log.episodes >= 20]
    empty = first_model(checked(learner(), min_cases=1), log)
    whole, part = empty.extend(log), empty.extend(first)
    np.testing.assert_allclose((part + empty.extend(second)).sums.moves, whole.sums.moves, atol=1e-9)
    np.testing.assert_allclose((whole - second).sums.outcomes, part.sums.outcomes, atol=1e-9)
    with pytest.raises(ValueError, match="plan_window"):
        part + first_model(checked(learner(window=5), min_cases=1), log).extend(second)


def test_a_shift_and_a_rescaling_change_no_value():
    plain, moved = learner().fit(walks(40)).model_, learner().fit(walks(40, offset=7.0, scale=3.0)).model_
    states = walks(40).states
    np.testing.assert_allclose(plain.q_values(states), moved.q_values(7.0 + 3.0 * states), rtol=1e-6, atol=1e-8)


def test_values_are_discounted_by_the_length_of_the_window():
    path = np.zeros((41, 1))
    log = Transitions(path[:-1], [0, 1] * 20, np.ones(40), path[1:], episodes=np.zeros(40))
    model = learner(window=4, n_reps=1).fit(log).model_
    np.testing.assert_allclose(model.q_values([[0.0]]), 10.0, rtol=1e-6)  # 1 for ever, at a discount of 0.9


def test_a_file_and_an_exported_policy_answer_as_the_model(tmp_path):
    log = walks(60)
    model = learner().fit(log).model_
    save_model(model, tmp_path / "model.kbrl")
    np.testing.assert_array_equal(load_model(tmp_path / "model.kbrl").q_values(log.states), model.q_values(log.states))
    export_policy(model, tmp_path / "policy.py")
    decide = runpy.run_path(str(tmp_path / "policy.py"))["decide"]
    assert [decide(each)["action"] for each in log.states[:20].tolist()] == model.predict(log.states[:20]).tolist()


def test_what_windows_cannot_do_is_refused_with_a_way_out():
    log = walks(40)
    model = learner().fit(log).model_
    with pytest.raises(ValueError, match="needs order=1"):
        KBSF(plan=Plan(window=3)).fit(log)
    with pytest.raises(ValueError, match="one decision"):
        KBSF(order=1, plan=Plan(window=3, decisions=2)).fit(log)
    with pytest.raises(ValueError, match="whole episodes"):
        learner(window=50).fit(log.replaced(terminals=np.zeros(len(log), dtype=bool)))
    with pytest.raises(ValueError, match="durations"):
        learner().fit(log.replaced(durations=np.ones(len(log))))
    with pytest.raises(ValueError, match="--plan-window"):
        explain(model, log.states[0], log=log)
    with pytest.raises(ValueError, match="--plan-window"):
        residual_bound(model, walks(40, seed=5).replaced(episodes=100 + walks(40, seed=5).episodes))


def lagged(n_episodes, lag, seed):
    """Return a log where an action moves the state after some steps, by what was ordered then; the state hides it."""
    rng = np.random.default_rng(seed)
    parts = []
    for episode in range(n_episodes):
        actions, noise = rng.integers(2, size=60), 0.3 * rng.normal(size=60)
        path = np.zeros(61)
        for step in range(60):
            path[step + 1] = 0.9 * path[step] + (actions[step - lag] - 0.5 if step >= lag else 0.0) + noise[step]
        parts.append((path[:-1, None], actions, -(path[1:] ** 2), path[1:, None], [f"{seed} {episode}"] * 60))
    states, actions, rewards, following, episodes = (np.concatenate(part) for part in zip(*parts))
    return Transitions(states, actions, rewards, following, episodes=episodes)


@pytest.mark.parametrize(("lag", "is_chosen"), [(6, True), (0, False)])
def test_windows_are_chosen_where_effects_are_delayed_and_only_there(lag, is_chosen):
    learnt, held = lagged(30, lag, 1), lagged(30, lag, 2)
    base = KBSF(order=1, n_reps=60, reps="spread", discount=0.95, random_state=0, n_jobs=1, min_cases=5)
    found = best_window(learnt, held, base.fit(learnt).model_, base)
    assert (found is not None) == is_chosen
    if found is not None:
        assert found.direct < found.composed - found.chance
        assert found.candidate.settings["plan"].window == found.length


def test_a_fit_that_chooses_windows_says_that_it_did_not_rehearse_and_why():
    learner = KBSF(reps="spread", discount=0.8, random_state=0, n_jobs=1, min_cases=5)
    found = choose_by_rehearsal(lagged(24, 4, 3), learner, orders=(1,), may_ignore=False)
    assert found.chosen.settings["plan"].window is not None
    assert not found.is_believed
    assert "predict held-out episodes better" in found.flags[0]
    assert any("lack something" in flag for flag in found.flags)


def test_a_file_from_before_windows_has_none():
    facts = {"settings": {"order": 1}}
    assert upgraded(Contents(facts, {}, 2)).facts["settings"] == {"order": 1, "plan_window": None}
