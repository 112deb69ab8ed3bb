"""The embedded server and its fixtures."""

import time

import pytest

import steadfast_kube as steadfast
from conftest import PATIENCE, pod
from steadfast_kube import blocking
from steadfast_kube.testing import Resource, Server


def test_writes_return_the_stored_object(server: Server) -> None:
    created = server.create(pod("web-0"))
    assert created["metadata"]["uid"]
    assert server.get("pods", "shop", "web-0") == created
    patched = server.patch("pods", "shop", "web-0", {"metadata": {"labels": {"a": "b"}}})
    assert patched["metadata"]["labels"]["a"] == "b"
    patched["metadata"]["labels"]["a"] = "c"
    assert server.replace(patched)["metadata"]["labels"]["a"] == "c"
    server.delete("pods", "shop", "web-0")
    with pytest.raises(ValueError, match="not found"):
        server.get("pods", "shop", "web-0")


def test_cached_object_can_be_written(server: Server) -> None:
    server.create(pod("web-0"))
    with blocking.Informers(url=server.url) as informers:
        pods = informers.watch("pods")
        pods.synced(timeout=PATIENCE)
        assert server.replace(pods["shop/web-0"])["metadata"]["name"] == "web-0"


def test_declared_resource_is_served() -> None:
    with Server(resources=(Resource("example.com", "v1", "Shop", "shops"),)) as server:
        server.create({"apiVersion": "example.com/v1", "kind": "Shop", "metadata": {"name": "a", "namespace": "default"}})
        with blocking.Informers(url=server.url) as informers:
            shops = informers.watch("Shop")
            shops.synced(timeout=PATIENCE)
            assert list(shops) == ["default/a"]


def test_requests_are_recorded(server: Server) -> None:
    with blocking.Informers(url=server.url) as informers:
        informers.watch("pods").synced(timeout=PATIENCE)
        # The watch follows the list.
        while server.open_watches() == 0:
            time.sleep(0.01)
    request = server.requests("list", "streamed_list", resource="pods")[0]
    assert request.path == "/api/v1/pods" and request.at >= 0
    assert server.requests("delete") == []


def test_churn_changes_objects_in_turn(server: Server) -> None:
    for number in range(3):
        server.create(pod(f"web-{number}"))
    server.delete("pods", "shop", "web-2")
    revision = server.revision
    assert server.churn("pods", 5) == 5
    assert server.revision == revision + 5
    values = [server.get("pods", "shop", f"web-{number}")["metadata"]["annotations"] for number in range(2)]
    assert values == [{"steadfast-kube/churn": "4"}, {"steadfast-kube/churn": "3"}]
    start = time.monotonic()
    server.churn("pods", 21, rate=100)
    assert time.monotonic() - start >= 0.19
    with pytest.raises(ValueError, match="no configmaps to change"):
        server.churn("configmaps", 1)


def test_forgotten_history_expires_watches(server: Server) -> None:
    server.create(pod("web-0"))
    with blocking.Informers(url=server.url) as informers:
        pods = informers.watch("pods")
        pods.synced(timeout=PATIENCE)
        server.faults.cut()
        server.churn("pods", 10)
        server.delete("pods", "shop", "web-0")
        server.forget_history()
        server.faults.heal()
        pods.until(lambda pods: len(pods) == 0, PATIENCE)
    # The resumed watch received 410, so that the informer listed again.
    assert len(server.requests("list", "streamed_list", resource="pods")) == 2


def test_connections_are_counted(server: Server) -> None:
    assert server.connections == 0
    with blocking.Informers(url=server.url) as informers:
        informers.watch("pods").synced(timeout=PATIENCE)
    assert server.connections >= 1


def test_closed_server_rejects_calls(server: Server) -> None:
    server.close()
    server.close()
    with pytest.raises(RuntimeError, match="closed"):
        server.create(pod("web-0"))


def test_invalid_arguments_are_named(server: Server) -> None:
    with pytest.raises(ValueError, match="no replica 7"):
        server.url_of(7)
    with pytest.raises(ValueError, match="'frob' is not one of|\"frob\" is not one of"):
        server.faults.respond(500, "frob")
    with pytest.raises(TypeError, match="dictionaries, lists and scalars"):
        server.create(object())


def test_replicas_have_separate_faults(steadfast_server_factory) -> None:
    server = steadfast_server_factory(replicas=2)
    server.faults.of(1).refuse()
    with blocking.Informers(url=server.url_of(0)) as informers:
        informers.watch("pods").synced(timeout=PATIENCE)
    with blocking.Informers(url=server.url_of(1)) as informers, pytest.raises(steadfast.NotSynced):
        informers.watch("pods").synced(timeout=0.5)
