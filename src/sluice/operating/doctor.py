"""Diagnoses a table, or all tables of a coordinator: logs, files, and nodes. Reads only; with `fix` it mends what is safe.

With `fix` it does what any client may do: it publishes what is ratified, decides what waits, and removes nodes that no client owns. Each
step may be killed and repeated. It changes no file of a table, except that it publishes, and nothing that a person has to judge.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final
from urllib.parse import unquote

from ..coordinator import api
from ..coordinator.api import DEFAULT_TIMEOUT_S, Timeout
from ..storage.actions.features import is_managed
from ..storage.actions.records import DeletionVector
from ..storage.actions.uris import key_inside
from ..storage.arguments import checked
from ..storage.constants import LOG_FOLDER
from ..storage.data.vectors import vector_key
from ..storage.dataclass import dataclass
from ..storage.errors import InvalidRequest, NotATable, SluiceError, TableNotFound
from ..storage.log.examination import ERROR, NOTE, WARNING, Finding, Seal, examine_files, examine_log, reporter
from ..storage.log.segment import latest_version, list_segment
from ..storage.log.snapshot import Snapshot
from ..storage.stores.location import open_store
from ..tables.client.address import TableAddress
from ..tables.client.open_table import OpenTable, open_coordinated
from .document import Message, Status
from .judging import BOUND_S, Seen, messages_about, messages_of
from .status import look

_CLOCK_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The findings at `location`, most severe first: a table's, or of a coordinator those that concern no single table.

    `version` is the latest readable one, or None. `coordinated` says whether the coordinator was asked, too; if not, `unasked` says why.
    `fixed` says what was done to which node or version; what could not be is among the findings, and in `left` with the reason.
    """

    location: str
    version: int | None
    coordinated: bool
    findings: tuple[Finding, ...]
    unasked: str = ""
    fixed: tuple[str, ...] = ()
    left: tuple[str, ...] = ()

    @property
    def ok(self) -> bool | None:
        """False if a finding is an error, None if there is none and the coordinator should have been asked and was not reached."""
        if any(each.severity == ERROR for each in self.findings):
            return False
        return None if any(each.name == "coordinator-away" for each in self.findings) else True


