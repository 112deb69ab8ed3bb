"""Reads of a cache."""

import asyncio
import re
import warnings

import pytest

import steadfast_kube as steadfast
from conftest import PATIENCE, eventually, pod, run, running
from steadfast_kube import blocking
from steadfast_kube.testing import Server


def test_synced_cache_is_a_mapping(server: Server) -> None:
    for name in ("web-0", "web-1"):
        server.create(pod(name))
    server.create(pod("db-0", app="db"))

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            pods = informers.watch("pods", namespace="shop", labels={"app": "web"})
            await pods.synced(timeout=PATIENCE)
            assert list(pods) == ["shop/web-0", "shop/web-1"]
            assert len(pods) == 2
            assert "shop/web-0" in pods and ("shop", "web-0") in pods and "web-0" in pods
            assert "shop/db-0" not in pods
            assert pods["shop/web-0"] == pods["shop", "web-0"] == pods["web-0"]
            assert pods.get("shop/web-7") is None
            with pytest.raises(KeyError):
                pods["shop/web-7"]
            assert [found.name for found in pods.values()] == ["web-0", "web-1"]
            assert dict(pods.items()).keys() == set(pods)
            assert isinstance(pods.freshness, steadfast.Fresh)
            assert pods.freshness.age >= 0 and pods.freshness.version is not None
            assert pods.memory > 0

    run(main())


def test_cluster_scoped_objects_have_plain_keys(server: Server) -> None:
    server.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            nodes = informers.watch("nodes")
            await nodes.synced(timeout=PATIENCE)
            assert list(nodes) == ["n1"]
            assert nodes["n1"] == nodes[None, "n1"]
            assert nodes["n1"].namespace is None

    run(main())


@pytest.mark.parametrize(
    "name", ["deployments", "deployment", "Deployment", "deploy", "deployments.apps", "deployments.v1.apps"]
)
def test_every_name_of_kubectl_works(server: Server, name: str) -> None:
    server.create(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{"name": "main", "image": "web:1"}]},
                },
            },
        }
    )

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            found = informers.watch(name)
            await found.synced(timeout=PATIENCE)
            web = found["shop/web"]
            assert (web.apiVersion, web.kind) == ("apps/v1", "Deployment")

    run(main())


def test_custom_resource_needs_no_code(server: Server) -> None:
    server.create(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "shops.example.com"},
            "spec": {
                "group": "example.com",
                "names": {"plural": "shops", "singular": "shop", "kind": "Shop"},
                "scope": "Namespaced",
                "versions": [
                    {
                        "name": "v1",
                        "served": True,
                        "storage": True,
                        "schema": {
                            "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                        },
                    }
                ],
            },
        }
    )
    server.create(
        {
            "apiVersion": "example.com/v1",
            "kind": "Shop",
            "metadata": {"name": "a", "namespace": "shop"},
            "spec": {"size": 3, "open": True, "ratio": 0.5},
        }
    )

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            shops = informers.watch("shops", index={"size": "spec.size", "open": "spec.open"})
            await shops.synced(timeout=PATIENCE)
            assert shops["shop/a"].spec.to_dict() == {"size": 3, "open": True, "ratio": 0.5}
            assert [shop.name for shop in shops.by("size", 3)] == ["a"]
            assert [shop.name for shop in shops.by("open", True)] == ["a"]

    run(main())


def test_index_follows_paths_and_changes(server: Server) -> None:
    server.create(pod("web-0", node="n1"))
    server.create(pod("web-1", node="n2"))

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            pods = informers.watch(
                "pods",
                index={
                    "node": "spec.nodeName",
                    "image": "spec.containers[*].image",
                    "app": ("metadata", "labels", "app"),
                },
            )
            await pods.synced(timeout=PATIENCE)
            assert [found.key for found in pods.by("node", "n2")] == ["shop/web-1"]
            assert pods.by("node", "n3") == []
            assert pods.index_counts("image") == {"web:1": 2}
            assert pods.index_counts("app") == {"web": 2}
            with pytest.raises(KeyError, match="its indexes: node, image, app"):
                pods.by("zone", "a")
            server.delete("pods", "shop", "web-1")
            await pods.until(lambda pods: len(pods) == 1, PATIENCE)
            assert pods.by("node", "n2") == []

    run(main())


