"""The chart of `deploy/helm`, linted and rendered by Helm: what it makes, and what it refuses."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
import yaml

from tests.deploy import DEPLOY, command, default_port, grace_s, tool, unknown_options

CHART = DEPLOY / "helm" / "sluice"
SECRETS = ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "ZOOKEEPER_PASSWORD", "AWS_SESSION_TOKEN")


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([tool("helm"), *arguments], capture_output=True, text=True, check=False)


def template(*settings: str) -> subprocess.CompletedProcess[str]:
    words = [word for each in settings for word in ("--set", each)]
    return helm("template", "it", str(CHART), "--kube-version", "1.33.0", *words)


def rendered(*settings: str) -> list[dict[str, Any]]:
    """What the chart makes with these settings."""
    done = template(*settings)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each is not None]


def refused(setting: str) -> str:
    """Why the schema of the values refuses a setting."""
    done = template(setting)
    assert done.returncode != 0
    assert "specifications of the schema" in done.stderr
    return done.stderr


def deployments(*settings: str) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each["spec"] for each in rendered(*settings) if each["kind"] == "Deployment"}


def container(spec: dict[str, Any]) -> dict[str, Any]:
    [found] = spec["template"]["spec"]["containers"]
    only: dict[str, Any] = found
    return only


def test_helm_finds_nothing_wrong() -> None:
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout


def test_it_makes_daemon_and_exporter_and_the_console_when_it_is_wanted() -> None:
    assert set(deployments()) == {"it-daemon", "it-exporter"}
    assert set(deployments("console.enabled=true", "daemon.enabled=false")) == {"it-exporter", "it-console"}


@pytest.mark.parametrize("name", ["daemon", "exporter", "console"])
def test_each_runs_a_command_of_sluice_at_the_port_that_its_service_and_probes_use(name: str) -> None:
    parts = rendered("console.enabled=true")
    [spec] = [each["spec"] for each in parts if each["kind"] == "Deployment" and each["metadata"]["name"] == f"it-{name}"]
    [service] = [each["spec"] for each in parts if each["kind"] == "Service" and each["metadata"]["name"] == f"it-{name}"]
    runs = container(spec)
    first, *options = runs["args"]
    assert first == name
    port = runs["ports"][0]["containerPort"]
    assert options[options.index("--port") + 1] == str(port) == str(service["ports"][0]["port"])
    assert options[options.index("--host") + 1] == "0.0.0.0"
    assert name != "console" or options[options.index("--allow-host") + 1] == f"it-{name}", "so a browser may name its Service"
    assert service["selector"] == spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    assert runs["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
    ready = "/readyz" if name == "daemon" else "/healthz"
    assert runs["readinessProbe"]["httpGet"] == {"path": ready, "port": "http"}, "what shows an outage of the coordinator is reached in it"
    made = command(name)
    if made is not None:
        assert unknown_options(made, options) == set()
        assert default_port(made) == port


def test_each_runs_without_rights_and_cannot_write_but_to_a_folder_of_its_own() -> None:
    for spec in deployments("console.enabled=true").values():
        pod = spec["template"]["spec"]
        assert pod.get("terminationGracePeriodSeconds", 30) > grace_s(), "the daemon ends before it is killed"
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] > 0
        assert pod["automountServiceAccountToken"] is False
        assert container(spec)["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert [each["mountPath"] for each in container(spec)["volumeMounts"]] == ["/tmp"]


def test_secrets_come_from_a_secret_that_is_named_and_values_with_secrets_are_refused() -> None:
    runs = container(deployments("existingSecret=store", "env.AWS_REGION=eu-west-1")["it-daemon"])
    assert runs["envFrom"] == [{"secretRef": {"name": "store"}}]
    assert {"name": "AWS_REGION", "value": "eu-west-1"} in runs["env"]
    assert "Secret" not in {each["kind"] for each in rendered("existingSecret=store")}
    for name in SECRETS:
        assert name in refused(f"env.{name}=hunter2")
    assert "coordinator" in refused("coordinator=zk://ann:secret@h1/sluice")


@pytest.mark.parametrize(
    "setting", ["deamon.enabled=true", "daemon.replicas=0", "coordinator=h1:2181", "image.tag=", "exporter.upkeep=often"]
)
def test_a_value_that_means_nothing_is_refused(setting: str) -> None:
    assert refused(setting)


def test_without_helm_the_values_follow_their_schema_and_templates_name_values_that_there_are() -> None:
    """What can be said without Helm; it does not render a template."""
    from jsonschema import Draft7Validator

    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    Draft7Validator.check_schema(schema)
    Draft7Validator(schema).validate(values)
    assert set(values) == set(schema["properties"]) - {"global"}
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["apiVersion"] == "v2"
