"""What a token allows: break a lease, withdraw a transaction, compact, and say what a vacuum would delete.

Each is one of the calls that an operator makes at the command line, and is logged with who did it to what.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from msgspec import DecodeError, json

from ...coordinator.api import CoordinationStore, Place, TableTree, break_lease, connect, outcome_of
from ...storage.errors import InvalidRequest
from ...tables.table import Table
from .table_page import require_kept

APPLICATION: Final = "sluice console"
"""The name of its commits in the history."""
_TIMEOUT_S: Final = 60.0
_TEXT_MAX: Final = 200
_NAMES: Final = ("break-lease", "withdraw", "compact", "dry-vacuum")

_log = logging.getLogger(__name__)


def act(coordinator: str | None, storage_options: Mapping[str, str] | None, name: str, body: bytes, peer: str) -> dict[str, str]:
    """Do it, and say what was done. `body` is an object in JSON of `location`, `by`, and `what`; `peer` is the address it came from.

    Raises InvalidRequest for an unknown action or a wrong body, and the errors of the call.
    """
    try:
        fields = json.decode(body, type=dict[str, Any])
    except DecodeError as malformed:
        raise InvalidRequest(f"the request is not an object in JSON: {malformed}") from malformed
    if name not in _NAMES:
        raise InvalidRequest(f"there is no action {name!r}: there are {', '.join(_NAMES)}")
    location, by, what = (_text(fields, each) for each in ("location", "by", "what"))
    if not by:
        raise InvalidRequest("by is empty: say who you are, it is logged")
    require_kept(coordinator, location)
    opening = partial(Table.open, location, coordinator=coordinator, storage_options=storage_options, application=APPLICATION)
    try:
        done = _done(name, what, by, connect(coordinator), opening)
    except Exception as trouble:
        _log.warning("%s %s of %s by %s at %s: %s: %s", name, what, location, by, peer, type(trouble).__name__, trouble)
        raise
    _log.warning("%s %s of %s by %s at %s: %s", name, what, location, by, peer, done)
    return {"done": done}


def _done(name: str, what: str, by: str, session: CoordinationStore, opening: partial[Table]) -> str:
    if name == "break-lease":
        place, at_ms = Place.of_table(TableTree(opening.args[0])), time.time_ns() // 1_000_000
        broken = break_lease(session, place, what, by=f"{by} (console)", reason="", at_ms=at_ms)
        return f"broken: {broken.node} of {broken.holder}; its commits are refused from now on"
    with opening() as table:
        if name == "withdraw":
            outcome = outcome_of(table.coordinated, what, _TIMEOUT_S, withdrawing=True)
            version = "" if outcome.commit is None else f" as version {outcome.commit.version}"
            return f"too late: it is {outcome.state}{version}" if outcome.error is None else f"refused: {outcome.error}"
        if name == "compact":
            commit = table.compact()
            return "nothing to compact" if commit is None else f"compacted in version {commit.version}"
        report = table.vacuum(dry_run=True)
    reasons = ", ".join(f"{count} {reason}" for reason, count in report.counts.items()) or "none"
    what_goes = f"{len(report.garbage)} files ({reasons}), {report.size_bytes:,} bytes, and {len(report.log_files)} files of the log"
    return f"a vacuum would delete {what_goes}"


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name, "")
    if not isinstance(value, str) or not (value.isprintable() or not value) or (name != "location" and len(value) > _TEXT_MAX):
        raise InvalidRequest(f"{name} is not a printable text of at most {_TEXT_MAX} characters")
    return value
