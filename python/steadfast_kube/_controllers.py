"""Controllers: reconcile functions for objects, with a workqueue."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import re
import signal
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, Optional, Union

from . import _native
from ._client import Client, encode_json
from ._keys import Key, Selector, split_key
from ._native import Object
from ._types import ConfigError, Updated

if TYPE_CHECKING:
    from ._informers import Informer, Informers

__all__ = ["Context", "Reconciler", "Requeue", "reconcile", "run"]

logger = logging.getLogger("steadfast_kube")

Requeue = Union[None, int, float, timedelta]
"""Result of a reconcile: the delay until the next one, in seconds or as a `timedelta`, or `None` to wait for a change."""

ReconcileFunction = Callable[[Any, "Context"], Awaitable[Requeue]]

KeyMapper = Callable[[Object], Iterable[Key]]

FINALIZER = re.compile(
    r"(?=[^/]{1,253}/)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*"
    r"/[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
)
"""Names of finalizers: a domain, a slash and a name. The server rejects names without a domain."""

RAISED = "the function raised "
"""Prefix of error messages for exceptions of reconcile functions, which this module has already logged."""

OWNER_INDEX = "owner uid"
"""Name of the index by owner UID, in the caches of the kinds in `owns`."""


class Context:
    """Context of one reconcile: its key, its client and the caches."""

    def __init__(self, controller: Controller, call: _native.Call) -> None:
        self._controller = controller
        self._call = call
        self._client = Client(call.request, controller.cluster.resolve, controller.informers.default_namespace)

    @property
    def informers(self) -> Informers:
        """The informers that run the controller."""
        return self._controller.informers

    @property
    def client(self) -> Client:
        """A client whose writes belong to this reconcile. With a leader election, it is fenced by the lease."""
        return self._client

    @property
    def key(self) -> str:
        """The namespace and the name of the object."""
        return self._call.key

    @property
    def name(self) -> str:
        """The name of the object."""
        return self._call.name

    @property
    def namespace(self) -> Optional[str]:
        """The namespace of the object; `None` for a cluster-scoped object."""
        return self._call.namespace

    @property
    def fencing_token(self) -> Optional[int]:
        """The fencing token of the leader's term; `None` without a leader election."""
        return self._call.fencing_token

    def owned(self, kind: str) -> list[Object]:
        """Returns the objects of a kind in `owns` that the reconciled object owns, from the cache."""
        informer = self._controller.owned.get(kind)
        if informer is None:
            kinds = ", ".join(self._controller.owned) or "none"
            raise KeyError(f"the controller does not own {kind!r}; its owns: {kinds}")
        uid = self._call.object.uid if self._call.object is not None else None
        return informer.by(OWNER_INDEX, uid) if uid else []

    def event(
        self,
        reason: str,
        note: str = "",
        *,
        action: Optional[str] = None,
        type: Literal["Normal", "Warning"] = "Normal",
    ) -> None:
        """Records an event about the object. `kubectl describe` shows the event. Never waits.

        `reason` and `action` are words in UpperCamelCase; `action` is `Reconcile` by default. Repeated events are
        merged into one event with a count.
        """
        obj = self._call.object
        if obj is None:
            return
        self._controller.recorder.publish(
            obj["apiVersion"],
            obj["kind"],
            obj.namespace,
            obj.name,
            obj.uid,
            type == "Warning",
            reason,
            action or "Reconcile",
            note,
        )

    async def wait_for_write(self, obj: object, timeout: Optional[float] = 30) -> None:
        """Waits until the caches contain a write of another client, such as the official one or httpx."""
        await self.informers.wait_for_write(obj, timeout)