@pytest.mark.parametrize("path", ["", "spec..nodeName", "spec.", "spec[x]", "[*].name"])
def test_invalid_index_path_is_rejected(server: Server, path: str) -> None:
    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            with pytest.raises(ValueError, match="path"):
                informers.watch("pods", index={"x": path})

    run(main())


@pytest.mark.parametrize(
    ("path", "reason"), [("spec.containers[*].", "ends with a dot"), ("spec.containers[*]image", "lacks a dot")]
)
def test_index_path_with_misplaced_dot(server: Server, path: str, reason: str) -> None:
    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            with pytest.raises(ValueError, match=reason):
                informers.watch("pods", index={"x": path})

    run(main())


def test_selectors_restrict_the_cache(server: Server) -> None:
    server.create(pod("web-0", node="n1"))
    server.create(pod("web-1", node="n2", app="web", tier="front"))

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            on_node = informers.watch("pods", fields={"spec.nodeName": "n1"})
            pods = informers.watch("pods", labels="app in (web,api)")
            await informers.synced(timeout=PATIENCE)
            assert list(on_node) == ["shop/web-0"]
            assert [found.name for found in pods.select({"tier": "front"})] == ["web-1"]
            assert pods.select("tier", namespace="default") == []
            with pytest.raises(ValueError):
                informers.watch("pods", labels="app in (")

    run(main())


def test_reads_before_sync_raise(server: Server) -> None:
    server.faults.refuse()

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            pods = informers.watch("pods")
            for read in (lambda: pods["shop/web-0"], lambda: len(pods), lambda: list(pods), lambda: "a/b" in pods):
                with pytest.raises(steadfast.NotSynced):
                    read()
            assert not pods.has_synced

    run(main())


def test_not_synced_states_the_cause(server: Server) -> None:
    server.faults.respond(403, "list", "streamed_list", resource="pods")

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            pods = informers.watch("pods")
            with pytest.raises(steadfast.NotSynced, match="forbidden") as raised:
                await pods.synced(timeout=2)
            freshness = raised.value.freshness
            assert isinstance(freshness, (steadfast.Failed, steadfast.Starting))
            assert freshness.attempts > 0
            server.faults.respond_normally()
            await pods.synced(timeout=PATIENCE)

    run(main())


def test_unreachable_server_is_a_cause(server: Server) -> None:
    server.faults.refuse()

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            pods = informers.watch("pods")
            with pytest.raises(steadfast.NotSynced, match="refused") as raised:
                await pods.synced(timeout=1)
            assert not isinstance(raised.value, steadfast.UnknownKind)
            server.faults.heal()
            await pods.synced(timeout=PATIENCE)

    run(main())


def test_unknown_kind_suggests_similar_names(server: Server) -> None:
    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            pods = informers.watch("podz")
            with pytest.raises(steadfast.UnknownKind, match="did you mean pods"):
                await pods.synced(timeout=PATIENCE)
            assert isinstance(pods.freshness, steadfast.Failed)
            with pytest.raises(steadfast.UnknownKind, match="cluster-scoped"):
                await informers.watch("nodes", namespace="shop").synced(timeout=PATIENCE)

    run(main())


def test_undecodable_object_raises_unknown(server: Server) -> None:
    server.create(pod("web-0"))
    server.create(pod("web-1"))
    server.faults.undecodable("shop", "web-0")

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            pods = informers.watch("pods")
            await pods.synced(timeout=PATIENCE)
            # An encoded object may be found undecodable only when it is read.
            with pytest.raises(steadfast.Unknown) as raised:
                pods["shop/web-0"].to_dict()
            assert raised.value.key == "shop/web-0"
            await pods.until(
                lambda pods: isinstance(pods.freshness, steadfast.Fresh) and "shop/web-0" in pods.freshness.tainted,
                PATIENCE,
            )
            with pytest.raises(steadfast.Unknown):
                pods["shop/web-0"]
            assert list(pods) == ["shop/web-0", "shop/web-1"]
            assert "shop/web-0" in pods
            assert [found.name for found in pods.values()] == ["web-1"]
            server.faults.undecodable("shop", "web-0", False)
            server.patch("pods", "shop", "web-0", {"metadata": {"labels": {"state": "good"}}})
            await pods.until(lambda pods: [found.name for found in pods.values()] == ["web-0", "web-1"], PATIENCE)
            assert pods["shop/web-0"].metadata.labels.state == "good"

    run(main())


