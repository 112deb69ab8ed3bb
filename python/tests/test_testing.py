"""The embedded server and its fixtures."""

import inspect
import time
from typing import Optional

import pytest

import steadfast_kube as steadfast
from conftest import PATIENCE, pod, run
from steadfast_kube import Client, Context, blocking
from steadfast_kube.testing import (
    FakeClient,
    FakeContext,
    RecordedEvent,
    RecordedWrite,
    Resource,
    Server,
    make_object,
)


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
    with pytest.raises(RuntimeError, match="closed"):
        server.url_of(0)


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


def test_fake_context_records_events_and_writes() -> None:
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"}}
    child = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web-1", "namespace": "shop"}}

    @steadfast.reconcile("deployments", owns=["replicasets"])
    async def check(deployment: steadfast.Object, context: steadfast.Context) -> steadfast.Requeue:
        sets = context.owned("replicasets")
        if not sets:
            context.event("NoReplicaSet", "none", type="Warning")
            return 30
        secret = await context.client.get("secrets", "shop/s")
        patched = await context.client.patch("deployments", context.key, {"metadata": {"annotations": {"sets": "1"}}})
        assert patched.metadata.annotations.sets == "1" and patched.kind == "Deployment"
        written = {"apiVersion": "v1", "kind": "A", "metadata": {"name": "a"}, "data": secret.data}
        assert (await context.client.create(written)).key == "a"
        await context.client.delete("pods", (context.namespace, context.name))
        await context.wait_for_write(patched)
        return None

    async def main() -> None:
        context = FakeContext(deployment, owned={"replicasets": []})
        assert await check(deployment, context) == 30
        assert context.events == [RecordedEvent("NoReplicaSet", "none", "Warning")] and context.writes == []

        secret = {"kind": "Secret", "metadata": {"name": "s", "namespace": "shop"}, "data": {"x": "eA=="}}
        objects = {"secrets": [secret], "deployments": [deployment]}
        context = FakeContext(make_object(deployment), owned={"replicasets": [child]}, objects=objects)
        assert await check(deployment, context) is None
        assert context.writes == [
            RecordedWrite("patch", "deployments", "shop/web", {"metadata": {"annotations": {"sets": "1"}}}),
            RecordedWrite(
                "create", "A", "a", {"apiVersion": "v1", "kind": "A", "metadata": {"name": "a"}, "data": {"x": "eA=="}}
            ),
            RecordedWrite("delete", "pods", "shop/web"),
        ]
        assert [obj.key for obj in await context.client.list("secrets")] == ["shop/s"]
        with pytest.raises(steadfast.NotFound, match='secrets "shop/x" not found'):
            await context.client.get("secrets", "shop/x")
        with pytest.raises(KeyError, match="no owned 'pods'"):
            context.owned("pods")
        with pytest.raises(RuntimeError, match="no informers"):
            context.informers

    run(main())


def test_fake_client_reads_and_rejects_like_the_client(server: Server) -> None:
    in_default = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}}
    in_shop = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b", "namespace": "shop"}}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    for obj in (in_default, in_shop):
        server.create(obj)
    nameless = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            fake = FakeClient({"configmaps": [in_default, in_shop], "namespaces": [namespace]})
            for client in (informers.client, fake):
                # A key without a namespace is in the default namespace, or cluster-scoped.
                assert (await client.get("configmaps", "a")).key == "default/a"
                assert (await client.get("configmaps", (None, "a"))).key == "default/a"
                assert (await client.get("namespaces", "default")).key == "default"
                patched = await client.patch("configmaps", "a", {"data": {"x": "1"}})
                assert (patched.key, patched.data.x) == ("default/a", "1")
                with pytest.raises(steadfast.NotFound):
                    await client.get("configmaps", "b")
                for call in (client.get, client.delete):
                    with pytest.raises(ValueError, match="more than one '/'"):
                        await call("configmaps", "a/b/c")
                with pytest.raises(ValueError, match="more than one '/'"):
                    await client.patch("configmaps", "a/b/c", {})
                with pytest.raises(ValueError, match="no apiVersion or no kind"):
                    await client.create({"kind": "ConfigMap", "metadata": {"name": "c"}})
                with pytest.raises(ValueError, match="no metadata.name"):
                    await client.replace(nameless)
                with pytest.raises(ValueError, match="no metadata.name"):
                    await client.apply(nameless, field_manager="test")
            assert [write.verb for write in fake.writes] == ["patch"]
        fake = FakeClient({"configmaps": [in_shop]}, default_namespace="shop")
        assert (await fake.get("configmaps", "b")).key == "shop/b"

    run(main())


def test_fake_context_of_deleted_object() -> None:
    @steadfast.reconcile("configmaps", owns=["pods"], deleted=True)
    async def forget(config: Optional[steadfast.Object], context: Context) -> None:
        assert config is None and context.owned("pods") == []
        context.event("Deleted")
        await context.client.delete("secrets", context.key)

    async def main() -> None:
        for key in ("shop/a", ("shop", "a")):
            context = FakeContext(None, key=key, owned={"pods": [pod("web-0")]})
            assert (context.key, context.namespace, context.name) == ("shop/a", "shop", "a")
            await forget(None, context)
            # An event needs its object.
            assert context.events == [] and context.writes == [RecordedWrite("delete", "secrets", "shop/a")]
            with pytest.raises(KeyError, match="no owned 'services'"):
                context.owned("services")

    run(main())
    with pytest.raises(TypeError, match='FakeContext\\(None, key="shop/a"\\)'):
        FakeContext(None)
    with pytest.raises(TypeError, match="needs an object, or the key of a deleted one"):
        FakeContext(pod("web-0"), key="shop/a")


def test_fake_client_implements_the_client() -> None:
    methods = [name for name in vars(Client) if not name.startswith("_")]
    for name in methods:
        assert inspect.signature(getattr(FakeClient, name)) == inspect.signature(getattr(Client, name))
    assert {name for name in vars(Context) if not name.startswith("_")} <= set(vars(FakeContext))


def test_object_is_made_from_json_or_a_mapping() -> None:
    text = '{"kind": "Pod", "metadata": {"name": "a"}, "spec": {"nodeName": "n1"}}'
    made = make_object(text)
    assert made == make_object(text.encode()) == make_object(made) == make_object(made.to_dict())
    assert made.key == "a" and made.read("spec.nodeName") == "n1"
    assert make_object({"metadata": made.metadata, "spec": made.spec}).spec == made.spec
    with pytest.raises(ValueError, match="not an object of Kubernetes"):
        make_object("[")
