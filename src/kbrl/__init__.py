"""kbrl: kernel-based reinforcement learning.

The public names, in the order in which data flow through the library.  Importing kbrl does no work: a name's
module is loaded when the name is first used.
"""

import ast
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the one list of the public names: type checkers read it, and so does _homes
    # isort: off
    from kbrl.data.transitions import Transitions as Transitions
    from kbrl.data.transitions import join as join
    from kbrl.logs.log import read_log as read_log
    from kbrl.logs.log import load_log as load_log
    from kbrl.logs.log import open_log as open_log
    from kbrl.logs.check import check_log as check_log
    from kbrl.model.kernels import Kernel as Kernel
    from kbrl.mdp.finite_mdp import FiniteMDP as FiniteMDP
    from kbrl.mdp.dynamic_programming import Solution as Solution
    from kbrl.mdp.dynamic_programming import solve as solve
    from kbrl.learners.kbrl import KBRL as KBRL
    from kbrl.learners.kbsf import KBSF as KBSF
    from kbrl.settings import Growth as Growth
    from kbrl.settings import Plan as Plan
    from kbrl.settings import Variant as Variant
    from kbrl.settings import Solver as Solver
    from kbrl.model.model import Model as Model
    from kbrl.learners.lspi import LSPI as LSPI
    from kbrl.learners.fitted_q import FittedQ as FittedQ
    from kbrl.learners.sarsa import SARSA as SARSA
    from kbrl.learners.committee import Committee as Committee
    from kbrl.learners.online import OnlineAgent as OnlineAgent
    from kbrl.learners.online import OnlineRun as OnlineRun
    from kbrl.learners.exploration import Epsilon as Epsilon
    from kbrl.learners.exploration import Optimism as Optimism
    from kbrl.learners.learner import clone as clone
    from kbrl.choosing.fit import fit as fit
    from kbrl.choosing.automatic_fit import fit_log as fit_log
    from kbrl.choosing.automatic_fit import fit_automatically as fit_automatically
    from kbrl.trust.split import split_episodes as split_episodes
    from kbrl.trust.judge import judge as judge
    from kbrl.trust.judge import judge_sums as judge_sums
    from kbrl.trust.judge import compare as compare
    from kbrl.trust.evaluator import PolicyEvaluator as PolicyEvaluator
    from kbrl.insight.coverage import coverage as coverage
    from kbrl.insight.explanation import explain as explain
    from kbrl.insight.agreement import with_agreement as with_agreement
    from kbrl.insight.agreement import agreement as agreement
    from kbrl.on_dask.fitting_on_dask import fit_on_dask as fit_on_dask
    from kbrl.on_dask.judging_on_dask import evaluate_on_dask as evaluate_on_dask
    from kbrl.report import write_report as write_report
    from kbrl.testing import check_learner as check_learner
    from kbrl.storage.model_file import save_model as save_model
    from kbrl.storage.model_file import load_model as load_model
    from kbrl.serving.export import export_policy as export_policy
    from kbrl.storage.sums_file import save_sums as save_sums
    from kbrl.storage.sums_file import load_sums as load_sums
    from kbrl.notebooks import progress as progress
    from kbrl.checks import NotFittedError as NotFittedError
    from kbrl.checks import KbrlWarning as KbrlWarning

__version__ = "0.1.0"


def _homes() -> dict[str, str]:
    """Return the module of each public name, from the imports above."""
    with open(__file__, encoding="utf-8") as file:
        nodes = ast.walk(ast.parse(file.read()))
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    return {each.name: str(node.module) for node in imports for each in node.names if each.asname}


_HOMES = _homes()
__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'kbrl' has no attribute {name!r}; its names are {', '.join(_HOMES)}")


def __dir__() -> list[str]:
    return sorted(__all__)
