"""What the floors above use of the coordinator, besides `rules`, `errors`, `limits` and `times`: nothing else is theirs.

A table is one object, `CoordinatedTable` (`commit/table.py`). A function that needs only a table's nodes takes its `context`. Each name is
imported when it is first used: a program that only reads loads less.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import attach

if TYPE_CHECKING:
    from .admission.change import Change, Reads, touched_by_reads
    from .admission.commit_events import CommitEvent, StepEvent, listen, listen_to_steps
    from .admission.conflict_prediction import Foreseen, ForeseenTable, advice_of
    from .admission.submission import commit_by_application, operation_that_lost, require_room, submit, submit_together, validate
    from .admission.waiting_room import QuotaUse, clear_rooms, quotas_in_use
    from .catalog.names import CatalogClient, NameState, TableName, dropped_as, dropped_tables, find_name, look_up, require_free
    from .catalog.naming import (
        alter_namespace,
        claim_name,
        close_named,
        create_namespace,
        drop_namespace,
        forget_dropped,
        list_names,
        list_namespaces,
        read_namespace,
        register_name,
        remove_name,
        rename_table,
        reopen_dropped,
        root_of,
        schedule_removal,
        set_root,
    )
    from .commit.moving import address_after, are_together, arrive, leave, way_of
    from .commit.outcomes import Commit, Outcome, version_beside, versions_together
    from .commit.queue import list_queue, list_refused, read_waiting
    from .commit.retention import gone_and_busy, needed_versions
    from .commit.table import CoordinatedTable, open_context
    from .commit.transactions import outcome_of, settle_queue
    from .contention import Contention, FiledBatch, FiledContention, keep_contention_in, read_contention
    from .examination import (
        STRAY,
        examine_nodes,
        examine_tree,
        examine_without_log,
        is_dropped,
        note_examination,
        open_locations,
        remove_half_made,
        remove_stray,
    )
    from .formats import MalformedRecord
    from .leases.blocking import break_lease, list_leases, place_of_table
    from .leases.consumers import ConsumerRecord, Hold, consumers_of, hold_consumer
    from .leases.guard import list_broken
    from .leases.lease import Lease, LeaseOn, Priority, TableLeases, lease, lease_on, lease_on_table, leases, lent, priority_after
    from .leases.pins import EVERYTHING, Pin, followed_from, given_up_before, pin_version, pinned_versions, raise_horizon
    from .leases.scopes import PartitionScope
    from .limits import DEFAULT_TIMEOUT_S
    from .nodes.checkpoint_claim import claim_checkpoint
    from .nodes.context import TableContext, naming, require_coordinator, require_one_coordinator, undecided
    from .nodes.counters import count_on
    from .nodes.creation import (
        begin_tokens,
        check_tree,
        has_name,
        known_locations,
        make_new_tree,
        named_after_coordinator,
        only_begun,
        register_beside_log,
        remove_new_tree,
        require_own_coordinator,
        require_settled,
    )
    from .nodes.layout import Place, TableTree, VerdictName, newest_first
    from .nodes.plans import ADOPTION, close_plan, is_adopting, open_plan, place_of_plan, take_up_plan
    from .nodes.presence import Client, Owner, another_id, clear_graves, id_in, list_clients, made_ms, owner_of, run_of, term_of, this_user
    from .nodes.quotas import EACH, Quota, set_quota
    from .nodes.records import EXCLUSIVE, SHARED, BatchRecord, DroppedRecord, Head, NameRecord, NamespaceRecord, Published, read_intent
    from .nodes.removal import Deletion, bury_tree, deletion, read_tombstone, remove_closed_tree
    from .preserving import KeptTable, TreeBackup, begin_restoration, decode_backup, read_tree
    from .publication.publisher import refuse_old_data
    from .publication.rebuilding import (
        RebuildingClaim,
        rebuilding_claim,
        require_coordinator_lost,
        require_nodes_lost,
        require_owner_named,
        sealing_version,
    )
    from .publication.waiting import VersionWatch
    from .service.address import Address
    from .service.clock import Clock, Deadline, SystemClock, Timeout, bounding, within_this_call
    from .service.connect import connect, hosts_of, release, start_embedded
    from .service.store import CoordinationStore, Node, nodes_below, write_through
    from .service.zookeeper.trust import Line, Tls, Trust
else:
    __getattr__, __dir__, __all__ = attach(__name__)
