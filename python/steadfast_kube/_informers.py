"""Informers for asyncio."""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import Callable, ItemsView, Iterator, Mapping, ValuesView
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Generic, Optional, TypeVar, Union

from ._client import Client
from ._controllers import Controller, Reconciler, run_all
from ._durable import DEFAULT_ACK_TIMEOUT, DEFAULT_CONCURRENCY, Deliveries, open_stream
from ._election import LeaderElection
from ._keys import Key, Selector, index_paths, key_text, selector_text
from ._native import Cache, Cluster, EventStream, Object
from ._types import DurableStats, Event, Forked, Freshness, NotSynced, Stopped, StoppedError
from ._written import WrittenObject, written_object

__all__ = ["Events", "Informer", "Informers", "ReadOnlyInformer"]

T = TypeVar("T")

EVENTS_PER_TURN = 64
"""Number of events after which a stream lets other tasks of the event loop run."""

BATCH_PAUSE = 0.002
"""Pause in seconds. If events follow each other within this time, a stream sleeps, and then delivers the events of the whole
pause. A wake-up of the event loop costs several times the delivery of an event."""


ASYNC_CONDITION = "the condition of until must not be an `async def`: it is called after each change of the cache"


@contextmanager
def stopped_error(name: str) -> Iterator[None]:
    """Raises `StoppedError` instead of the `NotSynced` of a stopped informer."""
    try:
        yield
    except NotSynced as error:
        if isinstance(error.freshness, Stopped):
            raise StoppedError(f"{name} was stopped, or the block of its informers has ended") from None
        raise


class ReadOnlyInformer(Mapping[str, Object]):
    """Reads of a cache: a mapping from keys to objects.

    Reads never wait. Before the first complete list they raise `NotSynced`, so an incomplete cache is never mistaken
    for an empty one. An object whose newest state cannot be decoded is among the keys, and its read raises
    `Unknown`.
    """

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    @property
    def name(self) -> str:
        """The resource and the scope, for messages."""
        return self._cache.name

    @property
    def freshness(self) -> Freshness:
        """The freshness of the cache: `Fresh`, or a doubt with its start and its cause."""
        return self._cache.freshness()

    @property
    def has_synced(self) -> bool:
        """True after the first complete list is in the cache. `freshness` states whether the cache is current."""
        return self._cache.has_synced()

    @property
    def memory(self) -> int:
        """The memory of the cached objects, their keys, indexes and queues, in bytes."""
        return self._cache.memory()

    def __getitem__(self, key: Key) -> Object:
        obj = self._cache.get(key_text(key))
        if obj is None:
            raise KeyError(key)
        return obj

    def __contains__(self, key: object) -> bool:
        return self._cache.contains(key_text(key))

    def __len__(self) -> int:
        return self._cache.count()

    def __iter__(self) -> Iterator[str]:
        return iter(self._cache.keys())

    def values(self) -> ValuesView[Object]:
        """The objects of one snapshot in the order of their keys, without objects that cannot be decoded."""
        return _Objects(self)

    def items(self) -> ItemsView[str, Object]:
        """The keys and objects of one snapshot, without objects that cannot be decoded."""
        return _KeysAndObjects(self)

    # An informer is true even if its cache is empty or it was stopped, unlike other mappings.
    def __bool__(self) -> bool:
        return True

    # Informers are compared by identity, unlike other mappings.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def select(self, labels: Selector, namespace: Optional[str] = None) -> list[Object]:
        """Returns the objects of one snapshot whose labels match a selector."""
        return self._cache.select(selector_text(labels) or "", namespace)

    def by(self, index: str, value: object) -> list[Object]:
        """Returns the objects of one snapshot with this value of an index, in the order of their keys."""
        text = value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
        return self._cache.by(index, text)

    def index_counts(self, index: str) -> dict[str, int]:
        """Returns the values of an index, with the number of objects of each."""
        return self._cache.index_counts(index)

    def durable_handlers(self) -> dict[str, DurableStats]:
        """Returns the counters of the durable handlers by name, including handlers that only an earlier run has used."""
        return self._cache.durable_handlers()

    def drop_durable(self, name: str) -> bool:
        """Removes a durable handler with all its pending deliveries. Returns true if it existed.

        Use this for a handler that the program no longer has. Without the removal, each object that changes keeps one
        pending delivery for the handler. A later handler of this name starts with all objects.

        An open stream of the handler ends, like one that was closed, and with it a pending read. An acknowledgement of
        a delivery that was read has no effect.
        """
        return self._cache.drop_durable(name)

    def stop(self) -> None:
        """Stops the informer and its streams. The last state of the cache stays readable, with the freshness `Stopped`."""
        self._cache.stop()

    def __repr__(self) -> str:
        try:
            return f"<{type(self).__name__} {self.name}: {self.freshness}>"
        except Forked as error:
            return f"<{type(self).__name__}: {error}>"


