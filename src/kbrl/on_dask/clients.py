"""Dask clusters: worker processes on this machine, or a cluster that runs elsewhere.

Dask is an extra; it is imported when a cluster is asked for.
"""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

from kbrl.checks import how_to_install, whole

# By default, workers return memory after each use, which made the build a quarter slower, and a profiler watches
# them, which takes a thirtieth of the time.
_SETTINGS = {
    "distributed.nanny.pre-spawn-environ": {"OMP_NUM_THREADS": 1, "MKL_NUM_THREADS": 1, "OPENBLAS_NUM_THREADS": 1},
    "distributed.worker.profile.enabled": False,
    # Every user of the machine could see the dashboard.
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}


@contextmanager
def local_cluster(n_workers: int) -> Iterator[Any]:
    """Start worker processes on this machine and yield their client; stop them afterwards."""
    with _cluster(n_workers) as client:
        yield client
    del client
    _forget_schedulers()
    gc.collect()  # what Dask leaves behind is in cycles, and holds 8 MB after a small fit


def _forget_schedulers() -> None:
    """Empty the cache in which Dask keeps the last schedulers of this process, 0.4 MB each, after they were closed."""
    from distributed import core

    remembered: Any = getattr(core, "_expects_comm", None)  # Dask's own; its cache holds methods of schedulers
    if hasattr(remembered, "cache_clear"):
        remembered.cache_clear()


@contextmanager
def _cluster(n_workers: int) -> Iterator[Any]:
    """Start worker processes whose connections and files nobody else can use.

    Whoever can talk to a scheduler can run code in its processes, and every user of a machine can reach its ports.  So
    all connections need a certificate that is made here and never leaves these processes.  Workers unpickle what they
    have put on the disk; so it is in a folder of our own, not in one that another user may have made before.
    """
    whole(n_workers, "n_workers")
    _need_dask()
    import dask
    from distributed import Client, LocalCluster
    from distributed.security import Security

    here: dict[str, Any] = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "silence_logs": "CRITICAL"}
    here |= {"protocol": "tls", "security": Security.temporary(), "scheduler_kwargs": {"dashboard": False}}
    options = {"threads_per_worker": 1, "processes": True, "preload": [__name__]}

    class Cluster(LocalCluster):  # type: ignore[misc]
        """A cluster that closes without an error even if a worker was lost before Dask had listed it."""

        def _update_worker_status(self, change: str, about: Any) -> None:
            # Dask looks up a lost worker in that list, and raises an error when the cluster closes if it is not there.
            if change != "remove" or about in self.scheduler_info["workers"]:
                super()._update_worker_status(change, about)

    with TemporaryDirectory(prefix="kbrl-", ignore_cleanup_errors=True) as folder:
        with _deaf_to_ctrl_c(), dask.config.set(_SETTINGS):
            cluster = Cluster(n_workers=n_workers, local_directory=folder, **here, **options)
        with cluster, Client(cluster) as client, _naming_the_loss("on this machine"):
            yield client


@contextmanager
def _naming_the_loss(where: str) -> Iterator[None]:
    """Say in plain words that the scheduler was lost."""
    from distributed import CancelledError
    from distributed.comm import CommClosedError

    try:
        yield
    except (CommClosedError, CancelledError) as error:
        raise ConnectionError(
            f"The Dask scheduler {where} was lost ({error}). Nothing was saved. Start it again, and fit again."
        ) from None


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Ignore Ctrl-C, here and in processes started meanwhile: it is for the process that started them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def dask_setup(worker: Any) -> None:
    """Ignore Ctrl-C in a worker that is started again; Dask calls this in each one of `local_cluster`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def running_cluster(address: str) -> Iterator[Any]:
    """Yield a client of the cluster whose scheduler has this address."""
    _need_dask()
    from distributed import Client

    try:
        client = Client(address)
    except (OSError, ValueError) as error:
        raise OSError(f"There is no Dask scheduler at {address}: {error}.") from None
    with client, _naming_the_loss(f"at {address}"):
        yield client


def find_client(client: Any) -> Any:
    """Return the client, or the one that was made last."""
    _need_dask()
    from distributed import Client

    if client is not None:
        if not isinstance(client, Client):
            raise TypeError(f"client must be a dask.distributed.Client, but it is {type(client).__name__}.")
        return client
    try:
        return Client.current()
    except ValueError:
        raise ValueError(
            "Learning from a Dask collection needs a cluster, but there is no client. Make one: distributed.Client()."
        ) from None


def _need_dask() -> None:
    try:
        import cryptography  # noqa: F401 - for the certificates of `local_cluster`
        import distributed  # noqa: F401
    except ImportError:
        raise ImportError(f"Many machines need Dask. {how_to_install('dask')}") from None
