"""Examines a log and its files: reads everything, changes nothing, and says for each finding what to do.

It also finds damage that still decodes: in-commit timestamps grow strictly from version to version, a transaction is in one
version, and a version checksum (`.crc`) repeats what its commit says and counts what the version has ("In-Commit Timestamps" and "Version
Checksum File" in PROTOCOL.md). A commit file that was overwritten with another version's copy breaks the first two.

Commits of sluice are a chain (`actions.chain`), by which any stretch of the log is proven: each has the digest of the file before it, and
the hash of the table's files after it, which its actions make of the hash before, and a checkpoint of its version has, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from ..actions.chain import MODULUS, NO_FILES, Link, files_after, files_of
from ..actions.codec import decode_text
from ..actions.features import in_commit_timestamps
from ..actions.records import Action, CommitInfo, Metadata, Protocol
from ..actions.texts import sha256, stored_text
from ..constants import LAST_CHECKPOINT, LOG_FOLDER, SIDECAR_FOLDER, STAGED_FOLDER
from ..dataclass import dataclass
from ..errors import ObjectNotFound, SluiceError
from ..stores.objects import ObjectInfo, ObjectStore
from .checksum import disagreements, read_checksum
from .paths import LogFile, checksum_path, commit_path
from .replay import ReplayState, compaction_flaw, fetch_actions, read_checkpoint
from .segment import LogListing, last_checkpoint_version, list_versions
from .snapshot import Snapshot

ERROR: Final = "error"
WARNING: Final = "warning"
NOTE: Final = "note"

_RESTORE: Final = (
    "restore the file from a copy (an earlier version of the object, where the bucket keeps them); until then stop the writers, because "
    "what they commit lies behind a file that no reader gets past"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding: the name of its kind, its severity ("error", "warning", "note"), the object or node, the problem, and what to do.

    A name never changes its meaning: each has a row in docs/operations/doctor.md.
    """

    name: str
    severity: str
    about: str
    what: str
    remedy: str = ""


def reporter(findings: list[Finding]) -> Callable[..., None]:
    """A function that adds a finding, which it is given in parts."""
    return lambda *parts: findings.append(Finding(*parts))


@dataclass(frozen=True, slots=True)
class Seal:
    """Identifies a commit file: the SHA-256 of its content, its in-commit timestamp, its transaction.

    `link` is what it says of the chain, `change` the number by which its actions change the hash of the table's files.
    """

    digest: str
    timestamp_ms: int | None
    transaction: str | None
    link: Link | None
    change: int

    def moved(self, version: int) -> int:
        """By how much the number that it says differs from the version whose file it is."""
        return 0 if self.link is None else self.link.version - version

    def denies(self, before: Seal) -> bool:
        """Whether it says that it comes after another file than this one."""
        return self.link is not None and self.link.previous not in ("", before.digest)


def examine_log(store: ObjectStore, report: Callable[..., object]) -> dict[int, Seal]:
    """Examine every file of the log; returns the commits that could be read."""
    listing = list_versions(store)
    _gaps(listing, report)
    seals = _commits(store, listing, report)
    _checkpoints(store, listing, _chain(store, seals, report), report)
    _checksums(store, listing, seals, report)
    _compactions(store, listing, report)
    for info in store.list_from(LOG_FOLDER, recursive=True):
        has_readers = LogFile.parse(info.key) or info.key == LAST_CHECKPOINT or info.key.startswith((STAGED_FOLDER, SIDECAR_FOLDER))
        if not has_readers and not info.key.rpartition("/")[2].startswith((".", "_")):
            report("strange-file", NOTE, info.key, "no reader of the log uses this file", "move it away if nobody knows its purpose")
    return seals


