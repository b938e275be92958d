"""A table as a source of rows for streams: where a stream is, what each version gives it, and where a batch ends.

`offsets` and `planning` are pure; `table_stream` reads the log for them, and stores which schema a stream shows.
Imports `read`. Begin with `planning.py`.
"""
