"""Plans: rolled out one by one in slow loops, as the MDP that they make, and as one-step backups."""

from dataclasses import replace

import numpy as np
import pytest

from kbrl import Transitions, solve
from kbrl.data.scaling import Coordinates
from kbrl.lines import plan_loops, step_loops
from kbrl.lines.circles import find_circles
from kbrl.lines.local_lines import local_lines
from kbrl.lines.moments import LineSums
from kbrl.lines.plans import PlanQ, Plans, plan_length, world_of
from kbrl.lines.stage import predicted
from kbrl.lines.step_loops import BLENDED, act_as_people
from kbrl.lines.surface import surface_of
from kbrl.mdp.dynamic_programming import backup
from kbrl.model.kernels import Basis, Kernel
from naive_lines import blend, nearest, plans_from
from samples import random_log

DISCOUNT = 0.9


def smooth_log(n=600, seed=0, ending=0.05):
    """Return a log in which states move a little, so that plans stay near the data."""
    log = random_log(n, n_dims=2, n_actions=2, seed=seed, ending=ending)
    rng = np.random.default_rng(seed)
    step = 0.1 * np.where(log.action_indices[:, None] == 0, 1.0, -1.0) * np.cos(3 * log.states)
    next_states = np.clip(log.states + step + 0.01 * rng.normal(size=log.states.shape), 0, 1)
    return log.replaced(next_states=next_states)


def world_and_lines(log, n_reps=25, **more):
    reps = log.states[np.random.default_rng(1).permutation(len(log))[:n_reps]]
    discount = None if log.durations is None else DISCOUNT
    basis = Basis(reps, Coordinates.plain(log.n_dims), Kernel(), Kernel(), log.n_actions, discount=discount)
    lines = local_lines(LineSums(basis).accumulate(log))
    return world_of(lines, **more), lines


def plans_of(world, n_decisions, n_held, discount=0.9, **more):
    n_actions = len(world.known)
    return Plans(world, np.arange(n_actions), n_actions, n_decisions, n_held, discount, **more)


@pytest.mark.parametrize(("n_decisions", "n_held"), [(1, 1), (2, 3), (3, 2)])
def test_the_plan_mdp_is_that_of_plans_rolled_out_one_by_one(n_decisions, n_held):
    world, _ = world_and_lines(smooth_log())
    mdp = plans_of(world, n_decisions, n_held).mdp()
    assert mdp.discount == pytest.approx(0.9 ** (n_decisions * n_held), rel=1e-15)
    matrix = mdp.stacked.toarray().reshape(mdp.n_actions, 25, 25)
    for i in range(0, 25, 4):
        found = plans_from(world.reps[i], [0, 1], n_decisions, n_held, 0.9, world, BLENDED)
        for plan, (_, reward, alive, end, known) in enumerate(found):
            assert known
            assert mdp.rewards[plan, i] == pytest.approx(reward, abs=1e-12)
            places, weights = blend(end, world.graph[nearest(end, world.reps)], world.reps, 10)
            row = np.zeros(25)
            row[places] = alive * weights
            np.testing.assert_allclose(matrix[plan, i], row, atol=1e-12)


@pytest.mark.parametrize(("n_decisions", "n_held"), [(1, 1), (2, 3)])
def test_with_durations_each_step_of_a_plan_fades_by_its_own_length(n_decisions, n_held):
    log = smooth_log()
    durations = 0.2 + 2 * log.states[:, 0] + np.random.default_rng(3).gamma(1.0, 0.2, len(log))
    world, _ = world_and_lines(log.replaced(durations=durations))
    mdp = plans_of(world, n_decisions, n_held, discount=1.0).mdp()
    matrix = mdp.discount * mdp.stacked.toarray().reshape(mdp.n_actions, 25, 25)
    for i in range(0, 25, 4):
        found = plans_from(world.reps[i], [0, 1], n_decisions, n_held, 1.0, world, BLENDED)
        for plan, (_, reward, alive, end, _) in enumerate(found):
            assert mdp.rewards[plan, i] == pytest.approx(reward, abs=1e-12)
            places, weights = blend(end, world.graph[nearest(end, world.reps)], world.reps, 10)
            row = np.zeros(25)
            row[places] = alive * weights
            np.testing.assert_allclose(matrix[plan, i], row, atol=1e-12)
    values = np.random.default_rng(0).normal(size=25)
    q = PlanQ(plans_of(world, n_decisions, n_held, discount=1.0), values)(world.reps)
    np.testing.assert_allclose(q.max(axis=1), (mdp.rewards + matrix @ values).max(axis=0), atol=1e-12)


