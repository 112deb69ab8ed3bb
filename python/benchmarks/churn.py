"""Changes pods for a long time, and checks that memory, threads and tasks of steadfast-kube stay constant.

    python benchmarks/churn.py                      # 10 million changes: a day at 116 changes a second
    python benchmarks/churn.py --changes 1000000

One informer and its stream live for the whole run. In the meantime, others are opened, read and closed, with and without
an event that is pending. The exit status is 1 if the resident memory or the number of Python's objects has grown by more
than 3 % after the warm-up, or if a thread or task is left after `async with`.

Python allocates small objects in blocks of memory that it reuses, so their number is measured separately.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import statistics
import sys
import time
from typing import Any

from clients import resident
from servers import ServerProcess

MAX_GROWTH = 0.03
KEPT_CHANGES = 20_000
"""Changes that the server keeps, so that its own memory is bounded."""


def python_blocks() -> int:
    """Returns the number of Python's memory blocks, about one for each small object."""
    gc.collect()
    return sys.getallocatedblocks()


def threads() -> list[str]:
    """Returns the names of the package's threads in this process."""
    names = []
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/comm") as comm:
                names.append(comm.read().strip())
        except (FileNotFoundError, ProcessLookupError):
            # The thread has ended in the meantime.
            pass
    return sorted(name for name in names if name.startswith("steadfast"))


async def short_life(url: str) -> None:
    """Opens, reads and closes informers of all pods, of some pods, and of another resource."""
    import steadfast_kube as steadfast

    async with steadfast.Informers(url=url) as informers:
        pods = informers.watch("pods", index={"node": "spec.nodeName"})
        some = informers.watch("pods", namespace="default", labels={"app": "web-1"})
        namespaces = informers.watch("namespaces")
        await informers.synced(timeout=600)
        events = pods.events()
        for key in list(pods)[:100]:
            assert pods[key].spec.nodeName and (await events.__anext__()).object.to_dict()
        assert len(some) <= len(pods) and pods.by("node", "node-1") and len(namespaces) > 0
        pending = asyncio.create_task(namespaces.until(lambda _: False))
        stream = some.events()
        reader = asyncio.create_task(read(stream, [0]))
        await asyncio.sleep(0.05)
        # One task is cancelled; the stream of the other one ends with the block.
        pending.cancel()
    await asyncio.wait_for(reader, 60)


async def read(events: Any, received: list[int]) -> None:
    async for event in events:
        received[0] += 1
        assert event.key


async def run(options: argparse.Namespace, server: Any) -> bool:
    import steadfast_kube as steadfast

    url, count, tenth = server.url(), options.changes // options.rounds, options.rounds // 10
    tasks, received, samples, start = asyncio.all_tasks(), [0], [], time.monotonic()
    async with steadfast.Informers(url=url) as informers:
        pods = informers.watch("pods", index={"node": "spec.nodeName"})
        await pods.synced(timeout=600)
        reader = asyncio.create_task(read(pods.events(), received))
        for number in range(options.rounds):
            changes = asyncio.create_task(asyncio.to_thread(server.churn, count, options.rate, KEPT_CHANGES))
            await short_life(url)
            await changes
            name = next(iter(pods)).partition("/")[2]
            await asyncio.to_thread(server.recreate, name)
            await pods.wait_for(await asyncio.to_thread(server.revision), timeout=600)
            samples.append((resident(), python_blocks()))
            if (number + 1) % tenth == 0:
                print(
                    f"{(number + 1) * count:,} changes, {received[0]:,} events, {time.monotonic() - start:.0f} s, "
                    f"{samples[-1][0] / 1e6:.1f} MB resident, {samples[-1][1]:,} blocks of Python, "
                    f"{time.process_time():.0f} s of processor",
                    flush=True,
                )
    await asyncio.wait_for(reader, 60)
    del informers, pods, reader, changes
    deadline = time.monotonic() + 10
    while (threads() or asyncio.all_tasks() != tasks) and time.monotonic() < deadline:
        resident()
        await asyncio.sleep(0.05)
    left = threads() + [str(task) for task in asyncio.all_tasks() - tasks]
    growths = []
    for title, sizes in zip(("resident memory, MB", "blocks of Python, millions"), zip(*samples)):
        # The first tenth is the warm-up. Medians, since a single sample depends on what the server has just sent.
        first, last = statistics.median(sizes[tenth : 2 * tenth]), statistics.median(sizes[-tenth:])
        growths.append(last / first - 1)
        print(
            f"{title}: {first / 1e6:.2f} after the warm-up, {last / 1e6:.2f} at the end ({growths[-1]:+.1%}), "
            f"between {min(sizes[tenth:]) / 1e6:.2f} and {max(sizes[tenth:]) / 1e6:.2f}"
        )
    print(f"threads and tasks left: {', '.join(left) or 'none'}")
    if options.changes < 1_000_000:
        # The allocator needs time to settle.
        print("memory not checked: fewer than 1,000,000 changes")
        return not left
    return max(growths) <= MAX_GROWTH and not left


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=100, help="short informers, and samples of the memory; at least 10")
    parser.add_argument("--pods", type=int, default=1_000)
    parser.add_argument("--rate", type=float, help="maximum number of changes a second")
    options = parser.parse_args()
    with ServerProcess() as servers:
        server = servers.BenchServer(options.pods, 0)
        passed = asyncio.run(run(options, server))
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
