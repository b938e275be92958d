"""The page of the command line is what the commands say of themselves."""

from __future__ import annotations

import re

from sluice import cli
from tests.command_line import PAGE, text_of_page


def test_the_page_is_made_from_the_commands() -> None:
    assert PAGE.read_text() == text_of_page(), "`python -m tests.command_line` writes it"


def test_it_has_every_command() -> None:
    headings = re.findall(r"^### sluice ([\w-]+)$", PAGE.read_text(), re.MULTILINE)
    assert headings == [name for commands in cli._GROUPS.values() for name in commands]
    assert "#### sluice leases break" in PAGE.read_text()
