"""Keys of objects, and selectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional, Union

__all__ = ["Key", "Selector", "index_paths", "key_text", "selector_text", "split_key"]

Key = Union[str, tuple[Optional[str], str]]
"""`"shop/web-0"`, or `("shop", "web-0")`. Cluster-scoped objects have the key `"node-1"` or `(None, "node-1")`."""

Selector = Union[str, Mapping[str, str]]
"""A selector, such as `"app=web,tier in (a,b)"`, or the required labels as a mapping."""


def key_text(key: object) -> str:
    """Returns a key as text."""
    if isinstance(key, str):
        return key
    if isinstance(key, tuple) and len(key) == 2:
        namespace, name = key
        return f"{namespace}/{name}" if namespace else str(name)
    raise TypeError(f'a key is "namespace/name", "name" or (namespace, name), not {key!r}')


def selector_text(selector: Optional[Selector]) -> Optional[str]:
    """Returns a selector as text."""
    if selector is None or isinstance(selector, str):
        return selector or None
    for name, value in selector.items():
        # Values of labels and fields are text. `str(True)` would match no object.
        if not isinstance(value, str):
            raise TypeError(f"the value of {name!r} in a selector must be a string, not {value!r}")
    return ",".join(f"{name}={value}" for name, value in selector.items()) or None


def index_paths(index: Optional[Mapping[str, Union[str, tuple[str, ...]]]]) -> list[tuple[str, str]]:
    """Returns the paths of indexes as text. Raises `TypeError` unless `index` is a mapping."""
    paths = []
    if index is not None and not isinstance(index, Mapping):
        raise TypeError(f'index is a mapping from names to paths, such as {{"node": "spec.nodeName"}}, not {index!r}')
    for name, path in (index or {}).items():
        if not isinstance(path, str):
            first, *rest = path
            path = first + "".join(f'["{part}"]' for part in rest)
        paths.append((name, path))
    return paths


def split_key(key: Key) -> tuple[Optional[str], str]:
    """Returns the namespace and the name of a key. Raises `ValueError` for a key with several slashes."""
    namespace, _, name = key_text(key).rpartition("/")
    if "/" in namespace:
        raise ValueError(f"the key {key!r} has more than one '/'; a key is \"namespace/name\" or \"name\"")
    return namespace or None, name