def _gaps(listing: LogListing, report: Callable[..., object]) -> None:
    newest = listing.checkpoints[-1].version if listing.checkpoints else -1
    latest = listing.latest if listing.latest is not None else -1
    if not listing.commits:
        report("log-empty", WARNING, LOG_FOLDER, "the log has no commit", "read from its checkpoint, or restore the log from a copy")
    first = min(*listing.commits, newest + 1) if listing.commits else newest + 1
    for version in (each for each in range(first, latest + 1) if each not in listing.commits):
        if version > newest:
            report("version-missing", ERROR, commit_path(version), f"version {version} is missing, and later versions need it", _RESTORE)
        else:
            what = f"version {version} is missing; the checkpoint of version {newest} replaces it"
            report(
                "version-missing", WARNING, commit_path(version), what, "restore it if versions that need it matter: they cannot be read"
            )


def _commits(store: ObjectStore, listing: LogListing, report: Callable[..., object]) -> dict[int, Seal]:
    seals: dict[int, Seal] = {}
    versions_of: dict[str, int] = {}
    state = ReplayState()  # after the commits so far, which the next one is compared with
    for version in sorted(listing.commits):
        key = listing.commits[version].key
        untimed = _has_no_timestamps(state)
        compared: list[Action] = []
        try:
            text = stored_text(store, key)
            for action in decode_text(text, name=key):  # all is decoded, though files are not compared
                if isinstance(action, (CommitInfo, Metadata, Protocol)):
                    compared.append(action)  # noqa: PERF401 (of a damaged commit, what comes before the damage counts)
        except ObjectNotFound:
            continue  # removed by a clean-up; otherwise the next look reports it
        except SluiceError as damage:
            report("version-unreadable", ERROR, key, f"version {version} cannot be read: {damage.message}", _RESTORE)
            continue
        finally:
            state = state.after([compared])
        info = state.commit_info
        times = (info.in_commit_timestamp, info.fields.get("txnId")) if info else (None, None)
        seal = Seal(sha256(text), *times, Link.of(info), int(files_after(NO_FILES, text), 16))
        copied = versions_of.get(seal.digest)
        before = None if untimed or _has_no_timestamps(state) else seals.get(version - 1)
        if before is not None and (before.moved(version - 1) or seal.denies(before)):
            before = None  # the chain shows more exactly which of the two was changed
        moved = seal.moved(version)
        # check: a-file-is-of-its-version (moved -> False)
        if moved:
            copied = version
            # after one that was cut out, all are moved alike
            if version - 1 not in seals or seals[version - 1].moved(version - 1) != moved:
                what = f"version {version} has the content of version {version + moved}: files were copied, swapped or renamed"
                report("version-moved", ERROR, key, what, _RESTORE)
        elif copied is not None:
            what = f"version {version} has the content of version {copied}: one file was copied over the other"
            report("version-moved", ERROR, key, what, _RESTORE)
        elif (
            before and None not in (before.timestamp_ms, seal.timestamp_ms) and int(seal.timestamp_ms or 0) <= int(before.timestamp_ms or 0)
        ):
            what = f"its in-commit timestamp {seal.timestamp_ms} is not later than version {version - 1}'s, {before.timestamp_ms}"
            report("time-wrong", ERROR, key, f"{what}: one of the two files was changed after its commit", _RESTORE)
        elif in_commit_timestamps(state.protocol, state.metadata) and seal.timestamp_ms is None:
            report("time-wrong", ERROR, key, f"version {version} has no in-commit timestamp, and the table has them", _RESTORE)
        if copied is None:
            versions_of[seal.digest] = version
        seals[version] = seal
    return seals


