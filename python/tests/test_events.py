"""Event streams."""

import asyncio
import logging
import time

import pytest

import steadfast_kube as steadfast
from conftest import PATIENCE, next_event, pod, run, until_waiting
from steadfast_kube.testing import Server


def test_stream_starts_with_cached_objects(server: Server) -> None:
    server.create(pod("web-0"))

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            pods = informers.watch("pods")
            # The first stream is read before the wait for the sync, the second one after it.
            for events in (pods.events(), pods.events()):
                event = await next_event(events)
                assert event == steadfast.Added(pods["shop/web-0"], initial=True)
                await pods.synced(timeout=PATIENCE)

    run(main())


def test_events_match_by_class(server: Server) -> None:
    async def main() -> list[str]:
        seen = []
        async with steadfast.Informers(url=server.url) as informers:
            pods = informers.watch("pods", namespace="shop")
            await pods.synced(timeout=PATIENCE)
            events = pods.events()
            server.create(pod("web-0"))
            async for event in events:
                match event:
                    case steadfast.Added(object=added, initial=False):
                        seen.append(f"+ {added.name}")
                        server.patch("pods", "shop", "web-0", {"spec": {"nodeName": "n2"}})
                    case steadfast.Updated(old=old, new=new):
                        seen.append(f"~ {old.spec.nodeName} {new.spec.nodeName}")
                        server.delete("pods", "shop", "web-0")
                    case steadfast.Deleted(last=last, certainty="observed", reason="deleted", version=version):
                        assert int(version) > int(last.resource_version)
                        seen.append(f"- {last.name}")
                        break
            assert event.key == "shop/web-0" and event.object == event.last
        return seen

    assert run(main()) == ["+ web-0", "~ n1 n2", "- web-0"]


def test_recreation_across_expiry_is_exact(server: Server) -> None:
    old = server.create(pod("web-0"))

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            pods = informers.watch("pods")
            events = pods.events()
            await next_event(events)
            server.faults.cut()
            server.delete("pods", "shop", "web-0")
            new = server.create(pod("web-0", node="n2"))
            server.create(pod("web-1"))
            server.compact()
            server.faults.expire_events()
            server.faults.heal()
            deleted, *others = [await next_event(events) for _ in range(3)]
            added, other = sorted(others, key=lambda event: event.key)
            match deleted:
                case steadfast.Deleted(last=last, certainty="inferred", reason="replaced", version=None):
                    assert last.uid == old["metadata"]["uid"]
                case _:
                    pytest.fail(repr(deleted))
            match added:
                case steadfast.Added(object=pod_, initial=False):
                    assert pod_.uid == new["metadata"]["uid"] and pod_.spec.nodeName == "n2"
                case _:
                    pytest.fail(repr(added))
            assert isinstance(other, steadfast.Added) and other.key == "shop/web-1"

    run(main())


def test_deletion_in_cut_is_inferred(server: Server) -> None:
    server.create(pod("web-0"))

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            pods = informers.watch("pods", labels={"app": "web"})
            events = pods.events()
            await next_event(events)
            server.faults.cut()
            server.delete("pods", "shop", "web-0")
            server.faults.expire_events()
            server.faults.heal()
            event = await next_event(events)
            assert isinstance(event, steadfast.Deleted)
            assert (event.certainty, event.reason) == ("inferred", "deleted or left")

    run(main())


def test_slow_reader_receives_merged_events(server: Server) -> None:
    server.create(pod("web-0"))

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            pods = informers.watch("pods")
            events = pods.events()
            await next_event(events)
            # The reader does not read while one object changes, and another one is created and deleted.
            for count in range(200):
                last = server.patch("pods", "shop", "web-0", {"metadata": {"labels": {"count": str(count)}}})
            server.create(pod("web-1"))
            server.delete("pods", "shop", "web-1")
            end = server.create(pod("web-2"))
            await pods.wait_for(end["metadata"]["resourceVersion"], PATIENCE)
            received = [await next_event(events) for _ in range(2)]
            assert isinstance(received[0], steadfast.Updated)
            assert received[0].new.resource_version == last["metadata"]["resourceVersion"]
            assert received[0].new.metadata.labels.count == "199"
            # The reader never received the addition of web-1, so it does not receive the deletion either.
            assert received[1].key == "shop/web-2"

    run(main())


def test_cancelled_read_loses_no_event(server: Server) -> None:
    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            pods = informers.watch("pods")
            await pods.synced(timeout=PATIENCE)
            events = pods.events()
            received: list[str] = []
            for count in range(50):
                read = asyncio.ensure_future(events.__anext__())
                await asyncio.sleep(0)
                server.create(pod(f"web-{count}"))
                # The read is cancelled at a different point of the delivery each time.
                for _ in range(count % 7):
                    await asyncio.sleep(0)
                read.cancel()
                try:
                    received.append((await read).key)
                except asyncio.CancelledError:
                    pass
            while len(received) < 50:
                received.append((await next_event(events)).key)
            assert sorted(received) == sorted(f"shop/web-{count}" for count in range(50))

    run(main())


