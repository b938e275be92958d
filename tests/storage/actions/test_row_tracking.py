from __future__ import annotations

import pytest

from sluice.storage.actions import DomainMetadata, Metadata, Protocol
from sluice.storage.data.row_ids import ROW_TRACKING_DOMAIN, first_domain, materialized_columns, row_id_high_water_mark, tracks_rows
from sluice.storage.errors import CorruptLogFile

TRACKING = Protocol(1, 7, None, ("domainMetadata", "rowTracking"))
PLAIN = Protocol(1, 7, None, ("domainMetadata",))
TABLE = Metadata("id", '{"type":"struct","fields":[]}', (), {})
SUSPENDED = Metadata("id", '{"type":"struct","fields":[]}', (), {"delta.rowTrackingSuspended": "true"})


def domain(configuration: str) -> dict[str, DomainMetadata]:
    return {ROW_TRACKING_DOMAIN: DomainMetadata(ROW_TRACKING_DOMAIN, configuration, False)}


def test_a_table_that_names_the_feature_tracks_rows_enabled_or_not() -> None:
    assert tracks_rows(TABLE, TRACKING)
    assert not tracks_rows(TABLE, PLAIN)
    assert not tracks_rows(SUSPENDED, TRACKING)
    assert not tracks_rows(TABLE, Protocol(1, 6)), "no version number implies it"


def test_the_high_water_mark() -> None:
    assert row_id_high_water_mark(domain('{"rowIdHighWaterMark":41}'), TABLE, TRACKING) == 41
    assert row_id_high_water_mark({}, TABLE, TRACKING) == -1
    assert row_id_high_water_mark({ROW_TRACKING_DOMAIN: first_domain()}, TABLE, TRACKING) == -1
    assert row_id_high_water_mark(domain('{"rowIdHighWaterMark":41}'), TABLE, PLAIN) is None
    assert row_id_high_water_mark(domain("broken"), SUSPENDED, TRACKING) is None


@pytest.mark.parametrize(
    "configuration", ["", "broken", "[]", "{}", '{"rowIdHighWaterMark":"1"}', '{"rowIdHighWaterMark":true}', '{"rowIdHighWaterMark":-2}']
)
def test_a_high_water_mark_that_is_none_is_corrupt(configuration: str) -> None:
    with pytest.raises(CorruptLogFile, match="rowIdHighWaterMark"):
        row_id_high_water_mark(domain(configuration), TABLE, TRACKING)


def test_names_of_columns_are_of_one_table_only() -> None:
    first, second = materialized_columns(), materialized_columns()
    assert set(first) == set(second)
    assert len({*first.values(), *second.values()}) == 4
