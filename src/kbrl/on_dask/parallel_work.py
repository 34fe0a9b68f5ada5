"""The parts of a log on a Dask cluster: the same work on each, and the sum of the results.

Dask moves the data, decides who does what, and repeats what failed or was lost; this module only says what to do.
The sum is a tree of a fixed shape, so that the result does not depend on the number of workers.
"""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import reduce
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any

from kbrl.on_dask.clients import find_client
from kbrl.on_dask.log_parts import Part

RETRIES = 3
_FAN_IN = 2  # results that are added in one task: with more, a worker would hold more of them
_PATIENCE = 300.0  # seconds without any worker: on a busy machine, starting one can take minutes
_POLL = 0.3  # seconds between two looks at the progress

Step = Callable[[int], Any]


class PartitionError(ValueError):
    """A part of a log could not be read or learnt from, after all tries."""


def map_on(client: Any, function: Callable[..., Any], *items: Sequence[Any], retries: int = RETRIES) -> list[Any]:
    """Return what a function makes of each of the items, like ``map``, on the workers of a cluster."""
    from dask import delayed

    client, name = find_client(client), f"kbrl-map-{secrets.token_hex(8)}"
    (work,) = _promised(name, [function])
    tasks = [delayed(_call)(work, *item, dask_key_name=(name, k)) for k, item in enumerate(zip(*items))]
    return list(client.gather(_submitted(client, tasks, retries)))


@dataclass(frozen=True, eq=False)
class OnCluster:
    """The parts of a log and where they are worked on; ``held`` are Dask's promises of those that are not files."""

    client: Any
    parts: Sequence[Part]
    held: Sequence[Any]  # one per part, None for a file
    sizes: Sequence[int]  # rows of each part
    retries: int = RETRIES

    def each(self, work: Callable[..., Any], *shared: Any) -> list[Any]:
        """Return what ``work(opened part, *shared)`` gives for every part, in their order."""
        name = f"{_new_name(work)}-0"
        return self._computed(self._tasks(work, name, _promised(name, shared)), None)

    def sums(
        self, work: Callable[..., Any], add: Callable[[Any, Any], Any], calls: Sequence[Any], step: Step | None
    ) -> list[Any]:
        """Return, for each call, the sum over all parts of ``work(opened part, *call)``; None is nothing to add."""
        name = _new_name(work)
        roots = []
        for number, call in enumerate(calls):
            shared = _promised(f"{name}-{number}", call)
            roots.append(_tree(self._tasks(work, f"{name}-{number}", shared), add, f"{name}-{number}"))
        with self._progress(name, len(calls), step) as poll:
            return self._computed(roots, poll)

    def _tasks(self, work: Callable[..., Any], name: str, shared: Sequence[Any]) -> list[Any]:
        from dask import delayed

        task = delayed(_work_on)
        return [
            task(work, part, k, held, *shared, dask_key_name=(name, k))
            for k, (part, held) in enumerate(zip(self.parts, self.held))
        ]

    def _computed(self, tasks: list[Any], poll: Callable[[], None] | None) -> list[Any]:
        """Run tasks and return their results, or raise an error that names the part at fault."""
        from distributed import CancelledError

        self._refuse_without_workers()
        futures = _submitted(self.client, tasks, self.retries)
        try:
            self._wait(futures, poll)
            return list(self.client.gather(futures))
        except PartitionError:
            raise
        except CancelledError as error:
            raise ConnectionError(f"The Dask cluster was lost: {error}. Start it again, and fit again.") from None
        except Exception as error:
            culprit = self._culprit(futures, error)
            if culprit is None:
                raise
            raise PartitionError(f"{culprit} of the log could not be used: {_said(error)}") from error
        finally:
            self.client.cancel(futures)

    def _wait(self, futures: list[Any], poll: Callable[[], None] | None) -> None:
        from distributed import wait

        seen = monotonic()  # when there was a worker last
        while not all(future.done() for future in futures):
            with suppress(TimeoutError):
                wait([future for future in futures if not future.done()], _POLL, "FIRST_COMPLETED")
            if any(future.status == "error" for future in futures):
                return
            if poll is not None:
                poll()
            if monotonic() - seen > _PATIENCE / 10:
                seen = monotonic() if self.client.nthreads() else seen
            if monotonic() - seen > _PATIENCE:
                self._refuse_without_workers()

    def _refuse_without_workers(self) -> None:
        try:
            self.client.wait_for_workers(1, timeout=_PATIENCE)
        except TimeoutError:
            address = self.client.scheduler.address
            raise ConnectionError(
                f"The Dask cluster at {address} has had no workers for {_PATIENCE:.0f} seconds. Start some with: "
                f"dask worker {address}."
            ) from None

    def _culprit(self, futures: list[Any], error: Exception) -> str | None:
        """Return the name of the part whose task failed; None where parts do not add up, which the error says."""
        key = getattr(error, "task", None)  # of a task that lost all its workers
        has_lost_workers = key is not None
        for future in futures if key is None else ():
            if future.status == "error":
                with suppress(Exception):
                    key = self.client.run_on_scheduler(_blamed_key, key=future.key)
        for number, (part, held) in enumerate(zip(self.parts, self.held)):
            is_ours = isinstance(key, tuple) and key[0].startswith("kbrl-") and key[1:] == (number,)
            if is_ours or (held is not None and key in held.__dask_graph__()):
                return _place(part, number)
        return "A sum over parts" if has_lost_workers else None

    @contextmanager
    def _progress(self, name: str, n_calls: int, step: Step | None) -> Iterator[Callable[[], None] | None]:
        """Yield a progress callback for the rows done, which workers report by events of Dask."""
        if step is None:
            yield None
            return
        done: SimpleQueue[Any] = SimpleQueue()
        seen: set[Any] = set()
        told = 0

        def poll() -> None:
            nonlocal told
            with suppress(Empty):
                while True:
                    seen.add(done.get_nowait())
            n_rows = sum(self.sizes[number] for _, number in seen) // n_calls
            if n_rows > told:
                step(n_rows - told)
                told = n_rows

        self.client.subscribe_topic(name, lambda event: done.put(tuple(event[1])))
        try:
            yield poll
        finally:
            self.client.unsubscribe_topic(name)
        rest = sum(self.sizes) - told
        if rest:
            step(rest)