class Reconciler:
    """A reconcile function with its settings. `reconcile` creates it, and `Informers.run` or `run` starts it.

    Tests can call the function directly, with an `Object` or a mapping, and with a context such as
    `steadfast_kube.testing.FakeContext`.
    """

    def __init__(self, function: ReconcileFunction, kind: str, settings: dict[str, Any]) -> None:
        check_function(function)
        self.function = function
        self.kind = kind
        self.name: str = settings.pop("name") or function.__name__
        self.settings = settings
        self.finalizer: Optional[str] = None
        self.cleanup_function: Optional[ReconcileFunction] = None
        self.__doc__ = function.__doc__

    def cleanup(self, finalizer: str) -> Callable[[ReconcileFunction], ReconcileFunction]:
        """Decorates the function that runs before the deletion of an object.

        `finalizer` is a name such as `example.com/account`. It is added to each object before its first reconcile, and
        removed after the function has succeeded. The object exists until then. Raises `ValueError` if the name is not a
        domain, a slash and a name.
        """
        if not isinstance(finalizer, str):
            raise TypeError(f'cleanup needs the name of a finalizer: @{self.name}.cleanup("example.com/cleanup")')
        if not FINALIZER.fullmatch(finalizer):
            raise ValueError(
                f"{finalizer!r} is not a valid finalizer; use a domain, a slash and a name, such as example.com/cleanup"
            )

        def decorate(function: ReconcileFunction) -> ReconcileFunction:
            if self.cleanup_function is not None:
                raise ValueError(f"{self.name} has a cleanup function already")
            check_function(function)
            self.finalizer, self.cleanup_function = finalizer, function

            @functools.wraps(function)
            async def call(obj: Any, context: Any) -> Requeue:
                return await function(to_object(obj), context)

            return call

        return decorate

    def __call__(self, obj: Any, context: Any) -> Awaitable[Requeue]:
        return self.function(to_object(obj), context)

    def __repr__(self) -> str:
        return f"<Reconciler {self.name} of {self.kind}>"


def reconcile(
    kind: str,
    *,
    namespace: Optional[str] = None,
    labels: Optional[Selector] = None,
    fields: Optional[Selector] = None,
    owns: Sequence[str] = (),
    watches: Optional[Mapping[str, KeyMapper]] = None,
    changes: Sequence[str] = (),
    concurrency: int = 10,
    timeout: Optional[float] = 300.0,
    resync: Optional[float] = None,
    pause_when_stale: Optional[float] = 30.0,
    deleted: bool = False,
    name: Optional[str] = None,
) -> Callable[[ReconcileFunction], Reconciler]:
    """Decorates a function that reconciles each object of a kind, and reconciles it again after each change.

    ```python
    @steadfast.reconcile("deployments", owns=["pods"])
    async def reconcile(deployment, context):
        pods = context.owned("pods")
        ...
        return 60                       # again after 60 s, or after a change
    ```

    For each object, at most one reconcile runs at a time. A reconcile that raises an exception is repeated with a backoff
    from 5 ms to 1,000 s. Each reconcile sees the writes of the previous one. No reconcile runs while a cache that it reads
    has been in doubt for more than `pause_when_stale` seconds; `None` never pauses.

    `namespace`, `labels` and `fields` select the objects, as in `Informers.watch`. `owns` are kinds of objects whose
    changes reconcile their owners. `watches` maps other kinds to functions that return the keys to reconcile.

    `changes` limits the changes of an object that reconcile it: `"generation"`, `"labels"`, `"annotations"`, or paths such
    as `"spec.replicas"`. Additions, deletions and changes of related objects always count.

    `concurrency` is the maximum number of concurrent reconciles. `timeout` is the maximum duration of one, in seconds;
    `None` for no limit. `resync` is the time after which each object is reconciled without a change, in seconds. With
    `deleted`, deleted objects are reconciled too, with `None` as the object. `name` is used in messages and events; the
    default is the name of the function.
    """
    if not isinstance(kind, str):
        raise TypeError('reconcile needs the kind of the objects: @steadfast.reconcile("pods")')
    for argument, value in (("owns", owns), ("changes", changes)):
        # A string is a sequence of letters.
        if isinstance(value, str):
            raise TypeError(f"{argument} must be a list: {argument}=[{value!r}]")
    if concurrency < 1:
        raise ValueError("concurrency must be at least 1")
    settings = {
        "namespace": namespace,
        "labels": labels,
        "fields": fields,
        "owns": tuple(owns),
        "watches": dict(watches or {}),
        "changes": list(changes),
        "concurrency": concurrency,
        "timeout": timeout,
        "resync": resync,
        "pause_when_stale": pause_when_stale,
        "deleted": deleted,
        "name": name,
    }
    return lambda function: Reconciler(function, kind, dict(settings))


