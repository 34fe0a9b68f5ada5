"""Clusters whose workers or scheduler are lost, strangers on the same machine, and what is left when one is closed."""

import gc
import os
import signal
import stat
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import psutil
import pytest

from clusters import SPARSE, assert_bits, cluster_elsewhere, learner, promised
from kbrl.on_dask.clients import local_cluster, running_cluster
from kbrl.on_dask.fitting_on_dask import fit_on_dask
from kbrl.on_dask.parallel_work import PartitionError, map_on

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

pytestmark = pytest.mark.usefixtures("fast_start")


@pytest.fixture
def doomed(fast_start):
    """A cluster whose workers are killed: on a busy machine or with an old Dask, some may never come back."""
    with local_cluster(2) as client:
        yield client


def kill_a_worker(client, rng):
    """Kill one of the worker processes of this test; none that is just starting, which Dask does not start again."""
    known = client.cluster.scheduler.workers
    pids = {nanny.pid for nanny in client.cluster.workers.values() if nanny.worker_address in known}
    ours = [child for child in psutil.Process().children(recursive=True) if child.pid in pids]
    if ours:
        with suppress(psutil.NoSuchProcess):
            ours[rng.integers(len(ours))].send_signal(signal.SIGKILL)


def test_workers_killed_at_ten_random_points_change_nothing(doomed, log, sparse):
    rng = np.random.default_rng(1)
    parts = promised(log, seconds=0.02)
    start = time.monotonic()
    fit_on_dask(learner(**SPARSE), parts, client=doomed)
    usual = time.monotonic() - start
    for _ in range(10):
        kill = threading.Timer(usual * rng.random(), kill_a_worker, [doomed, rng])
        kill.start()
        model = fit_on_dask(learner(**SPARSE), parts, client=doomed)
        kill.join()
        assert_bits(model, sparse)


def test_a_partition_that_kills_its_workers_is_named(doomed, log):
    def deadly(part):
        os.kill(os.getpid(), signal.SIGKILL)

    parts = [dask.delayed(deadly)(log[:5]), dask.delayed(log)]
    doomed.cluster.scheduler.allowed_failures = 0
    with pytest.raises(PartitionError, match=r"Part 1 \(partition 0\) .*workers died"):
        fit_on_dask(learner(), parts, client=doomed)


def test_no_process_is_left_behind(log):
    with local_cluster(1) as client:
        workers = [psutil.Process(pid) for pid in client.run(os.getpid).values()]
        assert len({worker.pid for worker in workers} - {os.getpid()}) == 1
        fit_on_dask(learner(), promised(log, n_parts=2), client=client)
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert not alive


def test_a_cluster_that_runs_elsewhere_is_found_by_its_address():
    with cluster_elsewhere() as elsewhere, running_cluster(elsewhere.scheduler_address) as client:
        assert client.submit(sum, [1, 2]).result() == 3


def test_workers_write_to_a_folder_that_no_other_user_can_have_made():
    """They unpickle what they put there when their memory is full."""
    with local_cluster(1) as client:
        (folder,) = client.run(lambda dask_worker: dask_worker.local_directory).values()
        home = next(path for path in Path(folder).parents if path.name.startswith("kbrl-"))
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
        assert home.stat().st_uid == os.geteuid()
    assert not home.exists()


def test_other_users_of_the_machine_can_neither_run_code_on_the_workers_nor_look_at_them():
    before = listening_ports()
    with local_cluster(1) as client:
        info = client.scheduler_info()
        addresses = [info["address"], *info["workers"]]
        for address in addresses:
            assert address.startswith("tls://127.0.0.1:")
            for strangers_way, keys in ("tcp", None), ("tls", distributed.Security.temporary()):
                with pytest.raises(OSError, match=r"[Cc]onnect|TLS|Timed out"):
                    distributed.Client(address.replace("tls", strangers_way), security=keys, timeout=5)
        for port in set(listening_ports()) - set(before):
            with pytest.raises(OSError, match=r"404|reset|refused|timed out|[Rr]emote end"):
                urlopen(f"http://127.0.0.1:{port}/info/main/workers.html", timeout=5)


def connections_of(process):
    return (process.net_connections if hasattr(process, "net_connections") else process.connections)()  # since psutil 6


def listening_ports():
    """Return the ports at which this process and its children listen."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    connections = [connection for process in processes for connection in connections_of(process)]
    return [connection.laddr.port for connection in connections if connection.status == "LISTEN"]


def work_with_a_scheduler_that_goes(cluster):
    with running_cluster(cluster.scheduler_address) as client:
        cluster.close()
        map_on(client, abs, [-1, -2])


def test_a_scheduler_that_is_lost_is_named_and_not_a_raw_error_of_dask():
    impatient = dask.config.set({"distributed.comm.timeouts.connect": "1s"})
    with impatient, cluster_elsewhere() as elsewhere:
        lost = r"The Dask scheduler at tcp://.* was lost .* Start it again, and fit again"
        with pytest.raises(ConnectionError, match=lost):
            work_with_a_scheduler_that_goes(elsewhere)


def test_a_worker_that_dies_before_dask_has_heard_of_it_does_not_spoil_the_end(log):
    with local_cluster(1) as client:
        client.cluster._update_worker_status("remove", "tcp://127.0.0.1:1")
        model = fit_on_dask(learner(), promised(log, n_parts=2), client=client)
    assert model.n_samples_ == len(log)


def test_what_a_closed_cluster_leaves_behind_is_cleared_away():
    gc.collect()
    gc.disable()  # as in a program whose collector rarely looks at old objects
    try:
        with local_cluster(1) as client:
            closed = weakref.ref(client.cluster)
            scheduler = weakref.ref(client.cluster.scheduler)
        del client
        with local_cluster(1):
            pass
        assert closed() is None
        assert scheduler() is None  # Dask would keep it for ever
    finally:
        gc.enable()
