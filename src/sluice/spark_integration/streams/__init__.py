"""Streams into tables of sluice: each micro-batch becomes one commit, once.

`batches` starts a query and writes each of its batches once; its `BatchWriter` is what `sluice.stream` returns.
It imports `rows`, `files`, `scan` and `data_source`; the writer of `format("sluice")` lies in `session`. Begin with `batches`.
"""
