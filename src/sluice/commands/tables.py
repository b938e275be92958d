"""`sluice create`, `show`, `history`, `properties`, `attach`, `detach`, `drop` and `forget`: what there is of a table, and whether."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from ..storage.errors import InvalidRequest
from ..storage.schema.schema import StructType
from ..storage.schema.sqltypes import parse_sql_type
from ..storage.times import text_of as time_text
from ..tables.client.address import TableAddress
from ..tables.manage.dropping import drop, forget
from ..tables.table import Table
from ..tables.write.row_operations import row_count
from .parts import At, Checked, confirm, on_table, pairs, print_facts, print_grid, yes_option


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
    terms: dict[str, Any] = {"partition_by": partition_by, "cluster_by": cluster_by, "properties": properties}
    with Table.create(at.location, schema, **terms, allow_nonempty=allow_nonempty, **at.reached) as table:
        facts = {"created": table.location, "version": table.version}
    print_facts(facts, as_json=as_json, text=f"created: {facts['created']}")


@click.command("properties")
@on_table
@click.option("--set", "to_set", metavar="NAME=VALUE", multiple=True, callback=pairs, help="Set a property; may be repeated.")
@click.option("--unset", "to_unset", metavar="NAME", multiple=True, help="Remove a property; may be repeated.")
def properties_command(at: At, as_json: bool, to_set: dict[str, str], to_unset: tuple[str, ...]) -> None:
    """Show a table's properties, after changing them if requested. All set properties are one version, all removed ones another."""
    both = sorted({*to_set} & {*to_unset})
    if both:
        raise InvalidRequest(f"{', '.join(both)}: a property is either set or removed; name it in one of --set and --unset")
    with at.open() if to_set or to_unset else at.open_to_read() as table:
        if to_set:
            table.set_properties(to_set)
        if to_unset:
            table.unset_properties(to_unset)
        properties = dict(sorted(table.refresh().properties.items()))
    if as_json or properties:
        print_facts(properties, as_json=as_json, text="\n".join(f"{name} = {value}" for name, value in properties.items()))


@click.command("show")
@on_table
def show_command(at: At, as_json: bool) -> None:
    """Show a table: version, files, rows, properties.

    Works on any Delta table. With a coordinator it shows the latest ratified version, else the latest published one.
    """
    with at.open_to_read() as table:
        snapshot = table.snapshot()
        counted = snapshot.raw.files["stats"].null_count == 0 and snapshot.raw.files["deletion_vector"].null_count == snapshot.num_files
        facts = {
            "location": table.location,
            "version": snapshot.version,
            "time": time_text(snapshot.timestamp),
            "files": snapshot.num_files,
            "bytes": snapshot.raw.size_bytes,
            "rows": row_count(snapshot.raw.add_files()) if counted else None,
            "partitioned_by": list(snapshot.partition_columns) if as_json else ", ".join(snapshot.partition_columns) or "nothing",
            "column": {field.name: f"{field.type}{'' if field.nullable else ' not null'}" for field in snapshot.schema},
            "property": dict(table.properties),
        }
        print_facts(facts, as_json=as_json)


@click.command("history")
@on_table
@click.option("--limit", type=Checked("history.limit"), default=20, show_default=True, help="How many transactions to show.")
def history_command(at: At, as_json: bool, limit: int) -> None:
    """Show the latest transactions of a table, newest first: who did what, and how long each waited."""
    with at.open_to_read() as table:
        rows = [{**asdict(entry), "time": time_text(entry.timestamp)} for entry in table.history(limit)]
    keys = ("version", "ordinal", "time", "operation", "application", "host", "pid", "waited_ms", "rebased_over", "transaction_id")
    print_grid(keys, rows, as_json=as_json, pid="process", transaction_id="transaction")


@click.command("attach")
@on_table
def attach_command(at: At, as_json: bool) -> None:
    """Bring an existing Delta table under sluice: from then on only sluice writes it, and everybody can read it."""
    with Table.attach(at.location, **at.reached) as table:
        print_facts({"attached": table.location, "version": table.refresh().version}, as_json=as_json)


@click.command("detach")
@on_table
def detach_command(at: At, as_json: bool) -> None:
    """Give a table back to all Delta engines; sluice commits nothing to it from then on."""
    with at.open() as table:
        print_facts({"detached": table.location, "version": table.detach().version}, as_json=as_json)


@click.command("drop")
@on_table
@click.option("--keep-data", is_flag=True, help="Keep the files as a Delta table that any engine may write.")
@yes_option
def drop_command(at: At, as_json: bool, keep_data: bool, yes: bool) -> None:
    """Remove a table from the coordinator and delete its files. Finishes an interrupted drop.

    Files that nothing attributes to the table stay, and are listed.
    """
    address = TableAddress.of(at.location, **at.reached)
    confirm(f"drop {address.location} and {'keep' if keep_data else 'delete'} its files?", yes=yes)
    report = drop(address, keep_data=keep_data)
    done = f"dropped: {report.location} at version {report.version}; {report.deleted} files deleted, {report.size_bytes} bytes"
    print_facts(asdict(report), as_json=as_json, text="\n".join([done, *(f"left alone: {key}" for key in report.kept)]))


@click.command("forget")
@on_table
@click.option("--lose-unpublished", is_flag=True, help="Also if versions are lost that were ratified and not published.")
def forget_command(at: At, as_json: bool, lose_unpublished: bool) -> None:
    """Remove the coordinator's nodes of a table whose folder is gone."""
    version = forget(at.location, **at.reached, lose_unpublished=lose_unpublished)
    text = f"forgotten: {at.location}, which was at version {version}"
    print_facts({"forgotten": at.location, "version": version}, as_json=as_json, text=text)
