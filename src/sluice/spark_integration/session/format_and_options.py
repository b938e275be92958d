"""The format and options that a reader or a writer was given, and whether the format is sluice's."""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.utils import to_str

_NAME: Final = "sluice"
# In a session with this extension "delta" means Delta Lake, in all others sluice.
_DELTA_LAKE: Final = "DeltaSparkSessionExtension"


class Options:
    """Options by name, as spelled; as in Spark, case does not count and the last one wins."""

    def __init__(self) -> None:
        self._by_name: dict[str, tuple[str, str]] = {}

    def set(self, name: str, value: Any) -> None:
        """Set an option; None sets nothing."""
        if value is not None:
            self._by_name[name.lower()] = (name, str(to_str(value)))

    def get(self, name: str) -> str | None:
        """The value of an option; None if it was not given."""
        return self._by_name.get(name.lower(), (name, None))[1]

    def but(self, **options: str) -> Options:
        """These options, with others set instead or in addition."""
        changed = Options()
        changed._by_name.update(self._by_name)
        for name, value in options.items():
            changed.set(name, value)
        return changed

    def besides(self, *names: str) -> dict[str, str]:
        """The options of other names than these."""
        left_out = [each.lower() for each in names]
        return {name: value for key, (name, value) in self._by_name.items() if key not in left_out}


class RemembersOptions:
    """In front of one of PySpark's readers or writers: it also remembers the format and the options, which PySpark sends to the JVM."""

    _spark: SparkSession

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._format: str | None = None
        self._options = Options()

    def option(self, key: str, value: Any) -> Any:
        """Like PySpark's."""
        super().option(key, value)  # type: ignore[misc]
        self._options.set(key, value)
        return self

    def options(self, **options: Any) -> Any:
        """Like PySpark's."""
        super().options(**options)  # type: ignore[misc]
        for key, value in options.items():
            self._options.set(key, value)
        return self

    def _is_sluice(self) -> bool:
        """Whether the format, or the session's for those without one, is sluice's."""
        return is_sluice(self._format or default_format(self._spark), self._spark)


class RemembersFormat(RemembersOptions):
    """The same for those whose method `format` names the format."""

    def format(self, source: str) -> Any:
        """Like PySpark's."""
        super().format(source)  # type: ignore[misc]
        self._format = source
        return self


def is_sluice(source: str | None, spark: SparkSession) -> bool:
    """Whether a format is sluice's in this session; as in Spark, case does not count.

    "delta" is, too, unless the session has Delta Lake: so a job that names it keeps its text.
    """
    name = (source or "").lower()
    return name == _NAME or (name == "delta" and not has_delta_lake(spark))


def has_delta_lake(spark: SparkSession) -> bool:
    """Whether Delta Lake itself is in the session."""
    return _DELTA_LAKE in (spark.conf.get("spark.sql.extensions", "") or "")


def default_format(spark: SparkSession) -> str | None:
    """The format of reads and writes that name none."""
    return spark.conf.get("spark.sql.sources.default")
