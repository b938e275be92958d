"""The writer of a routed session's DataFrames: tables of sluice in all save modes, everything else by PySpark."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.readwriter import DataFrameWriter

from ...storage.errors import InvalidRequest
from ...tables.manage.creation import beside_others
from ..errors import as_spark_users_know
from .format_and_options import RemembersFormat
from .known_tables import already_there, is_known, location_of, means_sluice, place_of_new
from .saving import Write, insert, save


class Writer(RemembersFormat, DataFrameWriter):
    """PySpark's writer, which also remembers the format and the options, and saves `format("sluice")` itself."""

    def __init__(self, df: DataFrame) -> None:
        super().__init__(df)
        self._mode: str | None = None
        self._partition_by: tuple[str, ...] | None = None
        self._cluster_by: tuple[str, ...] | None = None
        self._unfit: list[str] = []

    def mode(self, saveMode: str | None) -> DataFrameWriter:  # noqa: N803 - PySpark's name
        """Like PySpark's."""
        super().mode(saveMode)
        if saveMode:
            self._mode = saveMode
        return self

    def partitionBy(self, *cols: Any) -> DataFrameWriter:  # noqa: N802 - PySpark's name
        """Like PySpark's."""
        super().partitionBy(*cols)
        self._partition_by = tuple(cols[0] if len(cols) == 1 and isinstance(cols[0], (list, tuple)) else cols)
        return self

    def bucketBy(self, numBuckets: int, col: Any, *cols: Any) -> DataFrameWriter:  # noqa: N802, N803 - PySpark's names
        """Like PySpark's; tables of sluice have no buckets."""
        super().bucketBy(numBuckets, col, *cols)
        self._unfit.append("bucketBy")
        return self

    def sortBy(self, col: Any, *cols: Any) -> DataFrameWriter:  # noqa: N802 - PySpark's name
        """Like PySpark's; tables of sluice have no buckets to sort."""
        super().sortBy(col, *cols)
        self._unfit.append("sortBy")
        return self

    def clusterBy(self, *cols: Any) -> DataFrameWriter:  # noqa: N802 - PySpark's name
        """Like PySpark's: by which columns a new table is clustered."""
        super().clusterBy(*cols)
        self._cluster_by = tuple(cols[0] if len(cols) == 1 and isinstance(cols[0], (list, tuple)) else cols)
        return self

    def save(
        self,
        path: str | None = None,
        format: str | None = None,  # noqa: A002 - PySpark's name
        mode: str | None = None,
        partitionBy: str | list[str] | None = None,  # noqa: N803 - PySpark's name
        **options: Any,
    ) -> None:
        """Like PySpark's. A table of sluice is written in any mode, "error" by default, and committed in this process.

        Raises sluice's errors, which are also AnalysisException or another of PySpark's.
        """
        self._tell(format, mode, partitionBy, options)
        if not self._is_sluice():
            super().save(path)
            return
        with as_spark_users_know():
            location = path if path is not None else self._options.get("path")
            if location is None:
                raise InvalidRequest("no path was given: name the table's location in save(...)", option="path")
            save(self._df, location, self._write())

    def saveAsTable(  # noqa: N802 - PySpark's name
        self,
        name: str,
        format: str | None = None,  # noqa: A002 - PySpark's name
        mode: str | None = None,
        partitionBy: str | list[str] | None = None,  # noqa: N803 - PySpark's name
        **options: Any,
    ) -> None:
        """Like PySpark's; `format("sluice")` saves under a name that sluice's coordinator keeps.

        A new table is made below the catalog's root, or at the option `path`; the name may also be a path, as in sluice.`/a/path`.
        """
        self._tell(format, mode, partitionBy, options)
        if not self._is_sluice():
            super().saveAsTable(name)
            return
        with as_spark_users_know():
            write = replace(self._write(), defines=True)

            def attempt() -> None:
                if is_known(self._options, name):
                    save(self._df, location_of(self._options, name), write, taken=already_there(name))
                else:
                    location, called, managed = place_of_new(self._options, name)
                    save(self._df, location, write, name=called, managed=managed)

            if write.mode == "error":
                attempt()
            else:
                beside_others(attempt, lambda: is_known(self._options, name))

    def insertInto(self, tableName: str, overwrite: bool | None = None) -> None:  # noqa: N802, N803 - PySpark's names
        """Like PySpark's: columns by position, whatever their names; also for the names that sluice's coordinator keeps."""
        if overwrite is not None:
            self.mode("overwrite" if overwrite else "append")
        with as_spark_users_know():
            if means_sluice(self._spark, self._format, tableName, self._options):
                if self._partition_by is not None or self._cluster_by is not None:
                    raise InvalidRequest("insertInto writes into the table as it is: leave partitionBy and clusterBy out")
                mode = "overwrite" if (self._mode or "").lower() == "overwrite" else "append"
                insert(self._df, location_of(self._options, tableName), Write(mode, self._options))
                return
        super().insertInto(tableName)

    def _tell(self, form: str | None, mode: str | None, partition_by: str | list[str] | None, options: dict[str, Any]) -> None:
        self.mode(mode).options(**options)
        if partition_by is not None:
            self.partitionBy(partition_by)
        if form is not None:
            self.format(form)

    def _write(self) -> Write:
        if self._unfit:
            raise InvalidRequest(
                f"{self._unfit[0]} was called, but sluice's tables have no buckets: use partitionBy or clusterBy",
            )
        return Write.of(self._mode, self._options, self._partition_by, self._cluster_by)
