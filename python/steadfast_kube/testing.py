"""An embedded API server with injected faults, for tests.

```python
def test_cut(steadfast_server):                # a fixture of the pytest plugin in this package
    steadfast_server.create(pod("web-0"))
    steadfast_server.faults.cut()
```
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Optional, Union

from . import _native
from ._client import Client, Objects, Patch, Propagation, encode_json, object_path, to_dictionary, type_of
from ._controllers import Context
from ._keys import Key, Selector, key_text, split_key
from ._native import Object
from ._types import NotFound

if TYPE_CHECKING:
    from ._informers import Informers

__all__ = [
    "FakeClient",
    "FakeContext",
    "Faults",
    "RecordedEvent",
    "RecordedWrite",
    "Request",
    "Resource",
    "Server",
    "make_object",
]


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

    `verb` distinguishes kinds of lists and watches: `list` (the first page), `page` (a further page), `probe` (reads only
    the version), `state` (one object by its name), `streamed_list` and `watch`.
    """

    verb: str
    path: str
    query: str
    status: Optional[int]
    at: float


class Faults:
    """Injects faults into all replicas, or into one (`faults.of(0)`). A fault stays on until it is switched off."""

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
        """Expires the history: a watch request from an older version receives `410`. Open watches continue."""
        self._set("expire_events")

    def restore(self, revision: int) -> None:
        """Restores the history to an older revision, like a restore of etcd from a backup."""
        self._set("restore", number=float(revision))

    def reject_streamed_lists(self, on: bool = True) -> None:
        """Rejects watches with initial events, like a server on which they are disabled. Clients then list in pages."""
        self._set("reject_streamed_lists", on)

    def expire_continue_tokens(self, times: int) -> None:
        """Responds `410` to the next `times` requests for a further page of a list."""
        self._set("expire_continue_tokens", number=float(times))

    def split_bodies(self, size: int) -> None:
        """Sends the bodies of new responses in chunks of at most `size` bytes. 0 ends the fault."""
        self._set("split_bodies", number=float(size))

    def repeat_events(self, count: int) -> None:
        """Sends the last `count` events again to each resumed watch. 0 ends the fault."""
        self._set("repeat_events", number=float(count))

    def drop_next_event(self, resource: str) -> None:
        """Sends the next change of a resource (its plural name) to no watch. Lists contain the change."""
        self._set("drop_next_event", object=resource)

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
        """Creates an object, and returns its state on the server. Its `apiVersion` and `kind` select the resource."""
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


def make_object(content: Union[str, bytes, Mapping[str, Any]]) -> Object:
    """Returns an object like those of a cache, from a mapping or from JSON.

    Raises `ValueError` if the JSON is not an object of Kubernetes.
    """
    if isinstance(content, Object):
        return content
    return Object.from_json(content if isinstance(content, (str, bytes)) else encode_json(content))


@dataclass(frozen=True)
class RecordedEvent:
    """An event that a reconcile function recorded with `context.event`."""

    reason: str
    note: str = ""
    type: Literal["Normal", "Warning"] = "Normal"
    action: Optional[str] = None


@dataclass(frozen=True)
class RecordedWrite:
    """A write that a reconcile function sent with `context.client`.

    `verb` is the name of the method of `Client`. `kind` is its argument, or the `kind` of the written object; it is the
    path for `request`, whose verb is the HTTP method. `body` consists of dictionaries and lists.
    """

    verb: str
    kind: str
    key: str
    body: Any = None
    subresource: Optional[str] = None


class FakeClient(Client):
    """A client without a server: it records writes, and reads the objects that the test gave.

    Writes do not change these objects. `create`, `replace` and `apply` return the written object. `patch` returns the
    object that the test gave, with a merge patch applied. `list` ignores selectors. To test the interaction with the
    server, use `Server`.

    As in `Client`, a key without a namespace is that of a cluster-scoped object, or of one in `default_namespace`.
    """

    def __init__(
        self,
        objects: Optional[Mapping[str, Iterable[Mapping[str, Any]]]] = None,
        *,
        default_namespace: str = "default",
    ) -> None:
        self.writes: list[RecordedWrite] = []
        """The writes so far."""
        self._default_namespace = default_namespace
        self._objects = {kind: [make_object(obj) for obj in given] for kind, given in (objects or {}).items()}

    async def get(self, kind: str, key: Key) -> Object:
        """Returns an object that the test gave for `kind`. Raises `NotFound` if it gave none with this key."""
        namespace, name = split_key(key)
        # The kind may be cluster-scoped, or not. Only the objects of the test can tell.
        for of_object in (namespace, namespace or self._default_namespace):
            for obj in self._objects.get(kind, ()):
                if (obj.namespace, obj.name) == (of_object, name):
                    return obj
        raise NotFound(f'{kind} "{key_text(key)}" not found', 404, "NotFound")

    async def list(
        self,
        kind: str,
        namespace: Optional[str] = None,
        labels: Optional[Selector] = None,
        fields: Optional[Selector] = None,
    ) -> Objects:
        """Returns the objects that the test gave for `kind`."""
        return [obj for obj in self._objects.get(kind, ()) if namespace is None or obj.namespace == namespace]

    async def create(self, obj: Any) -> Object:
        """Records the write and returns the object."""
        return self._record_object("create", obj, None)

    async def replace(self, obj: Any, *, subresource: Optional[str] = None) -> Object:
        """Records the write and returns the object."""
        return self._record_object("replace", obj, subresource)

    async def apply(
        self, obj: Any, *, field_manager: str, force: bool = False, subresource: Optional[str] = None
    ) -> Object:
        """Records the write and returns the object."""
        return self._record_object("apply", obj, subresource)

    async def patch(
        self, kind: str, key: Key, patch: Any, *, type: Patch = "merge", subresource: Optional[str] = None
    ) -> Object:
        """Records the patch, and returns the object with a merge patch applied."""
        patch = _plain(patch)
        namespace, name = split_key(key)
        self.writes.append(RecordedWrite("patch", kind, key_text(key), patch, subresource))
        try:
            state = (await self.get(kind, key)).to_dict()
        except NotFound:
            state = {"metadata": {"name": name, "namespace": namespace}}
        return make_object(_merged(state, patch) if type == "merge" else state)

    async def delete(
        self,
        kind: str,
        key: Key,
        *,
        uid: Optional[str] = None,
        resource_version: Optional[str] = None,
        propagation: Optional[Propagation] = None,
        grace_period: Optional[int] = None,
    ) -> None:
        """Records the deletion."""
        split_key(key)
        self.writes.append(RecordedWrite("delete", kind, key_text(key)))

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Optional[Mapping[str, Optional[str]]] = None,
        content_type: str = "application/json",
    ) -> Any:
        """Records the request, and returns an empty dictionary."""
        self.writes.append(RecordedWrite(method, path, "", _plain(body)))
        return {}

    def _record_object(self, verb: str, obj: Any, subresource: Optional[str]) -> Object:
        body: dict[str, Any] = _plain(to_dictionary(obj))
        _, kind = type_of(body)
        written = make_object(body)
        if verb != "create":
            # Raises the error of `Client` for an object without a name.
            object_path("", written.name, subresource)
        self.writes.append(RecordedWrite(verb, kind, written.key, body, subresource))
        return written


