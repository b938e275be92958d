"""Names that a package offers, and imports when they are first used (PEP 562).

The package writes them as imports for type checkers, which are read here: each name stands in one place::

    if TYPE_CHECKING:
        from .tables.table import Table as Table
    else:
        __getattr__, __dir__, __all__ = attach(__name__)
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

__all__ = ["attach"]


def attach(name: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """The `__getattr__`, `__dir__` and `__all__` of the module of this name; its first statement `if` has the imports."""
    module = sys.modules[name]
    assert module.__spec__ is not None
    loader: Any = module.__spec__.loader  # a zip file has one, too: Spark's executors may import sluice from it
    statements = ast.parse(loader.get_data(module.__spec__.origin)).body
    imports = next(each.body for each in statements if isinstance(each, ast.If))
    home_of = {alias.name: each.module or alias.name for each in imports if isinstance(each, ast.ImportFrom) for alias in each.names}

    def __getattr__(attribute: str) -> Any:  # noqa: N807 - PEP 562 calls it so
        """Import a name. Raises ImportError for one that needs PySpark if that is missing."""
        if attribute not in home_of:
            raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
        home = home_of[attribute]
        try:
            value = import_module(f".{home}", module.__package__)
            value = value if home == attribute else getattr(value, attribute)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "pyspark":
                raise
            from .installation import install_command

            raise ImportError(f"{name}.{attribute} needs PySpark, which is not installed: {install_command('spark')}") from error
        setattr(module, attribute, value)
        return value

    def __dir__() -> list[str]:  # noqa: N807
        return sorted({*vars(module), *home_of})

    return __getattr__, __dir__, sorted(home_of)
