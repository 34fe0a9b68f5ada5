"""Variables that are only ever 0 or 1 are flags on a stage: a step draws one of the two."""

import numpy as np

from kbrl import KBSF, Transitions
from kbrl.lines.plans import world_of
from kbrl.lines.stage import Step
from kbrl.lines.surface import with_flags


def test_a_flag_is_0_or_1_after_a_step_with_the_probability_of_the_lines():
    rng = np.random.default_rng(0)
    states = np.column_stack([rng.uniform(size=2000), rng.integers(2, size=2000)])
    following = np.column_stack([states[:, 0], rng.random(2000) < 0.3])
    log = Transitions(states, np.zeros(2000, dtype=int), np.zeros(2000), following)
    model = KBSF(50, reps="spread", order=1, random_state=0).fit(log).model_
    surface = with_flags(model.surface, log.states)
    assert surface.levels.tolist() == [[1, 2]]
    world = world_of(model.lines, surface, is_spread=True)
    here = model.scaled(states[:1000]).copy()
    cells = np.array([np.square(model.basis.reps - state).sum(axis=1).argmin() for state in here])
    Step.of(here, cells, np.zeros(1000), rng.standard_normal((1000, 2)), world)
    flags = model.coordinates.back(here)[:, 1]
    np.testing.assert_allclose(flags, flags.round(), atol=1e-9)
    assert 0.25 < flags.mean() < 0.35


def test_a_constant_and_a_number_are_no_flags():
    states = np.column_stack([np.zeros(10), np.linspace(0, 1, 10), np.arange(10) % 2])
    log = Transitions(states, np.zeros(10, dtype=int), np.zeros(10), states)
    model = KBSF(5, reps="spread", order=1, random_state=0).fit(log).model_
    assert with_flags(model.surface, states).levels.tolist() == [[2, 3]]
