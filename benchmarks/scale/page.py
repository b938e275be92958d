"""What docs/scale.md shows of a run: pictures, tables, and the money of the requests."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

__all__ = ["FOLDER", "PAGE", "PRICES", "cost", "pictures", "tables", "written"]

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "scale.md"
FOLDER: Final = PAGE.with_suffix("")

PRICES: Final[Mapping[str, Mapping[str, float]]] = {
    "S3 Standard": {"PUT": 0.005, "LIST": 0.005, "GET": 0.0004, "HEAD": 0.0004, "DELETE": 0.0},
}
"""US dollars for 1,000 requests in us-east-1, from aws.amazon.com/s3/pricing as it was quoted in November 2026. Storage and traffic cost
extra. Directory buckets (Express One Zone) are cheaper, and list in no order, which sluice refuses."""

_INK, _FAINT, _COLOURS = "#1f2933", "#c8ced6", ("#0f766e", "#b45309", "#4338ca", "#be123c")
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 760, 360, 70, 140, 44, 54
_LABELS: Final = {"tables": "tables", "clients": "clients", "writers": "writers of one table"}


def cost(requests: Mapping[str, float], prices: Mapping[str, float], commits: int = 1_000_000) -> float:
    """Dollars for the requests of so many commits."""
    return sum(count * commits * prices.get(kind, 0.0) / 1000 for kind, count in requests.items())


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers of a logarithmic axis."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [factor * 10.0**each for each in exponents for factor in (1, 2, 5) if low <= factor * 10.0**each <= high]


def chart(title: str, across: str, up: str, lines: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """A chart with two logarithmic axes, as SVG on white, which is readable beside light and dark text."""
    points = [point for line in lines.values() for point in line]
    (x_low, x_high), (y_low, y_high) = ((min(each), max(each)) for each in zip(*points, strict=True))
    y_low, y_high = y_low / 1.5, y_high * 1.5
    x_high = max(x_high, x_low * 2)

    def x(value: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * math.log(value / x_low) / math.log(x_high / x_low)

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * math.log(value / y_low) / math.log(y_high / y_low)

    def text(left: float, top: float, words: str, anchor: str = "middle", colour: str = _INK, size: int = 12) -> str:
        return f'<text x="{left:.1f}" y="{top:.1f}" text-anchor="{anchor}" fill="{colour}" font-size="{size}">{escape(words)}</text>'

    parts = [f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>', text(_LEFT, 22, title, "start", size=15)]
    for value in _ticks(y_low, y_high):
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="{_FAINT}"/>')
        parts.append(text(_LEFT - 8, y(value) + 4, f"{value:,g}", "end"))
    parts += [text(x(value), _HEIGHT - _BOTTOM + 18, f"{value:,g}") for value in sorted({point[0] for point in points})]
    parts.append(text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 12, across))
    parts.append(text(_LEFT - 8, _TOP - 8, up, "start"))
    for number, (name, line) in enumerate(lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in line)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="3.5" fill="{colour}"/>' for a, b in line]
        parts.append(text(_WIDTH - _RIGHT + 14, _TOP + 14 + 20 * number, name, "start", colour, 13))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" role="img">'
    return f"{head}<title>{escape(title)}</title>{''.join(parts)}</svg>\n"


def _lines(points: Sequence[Mapping[str, Any]], sweep: str, fields: Mapping[str, str]) -> dict[str, list[tuple[float, float]]]:
    """For each system and field the line over what grows in the sweep."""
    mine = [each for each in points if each["sweep"] == sweep]
    curves: dict[str, list[tuple[float, float]]] = {}
    for system in dict.fromkeys(each["system"] for each in mine):
        for field, label in fields.items():
            line = [(float(each[sweep]), float(each[field])) for each in mine if each["system"] == system and each[field] > 0]
            if line:
                curves[f"{system}{label}"] = sorted(line)
    return curves


def pictures(points: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The charts of a run, by the names of their files."""
    made = {}
    for sweep in dict.fromkeys(each["sweep"] for each in points):
        across = _LABELS[sweep]
        if rates := _lines(points, sweep, {"commits_per_s": ""}):
            made[f"{sweep}-rate.svg"] = chart(f"Commits per second, by {across}", across, "commits/s", rates)
        if waits := _lines(points, sweep, {"p50_ms": ", p50", "p99_ms": ", p99"}):
            made[f"{sweep}-latency.svg"] = chart(f"Time of a commit, by {across}", across, "milliseconds", waits)
    return made


def _row(cells: Iterable[object]) -> str:
    return f"| {' | '.join(str(each) for each in cells)} |"


def tables(points: Sequence[Mapping[str, Any]]) -> str:
    """The numbers of a run as Markdown: what was measured, and the money."""
    lines = [
        _row(("system", "tables", "clients", "writers a table", "commits/s", "versions/s", "p50", "p99", "limit")),
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for each in points:
        numbers = [f"{each[name]:,}" for name in ("tables", "clients", "writers", "commits_per_s", "versions_per_s")]
        lines.append(_row((each["system"], *numbers, f"{each['p50_ms']:,.0f} ms", f"{each['p99_ms']:,.0f} ms", each["limit"])))
    kinds = ("PUT", "GET", "HEAD", "LIST")
    lines += ["", _row(("system", "writers of one table", *kinds, *PRICES)), "|---|---|" + "---|" * (len(kinds) + len(PRICES))]
    for each in points:
        if each["sweep"] == "writers":
            counts = [f"{each['requests'].get(kind, 0.0):.2f}" for kind in kinds]
            money = [f"${cost(each['requests'], prices):,.2f}" for prices in PRICES.values()]
            lines.append(_row((each["system"], each["writers"], *counts, *money)))
    return "\n".join(lines)


def written(page: str, run: Mapping[str, Any]) -> str:
    """The page with the pictures, tables and set-up of a run between its two marks."""
    head, begin, rest = page.partition("<!-- measured -->\n")
    _, end, tail = rest.partition("<!-- /measured -->")
    assert all((begin, end)), "docs/scale.md has lost its marks"
    shown = "\n".join(f"![{_said(name)}]({FOLDER.name}/{name})" for name in pictures(run["points"]))
    return f"{head}{begin}{run['setup']}\n\n{shown}\n\n{tables(run['points'])}\n{end}{tail}"


def _said(name: str) -> str:
    sweep, _, what = name.removesuffix(".svg").partition("-")
    return f"{'Commits per second' if what == 'rate' else 'Time of a commit'} by the number of {_LABELS[sweep]}"


def write(run: Mapping[str, Any]) -> None:
    """Put a run into the documentation."""
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.svg"):
        old.unlink()
    (FOLDER / "measured.json").write_text(json.dumps(run, indent=1) + "\n")
    for name, text in pictures(run["points"]).items():
        (FOLDER / name).write_text(text)
    PAGE.write_text(written(PAGE.read_text(), run))
