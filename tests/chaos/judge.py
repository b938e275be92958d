"""The judge: compares what processes wrote down with what the log holds. Shares no code with what it judges.

See docs/chaos.md for what is asked. What is found is a list of sentences; an empty list is what everybody hopes for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..raw_numbers import judge_numbers
from .history import UNNAMED, Held, History, Operation, Read
from .meaning import Change, Row, Rows, Step, applied, change_of, digest, noted, only_appends
from .rawlog import Transaction, Version

__all__ = ["Judge", "TableJudge"]

_OPTIMIZE = "OPTIMIZE"
_UNMOVED = (_OPTIMIZE, "VACUUM START", "VACUUM END", "CREATE TABLE", "SET TBLPROPERTIES", "RAISE IDENTITY")
"""Operations of the log that change no row."""

_SERIALIZABLE = "Serializable"


@dataclass
class Place:
    """A transaction's place in a table's log, with the operation that it belongs to."""

    transaction: Transaction
    operation: Operation | None


@dataclass
class Judge:
    """All tables of a run with what was written down; `violations` is the result."""

    history: History
    kept_s: float = 0.0
    """For how long files that were replaced stay, for readers of older versions."""
    follows: Mapping[str, str] = field(default_factory=dict)
    """The tables that note the changes of other ones, and which those are."""
    clustered: str = ""
    """The table that is clustered beside changes of its rows, neither of which may refuse the other."""
    violations: list[str] = field(default_factory=list)
    tables: dict[str, TableJudge] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._by_id = {name: each for each in self.history.operations.values() for name in each.ids}
        self._by_number: dict[tuple[str, int], list[Operation]] = defaultdict(list)
        for each in self.history.operations.values():
            if each.number is not None:
                self._by_number[each.number].append(each)

    def table(self, name: str) -> TableJudge:
        """What judges one table, version by version."""
        return self.tables.setdefault(name, TableJudge(name, self))

    def operation_of(self, table: str, transaction: Transaction) -> Operation | None:
        """Whose a transaction is: told by its id, by its application's number, by the rows it adds, or as the one that died."""
        known = self._by_id.get(transaction.id)
        if known is not None:
            return known
        for number in transaction.numbers.items():
            if self._by_number.get(number):
                return self._by_number[number][0]
        adders = {name.partition("/")[0] for name in transaction.adds}
        if adders and adders <= self.history.inputs.keys():
            return None  # a stream's: its rows tell what it was given
        for adder in (self.history.operations.get(name) for name in adders):
            if adder is not None and adder.process == transaction.application and only_appends(adder.does.get(table, ())):
                return adder
        dying = [
            each
            for each in self.history.operations.values()
            if each.process == transaction.application and each.is_open and each.does.get(table) and transaction.operation not in _UNMOVED
        ]
        return dying[-1] if dying else None

    def finish(self) -> list[str]:
        """What concerns all tables, when each was read to its end; returns all violations."""
        places: dict[str, dict[str, list[Transaction]]] = defaultdict(lambda: defaultdict(list))
        for name, table in self.tables.items():
            for place in table.places.values():
                if place.operation is not None:
                    places[place.operation.name][name].append(place.transaction)
        for operation in self.history.operations.values():
            self._once(operation, self._all_places(operation, places))
        self._joint()
        self._clustered()
        for name, table in self.tables.items():
            self.violations += [f"{violation} ({name})" for violation in judge_numbers(table.versions)]
        self._asked()
        acknowledged = {name: _Acknowledged(name, self.history.operations.values()) for name in self.tables}
        shown: dict[tuple[str, str, str], int] = {}
        for read in sorted(self.history.reads, key=lambda read: read.asked):
            self._read(read, acknowledged, shown)
        for held in self.history.held:
            self._lease(held)
        self._stream()
        for name, source in self.follows.items():
            self._followed(name, source)
        self._expired()
        return self.violations

    def _all_places(self, operation: Operation, places: Mapping[str, Mapping[str, list[Transaction]]]) -> Mapping[str, list[Transaction]]:
        """The place of an operation, or of any other with the same number."""
        if operation.number is None:
            return places.get(operation.name, {})
        found: dict[str, list[Transaction]] = defaultdict(list)
        for twin in self._by_number[operation.number]:
            for table, transactions in places.get(twin.name, {}).items():
                found[table] += transactions
        return found

    def _once(self, operation: Operation, places: Mapping[str, list[Transaction]]) -> None:
        """What its process was told of an operation is what became of it."""
        label = f"{operation.name} ({operation.kind})"
        for table, transactions in places.items():
            if len(transactions) > 1:
                versions = [each.version for each in transactions]
                self.violations.append(f"twice: {label} is in {table} at versions {versions}")
        if operation.answer == "committed":
            for table, (version, ordinal) in operation.places.items():
                found = [(each.version, ordinal if ordinal == UNNAMED else each.ordinal) for each in places.get(table, ())]
                if (version, ordinal) not in found and not (operation.repeated and found):
                    self.violations.append(
                        f"lost: {label} had the answer {table} version {version}.{ordinal}, and is at {found or 'no place'}"
                    )
            if not operation.places:
                missing = [table for table in operation.does if not places.get(table)]
                if missing:
                    self.violations.append(f"lost: {label} had the answer 'committed', and is not in {missing}")
        twins = self._by_number.get(operation.number, [operation]) if operation.number is not None else [operation]
        excused = any(each.is_open or each.answer == "committed" for each in twins)
        if operation.answer == "missing" and operation.ended - operation.begun < self.kept_s:
            self.violations.append(f"collected early: {label} ended with {operation.error}")
        if operation.answer == "broken":
            self.violations.append(f"broken: {label} ended with {operation.error}")
        elif operation.answer not in ("", "committed", "unknown") and places and not excused:
            at = {table: [each.version for each in transactions] for table, transactions in places.items()}
            self.violations.append(f"refused and visible: {label} had the answer {operation.answer} ({operation.error}), and is in {at}")
        if places and len(operation.does) > 1 and set(places) != set(operation.does):
            self.violations.append(f"torn: {label} is in {sorted(places)}, and not in {sorted(set(operation.does) - set(places))}")

    def _joint(self) -> None:
        """Every version that the log connects with others has them."""
        for name, table in self.tables.items():
            for place in table.places.values():
                for location, version in place.transaction.joint.items():
                    other = self.tables.get(location.rstrip("/").rpartition("/")[2])
                    there = None if other is None else other.places.get(place.transaction.id)
                    if there is None or there.transaction.version != version:
                        self.violations.append(
                            f"torn: {name} version {place.transaction.version} says that {place.transaction.id} is {location} version "
                            f"{version}, and it is {'not there' if there is None else f'at {there.transaction.version}'}"
                        )

    def _clustered(self) -> None:
        """No change was refused for a version that only moved rows, and no move for one that moved none."""
        for operation in self.history.operations.values():
            if operation.winner is None or operation.does.keys() != {self.clustered}:
                continue
            winners = [
                place.transaction.operation
                for place in self.tables[self.clustered].places.values()
                if place.transaction.version == operation.winner
            ]
            moves = {each == _OPTIMIZE for each in winners}
            if len(moves) == 1 and moves == {any(operation.does.values())}:
                self.violations.append(
                    f"stood in the way: {operation.name} ({operation.kind}) was refused for version {operation.winner} of {self.clustered} "
                    f"({', '.join(winners)}): {operation.error}"
                )

    def _asked(self) -> None:
        """What `outcome` said in the end is what the log says."""
        for asked in self.history.asked:
            if asked.state == "unknown" and not any(asked.id in table.places for table in self.tables.values()):
                continue  # nobody filed it, though another transaction of its application's number may be there
            found = {
                name: (transaction.version, transaction.ordinal)
                for name, table in self.tables.items()
                if (transaction := self._transaction(table, asked.id)) is not None
            }
            if (asked.state == "committed") != bool(found) or any(found.get(table) != place for table, place in asked.places.items()):
                self.violations.append(f"outcome: {asked.id} is told {asked.state} {asked.places}, and the log has it at {found}")

    def _transaction(self, table: TableJudge, id_: str) -> Transaction | None:
        """The transaction of that id, or the one whose application's number it repeated."""
        if id_ in table.places:
            return table.places[id_].transaction
        operation = self._by_id.get(id_)
        if operation is None or operation.number is None:
            return None
        transactions = (place.transaction for place in table.places.values())
        return next((each for each in transactions if operation.number in each.numbers.items()), None)

    def _read(self, read: Read, acknowledged: Mapping[str, _Acknowledged], shown: dict[tuple[str, str, str], int]) -> None:
        label = f"read {read.level} of {read.process}"
        for name, (version, text) in read.shown.items():
            table = self.tables[name]
            expected = table.digests.get(version)
            if expected != text:
                self.violations.append(
                    f"fits nothing: {label} showed {name} version {version} as {text}, which is {expected or 'no version'}"
                )
            key = (read.process, name, read.level)
            if version < shown.get(key, -1):
                self.violations.append(f"backwards: {label} showed {name} version {version} after {shown[key]}")
            shown[key] = max(version, shown.get(key, -1))
            floor = acknowledged[name].floor(read)
            if version < floor:
                self.violations.append(f"stale: {label} showed {name} version {version}, after {floor} had been acknowledged")
        if read.total is not None and read.level == "together":
            expected_total = sum(self.tables[name].total for name in read.shown)
            if read.total != expected_total:
                self.violations.append(f"torn read: {label} saw {read.shown} with a sum of {read.total} instead of {expected_total}")

    def _lease(self, held: Held) -> None:
        table = self.tables[held.table]
        for place in table.places.values():
            transaction, operation = place.transaction, place.operation
            if not held.since < transaction.version <= held.until or held.part not in transaction.parts:
                continue
            if transaction.application == held.process or (held.mode == "shared" and operation is not None and operation.lease == "shared"):
                continue
            self.violations.append(
                f"lease: {held.process} held {held.table} {held.part} ({held.mode}) from version {held.since} to {held.until}, and "
                f"{transaction.application} ({transaction.operation}) committed version {transaction.version} there"
            )

    def _expired(self) -> None:
        """Files were gone only for reads that took longer than they are kept, and for nobody who had pinned them."""
        for line in self.history.other:
            if line["event"] != "expired" or line["level"] == "session":
                continue
            if line["level"] == "pinned" or line["t"] - line["asked"] < self.kept_s:
                self.violations.append(f"collected early: {line['process']} read ({line['level']}): {line['error']}")

    def _stream(self) -> None:
        """Whatever a stream was given is in the table, once it was drained; rows that are there twice are found anyway."""
        if not self.history.drained:
            return
        seen: set[str] = set().union(*(table.ever for table in self.tables.values()))
        for name, rows in self.history.inputs.items():
            missing = [row for row, _, _ in rows if row not in seen]
            if missing:
                self.violations.append(f"lost: rows {missing[:3]} of the stream's input {name} never came")

    def _followed(self, name: str, source: str) -> None:
        """A table that follows another one has each change of each version, once: what is there twice is found anyway."""
        say = self.violations.append
        try:
            told = noted(self.tables[name].rows)
        except ValueError as stranger:
            say(f"invented: {name} holds {stranger}, which notes no change of {source}")
            return
        changes = self.tables[source].changes
        end = self.history.followed.get(name)
        if end is None:
            say(f"behind: {name} was never said to have everything of {source}")
            end = -1
        for version in sorted({*told, *range(end + 1)}):
            expected = changes[version] if version < len(changes) else Change()
            found = told.get(version, Change())
            for what, there, right in (("come", found.come, expected.come), ("gone", found.gone, expected.gone)):
                invented = sorted(there.items() - right.items())
                missing = sorted(right.items() - there.items()) if version <= end else []
                if invented:
                    say(f"invented: {name} notes that {invented[:3]} have {what} in {source} version {version}, which they have not")
                if missing:
                    say(f"lost: {name} does not note that {missing[:3]} have {what} in {source} version {version}")


