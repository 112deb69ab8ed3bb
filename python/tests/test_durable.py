"""Durable handlers: deliveries until the acknowledgement, across restarts."""

import asyncio
import gc
import json
import os
import queue
import random
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Optional

import pytest

import steadfast_kube as steadfast
from conftest import PATIENCE, config_map, eventually, run, until_waiting
from steadfast_kube import blocking
from steadfast_kube.testing import Server


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The path of a new checkpoint."""
    return tmp_path / "cache"


@asynccontextmanager
async def program(server: Server, file: Path) -> AsyncIterator[steadfast.Informer]:
    """Runs a program with an informer of config maps."""
    async with steadfast.Informers(url=server.url, checkpoint=file) as informers:
        yield informers.watch("configmaps", namespace="shop")


async def read(deliveries: steadfast.Deliveries, count: int) -> dict[str, steadfast.Delivery]:
    """Returns the next deliveries by their keys."""
    received: dict[str, steadfast.Delivery] = {}
    for _ in range(count):
        delivery = await asyncio.wait_for(deliveries.__anext__(), PATIENCE)
        assert delivery.event.key not in received, "one delivery of an object at a time"
        received[delivery.event.key] = delivery
    return received


async def acknowledge_all(deliveries: steadfast.Deliveries, revision: int) -> list[steadfast.Delivery]:
    """Reads and acknowledges until all changes up to `revision` are acknowledged, and returns the deliveries."""
    received: list[steadfast.Delivery] = []

    async def reader() -> None:
        async for delivery in deliveries:
            received.append(delivery)
            assert delivery.ack()

    def is_settled() -> bool:
        position = deliveries.position
        return position is not None and int(position.reached) >= revision and position.first_pending is None

    task = asyncio.ensure_future(reader())
    await eventually(is_settled, task)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return received


def test_restart_delivers_unacknowledged_events_only(server: Server, file: Path) -> None:
    for name in ("a", "b"):
        server.create(config_map(name, x="1"))

    async def main() -> None:
        async with program(server, file) as maps:
            deliveries = maps.durable("mirror")
            first = await read(deliveries, 2)
            for delivery in first.values():
                assert isinstance(delivery.event, steadfast.Added) and delivery.event.initial
                assert delivery.failures == 0
            assert first["shop/a"].ack()
        # The informer has ended, so that this acknowledgement comes too late.
        assert not first["shop/b"].ack()
        assert first["shop/a"].ack(), "a repeated acknowledgement has no effect"

        async with program(server, file) as maps:
            created = server.create(config_map("c"))
            received = await acknowledge_all(maps.durable("mirror"), int(created["metadata"]["resourceVersion"]))
            assert sorted(delivery.event.key for delivery in received) == ["shop/b", "shop/c"]
            again = next(delivery for delivery in received if delivery.event.key == "shop/b")
            assert again.id == first["shop/b"].id and again.event == first["shop/b"].event

        async with program(server, file) as maps:
            assert await acknowledge_all(maps.durable("mirror"), server.revision) == []

    run(main())


def test_changes_while_down_are_delivered(server: Server, file: Path) -> None:
    for name in ("changed", "deleted", "recreated", "same"):
        server.create(config_map(name, x="1"))

    async def main() -> None:
        async with program(server, file) as maps:
            before = {d.event.key: d for d in await acknowledge_all(maps.durable("mirror"), server.revision)}
            assert len(before) == 4
        for count in range(3):
            server.patch("configmaps", "shop", "changed", {"data": {"x": str(count)}})
        for name in ("deleted", "recreated"):
            server.delete("configmaps", "shop", name)
        server.create(config_map("recreated", x="2"))
        async with program(server, file) as maps:
            received = await acknowledge_all(maps.durable("mirror"), server.revision)
        by_key: dict[str, list[steadfast.Event]] = {}
        for delivery in received:
            by_key.setdefault(delivery.event.key, []).append(delivery.event)
        assert sorted(by_key) == ["shop/changed", "shop/deleted", "shop/recreated"]
        match by_key["shop/changed"]:
            case [*_, steadfast.Updated(new=new)]:
                assert new.data.x == "2"
            case other:
                pytest.fail(repr(other))
        match by_key["shop/deleted"]:
            case [steadfast.Deleted(last=last)]:
                assert last == before["shop/deleted"].event.object
            case other:
                pytest.fail(repr(other))
        match by_key["shop/recreated"]:
            case [steadfast.Deleted(last=last), steadfast.Added(object=new)]:
                assert last.uid == before["shop/recreated"].event.object.uid != new.uid
            case other:
                pytest.fail(repr(other))

    run(main())


def test_deletion_while_down_is_inferred_after_expiry(server: Server, file: Path) -> None:
    server.create(config_map("a"))

    async def main() -> None:
        async with program(server, file) as maps:
            await acknowledge_all(maps.durable("mirror"), server.revision)
        server.delete("configmaps", "shop", "a")
        server.compact()
        server.faults.expire_events()
        async with program(server, file) as maps:
            (delivery,) = (await read(maps.durable("mirror"), 1)).values()
            assert isinstance(delivery.event, steadfast.Deleted) and delivery.event.certainty == "inferred"
            assert delivery.id.endswith("-gone") and delivery.ack()

    run(main())


CHILD = """
    import sys, time
    import steadfast_kube.blocking as steadfast

    url, file = sys.argv[1:]
    held = []
    with steadfast.Informers(url=url, checkpoint=file) as informers:
        deliveries = informers.watch("configmaps", namespace="shop").durable("mirror")
        for delivery in deliveries:
            name = delivery.event.object.name
            if name == "acknowledged":
                count = deliveries.stats.acknowledged
                assert delivery.ack()
                while deliveries.stats.acknowledged == count:
                    time.sleep(0.001)
            else:
                held.append(delivery)
            print(name, delivery.id, flush=True)
