"""Expressions of Spark SQL: parsed, typed, rendered as SQL, and evaluated with Arrow."""
