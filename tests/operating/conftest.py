"""What a test of operating has of its own."""

from __future__ import annotations

from functools import cache

import pytest

from sluice.coordinator import contention


@pytest.fixture(autouse=True)
def recorder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refusals and waits of this test only, and no thread that files them while it looks."""
    monkeypatch.setattr(contention, "_begun", cache(lambda: None))
    monkeypatch.setattr(contention, "_recorder", contention._Recorder())
