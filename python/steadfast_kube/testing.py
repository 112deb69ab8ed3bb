"""An embedded API server with injected faults, for tests.

```python
def test_cut(steadfast_server):                # a fixture of the pytest plugin in this package
    steadfast_server.create(pod("web-0"))
    steadfast_server.faults.cut()
```
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Optional

from . import _native

__all__ = ["Faults", "Request", "Resource", "Server"]


@dataclass(frozen=True)
class Resource:
    """A custom resource that the server serves from the start, without a definition."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True


@dataclass(frozen=True)
class Request:
    """A request that the server received. `at` is its time in seconds since the start of the server.

    `verb` distinguishes kinds of lists and watches: `list`, `page`, `probe`, `state`, `streamed_list`, `watch`.
    """

    verb: str
    path: str
    query: str
    status: Optional[int]
    at: float


class Faults:
    """Switches faults of all replicas, or of one (`faults.of(0)`). A fault stays on until it is switched off."""

    def __init__(self, server: _native.Server, replica: Optional[int] = None) -> None:
        self._server = server
        self._replica = replica

    def of(self, replica: int) -> Faults:
        """Returns the faults of one replica, counted from 0."""
        return Faults(self._server, replica)

    def _set(self, name: str, on: bool = True, **values: Any) -> None:
        self._server.fault(name, on, self._replica, **values)

    def cut(self) -> None:
        """Resets the open connections, and rejects new ones until `heal`."""
        self._set("cut")

    def heal(self) -> None:
        """Ends `cut`, `refuse`, `black_hole` and `accept_and_close`."""
        self._set("cut", False)

    def stop(self) -> None:
        """Stops the process of the server."""
        self._set("stop")

    def start(self) -> None:
        """Starts the process again. Watches from versions before the start have expired."""
        self._set("stop", False)

    def restart(self) -> None:
        """Replaces the process of the server."""
        self._set("restart")

    def refuse(self, on: bool = True) -> None:
        """Rejects new connections. Open connections stay open."""
        self._set("refuse", on)

    def accept_and_close(self, on: bool = True) -> None:
        """Accepts connections and closes them immediately."""
        self._set("accept_and_close", on)

    def reset(self) -> None:
        """Resets the open connections."""
        self._set("reset")

    def black_hole(self, on: bool = True) -> None:
        """Drops all traffic in both directions without an error."""
        self._set("black_hole", on)

    def goaway(self) -> None:
        """Sends a GOAWAY on the open HTTP/2 connections, so that clients open new ones."""
        self._set("goaway")

    def freeze(self, on: bool = True) -> None:
        """Handles no requests and sends nothing. Connections stay open, and HTTP/2 pings are acknowledged."""
        self._set("freeze", on)

    def stall_streams(self, on: bool = True) -> None:
        """Stalls the open watches; their connections stay healthy."""
        self._set("stall_streams", on)

    def end_watches(self) -> None:
        """Ends the open watches cleanly."""
        self._set("end_watches")

    def delay(self, seconds: float) -> None:
        """Delays each request before it is processed. 0 ends the fault."""
        self._set("delay", seconds > 0, number=seconds)

    def no_bookmarks(self, on: bool = True) -> None:
        """Sends no bookmarks."""
        self._set("no_bookmarks", on)

    def lag(self, on: bool = True) -> None:
        """Stops the updates of the watch cache."""
        self._set("lag", on)

    def freeze_etcd(self, on: bool = True) -> None:
        """Freezes the store: no writes, no consistent reads, no events. Bookmarks continue."""
        self._set("freeze_etcd", on)

    def expire_events(self) -> None:
        """Expires all watches from older versions: they receive `410`. Open watches continue."""
        self._set("expire_events")

    def restore(self, revision: int) -> None:
        """Restores the history to an older revision, like a restore of etcd from a backup."""
        self._set("restore", number=float(revision))

    def undecodable(self, namespace: str, name: str, on: bool = True) -> None:
        """Sends an object that is nested too deeply to be decoded, also on open watches."""
        self._set("undecodable", on, namespace=namespace, object=name)

    def respond(
        self,
        code: int,
        *verbs: str,
        resource: Optional[str] = None,
        times: Optional[int] = None,
        retry_after: Optional[float] = None,
        in_stream: bool = False,
    ) -> None:
        """Sends an error status instead of the real response.

        `verbs` are those of `Request`; without any, the fault applies to all requests. `resource` is a plural name, and
        `times` the number of requests. `in_stream` sends the status as an `ERROR` event of a watch.
        """
        self._server.respond(code, list(verbs), resource, times, retry_after, self._replica, in_stream)

    def respond_normally(self) -> None:
        """Ends `respond` for new requests of all replicas."""
        self._server.respond_normally()


