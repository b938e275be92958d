"""The prompt: statements of several lines, history, completion, and the end."""

from __future__ import annotations

from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from sluice.shell.prompting import Completing, typed
from sluice.statements.duckdb.queries import LocalRequest


@pytest.fixture
def completing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Completing:
    monkeypatch.setenv("SLUICE_HOME", str(tmp_path / "home"))
    return Completing(lambda text: LocalRequest(text, None, "memory://prompt"))


def test_statements_are_typed_in_several_lines_and_remembered(completing: Completing, tmp_path: Path) -> None:
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        keys.send_text("SELECT 1,\r';' AS x;\rSELECT 2;\rquit\rSELECT 3;\r")
        assert list(typed(completing)) == ["SELECT 1,\n';' AS x;", "SELECT 2;"]
    assert "+SELECT 1," in (tmp_path / "home" / "sql_history").read_text()


def test_a_home_that_cannot_be_written_remembers_nothing(completing: Completing, tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        keys.send_text("SELECT 1;\rquit\r")
        assert list(typed(completing)) == ["SELECT 1;"]


def test_the_end_of_the_input_ends_the_shell(completing: Completing) -> None:
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        keys.send_text("SELECT 1\x03SELECT 2;\r\x04")  # Ctrl-C forgets what was begun
        assert list(typed(completing)) == ["SELECT 2;"]


def test_plain_lines_do_without_a_toolkit(completing: Completing, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = iter(["SELECT 1", ";", "", "exit"])
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setattr("builtins.input", lambda _: next(lines))
    assert list(typed(completing)) == ["SELECT 1\n;"]
