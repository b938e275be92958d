"""The settings and the sessions that sluice needs in Spark.

It imports the options beside it. Begin with `configuration`.
"""
