"""Fixtures for pytest, which loads this plugin automatically."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .testing import Server

__all__ = ["steadfast_server", "steadfast_server_factory"]


@pytest.fixture
def steadfast_server() -> Iterator[Server]:
    """An embedded API server with the default settings, for one test."""
    # Imported here, so that test runs without this fixture do not load the native module.
    from .testing import Server

    with Server() as server:
        yield server


@pytest.fixture
def steadfast_server_factory() -> Iterator[Callable[..., Server]]:
    """Creates embedded API servers with the arguments of `steadfast_kube.testing.Server`, for one test."""
    from .testing import Server

    servers: list[Server] = []

    def create(**settings: Any) -> Server:
        server = Server(**settings)
        servers.append(server)
        return server

    yield create
    for server in servers:
        server.close()
