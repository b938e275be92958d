"""Tables with features and types that sluice lacks are refused by their names, before anything of their data is read, with a remedy."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

import sluice
from sluice.statements.duckdb.engine import run
from sluice.storage.errors import UnsupportedFeature
from tests.tables.read.foreign import CASES, foreign

FACES: dict[str, Callable[[str], object]] = {
    "open": lambda at: sluice.Table.open(at, coordinator=new_coordinator()),
    "attach": lambda at: sluice.Table.attach(at, coordinator=new_coordinator()),
    "snapshot": lambda at: sluice.Table.open(at, consistency="published").snapshot().to_arrow(),
    "changes": lambda at: sluice.Table.open(at, consistency="published").changes(-1),
    "DuckDB": lambda at: run(f"SELECT * FROM delta.`{at}`", coordinator=new_coordinator()),
    "DuckDB writes": lambda at: run(f"INSERT INTO delta.`{at}` VALUES (1)", coordinator=new_coordinator()),
    "clone": lambda at: sluice.Table.open(at, consistency="published").clone(f"{at}-clone"),
}


def new_coordinator() -> str:
    return f"memory://{uuid.uuid4().hex}"


@pytest.mark.notices("unknown-types-are-not-attached")
@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(("feature", "kind"), CASES)
def test_it_is_refused_by_name(tmp_path: Path, feature: str, kind: str, face: str) -> None:
    location = foreign(tmp_path / "t", feature, kind)
    if not feature and face in ("open", "DuckDB", "DuckDB writes"):
        pytest.skip("a table that sluice does not manage")
    with pytest.raises(UnsupportedFeature, match=rf"{re.escape(feature or kind)}.* [Uu]se an engine that does, or ") as refused:
        FACES[face](location)
    assert list(refused.value.features) == [feature or kind]
    assert [each.name for each in Path(location, "_delta_log").iterdir()] == [f"{0:020}.json"]
