"""Deliveries of durable handlers for asyncio."""

from __future__ import annotations

import asyncio
from typing import Optional

from ._native import Cache, Delivery, DeliveryStream
from ._types import DurablePosition, DurableStats

__all__ = ["DEFAULT_CONCURRENCY", "DEFAULT_ACK_TIMEOUT", "Deliveries", "DeliveriesBase", "open_stream"]

DEFAULT_CONCURRENCY = 16
"""Default of the maximum number of unacknowledged deliveries."""

DEFAULT_ACK_TIMEOUT = 60.0
"""Default of the maximum time in seconds from the read of a delivery to its acknowledgement."""

DELIVERIES_PER_TURN = 64
"""Number of deliveries after which a stream lets other tasks of the event loop run."""


def open_stream(cache: Cache, name: str, concurrency: int, ack_timeout: Optional[float]) -> DeliveryStream:
    """Registers a durable handler."""
    if concurrency < 1:
        raise ValueError(f"concurrency must be at least 1, not {concurrency}")
    if ack_timeout is not None and not ack_timeout > 0:
        raise ValueError(f"ack_timeout must be positive or None, not {ack_timeout}")
    return cache.durable(name, concurrency, ack_timeout)


class DeliveriesBase:
    """State of a durable handler, for asyncio and for threads."""

    def __init__(self, stream: DeliveryStream) -> None:
        self._stream = stream

    @property
    def stats(self) -> Optional[DurableStats]:
        """The counters of the handler; `None` before the informer has started and after the end of the stream."""
        return self._stream.stats()

    @property
    def position(self) -> Optional[DurablePosition]:
        """The progress of the handler, as resource versions; `None` before the informer has synced and after the end."""
        position = self._stream.position()
        return None if position is None else DurablePosition(*position)

    def close(self) -> None:
        """Ends the stream, also for a caller that waits in it.

        Deliveries that were read can still be acknowledged. All others stay stored for the next stream of this name,
        which receives them without a backoff.
        """
        self._stream.close()


class Deliveries(DeliveriesBase):
    """Deliveries of a durable handler, for `async for`. `Informer.durable` creates it.

    A cancelled read loses no delivery. One task can read a stream at a time; other tasks can acknowledge the
    deliveries, in any order.
    """

    def __init__(self, stream: DeliveryStream) -> None:
        super().__init__(stream)
        self._taken_count = 0
        self._is_being_read = False

    def __aiter__(self) -> Deliveries:
        return self

    async def __anext__(self) -> Delivery:
        if self._is_being_read:
            raise RuntimeError("another task reads this stream; pass its deliveries to other tasks")
        self._is_being_read = True
        try:
            # A reader that always finds deliveries must still let other tasks of the loop run.
            if self._taken_count >= DELIVERIES_PER_TURN:
                self._taken_count = 0
                await asyncio.sleep(0)
            while True:
                delivery = self._stream.take()
                if delivery is not None:
                    self._taken_count += 1
                    return delivery
                if self._stream.ended:
                    raise StopAsyncIteration
                self._taken_count = 0
                await self._stream.ready()
        finally:
            self._is_being_read = False

    async def aclose(self) -> None:
        """Ends the stream, for `contextlib.aclosing`."""
        self._stream.close()

    async def __aenter__(self) -> Deliveries:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stream.close()
