"""Fixtures for pytest, which loads this plugin automatically."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .testing import Server

__all__ = ["steadfast_server", "steadfast_server_factory"]


@pytest.fixture
def steadfast_server(steadfast_server_factory: Callable[..., Server]) -> Server:
    """An embedded API server with the default settings, for one test."""
    return steadfast_server_factory()


@pytest.fixture
def steadfast_server_factory() -> Iterator[Callable[..., Server]]:
    """Creates embedded API servers with the arguments of `steadfast_kube.testing.Server`, for one test."""
    # The import is here, so that test runs without these fixtures do not load the native module.
    from .testing import Server

    with ExitStack() as stack:

        def create(**settings: Any) -> Server:
            return stack.enter_context(Server(**settings))

        yield create
