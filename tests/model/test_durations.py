"""Steps of different duration: discount^duration in the sums, judged by hand, by loops and by the regular case."""

import numpy as np
import pytest

import naive
from kbrl import KBRL, KBSF, Committee, FittedQ, Solver, Transitions, Variant, join, judge, load_model, save_model
from kbrl.data.sketch import transition_hashes
from kbrl.data.survey import survey
from kbrl.insight.explanation import explain
from kbrl.model.model_bounds import bound_answers
from samples import random_log

EXACT = {"solver": Solver(tolerance=1e-13), "min_cases": 1}
CONTINUE = Variant(terminals="continue")
KINDS = {
    "dense": {},
    "few representative states": {"rep_neighbors": 3},
    "few samples": {"sample_neighbors": 4},
    "both": {"sample_neighbors": 4, "rep_neighbors": 3},
    "per chunk": {"sample_neighbors": 4, "variant": Variant(neighborhoods="per_chunk")},
    "hard": {"variant": Variant(aggregation="hard")},
    "from samples": {"variant": Variant(q_function="samples")},
    "lines": {"order": 1},
}


def timed(durations=None, **options):
    log = random_log(**({"n": 60, "seed": 4} | options))
    if durations is None:
        durations = np.random.default_rng(9).gamma(2.0, 0.7, len(log)) + 0.05
    return log.replaced(durations=np.broadcast_to(np.asarray(durations, dtype=float), (len(log),)).copy())


def learner(**settings):
    return KBSF(**({"n_reps": 7, "discount": 0.9, "random_state": 0, "sample_width": 0.5} | EXACT | settings))


def test_a_reward_two_days_later_counts_the_discount_squared_by_hand():
    # State 0 leads to state 1 within two days; state 1 pays 1 per day for ever, so it is worth 1 / (1 - 0.9) = 10.
    log = Transitions([[0.0], [1.0]], ["go", "go"], [0.0, 1.0], [[1.0], [1.0]], durations=[2.0, 1.0])
    model = KBSF(reps=[[0.0], [1.0]], sample_width=1e-3, rep_width=1e-3, discount=0.9, scaling=None, **EXACT).fit(log)
    np.testing.assert_allclose(model.q_values([[0.0], [1.0]]), [[0.9**2 * 10], [10.0]], rtol=1e-12)


def test_the_reduced_mdp_is_that_of_a_loop_over_the_transitions():
    log = timed(n=25)
    model = learner(scaling=None, rep_width=0.3).fit(log).model_
    for action in range(log.n_actions):
        rows = np.flatnonzero(log.action_indices == action)
        for i, rep in enumerate(model.reps):
            k = naive.kappa(rep, log.states[rows].tolist(), 0.5)
            expected = np.zeros(len(model.reps))
            for weight, t in zip(k, rows):
                to_reps = naive.kappa(log.next_states[t], model.reps.tolist(), 0.3)
                expected += weight * (0.0 if log.terminals[t] else 0.9 ** log.durations[t]) * np.array(to_reps)
            found = model.mdp.discount * model.mdp.probabilities[action, i]
            np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-14)


