"""Two releases of sluice write one table, side by side in processes, on a real ZooKeeper.

Either publishes what the other ratified and died with. What only the newer one understands waits for it: the older one says so,
and changes nothing.
"""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

import deltalake
import orjson
import pyarrow as pa
import pytest

import sluice
from sluice.coordinator import formats
from sluice.coordinator.limits import Limits
from sluice.installation import ENGINE
from tests.releases import NAMED, Edit, Release, raised, this_release
from tests.tables.conftest import present

pytestmark = pytest.mark.zookeeper

SCHEMA = pa.schema([pa.field("part", pa.string(), nullable=False), pa.field("value", pa.int64())])
IMPATIENT = Limits(patience_s=0.05, patience_s_max=0.5, publication_wait_s=1.0)
_SECOND_IS_WHOLE = Edit(
    "coordinator/nodes/records.py", '    LATER: ClassVar = frozenset({"digest", "files"})', "    LATER: ClassVar = frozenset()"
)
"""A release with a third format of the head reads all fields of the second."""
_BY_NUMBER = Edit(
    "coordinator/publication/rendering.py",
    '    return orjson.dumps({"commitInfo": info}) + b"\\n"',
    '    return orjson.dumps({"commitInfo": {**info, **({"shape": "new"} if by.number > 2 else {})}}) + b"\\n"',
)


def row(value: int) -> pa.Table:
    return pa.table({"part": ["p"], "value": pa.array([value], pa.int64())}, schema=SCHEMA)


class Place:
    """A table with one version of rows, and how programs find it."""

    def __init__(self, folder: Path, coordinator: str) -> None:
        self.location, self.coordinator = str(folder / "table"), coordinator
        sluice.Table.create(self.location, SCHEMA, coordinator=coordinator).append(row(100))

    def open(self, **changes: object) -> sluice.Table:
        return sluice.Table.open(self.location, coordinator=self.coordinator, limits=IMPATIENT, **{"timeout_s": 20, **changes})  # type: ignore[arg-type]

    def order(self, mode: str = "append", *, fast_path: bool = False) -> dict[str, object]:
        return {"location": self.location, "coordinator": self.coordinator, "mode": mode, "rows": 1, "fast_path": fast_path}

    def engines(self) -> list[str]:
        log = sorted(Path(self.location).glob("_delta_log/*.json"))
        return [orjson.loads(file.read_bytes().splitlines()[0])["commitInfo"]["engineInfo"] for file in log]

    def values(self) -> list[int]:
        found: list[int] = sorted(deltalake.DeltaTable(self.location).to_pyarrow_table()["value"].to_pylist())
        return found


@pytest.fixture
def place(tmp_path: Path, zookeeper_address: str) -> Place:
    return Place(tmp_path, zookeeper_address)


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """A release of another name that understands what this one does."""
    return Release.changed(tmp_path_factory.mktemp("named"), NAMED)


@pytest.mark.shows("other-release")
@pytest.mark.parametrize(
    ("mode", "fast_path"),
    [
        ("append", True),
        ("overwrite", False),
        *(pytest.param(*each, marks=pytest.mark.long) for each in (("append", False), ("overwrite", True))),
    ],
)
def test_this_release_publishes_what_a_newer_one_ratified(place: Place, newer: Release, mode: str, fast_path: bool) -> None:
    [transaction_id, *_] = newer.write(place.order(mode, fast_path=fast_path), dies_at="after-ratify")
    table = place.open()
    mine = present(table.append(row(200)))
    assert mine.published
    assert table.outcome(transaction_id).state == "committed"
    assert place.engines() == [ENGINE, ENGINE, "sluice/0.2.0", ENGINE]
    assert place.values() == ([0, 100, 200] if mode == "append" else [0, 200])


