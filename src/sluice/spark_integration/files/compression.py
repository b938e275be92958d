"""The codec of the files that Spark's jobs write, where the writer names none: the session's own setting, else sluice's default."""

from __future__ import annotations

from typing import Final

from pyspark.sql import SparkSession

from ...storage.constants import COMPRESSION
from ..options import codec_named

SETTING: Final = "spark.sql.parquet.compression.codec"


def codec_of_session(spark: SparkSession) -> str:
    """The codec that a session sets, or sluice's default if it leaves Spark's. Raises InvalidRequest for one that sluice does not write."""
    return codec_named(spark.conf.get(SETTING, COMPRESSION) or COMPRESSION, SETTING)


def in_spark(codec: str) -> str:
    """The codec by the name that Spark's Parquet writer has for it."""
    return "lz4_raw" if codec == "lz4" else codec
