"""Plans: writes that are planned in one process, written in others and committed in another. A persistent node owns them.

No session lasts that long. The node is made when the write is planned and removed when it is committed or given up. While it
exists, garbage collection leaves files with the plan's id alone. A dead job's plan is closed by garbage collection once it
is older than files are retained, and cannot be committed after that.

Some plans have a purpose. A plan to adopt files keeps all files of the table that name no owner. The plan of a deep clone is *taken up* by
the next run of the same clone, with all that it copied; each run commits under an id of its own, whose owner is the plan.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final

from ...storage.errors import SluiceError
from ..formats import NodeData, node_data
from ..service.store import ANY_VERSION, CoordinationStore, NoNode, make_node, nodes_below
from .context import TableContext
from .layout import OPEN
from .presence import Owner, new_plan_id, owner_of

_log = logging.getLogger(__name__)


@node_data("plan")
class OpenPlan(NodeData):
    """An uncommitted plan."""

    location: str
    """Of its table."""
    since_ms: int
    """When it was planned, in milliseconds since the epoch by the planner's clock."""
    host: str = ""
    pid: int = 0
    application: str = ""
    purpose: str = ""
    """What it is for, if the files with its id are not all that it keeps: `ADOPTION`, or the clone that may take it up again."""
    id: str = ""
    """Its transaction id, if it may be taken up."""


ADOPTION: Final = "adopt"
"""The purpose of a plan that keeps all files of its table which name no owner."""


def open_plan(context: TableContext, purpose: str = "") -> str:
    """The transaction id of a new plan, which is open from now on."""
    plan = new_plan_id(context.clock.now_ms())
    owner = owner_of(plan)
    assert owner is not None
    body = _body(context, purpose, plan if purpose else "")
    context.in_session(partial(make_node, path=owner.path, data=body, make_parent=lambda session: session.ensure_path(OPEN)))
    return plan


def _body(context: TableContext, purpose: str, plan: str) -> bytes:
    client = context.client
    return OpenPlan(context.tree.location, context.clock.now_ms(), client.host, client.pid, client.application, purpose, plan).encode()


def take_up_plan(context: TableContext, purpose: str, used: Callable[[str], bool]) -> tuple[str, bool]:
    """The id of this table's open plan of that purpose, or of a new plan; and whether it was open already.

    A plan that is taken up is as young as a new one. A plan whose id is `used` was committed, and is closed: what it wrote may have been
    removed from the table since, and garbage collection may be about to delete it.
    """
    for owner, plan in open_plans(context):
        if plan.purpose != purpose or owner_of(plan.id) != owner:
            continue
        # check: committed-plans-are-not-taken-up
        if used(plan.id):
            close_plan(context, plan.id)
            continue
        with suppress(NoNode):  # garbage collection was faster
            context.coordination.write(owner.path, _body(context, purpose, plan.id), version=ANY_VERSION)
            return plan.id, True
    return open_plan(context, purpose), False


def place_of_plan(session: CoordinationStore, purpose: str) -> str | None:
    """The location of the table of the open plan of that purpose; None if there is none."""
    plans = (OpenPlan.decode(node.data) for node in nodes_below(session, OPEN))
    return next((plan.location for plan in plans if plan.purpose == purpose), None)


def is_adopting(context: TableContext) -> bool:
    """Whether somebody is adopting files of this table. The caller read the pins before, after a barrier."""
    return any(plan.purpose == ADOPTION for _, plan in open_plans(context))


def close_plan(context: TableContext, transaction_id: str) -> None:
    """Record that nobody will file this transaction any more. A failure is left to garbage collection."""
    owner = owner_of(transaction_id)
    if owner is None or owner.is_client:
        return
    try:
        close_owner(context.coordination, owner)
    except SluiceError as trouble:
        _log.info("the plan of transaction %s was not closed here: %s", transaction_id, trouble)


def close_owner(session: CoordinationStore, owner: Owner) -> None:
    """Remove a plan's node, if it exists. Raises ReplyLost, SessionLost, CoordinatorUnavailable."""
    with suppress(NoNode):
        session.delete(owner.path)


def open_plans(context: TableContext) -> Iterator[tuple[Owner, OpenPlan]]:
    """The open plans of this table with their owners, in no order."""
    plans = ((Owner(node.path), OpenPlan.decode(node.data)) for node in nodes_below(context.coordination, OPEN))
    return ((owner, plan) for owner, plan in plans if plan.location == context.tree.location)
