"""Events, freshness and errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Literal, Optional, Union

if TYPE_CHECKING:
    from ._native import Object

__all__ = [
    "Added",
    "ApiError",
    "Certainty",
    "CheckpointError",
    "ConfigError",
    "Conflict",
    "DeleteReason",
    "Deleted",
    "Doubt",
    "DurablePosition",
    "DurableStats",
    "Event",
    "Failed",
    "Forked",
    "Fresh",
    "Freshness",
    "NotFound",
    "NotLeader",
    "NotReached",
    "NotSynced",
    "Polled",
    "RequestFailed",
    "Resuming",
    "Stale",
    "Starting",
    "SteadfastError",
    "Stopped",
    "StoppedError",
    "Suspect",
    "Unknown",
    "UnknownKind",
    "Updated",
]

Certainty = Literal["observed", "inferred"]
"""`observed`: the server reported the deletion. `inferred`: a complete list no longer contained the object."""

DeleteReason = Literal["deleted", "replaced", "deleted or left"]
"""`replaced`: another object has the name now. `deleted or left`: the informer has a selector, and the protocol does not
distinguish a deletion from a change that ends the match."""


# Events


@dataclass(frozen=True)
class Added:
    """An object was created, or started to match the selectors.

    `initial` is true if the object existed when the stream started.
    """

    object: Object
    initial: bool = False

    @property
    def key(self) -> str:
        """The namespace and the name of the object."""
        return self.object.key


@dataclass(frozen=True)
class Updated:
    """An object changed. Intermediate states may be skipped. The last state is always delivered.

    `old` is the state of the previous event of this stream.
    """

    old: Object
    new: Object

    @property
    def object(self) -> Object:
        """The new state."""
        return self.new

    @property
    def key(self) -> str:
        """The namespace and the name of the object."""
        return self.new.key


@dataclass(frozen=True)
class Deleted:
    """An object was deleted, or no longer matches the selectors. `last` is its last matching state.

    `version` is the version of the deletion, if the server reported one.
    """

    last: Object
    certainty: Certainty
    reason: DeleteReason
    version: Optional[str] = None

    @property
    def object(self) -> Object:
        """The last state."""
        return self.last

    @property
    def key(self) -> str:
        """The namespace and the name of the object."""
        return self.last.key


Event = Union[Added, Updated, Deleted]
"""An event of a stream."""


# Durable handlers


@dataclass(frozen=True)
class DurableStats:
    """Counters of a durable handler in this run of the program.

    `acknowledged` and `failed` are deliveries. `unrecorded` counts events that were delivered although the checkpoint
    could not be written. `pending` is the number of objects with a pending delivery, and `in_flight` the number of
    deliveries that are queued or not acknowledged. `is_registered` is false for a handler that only an earlier run has
    used; its deliveries stay pending.
    """

    acknowledged: int
    failed: int
    unrecorded: int
    pending: int
    in_flight: int
    is_registered: bool


@dataclass(frozen=True)
class DurablePosition:
    """The acknowledged changes of a durable handler, as versions.

    Every change up to `reached` is acknowledged or pending. All changes below `first_pending` are acknowledged. It is
    `None` if every change up to `reached` is acknowledged.
    """

    reached: str
    first_pending: Optional[str]


# Freshness


@dataclass(frozen=True)
class Polled:
    """The cache lists the resource every `every` seconds instead of watching it. `reason` is the cause."""

    every: float
    reason: str


@dataclass(frozen=True)
class _State:
    """Base class of the states of a cache. `str()` describes the state in one line."""

    text: str = field(repr=False, compare=False)

    @property
    def is_fresh(self) -> bool:
        """True for `Fresh`."""
        return isinstance(self, Fresh)

    @property
    def name(self) -> str:
        """The name of the state in lower case."""
        return type(self).__name__.lower()

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Fresh(_State):
    """A proof shows that the cache had all changes up to `age` seconds ago.

    `tainted` contains the keys whose newest state cannot be decoded; reads of them raise
    `Unknown`. `polled` is set if the resource cannot be watched, so that the cache lists it periodically instead.
    """

    age: float
    version: Optional[str] = None
    tainted: frozenset[str] = frozenset()
    polled: Optional[Polled] = None


@dataclass(frozen=True)
class Doubt(_State):
    """A state other than `Fresh`: the cache may lack changes.

    `since` is the start of the doubt, `elapsed` its duration in seconds, and `reason` its cause. `age` is the time since
    the last proof in seconds, and `version` the last version that the cache is known to contain. `attempts` counts
    consecutive failed attempts, and `next_attempt` is the time until the next one in seconds.
    """

    since: datetime
    elapsed: float
    reason: str
    age: Optional[float] = None
    version: Optional[str] = None
    attempts: int = 0
    next_attempt: Optional[float] = None


@dataclass(frozen=True)
class Starting(Doubt):
    """The first list is not complete yet."""


@dataclass(frozen=True)
class Resuming(Doubt):
    """The stream broke and is being resumed."""


@dataclass(frozen=True)
class Suspect(Doubt):
    """An expected proof did not arrive."""


@dataclass(frozen=True)
class Stale(Doubt):
    """Changes may be missing."""


@dataclass(frozen=True)
class Failed(Doubt):
    """The server rejects the requests: a missing permission or resource. Retries continue."""


@dataclass(frozen=True)
class Stopped(Doubt):
    """The informer was stopped. The cache no longer changes."""


Freshness = Union[Fresh, Starting, Resuming, Suspect, Stale, Failed, Stopped]
"""Freshness of a cache at one instant: `Fresh`, or a `Doubt` with its cause. `str()` describes it in one line."""


# Errors


class SteadfastError(Exception):
    """Base class of all errors of this package."""


class ConfigError(SteadfastError):
    """The kubeconfig or another setting cannot be used."""


class CheckpointError(SteadfastError):
    """The checkpoint cannot be opened, or an informer or a durable handler cannot use it."""


class NotSynced(SteadfastError):
    """The cache does not contain a complete list yet. `freshness` states the cause."""

    def __init__(self, message: str, freshness: Freshness) -> None:
        super().__init__(message)
        self.freshness = freshness

    def __reduce__(self) -> tuple[type[NotSynced], tuple[str, Freshness]]:
        return type(self), (str(self), self.freshness)


class UnknownKind(NotSynced):
    """The server has no resource of this name, or the resource cannot be watched."""


class NotReached(SteadfastError, TimeoutError):
    """A timeout expired before the condition of a wait was true. `freshness` is the state of the cache at that time."""

    def __init__(self, message: str, freshness: Freshness) -> None:
        super().__init__(message)
        self.freshness = freshness

    def __reduce__(self) -> tuple[type[NotReached], tuple[str, Freshness]]:
        return type(self), (str(self), self.freshness)


class StoppedError(SteadfastError):
    """The informer was stopped, or the block of its informers has ended. Waits and new informers raise it."""


class Unknown(SteadfastError):
    """The newest state of an object cannot be decoded: the object is neither present nor absent."""

    def __init__(self, message: str, key: str, version: str) -> None:
        super().__init__(message)
        self.key = key
        self.version = version

    def __reduce__(self) -> tuple[type[Unknown], tuple[str, str, str]]:
        return type(self), (str(self), self.key, self.version)


class Forked(SteadfastError, RuntimeError):
    """The informers belong to the parent process. Their threads do not exist in a forked child."""


class ApiError(SteadfastError):
    """The server rejected a request. `code` is the HTTP status, and `reason` a word such as `Forbidden`."""

    def __init__(self, message: str, code: int, reason: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason

    def __reduce__(self) -> tuple[type[ApiError], tuple[str, int, str]]:
        return type(self), (str(self), self.code, self.reason)


class NotFound(ApiError):
    """The object does not exist (404)."""


class Conflict(ApiError):
    """The object exists already, or another client has changed it (409)."""


class RequestFailed(SteadfastError):
    """A request received no response. The server may have processed it."""


class NotLeader(RequestFailed):
    """The lease may have expired, so that the client of a leader sends no more requests."""
