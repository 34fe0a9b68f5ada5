"""The page and the picture of the learning table, made from its rows alone.

Who earned what, in what time, and where order 1 loses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from experiments.drawing import new_figure
from experiments.power_tasks import TASKS
from experiments.study import Row, by_seed, distinct, select

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = ("order 0", "kbrl fit", "order 1", "fitted Q", "LSPI")
OF_ORDER_1 = ("order 1", "kbrl fit")
PANELS = 5  # of the picture, in a row
AS_GOOD = 0.03  # of the best return, in absolute value: what counts as as good


def page(rows: list[Row]) -> str:
    """Return the page in Markdown."""
    rows = _of_one_study(rows)
    tasks = [task for task in TASKS if select(rows, task=task)]
    parts = [
        "# Returns on public tasks, against other learners",
        "",
        f"Every method learns from the same logs, {_counted(rows, tasks)}. The table says what it then earns in the",
        "real task: mean over logs, +- its standard error. [How it was measured](#how-it-was-measured) explains rows",
        "and columns.",
        "",
        "## Returns",
        "",
        *_table(rows, tasks, ["as logged", *METHODS], _return),
        f"| within {AS_GOOD:.0%} of the best | | {' | '.join(_standings(rows, tasks))} |",
        "",
        "## Where order 1 loses",
        "",
        "With two or three logs, even a difference of more than twice its standard error is a hint, not a proof.",
        "",
        *_wrapped(_losses(rows, tasks)),
        "",
        "## CPU seconds of one fit",
        "",
        "On one thread. Those of order 0 and kbrl fit include choosing the settings, and reading the log from a file.",
        "",
        *_table(rows, tasks, METHODS, _seconds),
        "",
        "## What rehearsal chose",
        "",
        *_wrapped([f"- {TASKS[task].title}: {_choices(select(rows, task=task))}." for task in tasks]),
        "",
        "## How it was measured",
        "",
        *_METHOD,
        "",
        *(f"- **{task}**: {TASKS[task].title}." for task in tasks),
        "",
        f"Load of the machine before the jobs: {_load(rows)}. `make figures ONLY=power` makes this page;",
        "`experiments/power.py` has the settings, `power_tasks.py` the tasks, `results/rows/` the rows, and",
        "`results/power.png` a picture.",
        "",
    ]
    return "\n".join(parts)


_METHOD = """The columns are

- **as logged**: what those did who are in the log, without learning.
- **order 0**: KBSF as the paper has it, with the number of representative states and both widths chosen from the data.
- **kbrl fit**: the command out of the box. It chooses between orders 0 and 1, plans and widths by rehearsal.
- **order 1**: `KBSF(order=1, n_reps=1000, reps="spread")`, lines and plans with their defaults; nothing is chosen.
- **fitted Q**: 50 iterations, 30 extra-trees; the cuts are kept after iteration 10. `min_split`, and whether each
  action has an ensemble of its own, are the best of four on one other log of the task, with 10 trees.
- **LSPI**: 200 representative states, normalised kernels; the width is the best of four on one other log of the task.

The settings of fitted Q and LSPI were chosen by their true return (`experiments/power_search.py`), which is an
advantage: whoever has only a log does not know it. Those for the lander were not searched. kbrl fit chooses from the
log alone.

Logs have 20 000 steps unless said otherwise. They are of random actions, or of people who are neither good nor random.
All policies are tested in the same 20 episodes of the real task. A figure is the mean over logs of the mean return,
with the standard error of that mean over logs, which is rough where logs are few and missing where there is one.
Returns are sums of rewards, in the puddle world discounted as in the paper.

