"""Prints what the installed package delta-spark defines, as `tests/delta/delta_spark_api.json` has it."""

from __future__ import annotations

import inspect
import json
from typing import Any

from delta import exceptions, tables  # type: ignore[import-not-found,unused-ignore]

__all__: list[str] = []


def _parameter(each: inspect.Parameter) -> str:
    if each.kind is inspect.Parameter.VAR_POSITIONAL:
        return f"*{each.name}"
    default = "" if each.default is inspect.Parameter.empty else f"={each.default!r}"
    return each.name + default.replace("={}", "=dict()")


def _methods(cls: Any) -> dict[str, list[str]]:
    """The public ones; fields of a dataclass are parameters of its own."""
    public = {name: each for name, each in inspect.getmembers(cls, inspect.isroutine) if not name.startswith("_")}
    return {name: [_parameter(p) for p in inspect.signature(each).parameters.values() if p.name != "self"] for name, each in public.items()}


def main() -> None:
    classes = {name: each for name, each in vars(tables).items() if inspect.isclass(each) and each.__module__ == tables.__name__}
    errors = [name for name, each in vars(exceptions).items() if inspect.isclass(each) and issubclass(each, Exception)]
    print(json.dumps({"tables": {name: _methods(each) for name, each in classes.items()}, "exceptions": sorted(errors)}))


if __name__ == "__main__":
    main()
