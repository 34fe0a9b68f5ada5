"""Write a model as one Python file that needs neither kbrl nor NumPy.

The file is the source of `standalone_columns`, `standalone_plans` and `standalone_policy`, with what was learnt: the
representative states, their values or lines, scaling, labels, columns and what tells support.  So what is tested here
is what is served there.
"""

from __future__ import annotations

import ast
import base64
import json
import os
import zlib
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from kbrl.arrays import Array
from kbrl.data.expressions import Call, Constant, Node, parse
from kbrl.data.recipe import Recipe
from kbrl.data.state_column import StateColumn
from kbrl.files import written_beside
from kbrl.model.model import Model, as_model
from kbrl.model.support import NEAR_REPS, own_reach, reach, usual_slack
from kbrl.serving import standalone_columns

_PARTS = ("standalone_columns", "standalone_plans", "standalone_policy")


def export_policy(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a `Model`, or that of a learner, as one Python file that answers without kbrl.

    ``decide(state)`` of that file returns the same action as ``model.predict``, and the same values to rounding.  Run
    as a program it answers from its arguments, from standard input, or as a small web service; its head says how.
    Like a model file, it holds representative states and sums, not rows, unless the model's own settings keep rows.

    >>> import tempfile, runpy
    >>> from kbrl import KBSF, Transitions, export_policy
    >>> states = [[0.0], [0.0], [1.0], [1.0]]
    >>> log = Transitions(states, ["a", "b", "a", "b"], [1.0, 0.0, 0.0, 1.0], states)
    >>> model = KBSF(n_reps=2, min_cases=1, random_state=0).fit(log).model_
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export_policy(model, f"{folder}/policy.py")
    ...     answer = runpy.run_path(f"{folder}/policy.py")["decide"]([1.0])
    >>> answer["action"], model.predict([[1.0]])[0].item()
    ('b', 'b')
    """
    if Path(path).suffix != ".py":
        raise ValueError(f"A policy is exported as a Python file, so its name must end in .py, but it is {path}.")
    text = _source(json.dumps(facts_of(as_model(model)), allow_nan=False))
    with written_beside(path) as beside:
        beside.write_text(text, encoding="utf-8")


def facts_of(model: Model) -> dict[str, Any]:
    """Return all that an exported policy needs, ready for JSON; refuse a model that cannot be exported."""
    _check_can_export(model)
    basis, kernel = model.basis, model.basis.rep_weights.kernel
    knows_support = bool(np.isfinite(model.sums.effective_cases()).all())
    plan, arrays = _plan_facts(model)
    arrays |= {"reps": basis.reps, "widths": np.broadcast_to(np.asarray(kernel.width, float), basis.n_reps)}
    if plan is None:
        arrays["q"] = _offered(model).T
    if knows_support:
        arrays |= {"cases": model.sums.effective_cases(), "near": model.sums.nearest_distances()}
    columns = _columns(model)
    return {
        "labels": model.answer_labels.tolist(),
        "columns": columns,
        "variables": [name for column in columns for name in column["variables"]],
        "allowed": {} if model.recipe is None else _rules(model.recipe),
        "centre": model.coordinates.centre.tolist(),
        "scale": model.coordinates.scale.tolist(),
        "profile": kernel.profile,
        "norm": _norm(kernel.norm),
        "sample_norm": _norm(basis.sample_kernel.norm),
        "neighbors": kernel.neighbors,
        "reach": reach(basis) + usual_slack(basis, model.sums) if knows_support else None,
        "own_reach": own_reach(basis) if knows_support else None,
        "near_reps": NEAR_REPS,
        "least": None if model.deferral is None else model.deferral.cases,
        "plan": plan,
        "arrays": {name: _packed(array) for name, array in arrays.items()},
    }


def _check_can_export(model: Model) -> None:
    if model.settings.variant.q_function == "samples":
        raise ValueError(
            "This model answers from all its logged rows (q_function='samples'), and an exported policy holds no rows. "
            "Fit with Variant(q_function='reps') to export it."
        )
    if callable(model.basis.rep_kernel.profile):
        raise ValueError("A kernel profile that is a function of your own cannot be exported. Use a profile by name.")
    if model.look_ahead is not None and model.allowed is not None:
        raise ValueError(
            "This model looks ahead over plans whose decisions must be allowed where they are taken, which an exported "
            "policy does not work out. Fit with Plan(acting='reps') (--acting reps) to export it."
        )
    known = {*standalone_columns.KINDS}
    odd = [column for column in (() if model.recipe is None else model.recipe.columns) if column.kind not in known]
    if odd:
        raise ValueError(f"Columns of the kind {odd[0].kind!r} cannot be exported, but {odd[0].name!r} is one.")


def _offered(model: Model) -> Array:
    """Return the values at the representative states, (n_reps, n_answers); what is not offered there is "as now"."""
    q = model.answer_q
    if model.deferral is None:
        return q
    return np.where(np.isfinite(q), q, q[:, -1:])


def _plan_facts(model: Model) -> tuple[dict[str, Any] | None, dict[str, Array]]:
    """Return what looking ahead needs, as facts and arrays; nothing where answers come from representative states."""
    if model.settings.order == 0 or model.settings.plan.acting != "ahead":
        return None, {}
    plans, solution = model.plans, model.solution
    if model.deferral is not None:
        plans, solution = model.deferring_plans, model.deferring_solution
    world = plans.world
    facts = {
        "actions": plans.actions.tolist(),
        "n_actions": plans.n_actions,
        "n_decisions": plans.n_decisions,
        "n_held": plans.n_held,
        "discount": plans.discount,
        "n_near": min(plans.n_near, world.graph.shape[1]),
        "usual": world.usual,
    }
    arrays = {
        "values": solution.values,
        "graph": world.graph,
        "lines": world.lines,
        "limits": world.limits,
        "known": world.known,
        "noise": world.noise if plans.is_spread else np.zeros((0,)),
        "span": world.span,
        "circles": np.column_stack([world.circles, world.circle]),
        "behaviour": world.behaviour if len(world.behaviour) else np.zeros((0,)),
        "plan_reach": world.reach,
        "levels": world.levels,
        "offered": world.offered if len(world.offered) else np.zeros((0,)),
        "doubts": world.doubts if len(world.doubts) else np.zeros((0,)),
    }
    return facts, arrays


def _columns(model: Model) -> list[dict[str, Any]]:
    if model.recipe is None:
        names = model.source.state_names or [f"x{k}" for k in range(model.coordinates.n_dims)]
        return [_column(StateColumn(name)) for name in names]
    return [_column(column) for column in model.recipe.columns]


def _column(column: StateColumn) -> dict[str, Any]:
    """Return a column as facts, with the value that a missing one gets where no earlier row is known."""
    fill = column.fill
    shown: list[str | None] = [name.removeprefix(f"{column.name}=") for name in column.variables]
    if column.has_missing_level:
        fill = len(column.levels) + column.has_other
        shown[-1] = None
    facts = {"variables": list(column.variables), "width": len(column.variables), "shown": shown}
    return asdict(column) | facts | {"fill": fill, "why_missing": column.why_missing()}


def _rules(recipe: Recipe) -> dict[str, Any]:
    return {label: _tree(parse(text, "truth").tree) for label, text in recipe.allowed}


def _tree(node: Node) -> dict[str, Any]:
    if isinstance(node, Constant):
        return {"value": node.value}
    if isinstance(node, Call):
        return {"call": node.function, "operands": [_tree(operand) for operand in node.operands]}
    return {"column": node.name}


def _norm(norm: float) -> float | None:
    return norm if np.isfinite(norm) else None


def _packed(array: Array) -> tuple[list[int], str]:
    """Return the shape of an array and its numbers, compressed."""
    numbers = np.ascontiguousarray(array, dtype="<f8")
    return list(numbers.shape), base64.b64encode(zlib.compress(numbers.tobytes(), 6)).decode("ascii")


def _source(data: str) -> str:
    """Return the program with what was learnt: its parts one after another, imports first."""
    imports, bodies, doc = set[str](), [], ""
    for part in _PARTS:
        text = resources.files("kbrl.serving").joinpath(f"{part}.py").read_text(encoding="utf-8")
        tree, lines = ast.parse(text), text.splitlines()
        doc = ast.get_docstring(tree, clean=False) or ""
        heads = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
        imports |= {line for node in heads for line in _import_lines(node)}
        bodies.append("\n".join(lines[heads[-1].end_lineno or 0 :]).strip("\n"))
    body = "\n\n\n".join(bodies).replace('DATA = ""', f"DATA = {data!r}", 1)
    head = f'"""{doc}"""\n\nfrom __future__ import annotations\n\n' + "\n".join(sorted(imports))
    return f"{head}\n\n{body}\n"


def _import_lines(node: ast.Import | ast.ImportFrom) -> list[str]:
    """Return an import as one line per name; none for our own modules, whose text is in the same file."""
    if isinstance(node, ast.Import):
        return [f"import {alias.name}" for alias in node.names]
    if str(node.module).startswith("kbrl.") or node.module == "__future__":
        return []
    return [f"from {node.module} import {alias.name}" for alias in node.names]
