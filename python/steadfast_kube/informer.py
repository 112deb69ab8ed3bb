"""Replacement for `kubernetes.informer` of the official client (36.0 or later), with the same classes and constants.

```python
from kubernetes import client, config
from steadfast_kube.informer import ADDED, SharedInformer          # the only changed line

config.load_kube_config()
informer = SharedInformer(list_func=client.CoreV1Api().list_namespaced_pod, namespace="shop")
informer.add_event_handler(ADDED, lambda pod: print(pod.metadata.name))
informer.start()
```

Handlers and `cache` use the models of the official client, which are created from the compressed cache at each read.
Differences from the original:

- `cache` raises `NotSynced` before the first complete list, instead of being empty.
- An object that is deleted and recreated is `DELETED` and `ADDED`, and a list after a `410` repeats no unchanged object.
- `ERROR` handlers receive an `OutOfDate` each time the cache stops being fresh, also if the server is only silent.
- `BOOKMARK` handlers are never called.
- A resync calls the `MODIFIED` handlers without a request.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Optional

from . import blocking
from ._native import Object
from ._types import Added, ConfigError, Deleted, Doubt, Event, Freshness, Starting, SteadfastError, Stopped

__all__ = ["ADDED", "BOOKMARK", "DELETED", "ERROR", "MODIFIED", "ObjectCache", "OutOfDate", "SharedInformer"]

logger = logging.getLogger("steadfast_kube")

ADDED = "ADDED"
MODIFIED = "MODIFIED"
DELETED = "DELETED"
BOOKMARK = "BOOKMARK"
ERROR = "ERROR"

EVENT_TYPES = (ADDED, BOOKMARK, DELETED, ERROR, MODIFIED)

CHECK_INTERVAL = 1.0
"""Longest time in seconds between two checks of the freshness and of the resync period."""

Handler = Callable[[Any], object]


class OutOfDate(SteadfastError):
    """The cache may lack changes. `freshness` states since when and why."""

    def __init__(self, freshness: Freshness) -> None:
        super().__init__(str(freshness))
        self.freshness = freshness

    def __reduce__(self) -> tuple[type[OutOfDate], tuple[Freshness]]:
        return type(self), (self.freshness,)


class ObjectCache:
    """The cached objects, as models of the official client."""

    def __init__(
        self,
        informer: Callable[[], Optional[blocking.Informer]],
        model: Callable[[Object], Any],
        key_func: Optional[Callable[[Any], str]],
    ) -> None:
        self._informer = informer
        self._model = model
        self._key_func = key_func

    def _objects(self) -> dict[str, Object]:
        informer = self._informer()
        return {} if informer is None else dict(informer.items())

    def list(self) -> list[Any]:
        """Returns the objects of one snapshot."""
        return [self._model(obj) for obj in self._objects().values()]

    def list_keys(self) -> list[str]:  # type: ignore[valid-type]
        """Returns the keys of one snapshot."""
        if self._key_func is None:
            return [*self._objects()]
        return [self._key_func(self._model(obj)) for obj in self._objects().values()]

    def get(self, obj: Any) -> Any:
        """Returns the cached state of an object, or `None`."""
        if self._key_func is not None:
            return self.get_by_key(self._key_func(obj))
        meta = obj["metadata"] if isinstance(obj, dict) else obj.metadata
        read = meta.get if isinstance(meta, dict) else functools.partial(getattr, meta)
        namespace, name = read("namespace", None), str(read("name", None))
        return self.get_by_key(f"{namespace}/{name}" if namespace else name)

    def get_by_key(self, key: str) -> Any:
        """Returns the cached object with a key, or `None`."""
        if self._key_func is not None:
            # The informer does not know the keys of `key_func`, so all objects are searched.
            models = (self._model(obj) for obj in self._objects().values())
            return next((model for model in models if self._key_func(model) == key), None)
        informer = self._informer()
        obj = None if informer is None else informer.get(key)
        return None if obj is None else self._model(obj)


class SharedInformer:
    """A cache of the objects that a method of the official client lists, with handlers for its changes.

    `list_func` is a method of an API class of the official client, such as `CoreV1Api().list_namespaced_pod`. It is not
    called: the informer requests its resource from the same server. `informers` is an open `blocking.Informers` to share.
    Without `informers`, a client with an `http://` URL determines the server and the token. For any other URL, the
    connection is that of kubectl, and both must use the same server.

    Handlers run on one thread, one after the other. The exception of a handler is logged.
    """

    def __init__(
        self,
        list_func: Callable[..., Any],
        namespace: Optional[str] = None,
        resync_period: float = 0,
        label_selector: Optional[str] = None,
        field_selector: Optional[str] = None,
        key_func: Optional[Callable[[Any], str]] = None,
        *,
        informers: Optional[blocking.Informers] = None,
    ) -> None:
        self._list_request = ListRequest.from_function(list_func, namespace)
        self._selectors = (label_selector, field_selector)
        self._resync_period = resync_period
        self._shared_informers = informers
        self._own_informers: Optional[blocking.Informers] = None
        self._informer: Optional[blocking.Informer] = None
        self._handlers: dict[str, list[Handler]] = {event_type: [] for event_type in EVENT_TYPES}
        self._lock = threading.Lock()
        self._thread: Optional[threading.Thread] = None
        self.cache = ObjectCache(lambda: self._informer, self._list_request.model, key_func)

    @property
    def freshness(self) -> Freshness:
        """The freshness of the cache. Not part of the official client."""
        return self._running.freshness

    def synced(self, timeout: Optional[float] = None) -> None:
        """Waits until the first complete list is in the cache. Not part of the official client."""
        self._running.synced(timeout)

    @property
    def _running(self) -> blocking.Informer:
        if self._informer is None:
            raise RuntimeError("the informer is not started")
        return self._informer

    def add_event_handler(self, event_type: str, handler: Handler) -> None:
        """Adds a function that is called with the object of each event of a type."""
        if event_type not in self._handlers:
            raise ValueError(f"{event_type!r} is not one of {', '.join(EVENT_TYPES)}")
        with self._lock:
            self._handlers[event_type].append(handler)

    def remove_event_handler(self, event_type: str, handler: Handler) -> None:
        """Removes a function. Does nothing if it was not added."""
        with self._lock:
            handlers = self._handlers.get(event_type, [])
            if handler in handlers:
                handlers.remove(handler)

    def start(self) -> None:
        """Starts the informer and the thread of its handlers. Does nothing if it runs."""
        if self._thread is not None and self._thread.is_alive():
            return
        informers = self._shared_informers or self._open_informers()
        labels, fields = self._selectors
        informer = informers.watch(self._list_request.kind, self._list_request.namespace, labels, fields)
        self._informer = informer
        self._thread = threading.Thread(target=self._run, args=(informer,), name="SharedInformer", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stops the informer and waits for the running handler. The last state of the cache stays readable."""
        if self._informer is not None:
            self._informer.stop()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._thread = None
        own_informers, self._own_informers = self._own_informers, None
        if own_informers is not None:
            own_informers.__exit__(None, None, None)

    def _open_informers(self) -> blocking.Informers:
        host, token = self._list_request.host, self._list_request.token
        if host.startswith("http://"):
            informers = blocking.Informers(url=host, token=token)
        else:
            informers = blocking.Informers()
        informers.__enter__()
        if informers.server.rstrip("/") != host.rstrip("/"):
            server = informers.server
            informers.__exit__(None, None, None)
            raise ConfigError(f"the client's server is {host}, and kubectl's is {server}; pass informers=")
        self._own_informers = informers
        return informers

    def _run(self, informer: blocking.Informer) -> None:
        events = informer.events(timeout=CHECK_INTERVAL)
        was_doubted = False
        last_check = last_resync = time.monotonic()
        while not isinstance(informer.freshness, Stopped):
            for event in events:
                self._dispatch(event)
                # Without this condition, constant changes would prevent the checks below.
                if time.monotonic() - last_check >= CHECK_INTERVAL:
                    break
            last_check = time.monotonic()
            freshness = informer.freshness
            is_doubted = isinstance(freshness, Doubt) and not isinstance(freshness, (Starting, Stopped))
            if is_doubted and not was_doubted:
                self._call_handlers(ERROR, OutOfDate(freshness))
            was_doubted = is_doubted
            if 0 < self._resync_period <= last_check - last_resync and informer.has_synced:
                last_resync = last_check
                for obj in informer.values():
                    self._call_handlers_of(MODIFIED, obj)

    def _dispatch(self, event: Event) -> None:
        if isinstance(event, Added):
            self._call_handlers_of(ADDED, event.object)
        elif isinstance(event, Deleted):
            self._call_handlers_of(DELETED, event.object)
        else:
            self._call_handlers_of(MODIFIED, event.object)

    def _call_handlers_of(self, event_type: str, obj: Object) -> None:
        # Without a handler, the object is not decoded.
        if self._handlers[event_type]:
            self._call_handlers(event_type, self._list_request.model(obj))

    def _call_handlers(self, event_type: str, argument: Any) -> None:
        with self._lock:
            handlers = list(self._handlers[event_type])
        for handler in handlers:
            try:
                handler(argument)
            except Exception:
                logger.exception("a handler of %s failed", event_type)


