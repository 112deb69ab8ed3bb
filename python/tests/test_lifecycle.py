"""Threads, processes, signals and event loops."""

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import steadfast_kube as steadfast
from conftest import PATIENCE, pod, run
from steadfast_kube import blocking
from steadfast_kube.testing import Server


# Without the wait for the package's threads, about one exit in ten crashed.
EXITS = 8


def threads() -> list[str]:
    """Returns the names of this process's threads of the package."""
    names = []
    for task in os.listdir("/proc/self/task"):
        # A thread may end in the meantime.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/self/task/{task}/comm") as comm:
            names.append(comm.read().strip())
    return sorted(name for name in names if name.startswith("steadfast"))


def test_no_thread_is_left(server: Server) -> None:
    server.create(pod("web-0"))

    async def main() -> None:
        tasks = asyncio.all_tasks()
        for _ in range(3):
            async with steadfast.Informers(url=server.url) as informers:
                pods = informers.watch("pods", index={"node": "spec.nodeName"})
                await pods.synced(timeout=PATIENCE)
        # Exceptions that earlier tests have caught may keep their informers until a collection.
        gc.collect()
        # The last state stays readable, without the threads that updated it. The kernel shortens their names.
        while threads() != ["steadfast-python"[:15], "steadfast-serve"]:
            await asyncio.sleep(0.01)
        assert list(pods) == ["shop/web-0"] and pods.by("node", "n1") == [pods["shop/web-0"]]
        assert isinstance(pods.freshness, steadfast.Stopped)
        assert asyncio.all_tasks() == tasks
        del informers, pods
        while threads() != ["steadfast-serve"]:
            await asyncio.sleep(0.01)

    run(main())


def test_forked_child_is_told(server: Server) -> None:
    server.create(pod("web-0"))
    with blocking.Informers(url=server.url) as informers:
        pods = informers.watch("pods")
        pods.synced(timeout=PATIENCE)
        web = pods["shop/web-0"]
        events = pods.events(timeout=PATIENCE)
        next(events)
        child = os.fork()
        if child == 0:
            # The exit status is the result; pytest must not continue in the child.
            status = 1
            try:
                uses: tuple[Callable[[], object], ...] = (
                    lambda: pods["shop/web-0"],
                    lambda: pods.freshness,
                    lambda: pods.memory,
                    lambda: pods.name,
                    lambda: informers.watch("pods"),
                    lambda: server.requests(),
                    lambda: next(events),
                )
                for use in uses:
                    try:
                        use()
                    except steadfast.Forked as error:
                        assert str(os.getppid()) in str(error)
                    else:
                        os._exit(2)
                assert str(os.getppid()) in repr(pods)
                # A child may leave a block of its parent, which stays open there.
                events.close()
                server.close()
                # Objects need no threads, and a child can have informers of its own.
                assert web.spec.nodeName == "n1"
                with blocking.Informers(url=server.url) as own:
                    again = own.watch("pods")
                    again.synced(timeout=PATIENCE)
                    assert list(again) == ["shop/web-0"]
                del use, uses, events, pods
                gc.collect()
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert pods["shop/web-0"] == web
        server.create(pod("web-1"))
        assert next(events).key == "shop/web-1"


def test_signal_ends_a_blocking_wait(server: Server) -> None:
    server.faults.refuse()
    # A shell starts background jobs with this signal ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with blocking.Informers(url=server.url) as informers:
            pods = informers.watch("pods")
            timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            with pytest.raises(KeyboardInterrupt):
                pods.synced(timeout=PATIENCE)
            timer.join()
    finally:
        signal.signal(signal.SIGINT, before)


def test_stop_affects_one_informer_only(server: Server) -> None:
    server.create(pod("web-0"))
    with blocking.Informers(url=server.url) as informers:
        one, other = informers.watch("pods"), informers.watch("pods")
        informers.synced(timeout=PATIENCE)
        events = one.events()
        one.stop()
        server.create(pod("web-1"))
        other.until(lambda pods: len(pods) == 2, PATIENCE)
        assert list(one) == ["shop/web-0"]
        assert list(events) == []
        assert isinstance(one.freshness, steadfast.Stopped) and other.freshness.is_fresh


