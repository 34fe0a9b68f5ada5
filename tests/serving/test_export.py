"""An exported policy answers as the model does, without kbrl."""

import http.client
import json
import os
import runpy
import socket
import subprocess
import sys
import threading
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import messy_ward
from kbrl import KBSF, Plan, Transitions, Variant, coverage, export_policy, load_log
from kbrl.data.expressions import parse
from kbrl.data.recipe import Recipe
from kbrl.data.state_column import BLANK_TEXTS, StateColumn
from kbrl.data.values import FALSE, TRUE
from kbrl.serving import standalone_columns
from kbrl.serving.export import _column, _tree
from kbrl.serving.standalone_columns import UnanswerableError, encoded, holds
from kbrl.tasks import PuddleWorld

LOG = PuddleWorld().collect(1500, random_state=0)
STATES = np.random.default_rng(1).uniform(-0.2, 1.2, (40, 2))


def exported(model, tmp_path):
    export_policy(model, tmp_path / "policy.py")
    return runpy.run_path(str(tmp_path / "policy.py"))["decide"]


def check_same(model, decide, states, asked=None):
    """Hold every number of the exported answers against those of the model."""
    answers = [decide(each) for each in (states.tolist() if asked is None else asked)]
    expected, known = model.q_values(states), coverage(model, states)
    q = [[-np.inf if each["value"] is None else each["value"] for each in answer["actions"]] for answer in answers]
    np.testing.assert_allclose(q, expected, rtol=1e-9, atol=1e-9)
    n_actions = len(model.action_labels)
    support = [[each["support"] for each in answer["actions"][:n_actions]] for answer in answers]
    np.testing.assert_allclose(support, known.support, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose([answer["distance"] for answer in answers], known.distances, atol=1e-12)
    assert [answer["action"] for answer in answers] == model.predict(states).tolist()


@pytest.mark.parametrize(
    "learner",
    [
        KBSF(n_reps=30, random_state=0),
        KBSF(n_reps=30, rep_neighbors=5, sample_neighbors=10, random_state=0),
        KBSF(n_reps=30, variant=Variant(profile="gaussian", norm=1.0), random_state=0),
        KBSF(n_reps=30, variant=Variant(profile="uniform", norm=np.inf), random_state=0),
        KBSF(n_reps=40, order=1, random_state=0),
        KBSF(n_reps=40, order=1, plan=Plan(decisions=2, hold=3, usual=0.5), random_state=0),
        KBSF(n_reps=40, order=1, plan=Plan(acting="reps"), random_state=0),
        KBSF(n_reps=3, order=1, plan=Plan(decisions=1, hold=1), random_state=0),
    ],
    ids=["dense", "neighbours", "gaussian", "uniform", "plans", "usual plans", "plans at reps", "few reps"],
)
def test_an_exported_policy_gives_the_values_actions_and_support_of_the_model(learner, tmp_path):
    model = learner.fit(LOG).model_
    check_same(model, exported(model, tmp_path), STATES)


@pytest.mark.parametrize("neighbors", [1, 2, 3, 4])
@pytest.mark.parametrize("norm", [1.0, 2.0, np.inf])
def test_an_exported_policy_chooses_between_equally_near_states_as_the_model_does(neighbors, norm, tmp_path):
    rng = np.random.default_rng(neighbors)
    states, following = rng.integers(5, size=(2, 300, 2)) / 3.0  # thirds are rounded
    log = Transitions(states, rng.integers(3, size=300), rng.normal(size=300), following)
    reps = [[x, y] for x in (0.0, 2 / 3, 4 / 3) for y in (0.0, 2 / 3, 4 / 3)]
    model = KBSF(reps=reps, rep_neighbors=neighbors, scaling=None, variant=Variant(norm=norm)).fit(log).model_
    lattice = np.array([[x, y] for x in range(5) for y in range(5)]) / 3.0
    check_same(model, exported(model, tmp_path), lattice)
    assert [model.act(state) for state in lattice] == model.predict(lattice).tolist()


@pytest.mark.parametrize("more", [{}, {"order": 1}, {"order": 1, "plan": Plan(decisions=2, hold=2, acting="reps")}])
def test_an_exported_policy_defers_where_the_model_does(more, tmp_path):
    cases = 3 if not more else 12
    model = KBSF(n_reps=30, random_state=0, **more).fit(LOG).model_.deferring(cases=cases, caution=0.5 * bool(more))
    assert 0 < model.deferred(STATES).sum() < len(STATES)
    check_same(model, exported(model, tmp_path), STATES)


def test_an_exported_policy_looks_ahead_with_durations(tmp_path):
    durations = np.random.default_rng(2).gamma(2.0, 0.5, len(LOG)) + 0.05
    model = KBSF(n_reps=40, order=1, discount=0.9, random_state=0).fit(LOG.replaced(durations=durations)).model_
    check_same(model, exported(model, tmp_path), STATES)


def test_an_exported_policy_looks_ahead_with_categories_and_refuses_rules(tmp_path):
    frame = messy_ward.with_holes(messy_ward.clean_log(40))
    columns = messy_ward.COLUMNS | {"missing": "median", "category": ["unit", "ventilated"]}
    log = load_log(frame, columns=columns)
    model = KBSF(n_reps=20, order=1, plan=Plan(decisions=2, hold=2), random_state=0).fit(log).model_
    rows = log.states[:15]
    asked = [model.recipe.described(row) for row in rows]
    check_same(model, exported(model, tmp_path), rows, asked)
    ruled = load_log(frame, columns=columns | {"allowed": {"high": "sofa < 9"}})
    learner = KBSF(n_reps=20, order=1, random_state=0)
    with pytest.raises(ValueError, match=r"Fit with Plan\(acting='reps'\)"):
        export_policy(learner.fit(ruled), tmp_path / "ruled.py")
    at_reps = learner.set_params(plan=Plan(acting="reps")).fit(ruled).model_
    check_same(at_reps, exported(at_reps, tmp_path), rows, asked)


def test_an_exported_policy_looks_ahead_on_circles_and_without_noise(tmp_path):
    rng = np.random.default_rng(0)
    angle, push = rng.uniform(-np.pi, np.pi, 2000), rng.integers(0, 2, 2000)
    following = angle + np.where(push == 1, 0.2, -0.2)

    def on_circle(x):
        return np.column_stack([np.cos(x), np.sin(x)])

    log = Transitions(on_circle(angle), push, np.cos(following), on_circle(following))
    model = KBSF(n_reps=60, order=1, random_state=0).fit(log).model_
    assert len(model.basis.circles.places) == 1
    assert not model.plans.is_spread
    check_same(model, exported(model, tmp_path), on_circle(rng.uniform(-np.pi, np.pi, 30)))


def test_an_exported_policy_takes_the_columns_of_the_table_by_name(tmp_path):
    rng = np.random.default_rng(0)
    lines = ["patient,day,age,sex,severity,smoker,dose,reward"]
    for row in range(600):
        age = "" if rng.random() < 0.2 else f"{rng.uniform(20, 90):.1f}"
        sex, smoker = rng.choice(["F", "M", "X"], p=[0.5, 0.49, 0.01]), rng.choice(["yes", "no"])
        severity = rng.choice(["low", "mid", "high"])
        lines.append(f"{row // 6},{row % 6},{age},{sex},{severity},{smoker},{rng.integers(0, 2)},{rng.random():.2f}")
    (tmp_path / "ward.csv").write_text("\n".join(lines) + "\n")
    log = load_log(
        tmp_path / "ward.csv",
        columns={
            "state": ["age", "sex", "severity", "smoker"],
            "action": "dose",
            "reward": "reward",
            "episode": "patient",
            "step": "day",
            "missing": {"age": "median", "sex": "level"},
            "ordinal": {"severity": ["low", "mid", "high"]},
            "allowed": {"1": "age > 30 and severity != 'low'"},
        },
    )
    model = KBSF(n_reps=30, random_state=0).fit(log).model_
    asked = [
        {"age": 61, "sex": "F", "severity": "mid", "smoker": "yes"},
        {"age": 25.5, "sex": "M", "severity": "high", "smoker": False},
        {"age": None, "sex": "X", "severity": "low", "smoker": "no"},
        {"age": "40", "sex": "unheard of", "severity": "high", "smoker": True},
    ]
    states = model.recipe.encode({name: [each[name] for each in asked] for name in asked[0]}).rows
    check_same(model, exported(model, tmp_path), states, asked)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"x": 1.0}, "there is no column 'x'"),
        ({"a": 0.1}, "b is missing"),
        ({"a": "often", "b": 1}, "a must be a number of at most 1e+100 in size, but it is 'often'"),
        ({"a": 1e200, "b": 1}, "a must be a number"),
        ({"a": [1], "b": 1}, "a must be one value"),
        ([1.0], "a list of 2 numbers"),
        ("a", "a state must be an object"),
        (None, "a state must be an object"),
    ],
)
def test_a_state_that_cannot_be_answered_gets_a_reason(asked, reason, tmp_path):
    log = Transitions(LOG.states, LOG.action_indices, LOG.rewards, LOG.next_states, state_names=["a", "b"])
    answer = exported(KBSF(n_reps=5, random_state=0).fit(log), tmp_path)(asked)
    assert answer["action"] is None
    assert reason in answer["reason"]


