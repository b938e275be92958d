"""What limits a table, and what a person should know. Pure: judges what was seen, and reads nothing.

Each kind of message has one row in docs/operations.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final

from ..coordinator.api import QuotaUse
from ..storage.dataclass import dataclass
from ..storage.times import text_of
from .contention import JobConflict
from .document import Coordinator, HeldLease, LeaseWaiter, Limit, Message, Severity, Table, Transaction

BOUND_S: Final = 10.0
"""The longest acceptable wait of a commit, a publication or a lease, in seconds, unless the caller says otherwise."""
_BACKLOG_MAX: Final = 8
"""With so many ratified versions that are not published, nothing is decided (`Limits.backlog_max`)."""
_SLOW_WRITE_S: Final = 0.5
_LOST_OFTEN: Final = 5
_CLOCK_S: Final = 10.0
_LEASE_S: Final = 3600.0
_VACUUM_S: Final = 30 * 24 * 3600.0
_CHECKPOINT_VERSIONS: Final = 100
_SMALL_FILES: Final = 100
STRENGTH: Final[tuple[Limit, ...]] = ("coordinator", "store", "publication", "client", "lease", "workload")
"""The strongest first: what holds up the most tables."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What was looked at: the coordinator, its tables, the time of the look by the coordinator's clock, the acceptable wait, what jobs
    lost to one another in the last minutes, and who waits because of a quota.
    """

    coordinator: Coordinator
    tables: Sequence[Table]
    now_ms: int
    bound_s: float = BOUND_S
    conflicts: Sequence[JobConflict] = ()
    quotas: Sequence[QuotaUse] = ()

    def ago(self, seconds: float) -> str:
        """The time so many seconds before the look, as text."""
        return text_of(self.now_ms - round(1000 * seconds))


def limit_of(table: Table, coordinator: Coordinator, bound_s: float) -> Limit:
    """What limits the commits to a table at the time of the look."""
    publication, oldest = table.publication, table.queue.oldest
    if coordinator.write_s is None or coordinator.write_s > _SLOW_WRITE_S:
        return "coordinator"
    if publication.seconds > bound_s or publication.versions >= _BACKLOG_MAX:
        return "publication" if publication.owner_is_connected is False else "store"
    if oldest is not None and oldest.waits_s > bound_s:
        return "lease" if table.leases.held else "client"
    return "lease" if table.leases.waiting and table.leases.longest_wait_s > bound_s else "workload"


def strongest(limits: Sequence[Limit]) -> Limit:
    """The strongest of several limits."""
    return next(each for each in STRENGTH if each in (*limits, "workload"))


def messages_of(seen: Seen) -> tuple[Message, ...]:
    """All messages, errors first; those of one severity in the order of their rules and tables."""
    about_all = [message for rule in (_coordinator_away, _servers, _releases, _quotas) for message in rule(seen)]
    about_tables = [message for table in seen.tables for message in messages_about(seen, table)]
    severities: tuple[Severity, ...] = ("error", "warning", "note")
    return tuple(sorted((*about_all, *about_tables), key=lambda each: severities.index(each.severity)))


def messages_about(seen: Seen, table: Table) -> list[Message]:
    """The messages about one table."""
    rules = (_unreadable, _stuck, _waits, _leases, _loses_often, _clocks, _consumers, _upkeep)
    return [message for rule in rules for message in rule(seen, table)]


def _message(name: str, severity: Severity, where: str, what: str, remedy: str, since: str | None = None) -> Message:
    return Message(name=name, severity=severity, what=what, since=since, where=where, remedy=remedy)


# -- the coordinator -------------------------------------------------------------------------------------------------------


def _coordinator_away(seen: Seen) -> Iterator[Message]:
    coordinator = seen.coordinator
    if coordinator.trouble is not None:
        what = f"the coordinator cannot be asked, or does not write: {coordinator.trouble}"
        remedy = "check that a majority of its servers runs and that this client reaches them; commits wait until then"
        yield _message("coordinator-away", "error", coordinator.address, what, remedy)
    elif coordinator.write_s is not None and coordinator.write_s > _SLOW_WRITE_S:
        what = f"a write of this client took {coordinator.write_s:.1f} s to go through the quorum"
        remedy = "look at the servers' disks (fsync warnings in their logs), their garbage collection and the network between them"
        yield _message("coordinator-slow", "warning", coordinator.address, what, remedy)


def _servers(seen: Seen) -> Iterator[Message]:
    coordinator = seen.coordinator
    for server in coordinator.servers:
        if server.serves is False:
            what = f"{server.host} is {server.state}" + (
                "; take no other server out before it serves" if coordinator.trouble is None else ""
            )
            yield _message("server-away", "error", server.host, what, "start the server, or look into its log for why it joins no quorum")
        elif server.serves is None:
            remedy = "allow srvr in 4lw.commands.whitelist of the server's configuration"
            yield _message("server-closed", "note", server.host, f"{server.host} answers but does not show its state", remedy)
        elif server.in_sync is False:
            what = f"{server.host} did not catch up with the leader"
            yield _message("server-behind", "error", server.host, what, "wait, and take no other server out; look at its network and load")
    if coordinator.may_stop_before_commits_do == 0 and coordinator.trouble is None:  # else commits have stopped
        single = len(coordinator.servers) == 1
        what = "the only server serves; when it stops, commits do" if single else "no other server may stop, or commits do"
        remedy = "run three or five servers on separate machines" if single else "bring back the servers that do not serve"
        yield _message("no-server-to-spare", "note" if single else "warning", coordinator.address, what, remedy)


def _releases(seen: Seen) -> Iterator[Message]:
    releases = sorted(seen.coordinator.clients or {})
    if len(releases) > 1:
        what = f"clients of several releases are connected: {', '.join(releases)}"
        remedy = "finish the upgrade when it suits you: docs/operations/upgrades.md says what they may do side by side"
        yield _message("several-releases", "note", seen.coordinator.address, what, remedy)


def _quotas(seen: Seen) -> Iterator[Message]:
    for use in seen.quotas:
        if use.since is not None and seen.now_ms - use.since > 1000 * seen.bound_s:
            what = f"{use.waiting} transactions wait, and {use.in_flight} are in flight, because of the quota of application "
            what += f"{use.quota.application} on table {use.quota.table} ({use.quota})"
            quota = f"--application {use.quota.application!r} --table {use.quota.table!r}"
            remedy = f"if they should not wait, `sluice quotas set {quota} ..` gives the application more; or give it less to do at once"
            yield _message("quota-waits", "note", use.quota.table, what, remedy, text_of(use.since))


# -- a table ---------------------------------------------------------------------------------------------------------------


def _unreadable(_seen: Seen, table: Table) -> Iterator[Message]:
    if table.trouble is not None:
        remedy = f"`sluice doctor {table.location}` says what is wrong and what to do"
        yield _message("table-not-read", "error" if table.log_damaged else "warning", table.location, table.trouble, remedy)


def _stuck(seen: Seen, table: Table) -> Iterator[Message]:
    waits = table.publication
    if waits.seconds > seen.bound_s:
        what = f"versions from {table.version - waits.versions + 1} on are ratified and have not been in the log for {waits.seconds:.0f} s"
        if waits.owner_is_connected is False:
            remedy = "the clients that made them are gone: any writer that opens the table publishes them, so does `sluice outcome`"
        else:
            remedy = "look at the object store: its errors and latency, the writers' rights to write _delta_log, free space"
        yield _message("publication-stuck", "error", table.location, what, remedy, seen.ago(waits.seconds))


def _waits(seen: Seen, table: Table) -> Iterator[Message]:
    oldest = table.queue.oldest
    if oldest is not None and oldest.waits_s > seen.bound_s:
        who = _person(oldest) if oldest.host else "a client of a newer release"
        what = f"transaction {oldest.id} of {who} has waited to be decided for {oldest.waits_s:.0f} s, {table.queue.length - 1} behind it"
        remedy = "the clients of this table do not decide: look for stopped processes; `sluice outcome` decides it"
        if (lease := table.leases.oldest) is not None:
            remedy = f"a lease is held by {_person(lease)}: let it end, or `sluice leases break {table.location} {lease.lease}`"
        yield _message("commit-waits", "error", table.location, what, remedy, seen.ago(oldest.waits_s))


def _leases(seen: Seen, table: Table) -> Iterator[Message]:
    held, waiter = table.leases.oldest, table.leases.waiter
    is_long = held is not None and held.held_s > _LEASE_S
    if held is not None and (is_long or table.leases.longest_wait_s > seen.bound_s):
        scope = f" where {held.where}" if held.where else ""
        what = f"{_person(held)} has held the table{scope} ({held.mode}) for {timedelta(seconds=round(held.held_s))}"
        what += "" if waiter is None else f"; {table.leases.waiting} wait, first {_person(waiter)} for {table.leases.longest_wait_s:.0f} s"
        remedy = f"if the holder is idle, end it, or `sluice leases break {table.location} {held.lease}`"
        severity: Severity = "note" if waiter is None else "warning"
        if is_long:
            yield _message("lease-held-long", severity, table.location, what, remedy, seen.ago(held.held_s))
        else:
            yield _message("lease-waits", severity, table.location, what, remedy, seen.ago(held.held_s))


def _person(client: Transaction | HeldLease | LeaseWaiter) -> str:
    """A client in words."""
    return f"{client.application} on {client.host} (process {client.pid})"


def _loses_often(seen: Seen, table: Table) -> Iterator[Message]:
    """Counts refusals in the coordinator's records, and those in rows of contention, which also have what clients refused themselves."""
    remedy = "`sluice history` and EXPLAIN CONFLICT say what both touch: partition columns in conditions, deletion vectors or a lease help"
    often = {(each.application, each.winner, each.rule): (each.count, each.operation, remedy, each.first) for each in table.refusals}
    reported = [each for each in seen.conflicts if each.location == table.location]
    often |= {(each.application, each.winner, each.rule): (each.count, each.winner_operation, each.remedy, each.first) for each in reported}
    for (loser, winner, rule), (count, operation, advice, first) in often.items():
        if winner and count >= _LOST_OFTEN:
            what = f"{loser or 'a client that is gone'} lost {count} times to {winner} ({operation}) by the rule {rule}"
            yield _message("loses-often", "warning", table.location, what, f"{advice}; or run them one after the other", first)


