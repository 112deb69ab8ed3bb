"""Faults of docs/faults.md through the fixture: each change is delivered exactly, with a bounded number of lists."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import steadfast_kube as steadfast
from conftest import PATIENCE, config_map, eventually, pod, run, state
from contract_trace import Trace
from steadfast_kube.testing import Faults, Server


@dataclass
class Follower:
    """Checks the events of a stream: C1 (no lost stay), C3 (no repetition), C4 (no older state), C5 (old and new)."""

    versions: dict[str, str] = field(default_factory=dict)
    """Version of each object that exists according to the events."""
    uids: dict[str, str] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    """UIDs of deleted objects."""
    received: list[str] = field(default_factory=list)

    def follow(self, event: steadfast.Event) -> None:
        """Checks one event."""
        key, obj = event.key, event.object
        self.received.append(f"{type(event).__name__} {key}")
        match event:
            case steadfast.Added():
                assert key not in self.versions, "the earlier object was deleted before"
                assert obj.uid not in self.ended, "a deleted object never returns"
            case steadfast.Updated(old=old, new=new):
                assert old.resource_version == self.versions[key], "the old state is the state of the last event"
                assert old.uid == new.uid == self.uids[key], "another object is not an update"
                assert int(new.resource_version or 0) > int(old.resource_version or 0), "no older state"
            case steadfast.Deleted(last=last):
                assert last.uid == self.uids[key]
                self.ended.add(last.uid or "")
                del self.versions[key]
                return
        self.versions[key], self.uids[key] = obj.resource_version or "", obj.uid or ""

    async def read(self, events: steadfast.Events, trace: Trace) -> None:
        async for event in events:
            trace.event(event)
            self.follow(event)


@dataclass
class Scenario:
    """A fault, and the maximum number of lists that it may cause."""

    start: Callable[[Faults], Any]
    end: Callable[[Faults], Any] = lambda faults: None
    lists: int = 0
    exact: bool = False
    """True if the fault causes exactly this number of lists."""
    watches: int = 1
    """Minimum number of watches that the fault causes."""
    doubt: tuple[str, ...] = ()
    """States of which one must be reported before the end of the fault."""
    tls: bool = False


def ended_watch(code: int, *verbs: str, **settings: Any) -> Callable[[Faults], None]:
    """Returns a fault that ends the watches, and responds with an error to the next requests of pods."""

    def start(faults: Faults) -> None:
        faults.respond(code, *verbs, resource="pods", **settings)
        faults.end_watches()

    return start


def reset(*names: str) -> Callable[[Faults], None]:
    """Returns a fault that ends all connections and is active for the next ones."""

    def start(faults: Faults) -> None:
        for name in (*names, "reset"):
            getattr(faults, name)()

    return start


def set_and_end_watches(name: str, value: int) -> Callable[[Faults], None]:
    """Returns a fault of new responses, which also ends the open watches."""

    def start(faults: Faults) -> None:
        getattr(faults, name)(value)
        faults.end_watches()

    return start


def expire_and_heal(faults: Faults) -> None:
    """Expires the versions before the changes during a cut, and ends the cut."""
    faults.expire_events()
    faults.heal()


DOUBT = ("resuming", "suspect", "stale")

SCENARIOS = {
    "F2 restart": Scenario(lambda faults: faults.restart(), lists=1),
    "F2 stop": Scenario(lambda faults: faults.stop(), lambda faults: faults.start(), lists=1, doubt=DOUBT),
    "F3 reset": Scenario(reset()),
    "F7 stall": Scenario(lambda faults: faults.stall_streams(), lambda faults: faults.stall_streams(False), watches=0),
    "F8 goaway": Scenario(lambda faults: faults.goaway(), tls=True),
    "F9 end": Scenario(lambda faults: faults.end_watches()),
    "F10 close": Scenario(reset("accept_and_close"), lambda faults: faults.heal(), doubt=DOUBT),
    "F10 refuse": Scenario(reset("refuse"), lambda faults: faults.heal(), doubt=DOUBT),
    "F11 410 as status": Scenario(ended_watch(410, "watch", times=1), lists=1, exact=True, watches=2),
    "F11 410 in the stream": Scenario(
        ended_watch(410, "watch", times=1, in_stream=True), lists=1, exact=True, watches=2
    ),
    "F11 expired": Scenario(lambda faults: faults.cut(), expire_and_heal, lists=1, exact=True, doubt=DOUBT),
    "F18 no bookmarks": Scenario(
        lambda faults: faults.no_bookmarks(), lambda faults: faults.no_bookmarks(False), watches=0
    ),
    "F20 repeated events": Scenario(
        set_and_end_watches("repeat_events", 3), lambda faults: faults.repeat_events(0), watches=1
    ),
    "F21 429": Scenario(ended_watch(429, "watch", times=1, retry_after=1), watches=2),
    "F21 503": Scenario(ended_watch(503, "watch", times=2), watches=3),
    "F21 500": Scenario(ended_watch(500), lambda faults: faults.respond_normally(), doubt=(*DOUBT, "failed")),
    "F21 504": Scenario(ended_watch(504, "watch", times=2), watches=3),
    "F21 slow": Scenario(lambda faults: faults.delay(0.3), lambda faults: faults.delay(0), watches=0),
    "F22 401": Scenario(ended_watch(401), lambda faults: faults.respond_normally(), doubt=("failed",)),
    "F23 404": Scenario(ended_watch(404), lambda faults: faults.respond_normally(), lists=2, doubt=("failed",)),
    "F24 split": Scenario(
        set_and_end_watches("split_bodies", 7), lambda faults: faults.split_bodies(0), watches=1
    ),
    "F33 403": Scenario(ended_watch(403), lambda faults: faults.respond_normally(), lists=2, doubt=("failed",)),
}


def churn(server: Server, expected: dict[str, str]) -> None:
    """Creates, changes, deletes and recreates pods, and records their versions."""

    def record(obj: dict[str, Any]) -> None:
        expected[f"shop/{obj['metadata']['name']}"] = obj["metadata"]["resourceVersion"]

    record(server.create(pod(f"new-{server.revision}")))
    record(server.patch("pods", "shop", "changed", {"metadata": {"labels": {"revision": str(server.revision)}}}))
    for name in ("deleted", "recreated"):
        if f"shop/{name}" in expected:
            server.delete("pods", "shop", name)
            del expected[f"shop/{name}"]
    record(server.create(pod("recreated")))


def informers(server: Server, folder: Path) -> steadfast.Informers:
    """Returns informers by kubeconfig, which has the certificate of a server with TLS."""
    file = folder / "config"
    file.write_text(server.kubeconfig)
    return steadfast.Informers(kubeconfig=file)


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_delivers_each_change(
    steadfast_server_factory: Callable[..., Server], tmp_path: Path, name: str
) -> None:
    scenario = SCENARIOS[name]
    server = steadfast_server_factory(tls=scenario.tls)
    server.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    expected: dict[str, str] = {}
    for pod_name in ("changed", "deleted", "recreated"):
        expected[f"shop/{pod_name}"] = server.create(pod(pod_name))["metadata"]["resourceVersion"]

    def lists() -> int:
        requests = server.requests("list", "streamed_list", resource="pods")
        return len([request for request in requests if request.status == 200])

    def watches() -> int:
        return len(server.requests("watch", resource="pods"))

    async def main() -> None:
        async with informers(server, tmp_path) as opened:
            pods = opened.watch("pods")
            follower = Follower()
            trace = Trace(server, pods)
            reader = asyncio.ensure_future(follower.read(pods.events(), trace))
            await eventually(lambda: follower.versions == expected, reader)
            await state(pods, "fresh")
            before, watches_before = lists(), watches()
            scenario.start(server.faults)
            if scenario.doubt:
                doubt = await state(pods, *scenario.doubt)
                assert isinstance(doubt, steadfast.Doubt) and doubt.reason
                assert len(pods) == 3, "the cache stays readable"
            churn(server, expected)
            scenario.end(server.faults)
            await eventually(lambda: follower.versions == expected, reader)
            # The fault had an effect. After GOAWAY, the old watch delivers changes until the new one is open.
            await eventually(lambda: watches() - watches_before >= scenario.watches, reader)
            await state(pods, "fresh")
            # The watch works after the fault as before it.
            churn(server, expected)
            await eventually(lambda: follower.versions == expected, reader)
            # After GOAWAY, the watch may move to another connection only now.
            await state(pods, "fresh")
            assert {key: obj.resource_version for key, obj in pods.items()} == expected
            caused = lists() - before
            assert caused == scenario.lists if scenario.exact else caused <= scenario.lists
            assert follower.received.count("Deleted shop/deleted") == 1
            assert follower.received.count("Deleted shop/recreated") == 2
            reader.cancel()
            trace.settle()
            assert trace.errors() == []

    run(main())


def test_lagging_replica_never_reverts_the_cache(steadfast_server_factory: Callable[..., Server]) -> None:
    server = steadfast_server_factory(replicas=2)
    server.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    server.create(pod("web-0"))

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as opened:
            pods = opened.watch("pods")
            follower = Follower()
            trace = Trace(server, pods)
            reader = asyncio.ensure_future(follower.read(pods.events(), trace))
            await state(pods, "fresh")
            # The watch cache of the replica stops, and its responses do not contain the changes after that.
            server.faults.of(0).lag()
            changed = server.patch("pods", "shop", "web-0", {"spec": {"nodeName": "n2"}})
            server.faults.of(0).end_watches()
            assert pods["shop/web-0"].spec.nodeName == "n1"
            server.faults.of(0).lag(False)
            await eventually(
                lambda: follower.versions == {"shop/web-0": changed["metadata"]["resourceVersion"]}, reader
            )
            await state(pods, "fresh")
            assert follower.received == ["Added shop/web-0", "Updated shop/web-0"]
            reader.cancel()
            trace.settle()
            assert trace.errors() == []

    run(main())


def test_sync_follows_late_start_of_server(server: Server) -> None:
    """F1: no server at the start."""
    server.create(pod("web-0"))
    server.faults.stop()

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as opened:
            pods = opened.watch("pods")
            with pytest.raises(steadfast.NotSynced, match="pods"):
                await pods.synced(timeout=0.5)
            with pytest.raises(steadfast.NotSynced, match="cannot look up"):
                len(pods)
            server.faults.start()
            await pods.synced(timeout=PATIENCE)
            assert list(pods) == ["shop/web-0"]

    run(main())


def test_expired_page_completes_list(server: Server) -> None:
    """F14 and F17: streamed lists are rejected, and the token of the second page has expired."""
    expected = {}
    for number in range(600):
        obj = server.create(pod(f"web-{number}"))
        expected[f"shop/web-{number}"] = obj["metadata"]["resourceVersion"]
    server.faults.reject_streamed_lists()
    server.faults.expire_continue_tokens(1)

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as opened:
            pods = opened.watch("pods")
            await pods.synced(timeout=PATIENCE)
            assert {key: obj.resource_version for key, obj in pods.items()} == expected
            requests = server.requests("list", "page", resource="pods")
            assert [(request.verb, request.status) for request in requests] == [
                ("list", 200),
                ("page", 410),
                ("list", 200),
            ]
            # The watch continues from the list.
            changed = server.patch("pods", "shop", "web-0", {"spec": {"nodeName": "n2"}})
            await pods.wait_for(changed["metadata"]["resourceVersion"], timeout=PATIENCE)
            assert pods["shop/web-0"].spec.nodeName == "n2"

    run(main())


def test_next_list_repairs_lost_event(server: Server) -> None:
    """F19: the server sends a deletion to no watch. The next list contains the loss, and its certainty is inferred."""
    server.create(config_map("kept"))
    server.create(config_map("lost"))

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as opened:
            config_maps = opened.watch("configmaps")
            events = config_maps.events()
            assert {(await events.__anext__()).key for _ in range(2)} == {"shop/kept", "shop/lost"}
            server.faults.drop_next_event("configmaps")
            server.delete("configmaps", "shop", "lost")
            after = server.create(config_map("after"))
            assert (await events.__anext__()).key == "shop/after"
            assert "shop/lost" in config_maps, "no watch can know of the loss"
            await config_maps.wait_for(after["metadata"]["resourceVersion"], timeout=PATIENCE)
            server.faults.cut()
            server.create(config_map("next"))
            expire_and_heal(server.faults)
            rest = [await events.__anext__() for _ in range(2)]
            assert {(type(event), event.key) for event in rest} == {
                (steadfast.Deleted, "shop/lost"),
                (steadfast.Added, "shop/next"),
            }
            assert sorted(config_maps) == ["shop/after", "shop/kept", "shop/next"]

    run(main())


@dataclass
class Planted:
    """State of an object in a planted event."""

    resource_version: str
    key: str = "shop/a"
    uid: str = "u"


def follow_planted(*changes: tuple[str, str]) -> None:
    """Follows events of one object, each with its kind and version. Each update has version 1 as its old state."""
    follower = Follower()
    for kind, version in changes:
        obj: Any = Planted(version)
        old: Any = Planted("1")
        events = {
            "+": steadfast.Added(obj),
            "~": steadfast.Updated(old, obj),
            "-": steadfast.Deleted(obj, "observed", "deleted"),
        }
        follower.follow(events[kind])


@pytest.mark.parametrize(
    "changes",
    [
        [("+", "1"), ("+", "2")],
        [("~", "2")],
        [("-", "1")],
        [("+", "2"), ("~", "3")],
        [("+", "1"), ("~", "1")],
        [("+", "1"), ("-", "1"), ("+", "2")],
        [("+", "1"), ("-", "1"), ("-", "1")],
    ],
)
def test_planted_violations_are_found(changes: list[tuple[str, str]]) -> None:
    follow_planted(("+", "1"), ("~", "2"), ("-", "2"))
    with pytest.raises((AssertionError, KeyError)):
        follow_planted(*changes)


@pytest.mark.parametrize(
    ("damage", "clause"),
    [
        ("lost event", "C3"),
        ("repeated event", "C3"),
        ("older state in the cache", "C4"),
        ("wrong old state", "C5"),
        ("missing end", "settled"),
    ],
)
def test_damaged_trace_is_rejected(server: Server, damage: str, clause: str) -> None:
    async def main() -> None:
        async with steadfast.Informers(url=server.url) as opened:
            pods = opened.watch("pods")
            await pods.synced(timeout=PATIENCE)
            trace, events = Trace(server, pods), pods.events()
            server.create(pod("web-0"))
            trace.event(await events.__anext__())
            for node in ("n2", "n3"):
                server.patch("pods", "shop", "web-0", {"spec": {"nodeName": node}})
                trace.event(await events.__anext__())
            trace.settle()
            assert trace.errors() == []
            calls = [entry["record"]["Entered"] for entry in trace.entries if "Entered" in entry["record"]]
            last = calls[-1]
            match damage:
                case "lost event":
                    ends = [index for index, entry in enumerate(trace.entries) if "Entered" in entry["record"]]
                    del trace.entries[ends[-1] : ends[-1] + 2]
                case "repeated event":
                    last["event"] = calls[-2]["event"]
                case "older state in the cache":
                    last["store"] = calls[0]["store"]
                case "wrong old state":
                    last["event"]["Updated"]["old"] = calls[0]["event"]["Added"]["object"]
                case _:
                    trace.entries.pop()
            errors = trace.errors()
            assert errors and any(clause in error for error in errors), errors

    run(main())
