# ruff: noqa: E501 - one line per case
"""Bad logs: each fault by name, with its rows; and a fault stops learning exactly if the reader refuses the log."""

import json
import warnings
from itertools import pairwise

import h5py
import numpy as np
import pandas
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from kbrl.checks import KbrlWarning
from kbrl.logs.check import check_log
from kbrl.logs.log import load_log
from kbrl.tables.faults import CATALOGUE, LogError

NAN, INF = np.nan, np.inf
N_EPISODES, LENGTH = 12, 10
N_ROWS = N_EPISODES * LENGTH


def good(**changes):
    """A log without a fault, and with the columns given instead of its own; None takes a column away."""
    rng = np.random.default_rng(3)
    place = np.arange(N_ROWS) % LENGTH
    columns = {
        "episode_id": np.arange(N_ROWS) // LENGTH,
        "step": place,
        "observation_x": rng.normal(size=N_ROWS),
        "observation_v": rng.normal(size=N_ROWS),
        "action": np.array(["a", "b"])[rng.integers(2, size=N_ROWS)],
        "reward": rng.uniform(0.5, 1.0, size=N_ROWS),
        "terminated": (place == LENGTH - 1) & (np.arange(N_ROWS) // LENGTH % 2 == 0),
    }
    columns["truncated"] = (place == LENGTH - 1) & ~columns["terminated"]
    return {name: column for name, column in (columns | changes).items() if column is not None}


def put(name, rows, value, dtype=None):
    """The good column of a name with another value in some rows."""
    column = good()[name].astype(dtype or good()[name].dtype)
    column[rows] = value
    return {name: column}


def with_next(**changes):
    """A good log with next states of its own."""
    columns = good(**changes)
    for name in ("x", "v"):
        columns[f"next_observation_{name}"] = np.roll(good()[f"observation_{name}"], -1)
    return columns


def reordered(order):
    return {name: column[order] for name, column in good().items()}


def in_files(columns, *starts):
    """The same rows in several files: one table per file, cut before some rows."""
    edges = [0, *starts, N_ROWS]
    return [{name: c[first:last] for name, c in columns.items()} for first, last in pairwise(edges)]


def source_of(log, folder):
    """What the reader is given: the paths of files, if the log is a list of tables."""
    if not isinstance(log, list):
        return log
    for place, table in enumerate(log):
        np.savez(folder / f"part-{place}.npz", **table)
    return [folder / f"part-{place}.npz" for place in range(len(log))]


ROWS = np.arange(N_ROWS)
ALL_ENDS = good()["terminated"] | good()["truncated"]
SWAPPED = np.concatenate([[0, 2, 1], ROWS[3:]])
SPLIT = np.concatenate([ROWS[:5], ROWS[10:20], ROWS[5:10], ROWS[20:]])
LISTS = np.empty(N_ROWS, dtype=object)
LISTS[:] = [[0.0, float(k)] for k in range(N_ROWS)]
RAGGED = LISTS.copy()
RAGGED[17] = [1.0]
MIXED = np.array(["a", 1] * (N_ROWS // 2), dtype=object)


def many_names():
    """Return a log with an identifier of its own in each row."""
    n_rows = 10_100
    names = np.array([f"patient {k}" for k in range(n_rows)])
    rest = {"action": np.arange(n_rows) % 2, "reward": np.arange(n_rows) % 3, "terminated": np.arange(n_rows) % 5 == 4}
    return {"observation_x": names} | rest


def twice(name):
    """Return a log with a column of a name that another has."""
    frame = pandas.DataFrame(good())
    return pandas.concat([frame, frame[[name]]], axis=1)


# name of the case: (log, options, name of the fault, its count, its first rows, whether it stops learning)
CASES = {
    "no action": (good(action=None), {}, "missing_column", 1, (), True),
    "no state": (good(observation_x=None, observation_v=None), {}, "missing_column", 1, (), True),
    "two columns of one name": (twice("reward"), {}, "repeated_column", 1, (), True),
    "two rewards": (good(rewards=ROWS), {}, "ambiguous_column", 1, (), True),
    "columns of unequal length": (good(reward=np.ones(5)), {}, "uneven_columns", 1, (), True),
    "lists of varying length": (good(observation_x=None, observation_v=None, obs=RAGGED), {}, "ragged_state", 1, (17,), True),
    "next states of other width": (good(next_obs=np.ones((N_ROWS, 3))), {}, "wrong_width", 1, (), True),
    "vectors as actions": (good(action=np.ones((N_ROWS, 2))), {}, "vector_action", 1, (), True),
    "an unknown name in an expression": (good(), {"columns": {"reward": "-0.1 * pain"}}, "bad_expression", 1, (), True),
    "dates in the state": (good(observation_x=np.array([f"2024-01-{1 + k % 28:02}" for k in ROWS])), {}, "date_in_state", 1, (0,), True),
    "numbers where times should be": (good(), {"columns": {"elapsed": {"observation_x": "1 day"}}}, "not_a_date", 1, (), True),
    "an identifier in the state": (many_names(), {}, "too_many_levels", 1, (0,), True),
    "a level outside its order": (good(observation_x=np.where(ROWS == 8, "mid", "low")), {"columns": {"ordinal": {"observation_x": ["low", "high"]}}}, "unknown_level", 1, (), True),
    "one word in the state": (good(**put("observation_x", 8, "?", object)), {}, "not_a_number", 1, (8,), True),
    "words as rewards": (good(**put("reward", [3, 4], "good", object)), {}, "not_a_number", 2, (3, 4), True),
    "rows that are there twice": (reordered([*ROWS, 5, 5, 7]), {"columns": {"drop_repeats": True}}, "repeated_rows", 3, (), False),
    "NaN in the state": (good(**put("observation_x", [4, 99], NAN)), {}, "filled_values", 2, (), False),
    "NaN in a list of state variables": (good(observation_x=None, observation_v=None, obs=np.where(ROWS[:, None] == [4, 5], NAN, 1.0)), {}, "missing_state", 2, (4, 5), True),
    "a column without values": (good(observation_x=np.full(N_ROWS, NAN)), {}, "missing_state", N_ROWS, (0, 1, 2, 3, 4), True),
    "infinity in the state": (good(**put("observation_v", 7, -INF)), {}, "infinite_state", 1, (7,), True),
    "NaN in the reward": (good(**put("reward", [0, 5], NAN)), {}, "missing_reward", 2, (0, 5), True),
    "infinity in the reward": (good(**put("reward", 119, INF)), {}, "infinite_reward", 1, (119,), True),
    "a next state with a missing value": (with_next() | {"next_observation_x": np.where(ROWS == 3, NAN, 1)}, {}, "filled_values", 1, (), False),
    "a next state missing": (with_next() | {f"next_observation_{name}": np.where(ROWS == 3, NAN, 1) for name in "xv"}, {}, "missing_next_state", 1, (3,), True),
    "an infinite next state": (with_next() | {"next_observation_x": np.where(ROWS == 3, INF, 1)}, {}, "infinite_next_state", 1, (3,), True),
    "a state that is too large": (good(**put("observation_x", 7, 1e101)), {}, "infinite_state", 1, (7,), True),
    "a next state that is too large": (with_next() | {"next_observation_x": np.where(ROWS == 3, -1e300, 1)}, {}, "infinite_next_state", 1, (3,), True),
    "rewards that are too large": (good(**put("reward", [2, 9], 1e300)), {}, "infinite_reward", 2, (2, 9), True),
    "an action missing": (good(**put("action", [2, 3], None, object)), {}, "missing_action", 2, (2, 3), True),
    "an episode missing": (good(**put("episode_id", 6, NAN, float)), {}, "missing_episode", 1, (6,), True),
    "a step missing": (good(**put("step", 6, NAN, float)), {}, "missing_step", 1, (6,), True),
    "a flag of 2": (good(**put("terminated", 9, 2, int)), {}, "bad_flag", 1, (9,), True),
    "a flag missing": (good(**put("truncated", 19, NAN, float)), {}, "bad_flag", 1, (19,), True),
    "an action that was impossible": (good(action_prob=np.where(ROWS == 6, 0.0, 0.5)), {}, "bad_propensity", 1, (6,), True),
    "words and numbers as actions": (good(action=MIXED), {}, "mixed_actions", 1, (), True),
    "continuous actions": (good() | {k: np.repeat(v, 10, axis=0) for k, v in with_next().items()} | {"action": np.random.default_rng(0).normal(size=10 * N_ROWS)}, {}, "too_many_actions", 1, (), True),
    "an action not on the list": (good(), {"actions": ["a", "c"]}, "unknown_action", 1, (), True),
    "nothing that orders rows": (good(episode_id=None, step=None, terminated=None, truncated=None), {}, "no_order", 1, (), True),
    "only one-row episodes": (good(episode_id=ROWS, step=None, terminated=None, truncated=None), {}, "no_transitions", 1, (), True),
    "a step twice": (reordered(np.insert(ROWS, 13, 12)), {}, "duplicate_steps", 1, (13,), True),
    "a step twice beside next states": (with_next(**put("step", 13, 2)), {}, "duplicate_steps", 1, (13,), False),
    "steps out of order": (reordered(SWAPPED), {}, "unsorted_steps", 1, (2,), True),
    "steps out of order beside next states": (with_next(step=good()["step"][::-1]), {}, "unsorted_steps", 108, (1, 2, 3, 4, 5), False),
    "an episode in two pieces": (reordered(SPLIT), {}, "split_episode", 1, (15,), True),
    "no rows": ({name: column[:0] for name, column in good().items()}, {}, "empty_log", 1, (), True),
    "a step left out": (reordered(np.delete(ROWS, [3, 4])), {}, "missing_steps", 1, (2,), False),
    "a step left out, and a stride": (reordered(np.delete(ROWS, [3, 4])), {"columns": {"stride": 1}}, "missing_steps", 1, (2,), False),
    "another stride than is stated": (good(), {"columns": {"stride": 2}}, "too_many_gaps", 108, (), True),
    "visits instead of patients": (good(episode_id=np.minimum(ROWS, 80), step=None, terminated=None, truncated=None), {}, "too_many_left_out", 81, (), True),
    "a duration of 0": (good(step_duration=np.arange(N_ROWS) % LENGTH * 1.0), {}, "bad_duration", 12, (0, 10, 20, 30, 40), True),
    "a stride with a unit for numbers": (good(), {"columns": {"stride": "1 day"}}, "wrong_stride", 1, (), True),
    "both flags": (good(**put("truncated", 9, True)), {}, "both_flags", 1, (9,), False),
    "rows after an end": (good(**put("terminated", 4, True)), {}, "rows_after_end", 1, (5,), False),
    "a time limit as an end": (good(terminated=ALL_ENDS, truncated=0 * ROWS), {}, "time_limit_as_end", 12, (9, 19, 29, 39, 49), False),
    "next states of another row": (with_next(observation_x=good()["observation_v"]), {}, "next_state_mismatch", 108, (0, 1, 2, 3, 4), False),
    "an episode without an end": (good(**put("truncated", 19, False)), {}, "unfinished_episodes", 1, (19,), False),
    "an episode of one row": (good(**put("episode_id", 119, 99)), {}, "tiny_episodes", 1, (119,), False),
    "files cut within an episode": (in_files(good(step=None), 15, 40), {}, "episode_across_files", 1, (15,), False),
    "a constant variable": (good(observation_v=np.full(N_ROWS, 3.0)), {}, "constant_variable", 1, (), False),
    "grams and tons": (good(observation_v=1e6 * good()["observation_v"]), {}, "unequal_scales", 2, (), False),
    "doses to the milligram": (good(action=(ROWS % 40) / 8), {}, "many_actions", 40, (), True),
    "an action taken thrice": (good(**put("action", [5, 6, 7], "c")), {}, "rare_action", 1, (), False),
    "an action never taken": (good(), {"actions": ["a", "b", "c"]}, "untried_action", 1, (), False),
    "a single action": (good(action=0 * ROWS), {}, "single_action", 1, (), False),
    "equal rewards": (good(reward=np.zeros(N_ROWS)), {}, "constant_reward", N_ROWS, (), False),
    "a reward with a slipped point": (good(**put("reward", 33, 9e5)), {}, "reward_outliers", 1, (33,), False),
    "no flags at all": (good(terminated=None, truncated=None), {}, "no_flags", 1, (), False),
    "done without truncated": (good(terminated=None, truncated=None, done=ALL_ENDS), {}, "done_only", 1, (), False),
}  # fmt: skip


def test_a_good_log_has_no_fault():
    report = check_log(good())
    assert report.faults == ()
    assert (report.n_rows, report.n_episodes, report.n_transitions) == (
        120,
        12,
        114,
    )  # six were cut without a next state
    assert sum(report.actions.values()) == N_ROWS
    assert not report.stops_learning


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("chunk_rows", [7, 65536])
def test_the_fault_is_found_with_its_count_and_rows(case, chunk_rows, tmp_path):
    log, options, name, count, rows, stops = CASES[case]
    report = check_log(source_of(log, tmp_path), chunk_rows=chunk_rows, **options)
    found = {fault.name: fault for fault in report.faults}
    assert name in found, list(found)
    fault = found[name]
    assert (fault.count, fault.rows, fault.stops_learning) == (count, rows, stops)
    assert fault.message.endswith(".") or fault.message.endswith("...")
    assert report.faults == tuple(sorted(report.faults, key=lambda fault: not fault.stops_learning))
    assert json.loads(json.dumps(report.to_dict()))["stops_learning"] == stops


@pytest.mark.filterwarnings("ignore:After .* the step rises", "ignore:.* before a gap")
@pytest.mark.parametrize("case", CASES)
def test_a_fault_stops_learning_exactly_if_the_reader_refuses_the_log(case, tmp_path):
    log, options, _, _, _, stops = CASES[case]
    source = source_of(log, tmp_path)
    report = check_log(source, **options)
    assert report.stops_learning == stops
    if not stops:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", KbrlWarning)
            assert len(load_log(source, **options)) == report.n_transitions
        return
    with pytest.raises(LogError) as caught:
        load_log(source, **options)
    assert caught.value.fault.name in [fault.name for fault in report.faults if fault.stops_learning]
    assert str(caught.value).endswith(caught.value.fault.advice)


def broken(path, case):
    """Write a broken file and return its path."""
    if case == "an empty CSV file" or case == "an empty Parquet file":
        path = path.with_suffix(".csv" if "CSV" in case else ".parquet")
        path.write_bytes(b"")
    elif case == "a header alone":
        path = path.with_suffix(".csv")
        path.write_text("obs,action,reward\n")
    elif case == "a truncated Parquet file" or case == "a damaged Parquet file":
        path = path.with_suffix(".parquet")
        parquet.write_table(pa.table(good()), path, write_page_checksum=True)
        data = bytearray(path.read_bytes())
        data[200] ^= 4
        path.write_bytes(data if "damaged" in case else data[: len(data) // 2])
    elif case == "a truncated archive":
        path = path.with_suffix(".npz")
        np.savez(path, **good())
        path.write_bytes(path.read_bytes()[:3000])
    elif case == "a line with too many cells":
        path = path.with_suffix(".csv")
        path.write_text("obs,action,reward,done\n1,a,0,0\n2,b,0,1,9\n")
    elif case == "another format":
        path = path.with_suffix(".xls")
        path.write_bytes(b"PK")
    elif case == "two formats in a folder":
        path.mkdir()
        pandas.DataFrame(good()).to_csv(path / "a.csv", index=False)
        np.savez(path / "b.npz", **good())
    elif case == "files of other columns":
        path.mkdir()
        pandas.DataFrame(good()).to_csv(path / "a.csv", index=False)
        pandas.DataFrame(good(action=None)).to_csv(path / "b.csv", index=False)
    elif case == "an empty folder":
        path.mkdir()
    elif case == "a link to another file":
        path = path.with_suffix(".h5")
        with h5py.File(path, "w") as file:
            file["observations"] = h5py.ExternalLink("other.h5", "/observations")
    elif case == "data that are not stored":
        path = path.with_suffix(".h5")
        with h5py.File(path, "w") as file:
            for name in ("observations", "actions", "rewards", "terminals"):
                file.create_dataset(name, (10**6,), "f8", chunks=(1000,))
    return path


BROKEN = {
    "no file": ("missing_file", "There is no file"),
    "an empty folder": ("missing_file", "holds no file of a log"),
    "an empty CSV file": ("empty_log", "it has no bytes"),
    "an empty Parquet file": ("empty_log", "it has no bytes"),
    "a header alone": ("empty_log", "has a header, but no row below it"),
    "a truncated Parquet file": ("unreadable", "cannot be read"),
    "a damaged Parquet file": ("unreadable", "cannot be read"),
    "a truncated archive": ("unreadable", "cannot be read"),
    "a line with too many cells": ("unreadable", "cannot be read"),
    "another format": ("unknown_format", "has an unknown ending, '.xls'"),
    "two formats in a folder": ("unknown_format", "must be of one format"),
    "files of other columns": ("missing_column", "b.csv lacks 'action'"),
    "a link to another file": ("foreign_data", "'observations' in '/' is a link to another file"),
    "data that are not stored": ("too_large", "the file stores only 0 bytes"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_named_with_its_fault(tmp_path, case):
    name, words = BROKEN[case]
    path = broken(tmp_path / "log", case)
    report = check_log(path)
    assert name in [fault.name for fault in report.faults]
    assert report.stops_learning
    with pytest.raises(LogError, match=words) as caught:
        load_log(path)
    assert caught.value.fault.name == name
    assert "log" in str(caught.value)


def test_words_in_a_text_file_are_counted_with_their_rows(tmp_path):
    frame = pandas.DataFrame(good(**put("observation_x", [3, 70], "n.a.", object)))
    frame.loc[5, "observation_v"] = NAN
    frame.to_csv(tmp_path / "log.csv", index=False)
    found = {fault.name: fault for fault in check_log(tmp_path / "log.csv").faults}
    assert found["not_a_number"].rows == (3, 70)
    assert (found["filled_values"].columns, found["filled_values"].count) == (("observation_v",), 1)
    with pytest.raises(
        LogError, match=r"'observation_x' has at least 2 faulty cells .* the first is line 5 of .*: 'n.a.'"
    ):
        load_log(tmp_path / "log.csv")


def found_across(log, folder, **options):
    """The fault of episodes that go on in the next file, None if there is none."""
    faults = check_log(source_of(log, folder), **options).faults
    return next((fault for fault in faults if fault.name == "episode_across_files"), None)


@pytest.mark.parametrize("chunk_rows", [1, 5, 65536])
def test_every_border_at_which_rows_are_joined_is_counted_and_the_first_is_named(tmp_path, chunk_rows):
    fault = found_across(in_files(good(step=None), 10, 25, 30, 45, 46), tmp_path, chunk_rows=chunk_rows)
    assert (fault.count, fault.rows, fault.unit) == (3, (25, 45, 46), "borders")
    assert "between" in fault.message
    assert all(f"part-{place}.npz" in fault.message for place in (1, 2))


def test_flags_alone_do_not_show_that_an_episode_goes_on_in_the_next_file(tmp_path):
    assert found_across(in_files(good(step=None, episode_id=None), 10, 25), tmp_path).rows == (25,)


def test_times_do_not_show_that_an_episode_goes_on_but_whole_steps_do(tmp_path):
    assert found_across(in_files(good(step=0.3 * good()["step"]), 25), tmp_path).rows == (25,)
    assert found_across(in_files(good(), 10, 25), tmp_path) is None
    assert found_across(in_files(good(step=4 * good()["step"]), 25), tmp_path) is None


def test_next_states_of_its_own_make_the_borders_of_files_harmless(tmp_path):
    assert found_across(in_files(with_next(step=None), 25), tmp_path) is None


def test_a_file_without_rows_is_no_border(tmp_path):
    log = in_files(good(step=None), 25)
    empty = {name: column[:0] for name, column in log[0].items()}
    fault = found_across([log[0], empty, log[1]], tmp_path)
    assert (fault.count, fault.rows) == (1, (25,))
    assert "part-0.npz" in fault.message
    assert "part-2.npz" in fault.message


def test_a_number_that_is_too_large_is_named_with_the_limit():
    (fault,) = check_log(good(**put("reward", 9, -1e300))).faults
    assert (
        "the first is row 10 (counting from 1): -1e+300 (numbers must be finite and at most 1e+100 in size)"
        in fault.message
    )
    with pytest.raises(
        LogError,
        match=r"the first is row 10 \(counting from 1\): -1e\+300 \(numbers must be finite and at most 1e\+100",
    ):
        load_log(good(**put("reward", 9, -1e300)))
    assert load_log(good(**put("reward", 9, 1e100))).rewards.max() == 1e100


def test_unequal_scales_are_found_up_to_the_largest_numbers():
    names = [fault.name for fault in check_log(good(observation_v=1e99 * good()["observation_v"])).faults]
    assert names == ["unequal_scales"]


@pytest.mark.parametrize("name", ["duplicate_steps", "unsorted_steps", "split_episode"])
def test_the_advice_on_order_also_serves_files_that_number_their_episodes_anew(name):
    advice = CATALOGUE[name][1]
    assert "Sort the log by episode and step" in advice
    assert "If each file numbers its episodes anew, do not sort" in advice
    assert advice.count(".") == 2


def test_a_prize_at_the_end_is_no_outlier():
    assert check_log(good(reward=np.where(good()["terminated"], 1e6, good()["reward"]))).faults == ()


def test_every_fault_of_the_catalogue_has_a_case():
    assert {case[2] for case in CASES.values()} | {case[0] for case in BROKEN.values()} == set(CATALOGUE)


def test_something_else_than_a_log_is_refused():
    with pytest.raises(TypeError, match=r"must be a path, .* a mapping of columns.*, but it is int"):
        check_log(3)


def names_of(log):
    return [fault.name for fault in check_log(log).faults]


def test_a_reward_for_every_step_is_no_fault_where_some_episodes_end():
    per_step = np.ones(N_ROWS)
    assert names_of(good(reward=per_step)) == []
    never_ends = good(reward=per_step, terminated=0 * ROWS, truncated=ALL_ENDS)
    assert names_of(never_ends) == ["constant_reward"]
    (fault,) = check_log(never_ends).faults
    assert fault.message == "All rewards are 1, and no row ends an episode."
    assert fault.advice == "Check the column of rewards: all decisions are worth the same."


def bandit(**changes):
    """One row per episode, terminated."""
    return good(episode_id=ROWS, step=None, terminated=0 * ROWS + 1, truncated=None, **changes)


def test_single_rows_that_are_ends_are_no_tiny_episodes():
    assert names_of(bandit()) == []
    assert len(load_log(bandit())) == N_ROWS
    some = bandit() | {"terminated": (ROWS != 7).astype(int)}
    (fault,) = [fault for fault in check_log(some).faults if fault.name == "tiny_episodes"]
    assert (fault.count, fault.rows) == (1, (7,))
    assert fault.message == "Episodes of a single row that does not end them: 1; the first is row 8 (counting from 1)."


def test_a_constant_reward_of_single_rows_is_a_fault_since_all_returns_are_equal():
    (fault,) = check_log(bandit(reward=np.full(N_ROWS, 2.0))).faults
    assert (fault.name, fault.message) == ("constant_reward", "All rewards are 2, and every row ends its episode.")


@pytest.mark.parametrize("chunk_rows", [1, 7, 65536])
@pytest.mark.parametrize("rise", [1, 10])
def test_next_states_are_compared_with_the_next_row_whatever_the_usual_rise_of_the_step(rise, chunk_rows):
    states = np.arange(30.0)
    following = states + 1
    following[11] = 99.0
    log = {"episode": np.zeros(30), "step": rise * np.arange(30), "obs": states, "next_obs": following}
    log |= {"action": np.arange(30) % 2, "reward": states}
    (fault,) = [f for f in check_log(log, chunk_rows=chunk_rows).faults if f.name == "next_state_mismatch"]
    assert (fault.count, fault.rows) == (1, (11,))
    assert fault.message == (
        "Rows whose next state is not the state of the row after: 1; the first is row 12 (counting from 1)."
    )