"""


def test_killed_process_receives_unacknowledged_event_again(server: Server, file: Path) -> None:
    for name in ("acknowledged", "held"):
        server.create(config_map(name))
    command = [sys.executable, "-I", "-c", textwrap.dedent(CHILD), server.url, str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        ids = dict(child.stdout.readline().split() for _ in range(2))
        assert sorted(ids) == ["acknowledged", "held"]
        # The transaction that stores this event also stores the earlier acknowledgement.
        server.create(config_map("later"))
        ids |= dict([child.stdout.readline().split()])
        child.kill()
    server.delete("configmaps", "shop", "later")

    async def main() -> None:
        async with program(server, file) as maps:
            received = await acknowledge_all(maps.durable("mirror"), server.revision)
        assert [d.id for d in received if d.event.key == "shop/held"] == [ids["held"]]
        later = [d.id for d in received if d.event.key == "shop/later"]
        assert later == [ids["later"], ids["later"] + "-gone"] or later == [ids["later"] + "-gone"]
        assert not [d for d in received if d.event.key == "shop/acknowledged"]

    run(main())


class Model:
    """Expected deliveries of one handler."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.current: dict[str, Optional[str]] = {}
        """ID of each object's current state; `None` for a deleted object."""
        self.acknowledged: dict[str, steadfast.Delivery] = {}
        """Last acknowledged delivery of each object."""
        self.acknowledged_ids: set[str] = set()
        self.open: dict[str, steadfast.Delivery] = {}
        """Delivery of each object that was read and is not acknowledged."""
        self.delivered: dict[str, str] = {}
        """UID of the last delivered state of each object."""

    def change(self, rng: random.Random) -> None:
        """Changes one object on the server."""
        name = f"map-{rng.randrange(6)}"
        if self.current.get(f"shop/{name}") is None:
            obj = self.server.create(config_map(name, x="0"))
        elif rng.random() < 0.3:
            self.server.delete("configmaps", "shop", name)
            self.current[f"shop/{name}"] = None
            return
        else:
            obj = self.server.patch("configmaps", "shop", name, {"data": {"x": str(rng.random())}})
        self.current[f"shop/{name}"] = f"{obj['metadata']['uid']}@{obj['metadata']['resourceVersion']}"

    def deliver(self, delivery: steadfast.Delivery) -> None:
        """Checks a delivery."""
        event = delivery.event
        assert delivery.id not in self.acknowledged_ids, "acknowledged events are not delivered again"
        assert event.key not in self.open, "one delivery of an object at a time"
        last = self.acknowledged.get(event.key)
        known = None if last is None or isinstance(last.event, steadfast.Deleted) else last.event.object
        match event:
            case steadfast.Added():
                assert known is None
            case steadfast.Updated(old=old, new=new):
                assert known is not None and old == known and new.uid == old.uid
            case steadfast.Deleted(last=gone):
                assert gone.uid == self.delivered[event.key], "a deletion follows a delivered state"
        self.open[event.key] = delivery
        self.delivered[event.key] = event.object.uid or ""

    def acknowledge(self, key: str) -> None:
        delivery = self.open.pop(key)
        assert delivery.ack()
        self.acknowledged[key] = delivery
        self.acknowledged_ids.add(delivery.id)

    def pending_keys(self) -> set[str]:
        """Returns the keys of the events that must be delivered: unacknowledged current states and deletions."""
        keys = set()
        for key, current in self.current.items():
            last = self.acknowledged.get(key)
            if current is not None:
                is_known = last is not None and last.id == current
            else:
                # A deletion is delivered if the deleted object was delivered.
                is_known = key not in self.delivered or (
                    last is not None
                    and isinstance(last.event, steadfast.Deleted)
                    and last.event.object.uid == self.delivered[key]
                )
            if not is_known:
                keys.add(key)
        return keys


