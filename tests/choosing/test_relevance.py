"""Which variables matter: judged by systems whose influences are known because we made them."""

import numpy as np
import pytest

from kbrl import KBSF, Transitions
from kbrl.choosing.rehearsal import choose_by_rehearsal, without_weight
from kbrl.choosing.relevance import told_by_the_past, variables_that_matter

LENGTH = 25


def simulate(influence, pushed, rewarded, *, n=6000, noise=0.1, seed=0):
    """Return a log of s' = influence s + pushed u + noise, where u is -1 or 1 at random; the reward is rewarded . s."""
    rng = np.random.default_rng(seed)
    influence, pushed, rewarded = np.asarray(influence, float), np.asarray(pushed, float), np.asarray(rewarded, float)
    n_episodes = n // LENGTH
    state = rng.normal(size=(n_episodes, len(pushed)))
    states, actions, following = [], [], []
    for _ in range(LENGTH):
        action = rng.integers(2, size=n_episodes)
        states.append(state)
        actions.append(action)
        state = state @ influence.T + np.outer(2 * action - 1, pushed) + noise * rng.normal(size=state.shape)
        following.append(state)
    s, a, after = (np.swapaxes(np.array(part), 0, 1) for part in (states, actions, following))
    s, after = s.reshape(n, -1), after.reshape(n, -1)
    episodes = np.repeat(np.arange(n_episodes), LENGTH)
    return Transitions(s, a.ravel(), s @ rewarded + 0.1 * rng.normal(size=n), after, episodes=episodes)


def halves(log):
    return log.episodes % 2 == 0


def tied(influence, pushed, rewarded):
    """Return what is tied to the action or the reward, found by walking from one to the next."""
    reached = {k for k in range(len(pushed)) if pushed[k] or rewarded[k]}
    while True:
        more = {
            k for k in range(len(pushed)) for other in reached if influence[k][other] != 0 or influence[other][k] != 0
        }
        if more <= reached:
            return [k in reached for k in range(len(pushed))]
        reached |= more


#            pushed  paid   odometer  noise  pair   pair   context
EXAMPLE = [
    [0.8, 0.0, 0.0, 0.0, 0.0, 0.0, 0.3],  # pushed by the action and by the context
    [0.4, 0.7, 0.0, 0.0, 0.0, 0.0, 0.0],  # driven by the first; the reward depends on it
    [0.5, 0.0, 0.9, 0.0, 0.0, 0.0, 0.0],  # driven by the first, drives nothing: decisions can take it out of the data
    [0.0, 0.0, 0.0, 0.9, 0.0, 0.0, 0.0],  # predicts itself alone
    [0.0, 0.0, 0.0, 0.0, 0.8, 0.4, 0.0],  # two that predict each other alone
    [0.0, 0.0, 0.0, 0.0, -0.4, 0.8, 0.0],
    [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.9],  # nothing moves it, but it moves the first
]
PUSHED, REWARDED = [0.5, 0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0, 0]


def test_only_what_neither_drives_nor_is_driven_by_what_matters_is_left_out():
    log = simulate(EXAMPLE, PUSHED, REWARDED)
    assert variables_that_matter(log, halves(log)).tolist() == [True, True, True, False, False, False, True]


@pytest.mark.parametrize("seed", range(6))
def test_the_variables_found_are_those_that_can_be_reached_in_the_system(seed):
    rng = np.random.default_rng(seed)
    n_dims = 7
    influence = np.diag(rng.uniform(0.3, 0.9, n_dims))
    for _ in range(4):
        one, other = rng.choice(n_dims, 2, replace=False)
        influence[one, other] = rng.choice([-0.3, 0.3])
    influence /= max(1.0, np.abs(np.linalg.eigvals(influence)).max() / 0.95)
    pushed, rewarded = np.eye(n_dims)[rng.integers(n_dims)], np.eye(n_dims)[rng.integers(n_dims)]
    log = simulate(influence, pushed, rewarded, seed=seed)
    assert variables_that_matter(log, halves(log)).tolist() == tied(influence, pushed, rewarded)


def test_other_units_change_nothing():
    log = simulate(EXAMPLE, PUSHED, REWARDED)
    factors, shift = np.array([1e-6, 1.0, 1e5, 1e3, 1e-3, 7.0, 1e200]), np.array([0.0, 5.0, -1e5, 1e4, 0.0, 1.0, 0.0])
    other = log.replaced(states=log.states * factors + shift, next_states=log.next_states * factors + shift)
    other = other.replaced(rewards=1e4 * log.rewards - 3)
    assert variables_that_matter(other, halves(log)).tolist() == variables_that_matter(log, halves(log)).tolist()


def test_all_variables_matter_where_none_predicts_rewards_or_ends():
    log = simulate(EXAMPLE, PUSHED, REWARDED)
    rng = np.random.default_rng(0)
    assert variables_that_matter(log.replaced(rewards=np.ones(len(log))), halves(log)).all()
    assert variables_that_matter(log.replaced(rewards=rng.normal(size=len(log))), halves(log)).all()


