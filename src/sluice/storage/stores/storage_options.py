"""The options of object stores, parsed from texts and completed from the environment; and a filter that keeps credentials out of logs.

At level DEBUG botocore logs whole requests, whose headers include session tokens, and urllib3 logs addresses, which may be signed;
py4j logs every call to Spark, whose arguments include options.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from dataclasses import field, fields, replace
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from ..arguments import RULES
from ..dataclass import dataclass
from ..errors import InvalidRequest

_LIBRARIES: Final = ("botocore", "boto3", "urllib3", "s3transfer", "py4j")
# A header in a signed request or a dictionary, an option as py4j sends it (on two lines), the answer of a credentials
# service.
_SECRETS: Final = re.compile(
    r"""(?P<name>x-amz-security-token|x-amz-s3session-token|session_?token|secret_?access_?key|x-aws-ec2-metadata-token"""
    r"""|secret_?key|sas_?token|\bsig|client_?secret|authorizationtoken|authorization)(?P<between>["']?\s*[:=>]\s*b?["']?|%3D|=|\ns)(?P<value>[^\s"'&<,}]+)""",
    re.IGNORECASE,
)
_SIGNATURE: Final = re.compile(r"AWS4-HMAC-SHA256\b")


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """The options of `open_store`, for all stores: one set serves a whole job. None: from the environment, as the store's library does."""

    endpoint_url: str | None = None
    """Where S3 is."""
    region: str | None = None
    """The region of S3's bucket."""
    path_style: bool | None = None
    """Whether the bucket is in the path instead of the host name; None: if an endpoint is given."""
    conditional_put: Literal["auto", "true", "false"] = "auto"
    """Whether S3 has conditional PUT, see `s3.py`."""
    access_key_id: str | None = field(default=None, repr=False)
    """The id of the key for S3."""
    secret_access_key: str | None = field(default=None, repr=False)
    """The secret of the key for S3."""
    session_token: str | None = field(default=None, repr=False)
    """The token that belongs to temporary keys for S3."""
    max_attempts: int = 6
    """How often a request is sent before the store gives up."""
    azure_secret_key: str | None = field(default=None, repr=False)
    """A key of the Azure storage account."""
    azure_sas_token: str | None = field(default=None, repr=False)
    """A shared access signature for the Azure container."""
    azure_client_id: str | None = None
    """The application that logs in to Microsoft Entra."""
    azure_client_secret: str | None = field(default=None, repr=False)
    """The application's secret."""
    azure_tenant_id: str | None = None
    """The application's directory."""
    azure_endpoint_url: str | None = None
    """Where the Azure storage account is, if not at its name below `blob.core.windows.net`."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> StorageOptions:
        """The options from their texts. Raises InvalidRequest, naming the option and its allowed values."""
        known = [one.name for one in fields(cls)]
        values: dict[str, Any] = {}
        for name, text in options.items():
            if name not in known:
                raise InvalidRequest(f"unknown storage option {name!r}; known are {', '.join(known)}", option=name)
            values[name] = text = str(text)
            if name in ("path_style", "conditional_put", "max_attempts"):
                values[name] = RULES[name].of_text(f"storage option {name}", text, option=name)
            elif name.endswith("endpoint_url"):
                parts, option = urlsplit(text), f"storage option {name}"
                if "@" in parts.netloc:  # not shown: it may be a secret
                    raise InvalidRequest(f"{option} carries credentials before an '@'; give them as options of their own", option=name)
                if parts.scheme not in ("http", "https") or not parts.netloc:
                    raise InvalidRequest(f"{option} is {text!r}; it must be like https://host:port", option=name)
                values[name] = text.rstrip("/")
        return cls(**values)

    def resolved(self) -> StorageOptions:
        """With endpoint and region from the environment if they are not given."""
        endpoint = self.endpoint_url or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None
        return replace(self, endpoint_url=endpoint, region=self.region or os.environ.get("AWS_REGION") or None)


def _redacted(record: logging.LogRecord) -> bool:
    """A filter of loggers that replaces secrets in a record's text, and drops no record."""
    text = record.getMessage()
    if (clean := _SECRETS.sub(_hidden, text)) != text:
        record.msg, record.args = clean, None
    return True


def _hidden(found: re.Match[str]) -> str:
    if _SIGNATURE.match(found["value"]):  # the algorithm's name, followed by a signature, which is not a credential
        return found[0]
    return f"{found['name']}{found['between']}***"


def redact_logs() -> None:
    """Keep credentials out of the log records of the stores' libraries, and of py4j. Cheap to call again."""
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and name.partition(".")[0] in _LIBRARIES:
            logger.addFilter(_redacted)
