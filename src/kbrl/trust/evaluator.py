"""`PolicyEvaluator`: sums of a log, for one policy or several, chunk by chunk or site by site.

Sites that share a first evaluator (its features and blocks) can add up their sums instead of their patients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError

from kbrl.arrays import Array, Floats
from kbrl.checks import in_unit_interval, whole
from kbrl.data.names import UNNAMED, Source
from kbrl.data.survey import Survey, survey
from kbrl.data.transitions import Transitions, as_log
from kbrl.learners.matching_log import opened
from kbrl.logs.log import Mapped
from kbrl.threads import one_blas_thread
from kbrl.trust.block_sums import BlockSums, Seen, accumulate, add_residuals
from kbrl.trust.estimates import Evidence, solve_system
from kbrl.trust.features import Features, choose_features
from kbrl.trust.policy_answers import Answers, PolicyAnswers, Remembered, as_answers, labels_with, shared_discount
from kbrl.trust.trajectories import Stretch, Trajectories

N_BLOCKS = 20
CHUNK_ROWS = 16384
MOST_BYTES = 2e9  # of the sums
LARGEST_VALUE = 1e70  # of returns: sums of their fourth powers are numbers
_MEMORY_SMOOTHING = 0.01  # lambda of the values behind the TD errors: smoothing itself leaves errors with a memory


@dataclass(frozen=True, eq=False)
class Frame:
    """What sums refer to: sums that refer to the same add up."""

    features: Features
    action_labels: Array  # (n_actions,)
    discount: float
    n_blocks: int
    names: tuple[str, ...]  # of the policies
    source: Source = UNNAMED  # the names of the state variables

    def differences(self, other: Frame) -> list[str]:
        """Return in what two differ."""
        same = {
            "representative states": self.features.same_as(other.features),
            "actions": self.action_labels.tolist() == other.action_labels.tolist(),
            "discount": self.discount == other.discount,
            "number of blocks": self.n_blocks == other.n_blocks,
            "names of the policies": self.names == other.names,
        }
        return [name for name, is_same in same.items() if not is_same]


class PolicyEvaluator:
    """Sums per block of episodes, for one policy or several by name.

    policies: a Model, a learner, a committee, or a function from states, (n, n_dims), to labels, (n,), or to
        probabilities, (n, n_actions); or a dict of them.
    discount: the value of a reward of 1 one step later; by default that of the policies, which must have the same.
    n_reps: the number of representative states that judging uses; by default as many as the rows carry, up to 200, and
        no more than 400 pairs of a state and an action, so that memory is bounded.
    n_blocks: of episodes.  Fewer than two episodes per block give no verdict.
    like: another evaluator, whose representative states, blocks, actions and discount are used.

    ``fit(log)`` takes Transitions, an opened log or a frame; ``partial_fit(chunk)`` takes rows that follow those
    before, and ``finish()`` says that no more will come.  Evaluators of different episodes add up.

    >>> from kbrl import PolicyEvaluator
    >>> from kbrl.tasks import PuddleWorld
    >>> log = PuddleWorld().collect(2000, random_state=0)
    >>> both = PolicyEvaluator({"up": lambda states: [0] * len(states)}, discount=0.99).fit(log)
    >>> first = PolicyEvaluator({"up": lambda states: [0] * len(states)}, like=both)
    >>> other = PolicyEvaluator({"up": lambda states: [0] * len(states)}, like=both)
    >>> half = log.episodes % 2 == 0
    >>> added = first.fit(log[half]) + other.fit(log[~half])
    >>> added.n_episodes == both.n_episodes, bool(abs(added.sums.returns - both.sums.returns).max() < 1e-9)
    (True, True)
    """

    def __init__(
        self,
        policies: Any,
        *,
        discount: float | None = None,
        n_reps: int | None = None,
        n_blocks: int = N_BLOCKS,
        like: PolicyEvaluator | None = None,
    ) -> None:
        named = dict(policies) if isinstance(policies, Mapping) else {"policy": policies}
        if not named:
            raise ValueError("A PolicyEvaluator needs at least one policy, but it got none.")
        self.policies, self.n_reps = named, n_reps
        self.n_blocks = whole(n_blocks, "n_blocks", at_least=2)
        self.frame: Frame | None = None
        self.sums: BlockSums | None = None
        self.decisions: Floats | None = None  # (P, m, A): what the policies do at the representative states
        if like is not None:
            known = like.checked_frame()
            self.frame = replace(known, names=tuple(named))
            self.n_blocks, discount = known.n_blocks, known.discount if discount is None else discount
        self.discount = in_unit_interval(shared_discount(named, discount), "discount")
        if self.frame is not None and self.discount != self.frame.discount:
            raise ValueError(f"like= has the discount {self.frame.discount:g}, but {self.discount:g} was asked for.")
        self._trajectories: Trajectories | None = None
        self.remembered: Remembered | None = None  # what the first policy answered, if a whole log was added up

    @property
    def n_episodes(self) -> int:
        """The number of episodes behind the sums."""
        return 0 if self.sums is None else int(self.sums.n_episodes.sum())

    def checked_frame(self) -> Frame:
        """Return what the sums refer to; refuse an evaluator that has seen no data."""
        if self.frame is None:
            raise ValueError("This PolicyEvaluator has seen no data yet. Call fit with a log first.")
        return self.frame

    def fit(self, log: Any, *, columns: Mapped = None, step: Callable[[int], Any] | None = None) -> PolicyEvaluator:
        """Forget what was added up, and add up a log: Transitions, an opened log, a list of chunks, a frame or a file.

        A frame or a file is read as the model of the first policy needs it; ``columns`` are as for `judge`.
        """
        log = opened(log, columns, policy=next(iter(self.policies.values())))
        self.sums = None
        self._trajectories = None
        self.remembered = Remembered()
        if self.frame is None:
            self.set_frame(survey(chunks_of(log)))
        for chunk in chunks_of(log):
            self.partial_fit(chunk)
            if step is not None:
                step(len(chunk))
        return self.finish()

    def set_frame(self, seen: Survey) -> None:
        """Choose representative states and actions by a survey of the log."""
        labels = seen.action_labels
        for policy in self.policies.values():
            labels = labels_with(labels, policy)
        features = choose_features(seen, self.n_reps)
        _refuse_large(features.n_reps, len(labels), self.n_blocks, 1 + len(self.policies))
        self.frame = Frame(features, labels, self.discount, self.n_blocks, tuple(self.policies), seen.source)

    def partial_fit(self, chunk: Transitions) -> PolicyEvaluator:
        """Add rows that follow those before; the last one waits for the next rows, or for ``finish``."""
        _refuse_huge(as_log(chunk).rewards, self.discount)
        if self.frame is None:
            self.set_frame(survey([chunk]))
        frame = self.checked_frame()
        chunk = chunk.in_order_of(frame.source).with_actions(frame.action_labels)
        if self._trajectories is None:
            self._trajectories = Trajectories(frame.features.coordinates.scale, frame.discount)
        for piece in chunk.chunks(CHUNK_ROWS):
            self._add(self._trajectories.add(piece))
        return self

    def finish(self) -> PolicyEvaluator:
        """Count the last row, whose episode was cut there if it did not end."""
        if self._trajectories is not None:
            self._add(self._trajectories.finish())
            self._trajectories = None
        return self

    def answers(self) -> list[PolicyAnswers]:
        """Return the policies with their answers as places among the labels."""
        frame = self.checked_frame()
        return [as_answers(policy, frame.action_labels, frame.source) for policy in self.policies.values()]

    def _add(self, stretches: Iterable[Stretch]) -> None:
        frame, policies = self.checked_frame(), self.answers()
        if self.sums is None:
            shape = (frame.n_blocks, len(frame.action_labels), frame.features.n_reps, len(policies))
            self.sums = BlockSums.empty(*shape)
            self.decisions = np.stack([_decisions(policy, frame) for policy in policies])
        asked: list[Callable[[Floats], Answers]] = list(policies)
        if self.remembered is not None:
            asked[0] = self.remembered.told(policies[0])
        for stretch in stretches:
            with one_blas_thread():
                self._add_stretch(self.sums, Seen.of(stretch, frame.features, frame.n_blocks), asked)

    def _add_stretch(self, sums: BlockSums, seen: Seen, policies: list[Callable[[Floats], Answers]]) -> None:
        accumulate(sums, seen, policies, self.discount)
        theta = self._values_so_far()
        if theta is not None and seen.stretch.n_counted > 1:
            add_residuals(sums, seen, theta, self.discount)

    def _values_so_far(self) -> Floats | None:
        assert self.sums is not None
        if self.sums.n_episodes.sum() == 0:
            return None
        try:
            system = Evidence(self.sums, self.discount).system(now=True)
            return solve_system(system, _MEMORY_SMOOTHING, self.discount).theta
        except LinAlgError:
            return None

    def __add__(self, other: PolicyEvaluator) -> PolicyEvaluator:
        """Return an evaluator of the episodes of both, which must refer to the same."""
        mine, theirs = self.finish(), other.finish()
        if mine.sums is None or theirs.sums is None:
            raise ValueError("An evaluator that has seen no data has nothing to add. Call fit with a log first.")
        _check_addable(mine, theirs)
        result = PolicyEvaluator(self.policies, like=self)
        result.sums, result.decisions = mine.sums + theirs.sums, mine.decisions
        return result


def _refuse_huge(rewards: Floats, discount: float) -> None:
    """Refuse rewards whose sums are too large for what the checks need: fourth powers."""
    largest = float(np.abs(rewards).max(initial=0.0))
    if largest > LARGEST_VALUE * (1.0 - discount):
        raise ValueError(
            f"Rewards must be smaller than {LARGEST_VALUE * (1.0 - discount):.3g} in size to be judged with a discount "
            f"of {discount:g}, but one is {largest:.3g}. Divide them all by the same number."
        )


def _refuse_large(n_reps: int, n_actions: int, n_blocks: int, n_products: int) -> None:
    """Refuse sums that would not fit into memory: one product of all pairs per block, for each policy and practice."""
    n_bytes = 8.0 * n_products * n_blocks * (n_reps * n_actions) ** 2
    if n_bytes > MOST_BYTES:
        raise ValueError(
            f"Judging would keep {n_bytes / 1e9:.3g} GB of sums for {n_reps} representative states and {n_actions} "
            f"actions, and they may have {MOST_BYTES / 1e9:g} GB. Ask for fewer n_reps, n_blocks or policies, or put "
            f"actions such as amounts into a few classes."
        )


def _check_addable(one: PolicyEvaluator, other: PolicyEvaluator) -> None:
    different = one.checked_frame().differences(other.checked_frame())
    if not different and not np.allclose(one.decisions, other.decisions, atol=1e-9):  # type: ignore[arg-type]
        different = ["decisions of the policies at the representative states"]
    if different:
        raise ValueError(
            f"Sums can be added only if they are alike, but these differ in: {', '.join(different)}. Make all of "
            f"them like the first (like=, --like), with the same policy."
        )
    assert one.sums is not None
    assert other.sums is not None
    if np.array_equal(one.sums.returns, other.sums.returns) and np.array_equal(one.sums.weight, other.sums.weight):
        raise ValueError("These sums are the same: their episodes would count twice. Add sums of different episodes.")


def _decisions(policy: PolicyAnswers, frame: Frame) -> Floats:
    """Return the probability of each action at each representative state, (m, A); 0 where the policy defers."""
    answers: Answers = policy(frame.features.coordinates.back(frame.features.reps))
    table = np.zeros((frame.features.n_reps, len(frame.action_labels)))
    is_own = answers.actions >= 0
    table[answers.rows[is_own], answers.actions[is_own]] = answers.weights[is_own]
    return table


def chunks_of(log: Any) -> Iterable[Transitions]:
    """Return the chunks of Transitions, of an opened log, or of a list of them."""
    if isinstance(log, Transitions):
        return log.chunks(CHUNK_ROWS)
    if hasattr(log, "chunks"):
        return log.chunks()
    if not isinstance(log, Iterable) or isinstance(log, Iterator):
        raise TypeError(
            f"A log is read more than once here, so it must be Transitions, an opened log (open_log) or a list of "
            f"chunks, but it is {type(log).__name__}."
        )
    return log
