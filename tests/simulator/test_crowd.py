"""A crowd of one application: everybody gets through, waits grow evenly, and the model has nothing to say against it."""

from __future__ import annotations

import pytest

from sluice.coordinator.nodes.quotas import Quota

from .crowd import crowd


@pytest.mark.costly
@pytest.mark.slow
@pytest.mark.parametrize("quota", [None, Quota(slots=8), Quota("crowd", slots=2, commits_per_s=200.0)])
def test_many_that_append_at_once_wait_evenly_and_nobody_starves(quota: Quota | None) -> None:
    waits = crowd(120, quota, beside=5)
    assert waits.violations == ()
    # whoever waits longest waits until all are through: nobody is passed again and again
    assert max(waits.crowd) < 10.0
    assert sorted(waits.crowd)[len(waits.crowd) // 2] > max(waits.crowd) / 50
