"""Streams into tables of sluice: each micro-batch becomes one commit, once.

`runs` ties a run of a query to its tables, `queries` starts it and follows it to its end. It imports `rows`, `files`, `scan` and
`data_source`; the writers that users see lie in `session` and in `sluice.streaming`. Begin with `runs`.
"""
