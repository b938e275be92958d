"""Delta Lake on Spark, the format's own implementation, beside sluice: `make test-delta`."""
