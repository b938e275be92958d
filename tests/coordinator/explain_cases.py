"""Cases for `sluice explain`, one row each, and what they are made of.

The rows restate what Delta Lake documents about its conflict checker and what its suites check of it (optimistic
transactions, with and without a change of data), and then what sluice does better.
"""

from __future__ import annotations

import json
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


def nested(**fields: Any) -> Json:
    return case(columns=("a", "b"), schema={"a": "string", "b": "string"}, **fields)


NESTED_11, NESTED_12, NESTED_21, NESTED_31 = (add(f"{a}{b}", a=a, b=b) for a, b in ("11", "12", "21", "31"))
MAPPED = {
    "name": "y",
    "type": "string",
    "nullable": True,
    "metadata": {"delta.columnMapping.id": 2, "delta.columnMapping.physicalName": "c"},
}
PLAIN = tuple({"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in (("x", "integer"), ("y", "string"), ("n", "long")))
OLD = {"numRecords": 5, "minValues": {"n": 1}, "maxValues": {"n": 9}, "nullCount": {"n": 0}}
NEW = {"numRecords": 5, "minValues": {"n": 100}, "maxValues": {"n": 109}, "nullCount": {"n": 0}}
DOMAINS = protocol("domainMetadata")

# Each row: what it is about; the case; Delta Lake's own verdict and sluice's, each at Serializable/WriteSerializable.
TABLE: list[tuple[str, Json, str, str]] = [
    # -- what goes together ------------------------------------------------------------------------------------------------
    ("append / append", unpartitioned(txn_reads=[METADATA], won=[add("a")], own=[add("b")]), "ok/ok", "ok/ok"),
    ("nobody came first", case(txn_reads=[WHOLE], own=[A1], winning_commits=[]), "ok/ok", "ok/ok"),
    ("a winner without actions", case(setup=[A1], txn_reads=[WHOLE], own=[remove("a"), B1]), "ok/ok", "ok/ok"),
    ("disjoint applications", case(txn_reads=[reads_app("t1")], won=[txn("t2")]), "ok/ok", "ok/ok"),
    ("disjoint delete / read", case(setup=[add("a", x="2")], txn_reads=[reads("x = 1")], won=[remove("a")]), "ok/ok", "ok/ok"),
    ("disjoint add / read", case(txn_reads=[reads("x = 1")], won=[C2]), "ok/ok", "ok/ok"),
    ("add / read + no write", case(txn_reads=[reads("x = 1")], won=[A1], operation="Manual Update"), "ok/ok", "ok/ok"),
    ("blind append against any change", unpartitioned(setup=[add("a")], won=[remove("a"), add("b")], own=[add("c")]), "ok/ok", "ok/ok"),
    ("blind append against an overwrite", case(setup=[A1], won=[remove("a"), B1], own=[C1], operation="WRITE"), "ok/ok", "ok/ok"),
    ("a blind append may number itself", case(txn_reads=[reads_app("t1")], won=[A1], own=[B1, txn("t1")]), "ok/ok", "ok/ok"),
    ("own application id, not read, the same number", case(won=[A1, txn("t1")], own=[B1, txn("t1")]), "ok/ok", "ok/ok"),
    (
        "the same number is repeated, not refused",
        case(setup=[A1], won=[txn("t1"), remove("a")], own=[remove("a"), txn("t1")]),
        "delete/delete",
        "ok/ok",
    ),
    (
        "the same number of one application of two is no repetition",
        case(setup=[A1], won=[txn("t1"), remove("a")], own=[remove("a"), txn("t1"), txn("t2")]),
        "delete/delete",
        "delete/delete",
    ),
    ("own application id, not read, another number", case(won=[A1, txn("t1")], own=[B1, txn("t1", 1)]), "ok/ok", "txn/txn"),
    # -- the order of the checks: protocol, metadata, domain, application, appends, reads, deletes ----------------------------
    (
        "upgrade / upgrade",
        case(txn_reads=[METADATA], won=[protocol("appendOnly")], own=[protocol("appendOnly")]),
        "proto/proto",
        "proto/proto",
    ),
    (
        "an upgrade against an append",
        case(setup=[protocol("appendOnly")], won=[protocol("appendOnly", "checkConstraints")], own=[A1]),
        "ok/ok",
        "ok/ok",
    ),
    (
        "a feature is dropped",
        case(setup=[protocol("appendOnly", "checkConstraints")], won=[protocol("appendOnly")], own=[A1]),
        "proto/proto",
        "proto/proto",
    ),
    ("a feature nobody knows", case(won=[protocol("teleportation")], own=[A1]), "feature/feature", "proto/proto"),
    (
        "a protocol of the future",
        case(won=[{"protocol": {"minReaderVersion": 9, "minWriterVersion": 9}}], own=[A1]),
        "version/version",
        "proto/proto",
    ),
    (
        "a feature the table had before",
        case(setup=[protocol("teleportation")], won=[protocol("teleportation", "appendOnly")], own=[A1]),
        "ok/ok",
        "proto/proto",
    ),
    ("schema change", case(txn_reads=[METADATA], won=[{"metaData": {}}], operation=""), "meta/meta", "meta/meta"),
    ("append against a property", case(setup=[metadata()], won=[metadata({"k": "v"})], own=[A1]), "meta/meta", "meta/meta"),
    ("append against an unset property", case(setup=[metadata({"k": "v"})], won=[metadata()], own=[A1]), "meta/meta", "meta/meta"),
    ("append against a new column", case(setup=[metadata()], won=[metadata(fields=PLAIN[:2])], own=[A1]), "meta/meta", "meta/meta"),
    ("append against another name", case(setup=[metadata()], won=[metadata(name="n")], own=[A1]), "meta/meta", "meta/meta"),
    (
        "append against deletion vectors",
        case(setup=[metadata()], won=[metadata({"delta.enableDeletionVectors": "true"})], own=[A1]),
        "ok/ok",
        "ok/ok",
    ),
    (
        "no deletion vectors any more",
        case(setup=[metadata({"delta.enableDeletionVectors": "true"})], won=[metadata({"delta.enableDeletionVectors": "false"})], own=[A1]),
        "meta/meta",
        "meta/meta",
    ),
    (
        "append against row tracking",
        case(
            setup=[metadata()],
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
        "ok/ok",
        "ok/ok",
    ),
    (
        "append against column mapping",
        case(
            setup=[metadata(fields=PLAIN)],
            won=[
                metadata({"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "3"}, fields=(PLAIN[0], MAPPED, PLAIN[2]))
            ],
            own=[A1],
        ),
        "ok/ok",
        "ok/ok",
    ),
    (
        "mapping by id is no such change",
        case(setup=[metadata()], won=[metadata({"delta.columnMapping.mode": "id"})], own=[A1]),
        "meta/meta",
        "meta/meta",
    ),
    (
        "both change metadata",
        case(setup=[metadata()], won=[metadata({"delta.enableDeletionVectors": "true"})], own=[metadata({"k": "v"})]),
        "meta/meta",
        "meta/meta",
    ),
    (
        "protocol is asked before metadata",
        case(setup=[metadata(), protocol("appendOnly", "checkConstraints")], won=[metadata({"k": "v"}), protocol("appendOnly")], own=[A1]),
        "proto/proto",
        "proto/proto",
    ),
    (
        "metadata is asked before files",
        case(setup=[A1, metadata()], txn_reads=[WHOLE], won=[remove("a"), metadata({"k": "v"})], own=[remove("a")]),
        "meta/meta",
        "meta/meta",
    ),
    ("the same domain", case(setup=[DOMAINS], won=[domain("d")], own=[domain("d")]), "txn/txn", "txn/txn"),
    ("another domain", case(setup=[DOMAINS], won=[domain("e")], own=[domain("d")]), "ok/ok", "ok/ok"),
    (
        "row tracking's domain is everybody's",
        case(setup=[DOMAINS], won=[domain("delta.rowTracking")], own=[A1, domain("delta.rowTracking")]),
        "ok/ok",
        "ok/ok",
    ),
    ("domains without the feature", case(setup=[protocol("appendOnly")], won=[domain("d")], own=[domain("d")]), "ok/ok", "txn/txn"),
    ("conflicting applications", case(txn_reads=[reads_app("t1")], won=[txn("t1")]), "txn/txn", "txn/txn"),
    (
        "an application that was read, whatever its number",
        case(txn_reads=[reads_app("t1")], won=[txn("t1"), A1], own=[B1, txn("t1", 1)]),
        "txn/txn",
        "txn/txn",
    ),
    (
        "domain is asked before application",
        case(setup=[DOMAINS], txn_reads=[reads_app("t1")], won=[txn("t1"), domain("d")], own=[domain("d")]),
        "txn/txn",
        "txn/txn",
    ),
    # -- appends where I read --------------------------------------------------------------------------------------------------
    ("add / read + write", case(txn_reads=[reads("x = 1")], won=[A1], own=[B1]), "append/append", "append/append"),
    ("add / read + write, blind winner", case(txn_reads=[reads("x = 1")], won=[BLIND, A1], own=[B1]), "append/ok", "append/ok"),
    ("add / read + write, reading winner", case(txn_reads=[reads("x = 1")], won=[READING, A1], own=[B1]), "append/append", "append/append"),
    (
        "own metadata makes blind winners count",
        case(setup=[metadata()], txn_reads=[reads("x = 1")], won=[BLIND, A1], own=[B1, metadata({"k": "v"})]),
        "append/append",
        "append/append",
    ),
    (
        "a flag that is no boolean is none",
        case(txn_reads=[reads("x = 1")], won=[info(isBlindAppend="true"), A1], own=[B1]),
        "append/append",
        "append/append",
    ),
    (
        "add in x=1 / read x=1, x=2, write x=2",
        case(txn_reads=[reads("x = 1"), reads("x = 2")], won=[A1], own=[D2]),
        "append/append",
        "append/append",
    ),
    ("read + append against append", unpartitioned(txn_reads=[reads()], won=[add("a")], own=[add("b")]), "append/append", "append/append"),
    (
        "read + append against blind append",
        unpartitioned(txn_reads=[reads()], won=[BLIND, add("a")], own=[add("b")]),
        "append/ok",
        "append/ok",
    ),
    ("disjoint partitions", case(setup=[A1, E3], txn_reads=[reads("x = 3")], won=[B1], own=[C2, remove("e")]), "ok/ok", "ok/ok"),
    ("read x=1, x=2 was rewritten", case(setup=[A1, D2], txn_reads=[reads("x IN (1)")], won=[C2, remove("d")], own=[E3]), "ok/ok", "ok/ok"),
    (
        "read partition was appended to",
        case(setup=[A1, D2, E3], txn_reads=[reads("x = 1")], won=[B1], own=[C2, E3]),
        "append/append",
        "append/append",
    ),
    (
        "full table scan",
        case(setup=[A1, D2], txn_reads=[reads(), reads("x = 1")], won=[C2, remove("d")], own=[E3]),
        "append/append",
        "append/append",
    ),
    ("conjuncts count one by one", case(setup=[A1], txn_reads=[reads("x = 1", "y = 'a'")], won=[C2], own=[remove("a")]), "ok/ok", "ok/ok"),
    (
        "mixed partition and data condition",
        case(setup=[A1, E3], txn_reads=[reads("x = 1 OR y > 'q'")], won=[C2], own=[remove("a")]),
        "append/append",
        "append/append",
    ),
    (
        "a column nobody knows",
        case(setup=[A1, E3], txn_reads=[reads("x = 1 OR year > 2019")], won=[C2], own=[remove("a")]),
        "append/append",
        "append/append",
    ),
    ("a null partition is in no comparison", case(txn_reads=[reads("x = 1")], won=[add("a", x=None)], own=[B1]), "ok/ok", "ok/ok"),
    (
        "a null partition by IS NULL",
        case(txn_reads=[reads("x IS NULL")], won=[add("a", x=None)], own=[B1]),
        "append/append",
        "append/append",
    ),
    (
        "typed comparison of partition values",
        case(txn_reads=[reads("x = 1")], won=[add("a", x="01")], own=[B1]),
        "append/append",
        "append/append",
    ),
    ("replaceWhere, empty at first", case(setup=[A1], txn_reads=[reads("x >= 2")], won=[E3], own=[C2]), "append/append", "append/append"),
    ("replaceWhere, disjoint", case(setup=[A1], txn_reads=[reads("x > 1 AND x <= 3")], won=[add("g", x="4")], own=[C2]), "ok/ok", "ok/ok"),
    (
        "replaceWhere twice",
        case(setup=[A1], txn_reads=[reads("x = 1")], won=[remove("a"), B1], own=[remove("a"), C1]),
        "append/append",
        "append/append",
    ),
    (
        "two scans",
        case(setup=[A1, E3], txn_reads=[reads("x = 1"), reads("x > 1 AND x < 3")], won=[C2], own=[remove("a")]),
        "append/append",
        "append/append",
    ),
    (
        "dynamic overwrite, the same partition",
        case(txn_reads=[{"op": "partitionsOf", "partitionValues": [{"x": "1"}]}], won=[A1], own=[B1]),
        "append/append",
        "append/append",
    ),
    (
        "dynamic overwrite, another partition",
        case(txn_reads=[{"op": "partitionsOf", "partitionValues": [{"x": "2"}]}], won=[A1], own=[C2]),
        "ok/ok",
        "ok/ok",
    ),
    (
        "dynamic overwrite reads no files",
        case(setup=[A1], txn_reads=[{"op": "partitionsOf", "partitionValues": [{"x": "1"}]}], won=[remove("a")], own=[B1]),
        "ok/ok",
        "ok/ok",
    ),
    ("dynamic overwrite of nothing", case(txn_reads=[{"op": "partitionsOf", "partitionValues": []}], won=[A1], own=[B1]), "ok/ok", "ok/ok"),
    (
        "nested, disjoint",
        nested(setup=[NESTED_11], txn_reads=[reads("a = 1 AND b = 1")], won=[NESTED_12], own=[NESTED_21]),
        "ok/ok",
        "ok/ok",
    ),
    (
        "nested, read above",
        nested(setup=[NESTED_11, NESTED_12], txn_reads=[reads("a = 1")], won=[NESTED_21], own=[NESTED_31]),
        "ok/ok",
        "ok/ok",
    ),
    (
        "nested, a file below was deleted",
        nested(setup=[NESTED_11, NESTED_12], txn_reads=[reads("a = 1")], won=[remove("11")], own=[NESTED_31]),
        "read/read",
        "read/read",
    ),
    (
        "nested, full scan",
        nested(setup=[NESTED_11], txn_reads=[reads()], won=[NESTED_12], own=[NESTED_21]),
        "append/append",
        "append/append",
    ),
    (
        "nested, a range",
        nested(setup=[NESTED_11], txn_reads=[reads("a >= 1 OR b > 1")], won=[NESTED_12], own=[NESTED_31]),
        "append/append",
        "append/append",
    ),
    (
        "taint whole table",
        case(setup=[add("a", x="2")], txn_reads=[reads("x = 1"), WHOLE], won=[add("b", x="3")], own=[add("c", x="4")]),
        "append/append",
        "append/append",
    ),
    (
        "unpartitioned: read nothing, but not blind",
        unpartitioned(setup=[add("z")], won=[add("a")], own=[remove("z")]),
        "append/append",
        "append/append",
    ),
    ("partitioned: read nothing, not blind", case(setup=[add("z", x="1")], won=[A1], own=[remove("z")]), "ok/ok", "ok/ok"),
    (
        "a file of row changes is no blind append",
        unpartitioned(won=[add("a")], own=[add("b"), {"cdc": {"path": "c", "partitionValues": {}, "size": 1, "dataChange": False}}]),
        "append/append",
        "append/append",
    ),
    (
        "numbering rows is no append",
        case(txn_reads=[reads("x = 1")], won=[info("ROW TRACKING BACKFILL"), add("a", x="1", data_change=False)], own=[B1]),
        "ok/ok",
        "ok/ok",
    ),
    # -- removed files ---------------------------------------------------------------------------------------------------------
    ("delete / delete", unpartitioned(won=[remove("a")], own=[remove("a")]), "delete/delete", "delete/delete"),
    ("delete / read", case(setup=[A1], txn_reads=[reads("x = 1")], won=[remove("a")], operation=""), "read/read", "read/read"),
    (
        "whole table + concurrent remove",
        unpartitioned(setup=[add("a")], txn_reads=[WHOLE], won=[remove("a")], own=[add("b")]),
        "read/read",
        "read/read",
    ),
    ("whole table + any remove", case(setup=[A1], txn_reads=[WHOLE], won=[remove("z")], own=[B1]), "read/read", "read/read"),
    (
        "whole table as a filter + remove of another file",
        case(setup=[A1], txn_reads=[reads()], won=[remove("z")], own=[B1]),
        "ok/ok",
        "ok/ok",
    ),
    ("files read by name", case(txn_reads=[{"op": "readFiles", "paths": ["a"]}], won=[remove("a")], own=[B1]), "read/read", "read/read"),
    ("other files read by name", case(txn_reads=[{"op": "readFiles", "paths": ["b"]}], won=[remove("a")], own=[B1]), "ok/ok", "ok/ok"),
    (
        "concurrent removes of one file",
        nested(setup=[NESTED_12], txn_reads=[reads("a = 2")], won=[remove("12")], own=[remove("12")]),
        "delete/delete",
        "delete/delete",
    ),
    (
        "full scan + add and remove anywhere",
        case(setup=[A1, C2], txn_reads=[reads()], won=[remove("c"), B1], own=[D2]),
        "append/append",
        "append/append",
    ),
    (
        "full scan + remove anywhere",
        case(setup=[A1, C2], txn_reads=[reads()], won=[remove("a")], own=[remove("c")]),
        "read/read",
        "read/read",
    ),
    (
        "replaceWhere, overlapping",
        case(
            setup=[A1, C2, E3], txn_reads=[reads("x = 3 OR x = 2")], won=[remove("a"), remove("e"), B1], own=[remove("c"), remove("e"), D2]
        ),
        "read/read",
        "read/read",
    ),
    (
        "appends are asked before reads",
        case(setup=[A1], txn_reads=[reads("x = 1")], won=[BLIND, remove("a"), B1], own=[C1]),
        "append/read",
        "append/read",
    ),
    (
        "a file whose statistics exclude it was not read",
        case(setup=[add("a", x="1", stats=OLD)], txn_reads=[reads("n > 50")], won=[remove("a")], own=[C1]),
        "ok/ok",
        "ok/ok",
    ),
    (
        "which Delta does not see in a mixed condition",
        case(setup=[add("a", x="1", stats=OLD)], txn_reads=[reads("x = 2 OR n > 50")], won=[remove("a")], own=[C1]),
        "read/read",
        "ok/ok",
    ),
    # -- commits that change no data -------------------------------------------------------------------------------------------
    (
        "rearranging while files are added",
        case(
            setup=[A1, B1],
            txn_reads=[reads()],
            won=[E3],
            own=[remove("a", data_change=False), remove("b", data_change=False), add("c1", x="1", data_change=False)],
            operation="OPTIMIZE",
        ),
        "ok/ok",
        "ok/ok",
    ),
    (
        "rearranging what is deleted",
        case(
            setup=[A1, B1],
            txn_reads=[reads()],
            won=[remove("a")],
            own=[remove("a", data_change=False), remove("b", data_change=False), add("c1", x="1", data_change=False)],
            operation="OPTIMIZE",
        ),
        "read/read",
        "read/read",
    ),
    (
        "an UPDATE that changed nothing, says WriteSerializable",
        case(txn_reads=[reads("x = 1")], won=[A1], own=[add("b", x="1", data_change=False)], operation="UPDATE"),
        "ok/append",
        "ok/append",
    ),
    (
        "a domain keeps the level",
        case(setup=[DOMAINS], txn_reads=[reads("x = 1")], won=[A1], own=[domain("d")], operation=""),
        "append/append",
        "append/append",
    ),
    (
        "row tracking's domain does not",
        case(setup=[DOMAINS], txn_reads=[reads("x = 1")], won=[A1], own=[domain("delta.rowTracking")], operation=""),
        "ok/ok",
        "ok/ok",
    ),
    (
        "a txn action keeps the level",
        case(txn_reads=[reads("x = 1")], won=[A1], own=[txn("t9")], operation=""),
        "append/append",
        "append/append",
    ),
    ("a txn that was read does not", case(txn_reads=[reads("x = 1"), reads_app("t1")], won=[A1], operation=""), "ok/ok", "ok/ok"),
    ("at any level: whole table and a removal", case(txn_reads=[WHOLE], won=[remove("a")], operation=""), "read/read", "read/read"),
    # -- better than the original ------------------------------------------------------------------------------------------------
    (
        "a winning OPTIMIZE adds no rows",
        case(
            setup=[A1, E3],
            txn_reads=[reads("x = 3")],
            won=[info("OPTIMIZE", blind=False), add("n", x="3", data_change=False)],
            own=[remove("e")],
        ),
        "append/append",
        "ok/ok",
    ),
    (
        "the winner's statistics exclude it",
        case(setup=[A1], txn_reads=[reads("n < 10")], won=[BLIND, add("b", x="1", stats=NEW)], own=[remove("a")]),
        "append/ok",
        "ok/ok",
    ),
    (
        "the winner's statistics do not",
        case(setup=[A1], txn_reads=[reads("n < 10")], won=[BLIND, add("b", x="1", stats=OLD)], own=[remove("a")]),
        "append/ok",
        "append/ok",
    ),
    (
        "statistics in a table without partitions",
        unpartitioned(setup=[add("a")], txn_reads=[reads("n < 10")], won=[add("b", stats=NEW)], own=[remove("a")]),
        "append/append",
        "ok/ok",
    ),
    (
        "mixed conditions, with statistics",
        case(setup=[A1], txn_reads=[reads("x = 1 OR n < 10")], won=[add("c", x="2", stats=NEW)], own=[remove("a")]),
        "append/append",
        "ok/ok",
    ),
    (
        "conditions on data, a file of another partition",
        case(setup=[A1], txn_reads=[reads("x = 1 AND n < 10")], won=[add("c", x="1", stats=NEW)], own=[remove("a")]),
        "append/append",
        "ok/ok",
    ),
]
