"""The metrics that sluice gives, with their labels, and those that queries use."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from prometheus_client import CollectorRegistry

import sluice
from sluice.operating.document import Coordinator, Status
from sluice.operating.exporter import metrics_of
from tests.deploy import DEPLOY

OF_PROMETHEUS = {"job", "instance"}
"""Labels of every target."""
_WORDS = {"by", "on", "ignoring", "group_left", "without"}
_SERIES = re.compile(r"\b(sluice_\w+|up)\b(?:\{([^}]*)\})?")
_GROUPING = re.compile(rf"\b(?:{'|'.join(_WORDS)}) *\(([^)]*)\)")


def given() -> dict[str, set[str]]:
    """The labels of each series, by its name: those of the exporter, and those of a program."""
    coordinator = Coordinator(
        address="", write_s=0.1, trouble=None, servers=(), may_stop_before_commits_do=1, may_be_lost_before_data_are=1, clients={}
    )
    seen = Status(at="", ok=True, coordinator=coordinator, tables=(), limited_by="workload", messages=())
    series: dict[str, set[str]] = {"up": set(OF_PROMETHEUS)}
    for family in metrics_of(seen):
        series[family.name] = {*getattr(family, "_labelnames", ()), *OF_PROMETHEUS}
    registry = CollectorRegistry()
    end = sluice.metrics.start(registry)
    for collector in list(registry._collector_to_names):
        metric: Any = collector
        labels = {*metric._labelnames, *OF_PROMETHEUS}
        if metric._type == "histogram":
            series |= {f"{metric._name}_bucket": {*labels, "le"}, f"{metric._name}_sum": labels, f"{metric._name}_count": labels}
        else:
            series[f"{metric._name}_total"] = labels
    end()
    return series


def used(query: str) -> Iterator[tuple[str, set[str]]]:
    """The series of a query with the labels that its matchers name."""
    for name, matchers in _SERIES.findall(query):
        yield name, set(re.findall(r"(\w+) *(?:=~|!~|!=|=)", re.sub(r'"[^"]*"', '""', matchers)))


def values(query: str, label: str) -> set[str]:
    """The words that matchers of a label name."""
    return {word for text in re.findall(rf'\b{label} *(?:=~|!~|!=|=) *"([^"]*)"', query) for word in text.split("|") if "$" not in word}


def wrong(query: str, series: Mapping[str, set[str]], *, shown: str = "") -> list[str]:
    """What a query, or a text that shows its labels, names and sluice does not give."""
    found, labels = [], set[str]()
    for name, matched in used(query):
        if name not in series:
            found.append(f"there is no {name}")
            continue
        labels |= series[name]
        found += [f"{name} has no label {each}" for each in matched - series[name]]
    groups = {each.strip() for group in _GROUPING.findall(query) for each in group.split(",") if each.strip()}
    texts = {*re.findall(r"\{\{ *(\w+) *\}\}", shown), *re.findall(r"\$labels\.(\w+)", shown)}
    return found + [f"no series of {query!r} has the label {each}" for each in (groups | texts) - labels]


def rules() -> list[dict[str, Any]]:
    """The alerts."""
    content = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())
    return [rule for group in content["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())
    return content


def targets() -> Iterator[tuple[str, str, str]]:
    """The panels' titles, queries and legends."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"], target["legendFormat"]