@pytest.mark.parametrize("seed", range(6))
def test_random_history_agrees_with_model(server: Server, file: Path, seed: int) -> None:
    rng = random.Random(seed)
    model = Model(server)

    async def reader(deliveries: steadfast.Deliveries) -> None:
        async for delivery in deliveries:
            model.deliver(delivery)

    async def one_run() -> None:
        async with program(server, file) as maps:
            deliveries = maps.durable("mirror", concurrency=rng.choice([1, 2, 16]))
            task = asyncio.ensure_future(reader(deliveries))
            for _ in range(rng.randrange(25)):
                action = rng.random()
                if action < 0.5:
                    model.change(rng)
                elif model.open and action < 0.85:
                    model.acknowledge(rng.choice(sorted(model.open)))
                elif model.open and action < 0.9:
                    model.open.pop(rng.choice(sorted(model.open))).fail("a random failure")
                elif action < 0.95:
                    # The cancelled read loses no delivery.
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
                    task = asyncio.ensure_future(reader(deliveries))
                else:
                    await maps.wait_for(server.revision, PATIENCE)
                    if model.pending_keys() - set(model.open) and not model.open:
                        await eventually(lambda: model.open, task)
            if task.done():
                task.result()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        model.open.clear()
        for _ in range(rng.randrange(6)):
            model.change(rng)
        if rng.random() < 0.3:
            server.compact()
            server.faults.expire_events()

    async def main() -> None:
        for _ in range(7):
            await one_run()
        pending = model.pending_keys()
        async with program(server, file) as maps:
            deliveries = maps.durable("mirror")
            received: set[str] = set()

            async def acknowledging_reader() -> None:
                async for delivery in deliveries:
                    model.deliver(delivery)
                    model.acknowledge(delivery.event.key)
                    received.add(delivery.event.key)

            task = asyncio.ensure_future(acknowledging_reader())

            def is_settled() -> bool:
                position = deliveries.position
                reached = position is not None and int(position.reached) >= server.revision
                return bool(reached and position and position.first_pending is None)

            await eventually(is_settled, task)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert pending <= received
        # The deletion of an object that was queued, and not read, is delivered as well.
        assert all(model.current[key] is None for key in received - pending)
        assert model.pending_keys() == set()

    run(main())


def test_cancelled_read_loses_no_delivery(server: Server, file: Path) -> None:
    async def main() -> None:
        async with program(server, file) as maps:
            await maps.synced(timeout=PATIENCE)
            deliveries = maps.durable("mirror", concurrency=64)
            received: set[str] = set()
            for count in range(40):
                task = asyncio.ensure_future(deliveries.__anext__())
                await asyncio.sleep(0)
                server.create(config_map(f"map-{count}"))
                # The read is cancelled at a different point of the delivery each time.
                for _ in range(count % 7):
                    await asyncio.sleep(0)
                task.cancel()
                try:
                    delivery = await task
                    received.add(delivery.event.key)
                    assert delivery.ack()
                except asyncio.CancelledError:
                    pass
            received |= {d.event.key for d in await acknowledge_all(deliveries, server.revision)}
            assert {f"shop/map-{count}" for count in range(40)} <= received
            assert deliveries.stats is not None and deliveries.stats.failed == 0

    run(main())


