"""Identity of objects that other clients return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

__all__ = ["WrittenObject", "written_object"]


@dataclass(frozen=True)
class WrittenObject:
    """A write: the type and the namespace of the object, as far as known, and the version of the response."""

    api_version: Optional[str]
    kind: Optional[str]
    namespace: Optional[str]
    resource_version: str

    def concerns(self, resource: Optional[tuple[str, str, str, str]], namespace: Optional[str]) -> bool:
        """Returns true if a cache of `resource` in `namespace` may contain the object."""
        # Before its discovery, a cache has not requested its first list, which will contain the write.
        if resource is None:
            return False
        _, kind, _, group = resource
        if self.kind is not None and self.kind != kind:
            return False
        # All versions of a group share their objects.
        if self.api_version is not None and self.api_version.rpartition("/")[0] != group:
            return False
        return namespace is None or self.namespace is None or self.namespace == namespace


def written_object(obj: object) -> WrittenObject:
    """Reads the identity of a written object: a dictionary, or an object of this package, of kr8s or of the official client."""
    raw = getattr(obj, "raw", None)
    source: Any = raw if isinstance(raw, Mapping) else obj
    if isinstance(source, Mapping):
        meta = source.get("metadata") or {}
        version = meta.get("resourceVersion")
        api_version, kind, namespace = source.get("apiVersion"), source.get("kind"), meta.get("namespace")
    else:
        meta = getattr(source, "metadata", None)
        version = getattr(meta, "resource_version", None) or getattr(meta, "resourceVersion", None)
        namespace = getattr(meta, "namespace", None)
        api_version = getattr(source, "api_version", None) or getattr(source, "apiVersion", None)
        kind = getattr(source, "kind", None)
        # A model of the official client has its kind in its class, `V1Pod`, if the response did not contain it.
        if not kind and hasattr(source, "openapi_types"):
            kind = type(source).__name__.lstrip("V").lstrip("0123456789")
            kind = kind.removeprefix("alpha").removeprefix("beta").lstrip("0123456789") or None
    if not version:
        raise ValueError("the object has no resourceVersion; pass the object that the server returned")
    return WrittenObject(api_version or None, kind or None, namespace or None, str(version))
