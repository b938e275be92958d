"""Helpers for developing against sluice on one machine; needs the extra `sluice-delta[dev]`."""
