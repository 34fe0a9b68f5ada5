"""Which row follows which, and what is told of rows that are left out: judged by a loop over episodes in a dict."""

import re
import tempfile
import warnings
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbrl import KbrlWarning, join
from kbrl.learners.matching_log import carried_over
from kbrl.logs.check import check_log
from kbrl.logs.columns import resolve
from kbrl.logs.log import load_log, open_log, read_log
from kbrl.on_dask.log_parts import Part, agree, find_columns, look_at
from kbrl.tables.faults import LogError

CUT = "at the end of an episode that was cut, where the next state is not known"
GAP = "before a gap, where the step does not rise by the stride"


def slow_transitions(rows, stride):
    """Return transitions and how many rows are left out for gaps and for cuts: one row, and one episode, at a time."""
    episodes = {}
    for row in rows:
        episodes.setdefault(row[0], []).append(row)
    made, n_gaps, n_cuts = [], 0, 0
    for own in episodes.values():
        for row, following in zip(own, [*own[1:], None]):
            _, step, state, terminated = row
            if terminated:
                made.append((state, state, True))
            elif following is None:
                n_cuts += 1
            elif stride not in (None, "any") and following[1] - step != stride:
                n_gaps += 1
            else:
                made.append((state, following[2], False))
    return made, n_gaps, n_cuts


@st.composite
def logs(draw):
    rows = []
    for episode in range(draw(st.integers(1, 4))):
        step = draw(st.integers(0, 3))
        for _ in range(draw(st.integers(1, 6))):
            rows.append((episode, step, float(len(rows)), draw(st.booleans())))
            step += draw(st.integers(1, 3))
    return rows


def as_table(rows):
    names = ("episode", "step", "obs_x", "terminated")
    table = {name: np.array(column) for name, column in zip(names, zip(*rows))}
    return table | {"action": np.zeros(len(rows), int), "reward": np.ones(len(rows))}


def found(log):
    return list(zip(log.states[:, 0].tolist(), log.next_states[:, 0].tolist(), log.terminals.tolist()))


def in_files(table, edges, folder):
    for place, (first, last) in enumerate(pairwise(edges)):
        np.savez(folder / f"part-{place}.npz", **{name: column[first:last] for name, column in table.items()})
    return [folder / f"part-{place}.npz" for place in range(len(edges) - 1)]


def in_parts(tables, columns):
    """Read tables as the workers of a cluster do."""
    opened = [Part(f"part {place}").open(table) for place, table in enumerate(tables)]
    named = find_columns(opened[0], columns)
    facts = agree([look_at(part, named, len(opened)) for part in opened], ["part"] * len(opened), None)
    return join([chunk for part in opened for chunk in facts.chunks(part)])


@settings(max_examples=80, deadline=None)
@given(rows=logs(), chunk_rows=st.integers(1, 9), stride=st.sampled_from([None, "any", 1, 2]), data=st.data())
def test_rows_follow_each_other_as_a_slow_loop_says_in_chunks_in_files_and_in_parts(rows, chunk_rows, stride, data):
    made, n_gaps, n_cuts = slow_transitions(rows, stride)
    table, columns = as_table(rows), {"allow_gaps": True} | ({} if stride is None else {"stride": stride})
    report = check_log(table, columns=columns, chunk_rows=chunk_rows)
    assert (report.n_transitions, report.left_out.gaps, report.left_out.cuts) == (len(made), n_gaps, n_cuts)
    if not made:
        return
    edges = sorted({0, len(rows), *data.draw(st.lists(st.integers(0, len(rows)), max_size=3))})
    episodes = [0, *(1 + np.flatnonzero(np.diff(table["episode"]))).tolist(), len(rows)]
    tables = [{name: column[a:b] for name, column in table.items()} for a, b in pairwise(episodes)]
    with warnings.catch_warnings(record=True) as told, tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("always")
        log = open_log(table, columns=columns)
        assert found(join(list(log.chunks(chunk_rows)))) == made
        assert found(load_log(in_files(table, edges, Path(folder)), columns=columns)) == made
        assert found(in_parts(tables, columns)) == made
    assert (log.left_out.gaps, log.left_out.cuts) == (n_gaps, n_cuts)
    left_out = [str(warning.message) for warning in told if "left out:" in str(warning.message)]
    assert len(left_out) == 3 * (n_gaps + n_cuts > 0)
    for message in left_out:
        assert message.startswith(f"{n_gaps + n_cuts} of {len(rows)} rows are left out: ")
        assert (f"{n_gaps} {GAP}" in message, f"{n_cuts} {CUT}" in message) == (n_gaps > 0, n_cuts > 0)