def test_rows_of_the_plan_mdp_sum_to_the_probability_of_going_on():
    for spread in (False, True):
        world, _ = world_and_lines(smooth_log(ending=0.3), is_spread=spread)
        sums = np.asarray(plans_of(world, 2, 2, is_spread=spread).mdp().stacked.sum(axis=1))
        assert sums.min() >= 0
        assert sums.max() <= 1 + 1e-12
        assert sums.max() < 0.9  # four steps, each ending in three of ten


def test_looking_ahead_is_the_best_plan_by_a_slow_loop():
    log = smooth_log()
    world, _ = world_and_lines(log)
    plans = plans_of(world, 2, 2)
    values = np.random.default_rng(0).normal(size=25)
    q, best = PlanQ(plans, values).best(log.states[:20])
    for state, row, chosen in zip(log.states[:20], q, best):
        expected, which = np.full(2, -np.inf), [-1, -1]
        found = plans_from(state, [0, 1], 2, 2, 0.9, world, BLENDED)
        for number, (plan, reward, alive, end, _) in enumerate(found):
            places, weights = blend(end, world.graph[nearest(end, world.reps)], world.reps, 10)
            value = reward + 0.9**4 * alive * (weights @ values[places])
            if value > expected[plan[0]]:
                expected[plan[0]], which[plan[0]] = value, number
        np.testing.assert_allclose(row, expected, atol=1e-12)
        assert chosen.tolist() == which
        assert plans.decisions(which[0])[0] == 0


def test_plans_of_one_step_look_ahead_as_a_one_step_backup_does():
    world, _ = world_and_lines(smooth_log())
    plans = plans_of(world, 1, 1)
    mdp = plans.mdp()
    values = solve(mdp).values
    np.testing.assert_allclose(PlanQ(plans, values)(world.reps), backup(mdp, values), atol=1e-12)
    np.testing.assert_allclose(plans.rep_q(solve(mdp).q), backup(mdp, values), atol=1e-6)


def test_holding_a_decision_is_a_longer_plan_of_the_same_decisions():
    world, _ = world_and_lines(smooth_log())
    values = np.random.default_rng(1).normal(size=25)
    states = world.reps[:5] + 0.01
    held = PlanQ(plans_of(world, 1, 3), values)(states)
    free = PlanQ(plans_of(world, 3, 1), values)(states)
    assert (free >= held - 1e-12).all()  # a free plan can do what a held one does


def test_a_constant_reward_is_worth_its_discounted_sum():
    states = np.random.default_rng(0).uniform(size=(500, 2))
    log = Transitions(states, np.arange(500) % 2, np.ones(500), states[::-1])
    world, _ = world_and_lines(log)
    solution = solve(plans_of(world, 2, 3).mdp())
    np.testing.assert_allclose(solution.values, 10.0, rtol=1e-6)  # 1 / (1 - 0.9)


def test_rewards_beyond_those_seen_are_not_promised():
    rng = np.random.default_rng(2)
    states = rng.uniform(size=(400, 1))
    log = Transitions(states, np.zeros(400, dtype=int), 10.0 * states[:, 0], np.minimum(states + 0.2, 1.0))
    world, _ = world_and_lines(log, n_reps=8)
    mdp = plans_of(world, 1, 8, discount=0.5).mdp()
    assert mdp.rewards.max() <= 10.0 * 2  # the sum of 10 * 0.5^t


def test_a_plan_that_ends_far_from_the_data_is_refused_unless_all_do():
    states = np.random.default_rng(3).uniform(size=(400, 1))
    actions = np.arange(400) % 2
    next_states = np.where(actions[:, None] == 0, states, states + 1.5)  # action 1 leaves the data
    log = Transitions(states, actions, actions.astype(float), next_states)
    lines = world_and_lines(log, n_reps=10)[1]
    free = plans_of(world_of(lines), 1, 1).mdp()
    careful = plans_of(world_of(lines, inside=2.0), 1, 1).mdp()
    assert free.available.all()
    assert careful.available[0].all()
    assert not careful.available[1].any()
    both = log.replaced(next_states=states + 1.5)
    never = plans_of(world_of(world_and_lines(both, n_reps=10)[1], inside=2.0), 1, 1).mdp()
    assert never.available.all()


