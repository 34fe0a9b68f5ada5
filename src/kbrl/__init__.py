"""kbrl: kernel-based reinforcement learning.

The public names, in the order in which data flow through the library.  Importing kbrl does no work: a name's
module is loaded when the name is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kbrl.checks import KbrlWarning as KbrlWarning
    from kbrl.checks import NotFittedError as NotFittedError
    from kbrl.data.episodes import load_log as load_log
    from kbrl.data.episodes import open_log as open_log
    from kbrl.data.episodes import read_log as read_log
    from kbrl.data.quality import check_log as check_log
    from kbrl.data.transitions import Transitions as Transitions
    from kbrl.data.transitions import join as join
    from kbrl.learners.automatic import fit_automatically as fit_automatically
    from kbrl.learners.committee import Committee as Committee
    from kbrl.learners.coverage import coverage as coverage
    from kbrl.learners.estimator import clone as clone
    from kbrl.learners.explanation import explain as explain
    from kbrl.learners.exploration import Epsilon as Epsilon
    from kbrl.learners.exploration import Optimism as Optimism
    from kbrl.learners.fitted_q import FittedQ as FittedQ
    from kbrl.learners.kbrl import KBRL as KBRL
    from kbrl.learners.kbsf import KBSF as KBSF
    from kbrl.learners.lspi import LSPI as LSPI
    from kbrl.learners.model_file import load_model as load_model
    from kbrl.learners.model_file import save_model as save_model
    from kbrl.learners.online import OnlineAgent as OnlineAgent
    from kbrl.learners.online import OnlineRun as OnlineRun
    from kbrl.learners.sarsa import SARSA as SARSA
    from kbrl.learners.streamed import fit_log as fit_log
    from kbrl.model.finite_mdp import FiniteMDP as FiniteMDP
    from kbrl.model.kernels import Kernel as Kernel
    from kbrl.planning import Solution as Solution
    from kbrl.planning import solve as solve
    from kbrl.report import write_report as write_report
    from kbrl.testing import check_learner as check_learner

__version__ = "0.1.0"

_HOMES = {
    "Transitions": "kbrl.data.transitions",
    "join": "kbrl.data.transitions",
    "read_log": "kbrl.data.episodes",
    "load_log": "kbrl.data.episodes",
    "open_log": "kbrl.data.episodes",
    "check_log": "kbrl.data.quality",
    "Kernel": "kbrl.model.kernels",
    "FiniteMDP": "kbrl.model.finite_mdp",
    "Solution": "kbrl.planning",
    "solve": "kbrl.planning",
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
    "clone": "kbrl.learners.estimator",
    "fit_log": "kbrl.learners.streamed",
    "fit_automatically": "kbrl.learners.automatic",
    "coverage": "kbrl.learners.coverage",
    "explain": "kbrl.learners.explanation",
    "write_report": "kbrl.report",
    "check_learner": "kbrl.testing",
    "save_model": "kbrl.learners.model_file",
    "load_model": "kbrl.learners.model_file",
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