def test_a_variable_that_only_ends_episodes_matters():
    log = simulate(EXAMPLE, PUSHED, [0.0] * 7)
    ends = np.abs(log.states[:, 3]) > 0.5
    matters = variables_that_matter(log.replaced(terminals=ends), halves(log))
    assert matters.tolist() == [True, True, True, True, False, False, True]


def test_two_copies_of_a_context_are_not_both_left_out():
    """Either copy can be dropped without loss, but not both."""
    log = simulate(EXAMPLE, PUSHED, REWARDED)
    twice = [np.column_stack([part, part[:, 6]]) for part in (log.states, log.next_states)]
    log = Transitions(twice[0], log.actions, log.rewards, twice[1], episodes=log.episodes)
    matters = variables_that_matter(log, halves(log))
    assert matters[6] or matters[7]


def test_with_many_variables_pairs_are_not_tried_and_noise_is_still_found():
    influence = np.zeros((60, 60))
    influence[:7, :7] = EXAMPLE
    influence[7:, 7:] = 0.5 * np.eye(53)
    log = simulate(influence, PUSHED + [0] * 53, REWARDED + [0] * 53, n=4000)
    matters = variables_that_matter(log, halves(log))
    assert matters[[0, 1, 2, 6]].all()
    assert not matters[7:].any()


