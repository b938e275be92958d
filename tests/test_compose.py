"""`docker-compose.yml` is what the Compose specification allows, and says what it is meant to say."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import yaml
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from tests.deploy import command, default_port, grace_s, unknown_options

ROOT = Path(__file__).resolve().parent.parent
ENSEMBLE = ("zoo1", "zoo2", "zoo3")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return content


@pytest.fixture(scope="module")
def specification() -> Draft202012Validator:
    """The Compose specification's own schema, as the package `check-jsonschema` carries it."""
    schema = json.loads((files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json").read_text())
    assert schema["title"] == "Compose Specification"
    return Draft202012Validator(schema)


def test_the_file_follows_the_specification_which_would_find_a_misspelt_key(
    compose: dict[str, Any], specification: Draft202012Validator
) -> None:
    specification.validate(compose)
    broken = {**compose, "services": {**compose["services"], "demo": {**compose["services"]["demo"], "depend_on": []}}}
    with pytest.raises(ValidationError, match="depend_on"):
        specification.validate(broken)


@pytest.mark.parametrize("name", ENSEMBLE)
def test_each_zookeeper_server_knows_all_three(compose: dict[str, Any], name: str) -> None:
    service = compose["services"][name]
    environment = service["environment"]
    servers = dict(re.findall(r"server\.(\d)=(\w+):2888:3888;2181", environment["ZOO_SERVERS"]))
    assert servers == {"1": "zoo1", "2": "zoo2", "3": "zoo3"}
    assert servers[environment["ZOO_MY_ID"]] == name == service["hostname"]
    assert service["image"].startswith("zookeeper:3.9")


def test_the_daemon_ends_before_it_is_killed(compose: dict[str, Any]) -> None:
    assert float(compose["services"]["daemon"]["stop_grace_period"].removesuffix("s")) > grace_s()


def test_the_servers_share_no_folder(compose: dict[str, Any]) -> None:
    volumes = [volume.partition(":")[0] for name in ENSEMBLE for volume in compose["services"][name]["volumes"]]
    assert len(set(volumes)) == 2 * len(ENSEMBLE)
    assert set(volumes) < set(compose["volumes"])


def test_every_server_has_a_health_check_and_a_zookeeper_without_quorum_is_not_healthy(compose: dict[str, Any]) -> None:
    assert {compose["services"][name]["healthcheck"]["test"][0] for name in (*ENSEMBLE, "objects")} == {"CMD-SHELL"}
    pattern = re.search(r"grep -q '(.*)'", compose["services"]["zoo1"]["healthcheck"]["test"][1])
    assert pattern is not None
    expression = pattern[1].replace(r"\(", "(").replace(r"\)", ")").replace(r"\|", "|")
    assert re.search(expression, "Zxid: 0x0\nMode: follower\n", re.MULTILINE)
    assert not re.search(expression, "This ZooKeeper instance is not currently serving requests\n", re.MULTILINE)


def test_the_bucket_of_kept_volumes_is_not_made_again(compose: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    [program] = compose["services"]["bucket"]["command"]
    store = Mock()
    monkeypatch.setattr("boto3.client", lambda _service: store)
    for names, times in (([], 1), (["sluice"], 0)):
        store.create_bucket.reset_mock()
        store.list_buckets.return_value = {"Buckets": [{"Name": each} for each in names]}
        exec(program, {})
        assert store.create_bucket.call_count == times


def test_the_client_waits_for_everything_it_uses_and_is_told_where_it_is(compose: dict[str, Any]) -> None:
    waits = {name: each["condition"] for name, each in compose["services"]["demo"]["depends_on"].items()}
    assert waits == dict.fromkeys(ENSEMBLE, "service_healthy") | {"bucket": "service_completed_successfully"}
    assert compose["services"]["bucket"]["depends_on"] == {"objects": {"condition": "service_healthy"}}
    demo, store = compose["services"]["demo"], compose["services"]["objects"]
    assert demo["environment"]["SLUICE_COORDINATOR"] == "zk://" + ",".join(f"{name}:2181" for name in ENSEMBLE) + "/sluice"
    assert demo["environment"]["AWS_ENDPOINT_URL"] == "http://objects:8333"
    assert "-s3.port=8333" in store["command"]
    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        assert demo["environment"][key] == store["environment"][key]


def test_the_bucket_is_made_by_the_name_the_client_uses_which_runs_the_demo_where_the_image_has_it(compose: dict[str, Any]) -> None:
    demo, bucket = compose["services"]["demo"], compose["services"]["bucket"]
    [name] = set(re.findall(r"Bucket='(\w+)'", bucket["command"][0]))
    assert demo["command"][demo["command"].index("--location") + 1].startswith(f"s3://{name}/")
    compile(bucket["command"][0], "bucket", "exec")
    dockerfile = (ROOT / "docker" / "Dockerfile").read_text()
    assert f"WORKDIR {demo['working_dir']}\n" in dockerfile
    assert (ROOT / demo["entrypoint"][-1].replace(".", "/") / "__main__.py").is_file()


def test_images_are_pinned(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert "build" in service or service["image"] == "sluice-client" or re.search(r":v?\d+\.\d+", service["image"]), name


def test_the_dockerfile_copies_what_the_build_needs_and_exists() -> None:
    dockerfile = (ROOT / "docker" / "Dockerfile").read_text()
    copied = [word for line in re.findall(r"^COPY (.*) \S+$", dockerfile, re.MULTILINE) for word in line.split()]
    assert copied == ["pyproject.toml", "README.md", "LICENSE", "src", "examples"]
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert allowed == copied
    assert [name for name in copied if not (ROOT / name).exists()] == []


def test_daemon_and_exporter_use_what_the_demo_uses_and_run_commands_with_options_that_they_have(compose: dict[str, Any]) -> None:
    for name in ("daemon", "exporter", "console"):
        service = compose["services"][name]
        assert service["environment"] == compose["services"]["demo"]["environment"]
        assert service["depends_on"] == compose["services"]["demo"]["depends_on"]
        first, *options = service["command"]
        made = command(first)
        assert first == name
        assert made is not None
        assert unknown_options(made, options) == set()
        assert options[options.index("--port") + 1] == str(default_port(made))
        [test] = [word for word in service["healthcheck"]["test"] if "urlopen" in word]
        assert f"http://127.0.0.1:{default_port(made)}/healthz" in test
        compile(test, "healthcheck", "exec")


def test_what_listens_listens_on_this_machine_only(compose: dict[str, Any]) -> None:
    ports = [port for service in compose["services"].values() for port in service.get("ports", ())]
    assert len(ports) >= 3
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_prometheus_and_grafana_get_the_files_of_deploy_and_know_each_other(compose: dict[str, Any]) -> None:
    mounted = {
        place: ROOT / source
        for name in ("prometheus", "grafana")
        for source, place, *_ in (volume.split(":") for volume in compose["services"][name]["volumes"])
        if source.startswith("./")
    }
    assert all(path.exists() for path in mounted.values())
    assert (mounted["/etc/prometheus"] / "prometheus.yml").is_file()
    scraped = yaml.safe_load((mounted["/etc/prometheus"] / "prometheus.yml").read_text())["scrape_configs"]
    hosts = {target.split(":")[0] for job in scraped for each in job.get("static_configs", ()) for target in each["targets"]}
    assert hosts <= set(compose["services"])
    provisioning = mounted["/etc/grafana/provisioning"]
    [source] = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    [provider] = yaml.safe_load((provisioning / "dashboards" / "sluice.yml").read_text())["providers"]
    [dashboard] = [place for place in mounted if place.startswith(provider["options"]["path"])]
    assert compose["services"]["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == dashboard
