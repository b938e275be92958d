"""Spark refuses tables with features and types that sluice lacks by their names, when they are read and when they are written."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import sluice
from sluice.storage.errors import UnsupportedFeature
from tests.tables.read.foreign import CASES, foreign


@pytest.mark.parametrize(("feature", "kind"), CASES)
def test_it_is_refused_by_name(spark: SparkSession, tmp_path: Path, feature: str, kind: str) -> None:
    location = foreign(tmp_path / "t", feature, kind)
    options: dict[str, Any] = {"consistency": "published"} if not feature else {"coordinator": f"memory://{uuid.uuid4().hex}"}
    named = re.escape(feature or kind)
    with pytest.raises(Exception, match=named):
        spark.read.format("sluice").options(**options).load(location).collect()
    with pytest.raises(UnsupportedFeature, match=named):
        sluice.read(spark, location, **options)
    if feature:
        with pytest.raises(Exception, match=named):
            spark.range(1).write.format("sluice").options(**options).mode("append").save(location)
        with pytest.raises(UnsupportedFeature, match=named):
            sluice.sql(spark, f"SELECT * FROM delta.`{location}`", coordinator=options["coordinator"])