def test_logs_with_few_rows_or_hundreds_of_variables_keep_all():
    log = simulate(EXAMPLE, PUSHED, REWARDED, n=100)
    assert variables_that_matter(log, halves(log)).all()
    rng = np.random.default_rng(0)
    states, after, rewards = rng.normal(size=(500, 700)), rng.normal(size=(500, 700)), rng.normal(size=500)
    wide = Transitions(states, [0, 1] * 250, rewards, after, episodes=np.arange(500) // 20)
    assert variables_that_matter(wide, halves(wide)).all()


def walks_with_noise(n_noise, n_episodes=120):
    """Return walks on a line, pushed left or right at random; the right end pays and ends; noise variables beside."""
    rng = np.random.default_rng(0)
    rows = []
    for episode in range(n_episodes):
        x = rng.uniform(-1, 0.9)
        for _ in range(25):
            action = int(rng.integers(2))
            following = float(np.clip(x + (0.15 if action else -0.15), -1, 1))
            end = following > 0.9
            rows.append((x, action, 1.0 if end else -0.05, following, end, episode))
            x = following
            if end:
                break
    x, action, reward, following, end, episode = map(np.array, zip(*rows))
    noise = rng.normal(size=(len(x) + 1, n_noise))
    states, after = np.column_stack([x, noise[:-1]]), np.column_stack([following, noise[1:]])
    return Transitions(states, action, reward, after, end, episodes=episode)


def test_rehearsal_measures_distances_without_noise_unless_it_must_not():
    log, learner = walks_with_noise(3), KBSF(discount=0.95, reps="spread", random_state=0)
    assert choose_by_rehearsal(log, learner).ignored == (1, 2, 3)
    assert choose_by_rehearsal(log, learner, may_ignore=False).ignored == ()


@pytest.mark.parametrize("order", [0, 1])
def test_to_ignore_a_variable_is_to_learn_without_its_column(order):
    log = walks_with_noise(2)
    alone = Transitions(log.states[:, :1], log.actions, log.rewards, log.next_states[:, :1], log.terminals)
    reps = np.linspace(-1, 1, 30)[:, None]
    scale = without_weight(np.array([0.5, 1.0, 1.0]), [1, 2])
    settings = {"order": order, "discount": 0.95, "rep_width": 0.1}
    without = KBSF(reps=reps, scaling=np.array([0.5]), **settings).fit(alone)
    ignoring = KBSF(reps=np.column_stack([reps, np.zeros((30, 2))]), scaling=scale, **settings).fit(log)
    np.testing.assert_allclose(ignoring.q_values(log.states[:50]), without.q_values(alone.states[:50]), atol=1e-6)


def test_decisions_of_one_step_leave_nothing_out():
    rng = np.random.default_rng(0)
    states = rng.normal(size=(800, 3))
    log = Transitions(states, rng.integers(2, size=800), states[:, 0], states, np.ones(800, dtype=bool))
    assert variables_that_matter(log, np.arange(800) % 2 == 0).all()


def with_memory(delay, *, n_episodes=150, length=60, seed=0):
    """Return a log in which an action of 1 lowers the state ``delay`` steps later, and the noise of each step."""
    rng = np.random.default_rng(seed)
    actions = rng.integers(2, size=(n_episodes, length))
    noise = 0.3 * rng.normal(size=(n_episodes, length))
    state, states = np.zeros(n_episodes), []
    for t in range(length):
        states.append(state)
        effect = actions[:, t - delay] if t >= delay else 0.5
        state = 0.9 * state + 0.3 * (0.5 - effect) + noise[:, t]
    x = np.array([*states, state]).T
    episodes = np.repeat(np.arange(n_episodes), length)
    before, after = x[:, :-1].reshape(-1, 1), x[:, 1:].reshape(-1, 1)
    return Transitions(before, actions.ravel(), np.zeros(actions.size), after, episodes=episodes), noise.reshape(-1, 1)


@pytest.mark.parametrize(("delay", "is_told"), [(0, False), (5, True)])
def test_earlier_actions_tell_something_only_if_the_state_misses_it(delay, is_told):
    log, noise = with_memory(delay)
    effect = 0.9 * log.states if delay else log.next_states - noise  # what a model of the state and the action knows
    found = told_by_the_past(log, log.next_states - effect, halves(log))
    assert found.tolist() == [is_told]


def test_rows_without_a_past_tell_nothing():
    log, noise = with_memory(5, n_episodes=1000, length=8)
    assert told_by_the_past(log, noise, halves(log)).tolist() == [False]


def test_a_state_that_misses_something_is_said():
    log, _ = with_memory(5)
    flags = choose_by_rehearsal(log, KBSF(discount=0.9, reps="spread", random_state=0), orders=(1,)).flags
    assert any("the state seems to lack something: what was done up to 48 steps earlier" in flag for flag in flags)
    log, _ = with_memory(0)
    flags = choose_by_rehearsal(log, KBSF(discount=0.9, reps="spread", random_state=0), orders=(1,)).flags
    assert not any("lack something" in flag for flag in flags)


def pumps(seed, n_episodes=300, length=20):
    """Return a log of pumps that fail more often where vibration is among the highest tenth, and only if they run.

    To rest costs 1 and cools.  A failure costs 10, heat a little; the last two variables are noise.
    """
    rng = np.random.default_rng(seed)
    states = rng.normal(size=(n_episodes, length + 1, 4))
    actions = rng.integers(2, size=(n_episodes, length))
    for step in range(length):  # slow variables
        states[:, step + 1] = 0.9 * states[:, step] + np.sqrt(1 - 0.9**2) * states[:, step + 1]
        states[:, step + 1, 1] -= 0.5 * actions[:, step]
    here, following = states[:, :-1].reshape(-1, 4), states[:, 1:].reshape(-1, 4)
    chance = 0.01 + 0.1 * ((here[:, 0] > 1.28) & (actions.ravel() == 0))
    fails = rng.random(len(here)) < chance
    rewards = -1.0 * actions.ravel() - 10.0 * fails - 0.2 * here[:, 1]
    episodes = np.repeat(np.arange(n_episodes), length)
    return Transitions(here, actions.ravel(), rewards, following, episodes=episodes)


def test_a_rare_failure_of_one_action_beyond_a_threshold_matters():
    found = []
    for seed in range(5):
        log = pumps(seed)
        found.append(variables_that_matter(log, np.asarray(log.episodes) % 2 == 0))
    found = np.array(found)
    assert found[:, 0].sum() >= 4  # vibration; in one log in five chance may hide it
    assert found[:, 1].all()  # heat
    assert not found[:, 2:].any()  # noise


def test_noise_is_left_out_also_where_a_step_is_certain_given_the_action():
    """A ridge shrinks the effect of an action a little: all rows are off, and no region of any variable is to blame."""
    rng = np.random.default_rng(0)
    n_episodes, length = 200, 20
    actions = rng.integers(2, size=(n_episodes, length))
    place = np.cumsum(np.column_stack([rng.normal(size=n_episodes), 2.0 * actions - 1.0]), axis=1)
    states = np.stack([place, *rng.normal(size=(3, n_episodes, length + 1))], axis=2)
    here, following = states[:, :-1].reshape(-1, 4), states[:, 1:].reshape(-1, 4)
    episodes = np.repeat(np.arange(n_episodes), length)
    log = Transitions(here, actions.ravel(), -np.square(here[:, 0]), following, episodes=episodes)
    assert variables_that_matter(log, episodes % 2 == 0).tolist() == [True, False, False, False]


def test_a_region_without_events_is_no_evidence():
    """Ends are rare and depend on nothing but the first variable: regions of the others have few, or none at all."""
    kept = 0
    for seed in range(5):
        rng = np.random.default_rng(seed)
        states = rng.normal(size=(3000, 4))
        ends = rng.random(3000) < np.where(states[:, 0] > 0, 0.1, 0.0)
        following = states + 0.5 * rng.normal(size=states.shape)
        following[:, 0] += 0.3 * (np.arange(3000) % 2)
        log = Transitions(states, np.arange(3000) % 2, -1.0 * ends, following, ends, episodes=np.arange(3000) // 20)
        found = variables_that_matter(log, np.asarray(log.episodes) % 2 == 0)
        assert found[0]
        kept += int(found[1:].sum())
    assert kept <= 3  # of 15
