"""Freshness under faults of the server and the network."""

import asyncio

import pytest

import steadfast_kube as steadfast
from conftest import PATIENCE, next_event, pod, run, state
from steadfast_kube.testing import Server


def test_cut_is_reported_and_healed(server: Server) -> None:
    server.create(pod("web-0"))

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            pods = informers.watch("pods")
            await pods.synced(timeout=PATIENCE)
            lists = len(server.requests("list", "streamed_list", resource="pods"))
            server.faults.cut()
            doubt = await state(pods, "resuming", "suspect", "stale")
            assert isinstance(doubt, steadfast.Doubt)
            assert doubt.reason and doubt.since.tzinfo is not None and doubt.elapsed >= 0
            # The cache stays readable.
            assert pods["shop/web-0"].spec.nodeName == "n1"
            server.create(pod("web-1"))
            server.faults.heal()
            await state(pods, "fresh")
            assert len(pods) == 2
            assert len(server.requests("list", "streamed_list", resource="pods")) == lists, "resumed without a list"

    run(main())


@pytest.mark.parametrize("fault", ["freeze", "black_hole"])
def test_silent_server_is_reported(server: Server, fault: str) -> None:
    server.create(pod("web-0"))

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            pods = informers.watch("pods")
            await pods.synced(timeout=PATIENCE)
            await state(pods, "fresh")
            getattr(server.faults, fault)()
            doubt = await state(pods, "suspect", "stale", "resuming")
            assert isinstance(doubt, steadfast.Doubt) and doubt.reason
            server.create(pod("web-1"))
            server.faults.freeze(False)
            server.faults.heal()
            await state(pods, "fresh")
            await pods.until(lambda pods: len(pods) == 2, PATIENCE)

    run(main())


def test_expired_watch_relists_once(server: Server) -> None:
    server.create(pod("web-0"))

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            pods = informers.watch("pods")
            await pods.synced(timeout=PATIENCE)
            lists = len(server.requests("list", "streamed_list", resource="pods"))
            server.faults.cut()
            await state(pods, "resuming", "stale", "suspect")
            server.create(pod("web-1"))
            server.compact()
            server.faults.expire_events()
            server.faults.heal()
            await pods.until(lambda pods: len(pods) == 2, PATIENCE)
            assert len(server.requests("list", "streamed_list", resource="pods")) == lists + 1

    run(main())


def test_stopped_informers_are_stopped(server: Server) -> None:
    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            pods = informers.watch("pods")
            await pods.synced(timeout=PATIENCE)
            waiting = asyncio.ensure_future(pods.until(lambda pods: len(pods) == 7, PATIENCE))
            await asyncio.sleep(0)
            pods.stop()
            with pytest.raises(steadfast.StoppedError, match="stopped"):
                await waiting
        assert isinstance(pods.freshness, steadfast.Stopped)
        assert str(pods.freshness).startswith("stopped for")

    run(main())


def test_failing_server_gets_few_requests(server: Server) -> None:
    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            other = informers.watch("configmaps")
            await other.synced(timeout=PATIENCE)
            server.faults.respond(500, resource="pods")
            pods = informers.watch("pods")
            with pytest.raises(steadfast.NotSynced):
                await pods.synced(timeout=3)
            # The official client sends 2,367 requests in this time.
            assert 0 < len(server.requests(resource="pods")) <= 20
            assert other.freshness.is_fresh, "another resource is not affected"

    run(main())


def test_restored_history_starts_again(server: Server) -> None:
    server.create(pod("web-0"))
    revision = server.revision

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            pods = informers.watch("pods")
            events = pods.events()
            assert (await next_event(events)).key == "shop/web-0"
            server.create(pod("web-1"))
            assert (await next_event(events)).key == "shop/web-1"
            server.faults.restore(revision)
            event = await next_event(events)
            assert isinstance(event, steadfast.Deleted) and event.key == "shop/web-1"
            assert event.certainty == "inferred"
            await pods.until(lambda pods: list(pods) == ["shop/web-0"], PATIENCE)

    run(main())


def test_own_write_is_awaited(server: Server) -> None:
    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            pods, web = informers.watch("pods"), informers.watch("pods", labels={"app": "web"})
            await informers.synced(timeout=PATIENCE)
            written = server.create(pod("web-0"))
            await informers.wait_for_write(written)
            assert "shop/web-0" in pods and "shop/web-0" in web
            # No event of this write reaches `web`.
            written = server.create(pod("db-0", app="db"))
            await informers.wait_for_write(written)
            assert "shop/db-0" in pods and "shop/db-0" not in web
            with pytest.raises(ValueError, match="no resourceVersion"):
                await informers.wait_for_write(pod("web-7"))

    run(main())


def test_unseen_version_is_not_reached(server: Server) -> None:
    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            pods = informers.watch("pods")
            await pods.synced(timeout=PATIENCE)
            # Before the write, so that no response can contain it.
            server.faults.freeze()
            written = server.create(pod("web-0"))
            with pytest.raises(steadfast.NotReached) as raised:
                await pods.wait_for(written["metadata"]["resourceVersion"], timeout=0.2)
            assert isinstance(raised.value, TimeoutError)
            assert isinstance(raised.value.freshness, steadfast.Freshness)
            with pytest.raises(steadfast.NotReached, match="did not hold"):
                await pods.until(lambda pods: len(pods) == 1, timeout=0.2)

    run(main())
