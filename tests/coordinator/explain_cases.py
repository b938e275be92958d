"""Cases for `sluice explain`, one row each, and what they are made of.

The rows restate what Delta Lake documents about its conflict checker and what its suites check of it (optimistic
transactions, with and without a change of data), and then what sluice does better.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

__all__ = ["ERRORS", "TABLE", "Json", "add", "case", "domain", "info", "metadata", "protocol", "reads", "remove", "txn", "unpartitioned"]

Json = dict[str, Any]

ERRORS = {
    "ok": "ok",
    "append": "ConcurrentAppendException",
    "read": "ConcurrentDeleteReadException",
    "delete": "ConcurrentDeleteDeleteException",
    "meta": "MetadataChangedException",
    "proto": "ProtocolChangedException",
    "txn": "ConcurrentTransactionException",
    "feature": "UnsupportedTableFeature",
    "version": "InvalidProtocolVersion",
    "policy": "PolicyConflictException",
}


def add(path: str, /, *, data_change: bool = True, stats: Json | None = None, vector: Json | None = None, **values: str | None) -> Json:
    body: Json = {"path": path, "partitionValues": values, "size": 1, "modificationTime": 1, "dataChange": data_change}
    if stats is not None:
        body["stats"] = json.dumps(stats)
    if vector is not None:
        body["deletionVector"] = vector
    return {"add": body}


def remove(path: str, /, *, data_change: bool = True, **more: Any) -> Json:
    return {"remove": {"path": path, "deletionTimestamp": 4, "dataChange": data_change, **more}}


def txn(app: str, version: int = 0) -> Json:
    return {"txn": {"appId": app, "version": version}}


def domain(name: str) -> Json:
    return {"domainMetadata": {"domain": name, "configuration": "{}", "removed": False}}


def info(operation: str = "WRITE", *, blind: bool | None = None, **fields: Any) -> Json:
    said = {} if blind is None else {"isBlindAppend": blind}
    return {"commitInfo": {"operation": operation, **said, **fields}}


def protocol(*features: str, reader: tuple[str, ...] = ()) -> Json:
    named: Json = {"minReaderVersion": 3 if reader else 1, "minWriterVersion": 7, "writerFeatures": [*features, *reader]}
    return {"protocol": {**named, "readerFeatures": list(reader)} if reader else named}


def metadata(configuration: dict[str, str] | None = None, *, fields: tuple[Json, ...] | None = None, **more: Any) -> Json:
    columns = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in (("x", "integer"), ("y", "string"), ("n", "long"))]
    schema = {"type": "struct", "fields": list(fields) if fields is not None else columns}
    said = {"id": "t", "schemaString": json.dumps(schema), "partitionColumns": ["x"], "configuration": configuration or {}, **more}
    return {"metaData": {"format": {"provider": "parquet", "options": {}}, **said}}


def reads(*predicates: str) -> Json:
    return {"op": "filterFiles", "predicates": list(predicates)}


def reads_app(app: str) -> Json:
    return {"op": "txnVersion", "appId": app}


WHOLE: Json = {"op": "readWholeTable"}
METADATA: Json = {"op": "metadata"}
BLIND, READING = info(blind=True), info(blind=False)
A1, B1, C1, C2, D2, E3 = add("a", x="1"), add("b", x="1"), add("c1", x="1"), add("c", x="2"), add("d", x="2"), add("e", x="3")


def case(
    *,
    setup: list[Json] | None = None,
    txn_reads: list[Json] | None = None,
    won: list[Json] | None = None,
    own: list[Json] | None = None,
    operation: str = "TRUNCATE",
    columns: tuple[str, ...] = ("x",),
    **more: Any,
) -> Json:
    """A case on a table with the columns x (the partition, unless told otherwise), y and n; nobody says what the winner's operation is."""
    return {
        "partition_columns": list(columns),
        "schema": {"x": "int", "y": "string", "n": "bigint"},
        "setup": setup or [],
        "txn_reads": txn_reads or [],
        "winning_commits": [won or []],
        "own_actions": own or [],
        "own_operation": operation,
        **more,
    }


def unpartitioned(**fields: Any) -> Json:
    return case(columns=(), **fields)


