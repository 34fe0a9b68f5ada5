"""Commands that ask a model: predict, for all states of a table, and explain, for one state."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kbrl.cli.console import HeadedCommand, data_output, print_table, row_progress, say
from kbrl.cli.opening import columns_in, open_for, parse_state, variables
from kbrl.cli.options import (
    FILE,
    check_output,
    dialect_options,
    given,
    json_option,
    log_argument,
    log_column_options,
    model_argument,
    quiet_option,
    refuse_input_as_output,
    source_of,
)

if TYPE_CHECKING:
    from kbrl.data.recipe import Recipe
    from kbrl.insight.explanation import ActionExplanation, Case, Explanation
    from kbrl.logs.state_tables import StateRows
    from kbrl.logs.writing import Piece
    from kbrl.model.model import Model


@click.command(cls=HeadedCommand)
@model_argument
@log_argument
@click.option(
    "-o",
    "--output",
    type=FILE,
    help="File to write: .csv, .parquet, .arrow or .npz. Default: CSV to standard output.",
)
@click.option("--state", help="Columns of the state, if they differ from those that the model was fitted to.")
@click.option("--keep", help="Columns of the LOG to copy into the answers, as in patient,visit.")
@click.option(
    "--digits", default=6, show_default=True, type=click.IntRange(1, 17), help="Digits of numbers in CSV; 17 is exact."
)
@click.option("--for-spreadsheet", is_flag=True, help="Write CSV in which no label is run as a formula: '=... for =...")
@dialect_options
@json_option
@quiet_option
def predict(
    model: str,
    log: tuple[str, ...],
    output: Path | None,
    state: str | None,
    keep: str | None,
    digits: int,
    for_spreadsheet: bool,
    as_json: bool,
    quiet: bool,
    **dialect: str | None,
) -> None:
    """Print the best action for each row of a LOG.

    The LOG needs only the columns of the state.  A row that cannot be answered, for example because a value is missing
    and the model has no rule for it, has an empty answer and a reason.  The columns of the answers are:

    \b
    row        counted from 0 over the whole LOG, without headers
    action     the best action
    value      what is expected from the state on; q_LABEL is this value for
               each action, -inf if the action is not available
    distance   to the nearest representative state, in units of the scale
    support    about how many logged cases of the action there are around the
               state; nan if the model file does not tell
    log_mass   the log of the kernel sums, which is not a number of cases
    agreement  share of resampled logs with the same answer, if the MODEL
               knows it (kbrl fit --agreement)
    reason     why there is no answer

    For the answer "as now" of a model that defers, support and log_mass are those of all actions together.

    CSV holds the labels as they are.  A spreadsheet program runs a label that starts with =, +, - or @ as a formula: if
    you do not know who wrote the labels, use --for-spreadsheet.

    Example: kbrl predict model.kbrl new.csv -o answers.csv
    """
    from kbrl.learners.matching_log import names_by_role
    from kbrl.logs.state_tables import read_states
    from kbrl.storage.model_file import read_model
    from kbrl.tables.formats import open_table
    from kbrl.tables.text_files import dialect_in

    refuse_input_as_output(output, model, *log)
    saved = read_model(model)
    table = open_table(source_of(log), dialect_in(names_by_role(saved.columns) | (given(dialect) or {})))
    columns = state or columns_in(table.names, saved)
    kept = [name.strip() for name in keep.split(",")] if keep else []
    with _answers_to(output, as_json, digits, for_spreadsheet) as write, row_progress(quiet) as phase:
        n_rows, n_empty, count = 0, 0, phase("answering", 0)
        for rows in read_states(table, state=columns, recipe=saved.model.source.recipe, keep=kept):
            answers = _answers(saved.model, rows, n_rows)
            _refuse_hidden(rows.kept, answers)
            write({**rows.kept, **answers})
            n_rows += len(rows.states)
            n_empty += int((answers["reason"] != "").sum())
            count(len(rows.states))
    if n_empty:
        click.echo(f"{n_empty} of {n_rows} rows have no answer; the column reason says why.", err=True)
    if output is not None:
        say(f"{output}: {n_rows} answers.")


@click.command(cls=HeadedCommand)
@model_argument
@click.option(
    "--state", "state_text", required=True, metavar="VALUES", help="The state, for example 0.2,0.4 or x=0.2,y=0.4."
)
@click.option("--log", multiple=True, type=click.Path(), help="The log that the model was fitted to; may be repeated.")
@click.option("--cases", default=10, show_default=True, type=click.IntRange(1), help="Number of cases per action.")
@log_column_options
@json_option
@quiet_option
def explain(
    model: str, state_text: str, log: tuple[str, ...], cases: int, as_json: bool, quiet: bool, **columns: str | None
) -> None:
    """Show the logged cases behind the values of one state.

    For each action, these are the cases with the largest weight in its value.  Every value is a weighted mean over
    logged cases of what each was worth: its reward plus the discounted value of its next state.  A MODEL with
    sample_neighbors has kept the outcomes of the cases that matter.  To see the rows of the cases, or for other models,
    give the log that the model was fitted to.  Its columns are those that the MODEL was fitted to, unless others are
    named.  Rows are counted from 0 over the whole log, without headers.

    Example: kbrl explain model.kbrl --state x=0.2,y=0.4 --log log.csv
    """
    from kbrl.insight.explanation import explain as explained
    from kbrl.storage.model_file import read_model

    saved = read_model(model)
    state = parse_state(state_text, saved)
    if given(columns) and not log:
        raise click.UsageError("Options that name columns need --log LOG, which was not given.")
    opened = open_for(saved, log, given(columns) or {}) if log else None
    with row_progress(quiet) as phase:
        count = phase("weighing cases", opened.n_rows if opened else 0)
        found = explained(saved.model, state, log=opened, n_cases=cases, step=count)
    if as_json:
        click.echo(json.dumps({"variables": variables(saved)} | found.to_dict(), indent=2, default=str))
    else:
        _print_explanation(found, variables(saved), saved.model.recipe)


def _refuse_hidden(kept: Piece, answers: Piece) -> None:
    """Refuse columns of a log that have the name of a column of the answers: only one of the two could be written."""
    hidden = [name for name in kept if name in answers]
    if hidden:
        raise click.UsageError(
            f"--keep names {hidden[0]!r}, but the answers have a column of this name. Rename it in the LOG."
        )


@contextmanager
def _answers_to(
    output: Path | None, as_json: bool, digits: int, for_spreadsheet: bool
) -> Iterator[Callable[[Piece], None]]:
    """Yield a function that writes answers to a file, or to standard output."""
    from kbrl.logs.writing import csv_writer, table_writer

    is_csv = not as_json if output is None else output.suffix.lower() == ".csv"
    if for_spreadsheet and not is_csv:
        raise click.UsageError("--for-spreadsheet is about CSV. Other formats hold no formulas.")
    if output is None:
        yield _write_json if as_json else _as_cells(csv_writer(data_output(), digits=digits), for_spreadsheet)
        return
    if as_json:
        raise click.UsageError("--json prints to standard output, so it cannot be used with --output.")
    check_output(output, "A table of answers")
    with table_writer(output, "A table of answers", digits=digits) as write:
        yield _as_cells(write, for_spreadsheet) if is_csv else write


def _as_cells(write: Callable[[Piece], None], for_spreadsheet: bool) -> Callable[[Piece], None]:
    """Return a function that writes cells without formulas, or warns about the first text that looks like one."""
    from kbrl.checks import KbrlWarning
    from kbrl.logs.writing import looks_like_a_formula, without_formulas

    if for_spreadsheet:
        return lambda piece: write(without_formulas(piece))
    has_warned = False

    def write_as_is(piece: Piece) -> None:
        nonlocal has_warned
        formula = None if has_warned else next(filter(looks_like_a_formula, _texts(piece)), None)
        if formula is not None:
            has_warned = True
            message = f"A spreadsheet program runs the text {formula!r} as a formula."
            warnings.warn(f"{message} Use --for-spreadsheet if you open the file in one.", KbrlWarning, stacklevel=2)
        write(piece)

    return write_as_is


def _texts(piece: Piece) -> Iterator[Any]:
    """Yield the names of columns, and the cells of those that hold texts."""
    for name, column in piece.items():
        yield name
        if column.dtype.kind in "UO":
            yield from column.tolist()


def _answers(model: Model, rows: StateRows, first: int) -> Piece:
    """Return a table of answers, one row per state; those that cannot be answered are empty and have a reason."""
    import numpy as np

    reasons, places = rows.reasons.copy(), np.flatnonzero(rows.usable)
    q = model.q_values(rows.states[places]) if len(places) else np.empty((0, len(model.action_labels)))
    if model.source.recipe is not None and model.source.recipe.allowed:
        has_some = np.isfinite(q).any(axis=1)
        reasons[places[~has_some]] = "no action is allowed in this state, or no allowed action was taken near it"
        q, places = q[has_some], places[has_some]
    answered = _answers_for(model, rows.states[places], q) if len(places) else _no_answers(model)
    if len(places) < len(reasons):
        answered = {name: _spread(column, reasons == "") for name, column in answered.items()}
    texts = np.array([str(reason) for reason in reasons.tolist()])
    return {"row": first + np.arange(len(reasons)), **answered, "reason": texts}


def _answers_for(model: Model, states: Any, q: Any) -> Piece:
    import numpy as np

    from kbrl.insight.agreement import agreement
    from kbrl.insight.coverage import coverage
    from kbrl.mdp.dynamic_programming import best_actions

    covered = coverage(model, states)
    rows, best, labels = np.arange(len(q)), best_actions(q, where_none=None), model.answer_labels
    support, log_mass = covered.support, covered.log_mass
    if model.deferral is not None:  # "as now" rests on the cases of all actions
        support = np.column_stack([support, support.sum(axis=1)])
        log_mass = np.column_stack([log_mass, np.logaddexp.reduce(log_mass, axis=1)])
        labels = np.array([str(label) for label in labels.tolist()])  # so that a column has labels of one kind
    values = {f"q_{label}": q[:, action] for action, label in enumerate(labels.tolist())}
    return {
        "action": labels[best],
        **{name: np.append(doses, np.nan)[best] for name, doses in _doses(model).items()},  # "as now" has none
        "value": q[rows, best],
        **values,
        "distance": covered.distances,
        "support": support[rows, best],
        "log_mass": log_mass[rows, best],
        **({} if model.resamples is None else {"agreement": agreement(model, states)}),
    }


def _doses(model: Model) -> Piece:
    """Return the typical dose of each action, (n_actions,), by the column whose numbers were put into classes."""
    import numpy as np

    recipe, labels = model.source.recipe, model.action_labels.tolist()
    names = [] if recipe is None else [each.name for each in recipe.bins]
    return {
        f"{name}_dose": np.array([recipe.doses(label).get(name, np.nan) for label in labels])  # type: ignore[union-attr]
        for name in names
    }


def _no_answers(model: Model) -> Piece:
    """Return answers to no states."""
    import numpy as np

    names = [
        *_doses(model),
        "value",
        *(f"q_{label}" for label in model.action_labels.tolist()),
        "distance",
        "support",
        "log_mass",
    ]
    return {"action": model.action_labels[:0], **dict.fromkeys(names, np.empty(0))}


def _spread(column: Any, usable: Any) -> Any:
    """Return a column with an empty entry for each row that is not usable."""
    import numpy as np

    if column.dtype.kind == "f":
        result = np.full(len(usable), np.nan)
        result[usable] = column
        return np.ma.masked_array(result, ~usable)
    cells = np.full(len(usable), None, dtype=object)
    cells[usable] = column
    return cells


def _write_json(piece: Piece) -> None:
    """Print one JSON object per row; what is not available is null."""
    from math import isfinite

    for cells in zip(*(column.tolist() for column in piece.values())):
        plain = (None if isinstance(cell, float) and not isfinite(cell) else cell for cell in cells)
        click.echo(json.dumps(dict(zip(piece, plain))))


def _print_explanation(found: Explanation, names: list[str], recipe: Recipe | None) -> None:
    show = _list if recipe is None else partial(_cells, recipe)
    state = ", ".join(f"{name} = {value:g}" for name, value in zip(names, found.state))
    if recipe is not None:
        state = ", ".join(f"{name} = {_cell(cell)}" for name, cell in recipe.described(found.state).items())
    say(f"State {state}; {found.distance:.3g} from the nearest representative state, in units of the scale.")
    if found.as_now is not None:
        say(f"Answer: {found.answer}. Current practice is worth {found.as_now:.6g} here.")
    if found.agreement is not None:
        say(f"{100 * found.agreement:.0f} % of resampled logs give the same answer, {found.answer}.")
    if found.source == "outcomes":
        click.echo("The model keeps only the outcomes of cases; --log LOG also shows their rows, episodes and states.")
    for rank, action in enumerate(found.actions, start=1):
        said = f"{_caution(found, action)}{_said_dose(action, recipe)}"
        click.echo()
        say(f"{rank}. {_heading(action)}{said}")
        if action.cases:
            has_rows = found.source != "outcomes"
            head = ("row (from 0)", "episode", "state") if has_rows else ()
            rows = [(*(_whence(case, show) if has_rows else ()), *_outcome(case, show)) for case in action.cases]
            print_table((*head, "weight", "reward", "next state", "ends", "worth"), rows, right=True)
            say(_sum_up(action))


def _heading(action: ActionExplanation) -> str:
    if not action.n_taken:
        return f"{action.action}: not available, as it was never tried."
    if action.is_left_out:
        times = "once" if action.n_taken == 1 else f"{action.n_taken} times"
        return f"{action.action}: left out, as it was taken only {times} in all (see --min-cases of kbrl fit)."
    if not action.is_allowed:
        return f"{action.action}: not allowed in this state, by the rules that the model was fitted with."
    if action.value == float("-inf"):
        return f"{action.action}: not available, as nothing is known of it around this state."
    return f"{action.action}: value {action.value:.6g}, {_support(action.support)}"


def _caution(found: Explanation, action: ActionExplanation) -> str:
    """Say what a model that defers makes of an action."""
    if found.as_now is None:
        return ""
    if action.cautious_value is None:
        return "; not offered: too little support"
    return f"; {action.cautious_value:.6g} with caution, against {found.as_now:.6g} as now"


def _support(support: float) -> str:
    """Return how many logged cases a value rests on, in words."""
    if support != support:
        return "support not known: this model's file does not say how many cases there were"
    if support < 0.05:
        return f"{'hardly any' if support else 'no'} logged cases around this state"
    number = f"{support:,.0f}" if support >= 10 else f"{support:.1f}".removesuffix(".0")
    return f"rests on about {number} logged case{'' if number == '1' else 's'}"


def _said_dose(action: ActionExplanation, recipe: Recipe | None) -> str:
    """Return the typical dose of an action that is a class of numbers."""
    doses = {} if recipe is None else recipe.doses(action.action)
    return f"; typical {', '.join(f'{name} {dose:g}' for name, dose in doses.items())}" if doses else ""


def _cells(recipe: Recipe, values: tuple[float, ...]) -> str:
    return ", ".join(_cell(cell) for cell in recipe.described(values).values())


def _cell(cell: Any) -> str:
    return "(missing)" if cell is None else f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def _whence(case: Case, show: Callable[[tuple[float, ...]], str]) -> tuple[str, ...]:
    states = show(case.state or ())
    return (str(case.row), "-" if case.episode is None else str(case.episode), states)


def _outcome(case: Case, show: Callable[[tuple[float, ...]], str]) -> tuple[str, ...]:
    ends = "yes" if case.ends else "no"
    return (f"{case.weight:.4f}", f"{case.reward:.4g}", show(case.next_state), ends, f"{case.worth:.6g}")


def _list(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:.4g}" for value in values)


def _sum_up(action: ActionExplanation) -> str:
    n_rest = action.n_cases - len(action.cases)
    shown = f"Weight of the cases shown: {action.shown_weight:.4f}"
    rest = f"of the other {n_rest}: {action.rest_weight:.4f}, worth {action.rest_worth:.6g} on average"
    parts = f"{shown}; {rest}" if n_rest else shown
    total = f"{parts}; of all: {action.total_weight:.6g}"
    if not action.plan:
        return f"{total}, which gives {action.explained:.6g}."
    then = f", for the plan {', '.join(map(str, action.plan))}" if len(action.plan) > 1 else ""
    return f"{total}, worth {action.explained:.6g}. Lines through these cases give {action.value:.6g}{then}."
