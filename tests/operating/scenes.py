"""What may be going on at a table, made on purpose: a refusal, a transaction that nobody decides."""

from __future__ import annotations

import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.commit.decider import Decider
from sluice.coordinator.errors import OutcomeUnknown


def undecided(table: sluice.Table, rows: pa.Table) -> None:
    """An append waits to be decided; the next commit decides it."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Decider, "decide", lambda *_: ())
        table.coordinated.alone = False
        with pytest.raises(OutcomeUnknown):
            table.append(rows, timeout_s=0.2)


def refused(table: sluice.Table, rows: pa.Table) -> None:
    """A deletion is refused in the queue, because an overwrite came first; then the rows are appended."""
    late = table.begin()
    late.delete("id = 1")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Decider, "decide", lambda *_: ())
        table.coordinated.alone = False
        with pytest.raises(OutcomeUnknown):
            table.overwrite(rows, timeout_s=0.2)
        with pytest.raises(OutcomeUnknown):
            late.commit(timeout_s=0.2)
    table.append(rows)