# The views of `Mapping` would read the objects one by one, while the cache changes.


class _Objects(ValuesView[Object]):
    def __init__(self, informer: ReadOnlyInformer) -> None:
        super().__init__(informer)
        self._informer = informer

    def __iter__(self) -> Iterator[Object]:
        return iter(self._informer._cache.values())


class _KeysAndObjects(ItemsView[str, Object]):
    def __init__(self, informer: ReadOnlyInformer) -> None:
        super().__init__(informer)
        self._informer = informer

    def __iter__(self) -> Iterator[tuple[str, Object]]:
        return ((obj.key, obj) for obj in self._informer._cache.values())


class Events:
    """Events of an informer, for `async for`.

    The stream starts with an `Added` for each cached object and never ends before the informer is stopped: errors are
    reported by `freshness`. A slow reader always receives the latest state or the deletion of each object, since the
    pending events of one object are merged. A cancelled read loses no event: the event stays in the queue.

    Events that follow each other within 2 ms are delivered in batches, at most 2 ms late.

    One task can read a stream at a time.
    """

    def __init__(self, stream: EventStream) -> None:
        self._stream = stream
        self._taken_count = 0
        self._taken_since_wait = 0
        self._waited = BATCH_PAUSE
        self._is_being_read = False

    def __aiter__(self) -> Events:
        return self

    async def __anext__(self) -> Event:
        if self._is_being_read:
            raise RuntimeError("another task reads this stream; call events() for each task")
        self._is_being_read = True
        try:
            # A reader that always finds events must still let other tasks of the loop run.
            if self._taken_count >= EVENTS_PER_TURN:
                self._taken_count = 0
                await asyncio.sleep(0)
            while True:
                event = self._stream.take()
                if event is not None:
                    self._taken_count += 1
                    self._taken_since_wait += 1
                    return event
                if self._stream.ended:
                    raise StopAsyncIteration
                await self._wait()
        finally:
            self._is_being_read = False

    async def _wait(self) -> None:
        """Waits for the next event, or collects several events if they follow each other quickly."""
        is_burst = self._taken_since_wait > 1 or self._waited < BATCH_PAUSE
        self._taken_count = self._taken_since_wait = 0
        if is_burst:
            # The pause itself is no sign of a burst. The burst continues if several events arrived during the pause, or if a
            # later wait is short.
            self._waited = BATCH_PAUSE
            await asyncio.sleep(BATCH_PAUSE)
        else:
            start = time.monotonic()
            await self._stream.ready()
            self._waited = time.monotonic() - start

    def close(self) -> None:
        """Ends the stream. A pending read ends with it."""
        self._stream.close()

    async def aclose(self) -> None:
        """Ends the stream, for `contextlib.aclosing`."""
        self._stream.close()

    async def __aenter__(self) -> Events:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stream.close()