@pytest.mark.parametrize("fast_path", [True, False])
def test_a_newer_release_publishes_what_this_one_ratified(place: Place, newer: Release, fast_path: bool) -> None:
    this_release().write(place.order(fast_path=fast_path), dies_at="after-ratify")
    assert newer.write(place.order())[1:] == ["committed", "3"]
    assert place.engines() == [ENGINE, ENGINE, ENGINE, "sluice/0.2.0"]
    assert place.values() == [0, 0, 100]


@pytest.mark.costly
def test_either_decides_what_the_other_filed(place: Place, newer: Release) -> None:
    newer.write(place.order(), dies_at="after-claim")
    place.open().append(row(200))
    this_release().write(place.order(), dies_at="after-claim")
    newer.write(place.order())
    assert place.values() == [0, 0, 0, 100, 200]
    assert place.engines().count("sluice/0.2.0") >= 1


@pytest.mark.costly
@pytest.mark.shows("other-release")
def test_a_rendering_this_release_does_not_know_waits_for_those_who_do(place: Place, tmp_path: Path) -> None:
    newer = Release.changed(tmp_path / "newer", (*raised("RENDERING"), _BY_NUMBER))
    table = place.open(timeout_s=3)
    newer.write(place.order(fast_path=True), dies_at="after-ratify")
    nodes = sorted(Path(place.location).rglob("*"))
    begun = time.monotonic()
    with pytest.raises(
        sluice.errors.ProtocolMismatch, match=r"rendering of version 2 by sluice/0\.2\.0 is 3, this release .* up to 2"
    ) as read:
        table.snapshot()
    assert time.monotonic() - begun < 10
    assert read.value.retryable
    with pytest.raises(sluice.errors.ProtocolMismatch):
        table.delete("value = 100")
    with pytest.raises(sluice.errors.ProtocolMismatch):
        table.vacuum(retain_hours=0, force=True)
    with pytest.raises(sluice.errors.OutcomeUnknown, match="rendering of version 2") as waits:  # what others wait for comes first
        table.append(row(200))
    assert isinstance(waits.value.__cause__, sluice.errors.ProtocolMismatch)
    assert sorted(p for p in Path(place.location).rglob("*") if p.suffix == ".json") == [p for p in nodes if p.suffix == ".json"]

    newer.write(place.order())
    assert table.outcome(waits.value.transaction_id).state == "committed"
    assert place.values() == [0, 0, 100, 200]
    shaped = [b'"shape":"new"' in file.read_bytes() for file in sorted(Path(place.location).glob("_delta_log/*.json"))]
    assert shaped[:3] == [False, False, True]  # as its record says, whoever published it
    assert table.delete("value = 100") is not None


@pytest.mark.costly
def test_an_intent_this_release_does_not_know_is_decided_by_those_who_do(place: Place, tmp_path: Path) -> None:
    newer = Release.changed(tmp_path / "newer", raised("INTENT_FORMAT"))
    table = place.open(timeout_s=3)
    [transaction_id, *_] = newer.write(place.order(), dies_at="after-claim")
    with pytest.raises(sluice.errors.OutcomeUnknown, match=r"intent\.format is 2, this release .* up to 1") as waits:
        table.append(row(200))
    assert isinstance(waits.value.__cause__, sluice.errors.ProtocolMismatch)
    with pytest.raises(sluice.errors.ProtocolMismatch, match=r"intent\.format is 2"):
        raise table.outcome(transaction_id, timeout_s=1).error or AssertionError("it was decided")
    newer.write(place.order())
    assert table.outcome(waits.value.transaction_id).state == "committed"
    assert table.outcome(transaction_id).state == "committed"
    assert place.values() == [0, 0, 100, 200]