class _Acknowledged:
    """The highest version of a table that anybody had been told of, at any time."""

    def __init__(self, table: str, operations: Iterable[Operation]) -> None:
        told = [(each.ended, each) for each in operations if each.answer == "committed" and table in each.places and not each.repeated]
        told.sort(key=lambda pair: pair[0])
        self._all = _Steps((ended, each.places[table][0]) for ended, each in told)
        self._published = _Steps((ended, each.places[table][0]) for ended, each in told if each.published)
        own: dict[str, list[tuple[float, int]]] = defaultdict(list)
        for ended, each in told:
            own[each.process].append((ended, each.places[table][0]))
        self._own = {process: _Steps(steps) for process, steps in own.items()}

    def floor(self, read: Read) -> int:
        """The version that a read must at least show."""
        if read.level == "session":
            return self._own[read.process].at(read.asked) if read.process in self._own else -1
        return (self._published if read.level == "published" else self._all).at(read.asked)


class _Steps:
    def __init__(self, steps: Iterable[tuple[float, int]]) -> None:
        self._times: list[float] = []
        self._highest: list[int] = []
        for when, version in steps:
            self._times.append(when)
            self._highest.append(max(version, self._highest[-1] if self._highest else -1))

    def at(self, when: float) -> int:
        place = bisect_right(self._times, when)
        return self._highest[place - 1] if place else -1


