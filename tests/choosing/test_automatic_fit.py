"""Models from a log alone: what was chosen is what was used, and the parts can be done by hand."""

import numpy as np
import pytest

from kbrl import KBSF, Growth
from kbrl.checks import KbrlWarning
from kbrl.choosing.automatic_fit import fit_automatically, fit_log, learn_more
from kbrl.choosing.hyperparameters import choose_widths
from kbrl.data.survey import survey
from kbrl.logs.log import open_log
from kbrl.logs.writing import as_columns
from kbrl.tasks import PuddleWorld


@pytest.fixture(scope="module")
def log():
    return open_log(as_columns(PuddleWorld().collect(900, random_state=0)))


def sums(model):
    statistics = model.statistics_
    return [statistics.weight, statistics.reward_sum, np.stack(statistics.transition_sum)]


def assert_same_model(one, two):
    np.testing.assert_array_equal(one.reps_, two.reps_)
    for a, b in zip(sums(one), sums(two)):
        np.testing.assert_array_equal(a, b)


AVERAGES = ("n_reps", "sample_width", "rep_width")  # what is chosen of a model of order 0


def test_the_model_is_what_its_parts_give_by_hand(log):
    found = fit_automatically(KBSF(random_state=0), log, choose=AVERAGES)
    seen = survey(log.chunks())
    learner = KBSF(found.n_reps.n_reps, random_state=0)
    widths = choose_widths(seen.sample, learner.set_params(scaling=seen.scale("std")))
    learner.set_params(scaling="std", sample_width=widths.sample_width, rep_width=widths.rep_width)
    assert_same_model(found.model, fit_log(learner, log))
    assert found.widths == widths
    assert found.model.scaling == "std"


def test_what_is_given_is_kept(log):
    learner = KBSF(17, sample_width=0.2, rep_width=0.3, random_state=0)
    found = fit_automatically(learner, log, choose=[])
    assert (found.n_reps, found.widths) == (None, None)
    assert len(found.model.reps_) == 17
    assert not hasattr(learner, "scale_")
    part = fit_automatically(learner, log, choose=["rep_width"]).widths
    assert part.sample_width == 0.2
    with pytest.raises(ValueError, match="choose must be one of"):
        fit_automatically(learner, log, choose=["discount"])


def test_episodes_are_counted_across_chunks():
    task = PuddleWorld()
    columns = as_columns(task.collect(900, random_state=1))
    found = fit_automatically(KBSF(10, random_state=0), open_log(columns), choose=[], chunk_rows=7)
    assert found.n_episodes == len(set(columns["episode_id"].tolist()))
    for name in ("episode_id", "step", "terminated", "truncated"):
        del columns[name]
    assert fit_automatically(KBSF(10, random_state=0), open_log(columns), choose=[]).n_episodes == 0


def test_every_part_of_the_work_is_told_its_rows(log):
    told = {}

    def phase(name, n_rows):
        told[name] = [n_rows, 0]

        def step(n_done):
            told[name][1] += n_done

        return step

    fit_automatically(KBSF(random_state=0), log, chunk_rows=100, phase=phase)
    assert told["looking through the log"] == [900, 900]
    assert told["learning"] == [900, 900]
    assert "rehearsing" in told
    fit_automatically(KBSF(random_state=0), log, choose=AVERAGES, phase=phase)
    assert "choosing the widths" in told


def test_a_time_limit_is_met_by_fewer_states_or_said_to_be_too_short(log):
    with pytest.warns(KbrlWarning, match="seconds=1e-06 are too few"):
        found = fit_automatically(KBSF(random_state=0), log, seconds=1e-6)
    assert "this machine" in found.n_reps.reason
    assert found.n_reps.n_reps < 20
    assert (
        fit_automatically(KBSF(random_state=0), log, seconds=1e6).n_reps
        == fit_automatically(KBSF(random_state=0), log, choose=AVERAGES).n_reps
    )


def test_a_cover_has_its_own_number_of_states(log):
    found = fit_automatically(
        KBSF(reps="cover", growth=Growth(cover_distance=0.5), random_state=0), log, choose=AVERAGES
    )
    assert found.n_reps is None
    assert len(found.model.reps_) > 5


@pytest.mark.parametrize("neighbors", [None, 3])
def test_a_model_unlearnt_learns_alone_what_can_be_added_to_it(neighbors):
    task = PuddleWorld()
    first, second = (open_log(as_columns(task.collect(400, random_state=seed))) for seed in (0, 1))
    learner = KBSF(20, sample_neighbors=neighbors, rep_neighbors=neighbors, random_state=0)
    model = fit_log(learner, first).model_
    empty = model.without_data()
    assert empty.n_samples == 0
    alone = learn_more(empty, second, chunk_rows=90)
    assert (alone.n_samples, model.n_samples) == (400, 400)
    merged = model + alone
    both = learn_more(model, second)
    np.testing.assert_allclose(merged.solution.q, both.solution.q, atol=1e-8)  # the tolerance of the solver
    np.testing.assert_allclose(
        merged.mdp.stacked.toarray() if neighbors else merged.mdp.stacked,
        both.mdp.stacked.toarray() if neighbors else both.mdp.stacked,
        atol=1e-12,
    )
