"""What the paper says about the puddle world holds here at n = 4000 (claims PW1 and PW6, at a smaller scale)."""

import numpy as np
import pytest

from kbrl import KBRL, KBSF, Variant
from kbrl.tasks import PuddleWorld

SEEDS = range(3)


def mean_return(task, learner):
    return np.mean([task.evaluate(learner.predict, random_state=seed).mean for seed in SEEDS])


@pytest.fixture(scope="module")
def world():
    task = PuddleWorld()
    log = task.collect(4000, random_state=0)
    return task, log, mean_return(task, KBRL(sample_width=0.1).fit(log))


def test_kbrl_reaches_the_papers_return_at_its_best_width(world):
    assert world[2] > 3.0


@pytest.mark.parametrize("q_function", ["reps", "samples"])
def test_kbsf_with_100_representative_states_does_as_well_as_kbrl(world, q_function):
    task, log, of_kbrl = world
    learner = KBSF(100, sample_width=0.1, rep_width=0.1, variant=Variant(q_function=q_function), random_state=0).fit(
        log
    )
    assert mean_return(task, learner) > of_kbrl - 0.3


def test_a_width_of_one_is_too_wide(world):
    task, log, of_kbrl = world
    assert mean_return(task, KBSF(100, sample_width=1.0, rep_width=1.0, random_state=0).fit(log)) < of_kbrl - 1
