"""How many numbers of identity columns a table has given out: a node with the next number of each counter.

Taking numbers is one compare-and-set, however many they are, so that writers never conflict. If its reply is lost, other numbers are
taken: that leaves a gap, and never gives a number twice. The log says up to which number any may have been given out, and the caller of
`count_on` gives out none beyond that. So counting goes on from there when the node was lost, or when other engines wrote the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

from ..errors import SessionLost
from ..formats import Record, node_data
from ..service.clock import require_time_left
from ..service.store import ANY_VERSION, ApplyRefused, BadVersion, Create, Node, NodeExists, Op, ReplyLost, Write
from .context import TableContext
from .layout import TableTree


@node_data("counters")
class Counters(Record):
    """The next number of each counter."""

    next: Mapping[str, int] = field(default_factory=dict)
    format: int = 1


def count_on(context: TableContext, counter: str, then: Callable[[int], int], unknown: Callable[[], int]) -> int:
    """Replace a counter's next number by what `then` makes of it; returns the number before. Both are asked again if another client counts.

    `unknown` says where a counter begins that the node lacks: beyond everything that the log says now. Raises what `then` does,
    CoordinatorUnavailable, TableDropped and TreeReplaced.
    """
    path = context.tree.counters
    while True:
        require_time_left(f"no numbers could be taken for identity columns of {context.tree.location}")
        node = context.read(path)
        # The node is read before the log: whoever attaches the table, or rebuilds its nodes, writes another one.
        counters = {} if node is None else dict(Counters.decode(node.data).next)
        before = counters.get(counter)
        # check: lost-counters-go-on-from-the-log (unknown() -> 0)
        after = unknown() if before is None else then(before)
        if after == before:
            return after
        data = Counters({**counters, counter: after}).encode()
        # check: numbers-are-taken-once (node.version -> ANY_VERSION)
        write: Op = Create(path, data) if node is None else Write(path, data, node.version)
        try:
            context.coordination.apply([*context.liveness_checks(), write])
        except (ReplyLost, SessionLost):
            context.barrier()
        except ApplyRefused as refused:
            place = getattr(refused.cause, "path", "")
            is_counted = place == path and isinstance(refused.cause, (BadVersion, NodeExists))
            if not is_counted and not context.was_restored(place):
                raise context.missing_error() from refused
        else:
            if before is not None:
                return before


def counted_from_log(tree: TableTree, node: Node | None) -> Op:
    """The operation after which all counters of a table begin where its log says: other engines may have written it."""
    data = Counters().encode()
    return Create(tree.counters, data) if node is None else Write(tree.counters, data, ANY_VERSION)
