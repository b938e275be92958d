"""Named consumers: services that read a table as a queue, each batch once.

A consumer has a *position*, the last version whose changes it consumed. The coordinator keeps it. A consumer with outputs
also writes it into them, as a Delta `txn` action in the commit that has its results. So after any crash the outputs
themselves say how far it got, and a batch is committed to them exactly once:

- one instance at a time has the consumer's lease, and its commits are ratified only while it has it;
- a commit begins on outputs that say what this instance left there, and is refused if another one writes the position first;
- an instance that takes over reads the outputs after it got the lease, when nobody else can commit any more.

The application of the `txn` action names the table, the consumer, and its *run*, a number that each reset raises: positions
of former runs do not count.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from ..coordinator.api import Deadline, Hold, Lease, Pin, SystemClock, Timeout, hold_consumer, pin_version, require_one_coordinator
from ..coordinator.errors import ConcurrentTransactionException, CoordinatorUnavailable, LeaseHeld, LeaseLost, NotCommitted
from ..storage.arguments import checked
from ..storage.errors import InvalidRequest, Unavailable, VersionNotFound
from ..storage.log.snapshot import Snapshot
from .client.open_table import OpenTable
from .joint_transaction import CommitInfo, JointArgs, JointTransaction, Named
from .read.following import ChangeBatch, ChangeReader, SelectionArgs, latest_of
from .read.versions import ChangePlace, published_versions
from .table_writes import TableWrites
from .transaction import ForeignRows
from .write.repeated_writes import done_in_all

if TYPE_CHECKING:
    from typing_extensions import Unpack

_log = logging.getLogger(__name__)

_APPLICATION: Final = "sluice.consumer"
_FILES_BITS: Final = 31
_WAIT_S: Final = 10.0
"""How long an instance that lost its lease waits for it before it looks whether it was closed."""
_PIN_MOVES_S: Final = 60.0
"""How often the pin follows the position at most: moving it costs requests, and an old one keeps more."""


def _application(table_id: str, name: str, run: int) -> str:
    """The application under which outputs record a consumer's position."""
    return f"{_APPLICATION}:{table_id}:{run}:{name}"


def _number(place: ChangePlace) -> int:
    """The number by which an output records a place: numbers grow with places."""
    return (place.version + 1) << _FILES_BITS | place.files


def _place(number: int) -> ChangePlace:
    return ChangePlace((number >> _FILES_BITS) - 1, number & ((1 << _FILES_BITS) - 1))


def _places_in(snapshot: Snapshot, table_id: str, name: str) -> dict[int, ChangePlace]:
    """The places of a consumer that an output recorded, by run."""
    places: dict[int, ChangePlace] = {}
    for application, written in snapshot.app_transactions.items():
        parts = application.split(":", 3)
        if len(parts) == 4 and parts[:2] == [_APPLICATION, table_id] and parts[3] == name:
            places[int(parts[2])] = _place(written.version)
    return places


def _told(place: ChangePlace | None) -> str:
    """A place in words."""
    if place is None:
        return "none"
    return f"version {place.version}" if place.files == 0 else f"version {place.version} and {place.files} files of the next one"


