"""A quorum that is lost before anything was filed: the error is never OutcomeUnknown, whatever was asked last."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import sluice
from sluice.coordinator.limits import Limits
from sluice.coordinator.service.memory import Call, Fault
from tests.tables.conftest import Place, flights, rows_of
from tests.tables.elsewhere import service_of

LIMIT_S = 0.3
CALLS_MAX = 60


class Quorum:
    """Loses the quorum at a call, and counts the calls before: from then on no call is sent."""

    def __init__(self, place: Place) -> None:
        self._service = service_of(place)
        self.sent: list[Call] = []

    @contextmanager
    def lost_after(self, calls: int) -> Iterator[None]:
        self.sent = []

        def answer(call: Call) -> Fault | None:
            if len(self.sent) >= calls:
                raise sluice.errors.CoordinatorUnavailable("injected: no server answers, the quorum is lost")
            self.sent.append(call)
            return None

        self._service.before = answer
        try:
            yield
        finally:
            self._service.before = None

    @property
    def filed(self) -> bool:
        """Whether a change was sent that makes a slot, or ratifies."""
        return any("/slots/" in op.path or "/verdicts/" in op.path for call in self.sent for op in call.ops)


WAYS: dict[str, Callable[[sluice.Table], object]] = {
    "append": lambda table: table.append(flights(("SFO", 1, 1)), timeout_s=LIMIT_S),
    "delete": lambda table: table.delete("delay = 1", timeout_s=LIMIT_S),
    "overwrite": lambda table: table.overwrite(flights(("SFO", 1, 1)), timeout_s=LIMIT_S),
    "properties": lambda table: table.set_properties({"a": "b"}, timeout_s=LIMIT_S),
}


@pytest.mark.parametrize("fast_path", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_a_quorum_lost_before_anything_was_filed_is_never_an_unknown_outcome(place: Place, way: str, fast_path: bool) -> None:
    """After every number of calls. The outcome is unknown only if a change was sent that files or ratifies."""
    limits = Limits(fast_path=fast_path, patience_s=0.02, patience_s_max=0.05, publication_wait_s=0.05)
    kinds = set[str]()
    for calls in range(CALLS_MAX):
        here = Place(f"{place.location}-{calls}", place.coordinator)
        here.create().append(flights(("JFK", 1, 1)))
        table, quorum = here.open(limits=limits), Quorum(here)
        trouble: sluice.errors.SluiceError | None = None
        with quorum.lost_after(calls):
            try:
                WAYS[way](table)
            except (sluice.errors.OutcomeUnknown, sluice.errors.CoordinatorUnavailable) as error:
                trouble = error
        if trouble is None:
            break
        kinds.add(type(trouble).__name__)
        assert isinstance(trouble, sluice.errors.OutcomeUnknown) <= quorum.filed, f"after {calls} calls: {trouble}"
        if isinstance(trouble, sluice.errors.CoordinatorUnavailable):
            assert here.open().version == 1
            assert rows_of(here.open().snapshot().to_arrow()) == [("JFK", 1, 1)]
    else:
        pytest.fail(f"it needs more than {CALLS_MAX} calls")
    assert "CoordinatorUnavailable" in kinds
