"""Which jobs each claim of the paper rests on, so that a claim can be decided without running all of its figure.

A job is needed if all entries of one of the claim's filters are in its settings; None: the job has no such setting.
``alone`` stands for the job's own mark: it runs by itself because its time counts.  Jobs of readings, of correct
physics and of other sizes appear in notes and pictures, but decide nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from experiments.study import Job

Filter = dict[str, Any]


class Left(NamedTuple):
    """What is still to be run."""

    n_jobs: int
    seconds: float  # on a free machine, side by side jobs on one core


_KBSF, _KBRL, _TIMES, _TREES = ({"part": part} for part in ("KBSF", "KBRL", "times", "trees"))
_KBRL_TIMES: tuple[Filter, ...] = (_TIMES, {"part": "KBRL times"}, _KBRL | {"size": "laptop"})
_ONE_POLE, _TWO_POLES = ({"n_poles": n_poles, "gravity": "up"} for n_poles in (1, 2))
_EPILEPSY: tuple[Filter, ...] = tuple({"part": part, "source": "recordings"} for part in ("fixed", "kernels", "trees"))
_THREE_POLES = {"part": "iKBSF", "reading": "ours", "gravity": "up"}
_FITTED_Q = {"part": "FQIT", "gravity": "up"}
_TUNED: tuple[Filter, ...] = ({"method": "KBSF", "tuned": "exact"}, {"method": "SARSA", "tuned": "2^20"})
_SEARCHED: tuple[Filter, ...] = ({"method": "KBSF"}, {"method": "SARSA"})  # and what was tuned
_PLAIN: tuple[Filter, ...] = tuple(own | {"reading": None, "tuned": None} for own in _SEARCHED)

RESTS_ON: dict[str, tuple[Filter, ...]] = {
    "PW1": (_KBSF, _KBRL),
    "PW2": (_KBSF,),
    "PW3": _KBRL_TIMES,
    "PW4": (_KBSF, _KBRL),
    "PW5": _KBRL_TIMES,
    "PW6": (_KBRL,),
    "PO1": (_KBSF | _ONE_POLE,),
    "PO2": ({"part": "LSPI"} | _ONE_POLE,),
    "PO3": (_KBSF | _TWO_POLES | {"all_m": [200]}, _KBSF | _TWO_POLES | {"size": "laptop"}),
    "PO4": (_KBRL,),
    "PO5": ({"part": "LSPI", "gravity": "up", "alone": True},),
    "HI1": (_TIMES,),
    "HI2": (_KBSF, _TIMES),
    "HI3": (_TIMES | {"alone": True},),
    "HI4": ({"part": "committees"}, _TIMES),
    "HI5": (_TIMES | {"alone": True},),
    "EP1": _EPILEPSY,
    "EP2": _EPILEPSY,
    "EP3": (_TREES,),
    "IN1": ({"part": "returns"},),
    "IN2": (_TIMES,),
    "TP1": (_THREE_POLES,),
    "TP2": (_THREE_POLES, _FITTED_Q, {"part": "time of FQIT"}),
    "TP3": ({"part": "time of iKBSF"}, {"part": "time of FQIT"}),
    "TP4": ({"part": "memory"},),
    "TP5": (_THREE_POLES, _FITTED_Q | {"n_batches": 10}),
    "TP6": (_THREE_POLES,),
    "HE1": _SEARCHED,
    "HE2": (*_TUNED, *(own | {"size": "laptop"} for own in _PLAIN)),
    "HE3": tuple(own | {"alone": True} for own in _PLAIN),
    **{f"TH{k}": ({},) for k in range(1, 6)},
}


def rests_on(claim: str, job: Job) -> bool:
    """Return whether a claim is judged by the rows of this job of its figure.

    >>> rests_on("IN2", Job({"part": "times"}, 0, alone=True)), rests_on("IN1", Job({"part": "times"}, 0, alone=True))
    (True, False)
    """
    return fits(job, RESTS_ON[claim])


def fits(job: Job, filters: Iterable[Filter]) -> bool:
    """Return whether all entries of one of the filters are in the job's settings."""
    facts = job.settings | {"alone": job.alone}
    return any(all(facts.get(name) == value for name, value in own.items()) for own in filters)
