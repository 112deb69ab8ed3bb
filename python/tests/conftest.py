"""Objects and waits for all tests."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any, Optional, TypeVar

import pytest

import steadfast_kube as steadfast
from steadfast_kube.testing import Server

T = TypeVar("T")

# Far above each expected duration, so that only a hanging wait reaches it.
PATIENCE = 60.0


def pod(name: str, namespace: str = "shop", node: str = "n1", **labels: str) -> dict[str, Any]:
    """Returns a pod for `Server.create`."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels or {"app": "web"}},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "web:1", "ports": [{"containerPort": 80}]}]},
        "status": {"phase": "Running"},
    }


def config_map(name: str, **data: str) -> dict[str, Any]:
    """Returns a ConfigMap in the namespace `shop`."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "shop"}, "data": data}


@asynccontextmanager
async def running(
    informers: steadfast.Informers, *reconcilers: steadfast.Reconciler, **settings: Any
) -> AsyncIterator["asyncio.Task[None]"]:
    """Runs controllers within a block."""
    task = asyncio.ensure_future(informers.run(*reconcilers, **settings))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def eventually(condition: Callable[[], Any], task: Optional["asyncio.Task[None]"] = None) -> Any:
    """Waits until a condition holds, and fails with the error of a controller."""

    async def wait() -> Any:
        while not (value := condition()):
            if task is not None and task.done():
                task.result()
            await asyncio.sleep(0.005)
        return value

    return await asyncio.wait_for(wait(), PATIENCE)


async def until_waiting(informer: steadfast.Informer) -> None:
    """Returns after all waits that started earlier have found nothing, and wait.

    The thread of the informers first runs the tasks in the order of their starts.
    """
    await informer._cache.changed(informer._cache.changes(), 0.0)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs a test's coroutine, at most twice `PATIENCE`."""
    return asyncio.run(asyncio.wait_for(main, 2 * PATIENCE))


async def state(informer: steadfast.Informer, *names: str) -> steadfast.Freshness:
    """Waits until the freshness has one of these names."""
    return await informer.until(
        lambda informer: informer.freshness if informer.freshness.name in names else None, PATIENCE
    )


async def next_event(events: steadfast.Events) -> steadfast.Event:
    """Returns the next event of a stream."""
    return await asyncio.wait_for(events.__anext__(), PATIENCE)


@pytest.fixture
def server(steadfast_server: Server) -> Server:
    """A server with the namespace `shop`."""
    steadfast_server.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    return steadfast_server


@pytest.fixture(autouse=True)
def assertions_in_callbacks(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fails for failed assertions in reconcile functions and handlers, whose exceptions are only logged."""
    yield
    for record in caplog.get_records("call"):
        if record.exc_info and isinstance(record.exc_info[1], AssertionError):
            raise record.exc_info[1]
