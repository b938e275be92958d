"""What a run runs on: servers, lines, the store, the tables, the processes; and how each kind of fault is done to them."""

from __future__ import annotations

import heapq
import itertools
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

import sluice
from sluice.coordinator.service.connect import release
from sluice.dev import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY

from ..raw_numbers import COLUMN
from .ensemble import Ensemble
from .followers import BATCH, FOLLOWS, KEEPS_UP, SOURCE
from .history import Diary, lines_of
from .jobs import CLUSTERED, LEDGERS, NUMBERED, opening
from .object_store import BUCKETS
from .schedule import Fault
from .staff import Person, Staff
from .wires import Wire, Wires
from .worker import SCHEMA, Assignment, arrow

__all__ = ["KEPT_S", "SESSION_S", "Store", "World"]

ROOT = Path(__file__).resolve().parents[2]
SESSION_S = 6.0
KEPT_S = 40.0
"""For how long the tables keep files that were replaced."""

_FOLLOWED_S = 600.0
"""The same for the table that others follow: as long as a Spark application may be away that is killed again and again. Also for the one
that is clustered: whoever changes rows that were moved meanwhile follows them for that long."""

_TABLES = ("events", *LEDGERS, *FOLLOWS, NUMBERED, CLUSTERED)
_NUMBERS = ((1, 1), (100, -3), (-7, 5))
"""Start and step of the identity column; one of them."""

_PROPERTIES = {"delta.enableDeletionVectors": "true", "delta.checkpointInterval": "25"}
_SHARES = {"slowdown": 0.5, "error": 0.4, "mute": 0.25, "cut": 0.3, "lost": 0.25, "late": 0.3, "delay": 0.7, "slow": 0.6, "torn": 0.4}
"""The largest part of the requests that a fault of the store hits."""

_BOTH_S = 10.0
"""How long two Spark applications work beside one another when one was only taken for dead."""

_PATIENCE_S = (8.0, 20.0, 60.0)


class Store:
    def __init__(self, folder: Path, seed: int, conditional: str, environment: Mapping[str, str]) -> None:
        told = json.dumps({"folder": str(folder), "seed": seed, "conditional": conditional})
        with (folder / "store.log").open("wb") as errors:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.object_store", told],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment,
                start_new_session=True,
            )
        self.port = int(self._answer()["port"])
        self._finished: dict[str, Any] | None = None

    @property
    def options(self) -> dict[str, str]:
        """How clients reach it."""
        return {
            "endpoint_url": f"http://127.0.0.1:{self.port}",
            "region": REGION,
            "path_style": "true",
            "access_key_id": ACCESS_KEY_ID,
            "secret_access_key": SECRET_ACCESS_KEY,
        }

    def break_(self, faults: Mapping[str, float]) -> None:
        """From now on this is what goes wrong, by kind and probability."""
        self._tell({"faults": faults})

    def finish(self) -> dict[str, Any]:
        """Have everything written into the folder, and end it; `counts` and `notes`."""
        if self._finished is None:
            self._tell({"finish": True})
            self._finished = self._answer()
            self._popen.wait(30)
        return self._finished

    def close(self) -> None:
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe is not None:
                pipe.close()
        self._popen.kill()
        self._popen.wait()

    def _tell(self, command: Mapping[str, Any]) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.write(json.dumps(command) + "\n")
        self._popen.stdin.flush()

    def _answer(self) -> dict[str, Any]:
        assert self._popen.stdout is not None
        line = self._popen.stdout.readline()
        if not line:
            raise RuntimeError("the object store's process ended; see store.log")
        answer: dict[str, Any] = json.loads(line)
        return answer


