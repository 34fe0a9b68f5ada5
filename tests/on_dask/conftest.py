"""A cluster of two worker processes, a log, and a bound on the time of each test."""

import signal

import pytest

from clusters import SPARSE, learner
from kbrl.choosing.automatic_fit import fit_log
from kbrl.on_dask.clients import local_cluster
from samples import random_log


@pytest.fixture(scope="module")
def fast_start():
    """Fork workers from a process that has imported everything, rather than start each from nothing."""
    from dask import config
    from distributed.utils import get_mp_context

    with config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        get_mp_context().set_forkserver_preload(["distributed", "pandas", "kbrl.on_dask.fitting_on_dask"])
        yield


@pytest.fixture(autouse=True)
def bounded():
    """Stop a test that waits for ever."""

    def stop(*_):
        raise TimeoutError("a test on the cluster took more than three minutes")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(180)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def client(fast_start):
    with local_cluster(2) as client:
        yield client


@pytest.fixture(scope="module")
def log():
    return random_log(n=1200, n_actions=3)


@pytest.fixture(scope="module")
def sparse(log):
    return fit_log(learner(**SPARSE), log)
