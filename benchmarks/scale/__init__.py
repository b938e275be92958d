"""Many tables, many clients, many writers a table: what sluice commits, what limits it, and what the requests cost.

Begin with `__main__`: it runs the points of a matrix and prints one JSON object for each. `store` is the S3 that counts, `clients` the
processes that write, `measuring` looks at what each process spends, `page` draws and computes what docs/scale.md shows.
"""
