"""What the log says about the advice beyond the model itself: how stable it is, and whether it is better.

Blocks of sums are added up while the page looks through the log, so that resampling needs no pass of its own.
"""

from __future__ import annotations

import numpy as np

from kbrl.data.transitions import Transitions
from kbrl.insight.agreement import BlockSums, check_resamples
from kbrl.model.model import Model
from kbrl.report.inputs import Inputs
from kbrl.trust.judgement import Judgement


class Stability:
    """Resamples of the log that a model was fitted to, where they can be had; ``reason`` says why not."""

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
        if self._blocks is not None:
            self._blocks.add(chunk)

    def finished(self) -> Model:
        """Return the model with its resamples, if the log is what it was fitted to."""
        if self._blocks is None:
            return self._model
        counts = sum(block.counts for block in self._blocks.blocks)
        if not np.array_equal(counts, self._model.sums.counts):
            self.reason = (
                "The model was not fitted to this log, so that the log does not tell how stable its answers are."
            )
            return self._model
        if sum(block.counts.sum() > 0 for block in self._blocks.blocks) < 2:
            self.reason = "There are too few episodes to resample."
            return self._model
        return self._model.with_resamples(self._blocks.resampled())


def judged(inputs: Inputs) -> tuple[Judgement | None, str]:
    """Return the judgement on held-out episodes, or why there is none."""
    return None, "No episodes were held out."
