"""Sums of a log on a cluster are those of one process."""

import numpy as np
import pytest

from kbrl import PolicyEvaluator, evaluate_on_dask
from kbrl.logs.writing import write_log
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
