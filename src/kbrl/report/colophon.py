"""The last sections of a report: how the model was made, and how to use its file."""

from __future__ import annotations

import inspect
import shlex
from typing import Any

import numpy as np

from kbrl import __version__
from kbrl.learners.kbsf import KBSF
from kbrl.mdp.dynamic_programming import method_for
from kbrl.report.blocks import paragraph, section
from kbrl.report.facts import Facts
from kbrl.report.markup import Markup, element, table
from kbrl.report.words import count, listing

MEANINGS = {
    "n_reps": "how many representative states to choose",
    "reps": "how they are chosen, or which they are",
    "sample_width": "width of the kernel around logged states",
    "rep_width": "width of the kernel around representative states",
    "sample_neighbors": "how many nearest logged states count",
    "rep_neighbors": "how many nearest representative states count",
    "discount": "what a reward counts for one step later",
    "scaling": "what each state variable is divided by",
    "random_state": "seed of the random choices",
    "profile": "shape of the kernels",
    "norm": "how distances are measured; 2: Euclidean",
    "cover_distance": "how far apart representative states of a cover are",
    "grow_distance": "how far off a state becomes a new representative state",
    "grow_below": "kernel value below which a state becomes one",
    "max_reps": "the most representative states that it may grow to",
    "terminals": "whether an end of an episode ends it",
    "aggregation": "soft: KBSF; hard: each state counts as its nearest representative state",
    "neighborhoods": "whether neighbours are counted in all data or chunk by chunk",
    "q_function": "whether answers come from representative states or from samples",
    "solver": "how the small model is solved",
    "tolerance": "how exactly it is solved",
    "sweeps": "applications of the Bellman operator, if it is not solved to the end",
    "min_cases": "how often an action must have been taken in all to be recommended; none: once",
    "n_jobs": "number of threads; none: one a core",
}


def solver(facts: Facts) -> Markup:
    """Say how well the reduced model was solved."""
    solution, reduced = facts.model.solution_, facts.model.model_
    method = method_for(reduced.mdp) if reduced.settings.solver == "auto" else reduced.settings.solver
    rows = [
        ("Method", method if reduced.settings.sweeps is None else "value iteration, a fixed number of sweeps"),
        ("Converged", "yes" if solution.converged else "no"),
        ("Iterations", count(int(solution.iterations))),
        ("Residual", f"{solution.residual:.3g}"),
        ("Largest error of a value", f"{solution.residual / (1 - reduced.discount):.3g}"),
        ("Tolerance", f"{reduced.settings.tolerance:g}"),
    ]
    text = "The values above solve the small model of the representative states"
    text += " to its tolerance." if solution.converged else ", but not to its tolerance: do not rely on them."
    note = (
        "Largest error: residual / (1 - discount), with respect to the exact solution of this model, not to the world."
    )
    return section(
        "solver",
        "Solver",
        paragraph(text),
        table("Convergence", ("Quantity", "Value"), rows, id_="convergence"),
        paragraph(note, class_="quiet"),
    )


def settings(facts: Facts) -> Markup:
    """List the settings and the facts of the model."""
    defaults = inspect.signature(KBSF.__init__).parameters
    rows = []
    for name, value in facts.model.get_params().items():
        is_default = isinstance(value, (str, int, float, type(None))) and value == defaults[name].default
        rows.append((name, _setting(value), "yes" if is_default else "no", MEANINGS.get(name, "")))
    return section(
        "settings",
        "Model and settings",
        table("The model", ("Fact", "Value"), _model_rows(facts), id_="model"),
        table("Settings", ("Name", "Value", "Default", "Meaning"), rows, id_="settings-table"),
    )


def use(facts: Facts) -> Markup:
    """Show how to go on from here, on the command line and in Python."""
    model = facts.subject.model_name or "model.kbrl"
    log = next(iter(facts.subject.log_names), "log.csv")
    state = ",".join(f"{spread.median:.6g}" for spread in facts.variables)
    commands = [
        "# recommended actions, values and coverage for every row of a log",
        f"kbrl predict {shlex.quote(model)} {shlex.quote(log)} -o answers.csv",
        "",
        "# the logged cases behind the value of each action in one state: here, at the medians",
        f"kbrl explain {shlex.quote(model)} --state={shlex.quote(state)} --log {shlex.quote(log)}",
    ]
    code = [
        "from kbrl import load_model",
        "",
        f"model = load_model({model!r})",
        f"state = [{state.replace(',', ', ')}]",
        "model.predict([state])     # the best action for each state",
        "model.q_values([state])    # one column an action, in the order of model.action_labels_",
    ]
    intro = f"A state is, in this order: {listing(list(facts.subject.variables), 60)}."
    if facts.subject.model_name is None:
        intro += " Save the model first: save_model(model, 'model.kbrl')."
    return section(
        "use",
        "Using the model",
        paragraph(intro),
        element("h3", "On the command line"),
        _code(commands, "Commands"),
        element("h3", "In Python"),
        _code(code, "Python code"),
    )


def _model_rows(facts: Facts) -> list[tuple[str, str]]:
    subject, model = facts.subject, facts.model
    basis = model.model_.basis
    rows = [
        ("File", subject.model_name or "none: an object in memory"),
        ("Written by", f"kbrl {subject.library_version}" if subject.library_version else "not saved"),
        ("Reported by", f"kbrl {__version__}"),
        ("Transitions learnt from", count(model.n_samples_)),
        ("Representative states", count(len(model.reps_))),
        ("Discount", f"{model.model_.discount:g}"),
        ("Width of the sample kernel", f"{basis.sample_kernel.width:g}"),
        ("Width of the representatives' kernel", _width(basis.rep_kernel.width)),
        ("State variables", listing(list(subject.variables), 60)),
    ]
    counts = model.statistics_.counts.tolist()
    told = [f"{label} {count(n)}" for label, n in zip(facts.labels, counts)]
    return [*rows, ("Transitions of each action", listing(told, 60))]


def _width(width: Any) -> str:
    if np.ndim(width) == 0:
        return f"{width:g}"
    return f"{np.min(width):g} to {np.max(width):g}, one a representative state"


def _setting(value: Any) -> str:
    if isinstance(value, np.ndarray):
        shape = " x ".join(map(str, value.shape))
        return str(value.tolist()) if value.size <= 8 else f"array of {shape} numbers"
    return "none" if value is None else str(value)


def _code(lines: list[str], label: str) -> Markup:
    return element("pre", element("code", "\n".join(lines)), tabindex="0", role="region", aria_label=label)
