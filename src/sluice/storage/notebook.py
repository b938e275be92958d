"""How a notebook shows what sluice returns: `_repr_html_`, IPython's protocol for rich display."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

__all__ = ["html_of_fields", "html_of_rows"]


def html_of_fields(title: str, fields: Mapping[str, object]) -> str:
    """A table of names and values below a title; values that say nothing (None, "", empty collections) are left out."""
    lines = "".join(f"<tr><th>{escape(name)}</th><td>{_cell(value)}</td></tr>" for name, value in fields.items() if not _is_empty(value))
    return f"<div><b>{escape(title)}</b><table>{lines}</table></div>"


def html_of_rows(rows: Iterable[Mapping[str, object]]) -> str:
    """A table with a line for each row; columns in which no row says anything are left out."""
    listed = list(rows)
    names = [name for name in (listed[0] if listed else ()) if not all(_is_empty(row[name]) for row in listed)]
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join("<tr>" + "".join(f"<td>{_cell(row[name])}</td>" for name in names) + "</tr>" for row in listed)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _is_empty(value: object) -> bool:
    return value is None or value == "" or (isinstance(value, (Mapping, tuple, list)) and not value)


def _cell(value: object) -> str:
    if isinstance(value, Mapping):
        return "<br>".join(f"{escape(str(name))}: {_cell(each)}" for name, each in value.items())
    if isinstance(value, (tuple, list)):
        return ", ".join(map(_cell, value))
    return "" if value is None else escape(str(value))