@checked
class Consumer(Iterator[ChangeBatch], AbstractContextManager["Consumer"]):
    """One instance of a named consumer of a table's changes, which `Table.consumer` makes. An iterator of `ChangeBatch`, a context manager.

    A batch comes again until it is committed: with its results, by the block of `transaction`, or alone, by `commit`. One thread
    iterates; any may call `close`.
    """

    def __init__(
        self,
        table: OpenTable,
        name: str,
        *,
        after: int | None,
        into: Sequence[TableWrites],
        chosen: SelectionArgs,
        wait_s: Timeout | None,
        timeout_s: Timeout | None,
    ) -> None:
        self.name = name
        self._table, self._after, self._chosen, self._wait_s, self._timeout_s = table, after, chosen, wait_s, timeout_s
        self._into = {each.access.location: each for each in into}
        if table.location in self._into:
            raise InvalidRequest(f"into names {table.location} itself: the consumer would consume what it writes")
        require_one_coordinator([table.context, *(each.coordinated.context for each in self._into.values())])
        self._table_id = table.current().metadata.id
        self._waiting = published_versions(table, _WAIT_S)
        self._in_hand: ChangeBatch | None = None
        self._begun: ConsumerTransaction | None = None
        """Its last transaction: one that lost gives the next one priority."""
        self._latest = -1
        self._pin: Pin | None = None
        self._pinned_s = 0.0
        self._written: dict[str, ChangePlace | None] = {}
        """The place that each output recorded last, as this instance left it; None for none."""
        self._take(wait_s)

    # -- what it is --------------------------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """The last version that was consumed as a whole; -1 for none."""
        return self.place.version

    @property
    def place(self) -> ChangePlace:
        """How far it consumed, also within a version."""
        record = self._hold.record
        assert record is not None
        return ChangePlace(record.version, record.files)

    @property
    def lease(self) -> Lease:
        """The lease of this instance. Its `token` grows from instance to instance: systems outside sluice compare it."""
        return self._hold.lease

    # -- consuming ---------------------------------------------------------------------------------------------------

    def __next__(self) -> ChangeBatch:
        """The batch that is not committed yet, or the next one; waits for it. An instance that lost its lease takes it again first.

        Raises LeaseHeld if another instance keeps it for longer than `wait_s`, and the errors of `Follower`.
        """
        deadline = None if self._timeout_s is None else Deadline.of(self._timeout_s)
        while not self._waiting.closed:
            if self._hold.lease.lost.is_set():  # whatever was in hand may have been consumed by another instance
                _log.warning("the consumer %s of %s lost its lease and takes it again", self.name, self._table.location)
                self._hold.release()
                if self._wait_s is not None:
                    self._take(self._wait_s)
                else:
                    with suppress(LeaseHeld, CoordinatorUnavailable):  # look whether it was closed, and try again
                        self._take(Deadline.after(_WAIT_S))
            elif self._in_hand is not None:
                return self._in_hand
            else:
                self._in_hand = self._reader.next(self._latest)
                if self._in_hand is None and not self._wait(deadline):
                    break
        raise StopIteration

    def transaction(
        self,
        *,
        foreign: Callable[[Any], ForeignRows | None] | None = None,
        by_engine: Callable[[JointTransaction, Named], Any] | None = None,
        **terms: Unpack[JointArgs],
    ) -> JointTransaction:
        """Begin the transaction that consumes the batch in hand: its commit writes the results and the position, once, or nothing.

        Use it in a `with` block, like `sluice.transaction`, whose argument `consumer` has it take the rows and operations of Spark, too
        (by `foreign` and `by_engine`). Each output gets a version, also one without results. Raises InvalidRequest without outputs or
        batch; ConcurrentTransactionException if an output does not say what this instance left there. Its commit raises LeaseLost if
        another instance took over, and what every commit raises; then the batch comes again.
        """
        if not self._into:
            raise InvalidRequest(f"the consumer {self.name!r} has no outputs: open it with into=[table, ...], or call commit()")
        batch = self._batch("transaction()")
        for name in ("transaction", "key", "after"):
            if terms.get(name) is not None:
                raise InvalidRequest(f"{name} was given: the consumer says that itself, leave {name} out")
        terms["after"] = self._begun
        self._begun = ConsumerTransaction(self, batch, foreign, by_engine, **terms)
        return self._begun

    def commit(self) -> None:
        """Record that the batch in hand was consumed: for results that go elsewhere, at least once.

        Raises LeaseLost if another instance may have taken over, CoordinatorUnavailable.
        """
        batch = self._batch("commit()")
        self._hold.move(batch.end.version, batch.end.files)
        self._consumed(batch)

    def close(self) -> None:
        """End the iteration, from any thread, and let another instance go on. That one gets a batch that is not committed."""
        self._waiting.close()
        self._hold.release()
        if self._pin is not None:
            self._pin.release()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Consumer({self.name!r} of {self._table.location!r}, position={self.position})"

    # -- inside ------------------------------------------------------------------------------------------------------

    def _batch(self, what: str) -> ChangeBatch:
        if self._in_hand is None:
            raise InvalidRequest(
                f"{what} of the consumer {self.name!r} is for a batch in hand: take the next one first, and commit it once"
            )
        return self._in_hand

    def _wait(self, deadline: Deadline | None) -> bool:
        """Wait for more versions; False when closed, or when the time is over."""
        passed = self._reader.position
        if passed > self.position:  # versions without rows
            with suppress(LeaseLost, Unavailable):  # it is noticed by the next batch, and moved with that
                self._hold.move(passed)
        self._latest = max(self._latest, self._waiting.wait(passed, deadline))
        return self._latest > passed

    def _take(self, wait_s: Timeout | None) -> None:
        """Become the consumer, at the position that the last instance left."""
        self._hold: Hold = hold_consumer(self._table.context, self.name, wait_s)
        try:
            run, place = self._resume()
            self._reader = ChangeReader(self._table, place, self._chosen)  # refuses a place that is none
            record = self._hold.record
            into = tuple(sorted(self._into))
            if record is None or (record.run, self.place, record.into) != (run, place, into):
                self._hold.place(place.version, run, into, place.files)
            self._in_hand, self._latest = None, place.version
            self._move_pin()
        except BaseException:
            self._hold.release()
            raise

    def _resume(self) -> tuple[int, ChangePlace]:
        """The run and the place: the highest that the coordinator or an output recorded, or where a new consumer begins.

        Raises HalfCommitted if an output lost its part of the last commit with the coordinator's data.
        """
        record = self._hold.record
        shown = {location: table.access.read(None, "latest") for location, table in self._into.items()}
        recorded = {location: _places_in(snapshot, self._table_id, self.name) for location, snapshot in shown.items()}
        recorded_places = [] if record is None else [(record.run, self.place)]
        # check: outputs-say-how-far (max(each.items()) -> (0, ChangePlace(-1)))
        recorded_places += [max(each.items()) for each in recorded.values() if each]
        if not recorded_places:
            return 0, ChangePlace(latest_of(self._table) if self._after is None else self._after)
        run, place = max(recorded_places)
        self._written = {location: each.get(run) for location, each in recorded.items()}
        distinct = {each for each in self._written.values() if each is not None}
        if distinct and len({*self._written.values()}) > 1:
            tables = {location: table.coordinated for location, table in self._into.items()}
            application = _application(self._table_id, self.name, run), _number(max(distinct))
            # check: half-consumed-is-not-consumed
            done_in_all(tables, application, "published", {location: snapshot.version for location, snapshot in shown.items()})
        return run, place

    def _consumed(self, batch: ChangeBatch) -> None:
        if batch is self._in_hand:
            self._in_hand = None
        if SystemClock().monotonic_s() - self._pinned_s > _PIN_MOVES_S:
            self._move_pin()

    def _move_pin(self) -> None:
        """Keep garbage collection from the versions to be read. If it was faster, reading raises the error."""
        former, self._pinned_s = self._pin, SystemClock().monotonic_s()
        try:
            # check: consumers-pin-their-position
            self._pin = pin_version(self._table.context, max(self.position, 0), onwards=True)
        except (VersionNotFound, Unavailable) as trouble:
            _log.warning("the position of the consumer %s is not pinned: %s", self.name, trouble.message)
        if former is not None and former is not self._pin:
            former.release()

    # -- for its transactions ----------------------------------------------------------------------------------------

    def application_for(self, batch: ChangeBatch) -> tuple[str, int]:
        """The application transaction that records a batch in the outputs."""
        assert self._hold.record is not None
        return _application(self._table_id, self.name, self._hold.record.run), _number(batch.end)

    def require_left(self, shown: Mapping[str, Snapshot], application: tuple[str, int]) -> None:
        """Raise ConcurrentTransactionException unless outputs record what this instance left, or the whole batch and more."""
        for location in shown.keys() & self._into.keys():
            written = shown[location].app_transactions.get(application[0])
            place, left = None if written is None else _place(written.version), self._written.get(location)
            # check: outputs-are-as-they-were-left
            if place != left and (place is None or place < _place(application[1])):
                raise ConcurrentTransactionException(
                    f"{location} records {_told(place)} as the position of the consumer {self.name!r}, and this instance left "
                    f"{_told(left)} there: another client moved it; nothing was written. Open the consumer again",
                    rule="application-transaction",
                    facts={"table": location, "consumer": self.name},
                )

    def committed(self, batch: ChangeBatch, outputs: Sequence[str]) -> None:
        """Take note that the outputs record a batch. Raises LeaseLost if another instance took over."""
        self._written.update({location: batch.end for location in outputs if location in self._into})
        try:
            self._hold.move(batch.end.version, batch.end.files)
        except Unavailable as away:  # the outputs have it; the next move records it in the coordinator
            _log.warning("the position of the consumer %s is recorded later: %s", self.name, away.message)
            assert self._hold.record is not None
        self._consumed(batch)


