"""Informers for threads: the same API as `steadfast_kube`, without `async`.

```python
from steadfast_kube import blocking as steadfast

with steadfast.Informers() as informers:
    pods = informers.watch("pods")
    pods.synced(timeout=30)
    for event in pods.events():
        print(event)
```

All methods can be called from any thread. Waits let other threads run, and end with the exception of a signal handler,
such as `KeyboardInterrupt`.
"""

from __future__ import annotations

import asyncio
import inspect
import time
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Optional, TypeVar, Union

from ._durable import DEFAULT_ACK_TIMEOUT, DEFAULT_CONCURRENCY, DeliveriesBase, open_stream
from ._informers import ASYNC_CONDITION, InformersBase, ReadOnlyInformer, stopped_error
from ._keys import Key, Selector
from ._native import Cache, Cluster, Delivery, DeliveryStream, EventStream
from ._types import Event, Stopped, StoppedError
from ._written import written_object

__all__ = ["Deliveries", "Events", "Informer", "Informers", "Key", "Selector"]

T = TypeVar("T")


class Events:
    """Events of an informer, as an iterator that waits.

    With `timeout`, the iteration ends after that number of seconds without an event; a later iteration continues.
    Several threads can read a stream: each event is delivered to one of them.
    """

    def __init__(self, stream: EventStream, timeout: Optional[float]) -> None:
        self._stream = stream
        self._timeout = timeout

    def __iter__(self) -> Events:
        return self

    def __next__(self) -> Event:
        while True:
            event = self._stream.take()
            if event is not None:
                return event
            if self._stream.ended or not self._stream.ready(self._timeout, blocking=True):
                raise StopIteration

    def close(self) -> None:
        """Ends the stream, also for a thread that waits in it."""
        self._stream.close()

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()


class Deliveries(DeliveriesBase):
    """Deliveries of a durable handler, as an iterator that waits.

    With `timeout`, the iteration ends after that number of seconds without a delivery; a later iteration continues.
    Several threads can read a stream: each delivery is passed to one of them.
    """

    def __init__(self, stream: DeliveryStream, timeout: Optional[float]) -> None:
        super().__init__(stream)
        self._timeout = timeout

    def __iter__(self) -> Deliveries:
        return self

    def __next__(self) -> Delivery:
        while True:
            delivery = self._stream.take()
            if delivery is not None:
                return delivery
            if self._stream.ended or not self._stream.ready(self._timeout, blocking=True):
                raise StopIteration

    def __enter__(self) -> Deliveries:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()


class Informer(ReadOnlyInformer):
    """A cache of the objects of one resource and scope, updated by one watch."""

    def synced(self, timeout: Optional[float] = None) -> None:
        """Waits until the first complete list is in the cache, at most `timeout` seconds.

        Raises `NotSynced` with the cause, `UnknownKind` if the server has no such resource, or `StoppedError` if the
        informer was stopped before.
        """
        with stopped_error(self.name):
            self._cache.synced(timeout, blocking=True)

    def events(self, timeout: Optional[float] = None) -> Events:
        """Returns the events of the informer, starting with its cached objects."""
        return Events(self._cache.stream(), timeout)

    def durable(
        self,
        name: str,
        timeout: Optional[float] = None,
        *,
        concurrency: int = DEFAULT_CONCURRENCY,
        ack_timeout: Optional[float] = DEFAULT_ACK_TIMEOUT,
    ) -> Deliveries:
        """Returns the events of a durable handler, each delivered until it is acknowledged, also after a restart.

        `timeout` is that of `Deliveries`. The other arguments and the errors are those of the asynchronous method.
        """
        return Deliveries(open_stream(self._cache, name, concurrency, ack_timeout), timeout)

    def wait_for(self, resource_version: Union[str, int], timeout: Optional[float] = 30) -> None:
        """Waits until the cache has reached a version, so that later reads see that write.

        Raises `NotReached` after `timeout` seconds, with the freshness, or `StoppedError` if the informer was stopped.
        """
        with stopped_error(self.name):
            self._cache.wait_for(str(resource_version), timeout, blocking=True)

    def until(self, condition: Callable[[Informer], T], timeout: Optional[float] = None) -> T:
        """Waits until `condition(informer)` returns a true value, and returns that value.

        The condition is called for the first complete list and after each later change of the cache or its freshness.
        If changes follow each other quickly, it sees only the last. Raises `NotReached` after `timeout` seconds, or
        `StoppedError` if the informer was stopped.
        """
        if inspect.iscoroutinefunction(condition):
            raise TypeError(ASYNC_CONDITION)
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            seen_changes = self._cache.changes()
            stopped = isinstance(self.freshness, Stopped)
            if self.has_synced:
                value = condition(self)
                if inspect.iscoroutine(value):
                    value.close()
                    raise TypeError(ASYNC_CONDITION)
                if value:
                    return value
            if stopped:
                raise StoppedError(f"{self.name} was stopped before the condition held")
            remaining = None if deadline is None else deadline - time.monotonic()
            if remaining is not None and remaining <= 0:
                self._cache.fail(f"the condition did not hold within {timeout} s")
            self._cache.changed(seen_changes, remaining, blocking=True)


def runs_event_loop() -> bool:
    """Returns true if this thread runs an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class Informers(InformersBase[Informer]):
    """Informers of one cluster, for `with`. The arguments are those of `steadfast_kube.Informers`.

    The start warns with `RuntimeWarning` in a thread that runs an event loop, since each wait blocks that loop.
    """

    def _wrap(self, cache: Cache) -> Informer:
        return Informer(cache)

    def __enter__(self) -> Informers:
        if self._cluster is not None:
            raise RuntimeError("these informers are open already")
        if runs_event_loop():
            warnings.warn(
                "blocking.Informers blocks the event loop of this thread; use steadfast_kube.Informers with `async with`, "
                "or call this code by asyncio.to_thread",
                RuntimeWarning,
                stacklevel=2,
            )
        cluster = Cluster()
        kubeconfig, context, url, token = self._settings
        cluster.connect(kubeconfig, context, url, token, self._checkpoint, blocking=True)
        self._cluster = cluster
        return self

    if not TYPE_CHECKING:
        # Type checkers report `async with` without these methods.
        async def __aenter__(self) -> None:
            raise TypeError("use `with` for blocking.Informers, or `async with steadfast_kube.Informers()` for asyncio")

        async def __aexit__(self, *_: object) -> None: ...

    def __exit__(self, *_: object) -> None:
        cluster = self._close()
        if cluster is not None and self._checkpoint is not None:
            cluster.checkpoint_released(blocking=True)

    def synced(self, timeout: Optional[float] = None) -> None:
        """Waits until all informers are synced, at most `timeout` seconds. Raises the first `NotSynced`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        for _, informer in list(self._informers):
            # The informers sync concurrently, so sequential waits take no longer.
            informer.synced(None if deadline is None else max(0.0, deadline - time.monotonic()))

    def wait_for_write(self, obj: object, timeout: Optional[float] = 30) -> None:
        """Waits until each cache that may contain a written object has reached that write.

        `obj` is the response to a write by any client: a dictionary, an object of kr8s, or a model of the official
        client. Raises `NotReached` after `timeout` seconds.
        """
        write = written_object(obj)
        for cache in self._caches_of(write):
            cache.wait_for(write.resource_version, timeout, blocking=True)