COLUMNS = [
    StateColumn("n"),
    StateColumn("n", missing="median", fill=3.5, has_indicator=True),
    StateColumn("n", "category", ("a", "b", "1", "true"), has_other=True, missing="level"),
    StateColumn("n", "category", ("a", "b"), missing="constant", fill=1.0),
    StateColumn("n", "category", ("a", "b"), missing="forward", has_indicator=True),
    StateColumn("n", "category", ("a", "b"), missing="forward", fill=-1.0),
    StateColumn("n", "ordinal", ("low", "1", "high"), missing="forward", fill=1.0),
    StateColumn("n", "boolean", missing="constant", fill=0.0),
    StateColumn("n", "elapsed", seconds=3600.0),
    StateColumn("n", "vector", width=2),
    StateColumn("n", missing="median", fill=3.5, has_indicator=True, na=("-", "999")),
    StateColumn("n", na=("-", "999", "nothing")),
    StateColumn("n", "category", ("a", "b"), has_other=True, missing="level", na=("z", "1")),
    StateColumn("n", "boolean", missing="constant", fill=0.0, na=("No", "1")),
    StateColumn("n", "vector", width=2, na=("999",)),
]
CELLS = [None, float("nan"), "", "NA", 0, 1, 1.0, 2.5, "1", "2.5", "a", "b", "z", "low", "high", True, False, "True"]
CELLS += ["yes", "No", "2024-05-01", "2024-05-01T10:00:00+02:00", datetime(2024, 5, 1, tzinfo=UTC), [1.0, 2.0], [1.0]]
CELLS += ["-", " - ", 999, 999.0, "999", "999.0", "nothing", [1.0, 999.0]]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: f"{column.kind}-{column.missing}-{column.na}")
@pytest.mark.parametrize("cell", CELLS, ids=repr)
def test_cells_become_the_variables_that_the_recipe_makes(column, cell):
    try:
        found = Recipe((column,)).encode({"n": [cell]})
        rows = found.rows[0].tolist() if found.usable[0] else None
    except (ValueError, TypeError):
        rows = None
    try:
        mine = encoded(_column(column), cell)
    except UnanswerableError:
        mine = None
    fits = isinstance(cell, list) and len(cell) == 2 if column.kind == "vector" else not isinstance(cell, list)
    if not fits:
        rows = None  # the recipe leaves it to its callers to tell columns of vectors from others
    assert mine == rows


