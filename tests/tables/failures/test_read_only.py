"""A store that refuses every write: what only looks goes on, and says the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sluice
from sluice.storage.errors import AccessDenied
from sluice.storage.stores.local import LocalStore

from ..conftest import Place, flights


@pytest.fixture
def table(place: Place) -> sluice.Table:
    """A table with a file that is garbage."""
    table = place.create()
    table.append(flights(("JFK", 1, 1)))
    table.overwrite(flights(("EWR", 2, 2)))
    return table


def refuse(self: LocalStore, *_: Any, **__: Any) -> Any:
    raise AccessDenied(f"{self}: read-only")


def test_looking_needs_no_write_access(place: Place, table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = {each.key for each in table.vacuum(0, dry_run=True, force=True).garbage}
    assert expected
    for write in ("put", "put_if_absent", "upload", "delete", "adopt", "staging", "abandon"):
        monkeypatch.setattr(LocalStore, write, refuse)
    opened = place.open()
    assert {each.key for each in opened.vacuum(0, dry_run=True, force=True).garbage} == expected
    assert sluice.doctor(place.location, coordinator=place.coordinator).ok
    with pytest.raises(AccessDenied):
        opened.vacuum(0, force=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_another_user_may_look_at_a_folder_that_only_its_owner_writes(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    table = sluice.Table.create(folder, flights().schema, coordinator="memory://here")
    table.append(flights(("JFK", 1, 1)))
    for each in (folder, *folder.rglob("*")):
        each.chmod(0o555 if each.is_dir() else 0o444)
    for each in (tmp_path, *tmp_path.parents):
        if each.stat().st_mode & 0o055 != 0o055:
            each.chmod(each.stat().st_mode | 0o055)
    program = (
        "import os, sluice, sluice.tables.manage.doctor\n"
        "os.setuid(65534)\n"
        f"print(sluice.doctor({str(folder)!r}).ok)\n"
        f"try: open({str(folder / 'x')!r}, 'w')\n"
        "except PermissionError: print('refused')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.split() == ["True", "refused"], done.stderr