class FakeContext(Context):
    """A context for calls of a reconcile function without a server.

    It records events and writes. `obj` is the reconciled object. `owned` maps the kinds in `owns` to the objects that
    `context.owned` returns, and `objects` other kinds to the objects that `context.client` reads.

    `FakeContext(None, key="shop/a")` is the context of a deleted object, for a reconciler with `deleted=True`. As for a
    deleted object in a cluster, it owns no objects and records no events.

    ```python
    context = FakeContext(deployment, owned={"replicasets": []})
    assert await check(deployment, context) == 30
    assert context.events[0].reason == "NoReplicaSet" and context.writes == []
    ```
    """

    def __init__(
        self,
        obj: Optional[Mapping[str, Any]],
        *,
        key: Optional[Key] = None,
        owned: Optional[Mapping[str, Iterable[Mapping[str, Any]]]] = None,
        objects: Optional[Mapping[str, Iterable[Mapping[str, Any]]]] = None,
        fencing_token: Optional[int] = None,
        default_namespace: str = "default",
    ) -> None:
        if (obj is None) == (key is None):
            raise TypeError('a FakeContext needs an object, or the key of a deleted one: FakeContext(None, key="shop/a")')
        self._object = None if obj is None else make_object(obj)
        self._key = key_text(key) if self._object is None else self._object.key
        self._namespace, self._name = (
            split_key(self._key) if self._object is None else (self._object.namespace, self._object.name)
        )
        self._owned = {kind: [make_object(child) for child in given] for kind, given in (owned or {}).items()}
        self._fake_client = FakeClient({**self._owned, **(objects or {})}, default_namespace=default_namespace)
        self._fencing_token = fencing_token
        self.events: list[RecordedEvent] = []
        """The events so far."""

    @property
    def writes(self) -> list[RecordedWrite]:
        """The writes so far."""
        return self._fake_client.writes

    @property
    def informers(self) -> Informers:
        """Not available: raises `RuntimeError`."""
        raise RuntimeError("a FakeContext has no informers; test this function with steadfast_kube.testing.Server")

    @property
    def client(self) -> FakeClient:
        """The client that records the writes."""
        return self._fake_client

    @property
    def key(self) -> str:
        """The namespace and the name of the object."""
        return self._key

    @property
    def name(self) -> str:
        """The name of the object."""
        return self._name

    @property
    def namespace(self) -> Optional[str]:
        """The namespace of the object; `None` for a cluster-scoped object."""
        return self._namespace

    @property
    def fencing_token(self) -> Optional[int]:
        """The fencing token that the test gave."""
        return self._fencing_token

    def owned(self, kind: str) -> list[Object]:
        """Returns the objects that the test gave. Raises `KeyError` for a kind that it did not give."""
        if kind not in self._owned:
            raise KeyError(f"the test gave no owned {kind!r}: FakeContext(…, owned={{{kind!r}: […]}})")
        return [] if self._object is None else list(self._owned[kind])

    def event(
        self,
        reason: str,
        note: str = "",
        *,
        action: Optional[str] = None,
        type: Literal["Normal", "Warning"] = "Normal",
    ) -> None:
        """Records an event in `events`."""
        if self._object is not None:
            self.events.append(RecordedEvent(reason, note, type, action))

    async def wait_for_write(self, obj: object, timeout: Optional[float] = 30) -> None:
        """Returns immediately."""


def _plain(body: Any) -> Any:
    """Returns a copy that consists of dictionaries, lists and scalars."""
    return json.loads(encode_json(body))


def _merged(state: Any, patch: Any) -> Any:
    """Returns the result of a JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(state) if isinstance(state, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merged(merged.get(name), value)
    return merged
