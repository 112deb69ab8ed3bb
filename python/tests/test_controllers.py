"""Controllers."""

import asyncio
import json
import signal
import subprocess
import sys
from datetime import timedelta
from typing import Any, Optional

import pytest

import steadfast_kube as steadfast
from conftest import PATIENCE, config_map, eventually, pod, run, running
from steadfast_kube import blocking
from steadfast_kube.testing import Server


def test_each_object_is_reconciled(server: Server) -> None:
    server.create(config_map("a"))
    seen: list[tuple[str, Optional[str]]] = []

    @steadfast.reconcile("configmaps", namespace="shop")
    async def copy(config: steadfast.Object, context: steadfast.Context) -> None:
        assert config.key == context.key
        seen.append((context.name, config.read("data.x")))

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers, running(informers, copy) as task:
            await eventually(lambda: ("a", None) in seen, task)
            server.create(config_map("b", x="1"))
            server.patch("configmaps", "shop", "a", {"data": {"x": "2"}})
            await eventually(lambda: {("b", "1"), ("a", "2")} <= set(seen), task)

    run(main())


def test_owner_is_reconciled_after_child_changes(server: Server) -> None:
    owner = server.create(config_map("owner"))
    children: list[list[str]] = []

    @steadfast.reconcile("configmaps", namespace="shop", owns=["pods"])
    async def count(config: steadfast.Object, context: steadfast.Context) -> None:
        children.append(sorted(pod.name for pod in context.owned("pods")))

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers, running(informers, count) as task:
            await eventually(lambda: children == [[]], task)
            child = pod("web-0")
            child["metadata"]["ownerReferences"] = [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
            ]
            server.create(child)
            # A pod of another owner reconciles no key.
            server.create(pod("web-1"))
            await eventually(lambda: children[-1] == ["web-0"], task)
            server.delete("pods", "shop", "web-0")
            await eventually(lambda: children[-1] == [], task)

    run(main())


def test_watched_kind_enqueues_mapped_keys(server: Server) -> None:
    server.create(config_map("a"))
    server.create(config_map("b"))
    seen: list[str] = []

    def configs(changed: steadfast.Object) -> list[str]:
        return [f"shop/{changed.metadata.labels.config}"]

    @steadfast.reconcile("configmaps", namespace="shop", watches={"pods": configs})
    async def note(config: steadfast.Object, context: steadfast.Context) -> None:
        seen.append(context.name)

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers, running(informers, note) as task:
            await eventually(lambda: sorted(seen) == ["a", "b"], task)
            server.create(pod("web-0", config="a"))
            await eventually(lambda: seen[2:] == ["a"], task)
            # The change moves the pod from one key to the other.
            server.patch("pods", "shop", "web-0", {"metadata": {"labels": {"config": "b"}}})
            await eventually(lambda: sorted(seen[3:]) == ["a", "b"], task)

    run(main())


@pytest.mark.parametrize("delay", [0.02, timedelta(milliseconds=20)])
def test_requeue_after_repeats_without_change(server: Server, delay: steadfast.Requeue) -> None:
    server.create(config_map("a"))
    times = 0

    @steadfast.reconcile("configmaps", namespace="shop")
    async def count(config: steadfast.Object, context: steadfast.Context) -> steadfast.Requeue:
        nonlocal times
        times += 1
        return delay if times < 4 else None

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers, running(informers, count) as task:
            await eventually(lambda: times == 4, task)
            server.create(config_map("b"))
            await eventually(lambda: times == 5, task)

    run(main())


