"""The measured clients, each in a process of its own. All methods of a client are called from another process."""

from __future__ import annotations

import asyncio
import gc
import importlib
import importlib.metadata
import logging
import os
import tempfile
import threading
import time
import warnings
from typing import Any, Optional

from servers import MARKER, Process

RESTART_DELAY = 1.0
"""Seconds after which the program starts a loop again that has ended."""


def resident() -> int:
    """Returns the resident memory in bytes."""
    gc.collect()
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Client:
    """A program that follows pods. It runs in threads, while other threads serve the calls of the benchmark."""

    distribution = ""
    module = ""

    def __init__(self, kubeconfig: str) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".yaml", delete=False) as file:
            file.write(kubeconfig)
        self.kubeconfig = file.name
        self.seen = 0
        self.expected = -1
        self.reached = threading.Event()
        self.marked = threading.Event()
        self.log: Optional[list[tuple[str, str, str]]] = None
        self.reports: list[tuple[float, str]] = []
        self.restarts = False
        self.ended = False
        logging.getLogger().addHandler(_Reports(self))

    # Parts of each client.

    def start(self) -> None:
        """Starts the client in the background."""
        raise NotImplementedError

    def read(self) -> None:
        """Starts to deliver events, if this is separate from `start`."""

    def count(self) -> int:
        """Returns the number of objects that the client has."""
        return self.seen

    # Called by each client.

    def note(self, kind: str, name: str, uid: str, node: Optional[str]) -> None:
        """Notes an event. The arguments have read the object, as a real program does."""
        self.seen += 1
        if self.seen == self.expected:
            self.reached.set()
        if name == MARKER:
            self.marked.set()
        if self.log is not None:
            self.log.append((kind, name, uid))

    def report(self, text: str) -> None:
        """Notes that the client has told its program of a problem."""
        self.reports.append((time.monotonic(), text))

    # Called by the benchmark.

    def version(self) -> str:
        return importlib.metadata.version(self.distribution)

    def sync(self, pods: int, timeout: float) -> dict[str, float]:
        """Starts the client and waits until it has all pods."""
        before, start, cpu = resident(), time.monotonic(), time.process_time()
        self.expected = pods
        self.start()
        while not self.reached.wait(0.25):
            if time.monotonic() - start > timeout or self.ended:
                raise TimeoutError(f"{self.count():,} of {pods:,} pods after {time.monotonic() - start:.0f} s; {self.reports[-1:]}")
        took = time.monotonic() - start
        # Includes work that continues in the background.
        time.sleep(0.5)
        cpu = time.process_time() - cpu
        self.resident_before = before
        return {"seconds": took, "cpu": cpu, "memory": (resident() - before) / pods, "count": self.count()}

    def deliver(self, pods: int) -> dict[str, float]:
        """Passes all pods to the program, if the sync did not, and waits for the end."""
        start, cpu = time.monotonic(), time.process_time()
        self.read()
        took, cpu = time.monotonic() - start, time.process_time() - cpu
        return {"seconds": took, "cpu": cpu, "memory": (resident() - self.resident_before) / pods}

    def begin_events(self) -> None:
        """Starts to measure events."""
        # What the first delivery of all objects has left to do is no cost of an event.
        time.sleep(0.5)
        self.marked.clear()
        self.first, self.cpu = self.seen, time.process_time()

    def end_events(self, timeout: float) -> dict[str, float]:
        """Waits for the marker, and returns the number of events, the processor time of each, and the time of the marker."""
        if not self.marked.wait(timeout):
            raise TimeoutError(f"{self.seen - self.first:,} events; {self.reports[-1:]}")
        events = self.seen - self.first
        return {"events": events, "cpu": (time.process_time() - self.cpu) / events, "at": time.monotonic()}

    def begin_log(self, restarts: bool = False) -> None:
        """Starts to record events. With `restarts`, the program starts a loop again that has ended."""
        self.log, self.restarts = [], restarts

    def is_marked(self) -> bool:
        return self.marked.is_set()

    def events_of(self, name: str) -> list[tuple[str, str]]:
        """Returns the kind and UID of the recorded events of a pod."""
        return [(kind, uid) for kind, of, uid in self.log or [] if of == name]

    def reports_since(self, at: float) -> list[tuple[float, str]]:
        """Returns the seconds and texts of the reports since a time."""
        return [(when - at, text) for when, text in self.reports if when >= at]