@dataclass
class World:
    """Everything of one run, in one folder. Used as a context manager: it ends what it started."""

    folder: Path
    seed: int
    roles: Mapping[str, str]
    """What each process does, by its name."""
    pause_s: float
    faults: Counter[str] = field(default_factory=Counter)
    _lives: Counter[str] = field(default_factory=Counter)

    def __enter__(self) -> World:
        self._stack = ExitStack()
        try:
            self._build()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _build(self) -> None:
        for name in ("history", "logs", "work"):
            (self.folder / name).mkdir()
        dice = random.Random(f"{self.seed}/world")
        environment = self._environment()
        self.ensemble = Ensemble(self.folder / "servers")
        self._stack.callback(self.ensemble.close)
        self.ensemble.start()
        self.wires = Wires(self.ensemble.ports, self.seed)
        self._stack.callback(self.wires.close)
        self.conditional = dice.choice(("ignored", "refused"))
        self.store = Store(self.folder, self.seed, self.conditional, environment)
        self._stack.callback(self.store.close)
        first, second = dice.sample(BUCKETS, 2)
        self.locations = {name: f"s3://{first if name == 'events' else second}/{name}" for name in _TABLES}
        self.coordinator = self._address(self.ensemble.hosts)
        self._stack.callback(release, self.coordinator)
        diary = Diary(self.folder / "history" / "opening.jsonl", "opening")
        for name, location in self.locations.items():
            kept_s = _FOLLOWED_S if name in (SOURCE, CLUSTERED) else KEPT_S
            table = sluice.Table.create(
                location,
                _numbered(*dice.choice(_NUMBERS)) if name == NUMBERED else SCHEMA,
                partition_by=["part"] if name != CLUSTERED else (),
                cluster_by=["value", "id"] if name == CLUSTERED else (),
                properties=_PROPERTIES | {"delta.deletedFileRetentionDuration": f"interval {kept_s:.0f} seconds"},
                coordinator=self.coordinator,
                storage_options=self.store.options,
                application="opening",
            )
            if name in LEDGERS:
                rows = opening(name)
                operation = diary.begin("open accounts", {name: [{"do": "append", "rows": rows}]})
                commit = table.append(arrow(rows))
                assert commit is not None
                place = {name: (commit.version, commit.ordinal)}
                diary.note("end", op=operation, answer="committed", places=place, id=commit.transaction_id)
        self.staff = Staff(self.folder / "logs", self.folder.name, environment)
        self._stack.callback(self.staff.close)

    def _environment(self) -> dict[str, str]:
        """Nothing of the user's settings; modules are found wherever the run was started."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SLUICE_CHAOS", "SPARK_", "PYSPARK_"))}
        return {
            **kept,
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SLUICE_HOME": str(self.folder / "home"),
            "PYTHONFAULTHANDLER": "1",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        }

    def _address(self, hosts: str) -> str:
        return f"zk://{hosts}/chaos?session_timeout_s={SESSION_S:g}&retry_s=60"

    # -- processes ---------------------------------------------------------------------------------------------------

    def hire(self, name: str) -> Person:
        """Start the next process of a name."""
        self._lives[name] += 1
        dice = random.Random(f"{self.seed}/{name}/{self._lives[name]}")
        life = self._lives[name]
        return self.staff.hire(
            Assignment(
                name=name,
                role=self.roles[name],
                life=life,
                seed=self.seed,
                diary=str(self.folder / "history" / f"{name}-{life}.jsonl"),
                coordinator=self._address(self.wires.wire(name).hosts),
                tables=self.locations,
                storage_options=self.store.options,
                patience_s=dice.choice(_PATIENCE_S),
                pause_s=self.pause_s,
                folder=str(self.folder / "work"),
            )
        )

    def open_tables(self) -> dict[str, sluice.Table]:
        """The tables, reached without any proxy."""
        return {
            name: sluice.Table.open(
                location, coordinator=self.coordinator, storage_options=self.store.options, application="the end", consistency="latest"
            )
            for name, location in self.locations.items()
        }

    # -- faults ------------------------------------------------------------------------------------------------------

    def suffer(self, schedule: Sequence[Fault], seconds: float, told: Callable[[str], None]) -> None:
        """Let everything happen that the schedule says, in its time; whatever goes wrong is right again afterwards."""
        counter = itertools.count()
        began = time.monotonic()
        due: list[tuple[float, int, Callable[[], None]]] = []

        def planned(fault: Fault) -> None:
            heapq.heappush(due, (fault.at_s, next(counter), lambda: begin(fault)))

        def begin(fault: Fault) -> None:
            if self._can_be_broken(fault.target):
                self._begin(fault, due, counter)
            elif fault.at_s + fault.seconds + 1 <= seconds:
                planned(replace(fault, at_s=fault.at_s + 1))

        for fault in schedule:
            planned(fault)
        while (now := time.monotonic() - began) < seconds or due:
            self.faults["server ended by itself"] += self.ensemble.look()
            for person in self.staff.look():
                told(f"{person.assignment.process} ended by itself")
                self.hire(person.assignment.name)
            if due and due[0][0] <= now:
                _, _, act = heapq.heappop(due)
                act()
            else:
                time.sleep(0.05)

    def _begin(self, fault: Fault, due: list[tuple[float, int, Callable[[], None]]], counter: itertools.count[int]) -> None:
        whom = {"spark": "Spark", "consumer": "consumer"}.get(self.roles.get(fault.target, ""), "process")
        self.faults[fault.kind.replace("process", whom, 1)] += 1
        for after_s, act in self._doing(fault):
            if after_s:
                heapq.heappush(due, (fault.at_s + after_s, next(counter), act))
            else:
                act()

    def _can_be_broken(self, name: str) -> bool:
        """Whether a Spark application runs whose stream of changes keeps up with its table. One that is broken before would fall behind the
        retention of the table, and a broken one has a successor already. Others always can.
        """
        if self.roles.get(name) != "spark":
            return True
        person = self.staff.of(name)
        diary = Path(person.assignment.diary)
        if person.killed or person.paused or not diary.exists():
            return False
        noted = [line["behind"] for line in lines_of(diary) if line["event"] == BATCH and line["name"] == "changes"]
        return bool(noted) and noted[-1] <= KEEPS_UP

    def _doing(self, fault: Fault) -> list[tuple[float, Callable[[], None]]]:
        """What a fault does at once, and what after it has lasted."""
        if fault.kind.startswith("store: "):
            kind = fault.kind.removeprefix("store: ")
            share = max(0.05, fault.strength * _SHARES[kind])
            return [(0, lambda: self.store.break_({kind: share})), (fault.seconds, lambda: self.store.break_({}))]
        if fault.kind.startswith("process"):
            return self._to_process(fault, self.staff.of(fault.target))
        if fault.kind.startswith(("server", "leader", "majority", "all servers")):
            return self._to_servers(fault)
        wires = list(self.wires.wires.values()) if fault.kind.startswith("everybody") else [self.wires.wire(fault.target)]
        return [*((0.0, lambda wire=wire: self._to_wire(fault, wire)) for wire in wires), *((fault.seconds, wire.heal) for wire in wires)]

    def _to_process(self, fault: Fault, person: Person) -> list[tuple[float, Callable[[], None]]]:
        name = fault.target
        if fault.kind == "process killed":
            return [(0, lambda: self.staff.kill(person)), (fault.seconds, lambda: _ignored(self.hire(name)))]
        after = (fault.seconds, lambda: self.staff.go_on(person))
        if "replaced" in fault.kind:
            replaced = [(0, lambda: self.staff.pause(person)), (0, lambda: _ignored(self.hire(name))), after]
            if self.roles.get(name) != "spark":
                return replaced
            return [*replaced, (fault.seconds + _BOTH_S, lambda: self.staff.kill(person))]  # there is no room for many of them
        return [(0, lambda: self.staff.pause(person)), after]

    def _to_servers(self, fault: Fault) -> list[tuple[float, Callable[[], None]]]:
        some = min(2, int(fault.strength * 3))  # a strength is rounded, up to 1
        hit = {"leader": [self.ensemble.leader()], "server": [some], "majority": [some, (some + 1) % 3], "all": [0, 1, 2]}[
            fault.kind.split()[0]
        ]
        if "paused" in fault.kind:
            return [(0, lambda: self.ensemble.pause(hit[0])), (fault.seconds, lambda: self.ensemble.go_on(hit[0]))]
        return [
            *((0.0, lambda number=number: self.ensemble.kill(number)) for number in hit),
            *((fault.seconds, lambda number=number: self.ensemble.start_server(number)) for number in hit),
        ]

    def _to_wire(self, fault: Fault, wire: Wire) -> None:
        if "cut off" in fault.kind:
            self.wires.cut(wire)
        elif fault.kind.startswith("silence"):
            wire.silent = frozenset({"to": ["up"], "from": ["down"], "both": ["up", "down"]}[fault.kind.split()[1]])
        elif fault.kind == "slow line":
            wire.delay_s = 0.02 + 0.4 * fault.strength
        else:
            wire.breaks = 0.01 + 0.15 * fault.strength

    def heal(self) -> None:
        """Nothing is wrong any more, whatever was."""
        self.store.break_({})
        for wire in self.wires.wires.values():
            wire.heal()
        for number in range(len(self.ensemble.ports)):
            self.ensemble.go_on(number)
            self.ensemble.start_server(number)
        for person in self.staff.people:
            if person.paused:
                self.staff.go_on(person)
        self.ensemble.await_service()


def _numbered(start: int, step: int) -> pa.Schema:
    """The columns of all tables, and an identity column."""
    said = {"delta.identity.start": f"{start}", "delta.identity.step": f"{step}", "delta.identity.allowExplicitInsert": "false"}
    return SCHEMA.append(pa.field(COLUMN, pa.int64(), metadata=said))


def _ignored(_: object) -> None:
    return None
