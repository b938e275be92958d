"""Python workers of Spark's executors, which run one task after the other."""

from __future__ import annotations

import sys
import zipimport
from typing import Final

# PySpark's own zip files, which do not change while a worker runs.
_LIBRARIES: Final = ("pyspark.zip", "-src.zip")


def forget_finders() -> None:
    """Spare the worker's next task 0.1 s: before each task PySpark invalidates the caches of imports, upon which Python reads the
    directory of PySpark's zip file again for each of its packages that was imported from. Later imports make new finders.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter) and finder.archive.endswith(_LIBRARIES):
            del sys.path_importer_cache[path]
