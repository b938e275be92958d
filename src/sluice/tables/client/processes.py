"""This process as a client of a table's coordinator: its name, and what the commit path works with."""

from __future__ import annotations

import os
import socket
import sys
from functools import partial
from pathlib import Path

from ...coordinator.limits import Limits
from ...coordinator.nodes.context import TableContext
from ...coordinator.nodes.layout import TableTree
from ...coordinator.nodes.presence import presence_of
from ...coordinator.rules.intent import ClientName
from ...coordinator.service.connect import connect
from ...storage.stores.location import open_store
from .address import TableAddress

__all__ = ["context_of", "this_client"]


def this_client(application: str | None = None) -> ClientName:
    """How this process is named in the history; `application` defaults to the program's name."""
    name = application or os.environ.get("SLUICE_APPLICATION") or Path(sys.argv[0] or "python").name
    return ClientName(socket.gethostname(), os.getpid(), name)


def context_of(address: TableAddress, limits: Limits | None = None) -> TableContext:
    """What the commit path works with; connects to the coordinator and announces this client."""
    return TableContext(
        objects=address.store(),
        tree=TableTree(address.location),
        connect=partial(connect, address.coordinator),
        limits=limits or Limits(),
        client=(client := this_client(address.application)),
        presence=presence_of(address.coordinator, client.application),
        stores=partial(open_store, options=address.storage_options),
    )
