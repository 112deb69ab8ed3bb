"""Objects and waits for all tests."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

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


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs a test's coroutine, at most `PATIENCE` seconds per test."""

    async def limited() -> T:
        return await asyncio.wait_for(main, 2 * PATIENCE)

    return asyncio.run(limited())


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
