"""The checks that can be switched off: what each of them holds, and what goes wrong without it.

Where a check is made, a comment in the source names it (see `checks`); which tests notice that it is missing, they say themselves:
``@pytest.mark.notices(NAME)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sluice.storage.dataclass import dataclass

__all__ = ["CHECKS", "FEW_SEEDS", "FEW_WORLDS", "HELD", "SEEDS", "Check"]

SEEDS: Final = "0..79"
"""The seeds of the simulator that are tried for a check that it sees: the first that breaks a promise ends it."""
FEW_SEEDS: Final = "0..19"
"""The seeds that are tried for every check where all evidence is asked."""
FEW_WORLDS: Final = ("direct", "queue", "lost", "lost-direct", "joint", "lease")
"""The small worlds that are tried then."""

HELD: Final[Mapping[str, str]] = {
    "I1": "no version is given twice",
    "I2": "no version is left out",
    "I3": "nobody is passed over in the queue",
    "I4": "whoever decides, decides the same",
    "I5": "what was decided is what is published",
    "I6": "published in order",
    "I7": "nothing that is needed is deleted",
    "I8": "nobody waits for the dead",
    "I9": "who lost a lease does not commit under it",
    "I10": "every outcome can be asked for",
    "I11": "several tables change together, or none does",
    "I12": "committed is committed, also when the answer is lost",
    "serial": "conflicts are judged by the table's level and policy",
    "reads": "a read shows what its level promises",
    "lease": "leases are granted in order, and never two that clash",
    "order": "the queue is fair, and time goes on",
    "liveness": "everything that can go on goes on",
    "work": "one client does what one client can do for all",
}
"""What checks hold: the invariants, and what else is promised."""

_WITHOUT: Final[Mapping[str, Mapping[str, str]]] = {
    "I1": {
        "head-is-compared": "a batch is recorded on top of a head that another client has moved",
        "batch-is-recognised": "after a lost reply, another client's record of the same name passes for the client's own",
        "a-table-has-one-coordinator": "a client of another coordinator opens the table: two coordinators give out its versions",
        "a-living-coordinator-keeps-its-tables": "a table is recovered although the coordinator that it names answers",
        "a-dropped-tree-is-closed-at-once": "a dropped tree loses its head before the nodes that commits check: a former client commits",
        "former-trees-are-noticed": "a client of a lost tree goes on with the rebuilt one",
        "multis-are-of-one-tree": "a decision made on a lost tree is recorded in the rebuilt one",
        "former-clients-are-waited-for": "a tree is rebuilt while clients of the former one may still publish",
        "who-goes-on-publishing-is-told": "a tree is rebuilt although another client goes on publishing",
        "stragglers-are-taken-in": "the version that seals the log replaces one that a straggler put there",
        "one-rebuilds-at-a-time": "a client that lost the right to rebuild a tree makes it",
    },
    "I2": {
        "versions-are-dense": "a decision that skips a version is recorded",
    },
    "I3": {
        "slot-order-is-checked": "a queue that is out of order, or holds a slot twice, is decided",
        "slots-are-sorted": "later slots are decided before earlier ones",
        "slots-that-vanish-stop-the-look": "a queue is decided although one of its slots is gone",
        "one-slot-of-each-number": "two slots with one number are both decided",
        "closed-generations-are-decided-no-more": "slot numbers of different generations are compared",
        "closed-generations-refuse-it": "a slot in a closed generation is looked for in the present one",
        "what-stands-before-is-decided-before": "a transaction over several tables overtakes slots before it in its other tables",
        "published-tells-of-its-own-slots": "the answer in `published` passes for the verdict on any slot with that transaction's name",
        "published-tells-of-commits-only": "`published` reports repetitions as commits",
    },
    "I4": {
        "history-is-complete": "a decision goes on without a version that it depends on",
        "first-unseen-winner-counts": "the first version after the validated ones is not compared",
        "known-beyond-the-head-is-refused": "an intent may claim to know versions that do not exist yet",
        "validated-up-to-the-head": "the owner skips the last version when it compares, and claims to know it",
        "validated-is-what-was-looked-at": "a transaction claims to know versions that came after it was validated",
        "window-reaches-back": "a decision reads only the last version",
        "winners-of-the-same-batch-count": "a transaction is not compared with those before it in the same batch",
        "no-rights-are-no-verdict": "a client without the right to read refuses other people's transactions",
        "intents-are-compared-with-their-actions": "an intent is believed whatever its actions do",
        "leases-in-the-way-are-checked": "a transaction is refused for a lease that was released meanwhile",
        "multis-are-of-one-protocol": "a client goes on although the table has moved to another node protocol",
        "unknown-formats-wait": "a release goes on with records in a format that it does not know",
    },
    "I5": {
        "content-has-its-digest": "content that changed after it was ratified is published",
        "foreign-commits-are-noticed": "any version that is in the log passes for the ratified one",
        "actions-have-their-digest": "staged actions are used without a look at their digest",
        "damage-stops-writers": "writers go on behind a log file that differs from what was ratified",
        "damage-is-no-clean-up": "writers stop at a version that a clean-up of the log removed",
        "old-data-are-no-foreign-commit": "versions that the coordinator lost are reported as written by another engine",
        "engine-is-recorded": "the publisher signs a version with its own release instead of the ratifier's",
        "unknown-renderings-wait": "a release renders versions by rules that it does not know",
    },
    "I6": {
        "publication-order-is-checked": "a version is published before the one below it",
        "first-pending-batch-first": "of several batches that wait, the last is published first",
        "own-batch-in-its-turn": "a client publishes its own batch ahead of earlier ones",
        "published-when-it-is-there": "`published` is raised without the files",
        "published-is-compared": "a publisher that slept moves `published` back",
        "publisher-has-its-session": "a client that lost its session goes on publishing",
        "no-version-without-the-one-before": "a version is put into a folder that was deleted",
    },
    "I7": {
        "filed-while-the-owner-stands": "a transaction is filed after its client was buried",
        "filed-while-the-owner-stands-on-the-fast-path": "a transaction commits on the fast path after its client was buried",
        "the-buried-stay-away": "a buried client comes back",
        "the-living-are-not-buried": "a living client is buried",
        "away-for-too-long-is-away": "a client comes back after its grave may have been cleared",
        "terms-are-held": "a client gives up a term while it still holds transactions begun in it",
        "present-terms-are-kept": "files that a living client is about to commit are taken for garbage",
        "open-plans-are-kept": "the files of an open plan are taken for garbage",
        "filed-is-kept": "the files of an undecided transaction are taken for garbage",
        "late-slots-of-commits-keep-nothing": "a late slot of a transaction committed from another slot keeps its owner's files for ever",
        "late-slots-are-decided-first": "files are judged before the late slot of their transaction is decided",
        "ratified-is-kept": "staged actions are taken for garbage before their version is published",
        "busy-is-asked-after-gone": "the filed transactions are listed before it is certain that no more are filed",
        "looking-only-buries-nobody": "a dry run takes clients for dead, for good",
        "looking-only-closes-no-plan": "a dry run closes plans",
        "latest-is-read-last": "files committed during a vacuum are taken for garbage",
        "replaced-files-are-kept-for-a-time": "the time in a removal is ignored: files removed by a clock that is ahead go too early",
        "short-retentions-are-refused": "a retention below the table's own is accepted without force",
        "pins-are-kept": "the files of a pinned version are deleted",
        "restored-files-are-pinned": "the files of a version are deleted while it is being restored",
        "restored-files-are-seen": "files that were restored during a vacuum are deleted",
        "restores-depend-on-their-session": "a restore is committed whose client lost the pin on its files",
        "files-given-up-are-missing": "files come back that a paused vacuum goes on to delete",
        "unreadable-pins-keep-everything": "a pin that cannot be read keeps nothing",
        "pins-are-above-the-horizon": "a version that garbage collection gave up is pinned",
        "horizon-before-pins": "a pin set during a vacuum is granted although its files go",
        "a-removal-counts-from-its-version": "a writer whose clock is behind lets files go that were removed a moment ago",
        "change-data-is-kept": "change data that the log names is taken for garbage",
        "files-of-others-go-by-age": "files that name no owner go at once",
        "foreign-files-need-a-word": "old files that nothing accounts for are deleted without being asked for",
        "removals-are-of-the-closed-tree": "a client that removes a dropped tree goes on in the tree made in its place",
        "a-drop-deletes-its-own-table": "a client paused in a drop goes on with the next table at that place",
        "who-may-delete-is-looked-at-again": "a client paused in a drop goes on deleting after its session expired",
        "the-place-rests-after-a-deleter-that-vanished": "a table is created where a client paused in a drop may still delete log files",
        "a-stray-version-is-removed-under-a-claim": "a client paused while it removes a stray version removes the next table's instead",
        "the-log-of-pinned-versions-is-kept": "the log is cleaned up below pinned versions and undecided transactions",
        "the-log-of-undecided-transactions-is-kept": "the log is cleaned up below what undecided transactions are compared with",
        "the-log-is-cleaned-in-order": "later commits leave the log before earlier ones",
        "no-table-among-files": "a table is created among other files, which a vacuum later takes for its own",
        "no-table-around-a-table": "a table is created in a folder that contains another table",
        "a-creating-write-looks-for-files": "a write that creates its table among other files is refused only after its rows were written",
    },
    "I8": {
        "patience-decides": "a client that waits for a dead owner waits for ever",
        "patience-publishes": "a decision whose ratifier died stays unpublished",
        "patience-ends": "patience never ends",
        "who-reads-helps-to-publish": "a version whose writer died stays unpublished while others only read",
        "published-though-a-slot-is-gone": "a slot removed by hand keeps a version from being published",
        "large-intents-are-not-read": "an intent of any size, and a staged name of any form, is looked up",
        "staged-actions-are-there": "an intent whose staged actions are missing stops the queue",
        "unjudgeable-is-refused": "an intent that cannot be judged stops the queue",
        "unknown-formats-stop-nobody-before-them": "an intent in a newer format stops the slots before it too",
        "formats-are-admitted": "an intent with a made-up format stops the queue for ever",
        "formats-are-admitted-first": "an intent in a newer format is filed before the head admits it, and older releases refuse it",
    },
    "I9": {
        "grants-are-compared": "a commit is ratified on a view of the leases that is older than a grant",
        "leases-relied-on-are-checked": "the ratifying multi does not check that the lease still exists",
        "leases-are-checked": "a batch is ratified although a lease was granted or lost since it was decided",
        "lost-leases-are-found": "a lost lease counts as held when a commit is decided",
        "commits-name-their-leases": "a commit does not name the leases that it depends on",
    },
    "I10": {
        "undecided-is-decided-by-who-asks": "a client that asks for an outcome leaves an undecided slot undecided",
        "barrier-before-an-outcome": "a server that is behind answers for the outcome",
        "records-are-kept": "verdict records go before their versions are published",
        "refusals-are-kept": "the records of refusals go, and nothing keeps the refusals",
        "refusals-are-found": "an outcome is looked for among kept refusals before the records, which move there meanwhile",
        "records-go": "verdict records stay for ever",
        "refusals-of-this-tree": "a publisher raises `published`, and keeps refusals, in a tree that was rebuilt meanwhile",
        "records-outlast-the-backlog": "limits are accepted under which records go before their versions are published",
        "the-node-for-refusals-is-made-again": "without the node for refusals, which somebody removed, publication stops",
        "ids-are-looked-for-before-they-were-made": "a client that asks for an unknown transaction reads the whole log",
        "clocks-may-differ": "a transaction is not found in the log if its id was made by a clock that is ahead",
        "too-late-is-filed-again": "a slot that came too late for its generation passes for a decided one",
        "orphans-of-old-generations-are-found": "an outcome is looked for in the present generation only",
        "taken-back-though-committed": "a transaction committed from an earlier slot is withdrawn in a later one",
        "taken-back-alone": "a client that withdraws a transaction refuses the rest of the queue too",
        "taken-back-by-a-verdict": "a client that withdraws a filed transaction does not wait for a verdict",
        "too-late-to-take-back": "a client that withdraws a committed transaction learns that it does not exist",
        "slot-and-intent-are-of-one-id": "an intent may name another transaction than its slot does",
        "joint-committed-before": "a committed transaction is refused because of a table that it only read",
        "not-refused-by-who-is-behind": "a transaction is refused because a server that is behind does not show its other slots",
    },
    "I11": {
        "all-heads-in-one-multi": "the heads of several tables move one after the other",
        "all-tables-or-none": "a decision that commits in some of the tables is recorded",
        "never-with-one-table-alone": "a slot of a transaction over several tables is decided with one of them",
        "the-queue-ends-before-it": "slots behind a transaction over several tables are decided together with those before it",
        "refused-in-one-refused-in-all": "a transaction that one table refuses commits in the others",
        "half-is-not-told-to-be-done": "a repeated transaction counts as committed although a table has lost its part",
        "siblings-were-made-together": "slots made one by one pass for those of one transaction",
        "siblings-say-the-same": "slots that name different tables pass for those of one transaction",
        "slots-in-all-tables-or-none": "the slots of one transaction are made one after the other",
    },
    "I12": {
        "barrier-after-a-lost-reply": "after a lost reply, a server that is behind answers whether the request took effect",
        "barrier-after-a-lost-ratification": "after a lost reply to ratifying, a server that is behind answers whether it took effect",
        "trouble-with-deciding-is-waited-out": "an object store that is away while a queue is decided fails the client that decides",
        "slot-is-looked-for": "after a lost reply, the slot is made a second time",
        "refused-stays-refused": "an owner that heard no answer files a refused transaction again, and it may commit",
        "filed-again-is-said": "an intent filed again after a lost reply does not say so: the log is not searched for it",
        "filed-again-is-said-after-the-fast-path": "an intent filed after a lost reply on the fast path does not say so",
        "lost-on-the-fast-path-is-told": "on the fast path, a missing record passes for no commit",
        "committed-once-by-id": "the log is not searched for a transaction that was filed again",
        "committed-once-in-a-batch": "two slots of one transaction in one batch both commit",
        "application-number-once": "an application's transaction commits as often as it is filed",
        "repeated-before-refused": "an application's repeated transaction is refused for a conflict instead of found committed",
        "repeated-in-one-is-said": "an application number that one table has already commits in the others",
        "refusals-stay": "after a lost reply, a refusal that left the records is overlooked, and the intent is filed again",
        "trees-are-made-once": "a client that hears no answer takes the tree of a table for made",
        "lost-session-is-replaced": "an expired session fails a reader",
        "answered-when-published": "a caller that waits for publication is answered at ratification",
        "trouble-with-publishing-is-no-failure": "an object store that is away fails a ratified commit",
        "gaps-are-looked-at-again": "a publisher that slept reports a broken invariant where others published and pruned",
        "late-publishers-find-it-published": "a late publisher reports staged actions as lost that were collected after publication",
        "an-old-slot-is-no-sign-of-a-new-one": "a slot that came too late passes for the one filed in its stead",
        "moved-slot-leaves-its-place": "a slot that moves to another generation exists in both",
        "moved-slot-says-so": "a slot that moves to another generation does not say so: the log is not searched for it",
        "verdicts-are-looked-for-again": "a verdict that one server does not show counts as forgotten",
        "made-up-slot-is-not-mine": "a made-up slot's verdict is given to the owner of another slot with that number",
        "forgotten-where-it-was-read": "a transaction counts as refused because a table that it only read has forgotten it",
        "any-table-may-know-it": "only one of its tables, perhaps one that it only read, is asked whether a transaction was filed",
        "too-late-the-second-time": "a committed transaction is refused because its second slots came too late",
    },
    "serial": {
        "applications-are-depended-on": "an application that wrote another number since is no conflict",
        "applications-are-depended-on-from-the-plan-on": "an application that went on between planning and committing is no conflict",
        "numbered-appends-are-compared": "a numbered append is grouped without a look at what its application wrote",
        "appends-look-at-the-metadata": "a blind append is accepted although the schema changed since it was made",
        "head-knows-the-metadata": "the head does not note that metadata changed",
        "only-blind-appends-share-a-version": "every transaction that reads nothing is grouped, even a change of metadata",
        "special-commits-stand-alone": "a commit that creates, attaches or detaches the table shares a version",
        "expected-version-is-compared": "a table is created although another client created it first",
        "detached-tables-refuse": "a table that was given to other engines is written",
        "brought-in-again-when-attached": "a table is written before the commit that attaches it again",
        "stricter-levels-count": "a transaction with a stricter level than the table's is compared at the table's",
        "row-ids-go-on": "row ids are given twice",
        "rule-appended-what-i-read": "rows added where a transaction read are no conflict",
        "rule-removed-what-i-read": "files removed after a transaction read them are no conflict",
        "rule-appended-what-i-lock": "rows added where a transaction read for update are no conflict",
        "rule-removed-what-i-remove": "files that two transactions delete are no conflict",
        "rule-metadata-changed": "a change of metadata is no conflict",
        "rule-protocol-changed": "a change of the protocol is no conflict",
        "rule-protocol-unsupported": "a client writes on under a protocol that it does not know",
        "rule-same-domain": "two changes of one metadata domain are no conflict",
        "rule-application-advanced": "an application that went on since it was read is no conflict",
        "rule-class-refused": "the matrices of MaxCompute refuse nothing",
        "serializable-is-strict": "Serializable lets blind appends pass as WriteSerializable does",
        "rows-that-were-read-count": "rows deleted after a transaction read them are no conflict",
        "rows-that-were-read-are-followed": "rows that a transaction read do not count any more once they were compacted",
        "the-same-row-is-a-conflict": "two transactions that delete the same row both commit",
        "vectors-are-united": "of two transactions that delete rows of one file, only the later one's rows are deleted",
        "vectors-have-one-base": "deletion vectors made on different ones are united",
        "deleted-rows-leave-a-compaction": "a compaction brings back rows that were deleted meanwhile",
        "rows-are-followed-by-rank": "a deletion is carried to a compacted file as if no row of the source had been dead",
        "what-was-adapted-is-committed": "an adapted transaction commits as it was filed",
        "what-was-read-follows-a-compaction": "a transaction that read a compacted file depends on nothing any more",
        "replacing-replaces": "an overwrite under a policy of MaxCompute leaves rows that came meanwhile",
        "looking-into-files-finds-rows": "every added file counts as one without rows that were read",
        "databricks-refuses-all-beside-changes": "under databricks, a change of protocol or properties stops only what Delta Lake stops",
        "databricks-compares-partitions": "under databricks, statistics separate changes of one partition where rows are not compared",
        "databricks-compares-files-in-partitioned-tables": "under databricks, rows are compared in partitioned tables too",
        "databricks-minds-z-orders": "under databricks, a compaction commits after a z-order of the same files",
        "many-read-files-are-all-files": "of very many files that were read, only the first are named",
        "many-removed-files-are-all-files": "of very many files that are removed, only the first are named",
        "many-partitions-are-all": "of very many partitions that are touched, only the first are named",
        "long-conditions-are-everything": "a condition that is too long is left out",
        "coarse-footprints-are-made-exact": "entries left out of a footprint for its length are not looked up in the actions",
        "scans-are-remembered": "files that a transaction scanned are not among those it read",
    },
    "reads": {
        "latest-asks-for-what-is-known-to-anybody": "`latest` is what a server that is behind shows",
        "the-first-batch-of-a-number-made-it": "a version that waits to be published is looked for in the record of later refusals",
        "barriers-count-for-their-session": "a barrier counts for the next session, whose server is behind",
        "sessions-show-their-own": "`session` shows a snapshot older than a commit made here",
        "what-is-in-hand-is-of-this-tree": "snapshots in memory are served although the session that showed them ended",
        "serial-settles-the-queue": "`serial` does not wait for the queue",
        "one-moment-of-several-heads": "a read of several tables takes the newest version that each shows",
        "a-moment-before-all-ends": "of tables read later, a version is shown that came after the others had moved on",
        "a-moment-that-is-known": "the moment of a version comes from a later commit if the next record was pruned",
        "hidden-commits-are-looked-for": "a version is missing because a listing does not show it",
        "two-listings-agree": "one listing is enough to refuse a log that a clean-up is changing",
        "ranges-are-of-one-version": "the footer of a checkpoint comes from one object and its columns from the one that replaced it",
        "lists-are-of-the-checkpoint-of-the-state": "the files of a replaced checkpoint go with the state of the first",
        "the-mode-maps-columns": "mapped columns are read as nulls if the protocol does not list the feature",
        "properties-ask-for-features": "a table is written without a feature that its properties ask for and its protocol does not list",
        "compactions-are-reconciled": "a log compaction file that holds a key twice counts for the commits it covers",
        "spellings-are-one-file": "a file removed under another spelling of its path is still read",
        "upserts-bring-every-column": "an upsert of rows that lack a column replaces its values by nulls",
    },
    "lease": {
        "others-leases-object": "another client's lease stops nobody",
        "nearest-in-the-way-is-waited-for": "a request looks only at the first of the queue, not at all before it",
        "who-asked-before-is-before": "a request waits only for those that came after it",
        "grants-are-of-requests-that-stand": "a broken request is granted",
        "grants-are-written-by-comparison": "of two grants at once, one is forgotten",
        "lost-grant-is-looked-for": "a grant whose reply was lost counts as made",
        "lost-request-is-looked-for": "a request whose reply was lost is filed twice",
        "shared-stand-together": "an exclusive lease is granted beside a shared one",
        "unlike-conditions-meet-when-in-doubt": "conditions that cannot be told apart count as different partitions",
        "loss-is-told-at-the-end": "a block whose lease was lost ends without an error",
    },
    "order": {
        "who-waits-is-not-passed": "the fast path overtakes a transaction in the queue",
        "fast-path-when-idle": "the fast path is taken although a version waits to be published",
        "times-increase": "a version takes its transactions' time, which may be before the last version's",
        "timestamps-grow": "a reader accepts a log file that is a copy of another version's",
    },
    "liveness": {
        "backlog-is-bounded": "any number of versions is ratified before one is published",
        "others-backlog-is-kept-to": "a transaction is ratified although one of its tables has a full backlog",
        "generations-end": "the counter of a generation runs on without end",
        "closed-generation-is-passed-on": "the publisher of a generation's last batch does not say that it was the last",
        "outdated-views-are-forgotten": "a view of the leases that was found outdated is used again",
        "circles-are-found": "requests that wait for each other wait for ever",
        "the-youngest-gives-in": "every request in a circle gives up, and none gets through",
        "losers-have-their-turn": "a transaction that lost begins again like any other",
        "turns-stop-others": "a granted turn stops nobody",
        "appends-pass-turns": "plain appends wait for a turn",
        "turns-end": "a turn lasts as long as its attempt, which may never end",
        "lost-data-are-noticed": "a client keeps asking for its former session after the ensemble has lost its data",
        "a-loss-is-told-by-most-hosts": "one server with old data passes for an ensemble that has lost its data",
    },
    "work": {
        "one-writes-a-checkpoint": "every client that sees a checkpoint due writes it",
        "the-claim-of-a-checkpoint-is-compared": "clients that see a checkpoint due at the same moment all write it",
    },
}
"""What goes wrong without a check, by what it holds and by its name."""

_SMALL_WORLDS: Final[Mapping[str, str]] = {
    "head-is-compared": "queue",
    "slots-are-sorted": "queue",
    "grants-are-compared": "lease",
    "lost-leases-are-found": "lease",
    "others-leases-object": "lease",
    "all-heads-in-one-multi": "joint",
    "slots-in-all-tables-or-none": "joint",
}
"""The small world that notices."""

_SIMULATED: Final = frozenset(
    {
        "head-is-compared",
        "slots-are-sorted",
        "trouble-with-deciding-is-waited-out",
        "application-number-once",
        "undecided-is-decided-by-who-asks",
        "first-pending-batch-first",
        "own-batch-in-its-turn",
        "published-when-it-is-there",
        "published-is-compared",
        "patience-ends",
        "too-late-is-filed-again",
        "serial-settles-the-queue",
        "first-unseen-winner-counts",
        "validated-up-to-the-head",
        "validated-is-what-was-looked-at",
        "window-reaches-back",
        "winners-of-the-same-batch-count",
        "times-increase",
        "the-same-row-is-a-conflict",
        "vectors-are-united",
        "grants-are-compared",
        "others-leases-object",
        "one-moment-of-several-heads",
        "all-heads-in-one-multi",
        "refused-in-one-refused-in-all",
        "slots-in-all-tables-or-none",
        "engine-is-recorded",
        "unknown-renderings-wait",
    }
)
"""The checks whose absence some seeds of the simulator notice."""

_ACCEPTED: Final[Mapping[str, str]] = {
    "barrier-after-a-lost-ratification": "the client looks at its claim until the head shows a decision: it only takes longer",
    "slots-that-vanish-stop-the-look": "a slot goes when it is published: the head has moved by then, and is compared",
    "an-old-slot-is-no-sign-of-a-new-one": "a slot in an older generation is seen to have come too late, and moved",
    "others-backlog-is-kept-to": "the full backlog was published right before, or publishing raised: the slot is looked at once more",
}
"""Why nobody can notice that a check is missing, and why it stays all the same."""


@dataclass(frozen=True, slots=True)
class Check:
    """A check: what it holds (a key of `HELD`), what goes wrong without it, and who beside tests notices.

    `world` is a small world, `seeds` are seeds of the simulator. A check that nothing can miss has the reason in `accepted`.
    """

    name: str
    holds: str
    without: str
    world: str = ""
    seeds: str = ""
    accepted: str = ""


CHECKS: Final[Mapping[str, Check]] = {
    name: Check(name, holds, without, _SMALL_WORLDS.get(name, ""), SEEDS if name in _SIMULATED else "", _ACCEPTED.get(name, ""))
    for holds, checks in _WITHOUT.items()
    for name, without in checks.items()
}