def _clocks(_seen: Seen, table: Table) -> Iterator[Message]:
    oldest = table.queue.oldest
    if table.ahead_s > _CLOCK_S:
        what = f"the time of version {table.version} is {timedelta(seconds=round(table.ahead_s))} ahead of the coordinator's clock"
        remedy = "set the writers' clocks by NTP; until that time, each version is one millisecond later than the one before"
        yield _message("clock-ahead", "warning", table.location, what, remedy)
    elif oldest is not None and oldest.clock_ahead_s is not None and abs(oldest.clock_ahead_s) > _CLOCK_S:
        word = "ahead of" if oldest.clock_ahead_s > 0 else "behind"
        what = f"the clock of {oldest.host} is {abs(oldest.clock_ahead_s):.0f} s {word} the coordinator's"
        yield _message("clock-apart", "warning", oldest.host, what, "set its clock by NTP")


def _consumers(seen: Seen, table: Table) -> Iterator[Message]:
    kept_s = 0.0 if table.upkeep is None else table.upkeep.log_kept_s
    for each in table.consumers:
        is_urgent = 0 < kept_s < 2 * each.idle_s
        if each.versions_behind and (is_urgent or each.idle_s > _LEASE_S):
            what = f"the consumer {each.name} is {each.versions_behind} versions behind and has not moved for {each.idle_s / 3600:.1f} h"
            what += f"; the log keeps versions for {kept_s / 3600:.1f} h, and what it lacks then is lost to it" if is_urgent else ""
            remedy = "start it again before the log's retention ends, or remove it: `sluice consumers remove`"
            yield _message("consumer-behind", "error" if is_urgent else "warning", table.location, what, remedy, seen.ago(each.idle_s))