def test_equal_requests_share_one_watch(server: Server) -> None:
    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            one, other = informers.watch("pods"), informers.watch("po", index={"node": "spec.nodeName"})
            await informers.synced(timeout=PATIENCE)
            server.create(pod("web-0"))
            await one.until(lambda pods: len(pods) == 1, PATIENCE)
            await other.until(lambda pods: pods.by("node", "n1"), PATIENCE)
            assert len(server.requests("streamed_list", "list", resource="pods")) == 1

    run(main())


def test_two_clusters_are_independent(server: Server, steadfast_server_factory) -> None:
    other = steadfast_server_factory()
    server.create(pod("web-0"))

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as here, steadfast.Informers(url=other.url) as there:
            pods, others = here.watch("pods"), there.watch("pods")
            await asyncio.gather(pods.synced(PATIENCE), others.synced(PATIENCE))
            assert (len(pods), len(others)) == (1, 0)
            assert here.server == server.url and there.server == other.url

    run(main())


def test_kubeconfig_and_context_select_the_server(server: Server, tmp_path) -> None:
    file = tmp_path / "config"
    file.write_text(server.kubeconfig)

    async def main() -> None:
        async with steadfast.Informers(kubeconfig=file) as informers:
            await informers.watch("pods").synced(timeout=PATIENCE)
            assert informers.default_namespace == "default"
        with pytest.raises(steadfast.ConfigError, match="nope"):
            async with steadfast.Informers(kubeconfig=file, context="nope"):
                pass
        with pytest.raises(ValueError, match="url cannot be combined"):
            steadfast.Informers(url=server.url, context="a")

    run(main())


def test_tls_and_tokens_of_a_kubeconfig(steadfast_server_factory, tmp_path) -> None:
    server = steadfast_server_factory(tls=True, tokens=("hunter2",))
    file = tmp_path / "config"
    file.write_text(server.kubeconfig)

    async def main() -> None:
        async with steadfast.Informers(kubeconfig=file) as informers:
            await informers.watch("namespaces").synced(timeout=PATIENCE)

    run(main())


def test_protobuf_gives_equal_objects(steadfast_server_factory) -> None:
    server = steadfast_server_factory(protobuf=True)
    web = pod("web-0", namespace="default")
    # A real server sets this default, and protobuf cannot leave it out.
    web["spec"]["containers"][0]["resources"] = {}
    server.create(web)

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers, steadfast.Informers(url=server.url) as others:
            pods, others_pods = informers.watch("pods"), others.watch("pods", protobuf=True)
            await asyncio.gather(pods.synced(PATIENCE), others_pods.synced(PATIENCE))
            assert pods["default/web-0"] == others_pods["default/web-0"]
            assert hash(pods["default/web-0"]) == hash(others_pods["default/web-0"])

    run(main())


def test_selector_values_must_be_strings(server: Server) -> None:
    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            with pytest.raises(TypeError, match="the value of 'a' in a selector must be a string, not 1"):
                informers.watch("pods", labels={"a": 1})  # type: ignore[dict-item]

    run(main())


def test_asynchronous_condition_is_rejected(server: Server) -> None:
    async def condition(pods: object) -> bool:
        return True

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            pods = informers.watch("pods")
            with pytest.raises(TypeError, match="must not be an `async def`"):
                await pods.until(condition, PATIENCE)
            with pytest.raises(TypeError, match="must not be an `async def`"):
                await pods.until(lambda pods: condition(pods), PATIENCE)

    run(main())
    with blocking.Informers(url=server.url) as informers:
        with pytest.raises(TypeError, match="must not be an `async def`"):
            informers.watch("pods").until(condition, PATIENCE)


def test_wrong_kind_of_block_names_the_other(server: Server) -> None:
    with pytest.raises(TypeError, match="blocking.Informers"):
        with steadfast.Informers(url=server.url):  # type: ignore[attr-defined]
            pass

    async def main() -> None:
        with pytest.raises(TypeError, match="use `with` for blocking.Informers"):
            async with blocking.Informers(url=server.url):  # type: ignore[attr-defined]
                pass

    run(main())