def test_failed_reconcile_is_repeated(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    server.create(config_map("a"))
    outcomes: list[Any] = [ValueError("not yet"), "text", None]
    done = False

    @steadfast.reconcile("configmaps", namespace="shop")
    async def fail(config: steadfast.Object, context: steadfast.Context) -> Any:
        nonlocal done
        outcome = outcomes.pop(0)
        done = not outcomes
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers, running(informers, fail) as task:
            await eventually(lambda: done, task)

    run(main())
    errors = [record for record in caplog.records if record.exc_info]
    assert [record.getMessage() for record in errors] == ["fail: the reconcile of shop/a failed"] * 2
    assert [record.exc_info[0] for record in errors if record.exc_info] == [ValueError, TypeError]


def test_key_has_one_reconcile_at_a_time(server: Server) -> None:
    for name in "abcdef":
        server.create(config_map(name))
    active: list[str] = []
    most = 0
    total = 0

    @steadfast.reconcile("configmaps", namespace="shop", concurrency=3)
    async def work(config: steadfast.Object, context: steadfast.Context) -> float:
        nonlocal most, total
        assert context.name not in active
        active.append(context.name)
        most = max(most, len(active))
        server.patch("configmaps", "shop", context.name, {"data": {"n": str(total)}})
        # The first reconciles wait until three run at once. Otherwise, on a slow machine, they might run one after the
        # other, and `most` would stay below 3.
        await eventually(lambda: most >= 3)
        await asyncio.sleep(0.002)
        active.remove(context.name)
        total += 1
        return 0.001

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers, running(informers, work) as task:
            await eventually(lambda: total > 60, task)

    run(main())
    assert most == 3


def test_reconcile_sees_writes_of_previous(server: Server) -> None:
    server.create(config_map("a", n="0"))
    read: list[int] = []

    @steadfast.reconcile("configmaps", namespace="shop")
    async def count(config: steadfast.Object, context: steadfast.Context) -> steadfast.Requeue:
        n = int(config.data.n)
        read.append(n)
        if n < 20:
            await context.client.patch("configmaps", context.key, {"data": {"n": str(n + 1)}})
            # Reconciles again at once, before the watch can have delivered the write.
            return 0
        return None

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers, running(informers, count) as task:
            await eventually(lambda: read and read[-1] == 20, task)

    run(main())
    # Each state was read, in order. The event of a write may make a reconcile read the same state again.
    assert sorted(set(read)) == list(range(21))
    assert read == sorted(read)


def test_children_are_created_once_despite_lag(server: Server) -> None:
    server.create(config_map("owner"))
    created = 0

    @steadfast.reconcile("configmaps", namespace="shop", owns=["pods"])
    async def scale(config: steadfast.Object, context: steadfast.Context) -> steadfast.Requeue:
        nonlocal created
        if len(context.owned("pods")) < 3:
            child = pod(f"web-{created}")
            created += 1
            child["metadata"]["ownerReferences"] = [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": config.name, "uid": config.uid}
            ]
            await context.client.create(child)
            return 0
        return None

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            pods = informers.watch("pods", "shop")
            async with running(informers, scale) as task:
                await eventually(lambda: created >= 1, task)
                server.faults.stall_streams()
                await asyncio.sleep(0.05)
                server.faults.stall_streams(False)
                server.faults.end_watches()
                await eventually(lambda: len(pods) == 3, task)
                await asyncio.sleep(0.05)
            assert created == 3 and len(pods) == 3

    run(main())


def test_cleanup_precedes_deletion(server: Server) -> None:
    server.create(config_map("a"))
    seen: list[str] = []

    @steadfast.reconcile("configmaps", namespace="shop")
    async def account(config: steadfast.Object, context: steadfast.Context) -> None:
        assert "example.com/account" in config.metadata.finalizers
        seen.append("apply")

    @account.cleanup("example.com/account")
    async def delete_account(config: steadfast.Object, context: steadfast.Context) -> None:
        assert config.metadata.deletionTimestamp
        seen.append("cleanup")
        if seen.count("cleanup") == 1:
            raise OSError("the account still exists")

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers, running(informers, account) as task:
            maps = informers.watch("configmaps", "shop")
            await maps.synced(timeout=PATIENCE)
            await eventually(lambda: "apply" in seen, task)
            await informers.client.delete("configmaps", "shop/a")
            await maps.until(lambda maps: "shop/a" not in maps, PATIENCE)
            await eventually(lambda: seen.count("cleanup") == 2, task)

    run(main())


def test_deleted_object_is_reconciled_on_request(server: Server) -> None:
    server.create(config_map("a"))
    seen: list[bool] = []

    @steadfast.reconcile("configmaps", namespace="shop", deleted=True)
    async def note(config: Optional[steadfast.Object], context: steadfast.Context) -> None:
        seen.append(config is not None)

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers, running(informers, note) as task:
            await eventually(lambda: seen == [True], task)
            server.delete("configmaps", "shop", "a")
            await eventually(lambda: seen == [True, False], task)

    run(main())


def test_selected_changes_reconcile(server: Server) -> None:
    server.create(config_map("a"))
    seen: list[Optional[str]] = []

    @steadfast.reconcile("configmaps", namespace="shop", changes=["labels", "data.x"])
    async def note(config: steadfast.Object, context: steadfast.Context) -> None:
        seen.append(config.read("data.x"))

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers, running(informers, note) as task:
            await eventually(lambda: seen == [None], task)
            server.patch("configmaps", "shop", "a", {"data": {"y": "1"}})
            server.patch("configmaps", "shop", "a", {"data": {"x": "1"}})
            await eventually(lambda: seen == [None, "1"], task)
            server.patch("configmaps", "shop", "a", {"metadata": {"labels": {"l": "1"}}})
            await eventually(lambda: seen == [None, "1", "1"], task)

    run(main())


def test_timed_out_reconcile_is_cancelled(server: Server) -> None:
    server.create(config_map("a"))
    cancelled = 0

    @steadfast.reconcile("configmaps", namespace="shop", timeout=0.05)
    async def hang(config: steadfast.Object, context: steadfast.Context) -> None:
        nonlocal cancelled
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled += 1
            raise

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers, running(informers, hang, grace_period=0) as task:
            await eventually(lambda: cancelled >= 2, task)

    run(main())


def test_no_reconcile_while_cache_is_stale(server: Server) -> None:
    server.create(config_map("a"))
    seen = 0

    @steadfast.reconcile("configmaps", namespace="shop", pause_when_stale=0.2)
    async def count(config: steadfast.Object, context: steadfast.Context) -> float:
        nonlocal seen
        seen += 1
        return 0.01

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers, running(informers, count) as task:
            maps = informers.watch("configmaps", "shop")
            await eventually(lambda: seen > 3, task)
            server.faults.cut()
            await eventually(lambda: getattr(maps.freshness, "elapsed", 0) > 1, task)
            before = seen
            await eventually(lambda: getattr(maps.freshness, "elapsed", 0) > 1.5, task)
            assert seen == before
            server.faults.heal()
            await eventually(lambda: seen > before, task)

    run(main())


def test_running_reconcile_finishes_on_stop(server: Server) -> None:
    server.create(config_map("a"))
    steps: list[str] = []

    @steadfast.reconcile("configmaps", namespace="shop")
    async def slow(config: steadfast.Object, context: steadfast.Context) -> None:
        steps.append("start")
        await asyncio.sleep(0.2)
        await context.client.patch("configmaps", context.key, {"data": {"done": "1"}})
        steps.append("end")

    async def main() -> None:
        before = asyncio.all_tasks()
        async with steadfast.Informers(url=server.url) as informers:
            task = asyncio.ensure_future(informers.run(slow))
            await eventually(lambda: steps, task)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert steps == ["start", "end"]
            assert server.get("configmaps", "shop", "a")["data"] == {"done": "1"}
            assert asyncio.all_tasks() == before

    run(main())


def test_grace_period_ends_in_cancellation(server: Server) -> None:
    server.create(config_map("a"))
    started = cancelled = False

    @steadfast.reconcile("configmaps", namespace="shop")
    async def hang(config: steadfast.Object, context: steadfast.Context) -> None:
        nonlocal started, cancelled
        started = True
        try:
            await asyncio.Event().wait()
        finally:
            cancelled = True

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            async with running(informers, hang, grace_period=0.05) as task:
                await eventually(lambda: started, task)
            assert cancelled

    run(main())


def test_recorded_event_reaches_server(server: Server) -> None:
    server.create(config_map("a"))
    done = False

    @steadfast.reconcile("configmaps", namespace="shop", name="example.com/maps")
    async def note(config: steadfast.Object, context: steadfast.Context) -> None:
        nonlocal done
        context.event("Copied", "1 key", type="Warning")
        done = True

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            async with running(informers, note) as task:
                await eventually(lambda: done, task)
            # The stop of the controller has sent the event.
            events = await informers.client.list("events.events.k8s.io", "shop")
            assert [(event.reason, event.note, event["type"], event.regarding.name) for event in events] == [
                ("Copied", "1 key", "Warning", "a")
            ]

    run(main())


def test_invalid_definitions_are_rejected(server: Server) -> None:
    with pytest.raises(TypeError, match="async def"):
        steadfast.reconcile("pods")(lambda pod, context: None)  # type: ignore[arg-type,return-value]
    with pytest.raises(ValueError, match="concurrency"):
        steadfast.reconcile("pods", concurrency=0)

    @steadfast.reconcile("pods", changes=["spec..x"])
    async def invalid(obj: steadfast.Object, context: steadfast.Context) -> None: ...

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            with pytest.raises(ValueError, match="empty name"):
                await informers.run(invalid)
            with pytest.raises(ValueError, match="at least one"):
                await informers.run()

    run(main())


def test_reconciler_can_be_called_directly(server: Server) -> None:
    @steadfast.reconcile("pods")
    async def name(obj: steadfast.Object, context: steadfast.Context) -> steadfast.Requeue:
        return len(obj["metadata"]["name"])

    assert asyncio.run(name(pod("web-0"), None)) == 5  # type: ignore[arg-type]


PROGRAM = """
import sys
import steadfast_kube as steadfast

@steadfast.reconcile("configmaps", namespace="shop")
async def label(config, context):
    await context.client.patch("configmaps", context.key, {"metadata": {"labels": {"seen": "yes"}}})

steadfast.run(label, url=sys.argv[1], lease=sys.argv[2], lease_namespace="shop")
print("stopped")
"""


def test_program_runs_until_signal(server: Server) -> None:
    server.create(config_map("a"))
    command = [sys.executable, "-I", "-c", PROGRAM, server.url, "labels"]
    program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        with blocking.Informers(url=server.url) as informers:
            maps = informers.watch("configmaps", labels={"seen": "yes"})
            maps.until(lambda maps: "shop/a" in maps, PATIENCE)
        program.send_signal(signal.SIGTERM)
        output, _ = program.communicate(timeout=PATIENCE)
    finally:
        program.kill()
    assert (program.returncode, output) == (0, "stopped\n")
    # Another replica can lead at once.
    assert not server.get("leases.coordination.k8s.io", "shop", "labels")["spec"].get("holderIdentity")


@pytest.mark.parametrize("finalizer", ["no domain", "cleanup", "/cleanup", "example.com/", "Example.com/a", "a/b/c"])
def test_invalid_finalizer_is_rejected_at_the_decorator(finalizer: str) -> None:
    @steadfast.reconcile("configmaps")
    async def check(config: steadfast.Object, context: steadfast.Context) -> None: ...

    with pytest.raises(ValueError, match="use a domain, a slash and a name"):
        check.cleanup(finalizer)
    assert callable(check.cleanup("sub.example.com/Clean_up.1"))


def test_missing_parentheses_are_rejected() -> None:
    async def check(config: steadfast.Object, context: steadfast.Context) -> None: ...

    with pytest.raises(TypeError, match="reconcile needs the kind"):
        steadfast.reconcile(check)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="cleanup needs the name of a finalizer"):
        steadfast.reconcile("pods")(check).cleanup(check)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"owns must be a list: owns=\['pods'\]"):
        steadfast.reconcile("deployments", owns="pods")