def _upkeep(seen: Seen, table: Table) -> Iterator[Message]:
    since_s = table.since_made_s if table.since_vacuum_s is None else table.since_vacuum_s
    if since_s > _VACUUM_S:
        what = f"no vacuum has run for {since_s / 86400:.0f} days"
        remedy = f"`sluice vacuum {table.location}`: it deletes what no version within retention needs"
        yield _message("vacuum-due", "note", table.location, what, remedy, seen.ago(since_s))
    if (upkeep := table.upkeep) is None:
        return
    if upkeep.small_files >= _SMALL_FILES:
        mean = upkeep.small_bytes // upkeep.small_files
        what = f"{upkeep.small_files:,} of {upkeep.files:,} files are small, {mean:,} bytes on average"
        yield _message("small-files", "warning", table.location, what, f"`sluice compact {table.location}`")
    if upkeep.versions_since_checkpoint is None or upkeep.versions_since_checkpoint >= _CHECKPOINT_VERSIONS:
        behind = "the log has no checkpoint" if upkeep.versions_since_checkpoint is None else f"{upkeep.versions_since_checkpoint} versions"
        if upkeep.versions_since_checkpoint is not None or upkeep.version >= _CHECKPOINT_VERSIONS:
            what = f"readers open the table slowly: {behind} since the last checkpoint"
            remedy = "look into the writers' logs for why checkpoints fail; Table.checkpoint writes one now"
            yield _message("checkpoint-behind", "warning", table.location, what, remedy)
    for version in upkeep.foreign:
        what = f"version {version} is in the log, and the coordinator did not order it: another engine wrote it past sluice"
        remedy = f"stop that engine, then `sluice doctor {table.location}` says what to do; sluice commits nothing until then"
        yield _message("foreign-commit", "error", table.location, what, remedy)