numbers = st.sampled_from(["x", "y", "2", "0", "1.5", "-3"])
sums = st.recursive(
    numbers,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(lambda t: f"{t[0]}({t[1]}, {t[2]})"),
        inner.map(lambda t: f"abs({t})"),
    ),
    max_leaves=5,
)
signs = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
truths = st.recursive(
    st.one_of(
        st.tuples(sums, signs, sums).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.sampled_from(["(sex == 'F')", "(sex != 'M')", "(sex in ('F', 'D'))", "(sex not in ('M', 'F'))"]),
        st.sampled_from(["is_missing(x)", "(not is_missing(sex))", "true", "false"]),
    ),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        inner.map(lambda t: f"(not {t})"),
    ),
    max_leaves=4,
)


@settings(max_examples=300, deadline=None)
@given(truths, st.sampled_from([None, 0.0, 2.0, -1.5]), st.sampled_from([None, 0.0, 3.0]), st.sampled_from("FMX"))
def test_rules_hold_where_the_language_of_expressions_says_so(text, x, y, sex):
    from kbrl.data.state_column import as_cells

    cells = {"x": x, "y": y, "sex": None if sex == "X" else sex}
    columns = {"x": as_cells([np.nan if x is None else x]), "y": as_cells([np.nan if y is None else y])}
    columns["sex"] = as_cells(np.array([cells["sex"]], dtype=object)) if cells["sex"] else _no_text()
    expression = parse(text, "truth")
    assert holds(_tree(expression.tree), cells) == bool(expression.truths(columns)[0])