class ListRequest:
    """The resource that a method of the official client lists, its server and its model."""

    def __init__(self, kind: str, namespace: Optional[str], host: str, token: Optional[str], model: Any) -> None:
        self.kind = kind
        self.namespace = namespace
        self.host = host
        self.token = token
        self._model = model

    def model(self, obj: Object) -> Any:
        """Returns an object as a model."""
        return self._model.from_dict(obj.to_dict())

    @classmethod
    def from_function(cls, list_func: Callable[..., Any], namespace: Optional[str]) -> ListRequest:
        """Reads the request of a method without sending it."""
        api = getattr(list_func, "__self__", None)
        api_client = getattr(api, "api_client", None)
        if api is None or api_client is None:
            raise TypeError("list_func must be a method of an API class, such as CoreV1Api().list_namespaced_pod")
        method = getattr(type(api)(_Recorder(api_client)), list_func.__name__)
        try:
            method(**({} if namespace is None else {"namespace": namespace}))
        except _Recorded as recorded:
            path, response = recorded.path, recorded.response
        else:
            raise TypeError(f"{list_func.__name__} sends no request")
        from kubernetes import client

        model = getattr(client, response.removesuffix("List"), None)
        if not response.endswith("List") or model is None:
            raise TypeError(f"{list_func.__name__} must return a list of models, not {response}")
        configuration = api_client.configuration
        authorization = (configuration.api_key or {}).get("authorization") or ""
        token = authorization.removeprefix("Bearer ") or getattr(configuration, "access_token", None)
        return cls(resource_name(path), namespace, configuration.host, token or None, model)


def resource_name(path: str) -> str:
    """Returns the name for kubectl of the resource at a path: `deployments.v1.apps`."""
    parts = path.strip("/").split("/")
    group, version = ("", parts[1]) if parts[0] == "api" else (parts[1], parts[2])
    return f"{parts[-1]}.{version}.{group}"


class _Recorded(Exception):
    def __init__(self, path: str, response: str) -> None:
        self.path = path
        self.response = response


class _Recorder:
    """A client that records a request instead of sending it."""

    def __init__(self, api_client: Any) -> None:
        self.configuration = api_client.configuration
        self._client = api_client

    def param_serialize(self, **request: Any) -> str:
        return str(request["resource_path"])

    def _call_with_legacy_options(self, path: str, responses: dict[str, Optional[str]], *_: Any) -> None:
        raise _Recorded(path, responses["200"] or "")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)