class Informer(ReadOnlyInformer):
    """A cache of the objects of one resource and scope, updated by one watch."""

    async def synced(self, timeout: Optional[float] = None) -> None:
        """Waits until the first complete list is in the cache, at most `timeout` seconds.

        Raises `NotSynced` with the cause, `UnknownKind` if the server has no such resource, or `StoppedError` if the
        informer was stopped before.
        """
        with stopped_error(self.name):
            await self._cache.synced(timeout)

    def events(self) -> Events:
        """Returns the events of the informer, starting with its cached objects."""
        return Events(self._cache.stream())

    def durable(
        self, name: str, *, concurrency: int = DEFAULT_CONCURRENCY, ack_timeout: Optional[float] = DEFAULT_ACK_TIMEOUT
    ) -> Deliveries:
        """Returns the events of a durable handler, each delivered until it is acknowledged, also after a restart.

        The checkpoint of the informers stores the pending deliveries under `name`, of 1 to 63 bytes, which must be the
        same in each run of the program. A new handler first receives all cached objects.

        At most `concurrency` deliveries, each of another object, are queued or unacknowledged; the default is 16. A
        delivery that is not acknowledged within `ack_timeout` seconds after its read has failed; the default is 60.
        A failed delivery is repeated after a random delay below a maximum. The maximum grows from 0.5 s to 60 s.

        Raises `CheckpointError` if the informer has no checkpoint, or if another stream uses the name, and `ValueError`
        for an invalid name. An informer that has not started raises these errors at the first read.
        """
        return Deliveries(open_stream(self._cache, name, concurrency, ack_timeout))

    async def wait_for(self, resource_version: Union[str, int], timeout: Optional[float] = 30) -> None:
        """Waits until the cache has reached a version, so that later reads see that write.

        Raises `NotReached` after `timeout` seconds, with the freshness, or `StoppedError` if the informer was stopped.
        """
        with stopped_error(self.name):
            await self._cache.wait_for(str(resource_version), timeout)

    async def until(self, condition: Callable[[Informer], T], timeout: Optional[float] = None) -> T:
        """Waits until `condition(informer)` returns a true value, and returns that value.

        The condition is called for the first complete list and after each later change of the cache or its freshness. It
        runs in the event loop, and must not be an `async def`. If changes follow each other quickly, it sees only the
        last. Raises `NotReached` after `timeout` seconds, or `StoppedError` if the informer was stopped.
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
            await self._cache.changed(seen_changes, remaining)


class InformersBase(Generic[T]):
    """Base class of `Informers` for asyncio and of `blocking.Informers`: connection settings and open informers."""

    def __init__(
        self,
        *,
        url: Optional[str] = None,
        token: Optional[str] = None,
        kubeconfig: Optional[Union[str, os.PathLike[str]]] = None,
        context: Optional[str] = None,
        checkpoint: Optional[Union[str, os.PathLike[str]]] = None,
    ) -> None:
        if url is not None and (kubeconfig is not None or context is not None):
            raise ValueError("url cannot be combined with kubeconfig or context")
        if token is not None and url is None:
            raise ValueError("token needs url; a kubeconfig contains its own credentials")
        self._settings = (None if kubeconfig is None else os.fspath(kubeconfig), context, url, token)
        self._checkpoint = None if checkpoint is None else os.fspath(checkpoint)
        self._cluster: Optional[Cluster] = None
        self._informers: list[tuple[Cache, T]] = []

    def _wrap(self, cache: Cache) -> T:
        raise NotImplementedError

    def _require_cluster(self) -> Cluster:
        if self._cluster is None:
            raise StoppedError("the informers are not open; use them within `async with` or `with`")
        return self._cluster

    @property
    def server(self) -> str:
        """The URL of the server."""
        return self._require_cluster().server or ""

    @property
    def default_namespace(self) -> str:
        """The namespace that the kubeconfig names, or `default`."""
        return self._require_cluster().default_namespace or "default"

    def watch(
        self,
        kind: str,
        namespace: Optional[str] = None,
        labels: Optional[Selector] = None,
        fields: Optional[Selector] = None,
        index: Optional[Mapping[str, Union[str, tuple[str, ...]]]] = None,
        *,
        managed_fields: bool = False,
        protobuf: bool = False,
        memory_limit: Optional[int] = None,
        checkpoint: Optional[bool] = None,
    ) -> T:
        """Returns an informer, which starts in the background.

        `kind` is any name that kubectl takes: `pods`, `po`, `Pod`, `deployments.apps`, `certificates.cert-manager.io`.
        Without `namespace`, objects of all namespaces are cached. `labels` and `fields` are selectors. `index` maps the
        names of indexes to paths, such as `{"node": "spec.nodeName", "image": "spec.containers[*].image"}`.

        `managed_fields` keeps `metadata.managedFields`. `protobuf` transfers objects of built-in kinds in half of the
        bytes; fields that Kubernetes added after version 1.37 are then missing. `memory_limit` is the maximum size of the
        cached objects in bytes: a list or change that exceeds it is rejected, and `freshness` is `Failed`.

        If the informers have a `checkpoint`, it stores the cache of each kind except Secrets. `checkpoint=True` also
        stores Secrets, unencrypted, and `checkpoint=False` stores nothing.
        """
        if checkpoint and self._checkpoint is None:
            raise ValueError("checkpoint=True needs a file: Informers(checkpoint=…)")
        cache = self._require_cluster().watch(
            kind,
            namespace,
            selector_text(labels),
            selector_text(fields),
            index_paths(index),
            managed_fields,
            protobuf,
            memory_limit,
            checkpoint,
        )
        informer = self._wrap(cache)
        self._informers.append((cache, informer))
        # Each change of the list is one atomic call, because other threads may add informers in the meantime.
        for entry in [entry for entry in self._informers if entry[0].ended]:
            with suppress(ValueError):
                self._informers.remove(entry)
        return informer

    def _caches_of(self, write: WrittenObject) -> list[Cache]:
        """Returns the caches whose scope may contain a written object."""
        return [cache for cache, _ in list(self._informers) if write.concerns(cache.resource, cache.namespace)]

    def _close(self) -> Optional[Cluster]:
        """Stops all informers, and returns the closed connection."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close()
        return cluster