def test_wrong_number_of_arguments_is_rejected() -> None:
    async def one(config: Any) -> None: ...

    async def keyword(config: Any, context: Any, *, option: int) -> None: ...

    async def optional(config: Any, context: Any, option: int = 3) -> None: ...

    for function in (one, keyword):
        with pytest.raises(TypeError, match=f"{function.__name__}.* must take two arguments: the object and the context"):
            steadfast.reconcile("pods")(function)  # type: ignore[arg-type]
    check = steadfast.reconcile("pods")(optional)
    with pytest.raises(TypeError, match="two arguments"):
        check.cleanup("example.com/check")(one)  # type: ignore[arg-type]


def test_direct_call_accepts_a_mapping() -> None:
    @steadfast.reconcile("shops.example.com")
    async def check(shop: steadfast.Object, context: Any) -> steadfast.Requeue:
        assert shop.key == "shop/a" and shop.spec.names[0] == "x"
        return int(shop.read("spec.size", 1))

    @check.cleanup("example.com/check")
    async def forget(shop: steadfast.Object, context: Any) -> steadfast.Requeue:
        return int(shop.read("spec.size", 2))

    body: dict[str, Any] = {"metadata": {"name": "a", "namespace": "shop"}, "spec": {"names": ["x"]}}
    assert run(check(body, None)) == 1
    assert run(forget(body, None)) == 2
    # Two controllers can have one cleanup function.
    assert steadfast.reconcile("pods")(forget).cleanup("example.com/check")(forget) is not forget
    body["spec"] = {"names": ["x"], "size": 5}
    assert run(check(steadfast.Object.from_json(json.dumps(body).encode()), None)) == 5


