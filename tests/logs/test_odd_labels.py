"""Labels as other programs write them: bytes, words for nothing, whole numbers that floats cannot hold."""

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from kbrl import KBSF, Transitions, load_log, load_model, save_model, write_report
from kbrl.cli import main
from kbrl.tables.faults import LogError

FIT = ["--reps", "2", "--sample-width", "1", "--rep-width", "1", "--min-cases", "1", "-q"]


def table(actions, **changes):
    n = len(actions)
    columns = {"obs": np.arange(float(n)), "action": actions, "reward": np.ones(n), "done": np.arange(n) == n - 1}
    return columns | changes


def test_actions_that_an_hdf5_file_holds_as_bytes_are_texts_from_the_log_to_the_model_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    actions = [b"go", b"wait", "zurück".encode(), b"go"]
    for name, kind in ("fixed.h5", "S8"), ("varying.h5", h5py.string_dtype()):
        with h5py.File(name, "w") as file:
            for column, values in table(actions).items():
                file.create_dataset(column, data=np.array(values, kind) if column == "action" else values)
        main(["fit", name, "-o", "model.kbrl", *FIT])
        assert load_model("model.kbrl").action_labels.tolist() == ["go", "wait", "zurück"]


def test_a_flat_hdf5_file_may_have_a_column_of_episode_ids(tmp_path):
    with h5py.File(tmp_path / "log.h5", "w") as file:
        for column, values in table([0, 1, 0, 1], episode_id=[7, 7, 8, 8], done=[0, 1, 0, 1]).items():
            file[column] = values
    assert load_log(tmp_path / "log.h5").episodes.tolist() == [7, 7, 8, 8]


def test_binary_actions_of_parquet_are_texts(tmp_path):
    parquet.write_table(pa.table(table(pa.array([b"go", b"wait", b"go"], pa.binary()))), tmp_path / "log.parquet")
    assert load_log(tmp_path / "log.parquet").action_labels.tolist() == ["go", "wait"]


@pytest.mark.parametrize("nothing", ["NULL", "NaN", "NA", "n/a", "nan", "<NA>", " null "])
def test_a_word_for_a_missing_value_is_no_action(tmp_path, nothing):
    (tmp_path / "log.csv").write_text(f"obs,action,reward,done\n1,go,0,0\n2,{nothing},1,0\n3,wait,1,1\n")
    with pytest.raises(LogError, match="missing_action") as caught:
        load_log(tmp_path / "log.csv")
    assert caught.value.fault.rows == (1,)


def test_to_do_nothing_may_be_called_none(tmp_path):
    (tmp_path / "log.csv").write_text("obs,action,reward,done\n1,none,0,0\n2,None,1,0\n3,low,1,1\n")
    assert sorted(load_log(tmp_path / "log.csv").action_labels.tolist()) == ["None", "low", "none"]


@pytest.mark.parametrize("column", ["obs", "reward", "step"])
def test_whole_numbers_that_floats_do_not_hold_are_read_as_the_nearest_float(tmp_path, column):
    large = np.array([2**53 + 1, 2**60 + 3, 2**62 + 5])
    columns = table(["go", "wait", "go"], **{column: large})
    if column == "obs":
        columns["obs"] = pa.array(large)
    parquet.write_table(pa.table(columns), tmp_path / "log.parquet")
    log = load_log(tmp_path / "log.parquet")
    assert len(log) == 3
    if column != "step":
        found = log.states.ravel() if column == "obs" else log.rewards
        assert found.tolist() == [float(int(value)) for value in large]


def halved():
    log = Transitions([[0.0], [1.0]], ["up\ud800", "down"], [0.0, 1.0], [[1.0], [0.0]], terminals=[False, True])
    return KBSF(n_reps=2, random_state=0, min_cases=1).fit(log), log


def test_a_label_with_half_of_a_character_is_refused_by_the_model_file_in_plain_words(tmp_path):
    with pytest.raises(ValueError, match=r"half of a character, '\\ud800'. Rename it"):
        save_model(halved()[0], tmp_path / "model.kbrl")
    assert list(tmp_path.iterdir()) == []