NESTED: Json = {"columns": ("a", "b"), "schema": {"a": "string", "b": "string"}}
NESTED_11, NESTED_12, NESTED_21, NESTED_31 = (add(f"{a}{b}", a=a, b=b) for a, b in ("11", "12", "21", "31"))
MAPPED = {
    "name": "y",
    "type": "string",
    "nullable": True,
    "metadata": {"delta.columnMapping.id": 2, "delta.columnMapping.physicalName": "y"},
}
PLAIN = tuple({"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in (("x", "integer"), ("y", "string"), ("n", "long")))
HISTORY = {"delta.typeChanges": [{"fromType": "integer", "toType": "long"}]}
WIDER = metadata(fields=({**PLAIN[0], "type": "long", "metadata": HISTORY}, *PLAIN[1:]))
OLD = {"numRecords": 5, "minValues": {"n": 1}, "maxValues": {"n": 9}, "nullCount": {"n": 0}}
NEW = {"numRecords": 5, "minValues": {"n": 100}, "maxValues": {"n": 109}, "nullCount": {"n": 0}}
DOMAINS = protocol("domainMetadata")
NO_A, IN_1, T1, META, KV = remove("a"), reads("x = 1"), txn("t1"), metadata(), metadata({"k": "v"})
D, ROWS, UNKNOWN = domain("d"), domain("delta.rowTracking"), protocol("teleportation")
AT_1: Json = {"op": "partitionsOf", "partitionValues": [{"x": "1"}]}
REWRITING = [remove("a", data_change=False), remove("b", data_change=False), add("c1", x="1", data_change=False)]
VECTORS = metadata({"delta.enableDeletionVectors": "true"})
ONLY_ADDS, ADDS_AND_CHECKS = protocol("appendOnly"), protocol("appendOnly", "checkConstraints")


def row(about: str, delta: str, ours: str = "", *, reads: Sequence[Json] = (), **fields: Any) -> tuple[str, Json, str, str]:
    """What it is about; the case; Delta Lake's own verdict and sluice's (by default the same), each at Serializable/WriteSerializable."""
    whole, our_whole = (each if "/" in each else f"{each}/{each}" for each in (delta, ours or delta))
    return about, case(txn_reads=list(reads), **fields), whole, our_whole


TABLE: list[tuple[str, Json, str, str]] = [
    # -- what goes together ------------------------------------------------------------------------------------------------
    row("append / append", "ok", columns=(), reads=[METADATA], won=[add("a")], own=[add("b")]),
    row("nobody came first", "ok", reads=[WHOLE], own=[A1], winning_commits=[]),
    row("a winner without actions", "ok", setup=[A1], reads=[WHOLE], own=[NO_A, B1]),
    row("disjoint applications", "ok", reads=[reads_app("t1")], won=[txn("t2")]),
    row("disjoint delete / read", "ok", setup=[add("a", x="2")], reads=[IN_1], won=[NO_A]),
    row("disjoint add / read", "ok", reads=[IN_1], won=[C2]),
    row("add / read + no write", "ok", reads=[IN_1], won=[A1], operation="Manual Update"),
    row("blind append against any change", "ok", columns=(), setup=[add("a")], won=[NO_A, add("b")], own=[add("c")]),
    row("blind append against an overwrite", "ok", setup=[A1], won=[NO_A, B1], own=[C1], operation="WRITE"),
    row("a blind append may number itself", "ok", reads=[reads_app("t1")], won=[A1], own=[B1, T1]),
    row("own application id, not read, the same number", "ok", won=[A1, T1], own=[B1, T1]),
    row("the same number is repeated, not refused", "delete", "ok", setup=[A1], won=[T1, NO_A], own=[NO_A, T1]),
    row("the same number of one application of two is no repetition", "delete", setup=[A1], won=[T1, NO_A], own=[NO_A, T1, txn("t2")]),
    row("own application id, not read, another number", "ok", "txn", won=[A1, T1], own=[B1, txn("t1", 1)]),
    # -- the order of the checks: protocol, metadata, domain, application, appends, reads, deletes ----------------------------
    row("upgrade / upgrade", "proto", reads=[METADATA], won=[ONLY_ADDS], own=[ONLY_ADDS]),
    row("an upgrade against an append", "ok", setup=[ONLY_ADDS], won=[ADDS_AND_CHECKS], own=[A1]),
    row("a feature is dropped", "proto", setup=[ADDS_AND_CHECKS], won=[ONLY_ADDS], own=[A1]),
    row("a feature nobody knows", "feature", "proto", won=[UNKNOWN], own=[A1]),
    row("a protocol of the future", "version", "proto", won=[{"protocol": {"minReaderVersion": 9, "minWriterVersion": 9}}], own=[A1]),
    row("a feature the table had before", "ok", "proto", setup=[UNKNOWN], won=[protocol("teleportation", "appendOnly")], own=[A1]),
    row("schema change", "meta", reads=[METADATA], won=[{"metaData": {}}], operation=""),
    row("append against a property", "meta", setup=[META], won=[KV], own=[A1]),
    row("append against an unset property", "meta", setup=[KV], won=[META], own=[A1]),
    row("append against a new column", "meta", setup=[META], won=[metadata(fields=PLAIN[:2])], own=[A1]),
    row("append against another name", "meta", setup=[META], won=[metadata(name="n")], own=[A1]),
    row("append against deletion vectors", "ok", setup=[META], won=[VECTORS], own=[A1]),
    row("no deletion vectors any more", "meta", setup=[VECTORS], won=[metadata({"delta.enableDeletionVectors": "false"})], own=[A1]),
    row(
        "append against row tracking",
        "ok",
        setup=[META],
        won=[
            metadata(
                {
                    "delta.enableRowTracking": "true",
                    "delta.rowTracking.materializedRowIdColumnName": "r",
                    "delta.rowTracking.materializedRowCommitVersionColumnName": "v",
                }
            )
        ],
        own=[A1],
    ),
    row(
        "append against column mapping",
        "ok",
        setup=[metadata(fields=PLAIN)],
        won=[metadata({"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "3"}, fields=(PLAIN[0], MAPPED, PLAIN[2]))],
        own=[A1],
    ),
    row("mapping by id is no such change", "meta", setup=[META], won=[metadata({"delta.columnMapping.mode": "id"})], own=[A1]),
    row("both change metadata", "meta", setup=[META], won=[VECTORS], own=[KV]),
    row("protocol is asked before metadata", "proto", setup=[META, ADDS_AND_CHECKS], won=[KV, ONLY_ADDS], own=[A1]),
    row("metadata is asked before files", "meta", setup=[A1, META], reads=[WHOLE], won=[NO_A, KV], own=[NO_A]),
    row("the same domain", "txn", setup=[DOMAINS], won=[D], own=[D]),
    row("another domain", "ok", setup=[DOMAINS], won=[domain("e")], own=[D]),
    row("row tracking's domain is everybody's", "ok", setup=[DOMAINS], won=[ROWS], own=[A1, ROWS]),
    row("domains without the feature", "ok", "txn", setup=[ONLY_ADDS], won=[D], own=[D]),
    row("conflicting applications", "txn", reads=[reads_app("t1")], won=[T1]),
    row("an application that was read, whatever its number", "txn", reads=[reads_app("t1")], won=[T1, A1], own=[B1, txn("t1", 1)]),
    row("domain is asked before application", "txn", setup=[DOMAINS], reads=[reads_app("t1")], won=[T1, D], own=[D]),
    # -- appends where I read --------------------------------------------------------------------------------------------------
    row("add / read + write", "append", reads=[IN_1], won=[A1], own=[B1]),
    row("add / read + write, blind winner", "append/ok", reads=[IN_1], won=[BLIND, A1], own=[B1]),
    row("add / read + write, reading winner", "append", reads=[IN_1], won=[READING, A1], own=[B1]),
    row("own metadata makes blind winners count", "append", setup=[META], reads=[IN_1], won=[BLIND, A1], own=[B1, KV]),
    row("a flag that is no boolean is none", "append", reads=[IN_1], won=[info(isBlindAppend="true"), A1], own=[B1]),
    row("add in x=1 / read x=1, x=2, write x=2", "append", reads=[IN_1, reads("x = 2")], won=[A1], own=[D2]),
    row("read + append against append", "append", columns=(), reads=[reads()], won=[add("a")], own=[add("b")]),
    row("read + append against blind append", "append/ok", columns=(), reads=[reads()], won=[BLIND, add("a")], own=[add("b")]),
    row("disjoint partitions", "ok", setup=[A1, E3], reads=[reads("x = 3")], won=[B1], own=[C2, remove("e")]),
    row("read x=1, x=2 was rewritten", "ok", setup=[A1, D2], reads=[reads("x IN (1)")], won=[C2, remove("d")], own=[E3]),
    row("read partition was appended to", "append", setup=[A1, D2, E3], reads=[IN_1], won=[B1], own=[C2, E3]),
    row("full table scan", "append", setup=[A1, D2], reads=[reads(), IN_1], won=[C2, remove("d")], own=[E3]),
    row("conjuncts count one by one", "ok", setup=[A1], reads=[reads("x = 1", "y = 'a'")], won=[C2], own=[NO_A]),
    row("mixed partition and data condition", "append", setup=[A1, E3], reads=[reads("x = 1 OR y > 'q'")], won=[C2], own=[NO_A]),
    row("a column nobody knows", "append", setup=[A1, E3], reads=[reads("x = 1 OR year > 2019")], won=[C2], own=[NO_A]),
    row("a null partition is in no comparison", "ok", reads=[IN_1], won=[add("a", x=None)], own=[B1]),
    row("a null partition by IS NULL", "append", reads=[reads("x IS NULL")], won=[add("a", x=None)], own=[B1]),
    row("typed comparison of partition values", "append", reads=[IN_1], won=[add("a", x="01")], own=[B1]),
    row("replaceWhere, empty at first", "append", setup=[A1], reads=[reads("x >= 2")], won=[E3], own=[C2]),
    row("replaceWhere, disjoint", "ok", setup=[A1], reads=[reads("x > 1 AND x <= 3")], won=[add("g", x="4")], own=[C2]),
    row("replaceWhere twice", "append", setup=[A1], reads=[IN_1], won=[NO_A, B1], own=[NO_A, C1]),
    row("two scans", "append", setup=[A1, E3], reads=[IN_1, reads("x > 1 AND x < 3")], won=[C2], own=[NO_A]),
    row("dynamic overwrite, the same partition", "append", reads=[AT_1], won=[A1], own=[B1]),
    row("dynamic overwrite, another partition", "ok", reads=[{"op": "partitionsOf", "partitionValues": [{"x": "2"}]}], won=[A1], own=[C2]),
    row("dynamic overwrite reads no files", "ok", setup=[A1], reads=[AT_1], won=[NO_A], own=[B1]),
    row("dynamic overwrite of nothing", "ok", reads=[{"op": "partitionsOf", "partitionValues": []}], won=[A1], own=[B1]),
    row("nested, disjoint", "ok", **NESTED, setup=[NESTED_11], reads=[reads("a = 1 AND b = 1")], won=[NESTED_12], own=[NESTED_21]),
    row("nested, read above", "ok", **NESTED, setup=[NESTED_11, NESTED_12], reads=[reads("a = 1")], won=[NESTED_21], own=[NESTED_31]),
    row(
        "nested, a file below was deleted",
        "read",
        **NESTED,
        setup=[NESTED_11, NESTED_12],
        reads=[reads("a = 1")],
        won=[remove("11")],
        own=[NESTED_31],
    ),
    row("nested, full scan", "append", **NESTED, setup=[NESTED_11], reads=[reads()], won=[NESTED_12], own=[NESTED_21]),
    row("nested, a range", "append", **NESTED, setup=[NESTED_11], reads=[reads("a >= 1 OR b > 1")], won=[NESTED_12], own=[NESTED_31]),
    row("taint whole table", "append", setup=[add("a", x="2")], reads=[IN_1, WHOLE], won=[add("b", x="3")], own=[add("c", x="4")]),
    row("unpartitioned: read nothing, but not blind", "append", columns=(), setup=[add("z")], won=[add("a")], own=[remove("z")]),
    row("partitioned: read nothing, not blind", "ok", setup=[add("z", x="1")], won=[A1], own=[remove("z")]),
    row(
        "a file of row changes is no blind append",
        "append",
        columns=(),
        won=[add("a")],
        own=[add("b"), {"cdc": {"path": "c", "partitionValues": {}, "size": 1, "dataChange": False}}],
    ),
    row(
        "numbering rows is no append", "ok", reads=[IN_1], won=[info("ROW TRACKING BACKFILL"), add("a", x="1", data_change=False)], own=[B1]
    ),
    # -- removed files ---------------------------------------------------------------------------------------------------------
    row("delete / delete", "delete", columns=(), won=[NO_A], own=[NO_A]),
    row("delete / read", "read", setup=[A1], reads=[IN_1], won=[NO_A], operation=""),
    row("whole table + concurrent remove", "read", columns=(), setup=[add("a")], reads=[WHOLE], won=[NO_A], own=[add("b")]),
    row("whole table + any remove", "read", setup=[A1], reads=[WHOLE], won=[remove("z")], own=[B1]),
    row("whole table as a filter + remove of another file", "ok", setup=[A1], reads=[reads()], won=[remove("z")], own=[B1]),
    row("files read by name", "read", reads=[{"op": "readFiles", "paths": ["a"]}], won=[NO_A], own=[B1]),
    row("other files read by name", "ok", reads=[{"op": "readFiles", "paths": ["b"]}], won=[NO_A], own=[B1]),
    row(
        "concurrent removes of one file",
        "delete",
        **NESTED,
        setup=[NESTED_12],
        reads=[reads("a = 2")],
        won=[remove("12")],
        own=[remove("12")],
    ),
    row("full scan + add and remove anywhere", "append", setup=[A1, C2], reads=[reads()], won=[remove("c"), B1], own=[D2]),
    row("full scan + remove anywhere", "read", setup=[A1, C2], reads=[reads()], won=[NO_A], own=[remove("c")]),
    row(
        "replaceWhere, overlapping",
        "read",
        setup=[A1, C2, E3],
        reads=[reads("x = 3 OR x = 2")],
        won=[NO_A, remove("e"), B1],
        own=[remove("c"), remove("e"), D2],
    ),
    row("appends are asked before reads", "append/read", setup=[A1], reads=[IN_1], won=[BLIND, NO_A, B1], own=[C1]),
    row(
        "a file whose statistics exclude it was not read",
        "ok",
        setup=[add("a", x="1", stats=OLD)],
        reads=[reads("n > 50")],
        won=[NO_A],
        own=[C1],
    ),
    row(
        "which Delta does not see in a mixed condition",
        "read",
        "ok",
        setup=[add("a", x="1", stats=OLD)],
        reads=[reads("x = 2 OR n > 50")],
        won=[NO_A],
        own=[C1],
    ),
    # -- commits that change no data -------------------------------------------------------------------------------------------
    row("rearranging while files are added", "ok", setup=[A1, B1], reads=[reads()], won=[E3], own=REWRITING, operation="OPTIMIZE"),
    row("rearranging what is deleted", "read", setup=[A1, B1], reads=[reads()], won=[NO_A], own=REWRITING, operation="OPTIMIZE"),
    row(
        "an UPDATE that changed nothing, says WriteSerializable",
        "ok/append",
        reads=[IN_1],
        won=[A1],
        own=[add("b", x="1", data_change=False)],
        operation="UPDATE",
    ),
    row("a domain keeps the level", "append", setup=[DOMAINS], reads=[IN_1], won=[A1], own=[D], operation=""),
    row("row tracking's domain does not", "ok", setup=[DOMAINS], reads=[IN_1], won=[A1], own=[ROWS], operation=""),
    row("a txn action keeps the level", "append", reads=[IN_1], won=[A1], own=[txn("t9")], operation=""),
    row("a txn that was read does not", "ok", reads=[IN_1, reads_app("t1")], won=[A1], operation=""),
    row("at any level: whole table and a removal", "read", reads=[WHOLE], won=[NO_A], operation=""),
    # -- better than the original ------------------------------------------------------------------------------------------------
    row("an append of the narrower type", "meta", "ok", setup=[META], won=[WIDER], own=[A1]),
    row("a change of rows with the narrower type", "meta", setup=[META, A1], reads=[IN_1], won=[WIDER], own=[NO_A]),
    row(
        "a winning OPTIMIZE adds no rows",
        "append",
        "ok",
        setup=[A1, E3],
        reads=[reads("x = 3")],
        won=[info("OPTIMIZE", blind=False), add("n", x="3", data_change=False)],
        own=[remove("e")],
    ),
    row(
        "the winner's statistics exclude it",
        "append/ok",
        "ok",
        setup=[A1],
        reads=[reads("n < 10")],
        won=[BLIND, add("b", x="1", stats=NEW)],
        own=[NO_A],
    ),
    row(
        "the winner's statistics do not",
        "append/ok",
        setup=[A1],
        reads=[reads("n < 10")],
        won=[BLIND, add("b", x="1", stats=OLD)],
        own=[NO_A],
    ),
    row(
        "statistics in a table without partitions",
        "append",
        "ok",
        columns=(),
        setup=[add("a")],
        reads=[reads("n < 10")],
        won=[add("b", stats=NEW)],
        own=[NO_A],
    ),
    row(
        "mixed conditions, with statistics",
        "append",
        "ok",
        setup=[A1],
        reads=[reads("x = 1 OR n < 10")],
        won=[add("c", x="2", stats=NEW)],
        own=[NO_A],
    ),
    row(
        "conditions on data, a file of another partition",
        "append",
        "ok",
        setup=[A1],
        reads=[reads("x = 1 AND n < 10")],
        won=[add("c", x="1", stats=NEW)],
        own=[NO_A],
    ),
]
