"""Which checks a learner must pass: those of ``fit`` and of answers, or those of acting and of answers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from kbrl.checks import KbrlWarning
from kbrl.testing import answer_checks, habits, online_checks, worked_out
from kbrl.testing.lessons import is_online

Check = Callable[[Any], None]

_ANSWERS: tuple[Check, ...] = (
    answer_checks.q_values_has_one_row_per_state_and_one_column_per_action,
    answer_checks.the_log_and_the_states_are_left_as_they_were,
    answer_checks.predict_answers_with_labels_of_the_log,
    answer_checks.predict_chooses_the_best_action,
    answer_checks.columns_are_in_the_order_of_the_labels_and_the_best_paid_action_is_chosen,
    answer_checks.the_same_random_state_gives_the_same_answers_whatever_the_number_of_threads,
    answer_checks.every_state_is_answered_by_itself,
    answer_checks.states_may_come_as_lists_in_single_precision_or_in_columns,
    answer_checks.states_that_are_none_are_refused,
    answer_checks.one_action_is_enough,
    answer_checks.variables_and_rewards_that_never_change_do_no_harm,
)

# The first ones are needed to judge the others.
_OF_A_LOG: tuple[Check, ...] = (
    habits.set_params_changes_parameters_and_refuses_unknown_ones,
    habits.a_question_before_fit_is_refused,
    habits.fit_returns_the_learner,
    habits.parameters_are_stored_untouched,
    habits.a_clone_has_the_same_parameters_and_has_learnt_nothing,
    *_ANSWERS,
    habits.fit_again_forgets_what_was_learnt,
    habits.a_refused_fit_loses_nothing,
    habits.an_action_never_tried_is_minus_infinity_and_never_chosen,
    habits.one_transition_is_enough,
    habits.the_units_of_the_states_do_no_harm,
    worked_out.a_final_reward_counts_once_and_is_discounted_on_the_way,
    worked_out.a_reward_for_ever_is_worth_its_discounted_sum,
)

_OF_ACTING: tuple[Check, ...] = (
    online_checks.set_params_returns_the_learner_and_refuses_unknown_parameters,
    online_checks.it_acts_and_answers_before_it_has_learnt,
    habits.parameters_are_stored_untouched,
    online_checks.a_clone_has_the_same_parameters_and_knows_no_more_than_a_new_learner,
    *_ANSWERS,
    online_checks.the_same_random_state_gives_the_same_behaviour,
    online_checks.a_refused_observation_loses_nothing,
    online_checks.it_finds_the_action_that_is_paid,
    online_checks.a_final_reward_counts_once_and_is_discounted_on_the_way_to_it,
    online_checks.a_reward_at_every_step_is_worth_its_discounted_sum,
)


def checks_for(learner: Any) -> tuple[Check, ...]:
    """Return the checks that a learner must pass: it learns from a log by ``fit``, or by ``act`` and ``observe``."""
    if isinstance(learner, type) or not (hasattr(learner, "fit") or is_online(learner)):
        raise TypeError(
            f"check_learner needs a learner with fit, or with act and observe, such as KBSF(), but it got {learner!r}."
        )
    return _OF_ACTING if is_online(learner) else _OF_A_LOG


def check_learner(learner: Any) -> None:
    """Run every check on copies of a learner; return None, or raise an AssertionError that names the first failure.

    The learner must accept states of two variables, any number of actions and at least one transition.  It must
    distinguish states that are 1000 units, or seven standard deviations, apart; if it learns only while acting, states
    in the unit square.  If ``predict`` does not choose the best of ``q_values``, the learner's ``chooses_by`` must name
    the method whose best column it chooses, such as "votes" for a committee.

    >>> from kbrl import KBRL, check_learner
    >>> check_learner(KBRL())
    """
    for check in checks_for(learner):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", KbrlWarning)  # such as: fewer states than representative states
                check(learner)
        except Exception as error:
            sentence = check.__name__.replace("_", " ")
            reason = str(error).strip() or type(error).__name__
            raise AssertionError(f"{learner!r} fails the check that {sentence!r}: {reason}") from error
