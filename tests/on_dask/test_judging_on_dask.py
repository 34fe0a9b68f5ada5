"""Sums of a log on a cluster are those of one process."""

import numpy as np
import pandas
import pytest

from kbrl import KBSF, PolicyEvaluator, clone, evaluate_on_dask, fit_log, fit_on_dask, open_log, split_episodes
from kbrl.logs.writing import write_log
from kbrl.on_dask import log_parts
from kbrl.on_dask.fitting_on_dask import open_on_dask
from kbrl.tasks import PuddleWorld

distributed = pytest.importorskip("distributed")


def rightwards(states):
    return np.full(len(states), 2)


@pytest.fixture(scope="module")
def client():
    with distributed.Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None) as client:
        yield client


def test_the_sums_of_two_files_are_those_of_the_whole_log_and_a_cut_episode_is_refused(client, tmp_path):
    log = PuddleWorld().collect(1000, random_state=0, max_steps=40)
    is_north = log.episodes % 2 == 0
    write_log(log[is_north], tmp_path / "north.parquet")
    write_log(log[~is_north], tmp_path / "south.parquet")
    paths = [str(tmp_path / name) for name in ("north.parquet", "south.parquet")]
    whole = PolicyEvaluator(rightwards, discount=0.9).fit(log)
    found = evaluate_on_dask(PolicyEvaluator(rightwards, discount=0.9), paths, client=client)
    for name, expected in vars(whole.sums).items():
        if name not in ("residuals", "lasting"):  # of the values at the time
            np.testing.assert_allclose(getattr(found.sums, name), expected, atol=1e-9, err_msg=name)
    write_log(log[log.episodes == log.episodes[0]], tmp_path / "again.parquet")
    with pytest.raises(ValueError, match="must lie within one part"):
        evaluate_on_dask(whole, [*paths, str(tmp_path / "again.parquet")], client=client)


def stays(first, n_stays, *, flags=True, next_states=False):
    """Return stays of different lengths that no column identifies; they end by a flag, or where the day starts anew."""
    rng = np.random.default_rng(first)
    days = [np.arange(n) for n in rng.integers(2, 6, n_stays)]
    table = pandas.DataFrame({"step": np.concatenate(days)})
    table["obs"] = np.where(rng.random(len(table)) < 0.5, 0.0, rng.normal(size=len(table)))
    table["action"] = rng.choice(["a", "b"], len(table))
    table["reward"] = rng.normal(size=len(table)) + (table.action == "a")
    if flags:
        table["terminated"] = np.concatenate([day == len(day) - 1 for day in days])
    if next_states:
        table["next_obs"] = np.append(table.obs.to_numpy()[1:], 0.0)
    return table


@pytest.mark.parametrize("kind", ["flags", "steps", "next states", "a cut episode", "row groups"])
def test_episodes_without_identifiers_are_numbered_over_all_parts_as_in_one_process(
    client, tmp_path, kind, monkeypatch
):
    tables = [stays(k, 40, flags=kind != "steps", next_states=kind not in ("flags", "steps")) for k in range(3)]
    if kind == "a cut episode":  # the second file begins with the last row of an episode of the first
        tables = [tables[0][:-1], pandas.concat([tables[0][-1:], tables[1]]), tables[2]]
    if kind == "row groups":
        monkeypatch.setattr(log_parts, "_LEAST_ROWS", 40)
        tables = [pandas.concat(tables)]
    for number, table in enumerate(tables):
        table.to_parquet(tmp_path / f"{number}.parquet", row_group_size=30 if kind == "row groups" else None)
    paths = [str(tmp_path / f"{number}.parquet") for number in range(len(tables))]
    here, there = open_log(paths), open_on_dask(paths, client=client)
    for one, other in zip(split_episodes(here, 0.4), split_episodes(there, 0.4)):
        learner = KBSF(5, random_state=0)
        expected, found = fit_log(clone(learner), one).model_, fit_on_dask(clone(learner), other).model_
        assert 0 < found.n_samples < here.n_rows
        assert found.sketch.total == expected.sketch.total  # the same rows


@pytest.mark.parametrize("kind", ["flags", "steps"])
def test_episodes_without_identifiers_are_judged_as_in_one_process(client, tmp_path, kind):
    for number in range(2):
        stays(number, 60, flags=kind == "flags").to_parquet(tmp_path / f"{number}.parquet")
    paths = [str(tmp_path / f"{number}.parquet") for number in range(2)]
    whole = PolicyEvaluator(always_a, discount=0.9, n_reps=4).fit(open_log(paths))
    found = evaluate_on_dask(PolicyEvaluator(always_a, discount=0.9, n_reps=4), paths, client=client)
    assert found.n_episodes == whole.n_episodes == 120
    np.testing.assert_allclose(found.sums.returns, whole.sums.returns, atol=1e-9)
    np.testing.assert_allclose(found.sums.weight, whole.sums.weight, atol=1e-9)


def always_a(states):
    return ["a"] * len(states)
