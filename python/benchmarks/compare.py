"""Measures steadfast-kube next to other Python clients in one run, and prints a table in Markdown.

    pip install -r benchmarks/requirements.txt
    python benchmarks/compare.py

Each server is an embedded one, in a process of its own. Each client runs in a process of its own, so that its memory and
processor time are its own. A client that is not installed or that fails is reported in its column. The run takes about
ten minutes; `--only steadfast` needs no other client.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Optional

from clients import CLIENTS, ClientProcess
from servers import ServerProcess

RATES = (5000, 1000, 250)
"""Changes a second that are tried in turn, until a client keeps up."""

BEARABLE_SECONDS = 40.0
BEARABLE_BYTES = 3e9
"""A client gets all pods only if it would need at most this time and this memory for them."""

STALL_FACTOR = 2.5
"""A stalled watch looks like one without changes, so that clients wait longer before they ask the server."""

READING = "all pods passed to a function, which reads three fields"

Cells = dict[str, str]


class Comparison:
    """The clients, and the rows so far."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.rows: list[tuple[str, Cells]] = []
        self.names: list[str] = []
        self.versions: dict[str, str] = {}

    def row(self, title: str, cells: Cells) -> None:
        self.rows.append((title, cells))
        for name in self.names:
            self.say(f"{title}: {name}: {cells.get(name, '')}")

    def say(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)

    @contextmanager
    def client(self, name: str, server: Any) -> Iterator[Any]:
        """Runs a client in a new process."""
        process = ClientProcess()
        process.start()
        try:
            client = process.create(name, server.kubeconfig())
            self.versions.setdefault(name, client.version())
            yield client
        finally:
            process.shutdown()

    @contextmanager
    def server(self, pods: int) -> Iterator[Any]:
        """Runs a server in a new process, so that no earlier server has an effect on its memory."""
        with ServerProcess() as servers:
            server = servers.BenchServer(pods)
            try:
                yield server
            finally:
                server.close()

    def each(self, measure: Callable[[str], str], parallel: bool) -> Cells:
        """Measures each client. A failure is the content of its cell."""

        def attempt(name: str) -> str:
            try:
                return measure(name)
            except Exception as error:
                return failure(error)

        with ThreadPoolExecutor(len(self.names) if parallel else 1) as pool:
            return dict(zip(self.names, pool.map(attempt, self.names)))

    # Parts.

    def fixture(self) -> None:
        with ServerProcess() as servers:
            median, longest = servers.start_times(20)._getvalue()
        cells = {name: "has none" for name in self.names}
        if "steadfast" in cells:
            cells["steadfast"] = f"{median * 1000:.1f} ms (median of 20; maximum {longest * 1000:.1f})"
        self.row("start of a test server", cells)

    def sync_and_events(self) -> None:
        pods, peer_pods = self.options.pods, min(self.options.pods, self.options.peer_pods)
        results: dict[str, Cells] = {name: {} for name in self.names}
        peers = [name for name in self.names if name != "steadfast"]
        bearable = []
        if peers:
            with self.server(peer_pods) as server:
                for name in peers:
                    sync = self.sync_and_events_of(name, server, peer_pods, results[name])
                    factor = pods / peer_pods
                    # Objects that are freed during the sync are part of neither figure.
                    if factor > 1 and sync and sync["seconds"] * factor < BEARABLE_SECONDS:
                        if sync["memory"] * pods < BEARABLE_BYTES:
                            bearable.append(name)
        if "steadfast" in self.names and peers and peer_pods < pods:
            with self.server(peer_pods) as server:
                self.sync_and_events_of("steadfast", server, peer_pods, results["steadfast"], events=False)
        with self.server(pods) as server:
            for name in [name for name in self.names if name == "steadfast"] + bearable:
                self.sync_and_events_of(name, server, pods, results[name], name == "steadfast")
        titles = list(dict.fromkeys(title for cells in results.values() for title in cells))
        order = ["first sync", "processor time of the sync, per pod", "memory of a pod", READING, "event: processor time", "events"]
        for title in sorted(titles, key=lambda title: order.index(title.partition(" [")[0])):
            self.row(title, {name: cells.get(title, "") for name, cells in results.items()})

    def sync_and_events_of(
        self, name: str, server: Any, pods: int, cells: Cells, events: bool = True
    ) -> Optional[dict[str, float]]:
        self.say(f"{name}: {pods:,} pods")
        sync = None
        try:
            with self.client(name, server) as client:
                sync = client.sync(pods, 240)
                add(cells, "first sync", f"{pods:,} pods: {sync['seconds']:.2f} s")
                add(cells, "processor time of the sync, per pod", f"{pods:,} pods: {1e6 * sync['cpu'] / pods:,.0f} µs")
                add(cells, "memory of a pod", f"{pods:,} pods: {sync['memory'] / 1000:.1f} KB")
                if name == "steadfast":
                    read = client.deliver(pods)
                    processor, memory = f"{1e6 * read['cpu'] / pods:,.0f} µs a pod", f"{read['memory'] / 1000:.1f} KB a pod"
                    text = f"{read['seconds']:.2f} s ({processor}), memory afterwards {memory}"
                    add(cells, READING, f"{pods:,} pods: {text}")
                else:
                    cells[READING] = "part of the sync"
                if events:
                    self.events_of(client, server, cells)
        except Exception as error:
            add(cells, "first sync" if sync is None else "event: processor time", failure(error))
        return sync

    def events_of(self, client: Any, server: Any, cells: Cells) -> None:
        for rate in RATES:
            client.begin_events()
            count = int(rate * self.options.seconds)
            actual = server.churn(count, rate)
            marked = server.mark()
            result = client.end_events(120)
            lag = result["at"] - marked
            server.unmark()
            cells["event: processor time"] = f"{1e6 * result['cpu']:,.0f} µs at {actual:,.0f} changes/s"
            cells["events"] = f"{result['events']:,.0f} of {count + 1:,}"
            if lag < 1:
                return
        cells["event: processor time"] += f", the last one {lag:.0f} s late"

    def faults(self) -> None:
        """Time until a client tells its program that its state may be old, for all faults at once."""
        wait = self.options.fault_seconds

        def reported(fault: str, name: str) -> str:
            with self.server(10) as server, self.client(name, server) as client:
                client.sync(10, 60)
                until_watching(server)
                since = server.fault(fault)
                return first_report(client, since, wait)

        def stalled(_: str, name: str) -> str:
            with self.server(10) as server, self.client(name, server) as client:
                client.sync(10, 60)
                until_watching(server)
                client.begin_log()
                since = server.fault("stall_streams")
                # The server is healthy, and a client that asks it would see this change.
                server.mark()
                return first_report(client, since, STALL_FACTOR * wait)

        rows = {
            "frozen server: reported after": (reported, "freeze"),
            "black hole: reported after": (reported, "black_hole"),
            "stalled watch, healthy server: reported or repaired after": (stalled, ""),
        }
        with ThreadPoolExecutor(len(rows)) as pool:
            run = lambda row: self.each(lambda name: row[0](row[1], name), parallel=True)
            for title, cells in zip(rows, pool.map(run, rows.values())):
                self.row(title, cells)

    def requests(self) -> None:
        """Requests to a server that has failed after the sync, for both failures at once."""
        wait = self.options.request_seconds

        def errors(server: Any, client: Any) -> str:
            before = len(server.requests())
            since = server.fault("respond", 500)
            server.fault("end_watches")
            time.sleep(wait)
            return f"{len(server.requests()) - before:,}{ending(client, since)}"

        def closes(server: Any, client: Any) -> str:
            before = server.connections()
            since = server.fault("accept_and_close")
            server.fault("reset")
            time.sleep(wait)
            return f"{server.connections() - before:,}{ending(client, since)}"

        def measure(fail: Callable[[Any, Any], str], name: str) -> str:
            with self.server(10) as server, self.client(name, server) as client:
                client.sync(10, 60)
                until_watching(server)
                return fail(server, client)

        titles = (f"requests in {wait:.0f} s, each rejected with 500", f"connections in {wait:.0f} s, each closed at once")
        with ThreadPoolExecutor(2) as pool:
            run = lambda fail: self.each(lambda name: measure(fail, name), parallel=True)
            for title, cells in zip(titles, pool.map(run, (errors, closes))):
                self.row(title, cells)

    def storm(self) -> None:
        """Requests while each watch fails with 410, one client at a time."""
        wait = self.options.storm_seconds

        def measure(name: str) -> str:
            with self.server(100) as server, self.client(name, server) as client:
                client.sync(100, 60)
                until_watching(server)
                before = Counter(verb for verb, _ in server.requests())
                since = server.fault("respond", 410, "watch", "streamed_list", resource="pods", in_stream=True)
                server.fault("end_watches")
                time.sleep(wait)
                after = Counter(verb for verb, _ in server.requests())
                after.subtract(before)
                lists = after["list"] + after["streamed_list"]
                return f"{lists:,} lists, {after['watch']:,} watches{ending(client, since)}"

        self.row(f"410 to each watch, {wait:.0f} s", self.each(measure, parallel=False))

    def recreate(self) -> None:
        """Events of a pod that was deleted and created during an outage whose watch then expired."""

        def measure(name: str) -> str:
            with self.server(10) as server, self.client(name, server) as client:
                client.sync(10, 60)
                until_watching(server)
                client.begin_log(restarts=True)
                server.fault("cut")
                pod = "web-00000-7d4b9c6f5d-3"
                old, new = server.recreate(pod)
                server.fault("expire_events")
                time.sleep(1)
                since = server.fault("heal")
                while time.monotonic() < since + 30:
                    events = client.events_of(pod)
                    if new in (uid for _, uid in events):
                        break
                    time.sleep(0.1)
                texts = [f"{kind} ({'old' if uid == old else 'new'})" for kind, uid in events]
                restarted = any(text.startswith(("raises", "the loop")) for _, text in client.reports_since(0))
                return (", ".join(texts) or "none within 30 s") + ("; after a restart of the loop" if restarted else "")

        self.row("delete and create across a 410", self.each(measure, parallel=True))

    # Output.

    def table(self) -> str:
        heads = [f"{name} {self.versions.get(name, '')}".strip() for name in self.names]
        lines = ["| | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
        for title, cells in self.rows:
            lines.append(f"| {title} | " + " | ".join(cells.get(name, "").replace("|", "/") for name in self.names) + " |")
        return "\n".join(lines)


def add(cells: Cells, title: str, text: str) -> None:
    cells[title] = f"{cells[title]}; {text}" if title in cells else text


def short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:57] + "…"