class Informers(InformersBase[Informer]):
    """Informers of one cluster, for `async with`.

    Without arguments, the server is that of kubectl: the kubeconfigs in `KUBECONFIG`, `~/.kube/config`, or the service
    account of the pod. `kubeconfig` is a file and `context` the name of one of its contexts. `url` is the URL of a
    server without a kubeconfig, such as one of `steadfast_kube.testing`, and `token` its bearer token.

    `checkpoint` is a file that stores the caches, so that a restarted program has them immediately and resumes the
    watches without a list. It serves one program and one server. The start raises `CheckpointError` if another process
    uses the file, or if it cannot be opened.
    """

    def _wrap(self, cache: Cache) -> Informer:
        return Informer(cache)

    async def __aenter__(self) -> Informers:
        if self._cluster is not None:
            raise RuntimeError("these informers are open already")
        cluster = Cluster()
        kubeconfig, context, url, token = self._settings
        await cluster.connect(kubeconfig, context, url, token, self._checkpoint)
        self._cluster = cluster
        return self

    if not TYPE_CHECKING:
        # Type checkers report `with` without these methods.
        def __enter__(self) -> None:
            raise TypeError("use `async with` for Informers, or `with steadfast_kube.blocking.Informers()` for threads")

        def __exit__(self, *_: object) -> None: ...

    async def __aexit__(self, *_: object) -> None:
        cluster = self._close()
        if cluster is not None and self._checkpoint is not None:
            await cluster.checkpoint_released()

    async def synced(self, timeout: Optional[float] = None) -> None:
        """Waits until all informers are synced, at most `timeout` seconds. Raises the first `NotSynced`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        for _, informer in list(self._informers):
            # The informers sync concurrently, so sequential waits take no longer.
            await informer.synced(None if deadline is None else max(0.0, deadline - time.monotonic()))

    async def wait_for_write(self, obj: object, timeout: Optional[float] = 30) -> None:
        """Waits until each cache that may contain a written object has reached that write.

        `obj` is the response to a write by any client: a dictionary, an object of kr8s, or a model of the official
        client. Raises `NotReached` after `timeout` seconds.
        """
        write = written_object(obj)
        waits = [cache.wait_for(write.resource_version, timeout) for cache in self._caches_of(write)]
        await asyncio.gather(*waits)

    @property
    def client(self) -> Client:
        """A client for reads and writes at the server."""
        cluster = self._require_cluster()
        return Client(cluster.request, cluster.resolve, self.default_namespace)

    def leader_election(
        self,
        name: str,
        namespace: Optional[str] = None,
        *,
        identity: Optional[str] = None,
        lease_duration: float = 15.0,
        renew_deadline: float = 10.0,
        retry_period: float = 2.0,
    ) -> LeaderElection:
        """Returns a candidate for the lease `name`, for `async with`.

        `namespace` is that of the lease; the default is the namespace of the configuration. A random suffix is added to
        `identity`, whose default is the host name.

        After `lease_duration` seconds without a renewal, another candidate may lead. A leader stops acting
        `renew_deadline` seconds after its last renewal; the rest of the time is reserved for requests in flight.
        `retry_period` is the time between renewals. All candidates need the permissions `get`, `create` and `update` for
        leases.
        """
        durations = (lease_duration, renew_deadline, retry_period)
        return LeaderElection(self._require_cluster(), namespace or self.default_namespace, name, identity, durations)

    async def run(
        self,
        *reconcilers: Reconciler,
        election: Optional[LeaderElection] = None,
        grace_period: float = 30.0,
    ) -> None:
        """Runs controllers until the task is cancelled.

        Running reconciles then have `grace_period` seconds to finish. With `election`, reconciles run only while this
        candidate holds its lease; the caches are filled earlier. At the loss of the lease, running reconciles are
        cancelled.
        """
        if not reconcilers:
            raise ValueError("run needs at least one reconciler; decorate a function with `reconcile`")
        cluster = self._require_cluster()
        native_election = None if election is None else election._started
        await run_all(
            [Controller(self, cluster, reconciler, native_election, grace_period) for reconciler in reconcilers]
        )
