"""A real ZooKeeper on this machine for users without one: the first client starts it, the last one stops it."""

from __future__ import annotations

from .lifecycle import Membership, default_directory, join

__all__ = ["Membership", "default_directory", "join"]
