"""Logs of people at work, and the table of what deferring to them costs and saves."""

from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest

from experiments import deferral
from experiments.behaviour_logs import PEOPLE, CartPole, Pendulum, gains_of_a_change
from experiments.deferral import draw, jobs, table_of_decisions, table_of_values


def test_carts_move_as_gymnasium_moves_them():
    env = gymnasium.make("CartPole-v1").unwrapped
    rng = np.random.default_rng(0)
    for action in (0, 1):
        state = rng.uniform(-0.2, 0.2, 4)
        env.reset(seed=0)
        env.state = tuple(state)
        expected, reward, ends, _, _ = env.step(action)
        moved, rewards, falls = CartPole().step([state], [action])
        np.testing.assert_allclose(moved[0], expected, rtol=1e-5)
        assert (rewards[0], falls[0]) == (reward, ends)


def test_pendulums_swing_as_gymnasium_swings_them():
    env = gymnasium.make("Pendulum-v1").unwrapped
    rng = np.random.default_rng(0)
    for action, torque in ((0, -2.0), (1, 0.0), (2, 2.0)):
        state = rng.uniform([-3, -2], [3, 2])
        env.reset(seed=0)
        env.state = state.copy()
        expected, reward, _, _, _ = env.step([torque])
        moved, rewards, _ = Pendulum().step([state], [action])
        np.testing.assert_allclose(Pendulum().observe(moved)[0], expected, atol=1e-5)
        assert rewards[0] == pytest.approx(reward)
        np.testing.assert_allclose(np.sin(Pendulum().restore(Pendulum().observe(moved))), np.sin(moved))


def test_people_follow_their_habit_as_often_as_they_should():
    people = PEOPLE["cartpole narrow"]
    log = people.log(200, 0)
    share = (log.action_indices == people.habit(log.states)).mean()
    assert share == pytest.approx(1 - 0.3 / 2, abs=0.01)  # half of the random actions are the habit's
    assert people.value(lambda seen: np.array(["as now"] * len(seen)), 50, 3) == people.value(None, 50, 3)


def test_gains_of_a_change_average_out_over_current_practice():
    people = PEOPLE["cartpole narrow"]
    seen = people.log(5, 1).states[:6]
    gains, errors = gains_of_a_change(people, seen, 50, 0)
    shares = np.full(gains.shape, 0.15)
    shares[np.arange(6), people.habit(seen)] += 0.7
    np.testing.assert_allclose((shares * gains).sum(axis=1), 0.0, atol=1e-9)
    assert (errors > 0).all()


def test_tables_and_picture_are_made_of_rows():
    values = {"plain": 1.0, "caution only": 2.0, "cases only": 3.0, "deferring": 4.0, "now": 2.0}
    rows = [
        {"part": "values", "people": "puddle wide", "episodes": 10, "log": k} | values | {"plain": float(k)}
        for k in range(11)
    ]
    counts = {"right": 3, "wrong": 1, "all": 5}
    rows += [{"part": "decisions", "policy": "deferring", "support": 3.0, "people": "puddle wide"} | counts] * 2
    line = next(line for line in table_of_values(rows) if "puddle wide" in line)
    assert line == "| puddle wide | 10 | 11 | 2.00 | 5.00 (1.00) | 2.00 (2.00) | 3.00 (3.00) | 4.00 (4.00) |"
    assert "| 3 to 10 | none | 10, 60 %, 20 % |" in table_of_decisions(rows)
    assert draw(rows).axes
    assert len(jobs("laptop")) == 24


def test_decisions_are_judged_by_the_names_of_actions_whatever_their_order(monkeypatch):
    people = PEOPLE["pendulum narrow"]
    names = np.array(sorted(people.task.actions))  # as a file has them
    gains = {"back": -1.0, "none": 0.0, "forth": 1.0}

    class Forth:
        action_labels_ = names

        def q_values(self, states):
            return np.tile((names == "forth") * 1.0, (len(states), 1))

        def deferring(self):
            return self

        def deferred(self, states):
            return np.zeros(len(states), dtype=bool)

    def found(_, states, *__):
        return np.tile([gains[name] for name in people.task.actions], (len(states), 1)), np.full((len(states), 3), 0.1)

    monkeypatch.setattr(deferral, "gains_of_a_change", found)
    monkeypatch.setattr(deferral, "coverage", lambda _, states: SimpleNamespace(support=np.full((len(states), 3), 5.0)))
    rows = list(deferral.decisions(Forth(), people, {"people": "pendulum narrow", "episodes": 10}, 0))
    for name in ("plain", "deferring"):
        (row,) = [row for row in rows if row["policy"] == name and row["all"]]
        assert (row["support"], row["right"], row["wrong"]) == (3.0, row["all"], 0)