def _submitted(client: Any, tasks: list[Any], retries: int) -> list[Any]:
    with warnings.catch_warnings():  # a basis of many representative states is large, and sent once
        warnings.filterwarnings("ignore", message="Sending large graph", category=UserWarning)
        return list(client.compute(tasks, retries=retries))


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def _tree(tasks: list[Any], add: Callable[[Any, Any], Any], name: str) -> Any:
    """Add results a few at a time, then those sums, until one is left."""
    from dask import delayed

    level = 0
    while len(tasks) > 1:
        groups = [tasks[start : start + _FAN_IN] for start in range(0, len(tasks), _FAN_IN)]
        keys = [(f"{name}-sum", level, place) for place in range(len(groups))]
        tasks = [delayed(_summed)(add, group, dask_key_name=key) for group, key in zip(groups, keys)]
        level += 1
    return tasks[0]


def _summed(add: Callable[[Any, Any], Any], parts: list[Any]) -> Any:
    found = [part for part in parts if part is not None]
    return reduce(add, found) if found else None


def _work_on(work: Callable[..., Any], part: Part, number: int, held: Any, *shared: Any) -> Any:
    """Do the work on one part, on a worker; an error names the part."""
    try:
        result = work(part.open(held), *shared)
    except Exception as error:  # sent as text: not every exception can be sent
        raise PartitionError(f"{_place(part, number)} of the log could not be used: {_said(error)}") from None
    _tell_done()
    return result


def _place(part: Part, number: int) -> str:
    return f"Part {number + 1} ({part.name})"


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__


def _tell_done() -> None:
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()
    name, _, call = key[0].rpartition("-")
    worker.log_event(name, [call, key[1]])


def _new_name(work: Callable[..., Any]) -> str:
    return f"kbrl-{work.__name__.strip('_')}-{secrets.token_hex(8)}"


def _promised(name: str, shared: Sequence[Any]) -> list[Any]:
    """Put what all tasks need into the graph once; Dask sends it to the workers that need it."""
    from dask import delayed

    return [delayed(thing, name=f"{name}-shared-{k}", traverse=False) for k, thing in enumerate(shared)]


def _blamed_key(key: Any, dask_scheduler: Any = None) -> Any:
    task = dask_scheduler.tasks[key]
    return (task.exception_blame or task).key
