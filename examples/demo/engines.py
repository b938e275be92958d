"""Reads the table with engines that do not know sluice: delta-rs and Polars."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import pyarrow as pa

from sluice.errors import InvalidRequest
from sluice.installation import install_command
from sluice.storage.stores.storage_options import StorageOptions

_NAMES = {
    "region": "AWS_REGION",
    "access_key_id": "AWS_ACCESS_KEY_ID",
    "secret_access_key": "AWS_SECRET_ACCESS_KEY",
    "session_token": "AWS_SESSION_TOKEN",
}


def _options(location: str, options: Mapping[str, str]) -> dict[str, str]:
    """sluice's storage options under the names of the `object_store` crate, which both engines use."""
    if not location.startswith("s3://"):
        return {}
    known = StorageOptions.parse(options).resolved()
    named = {name: value for ours, name in _NAMES.items() if (value := getattr(known, ours))}
    if known.endpoint_url:
        named["AWS_ENDPOINT_URL"] = known.endpoint_url
        named["AWS_ALLOW_HTTP"] = str(known.endpoint_url.startswith("http://")).lower()
    return named


def _by_deltalake(location: str, options: Mapping[str, str]) -> tuple[int, pa.Table]:
    """Through its SQL engine, since its reader of single files does not apply deletion vectors."""
    deltalake: Any = import_module("deltalake")
    table = deltalake.DeltaTable(location, storage_options=_options(location, options))
    rows = deltalake.QueryBuilder().register("flights", table).execute("SELECT * FROM flights")
    return table.version(), pa.table(rows.read_all())


def _by_polars(location: str, options: Mapping[str, str]) -> tuple[int | None, pa.Table]:
    polars: Any = import_module("polars")
    return None, polars.scan_delta(location, storage_options=_options(location, options)).collect().to_arrow()


ENGINES: Mapping[str, Callable[[str, Mapping[str, str]], tuple[int | None, pa.Table]]] = {"deltalake": _by_deltalake, "polars": _by_polars}
"""By name: a function that reads a location and returns the version (if the engine knows it) and all rows."""


def require_engines() -> None:
    """Raise InvalidRequest if an engine is not installed: better now than after the work."""
    for name in ENGINES:
        try:
            import_module(name)
        except ImportError as error:
            raise InvalidRequest(f"the demo proves its result with {name}, which is not installed: {install_command('demo')}") from error
