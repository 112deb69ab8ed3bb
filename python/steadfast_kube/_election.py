"""Leader election."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Optional

from . import _native
from ._client import Client, Resolve

__all__ = ["Leader", "LeaderElection"]


class Leader:
    """One term of this process as the leader. An ended term never resumes: the next one is another `Leader`."""

    def __init__(self, term: _native.Term, resolve: Resolve, default_namespace: str) -> None:
        self._term = term
        self._client = Client(term.request, resolve, default_namespace)

    @property
    def client(self) -> Client:
        """A client whose requests are sent within this term or not at all: later requests raise `NotLeader`."""
        return self._client

    @property
    def is_leader(self) -> bool:
        """True until the term ends.

        The term can end right after this call, so write with `client`, which checks the term.
        """
        return self._term.is_leader

    @property
    def remaining(self) -> float:
        """The remaining seconds of the term if no further renewal succeeds."""
        return self._term.remaining

    @property
    def fencing_token(self) -> int:
        """A number that increases with each term of any candidate, for external systems that compare tokens."""
        return self._term.fencing_token

    async def until_lost(self) -> None:
        """Waits until the term ends."""
        await self._term.until_lost()


class LeaderElection:
    """A candidate for a lease, for `async with`. `Informers.leader_election` creates it.

    Renewals run on threads of the library, so that a blocked event loop delays none. The end of the block releases the
    lease.

    ```python
    async with informers.leader_election("my-operator") as election:
        async for leader in election:
            await leader.client.create({…})
            await leader.until_lost()
    ```
    """

    def __init__(
        self,
        cluster: _native.Cluster,
        namespace: str,
        name: str,
        identity: Optional[str],
        durations: tuple[float, float, float],
    ) -> None:
        self._cluster = cluster
        self._settings = (namespace, name, identity, *durations)
        self._default_namespace = cluster.default_namespace or "default"
        self._election: Optional[_native.Election] = None

    @property
    def _started(self) -> _native.Election:
        if self._election is None:
            raise RuntimeError("the election is not running; use it within `async with`")
        return self._election

    @property
    def identity(self) -> str:
        """The identity of this candidate in the lease: the host name with a random suffix."""
        return self._started.identity

    @property
    def is_leader(self) -> bool:
        """True while this candidate holds the lease."""
        return self._started.is_leader

    @property
    def holder(self) -> Optional[str]:
        """The last known holder of the lease."""
        return self._started.holder

    @property
    def lease_error(self) -> Optional[str]:
        """The last error of a request for the lease, such as a missing permission. `None` after a success."""
        return self._started.lease_error

    async def until_leader(self) -> Leader:
        """Waits until this candidate leads."""
        term = await self._started.until_leader()
        if term is None:
            raise RuntimeError("the election was stopped")
        return Leader(term, self._cluster.resolve, self._default_namespace)

    async def __aiter__(self) -> AsyncIterator[Leader]:
        while True:
            leader = await self.until_leader()
            yield leader
            # The next term can start only after the end of this one.
            await leader.until_lost()

    async def __aenter__(self) -> LeaderElection:
        if self._election is not None:
            raise RuntimeError("the election is running already")
        self._election = self._cluster.elect(*self._settings)
        return self

    async def __aexit__(self, *_: object) -> None:
        election, self._election = self._election, None
        if election is not None:
            await election.stop()