class _Reports(logging.Handler):
    """Warnings in the log are reports too."""

    def __init__(self, client: Client) -> None:
        super().__init__(logging.WARNING)
        self._client = client

    def emit(self, record: logging.LogRecord) -> None:
        self._client.report(f"log: {record.getMessage()}")


class AsyncClient(Client):
    """A client with an event loop of its own."""

    async def main(self) -> None:
        raise NotImplementedError

    def start(self) -> None:
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                asyncio.run(self.main())
                self.report("the loop ends without an error")
            except BaseException as error:
                self.report(f"raises {type(error).__name__}: {error}")
            if not self.restarts:
                self.ended = True
                return
            time.sleep(RESTART_DELAY)


class Steadfast(AsyncClient):
    distribution = "steadfast-kube"
    module = "steadfast_kube"

    async def main(self) -> None:
        import steadfast_kube as steadfast

        self.loop = asyncio.get_running_loop()
        self.may_read, self.has_read = asyncio.Event(), threading.Event()
        async with steadfast.Informers(kubeconfig=self.kubeconfig) as informers:
            self.informer = informers.watch("pods")
            await self.informer.synced()
            self.reached.set()
            freshness = asyncio.create_task(self.report_freshness())
            await self.may_read.wait()
            initial = len(self.informer)
            async for event in self.informer.events():
                obj = event.last if isinstance(event, steadfast.Deleted) else event.object
                kind = type(event).__name__
                self.note(kind, obj.name, obj.uid, obj.read("spec.nodeName", None))
                if self.seen == initial:
                    self.has_read.set()
            freshness.cancel()

    async def report_freshness(self) -> None:
        while True:
            state = await self.informer.until(lambda informer: None if informer.freshness.is_fresh else informer.freshness)
            self.report(state.name)
            await self.informer.until(lambda informer: informer.freshness.is_fresh)

    def read(self) -> None:
        # The events start with an `Added` for each object.
        self.loop.call_soon_threadsafe(self.may_read.set)
        if not self.has_read.wait(60):
            raise TimeoutError(f"{self.seen:,} events within 60 s")

    def begin_log(self, restarts: bool = False) -> None:
        self.read()
        super().begin_log(restarts)

    def count(self) -> int:
        return len(self.informer)


class Official(Client):
    distribution = "kubernetes"
    module = "kubernetes.informer"

    def start(self) -> None:
        from kubernetes import client, config
        from kubernetes.informer import ADDED, DELETED, ERROR, MODIFIED, SharedInformer

        config.load_kube_config(self.kubeconfig)
        self.informer = SharedInformer(list_func=client.CoreV1Api().list_pod_for_all_namespaces)
        for kind in (ADDED, MODIFIED, DELETED):
            self.informer.add_event_handler(kind, lambda pod, kind=kind: self.handle(kind, pod))
        self.informer.add_event_handler(ERROR, lambda error: self.report(f"handler: {type(error).__name__}"))
        self.informer.start()

    def handle(self, kind: str, pod: Any) -> None:
        self.note(kind, pod.metadata.name, pod.metadata.uid, pod.spec.node_name)

    def count(self) -> int:
        return len(self.informer.cache.list_keys())


