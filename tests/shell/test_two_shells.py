"""Two shells that create, rename and drop at once: each statement is carried out or refused, and names and tables agree."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator

import pytest

import sluice
from sluice.shell.engines import LOCAL, Engines

NAMES = ("sales.a", "sales.b", "sales.c")
EXPECTED = (
    sluice.errors.TableExists,
    sluice.errors.TableNotFound,
    sluice.errors.TableDropped,
    sluice.errors.ConcurrentModification,
    sluice.errors.LeaseHeld,
)


def statements(seed: int) -> Iterator[str]:
    chance = random.Random(seed)
    for _ in range(25):
        one, other = chance.sample(NAMES, 2)
        yield chance.choice(
            [
                f"CREATE TABLE {one} (id INT) USING sluice",
                f"CREATE TABLE IF NOT EXISTS {one} (id INT) USING sluice",
                f"ALTER TABLE {one} RENAME TO {other}",
                f"DROP TABLE {one}",
                f"UNDROP TABLE {one}",
                f"INSERT INTO {one} VALUES ({seed})",
                f"CREATE OR REPLACE TABLE {one} USING sluice AS SELECT {seed} AS id",
            ]
        )


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long), pytest.param(3, marks=pytest.mark.long)])
def test_names_and_tables_agree(coordinator: str, seed: int) -> None:
    told: list[str] = []
    unexpected: list[str] = []

    def shell(number: int) -> None:
        engines = Engines(LOCAL, coordinator=coordinator)
        for text in statements(10 * seed + number):
            try:
                engines.run(text)
                told.append(text)
            except EXPECTED:
                continue
            except Exception as error:  # noqa: BLE001 - the test tells which
                unexpected.append(f"{text}: {error!r}")

    threads = [threading.Thread(target=shell, args=(number,)) for number in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(120)
    assert unexpected == []
    assert len(told) > 5
    catalog = sluice.Catalog(coordinator)
    tables = catalog.tables("sales")
    assert len({each.location for each in tables}) == len(tables)
    for table in tables:
        engines = Engines(LOCAL, coordinator=coordinator)
        engines.run(f"SELECT * FROM {table.full_name}")
        assert engines.run(f"DESCRIBE DETAIL {table.full_name}").rows.column("location").to_pylist() == [table.location]
