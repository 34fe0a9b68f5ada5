"""Logs in parts: what the looks at them agree on, and where they must not be cut."""

import numpy as np
import pytest

from kbrl import Transitions
from kbrl.data.transitions import join
from kbrl.logs.log import load_log, open_log
from kbrl.logs.writing import as_columns
from kbrl.on_dask import log_parts as parts_module
from kbrl.on_dask.log_parts import Part, agree, cut, find_columns, look_at, parts_of
from kbrl.tables.faults import LogError
from samples import random_log


def read(sources, actions=None):
    """Read parts one by one, each by itself, as different processes would; return all transitions."""
    parts = [Part(f"partition {number}") for number in range(len(sources))]
    opened = [part.open(source) for part, source in zip(parts, sources)]
    columns = find_columns(opened[0], None)
    looks = [look_at(part, columns, len(parts)) for part in opened]
    facts = agree(looks, [part.name for part in parts], actions)
    return join([chunk for part in opened for chunk in facts.chunks(part)])


def frame(episodes, steps=None, *, actions=None, ends=None):
    """Return a log without next states as columns."""
    n = len(episodes)
    columns = {"episode_id": episodes, "observation_x": np.arange(n) + 10.0 * np.array(episodes)}
    columns |= {"action": actions or [0, 1] * (n // 2) + [0] * (n % 2), "reward": np.zeros(n)}
    if steps is not None:
        columns["step"] = steps
    if ends is not None:
        columns["terminated"] = ends
    return {name: np.asarray(column) for name, column in columns.items()}


def whole(*frames):
    return {name: np.concatenate([each[name] for each in frames]) for name in frames[0]}


def assert_same(log, expected):
    for name in ("states", "actions", "rewards", "next_states", "terminals", "action_labels"):
        np.testing.assert_array_equal(getattr(log, name), getattr(expected, name))


def test_parts_with_next_states_are_read_as_the_whole_log_is():
    log = random_log(n=50, n_actions=4)
    frames = [as_columns(part) for part in log.chunks(7)]
    assert_same(read(frames), load_log(whole(*frames)))


def test_the_actions_of_all_parts_are_known_in_the_order_of_one_process():
    one, two = frame([1, 1], actions=["wait", "go"]), frame([2, 2], actions=["go", "ask"])
    assert read([one, two]).action_labels.tolist() == open_log(whole(one, two)).action_labels.tolist()
    assert read([one, two], ["go", "ask", "wait", "run"]).action_labels.tolist() == ["go", "ask", "wait", "run"]
    logs = [Transitions([[0.0]], [label], [0.0], [[0.0]]) for label in ("b", "a", "b")]
    assert read(logs).action_labels.tolist() == join(logs).action_labels.tolist() == ["b", "a"]


def test_whole_numbers_in_one_part_and_others_in_the_next_become_one_kind():
    one, two = frame([1, 1], actions=[0, 1]), frame([2, 2], actions=[0.5, 1.0])
    np.testing.assert_array_equal(read([one, two]).actions, [0.0, 0.5])


def test_a_number_beyond_int64_in_one_part_makes_words_of_the_actions_of_all():
    one, two = frame([1, 1, 1], actions=[0, 1, 1]), frame([2, 2])
    two["action"] = np.array([2**63, 0], dtype=np.uint64)
    assert read([one, two]).actions.tolist() == ["0", "1", "9223372036854775808"]
    assert read([one, two]).action_labels.tolist() == ["0", "1", "9223372036854775808"]


def test_whole_episodes_may_lie_in_any_part():
    frames = [frame([1, 1, 1, 2, 2]), frame([3, 3]), frame([4, 4, 5, 5, 5])]
    assert_same(read(frames), load_log(whole(*frames)))


@pytest.mark.filterwarnings("ignore:After 1 row the step rises by more than 2")
def test_any_rise_of_the_step_joins_rows_in_every_part():
    frames = [frame([1, 1, 1], [0, 2, 4]), frame([2, 2, 2], [0, 2, 5])]
    assert_same(read(frames), load_log(whole(*frames)))
    assert len(read(frames)) == 4


@pytest.mark.parametrize("second", [[2, 2, 3], [3, 2, 3], [4, 1, 1, 5]], ids=["next", "returns", "far"])
def test_an_episode_in_two_parts_is_refused_where_next_states_are_in_the_next_row(second):
    with pytest.raises(LogError, match=r"in partition 0 and in partition 1.*one process"):
        read([frame([0, 0, 1, 1, 2]), frame(second)])


def test_without_identifiers_a_part_must_end_with_an_episode():
    parts = [frame([0, 0], ends=[False, end]) for end in (True, False, True)]
    for part in parts:
        del part["episode_id"]
    assert len(read(parts[::2])) == 4
    with pytest.raises(LogError, match="ends with partition 0 or continues in partition 1"):
        read(parts[1:])


def test_steps_that_go_back_start_an_episode():
    parts = [frame([0, 0], [0, 1]), frame([0, 0], [0, 1])]
    for part in parts:
        del part["episode_id"]
    assert_same(read(parts), load_log(whole(*parts)))


def test_a_part_without_rows_or_without_transitions_is_no_fault_but_a_log_of_them_is():
    full, single = frame([1, 1, 1]), frame([2])
    empty = {name: column[:0] for name, column in full.items()}
    assert_same(read([full, empty, single]), load_log(full))
    with pytest.raises(LogError, match="no rows in any of its 2 parts"):
        read([empty, empty])


def test_several_tables_in_a_part_are_read_one_by_one():
    frames = [frame([1, 1]), frame([2, 2]), frame([3, 3])]
    assert_same(read([iter(frames[:2]), frames[2:]]), load_log(whole(*frames)))
    with pytest.raises(LogError, match="episode 2 is in partition 0 and in partition 0"):
        read([[frames[1], frames[1]]])


def test_transitions_and_tables_do_not_mix():
    with pytest.raises(TypeError, match="all be Transitions or all be tables"):
        read([frame([1, 1]), random_log()])


def test_large_parquet_files_are_cut_between_row_groups(tmp_path, monkeypatch):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    log = random_log(n=100)
    parquet.write_table(pa.table(as_columns(log)), tmp_path / "log.parquet", row_group_size=10)
    monkeypatch.setattr(parts_module, "_LEAST_ROWS", 25)
    (part,) = parts_of([tmp_path / "*.parquet"])
    columns = find_columns(part.open(), None)
    look = look_at(part.open(), columns, 1)
    pieces, n_rows = cut([part], [look])
    assert [piece.row_groups for piece in pieces] == [(0, 1), (2, 3), (4, 5, 6), (7, 8), (9,)]
    assert n_rows == [20, 20, 30, 20, 10]
    assert pieces[1].name.endswith("log.parquet, row groups 2 to 3")
    facts = agree([look], [part.name], None)
    assert_same(join([chunk for piece in pieces for chunk in facts.chunks(piece.open())]), log)


def test_files_are_found_here_and_opened_where_they_are_read(tmp_path):
    for name in ("part-10.csv", "part-2.csv"):
        (tmp_path / name).write_text("x\n1\n")
    names = [part.name.rsplit("/")[-1] for part in parts_of([tmp_path, "elsewhere/log.parquet"])]
    assert names == ["part-2.csv", "part-10.csv", "log.parquet"]