class Kopf(AsyncClient):
    distribution = "kopf"
    module = "kopf"

    async def main(self) -> None:
        import kopf
        import yaml

        with open(self.kubeconfig) as file:
            server = yaml.safe_load(file)["clusters"][0]["cluster"]["server"]
        registry = kopf.OperatorRegistry()

        @kopf.on.login(registry=registry)
        def login(**_: Any) -> Any:
            return kopf.ConnectionInfo(server=server)

        @kopf.index("pods", id="pods", registry=registry)
        async def pods(namespace: str, name: str, body: Any, **_: Any) -> Any:
            return {(namespace, name): body}

        @kopf.on.event("pods", registry=registry)
        async def handle(type: Optional[str], name: str, uid: str, spec: Any, pods: Any, **_: Any) -> None:
            self.index = pods
            self.note(str(type), name, uid, spec.get("nodeName"))

        settings = kopf.OperatorSettings()
        settings.posting.enabled = False
        await kopf.operator(registry=registry, settings=settings, standalone=True, clusterwide=True)

    def count(self) -> int:
        return len(self.index)


class WatchLoop(AsyncClient):
    """A watch without a cache: the loop keeps the objects in a dictionary."""

    def __init__(self, kubeconfig: str) -> None:
        super().__init__(kubeconfig)
        self.objects: dict[tuple[str, str], Any] = {}

    def store(self, kind: str, namespace: str, name: str, obj: Any) -> None:
        if kind == "DELETED":
            self.objects.pop((namespace, name), None)
        else:
            self.objects[namespace, name] = obj

    def count(self) -> int:
        return len(self.objects)


class Kr8s(WatchLoop):
    distribution = "kr8s"
    module = "kr8s.asyncio"

    async def main(self) -> None:
        import kr8s
        import kr8s.asyncio

        api = await kr8s.asyncio.api(kubeconfig=self.kubeconfig)
        async for kind, pod in api.watch("pods", namespace=kr8s.ALL):
            self.store(kind, pod.namespace, pod.name, pod)
            self.note(kind, pod.name, pod.raw["metadata"]["uid"], pod.raw["spec"].get("nodeName"))


class Lightkube(WatchLoop):
    distribution = "lightkube"
    module = "lightkube.resources.core_v1"

    async def main(self) -> None:
        from lightkube import AsyncClient as LightkubeClient
        from lightkube import KubeConfig
        from lightkube.resources.core_v1 import Pod

        client = LightkubeClient(KubeConfig.from_file(self.kubeconfig))
        async for kind, pod in client.watch(Pod, namespace="*"):
            self.store(kind, pod.metadata.namespace, pod.metadata.name, pod)
            self.note(kind, pod.metadata.name, pod.metadata.uid, pod.spec.nodeName)


class KubernetesAsyncio(WatchLoop):
    distribution = "kubernetes_asyncio"
    module = "kubernetes_asyncio"

    async def main(self) -> None:
        from kubernetes_asyncio import client, config, watch

        await config.load_kube_config(config_file=self.kubeconfig)
        async with client.ApiClient() as api:
            core = client.CoreV1Api(api)
            async with watch.Watch().stream(core.list_pod_for_all_namespaces) as stream:
                async for event in stream:
                    kind, pod = event["type"], event["object"]
                    self.store(kind, pod.metadata.namespace, pod.metadata.name, pod)
                    self.note(kind, pod.metadata.name, pod.metadata.uid, pod.spec.node_name)


CLIENTS: dict[str, type[Client]] = {
    "steadfast": Steadfast,
    "kubernetes": Official,
    "kopf": Kopf,
    "kr8s": Kr8s,
    "lightkube": Lightkube,
    "kubernetes_asyncio": KubernetesAsyncio,
}


def create(name: str, kubeconfig: str) -> Client:
    """Creates a client in this process."""
    # A client that fails fast would print thousands of lines.
    logging.getLogger().addHandler(logging.NullHandler())
    warnings.simplefilter("ignore")
    # The import is part of no figure.
    importlib.import_module(CLIENTS[name].module)
    return CLIENTS[name](kubeconfig)


class ClientProcess(Process):
    """Process of one client: `create(name, kubeconfig)` returns a proxy."""


ClientProcess.register("create", create)