def test_its_values_are_those_that_value_iteration_finds():
    model = learner().fit(timed()).model_
    discounted = model.mdp.discount * model.mdp.probabilities
    values = np.zeros(7)
    for _ in range(2000):
        values = (model.mdp.rewards + discounted @ values).max(axis=0)
    np.testing.assert_allclose(model.solution.values, values, rtol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("duration", [0.25, 1.0, 3.0])
def test_steps_of_one_duration_are_regular_steps_with_that_discount(kind, duration):
    log = random_log(n=60, seed=4)
    one = learner(**KINDS[kind]).fit(timed(duration))
    two = learner(**KINDS[kind], discount=0.9**duration).fit(log)
    np.testing.assert_allclose(one.q_values(log.states), two.q_values(log.states), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("duration", [0.25, 3.0])
def test_kbrl_with_steps_of_one_duration_is_regular_too(duration):
    log = random_log(n=40, seed=4)
    settings = {"sample_width": 0.5, "tolerance": 1e-13}
    one = KBRL(discount=0.9, **settings).fit(timed(duration, n=40))
    two = KBRL(discount=0.9**duration, **settings).fit(log)
    np.testing.assert_allclose(one.q_values(log.states), two.q_values(log.states), rtol=1e-9)


def test_kbsf_is_kbrl_when_every_next_state_is_its_own_representative():
    log = timed(n=40)
    settings = {"discount": 0.9, "sample_width": 0.5, "scaling": None}
    kbrl = KBRL(**settings, tolerance=1e-13).fit(log)
    kbsf = KBSF(reps=log.next_states, rep_width=1e-4, **settings, **EXACT).fit(log)
    np.testing.assert_allclose(kbsf.q_values(log.next_states), kbrl.q_values(log.next_states), rtol=1e-7)


@pytest.mark.parametrize("kind", ["dense", "few samples", "both", "lines"])
@pytest.mark.parametrize("cut", [1, 30, 59])
def test_models_of_the_parts_add_up_to_that_of_the_whole(kind, cut):
    log = timed()
    whole = learner(**KINDS[kind]).fit(log).model_
    empty = whole.without_data()
    both = empty.extend(log[:cut]) + empty.extend(log[cut:])
    np.testing.assert_allclose(both.q_values(log.states), whole.q_values(log.states), rtol=1e-10)
    assert both.sketch.total == whole.sketch.total


def test_a_model_forgets_steps_with_durations():
    log = timed()
    model = learner().fit(log).model_
    rest = model.without_data().extend(log[20:])
    np.testing.assert_allclose((model - log[:20]).q_values(log.states), rest.q_values(log.states), rtol=1e-7)


def test_only_the_same_durations_are_the_same_transitions():
    log = timed()
    other = log.replaced(durations=log.durations + 1.0)
    assert not np.isin(transition_hashes(log), transition_hashes(other)).any()
    with pytest.raises(ValueError, match="Only transitions that were learnt can be forgotten"):
        learner().fit(log).model_ - other


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_comes_back_from_its_file(tmp_path, kind):
    log = timed()
    model = learner(**KINDS[kind]).fit(log)
    save_model(model, tmp_path / "model.kbrl")
    loaded = load_model(tmp_path / "model.kbrl")
    np.testing.assert_array_equal(loaded.q_values(log.states), model.q_values(log.states))
    assert loaded.basis.discount == 0.9
    if kind != "per chunk":
        more = timed(n=20, seed=8)
        one, two = (each.extend(more) for each in (loaded, model.model_))
        np.testing.assert_allclose(one.q_values(log.states), two.q_values(log.states), rtol=1e-12)


@pytest.mark.parametrize("kind", ["dense", "few samples", "from samples"])
def test_the_cases_behind_a_value_sum_up_to_it(kind):
    log = timed()
    model = learner(**KINDS[kind]).fit(log)
    found = explain(model, log.states[0], log=log, n_cases=len(log))
    for action in found.actions:
        assert action.explained == pytest.approx(action.value, rel=1e-9)
        worths = sum(case.weight * case.worth for case in action.cases)
        assert worths / action.total_weight == pytest.approx(action.value, rel=1e-9)


def test_kept_neighbours_explain_a_value_without_the_log():
    model = learner(sample_neighbors=4).fit(timed())
    for action in explain(model, model.model_.reps[0], n_cases=100).actions:
        assert action.explained == pytest.approx(action.value, rel=1e-9)


def test_durations_go_with_their_rows():
    log = timed()
    np.testing.assert_array_equal(log[[5, 3]].durations, log.durations[[5, 3]])
    np.testing.assert_array_equal((log[:10] + log[10:]).durations, log.durations)
    np.testing.assert_array_equal(join(list(log.chunks(7))).durations, log.durations)
    assert "with durations" in repr(log)
    sample = survey(log.chunks(11)).sample
    assert sorted(sample.durations.tolist()) == sorted(log.durations.tolist())
    pairs = set(zip(log.rewards.tolist(), log.durations.tolist()))
    assert set(zip(sample.rewards.tolist(), sample.durations.tolist())) == pairs


def test_a_committee_takes_durations_too():
    log = timed(2.0)
    one = Committee(learner(), n_members=2, random_state=0).fit(log)
    two = Committee(learner(discount=0.81), n_members=2, random_state=0).fit(random_log(n=60, seed=4))
    np.testing.assert_allclose(one.q_values(log.states), two.q_values(log.states), rtol=1e-9)


def without():
    return random_log(n=60, seed=4)


def made(durations):
    return Transitions([[0.0], [1.0]], [0, 1], [0.0, 1.0], [[1.0], [1.0]], durations=durations)


CASES = {
    "a duration of 0": (lambda: made([1.0, 0.0]), "durations must be above 0, but 1 of 2 rows are not"),
    "a NaN": (lambda: made([np.nan, 1.0]), "durations must be finite, but 1 of 2 rows are not"),
    "too few": (lambda: made([1.0]), "durations has 1"),
    "words": (lambda: made(["a", "b"]), "durations must be real numbers"),
    "some logs with them": (lambda: timed() + without(), "Logs to join must all have durations or none"),
    "further data without": (lambda: learner().fit(timed()).partial_fit(without()), "to durations and these have none"),
    "further data with": (lambda: learner().fit(without()).partial_fit(timed()), "to none and these have durations"),
    "models of both kinds": (lambda: added(), "discount over time"),
    "too short to matter": (lambda: learner().fit(timed(1e-13)), "1e-13, a reward counts 0.9^1e-13 = 1"),
    "too short for KBRL": (lambda: KBRL().fit(timed(1e-12)), "Durations must be long enough"),
    "ends that are ignored": (
        lambda: learner(variant=Variant(terminals="continue")).fit(timed()),
        "needs steps of one length",
    ),
    "ends that KBRL ignores": (lambda: KBRL(terminals="continue").fit(timed()), "needs steps of one length"),
    "a learner without time": (lambda: FittedQ().fit(timed()), "FittedQ takes every step as equally long"),
    "judging": (lambda: judged(), "Judging takes every step as equally long"),
    "bounds": (lambda: bounded(), "its steps have durations"),
}


def added():
    one = learner(reps=[[0.0, 0.0], [1.0, 1.0]], scaling=None)
    return one.fit(timed()).model_ + one.fit(without()).model_


def judged():
    log = timed(n=400).replaced(episodes=np.arange(400) // 10)
    return judge(learner().fit(log[:200]).model_, log[200:])


def bounded():
    return bound_answers(learner(reps=[[0.0, 0.0], [1.0, 1.0]]).fit(timed()).model_, timed())


@pytest.mark.parametrize("case", CASES)
def test_what_does_not_go_with_durations_is_refused(case):
    act, words = CASES[case]
    with pytest.raises((ValueError, TypeError)) as error:
        act()
    assert words in str(error.value)