def test_concurrent_starts_lose_no_informer(server: Server) -> None:
    class Ended:
        """A cache that has ended, during whose removal another thread starts an informer."""

        @property
        def ended(self) -> bool:
            if not started:
                started.append("configmaps")
                thread = threading.Thread(target=informers.watch, args=("configmaps",))
                thread.start()
                thread.join()
            return True

    started: list[str] = []
    with blocking.Informers(url=server.url) as informers:
        ended = (Ended(), None)
        informers._informers.append(ended)  # type: ignore[arg-type]
        informers.watch("pods")
        assert ended not in informers._informers and len(informers._informers) == 2


def test_several_event_loops_work(server: Server) -> None:
    server.create(pod("web-0"))

    async def main() -> int:
        async with steadfast.Informers(url=server.url) as informers:
            pods = informers.watch("pods")
            await pods.synced(timeout=PATIENCE)
            return len(pods)

    results: list[int] = []
    workers = [threading.Thread(target=lambda: results.append(run(main()))) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert results == [1, 1, 1]


def test_cancelled_waits_leave_nothing(server: Server) -> None:
    server.faults.refuse()

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            pods = informers.watch("pods")
            waits = [pods.synced(), pods.wait_for(7), pods.until(len), informers.synced()]
            tasks = [asyncio.ensure_future(wait) for wait in waits]
            await asyncio.sleep(0.05)
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(result, asyncio.CancelledError) for result in results)
            server.faults.heal()
            await pods.synced(timeout=PATIENCE)

    run(main())


def test_exit_with_open_informers_is_clean(server: Server) -> None:
    program = f"""
        import steadfast_kube.blocking as steadfast
        informers = steadfast.Informers(url={server.url!r})
        informers.__enter__()
        pods = informers.watch("pods")
        pods.synced(timeout=60)
        events = pods.events()
        print(pods.freshness.name)
    """
    # Isolated, so that the installed package is imported and not the sources in the current folder.
    command = [sys.executable, "-I", "-c", textwrap.dedent(program)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "fresh\n", "")


def test_blocking_events_and_waits(server: Server) -> None:
    with blocking.Informers(url=server.url) as informers:
        pods = informers.watch("pods")
        informers.synced(timeout=PATIENCE)
        informers.wait_for_write(server.create(pod("web-0")))
        assert list(pods) == ["shop/web-0"]
        events = pods.events(timeout=0.2)
        assert [event.key for event in events] == ["shop/web-0"]
        server.create(pod("web-1"))
        assert next(pods.events(PATIENCE)).key == "shop/web-0"
        pods.until(lambda pods: len(pods) == 2, PATIENCE)
        assert [event.key for event in events] == ["shop/web-1"]
        with pytest.raises(steadfast.NotReached):
            pods.until(lambda pods: len(pods) == 7, 0.1)


def test_threads_share_a_stream(server: Server) -> None:
    with blocking.Informers(url=server.url) as informers:
        pods = informers.watch("pods")
        pods.synced(timeout=PATIENCE)
        events = pods.events(PATIENCE)
        received: list[str] = []
        # Each reader ends after one event, and must leave the others to the remaining readers.
        readers = [threading.Thread(target=lambda: received.append(next(events).key)) for _ in range(4)]
        for reader in readers:
            reader.start()
        for number in range(4):
            server.create(pod(f"web-{number}"))
        for reader in readers:
            reader.join(PATIENCE)
        assert sorted(received) == [f"shop/web-{number}" for number in range(4)]


def test_closed_stream_ends_waiting_thread(server: Server) -> None:
    with blocking.Informers(url=server.url) as informers:
        events = informers.watch("pods").events()
        received: list[object] = []
        reader = threading.Thread(target=lambda: received.extend(events))
        reader.start()
        events.close()
        reader.join(PATIENCE)
        assert not reader.is_alive() and received == []