class Server:
    """An embedded API server on loopback, with one history and one or several replicas.

    It serves the built-in kinds, custom resource definitions and `resources`. Writes by the methods of this class are
    independent of faults of the network. Close it, or use it in a `with` block.
    """

    def __init__(
        self,
        *,
        replicas: int = 1,
        tls: bool = False,
        protobuf: bool = False,
        bookmark_period: float = 60.0,
        tokens: tuple[str, ...] = (),
        resources: tuple[Resource, ...] = (),
    ) -> None:
        declared = [(entry.group, entry.version, entry.kind, entry.plural, entry.namespaced) for entry in resources]
        self._native = _native.Server(replicas, tls, protobuf, bookmark_period, list(tokens), declared)
        self.faults = Faults(self._native)

    @property
    def url(self) -> str:
        """The URL of the first replica."""
        return self._native.url(0)

    def url_of(self, replica: int) -> str:
        """Returns the URL of a replica, counted from 0."""
        return self._native.url(replica)

    @property
    def kubeconfig(self) -> str:
        """A kubeconfig for the first replica, as YAML."""
        return self._native.kubeconfig(0)

    def create(self, obj: Any) -> dict[str, Any]:
        """Creates an object of its own `apiVersion` and `kind`, and returns its state on the server."""
        return _parse_object(self._native.create(obj))

    def replace(self, obj: Any) -> dict[str, Any]:
        """Replaces an object, with its status."""
        return _parse_object(self._native.replace(obj))

    def patch(self, resource: str, namespace: str, name: str, patch: Any) -> dict[str, Any]:
        """Changes an object by a merge patch. `resource` is the plural name: `pods`, `deployments.apps`."""
        return _parse_object(self._native.patch(resource, namespace, name, patch))

    def delete(self, resource: str, namespace: str, name: str) -> dict[str, Any]:
        """Deletes an object and returns its last state."""
        return _parse_object(self._native.delete(resource, namespace, name))

    def get(self, resource: str, namespace: str, name: str) -> dict[str, Any]:
        """Returns an object."""
        return _parse_object(self._native.get(resource, namespace, name))

    def churn(self, resource: str, count: int, rate: Optional[float] = None) -> int:
        """Changes the objects of a resource in turn, for load tests, and returns the number of changes.

        `resource` is the plural name: `pods`, `deployments.apps`. Each change sets the annotation `steadfast-kube/churn`.
        `rate` is the maximum number of changes a second; without it, changes follow each other without a pause. Raises
        `ValueError` if no object exists. Ctrl-C ends the call.
        """
        return self._native.churn(resource, count, rate)

    def forget_history(self, keep: int = 0) -> None:
        """Removes all changes but the newest `keep`, so that a load test of hours has bounded memory.

        The server otherwise keeps each change. Watches from removed versions receive `410`, and a watch that has not
        received a removed change ends.
        """
        self._native.forget_history(keep)

    def compact(self) -> None:
        """Compacts the history: lists and watches from older versions expire."""
        self._native.compact()

    @property
    def revision(self) -> int:
        """The newest version."""
        return self._native.revision

    @property
    def connections(self) -> int:
        """The number of connections that clients have opened since the start of the server."""
        return self._native.connections

    def open_watches(self, replica: int = 0) -> int:
        """Returns the number of open watches."""
        return self._native.open_watches(replica)

    def requests(self, *verbs: str, resource: Optional[str] = None) -> list[Request]:
        """Returns the requests so far, of these verbs and of this plural name."""
        requests = (Request(*request) for request in self._native.requests())
        return [
            request
            for request in requests
            if (not verbs or request.verb in verbs) and (resource is None or resource in request.path.split("/"))
        ]

    def close(self) -> None:
        """Stops the server."""
        self._native.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _parse_object(text: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(text)
    return value
