"""Kubernetes informers that are never silently stale.

```python
import steadfast_kube as steadfast

async with steadfast.Informers() as informers:
    pods = informers.watch("pods", namespace="shop", index={"node": "spec.nodeName"})
    await pods.synced(timeout=30)
    print(len(pods), pods["shop/web-0"].spec.nodeName, pods.freshness)
```
"""

from collections.abc import Mapping as _Mapping
from collections.abc import Sequence as _Sequence

from ._client import Client
from ._controllers import Context, Reconciler, Requeue, reconcile, run
from ._durable import Deliveries
from ._election import Leader, LeaderElection
from ._informers import Events, Informer, Informers
from ._keys import Key, Selector
from ._native import Delivery, Fields, Items, Object
from ._types import (
    Added,
    ApiError,
    Certainty,
    CheckpointError,
    ConfigError,
    Conflict,
    Deleted,
    DeleteReason,
    Doubt,
    DurablePosition,
    DurableStats,
    Event,
    Failed,
    Forked,
    Fresh,
    Freshness,
    NotFound,
    NotLeader,
    NotReached,
    NotSynced,
    Polled,
    RequestFailed,
    Resuming,
    Stale,
    Starting,
    SteadfastError,
    Stopped,
    StoppedError,
    Suspect,
    Unknown,
    UnknownKind,
    Updated,
)

# These registrations serve `isinstance`, and `match` with mapping and sequence patterns.
_Mapping.register(Object)
_Mapping.register(Fields)
_Sequence.register(Items)

__all__ = [
    "Added",
    "ApiError",
    "Certainty",
    "CheckpointError",
    "Client",
    "ConfigError",
    "Conflict",
    "Context",
    "DeleteReason",
    "Deleted",
    "Deliveries",
    "Delivery",
    "Doubt",
    "DurablePosition",
    "DurableStats",
    "Event",
    "Events",
    "Failed",
    "Fields",
    "Forked",
    "Fresh",
    "Freshness",
    "Informer",
    "Informers",
    "Items",
    "Key",
    "Leader",
    "LeaderElection",
    "NotFound",
    "NotLeader",
    "NotReached",
    "NotSynced",
    "Object",
    "Polled",
    "Reconciler",
    "RequestFailed",
    "Requeue",
    "Resuming",
    "Selector",
    "Stale",
    "Starting",
    "SteadfastError",
    "Stopped",
    "StoppedError",
    "Suspect",
    "Unknown",
    "UnknownKind",
    "Updated",
    "reconcile",
    "run",
]
