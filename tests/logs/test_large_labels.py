"""Whole numbers beyond int64 as labels: exact words, in every form, never floats and never merged."""

import numpy as np
import pandas
import polars
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as parquet
import pytest

from kbrl import KBSF, Transitions, join
from kbrl.logs.check import check_log
from kbrl.logs.log import load_log, read_log
from kbrl.storage.model_file import load_model, save_model
from kbrl.tables.faults import LogError

LARGE = [2**63, 2**63 + 1, 2**64 - 1]
N_ROWS = 60
FORMS = ("npz", "parquet", "feather", "csv", "pandas", "polars", "pyarrow", "dict", "lists")


def columns_of(labels, dtype=None):
    """Return a log in which the labels take turns."""
    rng = np.random.default_rng(5)
    return {
        "episode_id": np.arange(N_ROWS) // 10,
        "observation_x": rng.normal(size=N_ROWS),
        "action": np.array([labels[row % len(labels)] for row in range(N_ROWS)], dtype=dtype),
        "reward": rng.normal(size=N_ROWS),
        "terminated": np.arange(N_ROWS) % 10 == 9,
    }


def stored(columns, form, folder):
    """Return what the reader is given."""
    path = folder / f"log.{form}"
    if form == "npz":
        np.savez(path, **columns)
    elif form == "parquet":
        parquet.write_table(pa.table(columns), path)
    elif form == "feather":
        feather.write_feather(pa.table(columns), path)
    elif form == "csv":
        pandas.DataFrame(columns).to_csv(path, index=False)
    else:
        lists = {name: column.tolist() for name, column in columns.items()}
        makers = {"pandas": pandas.DataFrame, "polars": polars.DataFrame, "pyarrow": pa.table, "dict": dict}
        return lists if form == "lists" else makers[form](columns)
    return path


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("labels", [LARGE, [3, *LARGE], [3, 20]], ids=["large", "large and small", "small"])
def test_uint64_labels_come_back_exactly_in_every_form(tmp_path, form, labels):
    columns = columns_of(labels, np.uint64)
    source = stored(columns, form, tmp_path)
    is_large = labels != [3, 20]
    expected = sorted(map(str, labels)) if is_large else labels
    chunks = list(read_log(source, chunk_rows=7))
    assert all(chunk.action_labels.tolist() == expected for chunk in chunks)
    assert chunks[0].action_labels.dtype.kind == ("U" if is_large else "i")
    actions = columns["action"].tolist()
    assert join(chunks).actions.tolist() == [str(action) if is_large else action for action in actions]
    report = check_log(source)
    assert [fault.name for fault in report.faults if "action" in fault.name] == []
    assert list(report.actions) == expected


@pytest.mark.parametrize("form", ["csv", "dict", "lists"])
def test_numbers_of_any_size_are_exact(tmp_path, form):
    labels = [-(2**63) - 1, 2**64, 10**5000 - 1 if "csv" in form else 10**40]
    digits = ["-9223372036854775809", "18446744073709551616", "9" * 5000 if "csv" in form else str(10**40)]
    columns = columns_of(digits if "csv" in form else labels, None if "csv" in form else object)
    assert load_log(stored(columns, form, tmp_path)).action_labels.tolist() == sorted(digits)


@pytest.mark.parametrize("form", FORMS)
def test_all_that_fits_into_int64_stays_a_whole_number(tmp_path, form):
    labels = [-(2**63), 2**53 + 1, 10**18 + 1, 2**63 - 1]
    found = load_log(stored(columns_of(labels, np.int64), form, tmp_path))
    assert found.action_labels.dtype == np.int64
    assert found.action_labels.tolist() == labels


def test_a_fraction_beside_a_number_that_floats_leave_out_makes_words_of_a_text_and_is_refused_elsewhere(tmp_path):
    labels = [2**53, 2**53 + 1, 0.5]
    found = load_log(stored(columns_of(labels, object), "csv", tmp_path))
    assert found.action_labels.tolist() == ["0.5", "9007199254740992", "9007199254740993"]
    with pytest.raises(LogError, match="labels of one kind"):
        load_log(columns_of(labels, object))
    assert load_log(columns_of([1, 0.5], object)).action_labels.tolist() == [0.5, 1.0]


