"""Plans: writes that are planned in one process, written in others and committed in another. A persistent node owns them.

No session lasts that long. The node is made when the write is planned and removed when it is committed or given up. While it
exists, garbage collection leaves files with the plan's id alone. A dead job's plan is closed by garbage collection once it
is older than files are retained, and cannot be committed after that.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

from ...storage.errors import SluiceError
from ..formats import NodeData, node_data
from ..service.store import CoordinationStore, NoNode, make_node, nodes_below
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


def open_plan(context: TableContext) -> str:
    """The transaction id of a new plan, which is open from now on."""
    plan = new_plan_id(context.clock.now_ms())
    owner = owner_of(plan)
    assert owner is not None
    client = context.client
    body = OpenPlan(context.tree.location, context.clock.now_ms(), client.host, client.pid, client.application).encode()
    context.in_session(partial(make_node, path=owner.path, data=body, make_parent=lambda session: session.ensure_path(OPEN)))
    return plan


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
