"""Reads and writes at the server."""

import asyncio

import pytest

import steadfast_kube as steadfast
from conftest import PATIENCE, config_map, pod, run
from steadfast_kube.testing import Resource, Server


def test_object_is_written_and_read(server: Server) -> None:
    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            client = informers.client
            created = await client.create(config_map("a", x="1"))
            assert created.uid and created.data.x == "1"
            assert await client.get("cm", "shop/a") == created
            replaced = await client.replace({**created.to_dict(), "data": {"x": "2"}})
            assert int(replaced.resource_version) > int(created.resource_version)
            patched = await client.patch("configmaps", ("shop", "a"), {"data": {"y": "3"}})
            assert patched.data.to_dict() == {"x": "2", "y": "3"}
            assert [found.key for found in await client.list("ConfigMap", "shop")] == ["shop/a"]
            assert (await client.list("ConfigMap"))[0].kind == "ConfigMap"
            assert await client.list("cm", labels={"app": "web"}) == []
            await client.delete("configmaps", "shop/a", uid=created.uid)
            with pytest.raises(steadfast.NotFound) as raised:
                await client.get("cm", "shop/a")
            assert raised.value.code == 404 and raised.value.reason == "NotFound"

    run(main())


def test_cached_object_is_written_back(server: Server) -> None:
    server.create(pod("web-0"))

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            pods = informers.watch("pods")
            await pods.synced(timeout=PATIENCE)
            # A change that contains a part of a cached object.
            labels = {"copied": pods["shop/web-0"].metadata.labels.app}
            changed = await informers.client.patch("pods", "shop/web-0", {"metadata": {"labels": labels}})
            await informers.wait_for_write(changed)
            assert pods["shop/web-0"] == changed

    run(main())


def test_outdated_replacement_is_conflict(server: Server) -> None:
    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            created = await informers.client.create(config_map("a"))
            server.patch("configmaps", "shop", "a", {"data": {"x": "1"}})
            with pytest.raises(steadfast.Conflict):
                await informers.client.replace(created)
            with pytest.raises(steadfast.Conflict):
                await informers.client.delete("cm", "shop/a", uid="another")

    run(main())


def test_json_patch_and_status_are_sent(server: Server) -> None:
    server.create(pod("web-0"))

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            client = informers.client
            operations = [{"op": "add", "path": "/metadata/labels/tier", "value": "front"}]
            assert (await client.patch("pods", "shop/web-0", operations, type="json")).metadata.labels.tier == "front"
            status = {"status": {"phase": "Failed"}}
            assert (await client.patch("pods", "shop/web-0", status, subresource="status")).status.phase == "Failed"

    run(main())


def test_custom_resource_is_written() -> None:
    with Server(resources=(Resource("example.com", "v1", "Shop", "shops"),)) as server:

        async def main() -> None:
            async with steadfast.Informers(url=server.url) as informers:
                shop = {"apiVersion": "example.com/v1", "kind": "Shop", "metadata": {"name": "a"}}
                assert (await informers.client.create(shop)).key == "default/a"

        run(main())


def test_unknown_kind_names_similar_ones(server: Server) -> None:
    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            with pytest.raises(steadfast.UnknownKind, match="podz"):
                await informers.client.get("podz", "shop/web-0")
            with pytest.raises(ValueError, match="no apiVersion"):
                await informers.client.create({"metadata": {"name": "a"}})

    run(main())


def test_rejected_request_has_code_and_reason(server: Server) -> None:
    server.faults.respond(403, "create", resource="configmaps")

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            with pytest.raises(steadfast.ApiError) as raised:
                await informers.client.create(config_map("a"))
            assert raised.value.code == 403 and not isinstance(raised.value, steadfast.NotFound)

    run(main())


def test_unreachable_server_fails_request(server: Server) -> None:
    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            await informers.client.list("pods")
            server.faults.cut()
            with pytest.raises(steadfast.RequestFailed, match="GET /api/v1/namespaces/shop/pods/web-0"):
                await informers.client.get("pods", "shop/web-0")

    run(main())


def test_cancelled_request_frees_its_caller(server: Server) -> None:
    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            await informers.client.list("pods")
            server.faults.freeze()
            request = asyncio.ensure_future(informers.client.get("pods", "shop/web-0"))
            await asyncio.sleep(0)
            request.cancel()
            with pytest.raises(asyncio.CancelledError):
                await request
            server.faults.freeze(False)

    run(main())


def test_any_path_can_be_requested(server: Server) -> None:
    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            version = await informers.client.request("GET", "/version")
            assert version["major"] == "1"
            listed = await informers.client.request("GET", "/api/v1/pods", query={"limit": "1"})
            assert listed["items"] == []

    run(main())
