"""Threads may ask a learner while it learns and grows: every answer is that of one whole model."""

import threading

import numpy as np

from kbrl import KBSF, Growth, Transitions

STATES = np.random.default_rng(9).random((20, 2)) * 4
N_CHUNKS = 25
TOLERANCE = 1e-5  # 1e-8 / (1 - 0.99) of the largest reward, and some room


def chunk(number):
    """Return rows that reach further out with each chunk, so that the model grows with each."""
    rng = np.random.default_rng(number)
    states = rng.random((60, 2)) * (1 + 0.2 * number)
    return Transitions(states, rng.integers(3, size=60), rng.random(60), states[::-1].copy(), action_labels=range(3))


def learner():
    return KBSF(n_reps=8, random_state=0, min_cases=1, growth=Growth(distance=0.3))


def test_every_answer_while_the_model_grows_is_that_of_one_of_its_models():
    quiet, whole = learner(), []
    for number in range(N_CHUNKS):
        quiet.partial_fit(chunk(number))
        whole.append(quiet.q_values(STATES))
    assert len(quiet.reps_) > 20
    gaps = [np.abs(one - other).max() for k, one in enumerate(whole) for other in whole[:k]]
    assert min(gaps) > 100 * TOLERANCE  # no model is mistaken for another
    model = learner().partial_fit(chunk(0))
    answers, errors, is_over = {}, [], threading.Event()

    def ask():
        while not is_over.is_set():
            try:
                found = model.q_values(STATES)
                answers[found.tobytes()] = found
                model.predict(STATES)
                model.model_.sizes  # noqa: B018
            except Exception as error:
                errors.append(error)
                return

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(1, N_CHUNKS):
        model.partial_fit(chunk(number))
    is_over.set()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]
    assert answers
    for found in answers.values():  # a solver that starts elsewhere ends elsewhere within its tolerance
        assert min(np.abs(found - one).max() for one in whole) < TOLERANCE
    assert np.abs(model.q_values(STATES) - whole[-1]).max() < TOLERANCE