class TableJudge:
    """One table: every version's rows are what its transactions make of those before it."""

    def __init__(self, name: str, judge: Judge) -> None:
        self.name = name
        self.places: dict[str, Place] = {}
        self.versions: list[Version] = []
        self.digests: dict[int, str] = {}
        self.rows: Rows = {}
        """Those of the last version."""
        self.changes: list[Change] = []
        """What each version changed."""
        self.ever: set[str] = set()
        """The ids of all rows that ever were."""
        self.total = 0
        """The sum of the values as the table was filled by its first transaction."""
        self._judge = judge
        self._undo: list[dict[str, Row | None]] = []
        self._blind: list[set[str]] = []
        self._timestamp_ms = 0
        self._wanted = {version for read in judge.history.reads if name in read.shown for version in [read.shown[name][0]]}

    def take(self, version: Version) -> None:
        self.versions.append(version)
        say = self._judge.violations.append
        where = f"{self.name} version {version.number}"
        if version.timestamp_ms <= self._timestamp_ms:
            say(f"time: {where} is of {version.timestamp_ms}, the one before it of {self._timestamp_ms}")
        self._timestamp_ms = version.timestamp_ms
        if version.doubled:
            say(f"doubled: {where} holds {version.doubled[:3]} more than once")
        expected = dict[str, Row | None]()
        blind: set[str] = set()
        for transaction in version.transactions:
            if transaction.id in self.places:
                say(f"twice: {transaction.id} is in {where} and in version {self.places[transaction.id].transaction.version}")
            operation = self._judge.operation_of(self.name, transaction)
            self.places[transaction.id] = Place(transaction, operation)
            steps = self._steps(transaction, operation, where)
            isolation = None if operation is None else operation.isolation
            change = self._expected(version.number, transaction, steps, isolation, expected)
            expected.update(dict.fromkeys(change.gone))
            expected.update(change.come)
            if only_appends(steps):
                blind.update(change.come)
        self._compare(version, expected, where)
        self.changes.append(version.change)
        self._undo.append({name: self.rows.get(name) for name in {**version.change.gone, **version.change.come}})
        self._blind.append(blind)
        for name in version.change.gone:
            del self.rows[name]
        self.rows.update(version.change.come)
        self.ever.update(version.change.come)
        if not self.total:
            self.total = sum(value for _, value in self.rows.values())
        if version.number in self._wanted:
            self.digests[version.number] = digest((name, part, value) for name, (part, value) in self.rows.items())

    def _steps(self, transaction: Transaction, operation: Operation | None, where: str) -> list[Step]:
        if operation is not None:
            return operation.does[self.name]
        if transaction.operation in _UNMOVED:
            return []
        if self.name in self._judge.follows:  # its rows tell what they note
            return [{"do": "append", "rows": [[name, part, value] for name, (part, value) in transaction.adds.items()]}]
        inputs = self._judge.history.inputs
        if transaction.adds and all(name.partition("/")[0] in inputs for name in transaction.adds):
            given = {name: (part, value) for key in inputs for name, part, value in inputs[key]}
            return [{"do": "append", "rows": [[name, *given[name]] for name in transaction.adds if name in given]}]
        self._judge.violations.append(
            f"nobody's: {where} holds {transaction.operation} {transaction.id} of {transaction.application!r}, which nobody tried"
        )
        return [{"do": "append", "rows": [[name, part, value] for name, (part, value) in transaction.adds.items()]}]

    def _expected(
        self, number: int, transaction: Transaction, steps: list[Step], isolation: str | None, so_far: Mapping[str, Row | None]
    ) -> Change:
        """What a transaction does: what its steps make of what it read, which must stand as it was read."""
        if not steps or only_appends(steps):
            return change_of({}, applied({}, steps))
        where = f"{self.name} version {number} ({steps[0]['do']} of {transaction.application})"
        say = self._judge.violations.append
        read = self._at(transaction.read_version)
        change = change_of(read, applied(read, steps))
        now = {**self.rows, **{name: row for name, row in so_far.items() if row is not None}}
        for name in [name for name, row in so_far.items() if row is None]:
            now.pop(name, None)
        for name, row in change.gone.items():
            if now.get(name) != row:
                say(f"lost update: {where} changes {name}, read at {transaction.read_version} as {row}, which is {now.get(name)} by now")
        for name in change.come.keys() - change.gone.keys():
            if name in now:
                say(f"lost update: {where} inserts {name}, which is there by now")
        if isolation != _SERIALIZABLE:
            for between in range(transaction.read_version + 1, number):
                for name in self._blind[between] - read.keys():
                    now.pop(name, None)
        again = change_of(now, applied(now, steps))
        if again != change:
            more = sorted(set(again.gone) ^ set(change.gone))[:3] or sorted(set(again.come) ^ set(change.come))[:3]
            say(f"not serial: {where}, read at {transaction.read_version}, would have done otherwise right before: {more}")
        return change

    def _at(self, version: int) -> Rows:
        """The rows of an earlier version."""
        rows: dict[str, Row | None] = dict(self.rows)
        for number in range(len(self._undo) - 1, version, -1):
            rows.update(self._undo[number])
        return {name: row for name, row in rows.items() if row is not None}

    def _compare(self, version: Version, expected: Mapping[str, Row | None], where: str) -> None:
        found: dict[str, Row | None] = {**dict.fromkeys(version.change.gone), **version.change.come}
        wrong = [
            f"{name}: {found.get(name, self.rows.get(name))} instead of {expected.get(name, self.rows.get(name))}"
            for name in {**found, **expected}
            if found.get(name, self.rows.get(name)) != expected.get(name, self.rows.get(name))
        ]
        if wrong:
            self._judge.violations.append(f"rows: {where} has {len(wrong)} other rows than its transactions make, such as {wrong[0]}")
