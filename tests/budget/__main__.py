"""`make budget`, or `python -m tests.budget`: counts what calls run and what is written, and compares with `budget.yaml`.

    python -m tests.budget [--show CALL] [--lower]

--show lists the functions that one call runs, by module. --lower writes the counts that are below their numbers into the file.
Ends with 1 if a count is above its number, or more than 2 % below it.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from itertools import groupby
from pathlib import Path

from tests.spark_integration.conftest import spark_session

from .budget import budget, differences, lowered, write
from .counting import Ran, functions_run, size_of, written
from .walks import ON_SPARK, WITHOUT_SPARK, pair


def walk(name: str, folder: Path) -> Ran:
    with pair(folder) as tables:
        if name in WITHOUT_SPARK:
            return functions_run(partial(WITHOUT_SPARK[name], tables))
        with spark_session() as spark:
            return functions_run(partial(ON_SPARK[name], tables, spark))


def show(ran: Ran) -> None:
    for module, functions in groupby(sorted(ran), lambda each: each[0]):
        print(f"{module}: {', '.join(f'{name}:{line}' for _, line, name in functions)}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Counts what calls run, and compares with the budget.")
    parser.add_argument("--show", choices=[*WITHOUT_SPARK, *ON_SPARK])
    parser.add_argument("--lower", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.show:
            show(walk(arguments.show, Path(folder)))
            return 0
        counted = {"source": written(), **{name: size_of(walk(name, Path(folder))) for name in (*WITHOUT_SPARK, *ON_SPARK)}}
    for name, sizes in counted.items():
        print(f"{name:26} " + ", ".join(f"{count} {what}" for what, count in sizes.items()))
    if arguments.lower:
        write(lowered(counted, budget()))
    told = differences(counted, budget())
    print("\n".join(told))
    return 1 if told else 0


if __name__ == "__main__":
    raise SystemExit(main())