@pytest.mark.parametrize(
    "body",
    [
        # Correct programs, whose informers are closed.
        """
        async def main():
            async with steadfast.Informers(url=url) as informers:
                await start(informers)
        asyncio.run(main())
        """,
        # Informers that are open at the exit.
        """
        async def main():
            informers = await steadfast.Informers(url=url).__aenter__()
            await start(informers)
        asyncio.run(main())
        """,
        # Daemon threads that wait in the package, or return from it.
        """
        def wait():
            informers = blocking.Informers(url=url).__enter__()
            pods = informers.watch("pods")
            while True:
                with contextlib.suppress(steadfast.NotSynced):
                    pods.synced(timeout=0.001)
                waits.release()
        waits = threading.Semaphore(0)
        for _ in range(4):
            threading.Thread(target=wait, daemon=True).start()
        for _ in range(40):
            waits.acquire()
        """,
    ],
    ids=["closed", "open", "threads"],
)
def test_exit_does_not_crash(tmp_path: Path, body: str) -> None:
    # No server listens there, so that the informers log warnings until the exit.
    setup = """
        import asyncio, contextlib, logging, threading
        import steadfast_kube as steadfast
        from steadfast_kube import blocking
        url = "http://127.0.0.1:1"
        class Counter(logging.Handler):
            def emit(self, record):
                records.release()
        records = threading.Semaphore(0)
        logging.getLogger("steadfast_kube").setLevel(logging.DEBUG)
        logging.getLogger("steadfast_kube").addHandler(Counter())
        async def start(informers):
            for number in range(30):
                informers.watch("pods", f"ns{number}")
            for _ in range(5):
                await asyncio.to_thread(records.acquire)
    """
    program = textwrap.dedent(setup) + textwrap.dedent(body)
    for _ in range(EXITS):
        command = [sys.executable, "-c", program]
        # In another folder, because this one may contain the sources of the package.
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stderr[-2000:]


def test_exit_waits_for_running_log_handler(server: Server, tmp_path: Path) -> None:
    program = """
        import asyncio, atexit, logging, sys, threading, time
        import steadfast_kube as steadfast
        class Handler(logging.Handler):
            def createLock(self):
                # The exit would otherwise wait for the lock of the handler.
                self.lock = None
            def emit(self, record):
                started.set()
                exiting.wait()
                # Each of these calls releases the GIL, so that the exit could continue in the meantime.
                for _ in range(1000):
                    time.sleep(0)
                print("handled", flush=True)
        started, exiting = threading.Event(), threading.Event()
        # Runs before the hook of the package, which was registered earlier.
        atexit.register(exiting.set)
        logging.getLogger("steadfast_kube").addHandler(Handler())
        async def main():
            async with steadfast.Informers(url=sys.argv[1]) as informers:
                informers.watch("podz")
                await asyncio.to_thread(started.wait)
        asyncio.run(main())
    """
    command = [sys.executable, "-c", textwrap.dedent(program), server.url]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False, cwd=tmp_path)
    # The handler runs in another thread. A finalization in the meantime would end that thread.
    assert (done.returncode, done.stdout.split()[:1]) == (0, [b"handled"]), done.stderr[-2000:]


def test_late_exit_handler_receives_an_error(server: Server, tmp_path: Path) -> None:
    program = """
        import asyncio, atexit, sys
        # Registered before the import, so that it runs after the hook of the package.
        atexit.register(lambda: at_exit())
        import steadfast_kube as steadfast
        from steadfast_kube import blocking
        def at_exit():
            for coroutine in (open_informers(), pods.synced(60)):
                try:
                    asyncio.run(coroutine)
                except RuntimeError as error:
                    print(error)
            with blocking.Informers(url=sys.argv[1]) as informers:
                namespaces = informers.watch("namespaces")
                namespaces.synced(timeout=60)
                print(*namespaces)
        async def open_informers():
            await steadfast.Informers(url=sys.argv[1]).__aenter__()
        async def main():
            global pods
            async with steadfast.Informers(url=sys.argv[1]) as informers:
                pods = informers.watch("pods")
        asyncio.run(main())
    """
    command = [sys.executable, "-c", textwrap.dedent(program), server.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=tmp_path)
    *errors, names = done.stdout.splitlines()
    assert done.returncode == 0 and "shop" in names.split(), done.stderr[-2000:]
    assert len(errors) == 2 and all(error.startswith("the interpreter is exiting") for error in errors), errors