def test_failed_delivery_is_repeated(server: Server, file: Path) -> None:
    server.create(config_map("a"))

    async def main() -> None:
        async with program(server, file) as maps:
            deliveries = maps.durable("mirror", ack_timeout=PATIENCE)
            first = await asyncio.wait_for(deliveries.__anext__(), PATIENCE)
            first.fail("the target is unavailable")
            first.fail()
            assert not first.ack()
            second = await asyncio.wait_for(deliveries.__anext__(), PATIENCE)
            assert (second.id, second.failures) == (first.id, 1)
            # A change does not replace the event: the object's next event follows its acknowledgement.
            server.patch("configmaps", "shop", "a", {"data": {"x": "1"}})
            await maps.wait_for(server.revision, PATIENCE)
            del second
            gc.collect()
            third = await asyncio.wait_for(deliveries.__anext__(), PATIENCE)
            assert (third.id, third.failures) == (first.id, 2)
            assert third.ack()
            fourth = await asyncio.wait_for(deliveries.__anext__(), PATIENCE)
            assert isinstance(fourth.event, steadfast.Updated) and fourth.event.new.data.x == "1"
            assert fourth.failures == 0 and fourth.ack()

    run(main())


def test_late_acknowledgement_does_not_count(server: Server, file: Path) -> None:
    server.create(config_map("a"))

    async def main() -> None:
        async with program(server, file) as maps:
            deliveries = maps.durable("mirror", ack_timeout=0.01)
            first = await asyncio.wait_for(deliveries.__anext__(), PATIENCE)
            second = await asyncio.wait_for(deliveries.__anext__(), PATIENCE)
            assert second.id == first.id and second.failures >= 1
            assert not first.ack()
            deliveries.close()
        async with program(server, file) as maps:
            assert (await read(maps.durable("mirror"), 1))["shop/a"].id == first.id

    run(main())


def test_unacknowledged_deliveries_are_limited(server: Server, file: Path) -> None:
    for count in range(6):
        server.create(config_map(f"map-{count}"))

    async def main() -> None:
        async with program(server, file) as maps:
            deliveries = maps.durable("mirror", concurrency=2)
            held = list((await read(deliveries, 2)).values())
            for remaining in range(6, 2, -1):
                stats = deliveries.stats
                assert stats is not None and (stats.in_flight, stats.pending) == (2, remaining)
                assert held.pop(0).ack()
                held.append(await asyncio.wait_for(deliveries.__anext__(), PATIENCE))
            assert all(delivery.ack() for delivery in held)
            with pytest.raises(ValueError, match="at least 1"):
                maps.durable("other", concurrency=0)
            with pytest.raises(ValueError, match="positive"):
                maps.durable("other", ack_timeout=0)

    run(main())


def test_closed_stream_frees_its_name(server: Server, file: Path) -> None:
    for name in ("a", "b", "c"):
        server.create(config_map(name))

    async def main() -> None:
        async with program(server, file) as maps:
            await maps.synced(timeout=PATIENCE)
            async with maps.durable("mirror", concurrency=2) as deliveries:
                with pytest.raises(steadfast.CheckpointError, match='already has a durable handler "mirror"'):
                    maps.durable("mirror")
                held = await read(deliveries, 2)
                late, dropped = (held.pop(key) for key in sorted(held))
            assert deliveries.stats is None and deliveries.position is None
            with pytest.raises(StopAsyncIteration):
                await deliveries.__anext__()
            # A delivery outlives its stream.
            assert late.ack()
            del dropped
            gc.collect()
            async with maps.durable("mirror") as deliveries:
                received = await acknowledge_all(deliveries, server.revision)
            keys = {delivery.event.key for delivery in received}
            assert keys == {"shop/a", "shop/b", "shop/c"} - {late.event.key}
            # A stream that is dropped frees its name, too.
            deliveries = maps.durable("mirror")
            del deliveries
            gc.collect()
            assert await acknowledge_all(maps.durable("mirror"), server.revision) == []

    run(main())