def test_blocking_informers_warn_in_an_event_loop(server: Server) -> None:
    def read() -> list[str]:
        with blocking.Informers(url=server.url) as informers:
            pods = informers.watch("pods")
            pods.synced(timeout=PATIENCE)
            return list(pods)

    async def main() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert await asyncio.to_thread(read) == []
        with pytest.warns(RuntimeWarning, match="blocks the event loop") as caught:
            assert read() == []
        assert len(caught) == 1 and caught[0].filename == __file__

    run(main())


@pytest.mark.parametrize("was_synced", [False, True])
def test_waits_after_the_block_raise_stopped(server: Server, was_synced: bool) -> None:
    async def main() -> None:
        if not was_synced:
            server.faults.cut()
        async with steadfast.Informers(url=server.url) as informers:
            pods = informers.watch("pods")
            if was_synced:
                await pods.synced(timeout=PATIENCE)
        with pytest.raises(steadfast.StoppedError, match="pods in all namespaces was stopped"):
            await pods.synced(timeout=PATIENCE)
        with pytest.raises(steadfast.StoppedError):
            await asyncio.to_thread(wait_in_thread)
        with pytest.raises(steadfast.StoppedError):
            await pods.until(lambda pods: False, PATIENCE)
        with pytest.raises(steadfast.StoppedError):
            await pods.wait_for("999999", PATIENCE)
        with pytest.raises(steadfast.StoppedError):
            informers.watch("pods")

    def wait_in_thread() -> None:
        with blocking.Informers(url=server.url) as informers:
            pods = informers.watch("pods")
        pods.synced(timeout=PATIENCE)

    run(main())


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("$.spec.nodeName", "write spec.nodeName"),
        ("{.spec.nodeName}", "write spec.nodeName"),
        (".spec.nodeName", "write spec.nodeName"),
        ("spec/nodeName", "write spec.nodeName"),
        ("/spec/nodeName", "write spec.nodeName"),
        ("$.spec.containers[*].image", "write spec.containers[*].image"),
        ("spec.containers[0].image", "a position, which is not supported"),
        ("spec.containers[-1].image", "a position, which is not supported"),
    ],
)
def test_index_path_in_other_syntax_is_rejected(server: Server, path: str, hint: str) -> None:
    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            with pytest.raises(ValueError, match=re.escape(hint)):
                informers.watch("pods", index={"node": path})

    run(main())


def test_index_that_is_no_mapping_is_rejected(server: Server) -> None:
    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            for index in (["spec.nodeName"], "spec.nodeName"):
                with pytest.raises(TypeError, match="index is a mapping from names to paths"):
                    informers.watch("pods", index=index)  # type: ignore[arg-type]

    run(main())


@pytest.mark.parametrize("namespace", ["a/b", "Shop", "a.b", "-a", "a" * 64, "shop "])
def test_invalid_namespace_is_rejected(server: Server, namespace: str) -> None:
    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            with pytest.raises(ValueError, match="is not a valid name of a namespace"):
                informers.watch("pods", namespace)

    run(main())
    with blocking.Informers(url=server.url) as informers, pytest.raises(ValueError, match="is not a valid name"):
        informers.watch("pods", namespace)


def test_missing_kind_is_logged_once(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    @steadfast.reconcile("podz")
    async def reconcile(obj: object, context: object) -> None:
        raise AssertionError("the kind does not exist")

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            async with running(informers, reconcile):
                await eventually(lambda: [r for r in caplog.records if r.levelname == "WARNING" and "podz" in r.message])
            with pytest.raises(steadfast.UnknownKind) as raised:
                await informers.watch("podz").synced(timeout=PATIENCE)
            warnings = [r.message for r in caplog.records if r.levelname == "WARNING"]
            assert warnings[0].startswith(str(raised.value)) and "did you mean" in warnings[0]

    run(main())


def test_long_selector_is_abbreviated_in_messages(server: Server) -> None:
    labels = f"app in ({','.join(f'value-{number}' for number in range(20_000))})"

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            pods = informers.watch("pods", labels=labels)
            with pytest.raises(steadfast.NotSynced) as raised:
                await pods.synced(timeout=1)
            assert isinstance(raised.value.freshness, steadfast.Failed)
            assert "app in (value-0," in pods.name
            assert len(pods.name) < 300 and len(str(raised.value)) < 1000

    run(main())
