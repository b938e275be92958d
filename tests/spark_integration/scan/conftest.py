"""These tests are about `format("sluice")` as any session has it: the session of the tests does not route here."""

from __future__ import annotations

from ..data_source.conftest import by_the_data_source

__all__ = ["by_the_data_source"]
