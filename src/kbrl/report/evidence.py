"""What the log says about the advice beyond the model itself: how stable it is, and whether it is better.

Blocks of sums are added up while the page looks through the log, so that resampling needs no pass of its own.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kbrl.data.episodes import EpisodePart
from kbrl.data.transitions import Transitions
from kbrl.insight.agreement import LEAST_BLOCKS, BlockSums, check_resamples
from kbrl.logs.log import Log
from kbrl.model.model import Model
from kbrl.report.inputs import Inputs
from kbrl.trust.judge import judge
from kbrl.trust.judgement import Judgement
from kbrl.trust.learnt_episodes import LearntError
from kbrl.trust.split import split_episodes


class Stability:
    """Resamples of the log that a model was fitted to, where they can be made; ``reason`` says why not."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._blocks: BlockSums | None = None
        self.reason = ""
        if model.resamples is None:
            try:
                self._blocks = BlockSums(check_resamples(model))
            except ValueError as error:
                self.reason = str(error)

    def add(self, chunk: Transitions) -> None:
        """Add rows of the log."""
        if self._blocks is None:
            return
        if self._model.held_out is not None and chunk.episodes is not None:
            is_learnt = EpisodePart(1.0 - self._model.held_out).rows(chunk)
            if not is_learnt.any():
                return
            chunk = chunk[is_learnt]
        self._blocks.add(chunk)

    def finished(self) -> Model:
        """Return the model with its resamples, if the log is what it was fitted to."""
        if self._blocks is None:
            return self._model
        counts = sum(block.counts for block in self._blocks.blocks)
        if not np.array_equal(counts, self._model.sums.counts):
            self.reason = "The model was not fitted to this log, so the log does not show how stable its answers are."
            return self._model
        if len(self._blocks.used) < LEAST_BLOCKS:
            self.reason = "There are too few episodes to resample."
            return self._model
        return replace(self._model, resamples=self._blocks.resampled())


def judged(inputs: Inputs) -> tuple[Judgement | None, str]:
    """Return the judgement on episodes that the model did not learn from, or why there is none."""
    model, log = inputs.model, inputs.log
    if model.sketch is None:
        return None, "The model's file does not say which episodes it learnt from."
    try:
        with np.errstate(divide="ignore", invalid="ignore"):  # of tiny logs, whose judgement is refused below
            found = _judgement(model, log)
    except ArithmeticError:
        return None, "There are too few episodes to judge by."
    except ValueError as error:
        return None, f"Judging is not possible here: {error}"
    if found is None:
        return None, "The model has learnt from episodes of this log, and does not say that any were held out."
    if not np.isfinite([found.gain.estimate, found.gain.low, found.gain.high]).all():
        return None, f"Judging is not possible here: {' '.join(found.refusals)}"
    return found, ""


def _judgement(model: Model, log: Log | Transitions) -> Judgement | None:
    """Judge by the whole log, or by the held-out part; None if the model has learnt from the whole log."""
    try:
        return judge(model, log)
    except LearntError:
        return None if model.held_out is None else judge(model, split_episodes(log, 1.0 - model.held_out)[1])