class Controller:
    """A reconciler that runs in an event loop."""

    def __init__(
        self,
        informers: Informers,
        cluster: _native.Cluster,
        reconciler: Reconciler,
        election: Optional[_native.Election],
        grace_period: float,
    ) -> None:
        settings = reconciler.settings
        self.informers = informers
        self.cluster = cluster
        self._reconciler = reconciler
        self._election = election
        self._grace_period = grace_period
        self._recorder: Optional[_native.Recorder] = None
        self._calls: dict[int, asyncio.Task[None]] = {}
        namespace: Optional[str] = settings["namespace"]
        self._objects = informers.watch(reconciler.kind, namespace, settings["labels"], settings["fields"])
        index = {OWNER_INDEX: "metadata.ownerReferences[*].uid"}
        self.owned: dict[str, Informer] = {
            kind: informers.watch(kind, namespace, index=index) for kind in settings["owns"]
        }
        self._watched_informers: list[tuple[Informer, KeyMapper]] = [
            (informers.watch(kind, namespace), keys) for kind, keys in settings["watches"].items()
        ]

    @property
    def recorder(self) -> _native.Recorder:
        """The recorder of events, started at the first event."""
        if self._recorder is None:
            self._recorder = self.cluster.recorder(self._reconciler.name)
        return self._recorder

    async def run(self) -> None:
        """Runs the controller until the task is cancelled. With an election, once for each term."""
        try:
            while await self._run_term():
                logger.warning("%s: the lease was lost, and reconciles wait for the next term", self._reconciler.name)
        finally:
            if self._recorder is not None:
                unsent = await self._recorder.stop(5.0)
                if unsent:
                    logger.warning("%s: %s", self._reconciler.name, unsent)
            watched = (informer for informer, _ in self._watched_informers)
            for informer in (self._objects, *self.owned.values(), *watched):
                informer.stop()

    async def _run_term(self) -> bool:
        """Runs until the end of a term, and returns true; or until the informers are closed, and returns false."""
        native_controller = self._start()
        serve_task = asyncio.ensure_future(self._serve(native_controller))
        feed_tasks = [
            asyncio.ensure_future(self._enqueue_changed_keys(native_controller, informer, keys))
            for informer, keys in self._watched_informers
        ]
        try:
            # The cancellation of this task does not cancel the reconciles, which have a grace period.
            return await asyncio.shield(serve_task)
        except asyncio.CancelledError:
            await native_controller.stop(self._grace_period)
            raise
        finally:
            for task in feed_tasks:
                task.cancel()
            await native_controller.stop(0.0)
            for call in self._calls.values():
                call.cancel()
            await asyncio.gather(serve_task, *feed_tasks, *self._calls.values(), return_exceptions=True)

    def _start(self) -> _native.Controller:
        settings = self._reconciler.settings
        return self.cluster.controller(
            self._objects._cache,
            [informer._cache for informer in self.owned.values()],
            [informer._cache for informer, _ in self._watched_informers],
            self._election,
            self._reconciler.name,
            settings["concurrency"],
            settings["timeout"],
            settings["pause_when_stale"],
            settings["changes"],
            settings["resync"],
            self._reconciler.finalizer,
            settings["deleted"],
        )

    async def _serve(self, native_controller: _native.Controller) -> bool:
        """Starts and cancels reconciles. Returns true at the end of a term."""
        while True:
            message = await native_controller.next()
            if message is None:
                return False
            if message[0] == "call":
                call = message[1]
                task = asyncio.ensure_future(self._reconcile(call))
                self._calls[call.id] = task
                task.add_done_callback(lambda _, id=call.id: self._calls.pop(id, None))  # type: ignore[misc]
            elif message[0] == "cancel":
                running = self._calls.get(message[1])
                if running is not None:
                    running.cancel()
            elif message[0] == "term_ended":
                for running in self._calls.values():
                    running.cancel()
                return True
            else:
                raise ConfigError(f"{self._reconciler.name}: {message[1]}")

    async def _reconcile(self, call: _native.Call) -> None:
        """Runs the function once. All its exceptions are failures of this reconcile only."""
        function = self._reconciler.cleanup_function if call.cleanup else self._reconciler.function
        assert function is not None, "only reconcilers with a cleanup function have a finalizer"
        try:
            delay = seconds(await function(call.object, Context(self, call)))
        except asyncio.CancelledError:
            call.finish(error="cancelled")
            raise
        except Exception as error:
            logger.exception("%s: the reconcile of %s failed", self._reconciler.name, call.key)
            call.finish(error=f"{RAISED}{type(error).__name__}: {error}")
        else:
            call.finish(requeue_after=delay)

    async def _enqueue_changed_keys(
        self, native_controller: _native.Controller, informer: Informer, keys: KeyMapper
    ) -> None:
        """Enqueues the keys of the changed objects of a watched kind."""
        async for event in informer.events():
            # A change may move an object from one key to another.
            states = [event.old, event.new] if isinstance(event, Updated) else [event.object]
            for state in states:
                try:
                    changed_keys = [split_key(key) for key in keys(state)]
                except Exception:
                    logger.exception("%s: the function in `watches` failed for %s", self._reconciler.name, event.key)
                    continue
                for namespace, name in changed_keys:
                    native_controller.enqueue(namespace, name)