def test_unread_deliveries_of_closed_stream_have_not_failed(server: Server, file: Path) -> None:
    for name in ("a", "b", "c"):
        server.create(config_map(name))

    async def main() -> None:
        async with program(server, file) as maps:
            await maps.synced(timeout=PATIENCE)
            for unread_count in (2, 1):
                deliveries = maps.durable("mirror", concurrency=2)
                await eventually(lambda: deliveries.stats is not None and deliveries.stats.in_flight == 2)
                read_count = 2 - unread_count
                held = await read(deliveries, read_count)
                deliveries.close()
                # Its failure after the end of the stream counts as little.
                for delivery in held.values():
                    delivery.fail()
            deliveries = maps.durable("mirror")
            held = await read(deliveries, 3)
            assert [delivery.failures for delivery in held.values()] == [0, 0, 0]
            assert deliveries.stats is not None and deliveries.stats.failed == 0

    run(main())


def test_threads_share_deliveries(server: Server, file: Path) -> None:
    with blocking.Informers(url=server.url, checkpoint=file) as informers:
        maps = informers.watch("configmaps", namespace="shop")
        maps.synced(timeout=PATIENCE)
        deliveries = maps.durable("mirror", timeout=PATIENCE)
        received: list[str] = []

        def acknowledge_one() -> None:
            delivery = next(deliveries)
            assert delivery.ack()
            received.append(delivery.event.key)

        # Each reader ends after one delivery, and must leave the others to the remaining readers.
        readers = [threading.Thread(target=acknowledge_one) for _ in range(4)]
        for reader in readers:
            reader.start()
        for number in range(4):
            server.create(config_map(f"map-{number}"))
        for reader in readers:
            reader.join(PATIENCE)
        assert sorted(received) == [f"shop/map-{number}" for number in range(4)]


def test_end_of_informers_ends_pending_read(server: Server, file: Path) -> None:
    async def main() -> None:
        async with program(server, file) as maps:
            await maps.synced(timeout=PATIENCE)
            deliveries = maps.durable("mirror")
            reading = asyncio.ensure_future(deliveries.__anext__())
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="another task"):
                await deliveries.__anext__()
        with pytest.raises(StopAsyncIteration):
            await asyncio.wait_for(reading, PATIENCE)

    run(main())


def test_handler_of_shared_informer_ends_with_its_handle(server: Server, file: Path) -> None:
    server.create(config_map("a"))

    async def main() -> None:
        async with steadfast.Informers(url=server.url, checkpoint=file) as informers:
            one, other = (informers.watch("configmaps", namespace="shop") for _ in range(2))
            deliveries = one.durable("mirror")
            held = await read(deliveries, 1)
            one.stop()
            with pytest.raises(StopAsyncIteration):
                await asyncio.wait_for(deliveries.__anext__(), PATIENCE)
            with pytest.raises(steadfast.StoppedError):
                one.durable_handlers()
            again = await read(other.durable("mirror"), 1)
            assert again["shop/a"].id == held["shop/a"].id
            # The earlier delivery has ended, because the event was delivered again.
            assert not held["shop/a"].ack() and again["shop/a"].ack()

    run(main())


def test_dropped_handler_starts_with_all_objects(server: Server, file: Path) -> None:
    server.create(config_map("a"))

    async def main() -> None:
        async with program(server, file) as maps:
            await acknowledge_all(maps.durable("mirror"), server.revision)
        server.create(config_map("b"))
        async with program(server, file) as maps:
            with pytest.raises(steadfast.NotSynced):
                maps.durable_handlers()
            await maps.wait_for(server.revision, PATIENCE)
            (stats,) = maps.durable_handlers().values()
            assert not stats.is_registered and stats.pending == 1
            assert maps.drop_durable("mirror") and not maps.drop_durable("mirror")
            assert maps.durable_handlers() == {}
        async with program(server, file) as maps:
            received = await acknowledge_all(maps.durable("mirror"), server.revision)
            assert {delivery.event.key for delivery in received} == {"shop/a", "shop/b"}

    run(main())