@checked
def doctor(
    location: str | os.PathLike[str],
    *,
    coordinator: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    fix: bool = False,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> Diagnosis:
    """Examine a table completely: its log, the chain of its commits, its checkpoints, and whether its data files exist in full size.

    With a `coordinator` it also examines the nodes: whether the log has what was ratified, who waits, and unneeded nodes. If it cannot be
    reached, that is a finding. With `fix` it does what is safe: it publishes, decides, and removes nodes that no client owns.

    Changes nothing else. It reads the whole log and lists the whole table, without a time limit; `timeout_s` limits the requests
    to the coordinator. Raises TableNotFound, NotATable, Unavailable; InvalidRequest for `fix` without a coordinator.

    Examples:
        ```python
        diagnosis = sluice.doctor(table.location, coordinator=coordinator)
        print(diagnosis.ok, [finding.name for finding in diagnosis.findings])
        ```
    """
    if fix and coordinator is None:
        raise InvalidRequest("fix needs the coordinator: nothing of a log is repaired without it; name it", argument="fix")
    address = TableAddress.of(location, coordinator, storage_options)
    examiner = _Doctor(coordinator, storage_options, timeout_s, fix=fix)
    return examiner.treat(partial(examiner.table, address))


@checked
def doctor_all(
    coordinator: str | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
    fix: bool = False,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> Iterator[Diagnosis]:
    """Examine all tables of a coordinator, one after the other, and then the nodes that belong to no single table.

    The arguments are those of `doctor`; `timeout_s` limits the requests about each table. A table that cannot be read holds up no other:
    its diagnosis says why. Raises CoordinatorUnavailable, InvalidRequest and UnknownScheme for an invalid address.
    """
    named = coordinator or os.environ.get("SLUICE_COORDINATOR") or "embedded://"
    examiner = _Doctor(named, storage_options, timeout_s, fix=fix)
    with api.bounding(timeout_s):
        return examiner.all(api.open_locations(api.connect(named)))


@dataclass(slots=True)
class _Doctor:
    """How tables are examined, and whether what is found is mended."""

    coordinator: str | None
    storage_options: Mapping[str, str] | None
    timeout_s: Timeout
    fix: bool
    _seen: Status | None = None
    """One look at all tables serves until something is mended."""

    def all(self, locations: Sequence[str]) -> Iterator[Diagnosis]:
        """Each of these tables, and then the rest of the tree."""
        for location in locations:
            try:
                yield self.treat(partial(self.table, self._at(location)))
            except SluiceError as trouble:
                remedy = "check the storage options and the rights to read it, or use the release of sluice that wrote it"
                what = f"this table could not be examined: {trouble.message}"
                yield Diagnosis(location, None, True, (Finding("table-not-read", ERROR, location, what, remedy),))
        yield self.treat(self.tree)

    def treat(self, examine: Callable[[], Diagnosis]) -> Diagnosis:
        """The diagnosis; with `fix` the one after everything that may be mended was."""
        seen, fixed, left = examine(), list[str](), list[str]()
        for each in seen.findings if self.fix else ():
            why = f"a person has to judge it: {each.remedy or each.what}"
            try:
                done = self._mend(seen.location, each)
            except SluiceError as trouble:
                done, why = None, trouble.message
            (left if done is None else fixed).append(f"{each.name} {each.about}: {done or why}")
        if fixed:
            self._seen, seen = None, replace(seen, findings=())
            with suppress(TableNotFound):  # the last that was there of a table was removed
                seen = examine()
        return replace(seen, fixed=tuple(fixed), left=tuple(left))

    def table(self, address: TableAddress) -> Diagnosis:
        """Examine a table."""
        store = address.store()
        findings: list[Finding] = []
        report = reporter(findings)
        version: int | None = None
        try:
            list_segment(store)
        except SluiceError as damage:
            if not damage.details.get("version"):
                return self._without_log(address, damage)
        seals = examine_log(store, report)
        unasked = "" if self.coordinator else "no coordinator was given"
        try:
            snapshot = Snapshot.load(store)
            version = snapshot.version
            if self.coordinator and not is_managed(snapshot.protocol):
                unasked = "sluice does not manage this table"
                report("not-managed", NOTE, address.location, f"{unasked}: the coordinator was not asked")
            vectors = [DeletionVector(**fields) for fields in snapshot.files.column("deletion_vector").drop_null().to_pylist()]
            keys = (key for vector in vectors if (key := vector_key(vector, snapshot.location)) is not None)
            examine_files(store, snapshot, partial(key_inside, snapshot.location), keys, report)
        except SluiceError as damage:
            remedy = "follow the advice about the files above" if findings else "restore the table from a copy"
            report("version-unreadable", ERROR, address.location, f"the latest version cannot be read: {damage.message}", remedy)
        return _diagnosis(address.location, version, findings, unasked or self._examine_nodes(address, seals, findings))

    def tree(self) -> Diagnosis:
        """Examine what belongs to no single table."""
        findings: list[Finding] = []
        with api.bounding(self.timeout_s) as limit:
            seen = self._look(limit.left_s)
            unasked = _away(seen, findings)
            if not unasked:
                session = api.connect(self.coordinator)
                findings += map(_finding_of, messages_of(Seen(seen.coordinator, (), api.SystemClock().now_ms(), BOUND_S)))
                ahead_ms = api.SystemClock().now_ms() - api.write_through(session)[1]
                if abs(ahead_ms) > _CLOCK_MS:
                    what = f"this machine's clock is {ahead_ms / 1000:+.0f} s from the coordinator's"
                    findings.append(Finding("clock-apart", WARNING, seen.coordinator.address, what, "set both clocks by NTP"))
                findings += api.examine_tree(session, self._has_log)
        return _diagnosis(seen.coordinator.address, None, findings, unasked)

    def _at(self, location: str) -> TableAddress:
        return TableAddress(location, self.coordinator, dict(self.storage_options or {}))

    def _has_log(self, location: str) -> bool:
        try:
            return latest_version(open_store(location, self.storage_options or {})) is not None
        except SluiceError:
            return True  # it may have one

    def _look(self, timeout_s: float) -> Status:
        if self._seen is None:
            self._seen = look(self.coordinator, bound_s=BOUND_S, timeout_s=timeout_s)
        return self._seen

    def _examine_nodes(self, address: TableAddress, seals: Mapping[int, Seal], findings: list[Finding]) -> str:
        """Add what the coordinator shows of a table; returns why it was not asked, "" if it was."""
        with api.bounding(self.timeout_s) as limit:
            seen = self._look(limit.left_s)
            unasked = _away(seen, findings)
            if not unasked:
                findings += api.examine_nodes(OpenTable.of(address).context, seals)
                judged = Seen(seen.coordinator, seen.tables, api.SystemClock().now_ms(), BOUND_S)
                for foreign in [each for each in findings if each.name == "foreign-commit"]:  # all files from there on are moved away
                    beyond = [each.severity == ERROR and f"{LOG_FOLDER}~" > each.about >= foreign.about for each in findings]
                    findings[:] = [replace(f, remedy=foreign.remedy) if b else f for f, b in zip(findings, beyond, strict=True)]
                ours = (each for each in seen.tables if each.location == address.location and each.trouble is None)
                findings += (_finding_of(message) for table in ours for message in messages_about(judged, table))
        return unasked

    def _without_log(self, address: TableAddress, missing: SluiceError) -> Diagnosis:
        """What the coordinator knows of a location without a log. Raises `missing` if it knows nothing."""
        finding = None
        if self.coordinator and isinstance(missing, (TableNotFound, NotATable)):
            with api.bounding(self.timeout_s):
                _, now_ms = api.write_through(api.connect(self.coordinator))
                finding = api.examine_without_log(OpenTable.of(address).context, now_ms)
        if finding is None:
            raise missing
        return _diagnosis(address.location, None, [finding], "")

    def _mend(self, location: str, finding: Finding) -> str | None:
        """Mend what a finding at a location says; returns what was done, None if it is not for a program. Raises the errors of a commit."""
        with api.bounding(self.timeout_s) as limit:
            match finding.name:
                case "publication-pending" | "publication-stuck":
                    return f"version {OpenTable.of(self._at(location)).publish(up_to_date=True)} is in the log"
                case "commit-waits":
                    api.settle_queue(OpenTable.of(self._at(location)), limit)
                    return "decided"
                case "table-half-made":
                    _, now_ms = api.write_through(api.connect(self.coordinator))
                    api.remove_half_made(self._at(location).context(), now_ms)
                case "removal-unfinished":
                    api.remove_closed_tree(self._at(unquote(finding.about.rpartition("/")[2])).context())
                case "move-unfinished":
                    open_coordinated(self._at(unquote(finding.about.rpartition("/")[2])))
                    return "the table is there"
                case name:
                    return api.remove_stray(api.connect(self.coordinator), finding) if name in api.STRAY else None
        return "removed"


def _finding_of(message: Message) -> Finding:
    return Finding(message.name, message.severity, message.where, message.what, message.remedy)


def _away(seen: Status, findings: list[Finding]) -> str:
    """Why the coordinator could not be looked at, which is a finding, too; "" if it could."""
    if seen.coordinator.trouble is None:
        return ""
    what = f"the coordinator was not looked at, because it cannot be reached: {seen.coordinator.trouble}"
    remedy = "repeat this when it is back: sluice health says more"
    findings.append(Finding("coordinator-away", WARNING, seen.coordinator.address, what, remedy))
    return what


def _diagnosis(location: str, version: int | None, findings: Sequence[Finding], unasked: str) -> Diagnosis:
    order = (ERROR, WARNING, NOTE)
    ordered = sorted(findings, key=lambda each: order.index(each.severity))
    return Diagnosis(location, version, not unasked, tuple(ordered), unasked)
