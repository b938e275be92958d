"""What a reader or a writer was told: options whose names ignore case, and formats."""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.utils import to_str

__all__ = ["Options", "default_format", "is_sluice"]

_NAME: Final = "sluice"


class Options:
    """Options by name, as spelled; as in Spark, case does not count and the last one wins."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[str, str]] = {}

    def tell(self, name: str, value: Any) -> None:
        """Set an option; None sets nothing."""
        if value is not None:
            self._told[name.lower()] = (name, str(to_str(value)))

    def get(self, name: str) -> str | None:
        """The value of an option; None if it was not given."""
        return self._told.get(name.lower(), (name, None))[1]

    def but(self, **options: str) -> Options:
        """These options, with others set instead or in addition."""
        changed = Options()
        changed._told.update(self._told)
        for name, value in options.items():
            changed.tell(name, value)
        return changed

    def besides(self, *names: str) -> dict[str, str]:
        """The options of other names than these."""
        left_out = [each.lower() for each in names]
        return {name: value for key, (name, value) in self._told.items() if key not in left_out}


def is_sluice(source: str | None) -> bool:
    """Whether a format is sluice's; as in Spark, case does not count."""
    return source is not None and source.lower() == _NAME


def default_format(spark: SparkSession) -> str | None:
    """The format of reads and writes that name none."""
    return spark.conf.get("spark.sql.sources.default")