Random actions from the usual starts of MountainCar and Acrobot hardly ever reach the goal. So logs of MountainCar
start with any place and speed, and logs of Acrobot have no time limit; tests are as usual. The tasks are
""".splitlines()


def draw(rows: list[Row]) -> Figure:
    """Draw the returns of all methods, one panel per task, with two standard errors on either side."""
    rows = _of_one_study(rows)
    tasks = [task for task in TASKS if select(rows, task=task)]
    names = ["as logged", *METHODS]
    n_columns = min(PANELS, len(tasks))
    figure, panels = new_figure(-(-len(tasks) // n_columns), n_columns, width=2.2, height=2.4)
    for axes in panels.flat[len(tasks) :]:
        axes.set_axis_off()
    for axes, task in zip(panels.flat, tasks):
        for place, name in enumerate(names):
            found = [row["return"] for row in select(rows, task=task, method=name)]
            if found:
                mean, error = _mean_and_error(found)
                color = "#0072B2" if name in OF_ORDER_1 else "#555555"
                axes.errorbar(mean, -place, xerr=0.0 if np.isnan(error) else 2 * error, fmt="o", color=color, capsize=3)
        axes.set(title=task, xlabel="return", ylim=(0.5 - len(names), 0.5))
        axes.set_yticks([-place for place in range(len(names))], names if axes in panels[:, 0] else [""] * len(names))
        axes.locator_params(axis="x", nbins=4)
    return figure


def _of_one_study(rows: list[Row]) -> list[Row]:
    """Return the rows of the present study: an older one did not tell learners apart, and had fewer tasks."""
    present = [row for row in rows if "learners" in row]
    return present or rows


class Difference(NamedTuple):
    """How much more one method earned than another on the same logs."""

    mean: float
    error: float  # standard error; NaN for one log


def difference(rows: list[Row], method: str, other: str) -> Difference:
    """Compare two methods log by log, in the rows of one task."""
    ours, theirs = (by_seed(select(rows, method=name), "return") for name in (method, other))
    return Difference(*_mean_and_error([ours[seed] - theirs[seed] for seed in ours if seed in theirs]))


def _mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    error = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")
    return float(np.mean(values)), error


def _table(rows: list[Row], tasks: list[str], methods: Sequence[str], cell: Callable[[list[Row]], str]) -> list[str]:
    lines = [["task", *methods], ["---"] + ["--:"] * len(methods)]
    lines += [[task, *(cell(select(rows, task=task, method=name)) for name in methods)] for task in tasks]
    return [f"| {' | '.join(line)} |" for line in lines]


def _return(rows: list[Row]) -> str:
    if not rows:
        return "-"
    mean, error = _mean_and_error([row["return"] for row in rows])
    return _short(mean) if np.isnan(error) else f"{_short(mean)} +- {_short(error)}"


def _seconds(rows: list[Row]) -> str:
    return f"{np.mean([row['cpu_seconds'] for row in rows]):.2f}" if rows else "-"


def _short(value: float) -> str:
    return f"{value:.{0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2}f}"


def _means(rows: list[Row], task: str) -> dict[str, float]:
    found = {name: [row["return"] for row in select(rows, task=task, method=name)] for name in METHODS}
    return {name: float(np.mean(values)) for name, values in found.items() if values}


def _standings(rows: list[Row], tasks: list[str]) -> list[str]:
    """Count, for each method, the tasks on which it is as good as the best."""
    counts: Counter[str] = Counter()
    for task in tasks:
        means = _means(rows, task)
        best = max(means.values())
        counts.update(name for name, mean in means.items() if mean >= best - AS_GOOD * abs(best))
    return [f"{counts[name]} of {len(tasks)}" for name in METHODS]


def _losses(rows: list[Row], tasks: list[str]) -> list[str]:
    """Say of every task on which a method with order 1 earned less than another one how much, and how surely."""
    lines = []
    for task in tasks:
        means = _means(rows, task)
        others = [name for name in means if name not in OF_ORDER_1]
        if not others:
            continue
        best = max(others, key=lambda name: means[name])
        lines += [
            f"- {TASKS[task].title}: {name} earns {_short(means[name])}, {best} {_short(means[best])}; "
            f"{_how_sure(difference(select(rows, task=task), name, best))}."
            for name in OF_ORDER_1
            if name in means and means[name] < means[best]
        ]
    return lines or ["On none of these tasks did order 0 or another learner earn more, on average over the logs."]


def _how_sure(found: Difference) -> str:
    if np.isnan(found.error):
        return "one log decides nothing"
    text = f"log by log the difference is {_short(found.mean)} +- {_short(found.error)}"
    is_clear = found.mean < -2 * found.error
    return f"{text}, more than twice its standard error" if is_clear else f"{text}, which may be chance"


def _choices(rows: list[Row]) -> str:
    counts = Counter(row["chosen"] for row in select(rows, method="kbrl fit"))
    return "; ".join(f"{name} ({n})" for name, n in counts.most_common()) or "not run"


def _wrapped(items: list[str]) -> list[str]:
    """Break the items of a list into lines of a page."""
    return [line for item in items for line in wrap(item, 120, subsequent_indent="  " * item.startswith("- "))]


def _counted(rows: list[Row], tasks: list[str]) -> str:
    numbers = [len(distinct(select(rows, task=task), "seed")) for task in tasks]
    few, many = min(numbers), max(numbers)
    text = str(few) if few == many else f"{few} to {many}"
    scale = ", ".join(distinct(rows, "scale"))
    return f"{text} per task (scale {scale})"


def _load(rows: list[Row]) -> str:
    loads = distinct(rows, "load_before")
    return f"{loads[0]:.1f} to {loads[-1]:.1f}" if loads else "not known"