class ConsumerTransaction(JointTransaction):
    """The transaction by which a consumer writes the results of a batch, and its position with them."""

    def __init__(
        self,
        consumer: Consumer,
        batch: ChangeBatch,
        foreign: Callable[[Any], ForeignRows | None] | None,
        by_engine: Callable[[JointTransaction, Named], Any] | None,
        **terms: Unpack[JointArgs],
    ) -> None:
        self._consumer, self._of, self._lease = consumer, batch, consumer.lease
        # check: consumers-commit-under-their-lease
        self._leases = tuple(self._lease.nodes)
        terms["transaction"] = consumer.application_for(batch)
        super().__init__(tables=list(consumer._into.values()), foreign=foreign, by_engine=by_engine, **terms)

    def _begin(self, tables: Sequence[TableWrites]) -> None:
        super()._begin(tables)
        assert self._terms.once is not None
        self._consumer.require_left({location: part.basis[0] for location, part in self._parts.items()}, self._terms.once)

    def _note_loss(self, lost: NotCommitted) -> None:
        super()._note_loss(lost)
        if isinstance(lost, LeaseLost) and lost.details.get("facts", {}).get("lease") in self._lease.nodes:
            self._lease.lost.set()

    def _concluded(self, answer: CommitInfo) -> None:
        super()._concluded(answer)
        self._consumer.committed(self._of, list(self._parts))
