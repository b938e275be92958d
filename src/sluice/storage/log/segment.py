"""Which files of the log make up a version: found by listing, checked against numbered guarantees.

A listing is not a point in time. It may or may not show a file that is stored or removed while it runs, each file independently: a folder
on a disk may show version 8 and not version 7, although 7 was stored first. (POSIX leaves this open, see `readdir`; each page of a bucket's
listing is a point in time.) It does show every file that existed before it began, and stays. So a commit that is not listed is looked for
by name before it is called missing, and a refusal needs two listings that agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from itertools import groupby

from ..constants import LAST_CHECKPOINT, LOG_FOLDER, VERSION_MAX
from ..dataclass import dataclass
from ..errors import LogGap, NotATable, ObjectNotFound, TableNotFound, VersionNotFound
from ..jsontext import loads
from ..stores.objects import ObjectStore
from .paths import LogFile, LogKind, commit_path, version_prefix


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint: one file, or all parts of a multi-part one in order."""

    version: int
    kind: LogKind
    parts: tuple[LogFile, ...]


@dataclass(frozen=True, slots=True)
class LogSegment:
    """The files that rebuild one version of a table. Guaranteed by construction:

    1. `commits` are consecutive versions and end at `version`.
    2. The checkpoint, if any, is complete and not newer than `version`.
    3. Nothing is missing between them: the first commit follows the checkpoint, or is version 0.
    4. `deltas` cover exactly the versions of `commits`, in order, each once: they are these commits, or compacted files
       that replace a run of them.

    With a checkpoint at `version` itself there are no commits. `last_commit` is the commit file of `version`, if it still exists;
    `has_checksum` says whether that version has a checksum, too.
    """

    location: str
    version: int
    checkpoint: Checkpoint | None
    commits: tuple[LogFile, ...]
    deltas: tuple[LogFile, ...]
    last_commit: LogFile | None
    has_checksum: bool = False

    def __post_init__(self) -> None:
        checkpoint = self.checkpoint
        if self.commits:  # guarantee 1
            _refuse_gap(self, self.commits[0].version)
        if checkpoint is not None:  # guarantee 2
            assert checkpoint.version <= self.version, (checkpoint.version, self.version)
            assert len(checkpoint.parts) == checkpoint.parts[0].parts, checkpoint
        # guarantee 3
        _refuse_gap(self, 0 if checkpoint is None else checkpoint.version + 1)
        # guarantee 4
        covered = [version for each in self.deltas for version in range(each.version, each.end_version + 1)]
        assert covered == [each.version for each in self.commits], covered


def _refuse_gap(segment: LogSegment, first: int) -> None:
    """Raise LogGap unless the commits are exactly `first` to the segment's version."""
    present = {each.version for each in segment.commits}
    missing = next((version for version in range(first, segment.version + 1) if version not in present), None)
    if missing is not None:
        raise LogGap(
            f"version {missing} of {segment.location} is missing: {commit_path(missing)} is not there, but version {segment.version} "
            f"needs it; restore it from a copy",
            location=segment.location,
            version=missing,
        )


@dataclass(slots=True)
class LogListing:
    """The contents of a listing of `_delta_log/`: commits by version, compacted files, complete checkpoints ascending, versions with a
    checksum."""

    commits: dict[int, LogFile] = field(default_factory=dict)
    compacted: list[LogFile] = field(default_factory=list)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    checksums: set[int] = field(default_factory=set)
    anything: bool = False

    @property
    def latest(self) -> int | None:
        """The highest version."""
        return max([*self.commits, *(each.version for each in self.checkpoints)], default=None)

    def __contains__(self, version: int) -> bool:
        return version in self.commits or any(each.version == version for each in self.checkpoints)

    def newest_checkpoint(self, version: int) -> Checkpoint | None:
        """The newest checkpoint not after `version`."""
        return next((each for each in reversed(self.checkpoints) if each.version <= version), None)

    @property
    def earliest(self) -> int | None:
        """The lowest version that can be rebuilt."""
        return 0 if 0 in self.commits else min((each.version for each in self.checkpoints), default=None)


_LISTINGS_MAX = 6
# A log compaction file is read for so many commits: fewer are fetched as fast at once.
_COMPACTED_MIN = 32


def list_log(store: ObjectStore, start: int = 0) -> Iterator[LogFile]:
    """The files for readers from version `start` on, ascending, in one listing, which may hide new commits: `list_versions` adds them."""
    for info in store.list_from(LOG_FOLDER, version_prefix(start)):
        if (file := LogFile.parse(info.key, info.size, info.modified_ms)) is not None:
            yield file


def list_segment(store: ObjectStore, version: int | None = None) -> LogSegment:
    """The files that rebuild `version`, or the latest one.

    Raises TableNotFound if nothing is stored, NotATable if something is stored but no log, VersionNotFound for a version
    that does not exist (any more), LogGap if the log lacks a version it must have.
    """
    doubt = ""
    for _ in range(_LISTINGS_MAX - 1):
        try:
            return _list_segment(store, version)
        except (LogGap, VersionNotFound, NotATable) as refusal:
            # A clean-up removed files, or a writer stored some, during this listing: another listing shows the result.
            # check: two-listings-agree (always)
            if str(refusal) == doubt:
                raise
            doubt = str(refusal)
    return _list_segment(store, version)


