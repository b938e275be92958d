"""`sluice compact`, `vacuum`, `doctor` and `recover`: keep a table in order, and rebuild its nodes after ZooKeeper's data were lost."""

from __future__ import annotations

import sys
from dataclasses import asdict
from functools import partial
from typing import Any

import click
import orjson

from ..coordinator.limits import LONGEST_PUT_S, LONGEST_SESSION_S
from ..coordinator.times import text_of as time_text
from ..storage.errors import one_line
from ..tables.manage.doctor import doctor
from ..tables.manage.recovery import RecoveryReport, recover, recover_all
from .parts import At, Checked, on_table, print_facts, print_grid, print_json, timeout_option, within


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
    at: At, as_json: bool, mode: str, where: str | None, target_file_size: str | None, z_order_by: tuple[str, ...], timeout_s: float | None
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


@click.command("vacuum")
@on_table
@click.option("--dry-run", is_flag=True, help="List what would be deleted, and delete nothing.")
@click.option("--retain-hours", type=Checked("retain_hours"), help="How long replaced files are kept; the table's own time by default.")
@click.option("--force", is_flag=True, help="Allow a time shorter than the table's: readers of older versions may lose their files.")
@click.option("--include-foreign", is_flag=True, help="Also delete old files that nothing accounts for; without it they are listed.")
@timeout_option
def vacuum_command(
    at: At, as_json: bool, dry_run: bool, retain_hours: float | None, force: bool, include_foreign: bool, timeout_s: float | None
) -> None:
    """Delete files that no version within retention needs and no writer can ever need, and the log's expired files.

    Files of live writers stay however old they are; those of dead writers are deleted at once.
    """
    with within(timeout_s) as limit, at.open() as table:
        report = table.vacuum(retain_hours, dry_run=dry_run, force=force, include_foreign=include_foreign, timeout_s=limit)
    garbage, foreign = (
        [{"key": each.key, "size": each.size, "reason": each.reason.value} for each in some] for some in (report.garbage, report.foreign)
    )
    if as_json:
        log_files = list(report.log_files)
        hours = report.retain_hours
        print_json({"dry_run": dry_run, "retain_hours": hours, "garbage": garbage, "log_files": log_files, "foreign": foreign})
        return
    if dry_run or foreign:
        print_grid(("reason", "size", "key"), [*(garbage if dry_run else []), *foreign], size="bytes", key="file")
    verb = "would delete" if dry_run else "deleted"
    reasons = ", ".join(f"{count} {reason}" for reason, count in report.counts.items()) or "none"
    click.echo(f"{verb}: {len(garbage)} files ({reasons}), {report.size_bytes} bytes; {len(report.log_files)} files of the log")
    if foreign:
        click.echo(f"left alone: {len(foreign)} old files that nothing accounts for; --include-foreign deletes them, too")


@click.command("recover")
@on_table
@click.option(
    "--wait-s",
    type=Checked("seconds"),
    help=f"How long to wait for clients of the lost coordinator ({LONGEST_SESSION_S + LONGEST_PUT_S:g}); less only if none is alive.",
)
@click.option("--all", "all_below", is_flag=True, help="LOCATION is a folder: recover all tables below it, sharing one wait.")
@click.option("--former", metavar="ID", help="The id of the table's coordinator, whose data were lost; the refusal without it shows it.")
def recover_command(at: At, as_json: bool, wait_s: float | None, former: str | None, all_below: bool) -> None:
    """Rebuild a table's nodes in ZooKeeper from its log, after ZooKeeper's data were lost.

    Every published version is kept. Transactions that were filed or ratified but not published are lost; those with stored
    files are listed.
    """
    terms: dict[str, Any] = {**at.reached, "former": former, "wait_s": wait_s, "told": partial(click.echo, err=True)}
    if not all_below:
        report = recover(at.location, **terms)
        if as_json:
            print_json(asdict(report))
        else:
            _print_report(report)
        return
    failed = False
    for each in recover_all(at.location, **terms):  # a line for each table as it is done
        failed |= each.error is not None
        why = None if each.error is None else one_line(each.error)
        if as_json:
            facts = {"location": each.location, "report": each.report and asdict(each.report), "left": each.left, "error": why}
            click.echo(orjson.dumps(facts))
        elif each.report is not None:
            _print_report(each.report)
        else:
            click.echo(f"{'left alone' if why is None else 'failed'}: {each.location}: {each.left or why}")
    sys.exit(1 if failed else 0)


def _print_report(report: RecoveryReport) -> None:
    click.echo(f"recovered: {report.location} goes on from version {report.version}{f' as {report.name}' if report.name else ''}")
    if report.lost_name:
        click.echo(f"it had the name {report.lost_name}, which another table got later: sluice tables register NAME {report.location}")
    for half in report.half_done:
        where = [f"is missing in {', '.join(half.missing_in)}"] if half.missing_in else []
        where += [f"may be missing in {', '.join(half.unknown_in)}, which could not be read"] if half.unknown_in else []
        click.echo(f"transaction {half.transaction_id} (version {half.version}) {'; it '.join(where)}")
    if report.incomplete:
        click.echo("not in the table (never filed, undecided, or not published):")
        rows = [{**asdict(each), "time": time_text(each.modified_ms), "staged": "yes" if each.staged else ""} for each in report.incomplete]
        keys = ("transaction_id", "time", "files", "size_bytes", "staged")
        print_grid(keys, rows, transaction_id="transaction", time="last written", size_bytes="bytes", staged="actions")


@click.command("doctor")
@on_table
def doctor_command(at: At, as_json: bool) -> None:
    """Examine a table completely and say what is wrong and what to do: log, checkpoints, data files, the coordinator's nodes.

    Reads the whole log, lists the whole table, changes nothing. Exit status 0: no error; 1: an error was found.
    """
    report = doctor(at.location, **at.reached)
    lines = [f"{each.severity}: {each.about}: {each.what}{f'. Remedy: {each.remedy}' if each.remedy else ''}" for each in report.findings]
    where = "the log, the files and the coordinator's nodes" if report.coordinated else "the log and the files"
    version = "no version can be read" if report.version is None else f"version {report.version} can be read"
    lines.append(f"{report.location}: {'in order' if report.ok else 'NOT IN ORDER'}; {version}; examined {where}")
    print_facts({"ok": report.ok, **asdict(report)}, as_json=as_json, text="\n".join(lines))
    sys.exit(0 if report.ok else 1)
