"""Missing and odd cells behind an expression: the column, the line and a way out are named, by reader and check."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbrl import KBSF, check_log, load_log, load_model, save_model
from kbrl.data.expressions import filled_in, parse
from kbrl.serving.export import _tree  # the expression as the exported policy has it
from kbrl.serving.standalone_columns import holds
from kbrl.tables.faults import LogError

ROLES = {"state": "sofa", "action": "drug", "episode": "stay", "step": "day", "terminated": "last"}
HEADER = "stay,day,sofa,drug,risk,bonus,last,died\n"
ROWS = ["1,1,3,a,1.5,,0,no", "1,2,4,b,,,0,no", "1,3,5,a,2.5,1,1,no", "2,1,3,b,1,,0,no", "2,2,9,a,2,1,1,yes"]


def written(path, *rows, line=None, text=None):
    rows = list(rows or ROWS)
    if line is not None:
        rows[line - 2] = text
    path.write_text(HEADER + "\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize(
    ("roles", "line", "text", "said"),
    [
        ({"reward": "-risk"}, None, None, r"line 3 .*: nothing in 'risk'.*--missing \"risk=0\""),
        ({"reward": "bonus - risk"}, None, None, r"line 2 .*: nothing in 'bonus'.*--missing \"bonus=0\""),
        ({"minimize": "risk"}, None, None, r"line 3 .*: nothing in 'risk'.*'missing': \{'risk': 0\}"),
        ({"reward": "risk"}, None, None, r"'risk' has .*line 3 .*: nothing\..*--missing \"risk=0\""),
        (
            {"reward": "-sofa", "terminated": "died or sofa > 8"},
            5,
            "2,1,3,b,1,,0,",
            r"line 5 .*nothing in 'died'.*is_mi",
        ),
        ({"reward": "-sofa", "terminated": "not died"}, 5, "2,1,3,b,1,,0,", r"line 5 .*: nothing in 'died'"),
        ({"reward": "-sofa", "terminated": "not died"}, 5, "2,1,3,b,1,,0,maybe", r"line 5 .*: 'maybe' in 'died'.*--na"),
        (
            {"reward": "-sofa", "terminated": "risk > 1.9"},
            3,
            "1,2,4,b,n.d.,,0,no",
            r"line 3 .*: 'n.d.' in 'risk'.*--na",
        ),
        ({"reward": "died"}, None, None, r"line 2 .*: 'no'.*--reward \"where\(`died`, 1, 0\)\""),
        ({"reward": "5 * (risk > 1.9)"}, 3, "1,2,4,b,n.d.,,0,no", r"line 3 .*: 'n.d.' in 'risk'.*--na"),
    ],
)
def test_a_cell_that_leaves_an_expression_without_a_value_is_named_by_reader_and_check(
    tmp_path, roles, line, text, said
):
    path = written(tmp_path / "log.csv", line=line, text=text)
    with pytest.raises(LogError, match=said):
        load_log(path, columns=ROLES | roles)
    faults = [fault for fault in check_log(path, columns=ROLES | roles).faults if fault.stops_learning]
    by_check = " ".join(f"{fault.message} {fault.advice}" for fault in faults)
    with pytest.raises(LogError, match=said):
        raise LogError("unreadable", by_check.replace("'risk': 1 cell", "'risk' has 1 cell"))


def test_check_names_all_columns_behind_the_first_rows(tmp_path):
    report = check_log(written(tmp_path / "log.csv"), columns=ROLES | {"reward": "bonus - risk"})
    (fault,) = [fault for fault in report.faults if fault.name == "missing_reward"]
    assert fault.columns == ("bonus", "risk")
    assert fault.count == 3


def test_a_missing_reward_counts_what_the_rule_says(tmp_path):
    path = written(tmp_path / "log.csv")
    stated = ROLES | {"reward": "bonus - risk", "missing": {"bonus": 0, "risk": 7}}
    assert load_log(path, columns=stated).rewards.tolist() == [-1.5, -7.0, -1.5, -1.0, -1.0]
    assert load_log(path, columns=ROLES | {"reward": "risk", "missing": "risk=7"}).rewards.tolist() == [
        1.5,
        7,
        2.5,
        1,
        2,
    ]
    with pytest.raises(ValueError, match=r"missing\['risk'\] must be a number.*'forward'"):
        load_log(path, columns=ROLES | {"reward": "risk", "missing": {"risk": "forward"}})


def test_what_a_missing_reward_counts_is_kept_with_the_model(tmp_path):
    path = written(tmp_path / "log.csv")
    model = KBSF(3, min_cases=1, random_state=0).fit(path, columns=ROLES | {"minimize": "risk", "missing": {"risk": 2}})
    save_model(model, tmp_path / "model.kbrl")
    assert load_model(tmp_path / "model.kbrl").source.roles["reward"] == "-where(is_missing(`risk`), 2, `risk`)"


def test_only_columns_are_filled_in_and_not_texts_or_questions():
    text = filled_in("`a b` + (c == 'a b') - is_missing(c) * c", {"a b": 0.5, "c": 1})
    assert (
        text
        == "where(is_missing(`a b`), 0.5, `a b`) + (where(is_missing(`c`), 1, `c`) == 'a b') - is_missing(c) * "
        + ("where(is_missing(`c`), 1, `c`)")
    )


_FLAG = st.sampled_from([0.0, 1.0, np.nan])


@given(_FLAG, _FLAG)
def test_logic_of_missing_flags_is_that_of_both_possible_values(a, b):
    """A missing flag may be either: the answer is known exactly where both would give it."""
    for text in ("a and b", "a or b", "not a", "not (a or b) and a", "a or not b"):
        expression, cells = parse(text, "truth"), {"a": np.array([a]), "b": np.array([b])}
        found = float(expression.numbers(cells)[0])
        options = [
            float(expression.numbers({"a": np.array([x]), "b": np.array([y])})[0])
            for x in ([0.0, 1.0] if np.isnan(a) else [a])
            for y in ([0.0, 1.0] if np.isnan(b) else [b])
        ]
        if not np.isnan(found):
            assert set(options) == {found}
        plain = {name: None if np.isnan(value[0]) else float(value[0]) for name, value in cells.items()}
        assert holds(_tree(expression.tree), plain) == (found == 1)
