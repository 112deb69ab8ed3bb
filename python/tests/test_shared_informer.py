"""The names of the official client's informer."""

import threading
import time
from typing import Any

import pytest

import steadfast_kube as steadfast
from conftest import PATIENCE, pod
from steadfast_kube.testing import Server

kubernetes = pytest.importorskip("kubernetes")

from kubernetes import client  # noqa: E402

from steadfast_kube.informer import ADDED, BOOKMARK, DELETED, ERROR, MODIFIED, OutOfDate, SharedInformer  # noqa: E402


class Seen:
    """Events in their order, for waits."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self._changed = threading.Condition()

    def handler(self, event_type: str) -> Any:
        def add(argument: Any) -> None:
            with self._changed:
                name = argument.metadata.name if event_type != ERROR else type(argument).__name__
                self.events.append((event_type, name))
                self._changed.notify_all()

        return add

    def wait(self, count: int) -> list[Any]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.events) >= count, PATIENCE), self.events
            return self.events


def api(server: Server) -> Any:
    return client.CoreV1Api(client.ApiClient(client.Configuration(host=server.url)))


def informer(server: Server, seen: Seen, **settings: Any) -> SharedInformer:
    shared = SharedInformer(list_func=api(server).list_namespaced_pod, namespace="shop", **settings)
    for event_type in (ADDED, MODIFIED, DELETED, ERROR):
        shared.add_event_handler(event_type, seen.handler(event_type))
    return shared


def test_events_and_cache_are_models(server: Server) -> None:
    server.create(pod("web-0"))
    seen = Seen()
    shared = informer(server, seen)
    assert shared.cache.list() == []
    shared.start()
    try:
        shared.synced(PATIENCE)
        cached = shared.cache.get_by_key("shop/web-0")
        assert isinstance(cached, client.V1Pod) and cached.spec.node_name == "n1"
        assert shared.cache.get(cached).metadata.uid == cached.metadata.uid
        assert shared.cache.list_keys() == ["shop/web-0"]
        server.patch("pods", "shop", "web-0", {"spec": {"nodeName": "n2"}})
        seen.wait(2)
        server.delete("pods", "shop", "web-0")
        assert seen.wait(3) == [(ADDED, "web-0"), (MODIFIED, "web-0"), (DELETED, "web-0")]
        assert shared.cache.get_by_key("shop/web-0") is None
    finally:
        shared.stop()
    assert shared.cache.list() == []
    assert not [thread for thread in threading.enumerate() if thread.name == "SharedInformer"]


def test_recreation_across_expiry_is_deletion(server: Server) -> None:
    server.create(pod("web-0"))
    seen = Seen()
    shared = informer(server, seen)
    shared.start()
    try:
        seen.wait(1)
        server.faults.cut()
        server.delete("pods", "shop", "web-0")
        server.create(pod("web-0"))
        server.faults.expire_events()
        server.faults.heal()
        events = [event for event in seen.wait(3) if event[0] != ERROR]
        while len(events) < 3:
            events = [event for event in seen.wait(len(seen.events) + 1) if event[0] != ERROR]
        assert events == [(ADDED, "web-0"), (DELETED, "web-0"), (ADDED, "web-0")]
    finally:
        shared.stop()


def test_silent_server_calls_error_handlers(server: Server) -> None:
    errors: list[Any] = []
    called = threading.Event()
    shared = SharedInformer(list_func=api(server).list_namespaced_pod, namespace="shop")

    def add(error: Any) -> None:
        errors.append(error)
        called.set()

    shared.add_event_handler(ERROR, add)
    shared.start()
    try:
        shared.synced(PATIENCE)
        server.faults.freeze()
        assert called.wait(PATIENCE)
        assert isinstance(errors[0], OutOfDate) and isinstance(errors[0].freshness, steadfast.Doubt)
    finally:
        server.faults.freeze(False)
        shared.stop()


def test_failed_handler_does_not_stop_others(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    seen = Seen()
    shared = SharedInformer(list_func=api(server).list_namespaced_pod, namespace="shop")
    shared.add_event_handler(ADDED, lambda pod: 1 / 0)
    shared.add_event_handler(ADDED, seen.handler(ADDED))
    removed = seen.handler(ADDED)
    shared.add_event_handler(ADDED, removed)
    shared.remove_event_handler(ADDED, removed)
    shared.remove_event_handler(ADDED, removed)
    shared.start()
    try:
        server.create(pod("web-0"))
        server.create(pod("web-1"))
        assert seen.wait(2) == [(ADDED, "web-0"), (ADDED, "web-1")]
    finally:
        shared.stop()
    assert any(record.exc_info and record.exc_info[0] is ZeroDivisionError for record in caplog.records)


def test_resync_repeats_objects(server: Server) -> None:
    server.create(pod("web-0"))
    seen = Seen()
    shared = informer(server, seen, resync_period=0.1)
    shared.start()
    try:
        assert seen.wait(3)[:3] == [(ADDED, "web-0"), (MODIFIED, "web-0"), (MODIFIED, "web-0")]
    finally:
        shared.stop()
    lists = server.requests("list", "streamed_list", resource="pods")
    assert len(lists) == 1


def test_constant_changes_do_not_prevent_resync(server: Server) -> None:
    server.create(pod("quiet"))
    server.create(pod("busy"))
    seen = Seen()
    resynced = threading.Event()
    shared = informer(server, seen, resync_period=0.1)
    shared.add_event_handler(MODIFIED, lambda model: resynced.set() if model.metadata.name == "quiet" else None)
    shared.start()
    deadline = time.monotonic() + PATIENCE
    try:
        changes = 0
        while not resynced.wait(0.05):
            assert time.monotonic() < deadline, f"no resync during {changes} changes"
            changes += 1
            server.patch("pods", "shop", "busy", {"spec": {"nodeName": f"n{changes}"}})
    finally:
        shared.stop()


def test_own_keys_and_selectors_are_used(server: Server) -> None:
    server.create(pod("web-0"))
    server.create(pod("db-0", app="db"))
    shared = SharedInformer(
        list_func=api(server).list_pod_for_all_namespaces, label_selector="app=web", key_func=lambda pod: pod.metadata.name
    )
    shared.start()
    try:
        shared.synced(PATIENCE)
        assert shared.cache.list_keys() == ["web-0"]
        assert shared.cache.get_by_key("web-0").metadata.namespace == "shop"
        assert shared.cache.get_by_key("shop/web-0") is None
    finally:
        shared.stop()


def test_stopped_informer_can_start_again(server: Server) -> None:
    seen = Seen()
    shared = informer(server, seen)
    for count in (1, 2):
        shared.start()
        shared.start()
        server.create(pod(f"web-{count}"))
        # The second start delivers both pods.
        seen.wait(count if count == 1 else 3)
        shared.stop()
        shared.stop()
    assert seen.events == [(ADDED, "web-1"), (ADDED, "web-1"), (ADDED, "web-2")]


def test_other_functions_are_rejected(server: Server) -> None:
    with pytest.raises(TypeError, match="method of an API class"):
        SharedInformer(list_func=lambda: None)
    with pytest.raises(TypeError, match="must return a list of models, not VersionInfo"):
        SharedInformer(list_func=client.VersionApi(api(server).api_client).get_code)
    with pytest.raises(ValueError, match="is not one of"):
        informer(server, Seen()).add_event_handler("CHANGED", print)
    informer(server, Seen()).add_event_handler(BOOKMARK, print)
