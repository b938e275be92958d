"""Version checksums, `_delta_log/<version>.crc` ("Version Checksum File" in PROTOCOL.md): what a version has, counted once more.

They are written from a list of files that was read, never from a former checksum: another engine refuses to read a version whose checksum
is wrong. They decide nothing here. Whoever reads a version's list of files compares, and so does the doctor: what disagrees is named, and
the log counts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from ..actions.codec import action_of, encode
from ..actions.features import reader_features, writer_features
from ..actions.records import DomainMetadata, Metadata, Protocol, Txn
from ..errors import ObjectNotFound, SluiceError
from ..jsontext import dumps, loads
from ..stores.objects import ObjectStore
from .paths import checksum_path

_log = logging.getLogger(__name__)

_LISTED_MAX: Final = 100
"""A checksum lists transactions, and domains, unless there are more, as those of Delta Lake do."""
_SHOWN_MAX: Final = 200
_TRANSACTIONS_KEPT: Final = "delta.setTransactionRetentionDuration"


def content_of(metadata: Metadata, protocol: Protocol, transactions: Iterable[Txn], domains: Iterable[DomainMetadata]) -> dict[str, Any]:
    """What a checksum says of a version besides its files and its commit."""
    return {
        "numMetadata": 1,
        "numProtocol": 1,
        "setTransactions": [_body(each) for each in transactions],
        "domainMetadata": [_body(each) for each in domains],
        "metadata": _body(metadata),
        "protocol": _body(protocol),
    }


def _body(action: Metadata | Protocol | Txn | DomainMetadata) -> Any:
    (body,) = loads(encode(action)).values()
    return body


def write_checksum(store: ObjectStore, version: int, content: Mapping[str, Any]) -> bool:
    """Write the checksum of a version that is in the log; False if it has one, which is compared. Raises the errors of the store."""
    written = dict(content)
    for name in ("setTransactions", "domainMetadata"):
        if len(content[name]) > _LISTED_MAX or (name == "setTransactions" and _forgets_transactions(content)):
            del written[name]
    # check: checksums-are-not-replaced (store.put_if_absent -> store.put)
    if store.put_if_absent(checksum_path(version), dumps(written)):
        return True
    compare_checksum(store, version, content)
    return False


def read_checksum(store: ObjectStore, version: int) -> dict[str, Any] | None:
    """The checksum of a version as it is stored; None if there is none. Raises ValueError for one that cannot be read."""
    try:
        says = loads(store.get(checksum_path(version)))
    except ObjectNotFound:
        return None
    if not isinstance(says, dict):
        raise ValueError("it is no JSON object")
    return says


def compare_checksum(store: ObjectStore, version: int, content: Mapping[str, Any]) -> None:
    """Warn if a version has a checksum that says something else. Raises nothing, for nothing depends on it."""
    try:
        says = read_checksum(store, version)
        wrong = [] if says is None else disagreements(says, content)
    except ValueError as cause:
        wrong = [f"it cannot be read ({cause})"]
    except SluiceError as trouble:
        _log.debug("the version checksum of version %d of %s was not compared: %s", version, store.location, trouble)
        return
    if wrong:
        _log.warning(
            "%s of %s disagrees with the log, which counts: %s. One of them was changed since it was written, or the checksum was wrong: "
            "sluice doctor says more",
            checksum_path(version),
            store.location,
            "; ".join(wrong),
        )


def disagreements(says: Mapping[str, Any], content: Mapping[str, Any]) -> list[str]:
    """What a checksum says otherwise than the log, which gives `content`. Raises ValueError for one that breaks the protocol."""
    theirs, own = _facts(says), _facts(content)
    if _forgets_transactions(content):
        theirs.pop("setTransactions", None)
    return [f"{name} is {_shown(value)} in it and {_shown(own[name])} in the log" for name, value in theirs.items() if value != own[name]]


def _forgets_transactions(content: Mapping[str, Any]) -> bool:
    """Whether other engines leave old transactions out of a version; when, depends on their clocks."""
    return _TRANSACTIONS_KEPT in content["metadata"]["configuration"]


def _facts(content: Mapping[str, Any]) -> dict[str, Any]:
    """What a checksum's content means, however it is spelled; facts that need not be there may be missing."""
    metadata, protocol = (action_of({wire: content.get(name)}) for name, wire in (("metadata", "metaData"), ("protocol", "protocol")))
    assert isinstance(metadata, Metadata)
    assert isinstance(protocol, Protocol)
    facts: dict[str, Any] = {name: content.get(name) for name in ("tableSizeBytes", "numFiles", "numMetadata", "numProtocol")}
    facts["metadata"] = replace(metadata, extra={})
    facts["protocol"] = (protocol.min_reader_version, protocol.min_writer_version, reader_features(protocol), writer_features(protocol))
    for name, key, value in (("setTransactions", "appId", "version"), ("domainMetadata", "domain", "configuration")):
        if (listed := content.get(name)) is not None:
            if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
                raise ValueError(f"{_shown(listed)} is no list of actions")
            facts[name] = {each.get(key): each.get(value) for each in listed}
    return facts


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."