def test_unusual_first_decisions_are_refused_where_others_are_offered():
    lines = world_and_lines(smooth_log())[1]
    behaviour = np.zeros((2, 25, 3))
    behaviour[0, :, 0], behaviour[1, :, 0] = 0.5 - (lines.reps[:, 0] - 0.5), 0.5 + (lines.reps[:, 0] - 0.5)
    behaviour[0, :, 1], behaviour[1, :, 1] = -1.0, 1.0  # action 1 is as frequent as the first variable is large
    mdp = plans_of(world_of(replace(lines, behaviour=behaviour), usual=0.5), 2, 1).mdp()
    shares = lines.reps[:, 0]
    np.testing.assert_array_equal(mdp.available[0], 1 - shares >= 0.5 * shares)
    np.testing.assert_array_equal(mdp.available[2], shares >= 0.5 * (1 - shares))
    assert plans_of(world_of(lines), 2, 1).mdp().available.all()


def test_noise_spreads_successors_over_points_with_its_mean_and_covariance():
    rng = np.random.default_rng(4)
    states = rng.uniform(-1, 1, size=(5000, 1))
    log = Transitions(states, np.zeros(5000, dtype=int), np.zeros(5000), 0.3 * rng.normal(size=(5000, 1)))
    reps = np.linspace(-3, 3, 201)[:, None]
    basis = Basis(reps, Coordinates.plain(1), Kernel(), Kernel(), 1)
    lines = local_lines(LineSums(basis).accumulate(log), n_cases=3000)
    world = world_of(lines, is_spread=True)._replace(known=np.ones((1, 201), dtype=bool))
    mdp = plans_of(world, 1, 1, is_spread=True).mdp()
    row = mdp.stacked.toarray()[100]  # from 0
    assert row @ reps[:, 0] == pytest.approx(0.0, abs=0.02)
    assert np.sqrt(row @ reps[:, 0] ** 2) == pytest.approx(0.3, abs=0.03)


def test_predicted_states_stay_on_the_circle_that_the_data_lie_on():
    rng = np.random.default_rng(5)
    angles = rng.uniform(-np.pi, np.pi, size=2000)
    turned = angles + 0.3
    states, next_states = (np.column_stack([np.cos(a), np.sin(a)]) for a in (angles, turned))
    log = Transitions(states, np.zeros(2000, dtype=int), np.zeros(2000), next_states)
    circles = find_circles(states, Coordinates.plain(2))
    assert circles.places.tolist() == [[0, 1]]
    world, _ = world_and_lines(log, n_reps=12, surface=surface_of(Coordinates.plain(2), circles))
    start = np.array([[1.0, 0.0]])
    (end,) = plans_of(world, 1, 10).ends(start, world.cells(start)).states[0]
    assert np.hypot(*end) == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_allclose(end, [np.cos(3.0), np.sin(3.0)], atol=0.05)


def test_pairs_of_a_few_values_are_not_taken_for_circles():
    rng = np.random.default_rng(6)
    flags = rng.integers(2, size=(500, 2)).astype(float)
    line = rng.uniform(size=(500, 1)) @ np.array([[1.0, 2.0]])
    states = np.column_stack([flags, line, rng.normal(size=500)])
    assert len(find_circles(states, Coordinates.plain(5)).places) == 0


@pytest.mark.parametrize(("n_actions", "length"), [(2, (3, 4)), (4, (3, 4)), (5, (2, 4)), (8, (2, 4)), (9, (1, 1))])
def test_plans_are_shorter_the_more_actions_there_are(n_actions, length):
    assert plan_length(n_actions) == length


def test_every_loop_is_compiled_for_one_kind_of_arrays_however_it_is_used():
    log = smooth_log()
    timed = log.replaced(durations=np.random.default_rng(0).uniform(0.5, 2.0, len(log)))
    for one, discount in ((log, 0.9), (timed, 1)):
        for spread in (False, True):
            world, lines = world_and_lines(one, is_spread=spread)
            usual = world_of(lines, is_spread=spread, usual=0.3, inside=2.0)
            for there in (world, usual):
                plans = plans_of(
                    there, 2, 2, discount=discount, is_spread=spread, allowed=lambda s: s[:, :1] > [0.3, 0.0]
                )
                plans.mdp()
                PlanQ(plans, np.zeros(25))(log.states[::-1][:5])
            act_as_people(log.states[::2], usual.cells(log.states[::2]), np.full(300, 0.5), usual)
            predicted(log.states, log.action_indices, world)
    for loops in (plan_loops, step_loops):
        for name, loop in vars(loops).items():
            assert len(getattr(loop, "signatures", [])) <= 1, name
