"""What may be going on at a table, made on purpose: a refusal, a transaction that nobody decides."""

from __future__ import annotations

from collections.abc import Callable

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
        _file(lambda: table.append(rows, timeout_s=0.2))


def refused(table: sluice.Table, rows: pa.Table) -> None:
    """A deletion is refused in the queue, because an overwrite came first; then the rows are appended."""
    late = table.begin()
    late.delete("id = 1")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Decider, "decide", lambda *_: ())
        table.coordinated.alone = False
        _file(lambda: table.overwrite(rows, timeout_s=0.2))
        _file(lambda: late.commit(timeout_s=0.2))
    table.append(rows)


def _file(commit: Callable[[], object]) -> None:
    """Commit until the transaction is in the queue: on a busy machine the time may be over before."""
    stage = "staged"
    while stage == "staged":
        with pytest.raises(OutcomeUnknown) as unknown:
            commit()
        stage = unknown.value.stage
