"""Locations: the normal form of a table's address, and the object store behind it.

=======================================================  ===========================
given                                                    normalised
=======================================================  ===========================
``/data/t``, ``~/t``, ``t``                              ``file:///data/t`` (absolute, symbolic links resolved)
``file:///data/t``, ``file:/data/t``                     ``file:///data/t``
``s3://bucket/t``, ``s3a://bucket/t``                    ``s3://bucket/t``
``abfss://container@account.dfs.core.windows.net/t``     itself; ``abfs://`` means the same
``memory://name``                                        ``memory://name``
=======================================================  ===========================

All clients of a table must get the same string, because it names the table's queue in the coordinator: so links are
resolved. As in Spark and Hadoop, a location is literal: nothing in it is percent-decoded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from ..arguments import RULES, check_key
from ..errors import InvalidRequest, UnknownScheme
from .local import LocalStore
from .memory import MemoryStore
from .objects import ObjectStore
from .storage_options import StorageOptions

SCHEMES = ("file", "s3", "s3a", "abfs", "abfss", "memory")
"""The valid schemes of a location; a plain path means `file`."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_AZURE = re.compile(r"[$a-z0-9][a-z0-9-]*@[a-z0-9]{3,24}\.dfs\.core\.windows\.net")
_AZURE_PATH = re.compile(r"[A-Za-z0-9._~=@,+/-]*")


def normalise(location: str | os.PathLike[str]) -> str:
    """The normal form of `location`, without a trailing slash. Raises UnknownScheme, or InvalidRequest if the rest of it is malformed."""
    text = os.fspath(location) if isinstance(location, (str, os.PathLike)) else ""
    RULES["location"].check("location", location)
    match = _SCHEME.match(text)
    if match is None:
        try:
            return "file://" + os.path.realpath(Path(text).expanduser())
        except RuntimeError as error:
            raise InvalidRequest(f"{text!r} begins with the home folder of a user unknown here", location=text) from error
    scheme, rest = match[1].lower(), text[match.end() :]
    if scheme not in SCHEMES:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise UnknownScheme(
            f"{text!r} has the unknown scheme {scheme!r}; sluice knows {known} and plain paths", scheme=scheme, known=SCHEMES
        )
    if scheme == "file":
        host, _, path = rest[1:].partition("/") if rest.startswith("/") else ("", "", rest)  # file:/data/t, as Hadoop prints it
        if host not in ("", "localhost"):
            raise InvalidRequest(
                f"{text!r} names the host {host!r}; a file location has three slashes: file:///{host}/{path}", location=text
            )
        return "file://" + os.path.realpath("/" + path)
    if not rest.startswith("/"):
        raise InvalidRequest(f"{text!r} is not a location: write {scheme}:// with two slashes", location=text)
    return _below_a_root(text, scheme, rest[1:].rstrip("/"))


def _below_a_root(text: str, scheme: str, rest: str) -> str:
    """The location in a bucket, a container, or in memory."""
    if scheme == "memory":
        if not rest:
            raise InvalidRequest(f"{text!r} has no name; write memory://name", location=text)
        return f"memory://{check_key(rest)}"
    place, _, path = rest.partition("/")
    if scheme in ("s3", "s3a"):
        if "@" in place:  # the text before it may be a secret: do not show it
            raise InvalidRequest("the location carries credentials before an '@'; give them as options or in the environment")
        if not _BUCKET.fullmatch(place):
            raise InvalidRequest(f"{text!r} names no bucket; write s3://bucket/path", location=text)
        root = f"s3://{place}"
    else:
        if not _AZURE.fullmatch(place.lower()):
            raise InvalidRequest(
                f"{text!r} names no container of an Azure storage account; write abfss://container@account.dfs.core.windows.net/path",
                location=text,
            )
        if not _AZURE_PATH.fullmatch(path):
            raise InvalidRequest(
                f"{text!r} has a character that sluice cannot sign in Azure: use letters of English, digits and -_.~=+,@", location=text
            )
        root = f"abfss://{place.lower()}"
    return f"{root}/{check_key(path)}" if path else root


def open_store(location: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> ObjectStore:
    """The object store below `location`; nothing is read or written yet.

    A store ignores `options` that are for others, so that one set serves a whole job. Raises UnknownScheme, or InvalidRequest for an
    unknown option, and if the package that a store needs is not installed.
    """
    uri = normalise(location)
    storage_options = StorageOptions.parse(options or {})
    if uri.startswith("s3://"):
        from .s3 import S3Store

        return S3Store(uri, storage_options)
    if uri.startswith("abfss://"):
        from .azure import AzureStore

        return AzureStore(uri, storage_options)
    return MemoryStore(uri) if uri.startswith("memory://") else LocalStore(uri)
