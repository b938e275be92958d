"""What the judge of rows makes of a transaction that read, in another table, what was lost with the coordinator's data."""

from __future__ import annotations

import pytest

from .evidence import Evidence, TableEvidence
from .history import Call, History, TableHistory
from .log import Log, Transaction, Version
from .model_operations import Condition, Operation, State, Step
from .rows import judge_rows

_HERE: State = {1: (0, 0, None)}
"""What is left of the table that is read; version 2, in which row 2 was added, is lost."""
_LOST: State = {**_HERE, 2: (0, 0, None)}
_RATIFIED, _LOST_AT = 10, 20


_ALL = Condition("true", lambda _u, _k, _v: True)
_FILL = Step("append", lambda s, _: {**s, **_HERE}, rows=_HERE, blind=True)
_CLEAR = Step("delete", lambda _s, _: {}, where=_ALL.sql)
_COPY = Step("copy", lambda s, seen: {**s, 9: (0, len(seen), None)}, table=1, source=0, looks_for=_ALL)


def _version(number: int, rows: State, guid: str = "", **joint: int) -> Version:
    transactions = [Transaction(guid, number, 0, number - 1, "WRITE", joint)] if guid else []
    return Version(number, transactions, number, {}, gives_away=False, rows=dict(rows))


def _call(guid: str, kind: str, *steps: Step) -> Call:
    return Call("w0", Operation(kind, 0, steps), began=1, filed=[guid])


def _found(*, read: int, shown: State, wrote: int, at: int = _RATIFIED, clears: bool = False) -> list[str]:
    """What is found where a transaction that read this version of table 0 tells in table 1 how many rows it was shown.

    The log of table 0 goes on after the loss with a version that changes nothing, and one that deletes all. With `clears` the
    transaction had deleted all there, too, as version 3.
    """
    calls = [_call("fill", "write", _FILL), _call("copy", "joint", _COPY, *([_CLEAR] if clears else [])), _call("clear", "write", _CLEAR)]
    calls[1].read_versions, calls[1].scans = {0: read, 1: 0}, [shown]
    told = [TableHistory(0, "read"), TableHistory(1, "written")]
    told[0].heads = [(tick, {"version": n}) for n, tick in enumerate((0, 1, 2, *([at] if clears else [])))]
    joint = {"read": 3, "written": 1} if clears else {"written": 1}
    logs = (
        Log([_version(0, {}), _version(1, _HERE, "fill"), _version(2, _HERE), _version(3, {}, "clear")]),
        Log([_version(0, {}), _version(1, {9: (0, wrote, None)}, "copy", **joint)]),
    )
    evidence = Evidence(History(lost_at=_LOST_AT), {}, [])
    evidence.calls = {each.filed[0]: each for each in calls}
    evidence.tables = [TableEvidence(t, "Serializable", {}, log, log.places()) for t, log in zip(told, logs, strict=True)]
    evidence.tables[0].sealed = 2
    evidence.tables[1].ratified = {1: at}
    return list(judge_rows(evidence))


@pytest.mark.parametrize("clears", [False, True])
def test_what_was_read_of_a_lost_version_is_not_looked_for_in_the_one_that_has_its_number(clears: bool) -> None:
    assert _found(read=2, shown=_LOST, wrote=2, clears=clears) == []


def test_it_wrote_what_came_of_what_it_was_shown() -> None:
    [sentence] = _found(read=2, shown=_LOST, wrote=1)
    assert sentence.startswith("version 1 ")


def test_what_was_read_of_a_published_version_is_what_that_holds() -> None:
    sentences = _found(read=1, shown=_LOST, wrote=2)
    assert any("was shown" in each for each in sentences), sentences


def test_what_was_ratified_after_the_loss_read_nothing_that_was_lost() -> None:
    sentences = _found(read=2, shown=_LOST, wrote=2, at=_LOST_AT + 1)
    assert any("was shown" in each for each in sentences), sentences


def test_it_is_not_compared_with_a_version_that_came_later_in_the_place_of_a_lost_one() -> None:
    """It was ratified on a published version, after one that is lost: which version 3 is, in the log, says nothing of it."""
    assert _found(read=1, shown=_HERE, wrote=1, clears=True) == []