BEFORE_CHAINS = (
    Edit("installation.py", '__version__ = "0.1.0"', '__version__ = "0.0.9"'),
    Edit("coordinator/formats.py", "HEAD_FORMAT: Final = 2", "HEAD_FORMAT: Final = 1"),
    Edit("coordinator/formats.py", "BATCH_FORMAT: Final = 2", "BATCH_FORMAT: Final = 1"),
    Edit(
        "coordinator/nodes/records.py",
        '    digest: str = ""\n    files: str = ""\n    format: int = HEAD_FORMAT',
        "    format: int = HEAD_FORMAT",
    ),
    Edit(
        "coordinator/nodes/records.py",
        '    joint: Mapping[str, int] | None = None\n    previous: str = ""\n    files: str = ""\n',
        "    joint: Any = None\n",
    ),
    Edit("coordinator/publication/rendering.py", "if plan.files:", "if not plan:"),
    Edit("coordinator/commit/decider.py", "previous, files = state.head.digest, state.head.files", 'previous, files = "", "0"'),
    Edit("coordinator/commit/decider.py", "replace(plan, previous=previous, files=files)", "plan"),
    Edit("coordinator/commit/decider.py", "decision = replace(decision, head=replace(decision.head, digest=previous, files=files))", ""),
)
"""What makes it the release before chains."""


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return Release.changed(tmp_path_factory.mktemp("older"), BEFORE_CHAINS)


@pytest.mark.costly
@pytest.mark.parametrize("dies_at", ["after-ratify", "after-claim", ""])
def test_a_table_of_the_release_before_chains_gets_one(place: Place, older: Release, tmp_path: Path, dies_at: str) -> None:
    """Its formats are read, what it ratified or filed is published without a chain, or with one, and it waits from then on."""
    order = {**place.order(fast_path=dies_at == "after-ratify"), "location": str(tmp_path / "of-older")}
    older.write({**order, "creates": True})
    older.write(order, dies_at=dies_at)
    table = sluice.Table.open(order["location"], coordinator=place.coordinator, limits=IMPATIENT, timeout_s=20)  # type: ignore[arg-type]
    table.append(row(200))
    table.append(row(300))
    log = [file.read_bytes() for file in sorted(tmp_path.glob("of-older/_delta_log/*.json"))]
    infos = [orjson.loads(content.splitlines()[0])["commitInfo"] for content in log]
    chains = [info["sluice"].get("chain") for info in infos]
    first = 2 if dies_at == "after-claim" else 3
    assert [chain is not None for chain in chains] == [version >= first for version in range(len(log))]
    assert [chain["previous"] for chain in chains[first:]] == [hashlib.sha256(each).hexdigest() for each in log[first - 1 : -1]]
    found = sluice.doctor(order["location"], coordinator=place.coordinator)  # type: ignore[arg-type]
    assert [each.severity for each in found.findings] == ["note"]
    assert f"versions 0 to {first - 1} have no chain" in found.findings[0].what
    before = sorted(tmp_path.glob("of-older/_delta_log/*.json"))
    with pytest.raises(AssertionError, match=r"UnknownFormat: head\.format is 2, this release of sluice knows up to 1"):
        older.write(order)
    assert sorted(tmp_path.glob("of-older/_delta_log/*.json")) == before


@pytest.mark.costly
@pytest.mark.parametrize(
    "constant", ["BATCH_FORMAT", *(pytest.param(name, marks=pytest.mark.long) for name in ("HEAD_FORMAT", "PUBLISHED_FORMAT"))]
)
def test_other_records_this_release_does_not_know(place: Place, tmp_path: Path, constant: str) -> None:
    newer = Release.changed(tmp_path / "newer", (*raised(constant), *[_SECOND_IS_WHOLE] * (constant == "HEAD_FORMAT")))
    newer.write(place.order(fast_path=True))
    newer.write(place.order(fast_path=True), dies_at="after-ratify")
    known = getattr(formats, constant)
    with pytest.raises(sluice.errors.ProtocolMismatch, match=f"this release of sluice knows up to {known}"):
        place.open(timeout_s=2).delete("value = 100")
    newer.write(place.order())
    assert place.values() == [0, 0, 0, 100]
