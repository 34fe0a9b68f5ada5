"""The settings of the rivals in the learning table: the best of four on one other log of each task.

``python -m experiments.power_search`` prints the return of each, and of each method the best; they are copied into
`experiments.power` by hand.  Names of tasks as arguments: only those.
"""

from __future__ import annotations

import sys
import warnings

from experiments.power import N_EPISODES, SIZES, least_squares, tested, trees
from experiments.power_tasks import TASKS
from kbrl.checks import KbrlWarning

SEED = 1000  # of a log that is not in the table
N_TREES = 10  # fewer than in the table: the order of the settings needs no more
WIDTHS = (0.02, 0.1, 0.3, 1.0)
# nodes with fewer transitions are not cut; one ensemble per action, or one for all
FORESTS = ((5, True), (20, True), (50, True), (20, False))


def search(task: str) -> None:
    """Print what each setting earns on one other log of a task."""
    log = TASKS[task].log(TASKS[task].n_steps, SEED)
    n_iterations = SIZES["laptop"].n_iterations
    learners = {f"LSPI, width {width}": least_squares(width) for width in WIDTHS}
    learners |= {
        f"fitted Q, min_split {least}, per_action {apart}": trees(
            n_iterations, n_trees=N_TREES, min_split=least, per_action=apart
        )
        for least, apart in FORESTS
    }
    for name, learner in learners.items():
        print(task, name, tested(task, N_EPISODES, SEED, learner.fit(log).predict), flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore", KbrlWarning)
    for each in sys.argv[1:] or TASKS:
        search(each)
