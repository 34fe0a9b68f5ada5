"""kbrl: kernel-based reinforcement learning.

The public names, in the order in which data flow through the library.  Importing kbrl does no work: a name's
module is loaded when the name is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kbrl.checks import KbrlWarning as KbrlWarning
    from kbrl.checks import NotFittedError as NotFittedError
    from kbrl.choosing.automatic_fit import fit_automatically as fit_automatically
    from kbrl.choosing.two_passes import fit_log as fit_log
    from kbrl.data.transitions import Transitions as Transitions
    from kbrl.data.transitions import join as join
    from kbrl.insight.coverage import coverage as coverage
    from kbrl.insight.explanation import explain as explain
    from kbrl.learners.committee import Committee as Committee
    from kbrl.learners.exploration import Epsilon as Epsilon
    from kbrl.learners.exploration import Optimism as Optimism
    from kbrl.learners.fitted_q import FittedQ as FittedQ
    from kbrl.learners.kbrl import KBRL as KBRL
    from kbrl.learners.kbsf import KBSF as KBSF
    from kbrl.learners.learner import clone as clone
    from kbrl.learners.lspi import LSPI as LSPI
    from kbrl.learners.online import OnlineAgent as OnlineAgent
    from kbrl.learners.online import OnlineRun as OnlineRun
    from kbrl.learners.sarsa import SARSA as SARSA
    from kbrl.logs.check import check_log as check_log
    from kbrl.logs.log import load_log as load_log
    from kbrl.logs.log import open_log as open_log
    from kbrl.logs.log import read_log as read_log
    from kbrl.mdp.dynamic_programming import Solution as Solution
    from kbrl.mdp.dynamic_programming import solve as solve
    from kbrl.mdp.finite_mdp import FiniteMDP as FiniteMDP
    from kbrl.model.kernels import Kernel as Kernel
    from kbrl.on_dask.fitting_on_dask import fit_on_dask as fit_on_dask
    from kbrl.report import write_report as write_report
    from kbrl.storage.model_file import load_model as load_model
    from kbrl.storage.model_file import save_model as save_model
    from kbrl.testing import check_learner as check_learner

__version__ = "0.1.0"

_HOMES = {
    "Transitions": "kbrl.data.transitions",
    "join": "kbrl.data.transitions",
    "read_log": "kbrl.logs.log",
    "load_log": "kbrl.logs.log",
    "open_log": "kbrl.logs.log",
    "check_log": "kbrl.logs.check",
    "Kernel": "kbrl.model.kernels",
    "FiniteMDP": "kbrl.mdp.finite_mdp",
    "Solution": "kbrl.mdp.dynamic_programming",
    "solve": "kbrl.mdp.dynamic_programming",
    "KBRL": "kbrl.learners.kbrl",
    "KBSF": "kbrl.learners.kbsf",
    "LSPI": "kbrl.learners.lspi",
    "FittedQ": "kbrl.learners.fitted_q",
    "SARSA": "kbrl.learners.sarsa",
    "Committee": "kbrl.learners.committee",
    "OnlineAgent": "kbrl.learners.online",
    "OnlineRun": "kbrl.learners.online",
    "Epsilon": "kbrl.learners.exploration",
    "Optimism": "kbrl.learners.exploration",
    "clone": "kbrl.learners.learner",
    "fit_log": "kbrl.choosing.two_passes",
    "fit_automatically": "kbrl.choosing.automatic_fit",
    "coverage": "kbrl.insight.coverage",
    "explain": "kbrl.insight.explanation",
    "fit_on_dask": "kbrl.on_dask.fitting_on_dask",
    "write_report": "kbrl.report",
    "check_learner": "kbrl.testing",
    "save_model": "kbrl.storage.model_file",
    "load_model": "kbrl.storage.model_file",
    "NotFittedError": "kbrl.checks",
    "KbrlWarning": "kbrl.checks",
}

__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'kbrl' has no attribute {name!r}; its names are {', '.join(_HOMES)}")


def __dir__() -> list[str]:
    return sorted(__all__)