def test_a_label_with_half_of_a_character_does_not_break_the_report(tmp_path):
    model, log = halved()
    write_report(model, log, tmp_path / "report.html")
    assert "up\\ud800" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_labels_that_no_float_can_hold_stay_texts(tmp_path):
    path = tmp_path / "log.csv"
    for labels in (["1e400", "2.5"], ["1.0000000000000000000000001", "1.0000000000000000000000002"]):
        rows = [f"{k % 5},{labels[k % 2]},1,{int(k % 5 == 4)}" for k in range(40)]
        path.write_text("\n".join(["obs,action,reward,done", *rows]))
        assert sorted(load_log(path).action_labels.tolist()) == sorted(labels)


def test_lists_of_lists_are_no_labels():
    with pytest.raises(LogError, match="'action' must hold one label per row, but it holds lists of lists"):
        load_log(pa.table({k: pa.array(v) for k, v in table([[["a"]], [["b"]], [["a"]]]).items()}))


def test_an_expression_of_lists_is_refused_and_one_of_their_entries_is_not():
    lists = table([0, 1, 0], outcome=[[1.0, 2.0]] * 3)
    columns = {"reward": "2 * outcome", "state": ["obs"]}
    with pytest.raises(LogError, match=r"'outcome' holds lists of 2\. Name its entries, such as outcome_0"):
        load_log(lists, columns=columns)
    log = load_log(lists, columns=columns | {"reward": "2 * outcome_1", "split": "outcome"})
    assert log.rewards.tolist() == [4.0] * 3


@pytest.mark.parametrize("where", ["obs", "reward"])
def test_a_whole_number_beyond_all_floats_is_refused_as_too_large(where):
    fault = "infinite_state" if where == "obs" else "infinite_reward"
    with pytest.raises(LogError, match="numbers must be") as caught:
        load_log(table([0, 1, 0], **{where: [-(10**400), 1, 2]}))
    assert caught.value.fault.name == fault
    with pytest.raises(LogError, match="numbers must be"):
        load_log(table([0, 1, 0], obs=[[1, 10**400], [1, 2], [3, 4]]))


def test_states_beyond_all_floats_are_refused_when_a_model_is_asked():
    model = KBSF(n_reps=2, min_cases=1, random_state=0).fit(load_log(table([0, 1, 0]))).model_
    for states in ([[10**400]], {"obs": [10**400]}):
        with pytest.raises((TypeError, ValueError), match=r"too large|must be finite|infinite"):
            model.predict(states)


def test_infinity_is_a_level_of_its_own_where_numbers_are_names():
    log = load_log(table([0, 1, 0, 1], obs=[np.inf, 1.0, np.inf, 2.0]), columns={"category": ["obs"]})
    assert "obs=inf" in log.state_names


FAR = pa.array([2**62, 2**62 + 1, 2**62 + 2], pa.timestamp("s"))  # years that Python cannot hold
NOT_HELD = {
    "a year above 9999": ("obs", FAR),
    "a year above 9999 as a label": ("action", FAR),
    "bytes that are no text": ("action", pa.array([b"\xff", b"a", b"a"])),
    "a map": ("action", pa.array([[("a", 1)]] * 3, pa.map_(pa.string(), pa.int64()))),
}


def arrow_frame(**columns):
    return pa.table({name: pa.array(column) for name, column in table([0, 1, 0]).items()} | columns)


@pytest.mark.parametrize("case", NOT_HELD)
@pytest.mark.parametrize("form", ["frame", "arrow"])
def test_cells_that_python_cannot_hold_are_refused_by_the_name_of_their_column(tmp_path, case, form):
    name, cells = NOT_HELD[case]
    frame = source = arrow_frame(**{name: cells})
    if form == "arrow":
        source = tmp_path / "log.arrow"
        with pa.ipc.new_file(str(source), frame.schema) as file:
            file.write_table(frame)
    with pytest.raises(LogError, match=f"'{name}' (cannot be read|of .* has a type that is not read)") as caught:
        load_log(source)
    assert caught.value.fault.name == "unreadable"


@pytest.mark.parametrize("cells", [[], [0.0], [0.0, 1.0]], ids=["empty", "one", "two"])
@pytest.mark.parametrize("name", ["done", "obs"])
def test_lists_where_one_value_is_needed_and_lists_without_entries_are_refused(name, cells):
    frame = arrow_frame(**{name: pa.array([cells] * 3, pa.list_(pa.float64()))})
    if name == "obs" and cells:
        assert load_log(frame).n_dims == len(cells)
        return
    with pytest.raises(LogError, match=f"'{name}' must hold .* value per row, but it holds lists of") as caught:
        load_log(frame)
    assert caught.value.fault.name == "wrong_width"
