"""SHOW and DESCRIBE, with the columns that Spark and Delta Lake give them."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ..storage.errors import InvalidRequest, SluiceError
from ..storage.jsontext import dumps
from ..storage.schema.datatypes import default_of, generated_of
from ..storage.schema.sqltypes import column_type_sql, field_sql, quoted_name, quoted_text, type_sql
from ..tables.client.property_rules import check_asked
from ..tables.read.history import commit_infos
from ..tables.table import Table
from .parse.tables import Describe, Show, ShowTables
from .partitions import partition_of, partitions_with
from .places import catalog_of, opened
from .request import Answer, Place, Request, moment

_CONSTRAINT = "delta.constraints."
_HISTORY: Final = (
    "version bigint, timestamp timestamp, userId string, userName string, operation string, operationParameters map<string, string>, "
    "job struct<jobId: string, jobName: string, jobRunId: string, runId: string, jobOwnerId: string, triggerType: string>, "
    "notebook struct<notebookId: string>, clusterId string, readVersion bigint, isolationLevel string, isBlindAppend boolean, "
    "operationMetrics map<string, string>, userMetadata string, engineInfo string"
)
_DETAIL: Final = (
    "format string, id string, name string, description string, location string, createdAt timestamp, lastModified timestamp, "
    "partitionColumns array<string>, clusteringColumns array<string>, numFiles bigint, sizeInBytes bigint, "
    "properties map<string, string>, minReaderVersion int, minWriterVersion int, tableFeatures array<string>"
)


def show(request: Request, statement: Show, place: Place) -> Answer:
    """SHOW COLUMNS, PARTITIONS, TBLPROPERTIES or CREATE TABLE."""
    table = opened(place)
    match statement.what:
        case "columns":
            return Answer("col_name string", tuple((each,) for each in table.struct.names))
        case "partitions":
            names = table.partition_columns
            if not names:
                condition = "INVALID_PARTITION_OPERATION.PARTITION_SCHEMA_IS_EMPTY"
                raise InvalidRequest(f"{table.location} has no partitions", condition=condition)
            there = partitions_with(table, partition_of(request, statement.partition, table.struct, names))
            partitions = sorted(there, key=lambda row: [(value is not None, value) for value in row])
            return Answer(", ".join(f"{quoted_name(name)} {type_sql(table.struct.named(name).type)}" for name in names), tuple(partitions))
        case "properties":
            properties, key = table.properties, statement.key
            lacking = f"Table {table.location} does not have property: {key}"
            rows = sorted(properties.items()) if key is None else [(key, properties.get(key, lacking))]
            return Answer("key string, value string", tuple(rows))
    text = _create_text(request, statement.target.title if place.name else f"sluice.`{table.location}`", table, place)
    return Answer("createtab_stmt string", ((text,),))


def _create_text(request: Request, name: str, table: Table, place: Place) -> str:
    lines = [f"  {field_sql(each)}" for each in table.struct.fields]
    properties = {key: value for key, value in table.properties.items() if not key.startswith(_CONSTRAINT) and can_be_given(key, value)}
    for key, value in sorted(table.properties.items()):
        if key.startswith(_CONSTRAINT):
            lines.append(f"  CONSTRAINT {quoted_name(key.removeprefix(_CONSTRAINT))} CHECK ({value})")
    parts = [f"CREATE TABLE {name} (", ",\n".join(lines) + ")", "USING sluice"]
    if table.partition_columns:
        parts.append(f"PARTITIONED BY ({', '.join(map(quoted_name, table.partition_columns))})")
    if table.clustering_columns:
        parts.append(f"CLUSTER BY ({', '.join(table.clustering_columns)})")
    if place.name is not None and not catalog_of(request).describe(place.name).managed:
        parts.append(f"LOCATION {quoted_text(table.location)}")
    if (described_as := table.detail().description) is not None:
        parts.append(f"COMMENT {quoted_text(described_as)}")
    if properties:
        listed = ",\n".join(f"  {quoted_text(key)} = {quoted_text(value)}" for key, value in sorted(properties.items()))
        parts.append(f"TBLPROPERTIES (\n{listed})")
    return "\n".join(parts)


def can_be_given(key: str, value: str) -> bool:
    """Whether a property may be given to a new table: those that sluice itself keeps may not."""
    try:
        check_asked({key: value}, creating=True)
    except SluiceError:
        return False
    return True


def tables_of(request: Request, statement: ShowTables) -> Answer | None:
    """The tables of a namespace that the coordinator keeps; None if it keeps no such namespace."""
    name = "default" if statement.namespace is None else statement.namespace.title
    catalog = catalog_of(request)
    names = {each.name.lower(): each.name for each in catalog.namespaces()}
    if name.lower() not in names:
        return None
    rows = [(each.namespace, each.name, False) for each in catalog.tables(names[name.lower()]) if matches(each.name, statement.pattern)]
    return Answer("namespace string, tableName string, isTemporary boolean", tuple(rows))


def matches(name: str, pattern: str | None) -> bool:
    """Whether a name is one of those that a pattern of SHOW ... LIKE means: `*` for any text, `|` between alternatives."""
    patterns = [each.strip().lower() for each in (pattern or "*").split("|")]
    return any(fnmatch.fnmatchcase(name.lower(), each) for each in patterns)


def describe(request: Request, statement: Describe, place: Place) -> Answer:
    """DESCRIBE DETAIL, DESCRIBE HISTORY, or the columns."""
    table = opened(place)
    if statement.what == "detail":
        return detail(table, place.name)
    if statement.what == "history":
        return history(commit_infos(table.access, None if statement.limit is None else int(statement.limit)))
    if statement.column is None:
        return Answer("col_name string, data_type string, comment string", tuple(_columns(table, place, extended=statement.extended)))
    field = table.struct.get(statement.column)
    if field is None:
        names = ", ".join(table.struct.names)
        raise request.refused(statement.target, f"column {statement.column!r} is not in the table; its columns are {names}")
    rows = [("col_name", field.name), ("data_type", column_type_sql(field)), ("comment", field.metadata.get("comment", "NULL"))]
    for word, text in (("default", default_of(field)), ("generated_always_as", generated_of(field))):
        rows += [] if text is None else [(word, text)]
    return Answer("info_name string, info_value string", tuple(rows))


def _columns(table: Table, place: Place, *, extended: bool) -> list[tuple[str, str, str | None]]:
    described = {each.name: (each.name, column_type_sql(each), each.metadata.get("comment")) for each in table.struct.fields}
    rows = list(described.values())
    if table.partition_columns:
        rows += [("# Partition Information", "", ""), ("# col_name", "data_type", "comment")]
        rows += [described[name] for name in table.partition_columns]
    if table.clustering_columns:
        rows += [("# Clustering Information", "", ""), ("# col_name", "data_type", "comment")]
        rows += [described.get(name, (name, "", None)) for name in table.clustering_columns]
    if extended:
        for title_of, value_of in (("# Column Default Values", default_of), ("# Generated Columns", generated_of)):
            said = [(each.name, type_sql(each.type), text) for each in table.struct.fields if (text := value_of(each)) is not None]
            rows += [("", "", ""), (title_of, "", ""), *said] if said else []
        detail = table.detail()
        rows += [("", "", ""), ("# Detailed Table Information", "", "")]
        rows += [("Name", place.name or table.location, ""), ("Type", "MANAGED" if place.name and detail.name else "EXTERNAL", "")]
        rows += [("Comment", detail.description, "")] if detail.description else []
        rows += [("Location", detail.location, ""), ("Provider", "sluice", "")]
        rows += [("Table Properties", "[" + ",".join(f"{key}={value}" for key, value in sorted(detail.properties.items())) + "]", "")]
    return rows


def history(versions: Iterable[tuple[int, Mapping[str, Any]]]) -> Answer:
    """One row for each version: its commitInfo."""
    columns, rows = Answer(_HISTORY).struct.names, list[tuple[Any, ...]]()
    for version, info in versions:
        job, notebook = info.get("job"), info.get("notebook")
        row = {
            **info,
            "version": version,
            "timestamp": moment(info.get("inCommitTimestamp") or info.get("timestamp")),
            "operationParameters": _texts(info.get("operationParameters")),
            "job": tuple(job.get(name) for name in ("jobId", "jobName", "jobRunId", "runId", "jobOwnerId", "triggerType")) if job else None,
            "notebook": (notebook.get("notebookId"),) if notebook else None,
            "operationMetrics": _texts(info.get("operationMetrics")),
        }
        rows.append(tuple(row.get(name) for name in columns))
    return Answer(_HISTORY, tuple(rows))


def _texts(mapping: Mapping[str, Any] | None) -> dict[str, str | None] | None:
    """A map of texts; values that are not texts as JSON."""
    if mapping is None:
        return None
    return {name: value if value is None or isinstance(value, str) else dumps(value).decode() for name, value in mapping.items()}


def detail(table: Table, name: str | None) -> Answer:
    """One row that describes the latest version."""
    described = table.detail()
    what = ("delta", described.id, name or described.name, described.description, described.location)
    when = (moment(described.created_ms), moment(described.modified_ms))
    layout = (list(described.partition_columns), list(described.clustering_columns), described.num_files, described.size_bytes)
    protocol = (described.min_reader_version, described.min_writer_version, list(described.features))
    return Answer(_DETAIL, ((*what, *when, *layout, dict(described.properties), *protocol),))