def _list_segment(store: ObjectStore, version: int | None) -> LogSegment:
    hint = last_checkpoint_version(store)
    if hint is not None and (version is None or hint <= version):
        listing = list_versions(store, hint)
        wanted = listing.latest if version is None else version
        # Only a full listing can name the versions that exist instead.
        if wanted is not None and wanted in listing and listing.newest_checkpoint(wanted) is not None:
            return _segment(store.location, listing, version)
    # Without a usable hint, the full listing decides.
    listing = list_versions(store, 0)
    if listing.latest is not None:
        return _segment(store.location, listing, version)
    stored = next(iter(store.list_from("", recursive=True)), None)
    if stored is None:
        raise TableNotFound(f"there is no table at {store.location}: check the location, or create the table", location=store.location)
    what = "its log holds no commit and no complete checkpoint" if listing.anything else f"there is no {LOG_FOLDER} with a commit in it"
    raise NotATable(
        f"{store.location} is not a Delta table: it holds {stored.key}, but {what}; check the location",
        location=store.location,
        found=stored.key,
    )


def latest_version(store: ObjectStore) -> int | None:
    """The highest version in the log, or None if there is no log."""
    hint = last_checkpoint_version(store)
    latest = None if hint is None else list_versions(store, hint).latest
    return list_versions(store, 0).latest if latest is None else latest


def _segment(location: str, listing: LogListing, wanted: int | None) -> LogSegment:
    latest, earliest = listing.latest, listing.earliest
    assert latest is not None
    version = latest if wanted is None else wanted
    checkpoint = listing.newest_checkpoint(version)
    if version < 0 or version > latest or (earliest is not None and version < earliest):
        if earliest is None:
            available = f"the log ends at version {latest}, and no version of it can be rebuilt"
        else:
            available = f"versions {earliest} to {latest} are" if earliest < latest else f"only version {latest} is"
        raise VersionNotFound(
            f"version {version} of {location} is not available: {available}",
            location=location,
            version=version,
            earliest=earliest,
            latest=latest,
        )
    first = 0 if checkpoint is None else checkpoint.version + 1
    commits = tuple(listing.commits[each] for each in sorted(listing.commits) if first <= each <= version)
    return LogSegment(
        location=location,
        version=version,
        checkpoint=checkpoint,
        commits=commits,
        deltas=_compact(commits, listing.compacted),
        last_commit=listing.commits.get(version),
        has_checksum=version in listing.checksums,
    )


def _compact(commits: Sequence[LogFile], compacted: Iterable[LogFile]) -> tuple[LogFile, ...]:
    """The commits, with long runs replaced by the longest compacted file that begins there and fits."""
    longest: dict[int, LogFile] = {}
    for each in compacted:
        fits = bool(commits) and each.end_version <= commits[-1].version and each.end_version - each.version >= _COMPACTED_MIN - 1
        if fits and (each.version not in longest or each.end_version > longest[each.version].end_version):
            longest[each.version] = each
    chosen: list[LogFile] = []
    for commit in commits:
        if not chosen or commit.version > chosen[-1].end_version:
            chosen.append(longest.get(commit.version, commit))
    return tuple(chosen)


def list_versions(store: ObjectStore, start: int = 0) -> LogListing:
    """The log from version `start` on: a listing, and the commits that it hides."""
    listing = LogListing()
    candidates: list[LogFile] = []
    for each in list_log(store, start):
        listing.anything = True
        if each.kind is LogKind.COMMIT:
            listing.commits[each.version] = each
        elif each.kind is LogKind.COMPACTED:
            listing.compacted.append(each)
        elif each.kind is LogKind.CRC:
            listing.checksums.add(each.version)
        elif each.is_checkpoint:
            candidates.append(each)
    listing.checkpoints = sorted(_complete(candidates), key=lambda each: (each.version, _ORDER.index(each.kind), -len(each.parts)))
    # check: hidden-commits-are-looked-for
    _add_hidden(store, listing, start)
    return listing


def _add_hidden(store: ObjectStore, listing: LogListing, start: int) -> None:
    """Add commits that were stored while the listing ran and that it does not show.

    Commits are stored in order. So every commit above a hidden one is at least as new: the search goes down from the latest
    one and ends at the first missing name. That commit was removed, and so were the others that the listing lacks.
    """
    if not listing.commits:
        return
    first = listing.checkpoints[-1].version + 1 if listing.checkpoints else start
    lowest, latest = min(*listing.commits, first), max(listing.commits)
    if len(listing.commits) == latest - lowest + 1:
        return
    for version in range(latest - 1, lowest - 1, -1):
        if version in listing.commits:
            continue
        key = commit_path(version)
        try:
            info = store.head(key)
        except ObjectNotFound:
            return
        listing.commits[version] = LogFile(key, LogKind.COMMIT, version, version, size=info.size, modified_ms=info.modified_ms)


def _complete(files: Iterable[LogFile]) -> Iterator[Checkpoint]:
    """The checkpoints with all parts; an incomplete set was never finished, and is ignored."""

    def identity(each: LogFile) -> tuple[int, str, int, str]:
        return each.version, each.kind.value, each.parts, each.key if each.kind is LogKind.V2_CHECKPOINT else ""

    for _, group in groupby(sorted(files, key=lambda each: (*identity(each), each.part)), key=identity):
        parts = tuple(group)
        if len(parts) == parts[0].parts:
            yield Checkpoint(parts[0].version, parts[0].kind, parts)


# Several checkpoints of one version have the same contents; the one with the fewest files is read.
_ORDER = (LogKind.MULTIPART_CHECKPOINT, LogKind.V2_CHECKPOINT, LogKind.CLASSIC_CHECKPOINT)


def last_checkpoint_version(store: ObjectStore) -> int | None:
    """The version in `_last_checkpoint`: only a hint, so a missing or damaged one is not an error."""
    try:
        hint = loads(store.get(LAST_CHECKPOINT))
    except (ObjectNotFound, ValueError):
        return None
    version = hint.get("version") if isinstance(hint, dict) else None
    return version if type(version) is int and 0 <= version <= VERSION_MAX else None