def _no_text():
    from kbrl.data.expressions import Coded

    return Coded(np.array([-1]), ())


def test_the_file_runs_where_nothing_but_python_is_installed(tmp_path):
    export_policy(KBSF(n_reps=20, order=1, random_state=0).fit(LOG), tmp_path / "policy.py")
    command = [sys.executable, "-I", "-S", "policy.py"]
    run = subprocess.run([*command, "x0=0.2", "x1=0.4"], cwd=tmp_path, capture_output=True, text=True, check=True)
    piped = subprocess.run(command, cwd=tmp_path, input="[0.2, 0.4]\n\nnonsense\n", capture_output=True, text=True)
    first, second = map(json.loads, piped.stdout.splitlines())
    assert json.loads(run.stdout) == first
    assert "as JSON" in second["error"]
    helped = subprocess.run([*command, "--help"], cwd=tmp_path, capture_output=True, text=True)
    assert "--serve" in helped.stderr


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_line_that_is_no_text_gets_an_answer_and_those_after_it_as_well(tmp_path, encoding):
    export_policy(KBSF(n_reps=5, random_state=0).fit(LOG), tmp_path / "policy.py")
    command = [sys.executable, "-S", "policy.py"]
    environment = os.environ | {"PYTHONIOENCODING": encoding}
    run = subprocess.run(command, cwd=tmp_path, input=b"\xff\xfe\n[0.2, 0.4]\n", capture_output=True, env=environment)
    first, second = map(json.loads, run.stdout.splitlines())
    assert "as JSON" in first["error"]
    assert second["action"] is not None


