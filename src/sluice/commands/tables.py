"""`sluice create`, `sluice properties` and `sluice compact`: create a table, change its settings, rewrite its files."""

from __future__ import annotations

from typing import Any

import click

from ..storage.errors import InvalidRequest
from ..storage.schema.schema import StructType
from ..storage.schema.sqltypes import parse_sql_type
from ..tables.table import Table
from .parts import At, on_table, pairs, print_facts, print_json, timeout_option, within


def _schema(_context: click.Context, _parameter: click.Parameter, text: str) -> StructType:
    struct = parse_sql_type(f"struct<{text}>")
    if not isinstance(struct, StructType) or not struct.fields:
        raise InvalidRequest(f"the schema {text!r} names no column; write it like 'id bigint not null, origin string'")
    return struct


@click.command("create")
@on_table
@click.option(
    "--schema",
    metavar="COLUMNS",
    required=True,
    callback=_schema,
    help="The columns with their types in Spark SQL, such as 'id bigint not null, origin string, at timestamp'.",
)
@click.option("--partition-by", metavar="COLUMN", multiple=True, help="A column to partition by; may be repeated, in order.")
@click.option("--cluster-by", metavar="COLUMN", multiple=True, help="A column to cluster by instead; may be repeated, up to 4 times.")
@click.option(
    "--property", "properties", metavar="NAME=VALUE", multiple=True, callback=pairs, help="A property of the table; may be repeated."
)
@click.option("--allow-nonempty", is_flag=True, help="Create the table even in a folder with other files.")
def create_command(
    at: At,
    as_json: bool,
    schema: StructType,
    partition_by: tuple[str, ...],
    cluster_by: tuple[str, ...],
    properties: dict[str, str],
    allow_nonempty: bool,
) -> None:
    """Create an empty table. Refused if a table exists, or if the folder has other files."""
    asked: dict[str, Any] = {"partition_by": partition_by, "cluster_by": cluster_by, "properties": properties}
    with Table.create(at.location, schema, **asked, allow_nonempty=allow_nonempty, **at.reached) as table:
        facts = {"created": table.location, "version": table.version}
    print_facts(facts, as_json=as_json, text=f"created: {facts['created']}")


@click.command("properties")
@on_table
@click.option("--set", "to_set", metavar="NAME=VALUE", multiple=True, callback=pairs, help="Set a property; may be repeated.")
@click.option("--unset", "to_unset", metavar="NAME", multiple=True, help="Remove a property; may be repeated.")
def properties_command(
    at: At,
    as_json: bool,
    to_set: dict[str, str],
    to_unset: tuple[str, ...],
) -> None:
    """Show a table's properties, after changing them if requested. All set properties are one version, all removed ones another."""
    both = sorted({*to_set} & {*to_unset})
    if both:
        raise InvalidRequest(f"{', '.join(both)}: a property is either set or removed; name it in one of --set and --unset")
    with at.open() if to_set or to_unset else at.open_to_read() as table:
        if to_set:
            table.set_properties(to_set)
        if to_unset:
            table.unset_properties(to_unset)
        found = dict(sorted(table.refresh().properties.items()))
    if as_json:
        print_json(found)
    else:
        for name, value in found.items():
            click.echo(f"{name} = {value}")


@click.command("compact")
@on_table
@click.option(
    "--mode",
    type=click.Choice(["minor", "major", "full"]),
    default="minor",
    show_default=True,
    help="minor: merge small files, or cluster new ones; major: also drop deleted rows from files; full: cluster all files.",
)
@click.option("--where", metavar="CONDITION", help="Only the partitions selected by a condition on partition columns.")
@click.option("--target-file-size", metavar="SIZE", help="Bytes, or a size like 128mb; the table's own by default.")
@click.option("--z-order-by", metavar="COLUMN", multiple=True, help="Order the rows by this column, too; may be repeated, up to 8 times.")
@timeout_option
def compact_command(
    at: At,
    as_json: bool,
    mode: str,
    where: str | None,
    target_file_size: str | None,
    z_order_by: tuple[str, ...],
    timeout_s: float | None,
) -> None:
    """Rewrite a table's files as fewer, larger ones. No row changes, and writers go on meanwhile."""
    with within(timeout_s) as limit, at.open() as table:
        commit = table.compact(mode, where, target_file_size=target_file_size, z_order_by=z_order_by or None, timeout_s=limit)
        facts: dict[str, object] = {"compacted": table.location, "version": None if commit is None else commit.version}
        if commit is not None:
            metrics = next((each.metrics for each in table.history() if each.transaction_id == commit.transaction_id), {})
            counts = {"removed_files": metrics.get("numRemovedFiles"), "added_files": metrics.get("numAddedFiles")}
            facts |= counts if commit.commits == 1 else {"commits": commit.commits}
    if commit is None:
        text = f"nothing to compact: {facts['compacted']}"
    elif commit.commits > 1:
        text = f"compacted: {facts['compacted']} in {commit.commits} commits; the last one is version {commit.version}"
    else:
        files = f"{facts['removed_files']} files became {facts['added_files']}"
        text = f"compacted: {facts['compacted']} in version {commit.version}; {files}"
    print_facts(facts, as_json=as_json, text=text)
