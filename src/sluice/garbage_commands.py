"""`sluice vacuum` and `sluice recover`: what keeps a table clean, and what brings it back after ZooKeeper's data were lost."""

from __future__ import annotations

from dataclasses import asdict

import click

from .cli_parts import on_table, print_grid, print_json, time_text
from .tables.recovery import LONGEST_PUT_S, LONGEST_SESSION_S, recover
from .tables.table import Table

__all__ = ["recover_command", "vacuum_command"]


@click.command("vacuum")
@on_table
@click.option("--dry-run", is_flag=True, help="List what would be deleted, and delete nothing.")
@click.option("--retain-hours", type=click.FloatRange(min=0), help="For how long replaced files are kept; the table's own time by default.")
@click.option("--force", is_flag=True, help="Allow a time shorter than the table's: readers of older versions may lose their files.")
def vacuum_command(
    location: str,
    coordinator: str | None,
    storage_options: dict[str, str],
    as_json: bool,
    dry_run: bool,
    retain_hours: float | None,
    force: bool,
) -> None:
    """Delete what no version within retention needs and no writer can come to need, and the log's expired files.

    Files of writers that are alive stay however old they are; what dead ones left goes at once.
    """
    with Table.open(location, coordinator=coordinator, storage_options=storage_options) as table:
        report = table.vacuum(retain_hours, dry_run=dry_run, force=force)
    garbage = [{"key": each.key, "size": each.size, "reason": each.reason.value} for each in report.garbage]
    if as_json:
        log_files = list(report.log_files)
        print_json({"dry_run": dry_run, "retain_hours": report.retain_hours, "garbage": garbage, "log_files": log_files})
        return
    if dry_run:
        print_grid({"reason": "reason", "size": "bytes", "key": "file"}, garbage)
    verb = "would delete" if dry_run else "deleted"
    reasons = ", ".join(f"{count} {reason}" for reason, count in report.counts.items()) or "none"
    click.echo(f"{verb}: {len(garbage)} files ({reasons}), {report.size_bytes} bytes; {len(report.log_files)} files of the log")


@click.command("recover")
@on_table
@click.option(
    "--wait-s",
    type=click.FloatRange(min=0),
    help=f"How long to wait for clients of the lost coordinator ({LONGEST_SESSION_S + LONGEST_PUT_S:g}); less only when none lives.",
)
def recover_command(location: str, coordinator: str | None, storage_options: dict[str, str], as_json: bool, wait_s: float | None) -> None:
    """Rebuild a table's nodes in ZooKeeper from its log, after ZooKeeper's data were lost.

    Everything that was published is there. What was filed or ratified and not published is not: it is listed, as far as anything
    of it is stored.
    """
    report = recover(
        location,
        coordinator=coordinator,
        storage_options=storage_options,
        wait_s=wait_s,
        told=lambda text: click.echo(text, err=True),
    )
    if as_json:
        print_json(asdict(report))
        return
    click.echo(f"recovered: {report.location} goes on from version {report.version}")
    for half in report.half_done:
        where = [f"is missing in {', '.join(half.missing_in)}"] if half.missing_in else []
        where += [f"may be missing in {', '.join(half.unknown_in)}, which could not be looked at"] if half.unknown_in else []
        click.echo(f"transaction {half.transaction_id} (version {half.version}) {'; it '.join(where)}")
    if report.incomplete:
        click.echo("not in the table (never filed, undecided, or not published):")
        rows = [{**asdict(each), "time": time_text(each.modified_ms), "staged": "yes" if each.staged else ""} for each in report.incomplete]
        columns = {"transaction_id": "transaction", "time": "last written", "files": "files", "size_bytes": "bytes", "staged": "actions"}
        print_grid(columns, rows)
