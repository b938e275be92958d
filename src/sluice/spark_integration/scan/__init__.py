"""Reading a version's files with Spark's own Parquet scan, in the JVM.

It imports `session`, the options and the schemas. Begin with `read`.
"""
