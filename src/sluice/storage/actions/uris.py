"""Which object an action's `path` names: a URI, percent-encoded, relative to the table's root or absolute ("Add File" in PROTOCOL.md).

Writers spell the absolute URI of one file in several ways, with the same meaning:

=====================================================  ==============================
spelling                                               meaning
=====================================================  ==============================
``file:/a/t/x``, ``file:///a/t/x``                     ``file:///a/t/x``
``s3a://b/t/x``, ``s3n://b/t/x``, ``s3://b/t/x``       ``s3://b/t/x``
``abfs://c@a/t/x``, ``abfss://c@a/t/x``                ``abfss://c@a/t/x``
``/a/t/x``                                             that path in the table's own store
=====================================================  ==============================
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

from ..errors import UnsupportedFeature
from ..schema.partitions import uri_to_path
from ..stores.objects import ObjectStore, ReachesElsewhere

# A scheme and a slash; a colon alone may be part of a relative path.
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=/)")
_ALIASES: Final = {"s3a": "s3", "s3n": "s3", "abfs": "abfss"}
_SPELLED: Final = {"file": ("", "file:", "file://"), "s3": ("s3:", "s3a:", "s3n:"), "abfss": ("abfss:", "abfs:")}


def absolute(location: str, uri: str) -> str | None:
    """The location that an absolute `path` names, spelled like `location`, which is normalised; None for a relative path."""
    match = _SCHEME.match(uri)
    if match is None and not uri.startswith("/"):
        return None
    own = location.partition(":")[0]
    if match is None:
        scheme, path = own, unquote(uri, errors="strict")
    else:
        scheme = match[1].lower()
        scheme, path = _ALIASES.get(scheme, scheme), unquote(uri[match.end() :], errors="strict")
        if scheme == "file":
            path = path.removeprefix("//localhost").removeprefix("//")
        elif scheme != own or path.startswith("//"):
            return f"{scheme}:{path}"
    if scheme == "file":
        path = os.path.normpath(path)
        if f"file://{path}".startswith(location + "/"):
            return f"file://{path}"
        folder, _, name = path.rpartition("/")
        return f"file://{_resolved(folder or '/').rstrip('/')}/{name}"
    # A path without a bucket (or similar) is in the table's own store, as in resolving a relative URI.
    authority = location.removeprefix(f"{own}://").partition("/")[0]
    return f"{own}://{authority}{path}"


@lru_cache(maxsize=1024)
def _resolved(folder: str) -> str:
    # Locations have symbolic links resolved, so that one table has one location.
    return os.path.realpath(folder)


def key_inside(location: str, uri: str) -> str | None:
    """The key of an action's `path` in the table at `location`; None if an absolute path is outside the table."""
    found = absolute(location, uri)
    if found is None:
        return uri_to_path(uri)
    root = location + "/"
    return found[len(root) :] if found.startswith(root) else None


def spellings(uri: str) -> tuple[str, ...]:
    """The other spellings of an absolute `path`; none for a relative one."""
    match = _SCHEME.match(uri)
    if match is None and not uri.startswith("/"):
        return ()
    scheme = "file" if match is None else match[1].lower()
    rest = uri if match is None else uri[match.end() :]
    if scheme == "file":
        rest = "/" + rest.removeprefix("//localhost/").lstrip("/")
    return tuple(each for prefix in _SPELLED.get(_ALIASES.get(scheme, scheme), ()) if (each := prefix + rest) != uri)


def object_at(store: ObjectStore, uri: str) -> tuple[ObjectStore, str]:
    """The store and key of an action's `path` in the table in `store`.

    An object outside the table (as in a shallow clone, which has the files of the original) is looked for in a store of the same kind, with
    the same options: a table in a bucket never opens a file on its reader's disk. Raises UnsupportedFeature for another kind.
    """
    if (key := key_inside(store.location, uri)) is not None:
        return store, key
    outside = absolute(store.location, uri)
    if outside is not None and isinstance(store, ReachesElsewhere) and (place := store.elsewhere(outside)) is not None:
        return place
    raise UnsupportedFeature(
        f"{uri!r} lies outside of the table at {store.location}, as the files of a shallow clone do, where sluice does not reach it; "
        "make a full copy of the table (a deep clone)",
        features=("absolute paths",),
        access="read",
        path=uri,
    )