def test_drop_of_handler_ends_its_streams(server: Server, file: Path) -> None:
    async def main() -> None:
        async with steadfast.Informers(url=server.url, checkpoint=file) as informers:
            # Informers of equal settings share one handler.
            one, other = (informers.watch("configmaps", namespace="shop") for _ in range(2))
            await informers.synced(timeout=PATIENCE)
            unrelated = asyncio.ensure_future(one.durable("unrelated").__anext__())
            for dropping in (one, other):
                deliveries = one.durable("mirror")
                reading = asyncio.ensure_future(deliveries.__anext__())
                await asyncio.sleep(0)
                await until_waiting(one)
                assert dropping.drop_durable("mirror")
                with pytest.raises(StopAsyncIteration):
                    await asyncio.wait_for(reading, PATIENCE)
                assert deliveries.stats is None and deliveries.position is None
            server.create(config_map("a"))
            assert (await asyncio.wait_for(unrelated, PATIENCE)).ack()

    run(main())


def test_drop_of_handler_ends_held_deliveries(server: Server, file: Path) -> None:
    for name in ("a", "b"):
        server.create(config_map(name))

    async def main() -> None:
        async with program(server, file) as maps:
            deliveries = maps.durable("mirror", concurrency=2)
            held = await read(deliveries, 1)
            await eventually(lambda: deliveries.stats is not None and deliveries.stats.in_flight == 2)
            assert maps.drop_durable("mirror")
            # The queued delivery is dropped with the handler. The acknowledgement of the other one has no effect.
            with pytest.raises(StopAsyncIteration):
                await asyncio.wait_for(deliveries.__anext__(), PATIENCE)
            for delivery in held.values():
                delivery.ack()
            # A later handler starts with all objects.
            assert sorted(await read(maps.durable("mirror"), 2)) == ["shop/a", "shop/b"]

    run(main())


def test_drop_of_handler_ends_waiting_thread(server: Server, file: Path) -> None:
    with blocking.Informers(url=server.url, checkpoint=file) as informers:
        maps = informers.watch("configmaps", namespace="shop")
        maps.synced(timeout=PATIENCE)
        deliveries = maps.durable("mirror")
        received: list[object] = []
        reader = threading.Thread(target=lambda: received.extend(deliveries))
        reader.start()
        assert maps.drop_durable("mirror")
        reader.join(PATIENCE)
        assert not reader.is_alive() and received == []


def test_handlers_are_independent(server: Server, file: Path) -> None:
    server.create(config_map("a"))

    async def main() -> None:
        async with program(server, file) as maps:
            stuck = await read(maps.durable("stuck"), 1)
            received = await acknowledge_all(maps.durable("other"), server.revision)
            assert [delivery.id for delivery in received] == [stuck["shop/a"].id]
        async with program(server, file) as maps:
            assert await acknowledge_all(maps.durable("other"), server.revision) == []
            assert list(await read(maps.durable("stuck"), 1)) == ["shop/a"]

    run(main())


def test_damaged_file_delivers_all_objects_again(server: Server, file: Path) -> None:
    server.create(config_map("a"))

    async def main() -> None:
        async with program(server, file) as maps:
            await acknowledge_all(maps.durable("mirror"), server.revision)
        file.write_bytes(b"damaged" * 1000)
        async with program(server, file) as maps:
            (delivery,) = (await read(maps.durable("mirror"), 1)).values()
            assert delivery.event == steadfast.Added(maps["shop/a"], initial=True)

    run(main())


def test_handler_needs_checkpoint_and_valid_name(server: Server, file: Path) -> None:
    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            with pytest.raises(steadfast.CheckpointError, match="Informers\\(checkpoint=…\\)"):
                informers.watch("configmaps").durable("mirror")
        async with steadfast.Informers(url=server.url, checkpoint=file) as informers:
            with pytest.raises(steadfast.CheckpointError, match="checkpoint=False"):
                informers.watch("configmaps", checkpoint=False).durable("mirror")
            with pytest.raises(steadfast.CheckpointError, match="no checkpoint"):
                await informers.watch("secrets").durable("mirror").__anext__()
            maps = informers.watch("configmaps", namespace="shop")
            for name in ("", "n" * 64):
                # Before the informer has started, the first read raises the error.
                with pytest.raises(ValueError, match="not a valid name"):
                    await maps.durable(name).__anext__()
            await maps.synced(timeout=PATIENCE)
            with pytest.raises(ValueError, match="not a valid name"):
                maps.durable("")

    run(main())


