"""Where a table is: by path, with Hadoop's options for the store, or by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ..spark_integration.options import default_storage_options
from ..spark_integration.session.known_tables import path_in
from ..statements.request import Place
from ..storage.errors import InvalidRequest
from ..tables.catalog import Catalog

_PARQUET: Final = re.compile(r"parquet\.`(?P<path>(?:[^`]|``)+)`", re.IGNORECASE)
_HADOOP: Final = {
    "fs.s3a.access.key": "access_key_id",
    "fs.s3a.secret.key": "secret_access_key",
    "fs.s3a.session.token": "session_token",
    "fs.s3a.endpoint": "endpoint_url",
    "fs.s3a.endpoint.region": "region",
    "fs.s3a.path.style.access": "path_style",
}
_TLS: Final = "fs.s3a.connection.ssl.enabled"


def place_of_path(
    path: str,
    hadoop_conf: Mapping[str, str],
    coordinator: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Place:
    """The place of a path. Raises InvalidRequest for an option of Hadoop's that has no counterpart."""
    if not isinstance(path, str):
        raise InvalidRequest(f"the path is {path!r} of {type(path)}; give a text", path=path)
    options = default_storage_options() if storage_options is None else dict(storage_options)
    return Place(path, coordinator, {**options, **_from_hadoop(hadoop_conf)})


def place_of_name(identifier: str, coordinator: str | None = None, storage_options: Mapping[str, str] | None = None) -> Place:
    """The place of a table in the coordinator's catalog, or of delta.`/a/path`. Raises InvalidRequest, TableNotFound."""
    if not isinstance(identifier, str):
        raise InvalidRequest(f"the name is {identifier!r} of {type(identifier)}; give a text", name=identifier)
    path = path_in(identifier)
    if path is not None:
        return place_of_path(path, {}, coordinator, storage_options)
    options = default_storage_options() if storage_options is None else dict(storage_options)
    location = Catalog(coordinator, storage_options=options).locate(identifier)
    return Place(location, coordinator, options, identifier)


def place_of_new(
    name: str | None, location: str | None, coordinator: str | None, storage_options: Mapping[str, str] | None
) -> Place | Catalog:
    """Where a new table goes: its path, or the catalog that gives it a name. Raises InvalidRequest if name and location contradict."""
    path = None if name is None else path_in(name)
    if path is not None and location is not None and path != location:
        raise InvalidRequest(f"the name {name} and the location {location!r} are different paths; give one of them", location=location)
    if path is None and name is not None:
        return Catalog(coordinator, storage_options=default_storage_options() if storage_options is None else storage_options)
    return place_of_path(path or location or "", {}, coordinator, storage_options)


def place_of_parquet(identifier: str, coordinator: str | None, storage_options: Mapping[str, str] | None) -> Place:
    """The place of a folder of Parquet files, given as parquet.`/a/path`. Raises InvalidRequest."""
    found = _PARQUET.fullmatch(identifier.strip()) if isinstance(identifier, str) else None
    if found is None:
        raise InvalidRequest(f"{identifier!r} names no folder of Parquet files; write it as parquet.`/a/path`", identifier=identifier)
    return place_of_path(found["path"].replace("``", "`"), {}, coordinator, storage_options)


def _from_hadoop(options: Mapping[str, str]) -> dict[str, str]:
    """Options of the store, from those of hadoop-aws."""
    found: dict[str, str] = {}
    for key, value in options.items():
        if key == _TLS:
            continue
        if key not in _HADOOP:
            raise InvalidRequest(
                f"the option {key!r} of hadoopConf means nothing here: sluice reaches the store itself; it takes {', '.join(_HADOOP)} and "
                f"{_TLS}, or storage_options=",
                option=key,
            )
        found[_HADOOP[key]] = value
    endpoint = found.get("endpoint_url")
    if endpoint is not None and "://" not in endpoint:
        found["endpoint_url"] = ("http://" if options.get(_TLS) == "false" else "https://") + endpoint
    return found