def check_function(function: ReconcileFunction) -> None:
    """Raises `TypeError` if a function is not an `async def` with the object and the context as its arguments."""
    if not inspect.iscoroutinefunction(function):
        raise TypeError(f"{function!r} must be an `async def`; call blocking code by `asyncio.to_thread`")
    signature = inspect.signature(function)
    try:
        signature.bind(None, None)
    except TypeError:
        name = getattr(function, "__name__", "function")
        raise TypeError(f"{name}{signature} must take two arguments: the object and the context") from None


def to_object(obj: Any) -> Any:
    """Returns a mapping as an `Object`, and other values unchanged."""
    if isinstance(obj, Mapping) and not isinstance(obj, Object):
        return Object.from_json(encode_json(obj))
    return obj


def is_unreported(record: logging.LogRecord) -> bool:
    """Returns false for the library's message about an exception that is logged already, with its traceback."""
    from_controller = str(getattr(record, "target", "")).startswith("steadfast_controller")
    return not (from_controller and RAISED in record.getMessage())


logger.addFilter(is_unreported)


def seconds(delay: Requeue) -> Optional[float]:
    """Returns the result of a reconcile function as seconds."""
    if delay is None:
        return None
    if isinstance(delay, timedelta):
        return delay.total_seconds()
    if isinstance(delay, bool) or not isinstance(delay, (int, float)):
        raise TypeError(f"a reconcile returns None, seconds or a timedelta, not {delay!r}")
    return float(delay)


async def run_all(controllers: Sequence[Controller]) -> None:
    """Runs controllers until the task is cancelled, or until one of them fails."""
    tasks = [asyncio.ensure_future(controller.run()) for controller in controllers]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def run(
    *reconcilers: Reconciler,
    lease: Optional[str] = None,
    lease_namespace: Optional[str] = None,
    grace_period: float = 30.0,
    **connection: Any,
) -> None:
    """Runs controllers as a program, until SIGTERM or SIGINT.

    With `lease`, reconciles run only while this process holds that lease, in `lease_namespace` or the default namespace of
    the configuration. Running reconciles have `grace_period` seconds to finish. `connection` are the arguments of
    `Informers`.
    """
    from ._informers import Informers

    async def main() -> None:
        async with Informers(**connection) as informers:
            if lease is None:
                work = informers.run(*reconcilers, grace_period=grace_period)
                await until_signal(work)
            else:
                async with informers.leader_election(lease, lease_namespace) as election:
                    work = informers.run(*reconcilers, election=election, grace_period=grace_period)
                    await until_signal(work)

    asyncio.run(main())


async def until_signal(work: Awaitable[None]) -> None:
    """Runs `work` until it ends, or until a signal cancels it."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        task.cancel()

    for number in signals:
        loop.add_signal_handler(number, stop)
    try:
        await task
    except asyncio.CancelledError:
        if not stopped:
            raise
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
