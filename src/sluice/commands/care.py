"""`sluice compact`, `vacuum`, `doctor`, `recover` and `tree`: keep tables in order, and rebuild nodes after ZooKeeper's data were lost."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from functools import partial
from typing import Any

import click
import orjson
from rich.console import Console
from rich.progress import Progress

from ..coordinator.errors import CoordinatorUnavailable
from ..coordinator.limits import LONGEST_PUT_S, LONGEST_SESSION_S
from ..operating.doctor import Diagnosis, doctor, doctor_all
from ..operating.tree_backup import backup_tree, read_backup, restore_tree
from ..storage.errors import one_line
from ..storage.times import text_of as time_text
from ..tables.manage.recovery import Recovered, RecoveryReport, recover, recover_all
from . import parts
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
        _print_recovered(each, as_json=as_json)
    sys.exit(1 if failed else 0)


def _print_recovered(each: Recovered, *, as_json: bool) -> None:
    why = None if each.error is None else one_line(each.error)
    if as_json:
        report = each.report and asdict(each.report)
        click.echo(orjson.dumps({"location": each.location, "report": report, "left": each.left, "error": why}))
    elif each.report is not None:
        _print_report(each.report)
    else:
        click.echo(f"{'left alone' if why is None else 'failed'}: {each.location}: {each.left or why}")


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


@click.group("tree")
def tree_command() -> None:
    """Back up what only the coordinator has, and make a new tree of it and the tables' logs after its data were lost."""


@tree_command.command("backup")
@click.argument("location")
@parts.all_of(parts.coordinator_option, parts.storage_option, parts.json_option)
def backup_command(location: str, as_json: bool, **reached: Any) -> None:
    """Write a backup to a new file, or to a location like s3://bucket/backups/monday. Clients go on meanwhile."""
    report = backup_tree(location, **reached)
    lines = [f"in the ensemble alone: {each}" for each in report.unsaved]
    lines.append(f"backed up: {report.location}: {report.tables} tables, {report.size_bytes} bytes, as of {report.at}")
    print_facts(asdict(report), as_json=as_json, text="\n".join(lines))


@tree_command.command("restore")
@click.argument("location")
@parts.all_of(parts.coordinator_option, parts.storage_option)
@click.option("--wait-s", type=Checked("seconds"), help="As for sluice recover: less than the default only if no client is alive.")
@click.option("--quiet", is_flag=True, help="Say only what went wrong.")
@parts.json_option
def restore_command(location: str, as_json: bool, quiet: bool, **terms: Any) -> None:
    """Make the tree of a new coordinator from a backup and from the logs of its tables.

    Exit status 1 if a table could not be restored, or has no log and may not have been dropped: repeated, it goes on with those.
    """
    began, there, failed, total = time.monotonic(), 0, 0, len(read_backup(location, terms["storage_options"])[1])
    tables = restore_tree(location, told=None if quiet else partial(click.echo, err=True), **terms)
    with Progress(console=Console(stderr=True), disable=as_json or quiet) as bar:
        for each in bar.track(tables, total=total, description="restoring"):
            there += each.is_there
            failed += each.error is not None
            if as_json or each.error is not None or not quiet:
                _print_recovered(each, as_json=as_json)
    if not as_json:
        rest = f", {failed} failed, {total - there - failed} left alone" if there < total else ""
        click.echo(f"{there} of {total} tables are there{rest}, after {time.monotonic() - began:.1f} s")
    sys.exit(1 if failed else 0)


@click.command("doctor")
@click.argument("location", required=False)
@parts.all_of(parts.coordinator_option, parts.storage_option)
@click.option("--all", "of_all", is_flag=True, help="All tables of the coordinator, and the nodes that belong to no single one.")
@click.option("--fix", is_flag=True, help="Publish what is ratified, decide what waits, and remove nodes that no client owns.")
@parts.json_option
def doctor_command(location: str | None, of_all: bool, as_json: bool, **looked_at: Any) -> None:
    """Examine a table completely and say what is wrong and what to do: log, checkpoints, data files, the coordinator's nodes.

    Reads the whole log, lists the whole table, and changes nothing without --fix. Exit status 0: no error; 1: an error was found; 3: no
    error, but the coordinator could not be reached.
    """
    if of_all == (location is not None):
        raise click.UsageError("name a table's location, or give --all")
    answers: list[bool | None] = []
    try:
        for report in doctor_all(**looked_at) if location is None else iter([doctor(location, **looked_at)]):  # each as it is done
            facts = {"ok": report.ok, **asdict(report)}
            if of_all and as_json:
                click.echo(orjson.dumps(facts))
            else:
                print_facts(facts, as_json=as_json, text=_diagnosis_text(report))
            answers.append(report.ok)
    except CoordinatorUnavailable as away:
        click.echo(f"sluice: {one_line(away)}", err=True)
        answers.append(None)
    sys.exit(1 if False in answers else 3 if None in answers else 0)


def _diagnosis_text(report: Diagnosis) -> str:
    lines = [f"fixed: {each}" for each in report.fixed] + [f"left: {each}" for each in report.left]
    lines += [f"{f.severity}: {f.name}: {f.about}: {f.what}{f'. Remedy: {f.remedy}' if f.remedy else ''}" for f in report.findings]
    examined = "the coordinator's nodes" if report.coordinated else f"NOT the coordinator's nodes: {report.unasked}"
    version = "" if report.version is None else f"; version {report.version} can be read"
    well = {True: "in order", False: "NOT IN ORDER", None: "no error found, NOT ALL EXAMINED"}[report.ok]
    lines.append(f"{report.location}: {well}{version}; examined {examined}")
    return "\n".join(lines)