def test_the_kind_of_labels_is_that_of_all_files(tmp_path):
    for place, labels in enumerate(([1, 2], [1, 2**63])):
        np.savez(tmp_path / f"{place}.npz", **columns_of(labels, np.uint64))
    first = next(read_log(tmp_path, chunk_rows=N_ROWS))
    assert first.action_labels.tolist() == ["1", "2", "9223372036854775808"]
    assert first.actions.tolist()[:2] == ["1", "2"]


def test_answers_of_a_model_and_of_its_file_are_the_exact_labels(tmp_path):
    columns = columns_of([3, *LARGE], np.uint64)
    model = KBSF(n_reps=5).fit(load_log(columns))
    save_model(model, tmp_path / "model.kbrl")
    states = columns["observation_x"].reshape(-1, 1)
    answers = load_model(tmp_path / "model.kbrl").predict(states).tolist()
    assert answers == model.predict(states).tolist()
    assert set(answers) <= {str(label) for label in (3, *LARGE)}


def test_small_labels_are_found_among_possible_ones_that_are_large():
    columns = columns_of([3, 4], np.uint64)
    for possible in ([3, 4, 2**64 - 1], ["3", "4", "18446744073709551615"]):
        log = load_log(columns, actions=possible)
        assert log.action_labels.tolist() == ["3", "4", "18446744073709551615"]
        assert log.actions.tolist()[:2] == ["3", "4"]
        faults = {fault.name: fault for fault in check_log(columns, actions=possible).faults}
        assert "18446744073709551615: never taken" in faults["untried_action"].message
        assert faults["untried_action"].count == 1
    with pytest.raises(LogError, match=r"but 'action' also has \[4\]"):
        load_log(columns, actions=[3, 2**64])


def transitions(actions, **options):
    rows = np.zeros((len(actions), 1))
    return Transitions(rows, actions, np.zeros(len(actions)), rows, **options)


def unsigned(*labels):
    return np.array(labels, dtype=np.uint64)


def test_transitions_keep_large_labels_exactly():
    assert transitions(unsigned(*LARGE)).actions.tolist() == LARGE
    assert transitions([3, *LARGE]).actions.tolist() == ["3", *map(str, LARGE)]
    assert transitions([1, 2], action_labels=[2, 1, 2**63]).actions.tolist() == ["1", "2"]
    assert transitions([1, 2], action_labels=unsigned(2, 1, 2**63)).actions.tolist() == ["1", "2"]


def test_transitions_with_labels_of_different_types_are_joined_without_floats():
    small, signed, large = transitions(unsigned(1, 2**53 + 1)), transitions([2**53, -5]), transitions(unsigned(*LARGE))
    joined = join([small, signed])
    assert joined.actions.tolist() == [1, 2**53 + 1, 2**53, -5]
    assert joined.action_labels.dtype == np.int64
    numbers = [1, 2**53 + 1, 2**53, -5, *LARGE]
    assert join([small, signed, large]).actions.tolist() == [str(number) for number in numbers]
    assert join([small, large]).actions.tolist() == [1, 2**53 + 1, *LARGE]
    assert transitions([1, 1]).with_actions(np.array(["1", "9223372036854775808"])).actions.tolist() == ["1", "1"]


@pytest.mark.parametrize("form", ["npz", "parquet", "csv", "dict"])
def test_episodes_with_large_identifiers_are_told_apart(tmp_path, form):
    columns = columns_of([0, 1]) | {"terminated": np.zeros(N_ROWS, dtype=bool)}
    columns["episode_id"] = np.array([5, 2**63, 2**63 + 1], dtype=np.uint64)[np.arange(N_ROWS) // 20]
    source = stored(columns, form, tmp_path)
    log = join(list(read_log(source, chunk_rows=13)))
    assert len(log) == N_ROWS - 3
    assert list(map(str, log.episodes[[0, 20, 40]])) == ["5", "9223372036854775808", "9223372036854775809"]
    assert check_log(source, chunk_rows=13).n_episodes == 3
