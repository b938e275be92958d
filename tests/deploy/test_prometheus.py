"""`deploy/prometheus`, as promtool reads it: its syntax, and what alerts for made-up series."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy import DEPLOY, tool
from tests.deploy.names import rules

ALERTS = DEPLOY / "prometheus" / "alerts.yml"
EXPORTER = '{job="sluice-exporter", instance="e"%s}'
TABLE = EXPORTER % ', table="t"'
MESSAGE = EXPORTER % ', name="%s", severity="%s"'
PROGRAM = '{job="p", instance="i"%s}'
COMMITS = "sluice_commits_total" + PROGRAM % ', table="t", outcome="%s"'
REQUESTS = "sluice_store_requests_total" + PROGRAM % ', store="s3", operation="put", outcome="%s"'

Series = dict[str, str]
FIRING: dict[str, Series] = {
    "SluiceExporterAway": {"up" + EXPORTER % "": "0x30"},
    "SluiceDaemonAway": {'up{job="sluice-daemon", instance="d"}': "0x30"},
    "SluiceCoordinatorAway": {"sluice_up" + EXPORTER % "": "0x30"},
    "SluiceCoordinatorSlow": {"sluice_coordinator_write_seconds" + EXPORTER % "": "0.7x30"},
    "SluiceServerAway": {"sluice_servers" + EXPORTER % ', state="away"': "1x30", "sluice_servers" + EXPORTER % ', state="leader"': "1x30"},
    "SluiceServerBehind": {"sluice_messages" + MESSAGE % ("server-behind", "error"): "1x30"},
    "SluiceNoServerToSpare": {"sluice_servers_may_stop" + EXPORTER % "": "0x30", "sluice_up" + EXPORTER % "": "1x30"},
    "SluiceCommitWaits": {"sluice_oldest_waiter_seconds" + TABLE: "0+60x30", "sluice_leases_held" + TABLE: "0x30"},
    "SluiceQueueLong": {"sluice_queue_length" + TABLE: " ".join(["45 70 10 60"] * 8)},
    "SluiceLeaseWait": {"sluice_lease_wait_seconds" + TABLE: "0+60x30"},
    "SluicePublicationStuck": {"sluice_publish_lag_seconds" + TABLE: "0+60x30"},
    "SluiceForeignCommit": {"sluice_messages" + MESSAGE % ("foreign-commit", "error"): "1x30"},
    "SluiceTableNotRead": {"sluice_messages" + MESSAGE % ("table-not-read", "warning"): "2x30"},
    "SluiceLosesOften": {"sluice_messages" + MESSAGE % ("loses-often", "warning"): "1x30"},
    "SluiceClocksApart": {"sluice_messages" + MESSAGE % ("clock-apart", "warning"): "1x30"},
    "SluiceConsumerBehind": {"sluice_messages" + MESSAGE % ("consumer-behind", "warning"): "1x30"},
    "SluiceSmallFiles": {"sluice_messages" + MESSAGE % ("small-files", "warning"): "1x500"},
    "SluiceCheckpointBehind": {"sluice_messages" + MESSAGE % ("checkpoint-behind", "warning"): "1x100"},
    "SluiceVacuumDue": {"sluice_messages" + MESSAGE % ("vacuum-due", "note"): "1x2000"},
    "SluiceCommitsSlow": {
        "sluice_commit_duration_seconds_bucket" + PROGRAM % ', phase="all", le="30"': "0x30",
        "sluice_commit_duration_seconds_bucket" + PROGRAM % ', phase="all", le="60"': "0+10x30",
        "sluice_commit_duration_seconds_bucket" + PROGRAM % ', phase="all", le="+Inf"': "0+10x30",
    },
    "SluiceCommitsFail": {COMMITS % "failed": "_x25 1x5", COMMITS % "committed": "0+10x30"},
    "SluiceRefusalsMany": {COMMITS % "refused": "0+10x40", COMMITS % "committed": "0+10x40"},
    "SluiceRetriesMany": {"sluice_attempts_total" + PROGRAM % ', table="t"': "0+40x40", COMMITS % "committed": "0+10x40"},
    "SluiceStoreFull": {REQUESTS % "StorageFull": "_x25 1x5", REQUESTS % "ok": "0+1000x30"},
    "SluiceStoreErrors": {REQUESTS % "StorageUnavailable": "0+1x30", REQUESTS % "ok": "0+50x30", REQUESTS % "ObjectNotFound": "0+9x30"},
    "SluiceStoreSlow": {
        "sluice_store_request_duration_seconds_bucket" + PROGRAM % ', operation="put", le="5"': "0x30",
        "sluice_store_request_duration_seconds_bucket" + PROGRAM % ', operation="put", le="10"': "0+10x30",
        "sluice_store_request_duration_seconds_bucket" + PROGRAM % ', operation="put", le="+Inf"': "0+10x30",
    },
    "SluiceCoordinatorErrors": {
        "sluice_coordinator_requests_total" + PROGRAM % ', operation="read", outcome="CoordinatorUnavailable"': "_x20 1x10",
    },
    "SluiceSessionsLost": {"sluice_sessions_lost_total" + PROGRAM % "": "0x25 1x5"},
}
"""Series that make an alert fire, with a value for each minute."""

QUIET: Series = {
    "up" + EXPORTER % "": "1x500",
    'up{job="sluice-daemon", instance="d"}': "1x500",
    "sluice_up" + EXPORTER % "": "1x500",
    "sluice_coordinator_write_seconds" + EXPORTER % "": "0.01x500",
    "sluice_servers" + EXPORTER % ', state="leader"': "1x500",
    "sluice_servers" + EXPORTER % ', state="follower"': "2x500",
    "sluice_servers_may_stop" + EXPORTER % "": "1x500",
    "sluice_messages" + MESSAGE % ("several-releases", "note"): "1x500",
    "sluice_oldest_waiter_seconds" + TABLE: "2x500",
    "sluice_queue_length" + TABLE: "3x500",
    "sluice_lease_wait_seconds" + TABLE: "5x500",
    "sluice_publish_lag_seconds" + TABLE: "1x500",
    "sluice_sessions_lost_total" + PROGRAM % "": "1x500",
    "sluice_coordinator_requests_total" + PROGRAM % ', operation="write", outcome="ApplyRefused"': "0+1x500",
    "sluice_coordinator_requests_total" + PROGRAM % ', operation="read", outcome="CoordinatorUnavailable"': "1x500",
    "sluice_attempts_total" + PROGRAM % ', table="t"': "0+12x500",
    COMMITS % "committed": "0+10x500",
    COMMITS % "refused": "0+1x500",
    REQUESTS % "ok": "0+50x500",
    REQUESTS % "ObjectNotFound": "0+9x500",
    "sluice_commit_duration_seconds_bucket" + PROGRAM % ', phase="all", le="1"': "0+10x500",
    "sluice_commit_duration_seconds_bucket" + PROGRAM % ', phase="all", le="+Inf"': "0+10x500",
}
"""A day on which all is well."""


def firing(series: Series, minutes: int, folder: Path) -> set[str]:
    """The alerts that fire at that minute: promtool reports them against a test that expects none."""
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    nothing = [{"alertname": rule["alert"], "eval_time": f"{minutes}m", "exp_alerts": []} for rule in rules()]
    test: dict[str, Any] = {
        "rule_files": [str(ALERTS)],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": inputs, "alert_rule_test": nothing}],
    }
    (folder / "test.yml").write_text(yaml.safe_dump(test))
    done = subprocess.run([tool("promtool"), "test", "rules", "test.yml"], cwd=folder, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    names = set(re.findall(r'Labels:\{alertname="(\w+)"', said))
    assert ("SUCCESS" in said) == (done.returncode == 0) == (not names), said
    return names


def test_the_configuration_and_the_alerts_are_what_prometheus_takes(tmp_path: Path) -> None:
    for command in (["check", "config", str(DEPLOY / "prometheus" / "prometheus.yml")], ["check", "rules", str(ALERTS)]):
        subprocess.run([tool("promtool"), *command], check=True, capture_output=True)
    broken = tmp_path / "alerts.yml"
    broken.write_text(ALERTS.read_text().replace("sluice_queue_length[10m]) > 32", "sluice_queue_length[10m]) >"))
    assert subprocess.run([tool("promtool"), "check", "rules", str(broken)], check=False, capture_output=True).returncode != 0


def test_there_is_a_case_for_each_alert() -> None:
    assert set(FIRING) == {rule["alert"] for rule in rules()}


@pytest.mark.parametrize("alert", FIRING)
def test_an_alert_fires_for_what_it_is_for_and_no_other_does(alert: str, tmp_path: Path) -> None:
    minutes = {"SluiceSmallFiles": 370, "SluiceCheckpointBehind": 65, "SluiceVacuumDue": 1445, "SluiceRefusalsMany": 35}.get(alert, 29)
    assert firing(FIRING[alert], minutes, tmp_path) == {alert}


@pytest.mark.parametrize("minutes", [29, 120, 480])
def test_nothing_fires_when_all_is_well(minutes: int, tmp_path: Path) -> None:
    assert firing(QUIET, minutes, tmp_path) == set()


def test_a_commit_that_waits_for_a_lease_is_no_commit_that_nobody_decides(tmp_path: Path) -> None:
    series = {"sluice_oldest_waiter_seconds" + TABLE: "0+60x30", "sluice_leases_held" + TABLE: "1x30"}
    assert firing(series, 9, tmp_path) == set()
