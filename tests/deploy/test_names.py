"""Alerts and dashboard use only metrics, labels and words that sluice gives; each alert has its part of the page for those on call."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.deploy import DEPLOY, ROOT, command, default_port
from tests.deploy.names import dashboard, given, rules, targets, values, wrong

ON_CALL = ROOT / "docs" / "operations" / "on-call.md"
JUDGING = ROOT / "src" / "sluice" / "operating" / "judging.py"
WORDS = {
    "severity": {"error", "warning", "note"},
    "outcome": {
        "committed",
        "repeated",
        "refused",
        "unknown",
        "failed",
        "ok",
        "ObjectNotFound",
        "StorageFull",
        "CoordinatorUnavailable",
        "SessionLost",
    },
    "phase": {"compare", "decide", "publish", "lease", "all"},
    "state": {"leader", "follower", "observer", "standalone", "not serving", "away", "closed"},
    "limit": {"workload", "store", "coordinator", "publication", "lease", "client"},
    "operation": {"get", "head", "list", "put", "delete", "read", "write", "barrier"},
    "job": {"sluice-exporter", "sluice-daemon"},
}


def queries() -> list[str]:
    return [*(str(rule["expr"]) for rule in rules()), *(query for _, query, _ in targets())]


def test_the_alerts_use_what_is_given() -> None:
    series = given()
    assert [problem for rule in rules() for problem in wrong(rule["expr"], series, shown=rule["annotations"]["summary"])] == []


def test_the_dashboard_uses_what_is_given_and_shows_all_of_it() -> None:
    series = given()
    assert [f"{title}: {problem}" for title, query, legend in targets() for problem in wrong(query, series, shown=legend)] == []
    named = " ".join(query for _, query, _ in targets())
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in series} - {"up"}
    assert {family for family in families if family not in named} == set()
    [definition] = [each["definition"] for each in dashboard()["templating"]["list"] if each["name"] == "table"]
    assert wrong(definition, series) == []


def test_the_dashboards_panels_have_their_own_numbers_and_places() -> None:
    panels = dashboard()["panels"]
    assert len({each["id"] for each in panels}) == len(panels) > 25
    taken: set[tuple[int, int]] = set()
    for each in panels:
        place = each["gridPos"]
        assert 0 <= place["x"] < place["x"] + place["w"] <= 24
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert not taken & cells, each["title"]
        taken |= cells
        assert each["type"] == "row" or each["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("sluice_comits_total", "there is no sluice_comits_total"),
        ('sluice_queue_length{tabel="t"}', "sluice_queue_length has no label tabel"),
        ("sum by (rule) (sluice_queue_length)", "has the label rule"),
        ("sluice_commit_duration_seconds", "there is no sluice_commit_duration_seconds"),
    ],
)
def test_a_name_that_nobody_gives_is_noticed(query: str, problem: str) -> None:
    [said] = wrong(query, given())
    assert problem in said


@pytest.mark.parametrize("label", [*WORDS, "name"])
def test_the_words_in_queries_are_words_that_labels_have(label: str) -> None:
    messages = set(re.findall(r'_message\("([a-z-]+)"', JUDGING.read_text()))
    assert "commit-waits" in messages
    words = {word for query in queries() for word in values(query, label)}
    assert words <= (messages if label == "name" else WORDS[label])
    assert words


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings, as the site makes them."""
    return {
        re.sub(r"[^\w -]", "", each).strip().lower().replace(" ", "-") for each in re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    }


def test_each_alert_has_a_runbook_that_says_what_to_see_look_at_and_do() -> None:
    text, anchors = ON_CALL.read_text(), headings(ON_CALL)
    for rule in rules():
        page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert ROOT / page == ON_CALL
        assert anchor == rule["alert"].lower()
        assert anchor in anchors, f"{page} has no part {rule['alert']}"
        part = text.split(f"\n### {rule['alert']}\n")[1].split("\n### ")[0].split("\n## ")[0]
        for word in ("You see", "Look at", "Do"):
            assert f"\n- **{word}:** " in part, f"{rule['alert']} does not say {word}"
        assert rule["labels"]["severity"] in ("critical", "warning")
    documented = set(re.findall(r"^### (Sluice\w+)$", text, re.MULTILINE))
    assert documented == {rule["alert"] for rule in rules()}


def test_prometheus_is_pointed_at_the_ports_of_the_commands() -> None:
    content = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    ports = {job["job_name"]: job.get("static_configs", [{}])[0].get("targets") for job in content["scrape_configs"]}
    for name in ("exporter", "daemon"):
        made = command(name)
        assert made is not None
        assert ports[f"sluice-{name}"] == [f"{name}:{default_port(made)}"]