def test_full_queue_lets_other_tasks_run(server: Server) -> None:
    for count in range(300):
        server.create(pod(f"web-{count}"))

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            pods = informers.watch("pods")
            await pods.synced(timeout=PATIENCE)
            turns = 0

            async def other() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            task = asyncio.ensure_future(other())
            events = pods.events()
            for _ in range(300):
                await events.__anext__()
            assert turns >= 4
            task.cancel()

    run(main())


def test_second_reader_is_rejected(server: Server) -> None:
    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            events = informers.watch("pods").events()
            first = asyncio.ensure_future(events.__anext__())
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="another task"):
                await events.__anext__()
            server.create(pod("web-0"))
            assert (await first).key == "shop/web-0"

    run(main())


def test_event_wakes_all_waits_of_a_stream(server: Server) -> None:
    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            pods = informers.watch("pods")
            await pods.synced(timeout=PATIENCE)
            stream = pods.events()._stream
            waits = [asyncio.ensure_future(stream.ready()) for _ in range(3)]
            await until_waiting(pods)
            # A read that finds nothing does not replace the waits.
            assert stream.take() is None
            # The end of one wait does not replace the others either.
            assert not await stream.ready(0.0)
            waits.pop().cancel()
            server.create(pod("web-0"))
            assert await asyncio.wait_for(asyncio.gather(*waits), PATIENCE) == [True, True]
            event = stream.take()
            assert event is not None and event.key == "shop/web-0" and stream.take() is None

    run(main())


def test_stream_ends_with_its_informer(server: Server) -> None:
    server.create(pod("web-0"))

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            pods = informers.watch("pods")
            events = pods.events()
            await next_event(events)
            waiting = asyncio.ensure_future(events.__anext__())
            await asyncio.sleep(0)
        with pytest.raises(StopAsyncIteration):
            await asyncio.wait_for(waiting, PATIENCE)
        assert [event async for event in events] == []
        with pytest.raises(steadfast.StoppedError):
            informers.watch("pods")

    run(main())


def test_closed_stream_ends_pending_read(server: Server) -> None:
    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            pods = informers.watch("pods")
            await pods.synced(timeout=PATIENCE)
            async with pods.events() as events:
                waiting = asyncio.ensure_future(events.__anext__())
                await asyncio.sleep(0)
            with pytest.raises(StopAsyncIteration):
                await asyncio.wait_for(waiting, PATIENCE)

    run(main())


def test_undelivered_batch_uses_one_call(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for count in range(100):
        server.create(pod(f"web-{count}"))

    async def main() -> None:
        loop = asyncio.get_running_loop()
        calls = 0
        original = loop.call_soon_threadsafe

        def counted(*arguments, **named):
            nonlocal calls
            calls += 1
            return original(*arguments, **named)

        monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
        async with steadfast.Informers(url=server.url) as informers:
            pods = informers.watch("pods")
            await pods.synced(timeout=PATIENCE)
            before = calls
            events = pods.events()
            for _ in range(100):
                await events.__anext__()
            assert calls - before <= 1, "the cached objects are one batch"

    run(main())


def test_lowered_level_applies_to_earlier_messages(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    async def reconnect() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            pods = informers.watch("pods")
            await pods.synced(timeout=PATIENCE)
            server.faults.cut()
            server.faults.heal()
            server.create(pod(f"web-{len(pods)}"))
            count = len(pods) + 1
            await pods.until(lambda pods: len(pods) == count, PATIENCE)

    def messages() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.levelno < logging.WARNING]

    caplog.set_level(logging.CRITICAL, logger="steadfast_kube")
    run(reconnect())
    assert not messages()
    caplog.set_level(logging.DEBUG, logger="steadfast_kube")
    run(reconnect())
    deadline = time.monotonic() + PATIENCE
    while not messages():
        assert time.monotonic() < deadline, "the level DEBUG has no effect"
        time.sleep(0.01)


def test_library_messages_reach_logging(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="steadfast_kube")

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            pods = informers.watch("pods")
            await pods.synced(timeout=PATIENCE)
            server.faults.cut()
            server.faults.heal()
            server.create(pod("web-0"))
            await pods.until(lambda pods: len(pods) == 1, PATIENCE)
            while not any(record.name == "steadfast_kube" for record in caplog.records):
                await asyncio.sleep(0.01)

    run(main())
    record = next(record for record in caplog.records if record.name == "steadfast_kube")
    assert record.target.startswith("steadfast")
    assert record.getMessage()
