"""The types of node data are known before threads read nodes."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module

import pytest

import sluice.coordinator
from sluice.coordinator.formats import NodeData, Record

from .test_node_data import FULL_INTENT

THREADS = """
import sys, threading
from sluice.coordinator.rules.intent import Intent

sys.setswitchinterval(1e-6)
begun, data, failed = threading.Barrier(4), sys.argv[1].encode(), []

def read():
    begun.wait()
    try:
        Intent.decode(data)
    except BaseException as error:
        failed.append(error)

threads = [threading.Thread(target=read) for _ in range(4)]
[each.start() for each in threads]
[each.join() for each in threads]
assert not failed, failed
"""


def made_from(kind: type[NodeData]) -> Iterator[type[NodeData]]:
    for each in kind.__subclasses__():
        yield each
        yield from made_from(each)


def test_all_are_known_when_their_module_is_imported() -> None:
    for module in pkgutil.walk_packages(sluice.coordinator.__path__, "sluice.coordinator."):
        import_module(module.name)
    kinds = {
        each
        for each in made_from(NodeData)
        # `slots` makes a class of its own from the one that was written
        if each is not Record and getattr(sys.modules[each.__module__], each.__name__, None) is each
    }
    assert len(kinds) >= 20
    assert [each for each in kinds if "__msgspec_cache__" not in vars(each)] == []


@pytest.mark.slow
def test_threads_that_read_their_first_intent_at_once() -> None:
    command = [sys.executable, "-c", THREADS, FULL_INTENT.encode().decode()]
    programs = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(6)]
    said = [program.communicate()[1] for program in programs]
    assert [program.returncode for program in programs] == [0] * 6, said
