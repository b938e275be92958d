"""A real ZooKeeper on this machine for those who have none: started by the first client, stopped by the last."""

from __future__ import annotations

from .lifecycle import Membership, default_directory, join

__all__ = ["Membership", "default_directory", "join"]
