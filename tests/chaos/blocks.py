"""SQL among the rest: transfers between the two ledgers as blocks, BEGIN ATOMIC ... END, without Spark.

A block has a key. A worker without an answer runs it again under that key, and it still happens once. Its parts are written in several
ways that mean the same rows: with subqueries or without, INSERT or MERGE.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sluice.coordinator.commit.outcomes import Commit
from sluice.statements.duckdb.engine import run
from sluice.tables.write.terms import KEY_PREFIX

from .history import UNNAMED
from .meaning import Step, where
from .worker import Worker

__all__ = ["run_block"]

_TRIES = 3
_ATTEMPTS = 4


def run_block(worker: Worker, does: Mapping[str, Sequence[Step]]) -> None:
    """Run the steps as one block over all of the tables; again, under the same key, while no answer says what became of it."""
    key = worker.diary.next_name()
    text = block(worker, does)
    for _ in range(_TRIES):
        operation = worker.diary.begin("block", does, number=(KEY_PREFIX + key, 0), isolation="Serializable")
        answer = worker.answers(operation, lambda: _committed(worker, text, key, does), numbered=True)
        if answer not in ("unknown", "unavailable") or worker.finish.is_set():
            return


def block(worker: Worker, does: Mapping[str, Sequence[Step]]) -> str:
    statements = [_statement(worker, f"sluice.`{worker.to.tables[name]}`", step) for name, steps in does.items() for step in steps]
    return f"BEGIN ATOMIC ATTEMPTS {_ATTEMPTS} KEY :key\n" + "".join(f"  {each};\n" for each in statements) + "END"


def _statement(worker: Worker, table: str, step: Step) -> str:
    is_plain = worker.dice.random() < 0.5
    if step["do"] == "append":
        rows = ", ".join(f"('{name}', '{part}', CAST({value} AS BIGINT))" for name, part, value in step["rows"])
        if is_plain:
            return f"INSERT INTO {table} (id, part, value) VALUES {rows}"
        source = f"(SELECT * FROM VALUES {rows} AS v(id, part, value))"
        return f"MERGE INTO {table} t USING {source} s ON t.id = s.id AND t.part = s.part WHEN NOT MATCHED THEN INSERT *"
    meant = where(step) if is_plain else f"id IN (SELECT id FROM {table} WHERE {where(step)})"
    return (
        f"UPDATE {table} SET value = value + {step['add']} WHERE {meant}"
        if step["do"] == "update"
        else f"DELETE FROM {table} WHERE {meant}"
    )


def _committed(worker: Worker, text: str, key: str, does: Mapping[str, Sequence[Step]]) -> Mapping[str, Commit]:
    """Run it once; the commit in each table, as far as the answer tells."""
    found = run(text, {"key": key}, coordinator=worker.to.coordinator, storage_options=worker.to.storage_options)
    versions = found.column("version").to_pylist()
    names = [name for name, steps in does.items() for _ in steps]
    return {
        name: Commit(version, UNNAMED, 0, "", repeated=found.column("num_affected_rows")[number].as_py() is None)
        for number, (name, version) in enumerate(zip(names, versions, strict=True))
        if version is not None
    }
