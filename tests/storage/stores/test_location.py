"""Locations: one spelling each, and errors for what is no location.

What botocore logs at its lowest level shows no credential, wherever the credential comes from.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from sluice.storage.errors import InvalidRequest, UnknownScheme
from sluice.storage.stores.local import LocalStore
from sluice.storage.stores.location import normalise, open_store
from sluice.storage.stores.memory import MemoryStore
from sluice.storage.stores.s3 import S3Store
from sluice.storage.stores.storage_options import redact_logs


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("/data/t", "file:///data/t"),
        ("/data/t/", "file:///data/t"),
        ("/data//x/../t", "file:///data/t"),
        ("file:///data/t", "file:///data/t"),
        ("file:/data/t", "file:///data/t"),
        ("file://localhost/data/t", "file:///data/t"),
        ("/data/a b/100%/ü", "file:///data/a b/100%/ü"),
        ("file:///data/a%20b", "file:///data/a%20b"),
        ("s3://bucket", "s3://bucket"),
        ("s3://b/p/", "s3://b/p"),
        ("s3a://b/p/q r", "s3://b/p/q r"),
        ("S3://Bucket/P", "s3://Bucket/P"),
        ("abfss://c@account.dfs.core.windows.net", "abfss://c@account.dfs.core.windows.net"),
        ("abfs://c@account.dfs.core.windows.net/p/q/", "abfss://c@account.dfs.core.windows.net/p/q"),
        ("ABFSS://C@Account.dfs.core.windows.net/P", "abfss://c@account.dfs.core.windows.net/P"),
        ("memory://name", "memory://name"),
        ("memory://name/sub/", "memory://name/sub"),
    ],
)
def test_every_location_has_one_spelling(given: str, wanted: str) -> None:
    assert normalise(given) == wanted
    assert normalise(wanted) == wanted


def test_relative_and_home_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    here = f"file://{tmp_path.resolve()}"
    assert normalise("t") == normalise("./t") == normalise("~/t") == normalise(tmp_path / "t") == f"{here}/t"


def test_a_link_and_its_target_are_one_location(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert normalise(tmp_path / "link" / "t") == normalise(tmp_path / "real" / "t")


def test_an_unknown_scheme_is_named_with_the_known_ones() -> None:
    with pytest.raises(UnknownScheme, match=r"'hdfs'.*file://, s3://, s3a://, abfs://, abfss://, memory://") as caught:
        open_store("hdfs://namenode/t")
    assert caught.value.scheme == "hdfs"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("", "give a path or a URI"),
        ("a\0b", "give a path or a URI"),
        ("file://host/t", "names the host 'host'"),
        ("s3:/b/t", "two slashes"),
        ("s3://", "names no bucket"),
        ("s3:///t", "names no bucket"),
        ("s3://b/x//y", "not an object key"),
        ("s3://b/x/../y", "not an object key"),
        ("abfss:/c@account.dfs.core.windows.net/t", "two slashes"),
        ("abfss://account.dfs.core.windows.net/t", "names no container"),
        ("abfss://c@onelake.dfs.fabric.microsoft.com/t", "names no container"),
        ("abfss://c@account.blob.core.windows.net/t", "names no container"),
        ("abfss://c@account.dfs.core.windows.net/a b", "cannot sign"),
        ("abfss://c@account.dfs.core.windows.net/x/../y", "not an object key"),
        ("memory://", "has no name"),
        ("~nobody-of-this-name/t", "home folder"),
    ],
)
def test_what_is_no_location_is_refused(given: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        normalise(given)


@pytest.mark.parametrize(
    ("location", "options"), [("s3://key:hunter2@bucket/t", {}), ("s3://bucket/t", {"endpoint_url": "http://key:hunter2@host:9000"})]
)
def test_a_secret_in_a_location_is_not_repeated(location: str, options: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest, match="carries credentials") as caught:
        open_store(location, options)
    assert "hunter2" not in str(caught.value)


def test_the_scheme_decides_the_store(tmp_path: Path) -> None:
    assert isinstance(open_store(tmp_path), LocalStore)
    assert isinstance(open_store("s3://bucket/t"), S3Store)
    assert isinstance(open_store("memory://t-of-location"), MemoryStore)
    assert open_store("memory://t-of-location").location == "memory://t-of-location"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endpoint": "http://x"}, "unknown storage option 'endpoint'; known are endpoint_url, region"),
        ({"conditional_put": "maybe"}, "conditional_put is 'maybe': give one of auto, true, false"),
        ({"path_style": "yes"}, "path_style is 'yes': give true or false"),
        ({"endpoint_url": "localhost:9000"}, "endpoint_url is 'localhost:9000'; it must be like"),
        ({"max_attempts": "0"}, "max_attempts is '0': give a whole number"),
        ({"azure_endpoint_url": "localhost:1"}, "azure_endpoint_url is 'localhost:1'; it must be like"),
    ],
)
@pytest.mark.parametrize("location", ["s3://bucket/t", "/data/t"])
def test_options_are_checked_whatever_the_store(location: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        open_store(location, options)


SECRET = "marked7c9e6679"


@pytest.mark.parametrize(
    "text",
    [
        f"x-amz-security-token:{SECRET}\n\nhost;x-amz-date",
        f"headers={{'X-Amz-Security-Token': b'{SECRET}', 'Host': b'h'}}",
        f"{{'X-Amz-Security-Token': '{SECRET}'}}",
        f"GET /?X-Amz-Security-Token={SECRET}&X-Amz-Date=1",
        f"<SessionToken>{SECRET}</SessionToken><SecretAccessKey>{SECRET}</SecretAccessKey>",
        f'{{"SecretAccessKey" : "{SECRET}", "SessionToken": "{SECRET}"}}',
        f"aws_secret_access_key={SECRET}",
        f"azure.sas_token\nsv=1&sig={SECRET}",
        f"azure.secret_key\ns{SECRET} and azure.client_secret\ns{SECRET}",
        f'http://host:1 "DELETE /c/x?sp=d&sig={SECRET}&sv=1 HTTP/1.1" 200',
    ],
)
def test_every_shape_a_secret_is_logged_in(text: str, caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("botocore.endpoint")
    redact_logs()
    with caplog.at_level(1):
        logger.debug("sent %s", text)
        logger.debug("sent " + text.replace("%", "%%"))  # noqa: G003
    assert SECRET not in caplog.text
    assert caplog.text.count("***") >= 2


def test_the_rest_of_a_record_stays(caplog: pytest.LogCaptureFixture) -> None:
    redact_logs()
    with caplog.at_level(1):
        logging.getLogger("botocore.endpoint").debug("sent %s", "{'X-Amz-Security-Token': b'secret', 'Host': b'h'}")
        logging.getLogger("botocore.auth").debug("Authorization: AWS4-HMAC-SHA256 Credential=a/b, Signature=c")
    assert "'Host': b'h'" in caplog.text
    assert "AWS4-HMAC-SHA256 Credential=a/b, Signature=c" in caplog.text


def test_a_request_with_a_session_token(s3_location: str, s3_options: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    options = {**s3_options, "session_token": f"token-{SECRET}"}
    with caplog.at_level(1):
        store = open_store(f"{s3_location}/redacted", options)
        store.put("a", b"b")
        assert store.get("a") == b"b"
    assert "x-amz-security-token:***" in caplog.text.lower(), "the request is logged, without it"
    assert SECRET not in caplog.text
