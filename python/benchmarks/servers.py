"""The embedded server in a process of its own, with the pods and faults of the benchmarks."""

from __future__ import annotations

import multiprocessing
import os
import statistics
import threading
import time
import urllib.request
from multiprocessing.managers import BaseManager
from typing import Any, Optional

MARKER = "marker"
"""Name of the pod that ends a series of changes."""


def pod(number: int, settings: int = 20) -> dict[str, Any]:
    """Returns a pod with the fields that a deployment's pod has on a real server, and with environment variables."""
    variables = [{"name": f"SETTING_{at}", "value": f"value-{at}-of-the-deployment"} for at in range(settings)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"web-{number // 10:05}-7d4b9c6f5d-{number % 10}",
            "namespace": "default",
            "labels": {"app": f"web-{number // 10}", "pod-template-hash": "7d4b9c6f5d"},
        },
        "spec": {
            "nodeName": f"node-{number % 1000}",
            "serviceAccountName": "default",
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example.com/shop/web:1.4.2",
                    "env": variables,
                    "ports": [{"containerPort": 8080, "protocol": "TCP"}],
                    "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
                }
            ],
        },
        "status": {
            "phase": "Running",
            "podIP": f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}",
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": "2026-11-26T08:00:00Z"}
                for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
            ],
        },
    }


class BenchServer:
    """A server with pods. Its methods are called from another process."""

    def __init__(self, pods: int, settings: int = 20) -> None:
        from steadfast_kube.testing import Server

        self._server = Server()
        for number in range(pods):
            self._server.create(pod(number, settings))
        # The server encodes each pod once. No client should be the one that waits for this.
        with urllib.request.urlopen(f"{self._server.url}/api/v1/pods") as response:
            while response.read(1 << 20):
                pass

    def url(self) -> str:
        return self._server.url

    def kubeconfig(self) -> str:
        return self._server.kubeconfig

    def close(self) -> None:
        self._server.close()

    def fault(self, name: str, *arguments: Any, **settings: Any) -> float:
        """Switches a fault and returns the time of the monotonic clock, which all processes share."""
        getattr(self._server.faults, name)(*arguments, **settings)
        return time.monotonic()

    def churn(self, count: int, rate: Optional[float] = None, keep: Optional[int] = None) -> float:
        """Changes the pods, and returns the number of changes a second. `keep` limits the history of the server."""
        start = time.monotonic()
        self._server.churn("pods", count, rate)
        if keep is not None:
            self._server.forget_history(keep)
        return count / (time.monotonic() - start)

    def mark(self) -> float:
        """Creates the marker after all changes, and returns the time."""
        marker = pod(0)
        marker["metadata"]["name"] = MARKER
        self._server.create(marker)
        return time.monotonic()

    def unmark(self) -> None:
        """Deletes the marker."""
        self._server.delete("pods", "default", MARKER)

    def recreate(self, name: str) -> tuple[str, str]:
        """Deletes and creates a pod, and returns the old and the new UID."""
        old = self._server.delete("pods", "default", name)
        new = self._server.create({key: old[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": {"name": name}})
        return old["metadata"]["uid"], new["metadata"]["uid"]

    def requests(self) -> list[tuple[str, str]]:
        """Returns the verb and the path of each request."""
        return [(request.verb, request.path) for request in self._server.requests()]

    def revision(self) -> int:
        return self._server.revision

    def connections(self) -> int:
        return self._server.connections

    def open_watches(self) -> int:
        return self._server.open_watches()


def start_times(count: int) -> tuple[float, float]:
    """Returns the median and the maximum duration of a start of the server, in seconds."""
    from steadfast_kube.testing import Server

    times = []
    for _ in range(count):
        start = time.perf_counter()
        server = Server()
        times.append(time.perf_counter() - start)
        server.close()
    return statistics.median(times), max(times)


def end_with_parent() -> None:
    """Ends this process when its parent has ended, also after a signal."""

    def wait() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


class Process(BaseManager):
    """A new interpreter, without the memory and threads of this process."""

    def __init__(self) -> None:
        super().__init__(ctx=multiprocessing.get_context("spawn"))

    def start(self, *_: Any) -> None:
        super().start(end_with_parent)


class ServerProcess(Process):
    """Process that runs servers: `BenchServer(pods)` returns a proxy."""


ServerProcess.register("BenchServer", BenchServer)
ServerProcess.register("start_times", start_times)