FULL_DISK = """
    import os, resource, sys
    import steadfast_kube.blocking as steadfast

    url, file = sys.argv[1:]
    with steadfast.Informers(url=url, checkpoint=file) as informers:
        maps = informers.watch("configmaps", namespace="shop")
        with maps.durable("mirror") as deliveries:
            first = next(deliveries)
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
            assert first.ack()
            print(first.event.key, flush=True)
            second = next(deliveries)
            print(second.event.key, deliveries.stats.unrecorded, flush=True)
            assert second.ack()
            os._exit(0)
"""


def test_full_disk_delays_no_event_forever(server: Server, file: Path) -> None:
    server.create(config_map("a"))
    command = [sys.executable, "-I", "-c", textwrap.dedent(FULL_DISK), server.url, str(file)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as child:
        assert child.stdout is not None and child.stderr is not None
        assert child.stdout.readline() == "shop/a\n"
        server.create(config_map("b", x="x" * 100_000))
        assert child.stdout.readline() == "shop/b 1\n"
        log = child.stderr.read()
        assert child.wait(PATIENCE) == 0
    assert "cannot be written to the checkpoint" in log and str(file) in log, log


def test_forked_child_is_told_about_deliveries(server: Server, file: Path) -> None:
    server.create(config_map("a"))
    with blocking.Informers(url=server.url, checkpoint=file) as informers:
        deliveries = informers.watch("configmaps", namespace="shop").durable("mirror")
        delivery = next(deliveries)
        child = os.fork()
        if child == 0:
            # The exit status is the result; pytest must not continue in the child.
            status = 1
            try:
                uses = (delivery.ack, delivery.fail, lambda: next(deliveries), lambda: deliveries.stats)
                for use in uses:
                    try:
                        use()
                    except steadfast.Forked as error:
                        assert str(os.getppid()) in str(error)
                    else:
                        os._exit(2)
                assert delivery.event.object.name == "a"
                deliveries.close()
                del use, uses, deliveries, delivery
                gc.collect()
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert delivery.ack()


def test_blocking_deliveries(server: Server, file: Path) -> None:
    server.create(config_map("a"))
    with blocking.Informers(url=server.url, checkpoint=file) as informers:
        maps = informers.watch("configmaps", namespace="shop")
        with maps.durable("mirror", timeout=PATIENCE) as deliveries:
            held = next(deliveries)
        deliveries = maps.durable("other", timeout=PATIENCE)
        assert next(deliveries).ack()
        received: queue.SimpleQueue[str] = queue.SimpleQueue()

        def acknowledge_each() -> None:
            for delivery in deliveries:
                assert delivery.ack()
                received.put(delivery.event.key)

        reader = threading.Thread(target=acknowledge_each)
        reader.start()
        server.create(config_map("b"))
        assert received.get(timeout=PATIENCE) == "shop/b"
        # The acknowledgement is counted by another thread.
        while deliveries.stats is None or deliveries.stats.acknowledged < 2:
            time.sleep(0.001)
        assert deliveries.position is not None and deliveries.position.first_pending is None
        deliveries.close()
        reader.join(PATIENCE)
        assert not reader.is_alive() and received.empty()
    with blocking.Informers(url=server.url, checkpoint=file) as informers:
        maps = informers.watch("configmaps", namespace="shop")
        deliveries = maps.durable("mirror", timeout=PATIENCE)
        first, second = next(deliveries), next(deliveries)
        assert {first.id, second.id} >= {held.id}
        assert {first.event.key, second.event.key} == {"shop/a", "shop/b"}
        assert first.ack() and second.ack()
        # The iteration ends after the timeout, and a later one continues.
        other = maps.durable("third", timeout=0.0)
        assert list(other) == []


def test_delivery_describes_itself(server: Server, file: Path) -> None:
    server.create(config_map("a"))

    async def main() -> None:
        async with program(server, file) as maps:
            (delivery,) = (await read(maps.durable("mirror"), 1)).values()
            assert repr(delivery) == f"<Delivery {delivery.id} of Added shop/a>"
            assert json.dumps(delivery.id) and delivery.ack()

    run(main())