def _chain(store: ObjectStore, seals: Mapping[int, Seal], report: Callable[..., object]) -> dict[int, int]:
    """Compare the commits with what the chain says of them; returns the hash of each version's files, as sound commits say it."""
    links = {version: seal.link for version, seal in seals.items() if seal.link is not None}
    strange = {version for version, seal in seals.items() if seal.moved(version)}
    # check: the-version-before-is-compared (seals[each].denies(seals[each - 1]) -> False)
    denied = {each - 1 for each in links if each - 1 in seals and seals[each].denies(seals[each - 1])}
    for version in sorted(denied - strange):
        witness = version + 1
        if witness in denied or witness in strange:
            continue  # the witness was changed itself
        what = f"version {version} was changed or replaced after its commit: version {witness} names another SHA-256 of its file"
        if witness + 1 not in links:
            what = f"{what}; or version {witness} was, which no later version vouches for"
        report("chain-broken", ERROR, commit_path(version), what, _RESTORE)
    files = {-1: 0} | {version: int(link.files, 16) for version, link in links.items() if version not in denied | strange}
    for version in sorted(files.keys() & links.keys()):
        made = (files[version - 1] + seals[version].change) % MODULUS if version - 1 in files else files[version]
        if version - 1 in seals and version - 1 not in links:
            with suppress(SluiceError):  # the log may not have these files any more
                made = int(files_of(Snapshot.load(store, version=version).files), 16)
        # check: actions-make-the-files
        if made != files[version]:
            what = f"version {version} does not have the hash of the files that its actions make: it was changed after its commit"
            report("chain-broken", ERROR, commit_path(version), what, _RESTORE)
            del files[version]
    _unchained(seals, links, report)
    return {version - 1: (files[version] - seals[version].change) % MODULUS for version in files.keys() & links.keys()} | files


def _unchained(seals: Mapping[int, Seal], links: Mapping[int, Link], report: Callable[..., object]) -> None:
    """Name the versions without a chain in a log that has one."""
    first: int | None = None
    for version in sorted(seals) if links else ():
        first = None if version in links else version if first is None else first
        if first is not None and (version + 1 in links or version + 1 not in seals):
            which = f"versions {first} to {version} have" if first < version else f"version {version} has"
            begins = f"; a new chain begins with version {version + 1}" if version + 1 in links else ""
            what = f"{which} no chain: another engine, or a release of sluice without chains, wrote there{begins}"
            report("no-chain", NOTE, commit_path(first), what, "none, if you know of it; nothing proves these files")


def _has_no_timestamps(state: ReplayState) -> bool:
    """Whether, as far as is known, no commit needs an in-commit timestamp; those that exist need not grow."""
    return state.protocol is not None and state.metadata is not None and not in_commit_timestamps(state.protocol, state.metadata)


def _checksums(store: ObjectStore, listing: LogListing, seals: Mapping[int, Seal], report: Callable[..., object]) -> None:
    snapshot: Snapshot | None = None
    for version in sorted(listing.checksums):
        try:
            says = read_checksum(store, version)
            if says is None:
                continue
            _compare_with_commit(says, version, seals.get(version), report)
            snapshot = _snapshot_after(store, listing, snapshot, version)
            wrong = [] if snapshot is None else disagreements(says, snapshot.summary())
        except ValueError as cause:
            what = f"this version checksum cannot be read: {cause}"
            report("checksum-wrong", WARNING, checksum_path(version), what, "remove it: readers do not need it")
            continue
        if wrong:
            what = f"this version checksum disagrees with the log: {'; '.join(wrong)}"
            report("checksum-wrong", WARNING, checksum_path(version), what, _CHECKSUM_REMEDY)


_CHECKSUM_REMEDY: Final = (
    "if nothing else is wrong with the log up to that version, remove the checksum: sluice reads what the log says, and other engines "
    "may refuse to read the version as long as it is there. Otherwise the log was changed: restore it first"
)


def _snapshot_after(store: ObjectStore, listing: LogListing, before: Snapshot | None, version: int) -> Snapshot | None:
    """The snapshot of a version, by the commits since an earlier one; None if it cannot be read, which is reported elsewhere."""
    try:
        versions = range(version if before is None else before.version + 1, version + 1)
        if before is None or not all(each in listing.commits for each in versions):
            snapshot = Snapshot.load(store, version=version)
        else:
            actions = fetch_actions(store, [listing.commits[each] for each in versions])
            snapshot = before.advance(list(zip(versions, actions, strict=True)))
        _ = snapshot.files
    except SluiceError:
        return None
    return snapshot


def _compare_with_commit(says: Mapping[str, Any], version: int, seal: Seal | None, report: Callable[..., object]) -> None:
    if seal is None:
        return
    for name, own in (("inCommitTimestampOpt", seal.timestamp_ms), ("txnId", seal.transaction)):
        if says.get(name) is not None and own is not None and says[name] != own:
            what = f"the version checksum has {name} {says[name]}, and the commit of version {version} has {own}"
            report("checksum-wrong", ERROR, commit_path(version), f"{what}: one of the two files was changed since", _RESTORE)


