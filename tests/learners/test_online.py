"""Learning while acting: Algorithm 3, on tasks and on Gymnasium environments."""

import os
import signal

import gymnasium
import numpy as np
import pytest

from kbrl import KBRL, KBSF, Committee, Solver, load_log
from kbrl.learners.exploration import Epsilon, Optimism, optimistic
from kbrl.learners.online import OnlineAgent, OnlineRun
from kbrl.mdp.finite_mdp import FiniteMDP
from kbrl.tasks import PuddleWorld, from_gymnasium
from samples import random_log

GRID = np.stack(np.meshgrid(np.linspace(0, 1, 10), np.linspace(0, 1, 10)), axis=-1).reshape(-1, 2)


class Spy:
    """A learner that only remembers what it was given."""

    discount = 0.5

    def __init__(self):
        self.chunks = []

    def partial_fit(self, log):
        self.chunks.append(log)


def agent_of(learner=None, **settings):
    learner = KBSF(reps=GRID, random_state=0) if learner is None else learner
    return OnlineAgent(learner, 4, **({"model_interval": 500, "exploration": 1.0, "random_state": 0} | settings))


@pytest.mark.parametrize("interval", [1000, 2000, 4000])
def test_the_interval_of_updates_does_not_change_the_final_model(interval):
    def final(model_interval):
        agent = agent_of(KBSF(reps=GRID, scaling=None, solver=Solver(tolerance=1e-12)), model_interval=model_interval)
        OnlineRun(agent, PuddleWorld(), random_state=1).steps(4000)
        return agent.learner

    one, batch = final(interval), final(4000)
    np.testing.assert_allclose(one.mdp_.stacked, batch.mdp_.stacked, rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(one.rep_q_, batch.rep_q_, rtol=1e-8)


def test_transitions_that_come_in_groups_of_any_size_are_all_gathered():
    spy, rng = Spy(), np.random.default_rng(0)
    agent = agent_of(spy, model_interval=200)
    groups = [1, 50, 2, 100, 47]
    states = rng.random((200, 2))
    for group in np.split(states, np.cumsum(groups)[:-1]):
        agent.observe_all(group, np.zeros(len(group), dtype=int), group[:, 0], group + 1, group[:, 0] < 0.5)
    (chunk,) = spy.chunks
    np.testing.assert_array_equal(chunk.states, states)
    np.testing.assert_array_equal(chunk.next_states, states + 1)
    np.testing.assert_array_equal(chunk.rewards, states[:, 0])
    np.testing.assert_array_equal(chunk.terminals, states[:, 0] < 0.5)


def test_a_group_that_is_refused_leaves_no_trace():
    spy = Spy()
    agent = agent_of(spy, model_interval=3)
    row = np.array([[0.5, 0.5]])
    agent.observe_all(row, [0], [1.0], row, [False])
    rows = np.repeat(row, 2, axis=0)
    for refused in (
        (rows, [0, 0], [2.0, 3.0, 4.0], rows, [False] * 2),
        (rows, [0, 0], [2.0], rows, [False] * 2),  # not one reward for both
        (rows, [0, 0], [2.0, 3.0], row, [False] * 2),
        (rows, [0, 0], [2.0, 3.0], rows, [False]),
        (rows, [0], [2.0, 3.0], rows, [False] * 2),
        (rows, [[0], [0]], [2.0, 3.0], rows, [False] * 2),
        (rows, np.array([0, None], dtype=object), [2.0, 3.0], rows, [False] * 2),
    ):
        with pytest.raises(ValueError, match=r"must have one (row per transition|dimension)|actions must be among"):
            agent.observe_all(*refused)
    for reward in (5.0, 6.0):
        agent.observe_all(row, [0], [reward], row, [False])
    assert spy.chunks[0].rewards.tolist() == [1.0, 5.0, 6.0]


def test_transitions_are_those_that_happened_and_are_discarded_after_use():
    spy = Spy()
    run = OnlineRun(agent_of(spy, model_interval=100), PuddleWorld(noise=False), random_state=0)
    run.steps(1000)
    assert [len(chunk) for chunk in spy.chunks] == [100] * 10
    assert run.agent._pending.n_rows == 0
    task = PuddleWorld(noise=False)
    for chunk in spy.chunks:
        next_states, rewards, terminals = task.step(chunk.states, chunk.action_indices)
        np.testing.assert_array_equal(chunk.next_states, next_states)
        np.testing.assert_array_equal(chunk.rewards, rewards)
        np.testing.assert_array_equal(chunk.terminals, terminals)


def test_the_record_has_the_discounted_return_and_the_length_of_every_episode():
    spy = Spy()
    run = OnlineRun(agent_of(spy, model_interval=5000), PuddleWorld(), random_state=3)
    record = run.steps(5000)
    log = spy.chunks[0]
    start = 0
    for length, value, ended_at in zip(record.lengths, record.returns, record.ended_at):
        rewards = log.rewards[start : start + length]
        assert value == pytest.approx(sum(0.5**t * r for t, r in enumerate(rewards)))
        start += length
        assert ended_at == start
    assert max(record.lengths) <= 300
    assert record.updated_at == [5000]


def make_env(**kwargs):
    return gymnasium.make("kbrl/PuddleWorld-v0", **kwargs)


@pytest.mark.parametrize("mode", ["NEXT_STEP", "SAME_STEP"])
def test_vector_environments_give_no_transition_across_a_reset(mode):
    from gymnasium.vector import AutoresetMode, SyncVectorEnv

    envs = SyncVectorEnv([lambda: make_env(max_steps=7, noise=False)] * 3, autoreset_mode=AutoresetMode[mode])
    spy = Spy()
    OnlineRun(agent_of(spy, model_interval=200), envs, random_state=0).steps(400)
    task = PuddleWorld(noise=False)
    for chunk in spy.chunks:
        np.testing.assert_array_equal(chunk.next_states, task.step(chunk.states, chunk.action_indices)[0])


def test_one_environment_gives_no_transition_across_a_reset():
    spy = Spy()
    record = OnlineRun(agent_of(spy, model_interval=50), make_env(max_steps=7, noise=False), random_state=0).steps(100)
    task = PuddleWorld(noise=False)
    for chunk in spy.chunks:
        np.testing.assert_array_equal(chunk.next_states, task.step(chunk.states, chunk.action_indices)[0])
    assert set(record.lengths) <= set(range(1, 8))


class Shown(gymnasium.Env):
    """An environment that shows points of a space, keeps them, and pays for its last action."""

    def __init__(self, space, actions=None):
        self.observation_space, self.shown = space, []
        self.action_space = gymnasium.spaces.Discrete(2) if actions is None else actions

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.shown.append(self.observation_space.sample())
        return self.shown[-1], {}

    def step(self, action):
        self.shown.append(self.observation_space.sample())
        return self.shown[-1], float(action == self.action_space.start + 1), False, False, {}


spaces = gymnasium.spaces
SHOWN = [
    spaces.Discrete(5, start=1),
    spaces.MultiDiscrete([2, 3]),
    spaces.Box(0, 255, (2, 2, 3), np.uint8),
    spaces.Dict({"door": spaces.Discrete(3), "at": spaces.Box(-1, 1, (2,))}),
    spaces.Tuple((spaces.Discrete(2), spaces.MultiBinary(2))),
]


@pytest.mark.parametrize("space", SHOWN, ids=str)
@pytest.mark.parametrize("n_envs", [0, 2])
def test_observations_of_every_kind_are_seen_as_gymnasium_flattens_them(space, n_envs):
    spy, envs = Spy(), [Shown(space) for _ in range(max(1, n_envs))]
    whole = gymnasium.vector.SyncVectorEnv([lambda env=env: env for env in envs]) if n_envs else envs[0]
    OnlineRun(OnlineAgent(spy, 2, model_interval=12, random_state=0), whole, random_state=0).steps(12)
    flat = [[spaces.flatten(space, point) for point in env.shown] for env in envs]
    rows = np.array(flat, dtype=float).swapaxes(0, 1).reshape(-1, len(flat[0][0]))  # as they came
    states, next_states = (np.concatenate([getattr(c, name) for c in spy.chunks]) for name in ("states", "next_states"))
    np.testing.assert_array_equal(states, rows[: len(states)])
    np.testing.assert_array_equal(next_states, rows[len(envs) : len(envs) + len(states)])


def test_a_table_of_places_is_learnt_while_acting():
    agent = OnlineAgent(KBSF(reps=np.eye(16), scaling=None, discount=0.95), 4, model_interval=500, random_state=0)
    OnlineRun(agent, gymnasium.make("FrozenLake-v1", is_slippery=False), random_state=0).steps(4000)
    task = from_gymnasium(gymnasium.make("FrozenLake-v1", is_slippery=False))
    assert task.evaluate(agent.learner.predict, 3, random_state=0).returns.min() > 0.5  # holes end an episode, too


@pytest.mark.parametrize("labels", [2, ["1", "2"], [1, 0]])
def test_an_agents_actions_are_places_or_names_of_those_of_the_environment(labels):
    env, spy = Shown(spaces.Box(0, 1, (1,)), spaces.Discrete(2, start=1)), Spy()
    OnlineRun(OnlineAgent(spy, labels, model_interval=20, random_state=0), env, random_state=0).steps(20)
    log = spy.chunks[0]
    np.testing.assert_array_equal(log.rewards, np.isin(log.actions, [1]) | np.isin(log.actions, ["2"]))


def test_actions_that_an_environment_does_not_have_are_refused():
    env = Shown(spaces.Box(0, 1, (1,)), spaces.Discrete(2, start=1))
    for environment, labels in ((env, [1, 2]), (env, ["left", "right"]), (PuddleWorld(), ["up", "down", "in", "out"])):
        with pytest.raises(ValueError, match="actions must be whole numbers from 0 to"):
            OnlineRun(OnlineAgent(KBSF(), labels), environment)
    with pytest.raises(TypeError, match="must have Discrete actions, but it has MultiBinary"):
        OnlineRun(OnlineAgent(KBSF(), 2), Shown(spaces.Box(0, 1, (1,)), spaces.MultiBinary(2)))


def test_an_agent_does_not_explore_where_rules_say_what_is_allowed():
    table = {"age": np.arange(20.0), "drug": ["a", "b"] * 10, "score": np.arange(20.0), "over": [1] * 20}
    roles = {"state": "age", "action": "drug", "reward": "score", "terminated": "over", "allowed": {"a": "age > 3"}}
    learner = KBSF(5, random_state=0).fit(table, columns=roles)
    for given in (learner, Committee(KBSF(5), 2, random_state=0).fit(load_log(table, columns=roles))):
        with pytest.raises(ValueError, match=r"explores with any action, but the model .* where actions are allowed"):
            OnlineAgent(given, ["a", "b"])


def test_returns_of_episodes_side_by_side_are_discounted_each_for_itself():
    spy = Spy()
    run = OnlineRun(agent_of(spy, model_interval=6000), PuddleWorld(), n_parallel=3, random_state=3)
    record = run.steps(6000)
    log = spy.chunks[0]
    ends, begun = iter(zip(record.ended_at, record.lengths, record.returns)), [0, 0, 0]
    for ended_at, length, value in ends:
        # An episode of slot k that is over after so many steps began where the slot's last one ended.
        slots = [k for k in range(3) if begun[k] + length == ended_at // 3]
        returns = [sum(0.5**t * r for t, r in enumerate(log.rewards[k::3][begun[k] :][:length])) for k in slots]
        match = [k for k, expected in zip(slots, returns) if value == pytest.approx(expected)]
        assert match
        begun[match[0]] += length
    assert len(record.returns) > 10


def test_an_end_that_is_the_simulators_own_starts_a_new_episode_without_a_terminal():
    class Cut(PuddleWorld):
        def truncates(self, states):
            return states[:, 0] > 0.5

    spy = Spy()
    OnlineRun(agent_of(spy, model_interval=2000), Cut(noise=False), random_state=0).steps(2000)
    log = spy.chunks[0]
    beyond = np.flatnonzero(log.next_states[:-1, 0] > 0.5)
    assert len(beyond) > 0
    assert not np.isclose(log.states[beyond + 1], log.next_states[beyond]).all(axis=1).any()
    assert not log.terminals[beyond].all()


def test_epsilon_falls_as_the_paper_lowers_it():
    rule = Epsilon(1.0, factor=0.7, every=50_000, least=0.1)
    assert [rule.epsilon(n) for n in (0, 49_999, 50_000, 100_000, 10**7)] == pytest.approx([1, 1, 0.7, 0.49, 0.1])


def test_the_policy_changes_only_when_the_values_are_updated():
    agent = agent_of(exploration=0.0, model_interval=100, value_interval=300)
    run = OnlineRun(agent, PuddleWorld(), random_state=0)
    run.steps(300)
    first = agent._policy
    run.steps(200)
    assert agent._policy is first
    run.steps(100)
    assert agent._policy is not first


def test_it_learns_the_puddle_world_from_scratch():
    agent = agent_of(KBSF(reps=GRID, sample_width=0.1, rep_width=0.1), exploration=Epsilon(1.0, 0.7, 1000))
    OnlineRun(agent, PuddleWorld(), n_parallel=10, random_state=0).steps(12_000)
    assert PuddleWorld().evaluate(agent.learner.predict, random_state=0).mean > 3


def test_the_same_seeds_give_the_same_run():
    records = []
    for _ in range(2):
        agent = agent_of(KBSF(20, random_state=0), exploration=0.3)
        records.append(OnlineRun(agent, PuddleWorld(), n_parallel=4, random_state=5).steps(3000))
    assert records[0].returns == records[1].returns


def test_ctrl_c_stops_after_a_step_keeps_what_was_learnt_and_can_be_resumed():
    agent = agent_of(model_interval=100)
    run = OnlineRun(agent, PuddleWorld(), random_state=0)
    count = []

    def interrupt(n):
        count.append(n)
        if len(count) == 250:
            os.kill(os.getpid(), signal.SIGINT)

    record = run.steps(10_000, progress=interrupt)
    assert record.interrupted
    assert agent.learner.n_samples_ == agent.n_seen < 10_000
    assert not run.steps(100).interrupted
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_agent_in_a_loop_of_the_users_own_learns_from_what_it_observes():
    agent = OnlineAgent(KBSF(reps=GRID), ["up", "down", "right", "left"], model_interval=10, random_state=0)
    for _ in range(25):
        action = agent.act([0.5, 0.5])
        assert action in ["up", "down", "right", "left"]
        agent.observe([0.5, 0.5], action, 1.0, [0.6, 0.5], False)
    assert agent.learner.n_samples_ == 20
    agent.update_model()
    assert agent.learner.n_samples_ == 25


def test_an_imaginary_end_weighs_as_much_as_it_is_said_to():
    mdp = FiniteMDP(np.array([[[1.0]]]), np.array([[2.0]]), 0.5)
    mixed = optimistic(mdp, np.log([[3.0]]), mass=1.0, best_value=10.0)
    np.testing.assert_allclose(mixed.rewards, [[0.75 * 2 + 0.25 * 10]])
    np.testing.assert_allclose(mixed.stacked, [[0.75]])


def test_optimism_tries_what_is_not_known_and_gives_up_what_is_known_to_be_bad():
    log = random_log(n=200, n_actions=1)
    model = KBSF(reps=GRID, scaling=None, discount=0.5).fit(
        type(log)(log.states, log.actions, log.rewards, log.next_states, action_labels=[0, 1])
    )
    policy = Optimism(mass=0.1, best_value=100.0).plan(model)
    assert set(policy(GRID).tolist()) == {1}
    assert set(model.predict(GRID).tolist()) == {0}
    sure = KBSF(reps=GRID, scaling=None).fit(random_log(n=500, ending=0))
    np.testing.assert_array_equal(Optimism(mass=1e-12, best_value=0.6).plan(sure)(GRID), sure.predict(GRID))


def test_the_error_on_line_is_within_the_bound_of_proposition_4_along_a_run():
    task = PuddleWorld()
    log = task.collect(240, random_state=0)
    settings = {"sample_width": 0.3, "discount": 0.6, "scaling": None}
    model = KBSF(reps=GRID, rep_width=0.02, **settings)
    for n in (60, 120, 180, 240):
        model.partial_fit(log[n - 60 : n])
        seen = log[:n]
        exact = KBRL(**settings).fit(seen).q_values(seen.next_states)
        going_on = ~seen.terminals
        error = np.abs(exact - model.q_from_reps(seen.next_states))[going_on]
        known = np.isfinite(error)
        assert error[known].max() <= model.bound_online(seen).value


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OnlineAgent(KBSF(), 0), "actions must be at least 1"),
        (lambda: OnlineAgent(KBSF(), 4, exploration="bold"), "exploration must be a probability"),
        (lambda: OnlineAgent(KBSF(), 4, exploration=2.0), "start must lie in"),
        (lambda: OnlineAgent(KBSF(), 4, model_interval=0), "model_interval must be at least 1"),
        (lambda: OnlineRun(OnlineAgent(KBSF(), 3), PuddleWorld()), "same number of actions, but they have 3 and 4"),
        (lambda: OnlineRun(OnlineAgent(KBSF(), 4), object()), "needs a task, a Gymnasium environment"),
        (lambda: agent_of().observe([0, 0], 7, 0.0, [0, 0], False), "actions must be among"),
        (lambda: agent_of().observe([0, np.nan], 1, 0.0, [0, 0], False), "observations must be finite"),
        (lambda: agent_of().observe([0, 0], 1, np.inf, [0, 0], False), "reward must be finite"),
        (lambda: agent_of().observe([0, 0], 1, 0.0, [0, 0], "False"), "terminals must be true or false"),
        (lambda: agent_of().observe([0, 0], 1, 0.0, [0, 0], None), "terminals must be true or false"),
        (lambda: OnlineAgent(KBRL(), 4), "needs a learner with partial_fit"),
        (lambda: OnlineAgent(KBSF, 4), "needs a learner with partial_fit"),
        (lambda: OnlineAgent(KBSF(), ["a", "a"]), "actions must be a number or different labels"),
        (
            lambda: agent_of().observe_all(GRID[:1], np.array([1]), np.array([np.nan]), GRID[:1], np.array([False])),
            "rewards must be finite",
        ),
        (lambda: Optimism(-1.0, 3.0), "mass must be a finite number above 0"),
    ],
)
def test_bad_input_gets_a_clear_error(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()