def failure(error: Exception) -> str:
    return f"failed: {short(f'{type(error).__name__}: {error}')}"


def ending(client: Any, since: float) -> str:
    """Returns how a client that has ended told its program."""
    ends = [text for _, text in client.reports_since(since) if text.startswith(("raises", "the loop"))]
    return f", then {ends[0].partition(':')[0]}" if ends else ""


def first_report(client: Any, since: float, wait: float) -> str:
    """Returns the first report of a client since a time, or that it has received a change which it had missed."""
    while time.monotonic() < since + wait:
        reports = client.reports_since(since)
        if reports:
            seconds, text = reports[0]
            return f"{seconds:.1f} s: {short(text)}"
        if client.is_marked():
            return f"{time.monotonic() - since:.1f} s: repaired"
        time.sleep(0.2)
    return f"not within {wait:.0f} s"


def until_watching(server: Any) -> None:
    """Waits for the watch that follows a list."""
    deadline = time.monotonic() + 30
    while server.open_watches() == 0:
        if time.monotonic() > deadline:
            raise TimeoutError("no watch within 30 s")
        time.sleep(0.05)
    # The client has received the headers.
    time.sleep(0.5)


PARTS: dict[str, Callable[[Comparison], None]] = {
    "fixture": Comparison.fixture,
    "sync": Comparison.sync_and_events,
    "faults": Comparison.faults,
    "requests": Comparison.requests,
    "storm": Comparison.storm,
    "recreate": Comparison.recreate,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="clients to measure, separated by commas", default=",".join(CLIENTS))
    parser.add_argument("--parts", help="parts to run, separated by commas", default=",".join(PARTS))
    parser.add_argument("--pods", type=int, default=100_000, help="pods for steadfast and for peers that can bear them")
    parser.add_argument("--peer-pods", type=int, default=2_000, help="pods for the other clients")
    parser.add_argument("--seconds", type=float, default=5, help="duration of the changes for the cost of an event")
    parser.add_argument("--fault-seconds", type=float, default=60, help="maximum wait for the report of a fault")
    parser.add_argument("--request-seconds", type=float, default=30, help="time in which requests are counted")
    parser.add_argument("--storm-seconds", type=float, default=5, help="duration of the 410 responses")
    options = parser.parse_args()
    for choice, known in ((options.only, CLIENTS), (options.parts, PARTS)):
        unknown = set(choice.split(",")) - set(known)
        if unknown:
            parser.error(f"{', '.join(sorted(unknown))}: not one of {', '.join(known)}")
    comparison = Comparison(options)
    for name in options.only.split(","):
        if importlib.util.find_spec(CLIENTS[name].module.partition(".")[0]) is None:
            comparison.say(f"{name} is not installed; see benchmarks/requirements.txt")
        else:
            comparison.names.append(name)
    for part in options.parts.split(","):
        PARTS[part](comparison)
    system = f"{os.cpu_count()} cores, Python {platform.python_version()}, {datetime.date.today().isoformat()}"
    print(f"{comparison.table()}\n\n{system}")


if __name__ == "__main__":
    main()
