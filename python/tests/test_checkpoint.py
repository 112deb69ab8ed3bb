"""Caches that survive a restart of the program."""

import logging
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import steadfast_kube as steadfast
from conftest import PATIENCE, eventually, pod, run, state
from steadfast_kube import blocking
from steadfast_kube.testing import Server


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The path of a new checkpoint."""
    return tmp_path / "cache"


def lists(server: Server, resource: str = "pods") -> int:
    """Returns the number of lists so far."""
    return len(server.requests("list", "page", "streamed_list", resource=resource))


async def restart(server: Server, file: Path, kind: str = "pods", **settings: bool) -> list[str]:
    """Runs a program once, and returns the keys of its fresh cache."""
    async with steadfast.Informers(url=server.url, checkpoint=file) as informers:
        informer = informers.watch(kind, **settings)
        await informer.synced(timeout=PATIENCE)
        await state(informer, "fresh")
        return list(informer)


def test_restored_cache_is_readable_and_in_doubt(server: Server, file: Path) -> None:
    created = server.create(pod("web-0"))

    async def main() -> None:
        assert await restart(server, file) == ["shop/web-0"]
        assert lists(server) == 1
        server.delete("pods", "shop", "web-0")
        server.create(pod("web-1"))
        # The restored state is not confirmed as long as the server does not identify its cluster.
        server.faults.respond(503, "get", resource="namespaces")
        async with steadfast.Informers(url=server.url, checkpoint=file) as informers:
            pods = informers.watch("pods", index={"node": "spec.nodeName"})
            await pods.synced(timeout=PATIENCE)
            assert isinstance(pods.freshness, steadfast.Resuming)
            assert "checkpoint" in pods.freshness.reason
            assert pods["shop/web-0"].uid == created["metadata"]["uid"]
            assert pods["shop/web-0"].spec.nodeName == "n1" and len(pods.by("node", "n1")) == 1
            assert "shop/web-1" not in pods
            server.faults.respond_normally()
            await state(pods, "fresh")
            await pods.until(lambda pods: list(pods) == ["shop/web-1"], PATIENCE)
        assert lists(server) == 1, "the second run resumed the watch"

    run(main())


@pytest.mark.parametrize("fault", ["cut", "black_hole"])
def test_restored_cache_is_readable_while_server_is_down(server: Server, file: Path, fault: str) -> None:
    server.create(pod("web-0"))

    async def main() -> None:
        await restart(server, file, "po")
        getattr(server.faults, fault)()
        server.create(pod("web-1"))
        async with steadfast.Informers(url=server.url, checkpoint=file) as informers:
            pods = informers.watch("po")
            await pods.synced(timeout=PATIENCE)
            assert list(pods) == ["shop/web-0"] and pods["shop/web-0"].kind == "Pod"
            assert isinstance(pods.freshness, steadfast.Doubt)
            # Only a name of the earlier run has a stored resource.
            with pytest.raises(steadfast.NotSynced, match="cannot look up|being looked up"):
                await informers.watch("pods").synced(timeout=0.1)
            server.faults.heal()
            await state(pods, "fresh")
            assert list(pods) == ["shop/web-0", "shop/web-1"]
        assert lists(server) <= 2, "one list of this informer, and at most one of the other"

    run(main())


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"server": 1}', b'{"resources": {"pods": {"group": 7}}}', b"\xff"]
)
def test_damaged_resources_are_ignored(server: Server, file: Path, content: bytes) -> None:
    server.create(pod("web-0"))
    resources = file.with_name("cache.resources")

    async def main() -> None:
        await restart(server, file)
        written = resources.read_bytes()
        resources.write_bytes(content)
        assert await restart(server, file) == ["shop/web-0"]
        assert resources.read_bytes() == written, "replaced"

    run(main())


def test_changed_resource_is_reported(server: Server, file: Path, caplog: pytest.LogCaptureFixture) -> None:
    resources = file.with_name("cache.resources")

    async def main() -> None:
        await restart(server, file)
        resources.write_text(resources.read_text().replace('"v1"', '"v0"'))
        server.faults.cut()
        caplog.set_level(logging.WARNING, logger="steadfast_kube")
        async with steadfast.Informers(url=server.url, checkpoint=file) as informers:
            pods = informers.watch("pods")
            # The informer has started with the stored resource.
            await eventually(lambda: pods._cache.resource)
            server.faults.heal()
            await eventually(lambda: pods.freshness.name == "failed")
            await eventually(lambda: any("another resource" in record.getMessage() for record in caplog.records))
        assert await restart(server, file) == []

    run(main())


def test_restored_cache_is_delivered_as_initial(server: Server, file: Path) -> None:
    server.create(pod("web-0"))

    async def main() -> None:
        await restart(server, file)
        server.delete("pods", "shop", "web-0")
        async with steadfast.Informers(url=server.url, checkpoint=str(file)) as informers:
            events = informers.watch("pods").events()
            added, deleted = [await events.__anext__() for _ in range(2)]
            assert isinstance(added, steadfast.Added) and added.initial and added.key == "shop/web-0"
            assert isinstance(deleted, steadfast.Deleted) and deleted.certainty == "observed"

    run(main())


def test_expired_version_is_listed_and_compared(server: Server, file: Path) -> None:
    server.create(pod("web-0"))
    server.create(pod("web-1"))

    async def main() -> None:
        await restart(server, file)
        server.delete("pods", "shop", "web-0")
        server.compact()
        server.faults.expire_events()
        assert await restart(server, file) == ["shop/web-1"]
        assert lists(server) == 2

    run(main())


def test_secrets_are_stored_on_request_only(server: Server, file: Path) -> None:
    server.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "namespace": "shop"}})

    async def main() -> None:
        for run_number in (1, 2):
            assert "shop/a" in await restart(server, file, "secrets")
            assert lists(server, "secrets") == run_number, "not stored by default"
        for _ in range(2):
            assert "shop/a" in await restart(server, file, "secrets", checkpoint=True)
        assert lists(server, "secrets") == 3, "the last run resumed the watch"

    run(main())


def test_informer_without_checkpoint_is_not_stored(server: Server, file: Path) -> None:
    server.create(pod("web-0"))

    async def main() -> None:
        for _ in range(2):
            await restart(server, file, checkpoint=False)
        assert lists(server) == 2

    run(main())


def test_file_of_another_cluster_is_not_used(server: Server, file: Path) -> None:
    server.create(pod("web-0"))

    async def main() -> None:
        await restart(server, file)
        with Server() as other:
            other.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
            other.create(pod("db-0"))
            assert await restart(other, file) == ["shop/db-0"]

    run(main())


def test_damaged_file_is_set_aside(server: Server, file: Path, caplog: pytest.LogCaptureFixture) -> None:
    server.create(pod("web-0"))

    async def main() -> None:
        await restart(server, file)
        file.write_bytes(b"damaged" * 1000)
        caplog.set_level(logging.WARNING, logger="steadfast_kube")
        assert await restart(server, file) == ["shop/web-0"]

    run(main())
    assert file.with_name("cache.unreadable").read_bytes().startswith(b"damaged")
    assert lists(server) == 2
    messages = [record.getMessage() for record in caplog.records]
    assert any("cannot read the checkpoint" in message and str(file) in message for message in messages), messages


@pytest.mark.parametrize("length", [0, 1, 4095, 4096, 9000])
def test_truncated_file_costs_one_list(server: Server, file: Path, length: int) -> None:
    server.create(pod("web-0"))

    async def main() -> None:
        await restart(server, file)
        os.truncate(file, length)
        assert await restart(server, file) == ["shop/web-0"]

    run(main())
    assert lists(server) == 2


@pytest.mark.parametrize("place", ["missing/cache", "folder", "plain/cache"])
def test_unusable_path_is_named(server: Server, tmp_path: Path, place: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "plain").touch()

    async def main() -> None:
        with pytest.raises(steadfast.CheckpointError, match="cannot be opened") as raised:
            async with steadfast.Informers(url=server.url, checkpoint=tmp_path / place):
                pass
        assert str(tmp_path / place) in str(raised.value)

    run(main())
    with pytest.raises(steadfast.CheckpointError, match="cannot be opened"):
        with blocking.Informers(url=server.url, checkpoint=tmp_path / place):
            pass


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to each folder")
def test_read_only_folder_is_named(server: Server, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(steadfast.CheckpointError, match="Permission denied"):
        with blocking.Informers(url=server.url, checkpoint=tmp_path / "cache"):
            pass


def test_locked_file_names_its_process(server: Server, file: Path) -> None:
    program = f"""
        import steadfast_kube.blocking as steadfast
        with steadfast.Informers(url={server.url!r}, checkpoint={str(file)!r}):
            print("open", flush=True)
            input()
    """
    command = [sys.executable, "-I", "-c", textwrap.dedent(program)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stdout.readline() == "open\n"
        with pytest.raises(steadfast.CheckpointError, match=f"in use by process {child.pid} ") as raised:
            with blocking.Informers(url=server.url, checkpoint=file):
                pass
        assert str(file) in str(raised.value)
        child.communicate("\n", timeout=PATIENCE)
    # The end of the block unlocks the file, also within one process.
    for _ in range(2):
        with blocking.Informers(url=server.url, checkpoint=file) as informers:
            informers.watch("pods").synced(timeout=PATIENCE)


def test_forked_child_does_not_keep_the_lock(server: Server, file: Path) -> None:
    ends = os.pipe()
    with blocking.Informers(url=server.url, checkpoint=file) as informers:
        informers.watch("pods").synced(timeout=PATIENCE)
        child = os.fork()
        if child == 0:
            os.close(ends[1])
            os.read(ends[0], 1)
            os._exit(0)
    os.close(ends[0])
    try:
        with blocking.Informers(url=server.url, checkpoint=file) as informers:
            informers.watch("pods").synced(timeout=PATIENCE)
    finally:
        os.close(ends[1])
        os.waitpid(child, 0)


def test_second_use_within_process_is_rejected(server: Server, file: Path) -> None:
    async def main() -> None:
        async with steadfast.Informers(url=server.url, checkpoint=file):
            with pytest.raises(steadfast.CheckpointError, match=f"process {os.getpid()} "):
                async with steadfast.Informers(url=server.url, checkpoint=file):
                    pass

    run(main())


def test_conflicting_informers_are_reported(server: Server, file: Path) -> None:
    async def main() -> None:
        async with steadfast.Informers(url=server.url, checkpoint=file) as informers:
            await informers.watch("pods").synced(timeout=PATIENCE)
            with pytest.raises(steadfast.NotSynced, match="checkpoint"):
                await informers.watch("pods", checkpoint=False).synced(timeout=PATIENCE)

    run(main())


def test_missing_checkpoint_is_reported(server: Server) -> None:
    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            with pytest.raises(ValueError, match="Informers\\(checkpoint=…\\)"):
                informers.watch("pods", checkpoint=True)

    run(main())


def test_failed_block_unlocks_the_file(server: Server, file: Path) -> None:
    async def main() -> None:
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                async with steadfast.Informers(url=server.url, checkpoint=file) as informers:
                    await informers.watch("pods").synced(timeout=PATIENCE)
                    raise ZeroDivisionError

    run(main())
