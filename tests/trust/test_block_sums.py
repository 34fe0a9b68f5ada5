"""Sums per block: a slow twin, chunks, sites, and policies that answer in different ways."""

import numpy as np
import pytest

from kbrl import PolicyEvaluator, Transitions, load_sums, save_sums
from kbrl.data.episodes import block_of, episode_hashes
from kbrl.storage.sealed_file import read_sealed, write_sealed
from kbrl.tasks import PuddleWorld
from trust.finite_logs import random_world

DISCOUNT = 0.9


@pytest.fixture(scope="module")
def log():
    return PuddleWorld().collect(1500, random_state=0, max_steps=40)


def rule(states):
    return (states[:, 0] > 0.5).astype(int) + 2 * (states[:, 1] > 0.5)


def evaluated(log, policy=rule, **options):
    return PolicyEvaluator(policy, discount=DISCOUNT, n_reps=6, n_blocks=3, **options).fit(log)


def slow_sums(evaluator, log, policy):
    """Return the sums by loops over rows, straight from their definitions."""
    features, (k, a, m, _) = evaluator.frame.features, evaluator.sums.shape
    found = {"weight": np.zeros((2, k, a, m)), "reward": np.zeros((2, k, a, m)), "square": np.zeros((2, k, a, m, m))}
    found |= {"next_now": np.zeros((k, a * m, a * m)), "next_policy": np.zeros((1, k, a * m, a * m))}
    found |= {"start_now": np.zeros((k, a * m)), "start_policy": np.zeros((1, k, a * m))}
    found |= {name: np.zeros(k) for name in ("n_episodes", "returns", "n_rows", "squared_returns")}
    found["cut"] = np.zeros((k, m))
    blocks, power, total = block_of(episode_hashes(log), k), 1.0, 0.0
    for t in range(len(log)):
        phi, after = features(log.states[t : t + 1])[0], features(log.next_states[t : t + 1])[0]
        b, action, reward = blocks[t], log.action_indices[t], log.rewards[t]
        is_start = t == 0 or log.episodes[t] != log.episodes[t - 1]
        is_last = t == len(log) - 1 or log.episodes[t] != log.episodes[t + 1]
        kind = int(is_last and not log.terminals[t])
        one = np.zeros(a * m)
        one[action * m : (action + 1) * m] = phi
        if is_start:
            power, total = 1.0, 0.0
            found["start_now"][b] += one
            found["start_policy"][0, b] += np.outer(policy(log.states[t : t + 1])[0], phi).ravel()
            found["n_episodes"][b] += 1
        found["weight"][kind, b, action] += phi
        found["reward"][kind, b, action] += phi * reward
        found["square"][kind, b, action] += np.outer(phi, phi)
        if not log.terminals[t]:
            chances = policy(log.next_states[t : t + 1])[0]
            found["next_policy"][0, b] += np.outer(one, np.outer(chances, after).ravel())
        if not is_last:
            following = np.zeros((a, m))
            following[log.action_indices[t + 1]] = after
            found["next_now"][b] += np.outer(one, following.ravel())
        total += power * reward
        found["returns"][b] += power * reward
        found["n_rows"][b] += 1
        if is_last:
            found["squared_returns"][b] += total**2
        if kind:
            found["cut"][b] += DISCOUNT * power * after
        power *= DISCOUNT
    return found


def probabilities(states):
    table = np.full((len(states), 4), 0.1)
    table[np.arange(len(states)), rule(states)] += 0.6
    return table


def test_the_sums_are_those_of_a_slow_loop_over_the_rows(log):
    found = evaluated(log, probabilities)
    for name, expected in slow_sums(found, log, probabilities).items():
        np.testing.assert_allclose(getattr(found.sums, name), expected, atol=1e-9, err_msg=name)


def test_labels_and_certain_probabilities_give_the_same_sums(log):
    certain = evaluated(log, lambda states: np.eye(4)[rule(states)])
    np.testing.assert_allclose(certain.sums.next_policy, evaluated(log).sums.next_policy, atol=1e-9)


def test_as_now_is_the_logged_policy_wherever_the_next_action_was_logged():
    world = random_world(0)
    (log,) = world.logs(1, 60, np.random.default_rng(0))
    found = PolicyEvaluator(lambda states: ["as now"] * len(states), discount=DISCOUNT).fit(log)
    np.testing.assert_array_equal(found.sums.next_policy[0], found.sums.next_now)
    np.testing.assert_array_equal(found.sums.start_policy[0], found.sums.start_now)


@pytest.mark.parametrize("chunk_rows", [1, 37, 100])
def test_chunks_add_up_to_the_whole(log, chunk_rows):
    log = log[:200]
    whole = evaluated(log)
    parts = PolicyEvaluator(rule, like=whole)
    for chunk in log.chunks(chunk_rows):
        parts.partial_fit(chunk)
    for name, expected in vars(whole.sums).items():
        if name not in ("residuals", "lasting"):  # of the values at the time
            np.testing.assert_allclose(getattr(parts.finish().sums, name), expected, atol=1e-9, err_msg=name)


def test_two_sites_sums_equal_the_whole_in_either_order_and_by_way_of_files(log, tmp_path):
    whole = evaluated(log)
    is_north = log.episodes % 3 == 0
    north, south = (PolicyEvaluator(rule, like=whole).fit(log[rows]) for rows in (is_north, ~is_north))
    save_sums(north, tmp_path / "north.sums")
    save_sums(south, tmp_path / "south.sums")
    from_files = load_sums(tmp_path / "south.sums") + load_sums(tmp_path / "north.sums")
    for added in (north + south, south + north, from_files):
        for name, expected in vars(whole.sums).items():
            if name not in ("residuals", "lasting"):
                np.testing.assert_allclose(getattr(added.sums, name), expected, atol=1e-9, err_msg=name)


