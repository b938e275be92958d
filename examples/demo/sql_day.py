"""`make demo ARGS=--sql`: a day of a shop's warehouse, in SQL alone and without Spark; what each statement answers is checked."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from rich.console import Console

from sluice import Catalog
from sluice.errors import InvalidRequest, SluiceError
from sluice.shell.engines import LOCAL, Engines
from sluice.shell.printing import draw

from .workspace import DemoOptions, Workspace, watched, workspace

_ROWS_SHOWN: Final = 10
_MORNING: Final = "id,customer,day,amount\n1,10,2026-03-01,20.00\n2,11,2026-03-01,5.50\n3,10,2026-03-02,12.00\n"
_NOON: Final = "id,customer,day,amount\n4,12,2026-03-02,99.00\n5,11,2026-03-02,7.25\n"
_CUSTOMERS: Final = '{"id": 10, "name": "Ada"}\n{"id": 11, "name": "Grace"}\n'


@dataclass(frozen=True, slots=True)
class _Step:
    """A statement, what it is for, and the rows that it must answer (None: any); or the error by which it must be refused."""

    text: str
    why: str = ""
    rows: tuple[tuple[Any, ...], ...] | None = None
    refused: str = ""


_COPY: Final = "COPY INTO SHOP.orders FROM 'DELIVERED' FILEFORMAT = CSV PATTERN = 'orders-*.csv' FORMAT_OPTIONS ('header' = 'true')"
_REPORT: Final = (
    "SELECT coalesce(c.name, 'unknown') AS name, sum(o.amount) AS amount, count(*) AS orders\n"
    "FROM SHOP.orders o LEFT JOIN SHOP.customers c ON o.customer = c.id GROUP BY c.name ORDER BY amount DESC"
)
_STEPS: Final = (
    _Step("CREATE NAMESPACE SHOP COMMENT 'a shop' LOCATION 'DELIVERED/warehouse'", "In the evening before: the tables."),
    _Step(
        "CREATE TABLE SHOP.orders (id BIGINT NOT NULL, customer BIGINT, day DATE, amount DECIMAL(10, 2) COMMENT 'in euros',\n"
        "  CONSTRAINT positive CHECK (amount > 0)) USING sluice PARTITIONED BY (day)"
    ),
    _Step("CREATE TABLE SHOP.customers (id BIGINT, name STRING) USING sluice"),
    _Step(_COPY, "Morning: files that were delivered are loaded, each once.", ((5, 5, 2, 0),)),
    _Step(_COPY, "The scheduler runs it again: there is nothing to do.", ((0, 0, 0, 2),)),
    _Step("COPY INTO SHOP.customers FROM 'DELIVERED' FILEFORMAT = JSON FILES = ('customers.json')", rows=((2, 2, 1, 0),)),
    _Step(_REPORT, "A report over both tables, as of one moment.", (("unknown", "99.00", 1), ("Ada", "32.00", 2), ("Grace", "12.75", 2))),
    _Step(
        "MERGE INTO SHOP.customers t USING (SELECT 12L AS id, 'Edsger' AS name UNION ALL SELECT 11L, 'Grace H.') s ON t.id = s.id\n"
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        "Somebody corrects the customers.",
        ((2, 1, 0, 1),),
    ),
    _Step("INSERT INTO SHOP.orders VALUES (6, 12, DATE'2026-03-03', -1)", "A wrong row is refused.", refused="ConstraintViolated"),
    _Step("UPDATE SHOP.orders SET amount = amount * 2 WHERE customer = 12", "A price was wrong.", ((1,),)),
    _Step("DELETE FROM SHOP.orders", "Noon: somebody forgets a WHERE.", ((5,),)),
    _Step("SELECT count(*) AS left FROM SHOP.orders", rows=((0,),)),
    _Step("RESTORE TABLE SHOP.orders TO VERSION AS OF 2", "All rows come back, and the history keeps the mistake."),
    _Step(
        "SELECT (SELECT sum(amount) FROM SHOP.orders) AS now, (SELECT sum(amount) FROM SHOP.orders VERSION AS OF 1) AS in_the_morning",
        "Versions side by side.",
        (("242.75", "143.75"),),
    ),
    _Step("ALTER TABLE SHOP.orders ADD COLUMN shop STRING COMMENT 'where it was bought' AFTER day", "Afternoon: a new column."),
    _Step("INSERT INTO SHOP.orders (id, customer, day, shop, amount) VALUES (7, 10, DATE'2026-03-03', 'web', 3)"),
    _Step("SELECT id, shop, _change_type FROM table_changes('SHOP.orders', 6)", "What changed since then.", ((7, "web", "insert"),)),
    _Step(
        "CREATE TABLE SHOP.refunds (id BIGINT, amount DECIMAL(10, 2)) USING sluice",
        "An order is sent back: it goes, and its refund comes, in one commit.",
    ),
    _Step(
        "BEGIN ATOMIC\n  INSERT INTO SHOP.refunds SELECT id, amount FROM SHOP.orders WHERE id = 2;\n"
        "  DELETE FROM SHOP.orders WHERE id IN (SELECT id FROM SHOP.refunds);\nEND"
    ),
    _Step("SELECT (SELECT count(*) FROM SHOP.orders) AS orders, (SELECT sum(amount) FROM SHOP.refunds) AS refunded", rows=((5, "5.50"),)),
    _Step(
        "BEGIN ATOMIC\n  INSERT INTO SHOP.refunds VALUES (3, 12);\n  UPDATE SHOP.orders SET amount = amount - 12 WHERE id = 3;\nEND",
        "A block with a wrong statement changes nothing, in no table.",
        refused="ConstraintViolated",
    ),
    _Step("SELECT count(*) AS refunds FROM SHOP.refunds", rows=((1,),)),
    _Step(
        "EXPLAIN CONFLICT DELETE FROM SHOP.orders WHERE day = DATE'2026-03-01'\n"
        "WITH INSERT INTO SHOP.orders VALUES (8, 10, DATE'2026-03-01', 'web', 1) AT LEVEL SERIALIZABLE",
        "Would two jobs of the night be in each other's way? Neither of them runs.",
    ),
    _Step(
        "LOCK TABLE SHOP.orders WHERE day = DATE'2026-03-01'", "The books of a day are closed, and nobody else may write them meanwhile."
    ),
    _Step("UPDATE SHOP.orders SET shop = 'counter' WHERE day = DATE'2026-03-01'", rows=((1,),)),
    _Step("UNLOCK"),
    _Step("CREATE TABLE SHOP.days USING sluice AS SELECT day, sum(amount) AS amount FROM SHOP.orders GROUP BY day", "Evening: a summary."),
    _Step("SELECT * FROM SHOP.days ORDER BY day", rows=(("2026-03-01", "20.00"), ("2026-03-02", "217.25"), ("2026-03-03", "3.00"))),
    _Step("OPTIMIZE SHOP.orders", "Night: files are merged."),
    _Step("SHOW PARTITIONS SHOP.orders", rows=(("2026-03-01",), ("2026-03-02",), ("2026-03-03",))),
    _Step("DROP TABLE SHOP.days", "A table is dropped, and comes back."),
    _Step("UNDROP TABLE SHOP.days"),
    _Step("SELECT count(*) AS days FROM SHOP.days", rows=((3,),)),
)
"""The day, for the namespace SHOP and the folder DELIVERED."""


def run_sql_demo(options: DemoOptions, console: Console) -> bool:
    """Run it, reporting to `console`; returns whether every answer was right. The last line begins "demo: ok" or "demo: FAILED"."""
    if options.store != "local" or options.location is not None:
        raise InvalidRequest("--sql makes its tables in a temporary folder: leave out --store and --location")
    began = time.monotonic()
    with workspace(options) as place, watched(options, place, console):
        wrong = _run(place, console)
    seconds = time.monotonic() - began
    told = f"demo: FAILED: {wrong}" if wrong else f"demo: ok: every answer was right, {seconds:.0f} s; sluice sql is the shell for your own"
    console.print(told, markup=False, highlight=False, soft_wrap=True)
    return not wrong


def _run(place: Workspace, console: Console) -> str:
    """Carry out the day; returns what went wrong ("" if nothing did)."""
    files, shop = place.folder / "delivered", f"shop_{uuid.uuid4().hex[:6]}"
    files.mkdir()
    for name, text in (("orders-1.csv", _MORNING), ("orders-2.csv", _NOON), ("customers.json", _CUSTOMERS)):
        (files / name).write_text(text)
    catalog = Catalog(place.coordinator)
    console.print("A day of a shop's warehouse in SQL alone, without Spark: each answer is compared with the right one.", highlight=False)
    engines = Engines(LOCAL, coordinator=place.coordinator, storage_options=place.storage_options)
    try:
        return next((wrong for each in _STEPS if (wrong := _carried_out(engines, each, console, shop, files))), "")
    finally:
        _remove(catalog, shop)


def _carried_out(engines: Engines, step: _Step, console: Console, shop: str, files: Path) -> str:
    text = step.text.replace("SHOP", shop).replace("DELIVERED", str(files))
    if step.why:
        console.print(f"\n{step.why}", style="bold", markup=False, highlight=False)
    indented = text.replace("\n", "\n  ")
    console.print(f"  {indented}", markup=False, highlight=False, soft_wrap=True)
    first = text.split("\n")[0]
    try:
        rows = engines.run(text).rows
    except SluiceError as error:
        if type(error).__name__ != step.refused:
            return f"{first}: {type(error).__name__}: {error}"
        console.print(f"  refused: {str(error).splitlines()[0]}", style="dim", markup=False, highlight=False, soft_wrap=True)
        return ""
    if step.refused:
        return f"{first}: was not refused"
    if not any(pa.types.is_nested(each.type) for each in rows.schema):  # the metrics of OPTIMIZE are many
        draw(console, rows, _ROWS_SHOWN)
    if step.rows is not None and _texts(rows) != [tuple(str(value) for value in row) for row in step.rows]:
        return f"{first}: answered {_texts(rows)}, not {list(step.rows)}"
    return ""


def _texts(rows: pa.Table) -> list[tuple[str, ...]]:
    return [tuple(str(value) for value in row.values()) for row in rows.to_pylist()]


def _remove(catalog: Catalog, shop: str) -> None:
    """Leave nothing behind in a coordinator that others use, too."""
    if shop not in {each.name for each in catalog.namespaces()}:
        return
    for each in catalog.tables(shop):
        catalog.drop(each.full_name)
        catalog.vacuum(0, name=each.full_name)
    catalog.drop_namespace(shop)
