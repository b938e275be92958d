"""Reading a version's files with Spark's own Parquet scan, in the JVM, and by Python tasks where the JVM does not reach the store.

It imports `data_source`, the options and the schemas. Begin with `read`.
"""