def test_sums_of_other_policies_discounts_or_the_same_episodes_are_not_added(log):
    one = evaluated(log)
    with pytest.raises(ValueError, match="decisions of the policies"):
        one + PolicyEvaluator(lambda states: 3 - rule(states), like=one).fit(log[log.episodes % 2 == 0])
    with pytest.raises(ValueError, match="discount"):
        one + PolicyEvaluator(rule, discount=0.8, n_reps=6, n_blocks=3).fit(log)
    with pytest.raises(ValueError, match="would count twice"):
        one + PolicyEvaluator(rule, like=one).fit(log)


def test_sums_of_a_policy_that_defers_are_loaded(log, tmp_path):
    policy = lambda states: ["as now" if x < 0.5 else "2" for x in states[:, 0]]  # noqa: E731
    named = log.replaced(action_labels=np.array(["0", "1", "2", "3"]))
    save_sums(evaluated(named, policy), tmp_path / "north.sums")
    assert load_sums(tmp_path / "north.sums").decisions.sum() < 6


def test_a_damaged_file_of_sums_is_refused(log, tmp_path):
    path = tmp_path / "north.sums"
    save_sums(evaluated(log), path)
    raw = bytearray(path.read_bytes())
    raw[-9] ^= 1
    path.write_bytes(raw)
    with pytest.raises(ValueError, match="SHA-256"):
        load_sums(path)


@pytest.mark.parametrize("fact", ["n_blocks", "policies"])
def test_a_forged_file_of_sums_takes_no_memory_for_what_it_only_states(log, tmp_path, fact):
    path = tmp_path / "north.sums"
    save_sums(evaluated(log), path)
    facts, arrays, version = read_sealed(path, "kbrl sums", 3)
    facts[fact] = 10**15 if fact == "n_blocks" else [str(k) for k in range(10_000)]
    with open(path, "wb") as file:
        write_sealed(file, "kbrl sums", version, facts, arrays)
    with pytest.raises(ValueError, match="the shape"):
        load_sums(path)


FORGED = {
    "a label of 2 GB": lambda facts, arrays: facts["action_labels"].update(dtype="<U500000000"),
    "labels that are objects": lambda facts, arrays: facts["action_labels"].update(dtype="O"),
    "one label twice": lambda facts, arrays: facts["action_labels"].update(values=[0, 0], dtype="<i8"),
    "a discount beyond all floats": lambda facts, arrays: facts.update(discount=10**400),
    "names that are a number": lambda facts, arrays: facts.update(names=7),
    "labels whose type has room for far more": lambda facts, arrays: facts["action_labels"].update(
        dtype="<U99999", values=[f"a{k}" for k in range(9000)]
    ),
    "no width": lambda facts, arrays: facts.update(width=0.0),
    "names that are no lists": lambda facts, arrays: facts.update(names={"state": "ab", "others": []}),
    "policies that are numbers": lambda facts, arrays: facts.update(policies=[1]),
    "no decisions": lambda facts, arrays: arrays.update(decisions=np.zeros((1, 1))),
    "decisions that are no probabilities": lambda facts, arrays: arrays.update(decisions=7 * arrays["decisions"]),
    "a scale of 0": lambda facts, arrays: arrays.update(scale=0 * arrays["scale"]),
    "states that are no numbers": lambda facts, arrays: arrays.update(reps=np.nan * arrays["reps"]),
    "returns whose square is infinite": lambda _, arrays: arrays["sums.returns"].fill(1e300),
    "more next states than rows": lambda _, arrays: arrays["sums.next_policy"].fill(1e9),
    "no episodes": lambda facts, arrays: arrays.update({"sums.n_episodes": 0 * arrays["sums.n_episodes"]}),
}  # fmt: skip


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
def test_forged_sums_with_a_right_seal_are_refused_when_they_are_loaded(log, tmp_path, forge):
    path = tmp_path / "north.sums"
    save_sums(evaluated(log), path)
    facts, arrays, version = read_sealed(path, "kbrl sums", 3)
    arrays = {name: np.array(array) for name, array in arrays.items()}
    forge(facts, arrays)
    with open(path, "wb") as file:
        write_sealed(file, "kbrl sums", version, facts, arrays)
    with pytest.raises(ValueError, match="sealed but holds no valid sums"):
        load_sums(path)


def test_answers_that_are_no_policy_are_refused(log):
    with pytest.raises(ValueError, match=r"be among the actions of the log.*never tried"):
        evaluated(log, lambda states: np.full(len(states), 9))
    with pytest.raises(ValueError, match="sum to 1"):
        evaluated(log, lambda states: np.full((len(states), 4), 0.3))
    with pytest.raises(ValueError, match="shape"):
        evaluated(log, lambda states: [0])
    with pytest.raises(TypeError, match="but it is 'up'"):
        evaluated(log, "up")
    with pytest.raises(ValueError, match="A discount is needed"):
        PolicyEvaluator(rule)


def test_an_episode_of_one_row_counts_as_an_episode():
    log = Transitions([[0.0], [1.0]], ["a", "b"], [1.0, 3.0], [[1.0], [0.0]], [True, False], ["x", "y"])
    found = PolicyEvaluator(lambda states: ["a"] * len(states), discount=DISCOUNT).fit(log)
    assert (found.n_episodes, found.sums.returns.sum(), found.sums.next_now.sum()) == (2, 4.0, 0.0)
