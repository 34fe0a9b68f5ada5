"""The same transitions, bit for bit, however a log is stored and cut; and in bounded memory."""

import csv
import subprocess
import sys
import zipfile

import numpy as np
import pandas
import polars
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as parquet
import pytest

from kbrl import KBSF, Transitions, join
from kbrl.logs.log import load_log, open_log, read_log
from kbrl.logs.writing import as_columns, write_log
from kbrl.tables.faults import LogError

FIELDS = ("states", "action_indices", "rewards", "next_states", "terminals", "episodes", "action_labels")
N_ROWS, LENGTH = 600, 20


def assert_same(log, other):
    for name in FIELDS:
        one, two = getattr(log, name), getattr(other, name)
        assert one.dtype == two.dtype, name
        np.testing.assert_array_equal(one, two, err_msg=name)


def make_log(labels=("go", "wait", "a,b")):
    rng = np.random.default_rng(7)
    episodes = np.arange(N_ROWS) // LENGTH
    states = rng.normal(size=(N_ROWS, 3)) * 10.0 ** rng.integers(-20, 20, size=(N_ROWS, 3))
    ends = (np.arange(N_ROWS) % LENGTH == LENGTH - 1) & (episodes % 2 == 0)
    actions = np.array(labels)[rng.integers(len(labels), size=N_ROWS)]
    return Transitions(states, actions, rng.normal(size=N_ROWS), rng.normal(size=(N_ROWS, 3)), ends, episodes)


LOG = make_log()
COLUMNS = as_columns(LOG)
NO_NEXT = {name: column for name, column in COLUMNS.items() if not name.startswith("next_")}


def store(columns, folder, form):
    """Write columns in a form and return what the reader is given."""
    path = folder / f"log.{form}"
    if form == "parquet":
        parquet.write_table(pa.table(columns), path)
    elif form == "feather":
        feather.write_feather(pa.table(columns), path)
    elif form == "arrow":
        table = pa.table(columns)
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table, max_chunksize=77)
    elif form in ("csv", "tsv"):
        pandas.DataFrame(columns).to_csv(path, index=False, sep="," if form == "csv" else "\t")
    elif form == "npz":
        np.savez_compressed(path, **columns)
    else:
        makers = {"pandas": pandas.DataFrame, "polars": polars.DataFrame, "pyarrow": pa.table, "dict": dict}
        return makers[form](columns)
    return path


FORMS = ("parquet", "feather", "arrow", "csv", "tsv", "npz", "pandas", "polars", "pyarrow", "dict")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("columns", [COLUMNS, NO_NEXT], ids=["next given", "next taken"])
def test_every_form_gives_the_same_transitions(tmp_path, form, columns):
    found = load_log(store(columns, tmp_path, form))
    assert_same(found, LOG if columns is COLUMNS else load_log(columns))


def test_what_the_library_writes_it_reads_back(tmp_path):
    for name in ("log.csv", "log.npz"):
        write_log(LOG, tmp_path / name)
        assert_same(load_log(tmp_path / name), LOG)


def test_numbers_in_a_text_are_the_bits_that_python_reads(tmp_path):
    path = store(COLUMNS, tmp_path, "csv")
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    log = load_log(path)
    for k in range(3):
        assert log.states[:, k].tolist() == [float(row[f"observation_{k}"]) for row in rows]
    assert log.rewards.tolist() == [float(row["reward"]) for row in rows]
    assert log.actions.tolist() == [row["action"] for row in rows]


@pytest.mark.parametrize("form", ["parquet", "csv", "npz", "feather"])
@pytest.mark.parametrize("columns", [COLUMNS, NO_NEXT], ids=["next given", "next taken"])
def test_ten_files_give_the_chunks_of_one(tmp_path, form, columns):
    whole = list(read_log(store(columns, tmp_path, form), chunk_rows=128))
    folder = tmp_path / "parts"
    for part in range(1, 11):  # part-10 comes after part-9; episodes go on from file to file
        rows = slice((part - 1) * 60, part * 60)
        (folder / f"part-{part}").mkdir(parents=True)
        store({name: column[rows] for name, column in columns.items()}, folder / f"part-{part}", form)
    each = [str(folder / f"part-{part}" / f"log.{form}") for part in range(1, 11)]
    for source in (folder, str(folder / "*" / f"log.{form}"), each):
        parts = list(read_log(source, chunk_rows=128))
        assert len(parts) == len(whole)
        for one, two in zip(parts, whole):
            assert_same(one, two)


