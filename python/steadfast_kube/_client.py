"""Reads and writes of objects at the API server."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, Optional, Union
from urllib.parse import quote, urlencode

from ._keys import Key, Selector, selector_text, split_key
from ._native import Object

__all__ = ["Client", "Patch", "Propagation"]

Send = Callable[[str, str, bytes, str], Awaitable[bytes]]
Resolve = Callable[[str], Awaitable[tuple[str, str, bool]]]

Patch = Literal["merge", "strategic", "json"]
"""The type of a patch: a JSON merge patch, a strategic merge patch, or a list of JSON patch operations."""

Propagation = Literal["Background", "Foreground", "Orphan"]
"""Policy for the dependents of a deleted object: `propagationPolicy` of Kubernetes."""

Objects = list[Object]
# The class below has a method `list`, which hides the built-in type in annotations.

PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
}


class Client:
    """Reads and writes objects at the API server, over the connection of the informers.

    Within a reconcile, `context.client` also records its writes: the next reconcile of the same object starts after the
    caches contain them. The client of a `Leader` sends requests only while the lease is held.

    Errors of the server are raised as `ApiError`, with the subclasses `NotFound` and `Conflict`.
    """

    def __init__(self, send: Send, resolve: Resolve, default_namespace: str) -> None:
        self._send = send
        self._resolve = resolve
        self._default_namespace = default_namespace

    async def get(self, kind: str, key: Key) -> Object:
        """Returns an object. Raises `NotFound` if it does not exist."""
        return Object.from_json(await self._send("GET", await self._path(kind, key), b"", ""))

    async def list(
        self,
        kind: str,
        namespace: Optional[str] = None,
        labels: Optional[Selector] = None,
        fields: Optional[Selector] = None,
    ) -> Objects:
        """Returns the objects of one kind in `namespace`, or in all namespaces if it is `None`.

        For repeated reads, use an informer.
        """
        api_version, resource, _ = await self._resolve(kind)
        query = {"labelSelector": selector_text(labels), "fieldSelector": selector_text(fields)}
        path = collection_path(api_version, resource, namespace) + query_text(query)
        response = json.loads(await self._send("GET", path, b"", ""))
        # The items of a list have no type of their own.
        item_kind = response["kind"].removesuffix("List")
        types = {"apiVersion": response["apiVersion"], "kind": item_kind}
        return [Object.from_json(json.dumps({**types, **item}).encode()) for item in response.get("items") or []]

    async def create(self, obj: Any) -> Object:
        """Creates an object, and returns its state on the server. Its `apiVersion` and `kind` select the resource."""
        body = to_dictionary(obj)
        path, _ = await self._location(body)
        return await self._write("POST", path, body)

    async def replace(self, obj: Any, *, subresource: Optional[str] = None) -> Object:
        """Replaces an object, or its `status` with `subresource="status"`.

        Raises `Conflict` if `metadata.resourceVersion` is set and another client has changed the object since.
        """
        body = to_dictionary(obj)
        path, name = await self._location(body)
        return await self._write("PUT", object_path(path, name, subresource), body)

    async def patch(
        self,
        kind: str,
        key: Key,
        patch: Any,
        *,
        type: Patch = "merge",
        subresource: Optional[str] = None,
    ) -> Object:
        """Changes an object by a patch: a dictionary, or a list of operations with `type="json"`."""
        path = await self._path(kind, key, subresource)
        return await self._write("PATCH", path, patch, PATCH_TYPES[type])

    async def apply(
        self,
        obj: Any,
        *,
        field_manager: str,
        force: bool = False,
        subresource: Optional[str] = None,
    ) -> Object:
        """Creates or changes an object by a server-side apply of the fields in `obj`.

        `field_manager` owns these fields afterwards. Raises `Conflict` if another manager owns one of them, unless `force`
        is set.
        """
        body = to_dictionary(obj)
        path, name = await self._location(body)
        query = query_text({"fieldManager": field_manager, "force": "true" if force else None})
        return await self._write(
            "PATCH", object_path(path, name, subresource) + query, body, "application/apply-patch+yaml"
        )

    async def delete(
        self,
        kind: str,
        key: Key,
        *,
        uid: Optional[str] = None,
        resource_version: Optional[str] = None,
        propagation: Optional[Propagation] = None,
        grace_period: Optional[int] = None,
    ) -> None:
        """Deletes an object. Raises `NotFound` if it does not exist.

        With `uid` or `resource_version`, raises `Conflict` if the object has a different UID or version. `grace_period`
        is in seconds.
        """
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        preconditions = {name: value for name, value in preconditions.items() if value is not None}
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if preconditions:
            options["preconditions"] = preconditions
        if propagation is not None:
            options["propagationPolicy"] = propagation
        if grace_period is not None:
            options["gracePeriodSeconds"] = grace_period
        await self._send("DELETE", await self._path(kind, key), encode_json(options), "application/json")

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Optional[Mapping[str, Optional[str]]] = None,
        content_type: str = "application/json",
    ) -> Any:
        """Sends any request, for example `request("POST", "/api/v1/namespaces/shop/pods/web-0/eviction", {…})`.

        Returns the JSON of the response, or its text if it is not JSON.
        """
        content = b"" if body is None else encode_json(body)
        response = await self._send(method, path + query_text(query or {}), content, content_type)
        try:
            return json.loads(response)
        except ValueError:
            return response.decode(errors="replace")

    async def _write(self, method: str, path: str, body: Any, content_type: str = "application/json") -> Object:
        return Object.from_json(await self._send(method, path, encode_json(body), content_type))

    async def _path(self, kind: str, key: Key, subresource: Optional[str] = None) -> str:
        """Returns the path of an object. `kind` is any name that kubectl accepts."""
        api_version, resource, namespaced = await self._resolve(kind)
        namespace, name = split_key(key)
        namespace = (namespace or self._default_namespace) if namespaced else None
        return object_path(collection_path(api_version, resource, namespace), name, subresource)

    async def _location(self, body: Mapping[str, Any]) -> tuple[str, Optional[str]]:
        """Returns the path of the collection of an object, and its name."""
        api_version, kind = type_of(body)
        group, _, version = api_version.rpartition("/")
        # kubectl accepts this form. The core group has an empty name.
        _, resource, namespaced = await self._resolve(f"{kind}.{version}.{group}")
        meta = body.get("metadata") or {}
        namespace = (meta.get("namespace") or self._default_namespace) if namespaced else None
        return collection_path(api_version, resource, namespace), meta.get("name")


def type_of(body: Mapping[str, Any]) -> tuple[str, str]:
    """Returns the `apiVersion` and the `kind` of an object to write."""
    api_version, kind = body.get("apiVersion"), body.get("kind")
    if not api_version or not kind:
        raise ValueError("the object has no apiVersion or no kind")
    return api_version, kind


def to_dictionary(obj: Any) -> dict[str, Any]:
    """Converts an object of this package, an object of kr8s, or a mapping to a dictionary."""
    raw = getattr(obj, "raw", None)
    if isinstance(raw, Mapping):
        obj = raw
    if isinstance(obj, Object):
        return obj.to_dict()
    if isinstance(obj, Mapping):
        return dict(obj)
    raise TypeError(f"the object must be a mapping with apiVersion and kind, not {type(obj).__name__}")


def encode_json(body: Any) -> bytes:
    """Returns the JSON of a body, which may contain parts of cached objects."""
    return json.dumps(body, default=to_plain_part).encode()


def to_plain_part(part: Any) -> Union[dict[str, Any], list[Any]]:
    """Returns a part of a cached object as a dictionary or a list."""
    for method in ("to_dict", "to_list"):
        if hasattr(part, method):
            converted: Union[dict[str, Any], list[Any]] = getattr(part, method)()
            return converted
    raise TypeError(f"a {type(part).__name__} has no JSON")


def collection_path(api_version: str, resource: str, namespace: Optional[str]) -> str:
    """Returns the path of the objects of a resource."""
    root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    return f"{root}/namespaces/{quote(namespace, safe='')}/{resource}" if namespace else f"{root}/{resource}"


def object_path(collection: str, name: Optional[str], subresource: Optional[str]) -> str:
    """Returns the path of one object."""
    if not name:
        raise ValueError("the object has no metadata.name")
    path = f"{collection}/{quote(name, safe='')}"
    return f"{path}/{subresource}" if subresource else path


def query_text(query: Mapping[str, Optional[str]]) -> str:
    """Returns the query of a URL with its question mark, without unset values."""
    values = {name: value for name, value in query.items() if value is not None}
    return f"?{urlencode(values)}" if values else ""
