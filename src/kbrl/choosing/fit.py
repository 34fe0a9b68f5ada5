"""The front door: a log in, a model out, with everything chosen that is not given."""

from __future__ import annotations

from typing import Any

from kbrl.choosing.automatic_fit import CHOSEN, fit_automatically
from kbrl.data.transitions import Transitions
from kbrl.learners.kbsf import KBSF
from kbrl.learners.matching_log import opened
from kbrl.logs.log import Log, Mapped
from kbrl.model.model import Model
from kbrl.notebooks import Phase


def fit(log: Any, *, columns: Mapped = None, phase: Phase | None = None, **settings: Any) -> Model:
    """Learn a model from a log, as the command ``kbrl fit`` does, and return it.

    log: Transitions, an opened log (`open_log`), or a frame, a mapping of columns, the path of a file or of a folder,
        which are read twice and never held; ``columns`` are as for `open_log`.
    phase: phase(name, n_rows) returns a progress callback; `progress` makes one.
    settings: those of `KBSF` that you want to decide yourself, such as discount=0.95 or order=0.

    What is not given is chosen from the data: averages or lines and plans, by rehearsal in held-out episodes; the
    number of representative states; widths; and which state variables count in distances.  `fit_automatically` also
    returns how it was chosen.

    >>> import kbrl
    >>> from kbrl.tasks import PuddleWorld
    >>> log = PuddleWorld().collect(2000, random_state=0)
    >>> model = kbrl.fit(log, discount=0.95, random_state=0)
    >>> model.settings.discount, model.n_samples, model.predict([[0.9, 0.2]]).shape
    (0.95, 2000, (1,))
    """
    learner = KBSF(**settings)
    source = opened(log, columns)
    if not isinstance(source, (Log, Transitions)) and not hasattr(source, "episode_sample"):
        raise TypeError(
            f"A log is read twice here, so it must be Transitions, an opened log, a frame or a path, but it is "
            f"{type(log).__name__}. Join chunks before: kbrl.join(chunks)."
        )
    found = fit_automatically(learner, source, choose=[name for name in CHOSEN if name not in settings], phase=phase)
    return found.learnt