@pytest.mark.parametrize("chunk_rows", [1, 7, 599, 600, 10_000])
def test_chunks_put_together_are_the_log(chunk_rows):
    chunks = list(read_log(NO_NEXT, chunk_rows=chunk_rows))
    whole = load_log(NO_NEXT)
    for name in FIELDS[:-1]:
        np.testing.assert_array_equal(np.concatenate([getattr(c, name) for c in chunks]), getattr(whole, name))
    assert all(chunk.action_labels.tolist() == whole.action_labels.tolist() for chunk in chunks)


def test_an_action_that_comes_late_is_known_to_the_first_chunk():
    columns = COLUMNS | {"action": np.array(["a"] * (N_ROWS - 1) + ["late"])}
    assert next(read_log(columns, chunk_rows=50)).action_labels.tolist() == ["a", "late"]
    assert KBSF(n_reps=5, min_cases=1).fit(read_log(columns, chunk_rows=200)).predict(LOG.states[:2]).shape == (2,)


@pytest.mark.parametrize("labels, expected", [
    ((3, -1, 10), [-1, 3, 10]),
    ((0.5, 1.0), [0.5, 1.0]),
    ((True, False), [False, True]),
    (("007", "010"), ["007", "010"]),
    (("1", "x"), ["1", "x"]),
    (("None", "none"), ["None", "none"]),
])  # fmt: skip
def test_labels_in_text_are_what_they_are_in_parquet(tmp_path, labels, expected):
    columns = as_columns(make_log(labels))
    write_log(make_log(labels), tmp_path / "text.csv")
    found = load_log(store(columns, tmp_path, "parquet"))
    assert found.action_labels.tolist() == expected
    assert_same(load_log(tmp_path / "text.csv"), found)


@pytest.mark.parametrize("form", ["parquet", "feather", "npz", "polars", "pyarrow"])
def test_a_column_of_lists_holds_the_state(tmp_path, form):
    rest = {name: column for name, column in COLUMNS.items() if "observation" not in name}
    lists = {"observation": LOG.states, "next_observation": LOG.next_states}
    if form not in ("npz", "polars"):
        lists = {k: pa.FixedSizeListArray.from_arrays(v.ravel(), 3) for k, v in lists.items()}
    elif form == "polars":
        lists = {name: polars.Series(name, values.tolist()) for name, values in lists.items()}
    source = store(rest | lists, tmp_path, form)
    assert_same(load_log(source), LOG)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("form", ["csv", *(form for form in FORMS if form != "csv")])
@pytest.mark.parametrize("true, false", [("yes", "no"), ("True", "FALSE"), ("t", " f"), ("1", "0"), ("1.0", "0")])
def test_flags_in_words_are_read_in_every_form(tmp_path, form, true, false):
    ends = np.arange(N_ROWS) % LENGTH == LENGTH - 1
    columns = {name: column for name, column in NO_NEXT.items() if name != "truncated"}
    told = load_log(columns | {"terminated": ends})
    assert_same(load_log(store(columns | {"terminated": np.where(ends, true, false)}, tmp_path, form)), told)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("form", ["parquet", "pandas", "polars", "pyarrow"])
@pytest.mark.parametrize("cell, quoted", [("maybe", "'maybe'"), (None, "nothing"), ("", "nothing")])
def test_a_flag_in_words_that_is_none_is_refused_and_nothing_false_is_said_before(tmp_path, form, cell, quoted):
    flags = np.where(np.arange(N_ROWS) % LENGTH == LENGTH - 1, "yes", "no").astype(object)
    flags[3] = cell
    columns = {name: column for name, column in NO_NEXT.items() if name != "truncated"} | {"terminated": flags}
    with pytest.raises(LogError, match=rf"'terminated' has .* \(bad_flag\); the first is row 4 .*: {quoted}\."):
        load_log(store(columns, tmp_path, form))


def test_frames_with_categories_and_missing_markers_are_read():
    frame = pandas.DataFrame(COLUMNS).assign(
        action=pandas.Categorical(COLUMNS["action"], ["wait", "go", "a,b", "never"])
    )
    frame["step"] = frame["step"].astype("Int64")
    assert_same(load_log(frame.iloc[::-1].iloc[::-1]), LOG)


