"""The data source `format("sluice")`: reads and writes in the Python processes that Spark starts.

It imports the options, schemas and errors beside it. Begin with `source`.
"""