def _compactions(store: ObjectStore, listing: LogListing, report: Callable[..., object]) -> None:
    for file in listing.compacted:
        commits = [listing.commits[each] for each in range(file.version, file.end_version + 1) if each in listing.commits]
        if len(commits) <= file.end_version - file.version:
            continue  # a clean-up removed some
        try:
            actions, *of_commits = fetch_actions(store, [file, *commits])
            flaw = compaction_flaw(actions, of_commits, whole=True)
        except SluiceError as damage:
            flaw = damage.message
        if flaw:
            what = f"the compaction of versions {file.version} to {file.end_version} does not say what they do: {flaw}"
            report("compaction-wrong", WARNING, file.key, what, "remove it: readers do not need it as long as the commits are there")


def _checkpoints(store: ObjectStore, listing: LogListing, files: Mapping[int, int], report: Callable[..., object]) -> None:
    for checkpoint in listing.checkpoints:
        problem = ""
        try:
            state = read_checkpoint(store, checkpoint)
            listed = int(files_of(state.files.table), 16)
            if state.protocol is None or state.metadata is None:
                problem = "lacks the table's protocol or metadata"
            # check: checkpoints-have-the-files
            elif files.get(checkpoint.version, listed) != listed:
                problem = "lists other files than the commits say"
        except ObjectNotFound:
            continue
        except SluiceError as damage:
            problem = f"cannot be read: {damage.message}"
        if problem:
            what = f"the checkpoint of version {checkpoint.version} {problem}"
            is_spare = all(each in listing.commits for each in range(checkpoint.version + 1))
            remedy = "move the file away: all commits are there, and the next checkpoint replaces it" if is_spare else _RESTORE
            report("checkpoint-wrong", ERROR, checkpoint.parts[0].key, what, remedy)
    hint = last_checkpoint_version(store)
    if hint is not None and hint not in {each.version for each in listing.checkpoints}:
        what = f"it names a checkpoint of version {hint}, which is not there"
        report("last-checkpoint-wrong", WARNING, LAST_CHECKPOINT, what, "write a checkpoint (Table.checkpoint): other engines may need it")


def examine_files(
    store: ObjectStore, snapshot: Snapshot, key_of: Callable[[str], str | None], vectors: Iterable[str], report: Callable[..., object]
) -> None:
    """Check that the files of a version exist and have the size in the log. `vectors` are the keys of its deletion vectors."""
    there = {info.key: info for info in store.list_from("", recursive=True)}
    outside = 0
    for batch in snapshot.files.select(["path", "size"]).to_batches():
        for path, size in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            key = key_of(path)
            if key is None:
                outside += 1
                continue
            if (stored := _object(store, there, key)) is None:
                report("file-missing", ERROR, key, f"version {snapshot.version} names this file, and it is not there", _FILE_REMEDY)
            elif stored.size != size:
                report("file-cut", ERROR, key, f"this file has {stored.size} bytes, and the log says {size}", _FILE_REMEDY)
    for key in sorted(set(vectors)):
        if _object(store, there, key) is None:
            report("file-missing", ERROR, key, f"version {snapshot.version} names this deletion vector, and it is not there", _FILE_REMEDY)
    if outside:
        report("files-elsewhere", NOTE, snapshot.location, f"{outside} files outside the table's folder (a clone's) were not checked")


_FILE_REMEDY: Final = (
    "restore the file from a copy (an earlier version of the object, where the bucket keeps them); where there is none, its rows are lost: "
    "delete them by their partition or write them again"
)


def _object(store: ObjectStore, there: Mapping[str, ObjectInfo], key: str) -> ObjectInfo | None:
    """The object as listed, or by name if the listing does not show it."""
    if key in there:
        return there[key]
    try:
        return store.head(key)
    except ObjectNotFound:
        return None
