"""Traces of informers for the contract checker of the library."""

import json
from typing import Any, Optional

import steadfast_kube as steadfast
from steadfast_kube.testing import Server

REASONS = {"deleted": "Deleted", "replaced": "Replaced", "deleted or left": "DeletedOrLeft"}


def key_fields(key: str) -> dict[str, str]:
    namespace, name = key.split("/")
    return {"namespace": namespace, "name": name}


def reference(obj: steadfast.Object) -> dict[str, Any]:
    """Returns the identity of an object's state."""
    return {**key_fields(obj.key), "uid": obj.uid, "version": obj.resource_version}


class Trace:
    """Recording of one informer and one of its streams, on the clock of the server."""

    def __init__(self, server: Server, informer: steadfast.Informer, scope: Optional[dict[str, str]] = None) -> None:
        self.server = server
        self.informer = informer
        self.entries: list[dict[str, Any]] = []
        self.record({"Informer": {"informer": "pods", "scope": scope or {}, "ordered": True}})
        self.record({"Registered": {"handler": "stream", "informer": "pods", "concurrency": 1}})
        self.calls = 0

    def record(self, record: Any) -> None:
        self.entries.append({"at": self.server._native.elapsed(), "record": record})

    def event(self, event: steadfast.Event) -> None:
        """Records an event, with the content of the cache at this time, and a sample of the freshness."""
        recorded: dict[str, Any]
        match event:
            case steadfast.Added(object=obj, initial=initial):
                recorded = {"Added": {"object": reference(obj), "initial": initial}}
            case steadfast.Updated(old=old, new=new):
                recorded = {"Updated": {"old": reference(old), "new": reference(new)}}
            case steadfast.Deleted(last=last, certainty=certainty, reason=reason, version=version):
                deleted = {"last": reference(last), "version": version}
                recorded = {
                    "Deleted": {**deleted, "certainty": certainty.capitalize(), "reason": REASONS[reason]},
                }
        self.calls += 1
        call = {"handler": "stream", "call": self.calls}
        self.record({"Entered": {**call, "event": recorded, "retry": 0, "store": self.content(event.key)}})
        self.record({"Returned": call})
        self.freshness()

    def content(self, key: str) -> Any:
        """Returns the content of the cache for a key."""
        try:
            obj = self.informer.get(key)
        except steadfast.Unknown as error:
            return {"Unknown": {"version": error.version}}
        return "Absent" if obj is None else {"Held": {"uid": obj.uid, "version": obj.resource_version}}

    def freshness(self) -> None:
        """Records a sample of the freshness."""
        freshness = self.informer.freshness
        state: Any = freshness.name.capitalize()
        tainted: list[dict[str, str]] = []
        if isinstance(freshness, steadfast.Fresh):
            state = {"Fresh": {"version": freshness.version or "", "age": int(freshness.age * 1e9)}}
            tainted = [key_fields(key) for key in freshness.tainted]
        self.record({"Freshness": {"informer": "pods", "state": state, "tainted": tainted}})

    def snapshot(self) -> None:
        """Records the whole cache."""
        objects = [reference(obj) for obj in self.informer.values()]
        self.record({"Snapshot": {"informer": "pods", "objects": objects, "tainted": []}})

    def settle(self) -> None:
        """Records that no further event is expected."""
        self.record("Quiet")
        self.snapshot()
        self.freshness()
        self.record("Settled")

    def errors(self) -> list[str]:
        """Returns the violations of the contract, and the errors of the trace itself."""
        return self.server._native.contract_errors("", "pods", json.dumps(self.entries))
