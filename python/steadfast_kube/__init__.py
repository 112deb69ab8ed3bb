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

from ._informers import Events, Informer, Informers, Key, Labels
from ._native import Fields, Items, Object
from ._types import (
    Added,
    Certainty,
    ConfigError,
    Deleted,
    DeleteReason,
    Doubt,
    Event,
    Failed,
    Forked,
    Fresh,
    Freshness,
    NotReached,
    NotSynced,
    Polled,
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

# For `isinstance`, and for `match` with mapping and sequence patterns.
_Mapping.register(Object)
_Mapping.register(Fields)
_Sequence.register(Items)

__all__ = [
    "Added",
    "Certainty",
    "ConfigError",
    "DeleteReason",
    "Deleted",
    "Doubt",
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
    "Labels",
    "NotReached",
    "NotSynced",
    "Object",
    "Polled",
    "Resuming",
    "Stale",
    "Starting",
    "SteadfastError",
    "Stopped",
    "StoppedError",
    "Suspect",
    "Unknown",
    "UnknownKind",
    "Updated",
]
