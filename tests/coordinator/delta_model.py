"""Delta Lake's conflict checker once more, as plainly as it can be written: what `explain --strict-delta` is compared with.

Written from the description of its ordered checks, not from sluice's rules; conditions are comparisons of the partition
column x with a number, or say nothing of it.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

_CHANGES_DATA = {"WRITE", "DELETE", "UPDATE", "MERGE", "TRUNCATE"}
_SAFE = {"delta.enableDeletionVectors": "true", "delta.checkpointPolicy": "v2"}


def _bodies(actions: list[Json], name: str) -> list[Json]:
    return [action[name] for action in actions if name in action]


def _reads_partition(predicates: list[str], x: str | None) -> bool:
    """Whether all conjuncts on x alone are true of a partition."""
    for predicate in predicates:
        words = predicate.split()
        if words[0] != "x" or "OR" in words:
            continue  # speaks of data columns too: TRUE
        if words[1:] == ["IS", "NULL"]:
            if x is not None:
                return False
        elif x is None or not {"=": int(x) == int(words[2]), ">": int(x) > int(words[2]), "<": int(x) < int(words[2])}[words[1]]:
            return False
    return True


def _level(level: str, actions: list[Json], operation: str) -> str:
    """Commits that only carry files without data change are compared at snapshot isolation."""
    for action in actions:
        [(name, body)] = action.items()
        if name not in ("add", "remove", "cdc") and not (name == "domainMetadata" and body["domain"] == "delta.rowTracking"):
            return level
    if any(body["dataChange"] for name in ("add", "remove") for body in _bodies(actions, name)):
        return level
    return level if level == "WriteSerializable" and operation in _CHANGES_DATA else "SnapshotIsolation"


def delta_verdict(case: Json) -> str:
    """ "ok" or the name of the exception."""
    own, reads, partitioned = case["own_actions"], case["txn_reads"], bool(case["partition_columns"])
    filters = [read["predicates"] for read in reads if read["op"] == "filterFiles"]
    places = [place["x"] for read in reads if read["op"] == "partitionsOf" for place in read["partitionValues"]]
    whole = any(read["op"] == "readWholeTable" for read in reads)
    files = {
        add["path"]
        for add in _bodies(case["setup"], "add")
        for predicates in filters
        if not partitioned or _reads_partition(predicates, add["partitionValues"]["x"])
    } | {path for read in reads if read["op"] == "readFiles" for path in read["paths"]}
    predicates_read = whole or bool(filters) or any(read["op"] == "partitionsOf" for read in reads)
    blind = not _bodies(own, "remove") and not _bodies(own, "cdc") and not predicates_read and not files
    level = _level(case["table_isolation"], own, case["own_operation"])
    configuration = _bodies(case["setup"], "metaData")[0]["configuration"]
    for actions in case["winning_commits"]:
        if _bodies(actions, "protocol") and _bodies(own, "protocol"):
            return "ProtocolChangedException"
        for changed in _bodies(actions, "metaData"):
            after = changed["configuration"]
            kept = configuration.keys() <= after.keys()
            safe = all(_SAFE.get(key) == value for key, value in after.items() if configuration.get(key) != value)
            if _bodies(own, "metaData") or not (kept and safe):
                return "MetadataChangedException"
            configuration = after
        domains = {body["domain"] for body in _bodies(own, "domainMetadata")} - {"delta.rowTracking"}
        if domains & {body["domain"] for body in _bodies(actions, "domainMetadata")}:
            return "ConcurrentTransactionException"
        apps = {read["appId"] for read in reads if read["op"] == "txnVersion"}
        if apps & {body["appId"] for body in _bodies(actions, "txn")}:
            return "ConcurrentTransactionException"
        winner_blind = any(body.get("isBlindAppend") is True for body in _bodies(actions, "commitInfo"))
        added = _bodies(actions, "add")
        if level == "SnapshotIsolation" or (level == "WriteSerializable" and winner_blind and not _bodies(own, "metaData")) or blind:
            added = []
        for add in added:
            x = add["partitionValues"].get("x")
            if whole or not partitioned or x in places or any(_reads_partition(predicates, x) for predicates in filters):
                return "ConcurrentAppendException"
        removed = {body["path"] for body in _bodies(actions, "remove")}
        if removed & files or (removed and whole):
            return "ConcurrentDeleteReadException"
        if removed & {body["path"] for body in _bodies(own, "remove")}:
            return "ConcurrentDeleteDeleteException"
    return "ok"