def test_states_nested_to_any_depth_are_refused_with_a_reason(tmp_path):
    decide = exported(KBSF(n_reps=5, random_state=0).fit(LOG), tmp_path)
    nested = 0.2
    for _ in range(20_000):
        nested = [nested]
    for state in ({"x0": nested, "x1": 0.4}, [nested, 0.4]):
        assert decide(state) == {"action": None, "reason": "it is nested too deep"}


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    export_policy(KBSF(n_reps=20, random_state=0).fit(LOG), folder / "policy.py")
    command = [sys.executable, "-I", "-S", "policy.py", "--serve", "0"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        stopper = threading.Timer(120, process.kill)
        stopper.start()
        try:
            yield int(process.stderr.readline().split()[-1])
        finally:
            stopper.cancel()
            process.terminate()


def ask(port, body, headers=None, method="POST"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, "/", body=body, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_the_service_answers_one_state_or_many(port):
    status, one = ask(port, "[0.2, 0.4]")
    assert status == 200
    assert ask(port, '[[0.2, 0.4], {"x0": 0.2, "x1": 0.4}]') == (200, [one, one])


def test_the_service_tells_a_browser_what_to_send(port):
    status, told = ask(port, None, method="GET")
    assert (status, told["columns"], told["actions"]) == (200, ["x0", "x1"], [0, 1, 2, 3])
    state = dict.fromkeys(told["columns"], 0.3)
    assert ask(port, json.dumps(state))[1]["action"] in told["actions"]


@pytest.mark.parametrize(
    ("body", "status"), [("", 413), ("{", 400), ("[" * 100_000, 400), (json.dumps([[0, 0]] * 10_001), 413)]
)
def test_the_service_refuses_what_is_no_state_and_serves_on(port, body, status):
    found, answer = ask(port, body)
    assert (found, list(answer)) == (status, ["error"])
    assert ask(port, "[0.2, 0.4]")[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Length": "\u00b2"},
        {"Content-Length": "9" * 5000},
        {"Content-Length": "9", "Transfer-Encoding": "chunked"},
    ],
    ids=["no number", "too many digits", "two lengths"],
)
def test_the_service_answers_a_request_whose_length_is_odd_with_an_error(port, headers):
    assert ask(port, "", headers)[0] == 413
    assert ask(port, "[0.2, 0.4]")[0] == 200


def test_the_service_takes_no_request_with_two_lengths(port):
    """A server before it may take the other one, and see another request in the rest."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as stranger:
        stranger.sendall(b"POST / HTTP/1.1\r\nContent-Length: 10\r\nContent-Length: 500\r\n\r\n[0.2, 0.4]")
        assert stranger.recv(1000).startswith(b"HTTP/1.1 413 ")
    assert ask(port, "[0.2, 0.4]")[0] == 200


def test_models_that_need_their_rows_or_a_function_are_refused(tmp_path):
    samples, own = Variant(q_function="samples"), Variant(profile=lambda z: np.exp(-z))
    for variant, advice in ((samples, "q_function='reps'"), (own, "a profile by name")):
        model = KBSF(n_reps=5, variant=variant, random_state=0).fit(LOG)
        with pytest.raises(ValueError, match=advice):
            export_policy(model, tmp_path / "p.py")
    with pytest.raises(ValueError, match=r"end in \.py"):
        export_policy(KBSF(n_reps=5, random_state=0).fit(LOG), tmp_path / "p.onnx")
    assert not list(tmp_path.iterdir())


def test_an_exported_policy_knows_the_words_for_true_false_and_missing_that_tables_may_have():
    assert (standalone_columns.TRUE, standalone_columns.FALSE) == (TRUE, FALSE)
    assert standalone_columns.BLANKS == BLANK_TEXTS


@pytest.mark.parametrize("cell", ["true", "False", " TRUE ", "1", True, 0.0, "maybe"])
def test_true_and_false_are_numbers_in_a_column_of_numbers_exported_or_not(cell):
    column = StateColumn("ventilated", "number")
    found = Recipe((column,)).encode({"ventilated": [cell]})
    if cell == "maybe":
        assert "must be a number" in found.say(0)
        with pytest.raises(UnanswerableError, match="must be a number"):
            encoded(_column(column), cell)
    else:
        right = 1.0 if str(cell).strip().lower() in ("true", "1") else 0.0
        assert found.rows.tolist() == [[right]]
        assert encoded(_column(column), cell) == [right]
