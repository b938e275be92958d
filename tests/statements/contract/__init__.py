"""Every kind of SQL statement, on both engines, with one answer."""
