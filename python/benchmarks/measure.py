"""Measures the first sync, the memory of a pod, and the cost of an event, on an embedded server in a process of its own.

`python benchmarks/measure.py [PODS] [EVENTS]`; the wheel must be a release build. Each figure is printed as one line.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
import time
from multiprocessing.connection import Connection
from typing import Any

import steadfast_kube as steadfast
from steadfast_kube.testing import Server


def pod(number: int) -> dict[str, Any]:
    """Returns a pod of about 3 KB, with the fields that a deployment's pod has on a real server."""
    name = f"web-{number // 10:05}-7d4b9c6f5d-{number % 10}"
    variables = [{"name": f"SETTING_{at}", "value": f"value-{at}-of-the-deployment"} for at in range(20)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
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


def serve(pods: int, events: int, pipe: Connection) -> None:
    """Runs the server, and changes pods on request."""
    with Server() as server:
        for number in range(pods):
            server.create(pod(number))
        pipe.send(server.url)
        pipe.recv()
        names = [pod(number)["metadata"]["name"] for number in range(min(pods, 1000))]
        begun = time.monotonic()
        for number in range(events):
            server.patch("pods", "default", names[number % len(names)], {"metadata": {"labels": {"n": str(number)}}})
            # 5,000 events a second at most.
            ahead = begun + number / 5000 - time.monotonic()
            if ahead > 0.001:
                time.sleep(ahead)
        pipe.send(server.patch("pods", "default", names[0], {"metadata": {"labels": {"n": "end"}}}))
        pipe.recv()


def resident() -> int:
    """Returns the resident memory in bytes."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def measure(pods: int, events: int, pipe: Connection) -> None:
    url = pipe.recv()
    async with steadfast.Informers(url=url) as informers:
        # The first informer of another resource includes the discovery and the first connection.
        await informers.watch("namespaces").synced(timeout=60)
        before, begun, cpu = resident(), time.monotonic(), time.process_time()
        informer = informers.watch("pods")
        await informer.synced(timeout=600)
        took, cpu = time.monotonic() - begun, time.process_time() - cpu
        print(f"sync of {len(informer)} pods: {took:.2f} s, {cpu:.2f} s of processor")
        print(f"memory of a pod: {(resident() - before) / pods:.0f} bytes resident, {informer.memory / pods:.0f} counted")

        stream = informer.events()
        begun, cpu = time.monotonic(), time.process_time()
        for _ in range(pods):
            await stream.__anext__()
        took, cpu = time.monotonic() - begun, time.process_time() - cpu
        print(f"initial event: {1e6 * cpu / pods:.1f} us of processor")

        cpu, received = time.process_time(), 0
        pipe.send("change")
        async for event in stream:
            received += 1
            if event.object.read("metadata.labels.n") == "end":
                break
        cpu = time.process_time() - cpu
        pipe.recv()
        print(f"event: {1e6 * cpu / received:.1f} us of processor, {received} of {events + 1} received, others merged")

        begun = time.perf_counter()
        keys = list(informer)[:10_000]
        for key in keys:
            informer[key].spec.nodeName
        print(f"read and decode: {1e6 * (time.perf_counter() - begun) / len(keys):.1f} us")
        begun = time.perf_counter()
        for key in keys:
            informer[key].read("spec.nodeName")
        print(f"read of one field: {1e6 * (time.perf_counter() - begun) / len(keys):.1f} us")
        begun = time.perf_counter()
        for key in keys:
            informer[key].to_dict()
        print(f"to_dict: {1e6 * (time.perf_counter() - begun) / len(keys):.1f} us")
    pipe.send("end")


def main() -> None:
    pods = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    events = int(sys.argv[2]) if len(sys.argv) > 2 else 20_000
    here, there = multiprocessing.get_context("spawn").Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(pods, events, there))
    server.start()
    asyncio.run(measure(pods, events, here))
    server.join()


if __name__ == "__main__":
    main()
