"""What rows the versions hold, and what readers were shown: judged by what each operation means.

The logs are a serial order. Each operation in it did what it would have done alone, on the rows right
before it, as far as the isolation levels of the tables it read say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .evidence import CHANGES_ROWS, Evidence, TableEvidence
from .history import Call
from .log import Transaction, Version
from .model_operations import Operation, Row, State


def judge_rows(evidence: Evidence) -> Iterator[str]:
    """Every row that is not what it has to be."""
    judgement = _Rows(evidence)
    yield from judgement.effects()
    yield from judgement.reads()


def _difference(before: State, after: State) -> tuple[dict[int, Row], dict[int, Row]]:
    """The rows taken away and the rows added."""
    gone = {uid: row for uid, row in before.items() if after.get(uid) != row}
    new = {uid: row for uid, row in after.items() if before.get(uid) != row}
    return gone, new


class _Rows:
    def __init__(self, evidence: Evidence) -> None:
        self._evidence, self._history = evidence, evidence.history
        self._blind = [self._blind_rows(table) for table in evidence.tables]

    def _operation(self, guid: str) -> Operation | None:
        call = self._evidence.calls.get(guid)
        return call.operation if call is not None and call.operation.kind in CHANGES_ROWS else None

    def _blind_rows(self, table: TableEvidence) -> list[set[int]]:
        """The rows that each version added without having read any."""
        found: list[set[int]] = []
        for version in table.log.versions:
            operations = [operation for each in version.transactions if (operation := self._operation(each.id)) is not None]
            mine = [step for o in operations if o.blind for step in o.steps if step.table == table.told.number]
            found.append({uid for step in mine for uid in step.rows})
        return found

    def effects(self) -> Iterator[str]:
        """Every version holds what its transactions did, one after the other, to the rows of the one before."""
        for table in self._evidence.tables:
            for version in table.log.versions:
                rows: dict[int, Row] = dict(table.log.versions[version.number - 1].rows) if version.number else {}
                for transaction in version.transactions:
                    operation = self._operation(transaction.id)
                    if operation is None:
                        continue
                    reads = self._reads_of(table, transaction, operation)
                    after, seen = operation.after(reads, self._evidence.calls[transaction.id].scans)
                    number = table.told.number
                    gone, new = _difference(reads[number], after[number])
                    yield from self._shown(self._evidence.calls[transaction.id], seen)
                    yield from self._serial(operation, transaction, table, rows, (reads, after, seen))
                    lacking = {uid for uid, row in gone.items() if rows.get(uid) != row}
                    doubled = new.keys() & rows.keys() - gone.keys()
                    if lacking or doubled:
                        where = f"{operation} in version {version.number}"
                        yield f"{where} takes rows {lacking} away, which are not there, or adds {doubled} twice"
                    rows = {**{uid: row for uid, row in rows.items() if uid not in gone}, **new}
                if rows != version.rows:
                    yield self._unlike(version, rows)

    def _reads_of(self, table: TableEvidence, transaction: Transaction, operation: Operation) -> dict[int, State]:
        """What an operation saw of its tables, without those where it saw what was lost with the coordinator's data.

        A version that was ratified and not published is in no log any more, and another one has its number. Its rows are not
        known, but those in a table that was published are: they have to be what came of what the operation was shown.
        """
        if operation.blind:
            return {number: {} for number in operation.tables}
        told = self._evidence.calls[transaction.id].read_versions
        versions = {**dict.fromkeys(operation.tables, -1), **told, table.told.number: transaction.read_version}
        tick = table.ratified.get(transaction.version, 0)
        known = {n: version for n, version in versions.items() if n == table.told.number or not self._was_lost(n, version, tick)}
        return {number: self._rows_at(number, version) for number, version in known.items()}

    def _was_lost(self, number: int, version: int, tick: int) -> bool:
        return self._evidence.was_lost(self._evidence.tables[number], version, tick)

    def _rows_at(self, number: int, version: int) -> State:
        table = self._evidence.tables[number]
        return table.log.versions[version].rows if 0 <= version <= table.last else {}

    @staticmethod
    def _shown(call: Call, seen: list[dict[int, Row]]) -> Iterator[str]:
        if call.scans and call.scans != seen:
            yield f"{call} was shown {call.scans}, and what it had read holds {seen}"

    def _unlike(self, version: Version, rows: State) -> str:
        lacks, has = _difference(rows, version.rows)
        did = [str(self._evidence.calls.get(each.id, each.operation)) for each in version.transactions]
        return f"version {version.number} ({did}) lacks the rows {lacks} and has {has} instead"

    def _serial(
        self,
        operation: Operation,
        transaction: Transaction,
        table: TableEvidence,
        rows: State,
        did: tuple[Mapping[int, State], Mapping[int, State], list[dict[int, Row]]],
    ) -> Iterator[str]:
        """It did what it would have done alone on the rows before it, as far as they are known; unseen blind appends may count as later."""
        if operation.blind:
            return
        reads, after, seen = did
        call, tick = self._evidence.calls[transaction.id], table.ratified.get(transaction.version, 0)
        told = {**call.read_versions, table.told.number: transaction.read_version}
        base: dict[int, State] = {}
        for number in reads:
            other = self._evidence.tables[number]
            version = self._version_before(other, transaction, tick)
            if other.level == "SnapshotIsolation" or (other is not table and self._was_lost(number, version, tick)):
                base[number] = reads[number]
                continue
            before = rows if other is table else self._rows_at(number, version)
            later: set[int] = set()
            if other.level == "WriteSerializable":
                later = {uid for added in self._blind[number][told.get(number, -1) + 1 :] for uid in added}
            base[number] = {uid: row for uid, row in before.items() if uid not in later}
        alone, would_see = operation.after(base, call.scans)
        effect = {n: _difference(reads[n], after[n]) for n in reads}, seen
        would = {n: _difference(base[n], alone[n]) for n in reads}, would_see
        if would != effect:
            yield (
                f"not serial: {operation}, which read {told} and became version {transaction.version} of table {table.told.number}, "
                f"did {effect}; alone it would have done {would}"
            )

    @staticmethod
    def _version_before(table: TableEvidence, transaction: Transaction, tick: int) -> int:
        """The version of a table right before a transaction over several took effect there, or that stood still for it.

        Where it took effect is what the transaction says itself: that version may be lost there.
        """
        made = transaction.joint.get(table.told.location)
        return table.told.head_at(tick) if made is None else made - 1

    # -- readers -----------------------------------------------------------------------------------------------------

    def reads(self) -> Iterator[str]:
        """Every read shows a version as it is, and none older than its level promises."""
        for call in self._history.calls:
            for read in call.reads:
                table = self._evidence.tables[read.table]
                if self._evidence.was_lost(table, read.version, call.began):
                    continue
                if read.version > table.last or read.rows != table.log.versions[read.version].rows:
                    yield f"{call} showed {read.rows} as version {read.version} of table {read.table}"
                    continue
                oldest = self._promised(table, call, read.level)
                if read.version < oldest:
                    yield f"{call} showed version {read.version} of table {read.table}, and its level promises {oldest}"

    def _promised(self, table: TableEvidence, call: Call, level: str) -> int:
        number, versions = table.told.number, [-1]
        for other in self._history.calls:
            told = None if other.answer is None else other.answer.commits.get(number)
            if told is None or (other.ended or 0) >= call.began or self._evidence.was_lost(table, told.version, other.began):
                continue
            through = other.through.get(number) == call.through.get(number)
            if level in ("latest", "serial", "together") or (level == "session" and through) or (level == "published" and told.published):
                versions.append(told.version)
        if level == "serial":
            versions += self._filed_before(table, call.began)
        return max(versions)

    @staticmethod
    def _filed_before(table: TableEvidence, tick: int) -> Iterator[int]:
        """Versions of what stood in the queue at a time."""
        for guid, place in table.places.items():
            filed = [table.told.slots[path].tick for path in table.told.slot_of.get(guid, [])]
            if filed and max(filed) < tick:
                yield place.version