@pytest.mark.parametrize("with_finalizer", [False, True])
def test_failure_is_logged_once(server: Server, caplog: pytest.LogCaptureFixture, with_finalizer: bool) -> None:
    server.create(config_map("a"))
    attempts = 0

    @steadfast.reconcile("configmaps", namespace="shop", timeout=0.2)
    async def fail(config: steadfast.Object, context: steadfast.Context) -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise ValueError("not yet")
        if attempts == 2:
            await asyncio.sleep(PATIENCE)

    if with_finalizer:

        @fail.cleanup("example.com/fail")
        async def forget(config: steadfast.Object, context: steadfast.Context) -> None: ...

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers, running(informers, fail) as task:
            await eventually(lambda: attempts >= 3, task)
            # A timeout raises no exception in Python, so the library's own log message is the only report of it.
            await eventually(lambda: any("timed out" in record.getMessage() for record in caplog.records), task)

    run(main())
    failures = [record for record in caplog.records if "failed" in record.getMessage()]
    assert [(record.levelname, record.getMessage()) for record in failures] == [
        ("ERROR", "fail: the reconcile of shop/a failed")
    ]


def test_properties_are_documented() -> None:
    for owner in (steadfast.Context, steadfast.Leader):
        assert "A client whose" in str(owner.client.__doc__)
    assert steadfast.Context.informers.__doc__


def test_removed_child_does_not_delay_the_next_reconcile(server: Server) -> None:
    """The event of the deletion arrives before the end of the reconcile, so that no cache contains the child."""
    server.create(config_map("child"))
    server.create(pod("parent"))
    probe_counts: list[int] = []

    @steadfast.reconcile("pods", owns=["configmaps"])
    async def reconcile(parent: steadfast.Object, context: steadfast.Context) -> None:
        is_first = not probe_counts
        if is_first:
            children = context.informers.watch("configmaps")
            await children.synced(timeout=PATIENCE)
        probe_counts.append(len(server.requests("probe", resource="configmaps")))
        if is_first:
            await context.client.delete("configmaps", "shop/child")
            await eventually(lambda: len(children) == 0)
            await context.client.patch("pods", context.key, {"metadata": {"labels": {"step": "2"}}})

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers, running(informers, reconcile) as task:
            await eventually(lambda: len(probe_counts) > 1, task)
            # A wait for the deletion would request the version of the server.
            assert probe_counts[1] == probe_counts[0]

    run(main())