def test_possible_actions_can_be_listed():
    found = load_log(COLUMNS, actions=["wait", "rest", "go", "a,b"])
    assert found.action_labels.tolist() == ["wait", "rest", "go", "a,b"]
    np.testing.assert_array_equal(found.actions, LOG.actions)


def test_an_open_log_can_be_read_again_and_knows_its_rows(tmp_path):
    log = open_log(store(COLUMNS, tmp_path, "parquet"))
    assert log.n_rows == N_ROWS
    assert [len(chunk) for chunk in log.chunks(250)] == [len(chunk) for chunk in log.chunks(250)] == [250, 250, 100]


def test_pyarrow_is_loaded_when_a_file_is_opened_and_not_before(tmp_path):
    code = f"""
import sys, kbrl
from kbrl.logs import check, log, writing
from kbrl.tables import arrow_files, datasets, formats
log.load_log({ {name: column.tolist()[:40] for name, column in COLUMNS.items()} })
assert "pyarrow" not in sys.modules
log.load_log({str(store(COLUMNS, tmp_path, "csv"))!r})
assert "pyarrow" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_python_objects_in_an_archive_are_never_unpickled(tmp_path):
    np.savez(tmp_path / "log.npz", **COLUMNS | {"action": np.array(["a"] * N_ROWS, dtype=object)})
    with pytest.raises(LogError, match="would have to be unpickled"):
        load_log(tmp_path / "log.npz")


def by_columns(folder, compressed):
    """Write a log whose observations are stored column by column."""
    rest = {name: column for name, column in COLUMNS.items() if "observation" not in name}
    states = {"observation": np.asfortranarray(LOG.states), "next_observation": np.asfortranarray(LOG.next_states)}
    (np.savez_compressed if compressed else np.savez)(folder / "log.npz", **rest | states)
    return folder / "log.npz"


@pytest.mark.parametrize("compressed", [False, True])
def test_arrays_stored_column_by_column_are_read(tmp_path, compressed):
    chunks = list(read_log(by_columns(tmp_path, compressed), chunk_rows=77))
    assert_same(join(chunks), LOG)


def test_an_array_by_columns_that_is_cut_short_is_refused(tmp_path):
    path = by_columns(tmp_path, compressed=False)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data[:-8] if name == "observation.npy" else data)
    with pytest.raises(LogError, match="an array is cut short"):
        load_log(path)


def test_blanks_around_names_and_cells_of_a_text_do_not_matter(tmp_path):
    text = pandas.DataFrame(as_columns(make_log(("go", "wait", "rest")))).to_csv(index=False)
    (tmp_path / "log.csv").write_text(text)
    (tmp_path / "blanks.csv").write_text(text.replace(",", " , "))
    assert_same(load_log(tmp_path / "blanks.csv"), load_log(tmp_path / "log.csv"))


def test_blanks_stay_where_they_tell_columns_or_labels_apart(tmp_path):
    (tmp_path / "log.csv").write_text("obs, obs,action,reward,done\n1,7,a,0,0\n2,8, a,0,1\n")
    found = load_log(tmp_path / "log.csv", columns={"state": "obs"})
    assert found.action_labels.tolist() == [" a", "a"]
    assert found.states.ravel().tolist() == [1.0, 2.0]
    assert load_log(tmp_path / "log.csv", columns={"state": [" obs"]}).states.ravel().tolist() == [7.0, 8.0]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16-le"])  # the bytes of utf-16 start with a mark
@pytest.mark.parametrize("n_rows", [1, 5000], ids=["near the start", "far from the start"])
def test_a_text_in_another_encoding_says_how_to_save_it(tmp_path, encoding, n_rows):
    text = "obs,action,reward,done\n" + n_rows * "1,a,0,0\n" + "1,süß,0,1\n"
    (tmp_path / "log.csv").write_text(text, encoding=encoding)
    with pytest.raises(
        LogError, match=r"log\.csv cannot be read: its text is not in UTF-8 .*; save it as UTF-8, or state its"
    ):
        load_log(tmp_path / "log.csv")


@pytest.mark.parametrize("form", ["parquet", "pyarrow", "pandas"])
def test_a_struct_is_called_what_it_is(tmp_path, form):
    pairs = pa.array([{"x": x, "v": v} for x, v in LOG.states[:, :2].tolist()])
    rest = {name: pa.array(column) for name, column in COLUMNS.items() if "observation" not in name}
    make = pa.table(rest | {"obs": pairs}).to_pandas() if form == "pandas" else rest | {"obs": pairs}
    source = make if form == "pandas" else store(make, tmp_path, form)
    words = "'obs' must hold numbers or lists of numbers, but each cell is a struct of the fields (x, v|v, x)"
    with pytest.raises(LogError, match=words):
        load_log(source)
    with pytest.raises(
        LogError, match=r"'obs' must hold one label per row, but each cell is a struct of the fields (x, v|v, x)"
    ):
        load_log(source, columns={"state": "reward", "reward": "step", "action": "obs"})


MEASURE = """
import sys, pyarrow
from kbrl.logs.log import read_log
n = sum(len(chunk) for chunk in read_log(sys.argv[1], chunk_rows=8192))
print(n, pyarrow.default_memory_pool().max_memory())
"""


def test_a_huge_row_group_is_read_in_bounded_memory(tmp_path):
    peaks = []
    for n_rows in (100_000, 800_000):  # the larger one unpacks to 83 MB
        rng = np.random.default_rng(0)
        columns = {f"observation_{k}": rng.normal(size=n_rows) for k in range(10)}
        columns |= {"action": np.arange(n_rows) % 3, "reward": rng.normal(size=n_rows), "episode_id": np.zeros(n_rows)}
        path = tmp_path / f"{n_rows}.parquet"
        parquet.write_table(pa.table(columns), path, row_group_size=n_rows)
        assert parquet.ParquetFile(path).num_row_groups == 1
        run = subprocess.run([sys.executable, "-c", MEASURE, path], capture_output=True, text=True, check=True)
        n_read, peak = map(int, run.stdout.split())
        assert n_read == n_rows - 1
        peaks.append(peak)
    assert peaks[1] < 1.3 * peaks[0]
    assert peaks[1] < 45e6  # buffers and pages of 13 columns


def with_booleans():
    """A log whose state and reward have truth values, with one empty cell in neither."""
    rng = np.random.default_rng(4)
    n = 60
    return {
        "episode_id": np.arange(n) // 10,
        "observation_x": rng.normal(size=n),
        "observation_awake": rng.random(n) < 0.5,
        "action": rng.integers(3, size=n),
        "reward": rng.random(n) < 0.3,
        "terminated": np.arange(n) % 10 == 9,
    }


@pytest.mark.parametrize("form", FORMS)
def test_true_and_false_are_one_and_nought_in_every_form(tmp_path, form):
    columns = with_booleans()
    numbers = {name: c.astype(float) if c.dtype == bool else c for name, c in columns.items()}
    expected = load_log(numbers)
    assert set(expected.states[:, 1]) == set(expected.rewards) == {0.0, 1.0}
    assert_same(load_log(store(columns, tmp_path, form)), expected)


@pytest.mark.parametrize(("true", "false"), [("true", "false"), ("TRUE", "FALSE"), (" True ", "False")])
def test_any_case_of_true_and_false_counts_as_a_number(tmp_path, true, false):
    (tmp_path / "log.csv").write_text(f"obs,action,reward,done\n{true},a,{false},0\n{false},b,{true},1\n")
    log = load_log(tmp_path / "log.csv")
    assert (log.states.tolist(), log.rewards.tolist()) == ([[1.0], [0.0]], [0.0, 1.0])


@pytest.mark.parametrize("word", ["yes", "no", "t", "F"])
def test_words_that_are_flags_are_no_numbers_but_flags(tmp_path, word):
    (tmp_path / "log.csv").write_text(f"obs,action,reward,done\n1,a,0,{word}\n0,b,1,yes\n")
    assert load_log(tmp_path / "log.csv").terminals.tolist()[-1]
    (tmp_path / "log.csv").write_text(f"obs,action,reward,done\n{word},a,0,0\n0,b,1,1\n")
    with pytest.raises(LogError, match=f"the first is line 2 of .*: '{word}'"):
        load_log(tmp_path / "log.csv")