def visits(n_episodes=30, n_visits=20, seed=0):
    """Visits 60 to 370 minutes apart."""
    rng = np.random.default_rng(seed)
    n = n_episodes * n_visits
    minutes = rng.integers(60, 371, size=(n_episodes, n_visits)).cumsum(axis=1).reshape(n)
    return {
        "patient": np.repeat(np.arange(n_episodes), n_visits),
        "minutes": minutes,
        "obs_x": rng.normal(size=n),
        "action": rng.integers(2, size=n),
        "reward": rng.normal(size=n),
    }


def test_irregular_minutes_only_order_the_visits():
    with pytest.warns(KbrlWarning, match=f"^30 of 600 rows are left out: 30 {CUT}.$") as told:
        log = load_log(visits(), columns={"episode": "patient", "step": "minutes"})
    assert len(log) == 600 - 30
    assert len(told) == 1
    report = check_log(visits(), columns={"episode": "patient", "step": "minutes"})
    assert report.n_transitions == 570
    assert [fault.name for fault in report.faults] == ["no_flags"]


DAYS = [0, 1, 2, 4, 5, 6, 7]  # day 3 is missing


def dated(days=DAYS):
    moments = [datetime(2024, 2, 27, 9, 30) + timedelta(days=day) for day in days]
    n = len(moments)
    return pandas.DataFrame(
        {"when": moments, "obs_x": np.arange(float(n)), "action": [0, 1] * (n // 2) + [0] * (n % 2), "reward": 0.5}
    ).assign(episode=0)


def written(frame, form, folder):
    if form == "csv":
        frame.to_csv(folder / "log.csv", index=False)
        return folder / "log.csv"
    if form == "parquet":
        parquet.write_table(pa.Table.from_pandas(frame), folder / "log.parquet")
        return folder / "log.parquet"
    if form == "aware":
        return frame.assign(when=frame["when"].dt.tz_localize("Asia/Tokyo"))
    if form.startswith("texts"):
        texts = frame.assign(when=frame["when"].astype(str))
        return written(texts, form.removeprefix("texts in "), folder) if " in " in form else texts
    if form in ("s", "ns"):
        return frame.assign(when=frame["when"].astype(f"datetime64[{form}]"))
    if form == "durations":
        return frame.assign(when=frame["when"] - frame["when"][0])
    if form == "dates":
        return frame.assign(when=frame["when"].dt.date)
    return {"polars": polars.from_pandas, "arrow": pa.Table.from_pandas}[form](frame)


FORMS = (
    "csv",
    "parquet",
    "texts",
    "texts in parquet",
    "texts in polars",
    "texts in arrow",
    "aware",
    "s",
    "ns",
    "durations",
    "dates",
    "polars",
    "arrow",
)


@pytest.mark.filterwarnings("ignore::kbrl.KbrlWarning")
@pytest.mark.parametrize("form", FORMS)
def test_datetimes_order_rows_and_a_stride_with_a_unit_shows_their_gaps(form, tmp_path):
    source, columns = written(dated(), form, tmp_path), {"step": "when", "allow_gaps": True}
    assert load_log(source, columns=columns).states.ravel().tolist() == [0, 1, 2, 3, 4, 5]
    for stride in ("1 day", "24 hours", "1440min", "D", timedelta(days=1), np.timedelta64(1, "D")):
        log = load_log(source, columns=columns | {"stride": stride})
        assert log.states.ravel().tolist() == [0, 1, 3, 4, 5]  # row 2 is before the gap
    with pytest.raises(LogError, match=r"The stride is '1', but the steps in 'when' are datetimes, which need a unit."):
        load_log(source, columns=columns | {"stride": 1})


@pytest.mark.parametrize("form", FORMS)
def test_datetimes_out_of_order_are_refused_with_their_place(form, tmp_path):
    source = written(dated([0, 3, 1]), form, tmp_path)
    place = r"line 4 of .*log\.csv" if form == "csv" else r"row 3 \(counting from 1\)"
    with pytest.raises(LogError, match=f"but {place} is 172800 seconds before the row above it.*Sort the log"):
        load_log(source, columns={"step": "when"})


def test_a_datetime_twice_is_refused_with_words_of_its_own():
    with pytest.raises(LogError, match=r"but row 3 \(counting from 1\) has the same time as the row above it. Sort"):
        load_log(dated([0, 1, 1]), columns={"step": "when"})


@pytest.mark.parametrize("form", ["csv", "parquet", "polars"])
def test_dates_in_another_order_are_refused_with_the_dates_that_work(form, tmp_path):
    frame = dated().assign(when=dated()["when"].dt.strftime("%d/%m/%Y"))
    with pytest.raises(LogError, match=r": '27/02/2024' \(steps are numbers, or ISO dates such as 2024-02-27 or"):
        load_log(written(frame, form, tmp_path), columns={"step": "when"})


def test_datetimes_are_no_numbers_in_a_state_whatever_their_unit():
    for unit in ("s", "us", "ns"):
        frame = dated().assign(obs_x=dated()["when"].astype(f"datetime64[{unit}]"))
        with pytest.raises(LogError, match=r"'obs_x' has dates, such as 2024-02-.*--elapsed 'obs_x=1 day'"):
            load_log(frame.drop(columns="when"))


def test_datetimes_and_numbers_do_not_mix(tmp_path):
    for name, steps in (("a", ("1", "2")), ("b", ("2024-01-01", "2024-01-02"))):
        lines = ["episode,step,obs,action,reward", *(f"{name},{step},1,a,0" for step in steps)]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(LogError, match="Steps in 'step' must be all numbers or all datetimes, but there are both"):
        load_log(tmp_path)


def counted(steps, **columns):
    n = len(steps)
    table = {"episode": np.zeros(n, int), "step": np.array(steps), "obs": np.arange(float(n))}
    return table | {"action": np.arange(n) % 2, "reward": np.arange(n) / n} | columns


def test_a_counter_with_steps_missing_is_joined_with_a_warning_that_names_both_ways_out():
    log = counted([*range(10), *range(11, 20)])
    with pytest.warns(KbrlWarning) as told:
        assert len(load_log(log)) == 18
    assert [str(warning.message) for warning in told if "left out:" not in str(warning.message)] == [
        "After 1 row the step rises by more than 1, its usual rise, and the row after it is taken as the next. If rows "
        "are missing there, leave out the rows before the gaps: --stride 1, in Python columns={'stride': 1}. If no "
        "rows are missing, state that: --stride any."
    ]
    with pytest.warns(KbrlWarning, match=f"2 of 19 rows are left out: 1 {GAP} and 1 {CUT}"):
        assert len(load_log(log, columns={"stride": 1, "allow_gaps": True})) == 17
    with pytest.warns(KbrlWarning, match=f"^1 of 19 rows are left out: 1 {CUT}.$") as told:
        load_log(log, columns={"stride": "any"})
    assert len(told) == 1


@pytest.mark.filterwarnings("ignore::kbrl.KbrlWarning")
@pytest.mark.parametrize(("n_gaps", "is_refused"), [(5, False), (6, True)])
def test_more_than_five_per_cent_of_rows_before_gaps_have_to_be_allowed(n_gaps, is_refused):
    rises = np.ones(100, int)
    rises[10 : 10 + n_gaps] = 2
    log = counted(np.cumsum(rises))
    allowed = {"stride": 1, "allow_gaps": True}
    assert len(load_log(log, columns=allowed)) == 99 - n_gaps
    assert not check_log(log, columns=allowed).stops_learning
    assert check_log(log, columns={"stride": 1}).stops_learning == is_refused
    if not is_refused:
        assert len(load_log(log, columns={"stride": 1})) == 99 - n_gaps
        return
    message = (
        f"Gaps may leave out at most 5% of the rows, but after {n_gaps} of 100 rows ({n_gaps}.0%) the step does not "
        f"rise by the stride, 1. State another stride, or --stride any if the step only orders the rows. Or allow gaps"
        f": --allow-gaps, in Python columns={{'allow_gaps': True}}."
    )
    with pytest.raises(LogError, match=re.escape(message)):
        load_log(log, columns={"stride": 1})
    with pytest.raises(LogError, match=re.escape(message)):
        in_parts([log], {"stride": 1})


def in_episodes(lengths):
    """A log of episodes of some lengths, none of which ends."""
    n = sum(lengths)
    return counted(range(n), episode=np.repeat(np.arange(len(lengths)), lengths))


@pytest.mark.filterwarnings("ignore::kbrl.KbrlWarning")
@pytest.mark.parametrize("lengths", [[1] * 4 + [3, 3], [1] * 5 + [3, 3], [1, 1, 2], [2, 1], [2]])
def test_more_than_half_of_the_rows_left_out_have_to_be_allowed(lengths):
    log, n_cuts, n = in_episodes(lengths), len(lengths), sum(lengths)  # each episode loses its last row
    allowed = {"allow_gaps": True}
    assert len(load_log(log, columns=allowed)) == n - n_cuts
    assert not check_log(log, columns=allowed).stops_learning
    stopping = [(fault.name, fault.count) for fault in check_log(log).faults if fault.stops_learning]
    if 2 * n_cuts <= n:
        assert len(load_log(log)) == n - n_cuts
        assert stopping == []
        return
    assert stopping == [("too_many_left_out", n_cuts)]
    message = (
        f"At most 50% of the rows may be left out, but {n_cuts} of {n} rows are left out: {n_cuts} {CUT}. Name another "
        f"column that tells episodes apart: --episode NAME, in Python columns={{'episode': NAME}}. Or allow many rows "
        f"to be left out: --allow-gaps, in Python columns={{'allow_gaps': True}}."
    )
    for read in (load_log, lambda table: in_parts([table], None)):
        with pytest.raises(LogError, match=re.escape(message)):
            read(log)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("changes, name", [
    ({"episode": np.arange(8) % 2}, "split_episode"),
    ({"terminated": ["maybe"] * 8, "step": np.arange(8) % 2}, "bad_flag"),
    ({"step": np.arange(8)[::-1], "stride": 1}, "unsorted_steps"),
    ({"episode": [0, None, 1, None, 2, None, 3, 3]}, "missing_episode"),
])  # fmt: skip
def test_rows_are_not_said_to_be_left_out_where_what_orders_them_is_at_fault(changes, name):
    columns = {"stride": changes.pop("stride")} if "stride" in changes else None
    log = counted(range(8), **changes)
    with pytest.raises(LogError) as refused:
        load_log(log, columns=columns)
    assert refused.value.fault.name == name
    stopping = [fault.name for fault in check_log(log, columns=columns).faults if fault.stops_learning]
    assert name in stopping
    assert not {"too_many_left_out", "too_many_gaps"} & set(stopping)


def test_a_cut_with_an_empty_next_state_is_told_and_has_to_be_allowed_for_most_rows():
    n = 40
    allowed = {"allow_gaps": True}
    table = {"obs": np.arange(float(n)), "next_obs": np.full(n, np.nan), "action": np.arange(n) % 2}
    table |= {"reward": np.arange(n), "terminated": np.arange(n) == 3, "truncated": np.arange(n) != 3}
    with pytest.warns(KbrlWarning, match=f"^39 of 40 rows are left out: 39 {CUT}.$"):
        assert len(load_log(table, columns=allowed)) == 1
    with pytest.raises(LogError, match=r"At most 50% .* Write the next states of these rows, or .*--allow-gaps"):
        load_log(table)
    with pytest.warns(KbrlWarning, match=f"^39 of 40 rows are left out: 39 {CUT}.$"):
        assert len(in_parts([{name: column[:20] for name, column in table.items()},
                             {name: column[20:] for name, column in table.items()}], allowed)) == 1  # fmt: skip
    assert check_log(table).to_dict()["left_out"] == {"gaps": 0, "cuts": 39}


NO_STRIDES = [0, -1, np.nan, np.inf, True, "", "soon", "1 month", "0 days", "day 1", [1], timedelta(0)]
NO_STRIDES += [np.timedelta64(-1, "h"), np.timedelta64("NaT", "h"), np.timedelta64(1, "M")]


@pytest.mark.parametrize("stride", NO_STRIDES)
def test_a_stride_that_is_none_is_refused_with_the_rule(stride):
    with pytest.raises(ValueError, match=r"stride must be a number above 0, a number with a unit .*, but it is"):
        load_log(counted([0, 1, 2]), columns={"stride": stride})


def test_a_stride_needs_a_step():
    log = counted([0, 1, 2])
    del log["step"]
    with pytest.raises(
        LogError,
        match=r"A stride of 1 was stated, but no column of 'episode', 'obs'.* is the step.*: --step NAME, in Python",
    ):
        load_log(log, columns={"stride": 1})


def test_the_stride_is_remembered_with_the_columns_and_that_gaps_were_allowed_is_not():
    names = list(counted([0]))
    stored = resolve(names, {"stride": 1, "allow_gaps": True}).to_dict()
    assert stored["stride"] == "1"
    assert "allow_gaps" not in stored
    assert resolve(names, carried_over(stored, {}, names)).stride == "1"
    assert resolve(names, carried_over(stored, {"stride": "any"}, names)).stride == "any"
    assert "stride" not in carried_over(stored, {"step": "reward"}, names)
    with pytest.warns(KbrlWarning, match="The log lacks 'step'"):
        assert "stride" not in carried_over(stored, {}, [name for name in names if name != "step"])
    again = resolve(names, resolve(names, {"stride": 1, "allow_gaps": True}))
    assert (again.stride, again.allow_gaps) == ("1", True)


def test_without_a_stride_a_log_in_two_parts_gives_the_transitions_of_the_whole():
    one, two = counted([0, 2, 4]), counted([0, 1, 3], episode=np.ones(3, int))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KbrlWarning)
        whole = load_log({name: np.concatenate([one[name], two[name]]) for name in one})
        parts = [*read_log(one), *read_log(two)]
    assert found(whole) == found(join(parts))
