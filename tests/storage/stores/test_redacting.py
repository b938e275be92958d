"""What botocore logs at its lowest level shows no credential, wherever the credential comes from."""

from __future__ import annotations

import logging

import pytest

from sluice.storage.stores.location import open_store
from sluice.storage.stores.storage_options import redact_logs

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
