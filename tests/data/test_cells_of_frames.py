"""A frame that is asked about has the states that the same frame had as a log, whatever its library and types."""

from contextlib import suppress
from datetime import date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pytest

from kbrl import KbrlWarning, load_log
from kbrl.data.names import state_rows

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")

N = 60
RNG = np.random.default_rng(0)
FLAGS = [bool(flag) for flag in RNG.random(N) < 0.5]
PLACES = RNG.integers(4, size=N).tolist()
WORDS = [["low", "middle", "high", "none of them"][place] for place in PLACES]
TIMES = [datetime(2024, 3, 30, 12) + timedelta(hours=row) for row in range(N)]  # clocks change on the 31st
IN_BERLIN = pd.Series(TIMES).dt.tz_localize("UTC").dt.tz_convert("Europe/Berlin")


def holes(values):
    return [None if row % 7 == 3 else value for row, value in enumerate(values)]


AS_LEVEL = {"category": ["x"]}
COLUMNS = {
    "float16": (pd.Series(PLACES, dtype="float16"), {}),
    "unsigned": (pd.Series(PLACES, dtype="uint64"), {}),
    "objects of two kinds": (pd.Series([p if p % 2 else p + 0.5 for p in PLACES], dtype=object), {}),
    "decimals": (pd.Series([Decimal(p) for p in PLACES], dtype=object), {}),
    "nullable whole numbers": (pd.Series(holes(PLACES), dtype="Int64"), {}),
    "nullable flags": (pd.Series(holes(FLAGS), dtype="boolean"), {}),
    "flags as levels": (pd.Series(FLAGS), AS_LEVEL),
    "nullable flags as levels": (pd.Series(holes(FLAGS), dtype="boolean"), AS_LEVEL),
    "objects of flags as levels": (pd.Series(FLAGS, dtype=object), AS_LEVEL),
    "whole numbers as levels": (pd.Series(holes(PLACES), dtype="Int64"), AS_LEVEL),
    "large identifiers as levels": (pd.Series([2**60 + place for place in PLACES]), AS_LEVEL),
    "dates as levels": (pd.Series([date(2024, 1, 1 + place) for place in PLACES], dtype=object), AS_LEVEL),
    "times as levels": (pd.Series([datetime(2024, 1, 1 + place) for place in PLACES]), AS_LEVEL),
    "infinity as a level": (pd.Series([np.inf if place == 3 else place for place in PLACES]), AS_LEVEL),
    "ordered whole numbers": (pd.Series(PLACES), {"ordinal": {"x": ["0", "1", "2", "3"]}}),
    "words": (pd.Series(holes(WORDS), dtype="string"), {}),
    "a categorical": (pd.Series(WORDS, dtype="category"), {}),
    "a categorical with gaps": (pd.Series(holes(WORDS), dtype="category"), {}),
    "a categorical of numbers": (pd.Series(PLACES, dtype="category"), {}),
    "a mark among numbers": (pd.Series([999 if p == 3 else p for p in PLACES]), {"na": "999"}),
    "a mark among objects": (pd.Series(["-" if p == 3 else p for p in PLACES], dtype=object), {"na": "-"}),
    "times": (pd.Series(TIMES), {"elapsed": {"x": "1 hour"}}),
    "times of a zone": (IN_BERLIN, {"elapsed": {"x": "1 hour"}}),
    "vectors": (pd.Series([[float(place), 2.0] for place in PLACES]), {}),
}  # fmt: skip


def forms(frame):
    """Yield the frame as several libraries hold it; Arrow has no column of words and numbers."""
    yield frame.set_axis(np.arange(len(frame))[::-1] * 3, axis=0)
    yield {name: frame[name].to_numpy() for name in frame}
    yield {name: frame[name].tolist() for name in frame}
    with suppress(pa.ArrowInvalid):
        yield pa.Table.from_pandas(frame, preserve_index=False)
        polars = pytest.importorskip("polars")
        yield polars.from_pandas(frame)


@pytest.mark.filterwarnings("ignore::kbrl.KbrlWarning")
@pytest.mark.parametrize("case", COLUMNS)
def test_a_state_is_the_same_learnt_from_and_asked_about(case):
    cells, rules = COLUMNS[case]
    rest = {"act": ["a", "b"] * (N // 2), "paid": 1.0, "stay": np.arange(N) // 6, "over": np.arange(N) % 6 == 5}
    frame = pd.DataFrame({"x": cells}).assign(**rest)
    roles = {"state": "x", "action": "act", "reward": "paid", "episode": "stay", "terminated": "over"} | rules
    log = load_log(frame, columns=roles)
    for table in forms(frame):
        assert load_log(table, columns=roles).states.tolist() == log.states.tolist()
    for asked in (*forms(frame[["x", "stay"]]), frame[["x", "stay"]].to_dict("records")):
        assert state_rows(asked, log.source, log.n_dims).tolist() == log.states.tolist()


def test_values_are_not_carried_from_an_episode_to_one_with_nearly_its_number():
    stays = 2**60 + np.arange(N) // 6  # doubles cannot tell them apart
    frame = pd.DataFrame({"age": np.arange(N) * 1.0, "act": ["a", "b"] * (N // 2), "paid": 1.0, "stay": stays})
    frame.loc[6, "age"] = np.nan  # the first row of the second one
    roles = {"state": "age", "action": "act", "reward": "paid", "episode": "stay", "missing": {"age": "forward"}}
    with pytest.warns(KbrlWarning):
        log = load_log(frame, columns=roles)
    with pytest.warns(KbrlWarning, match="missing in 1 of 60 rows without an earlier value"):
        asked = state_rows(frame[["age", "stay"]], log.source, log.n_dims)
    assert asked[6].tolist() == log.states[log.episodes == stays[6]][0].tolist() != asked[5].tolist()
