"""Keeps credentials out of what libraries log at level DEBUG.

botocore logs whole requests, whose headers include session tokens; py4j logs every call to Spark, whose arguments include
options.
"""

from __future__ import annotations

import logging
import re
from typing import Final

__all__ = ["redact_logs"]

_LIBRARIES: Final = ("botocore", "boto3", "urllib3", "s3transfer", "py4j")
# A header in a signed request or a dictionary, an option as py4j sends it (on two lines), the answer of a credentials
# service.
_SECRETS: Final = re.compile(
    r"""(?P<name>x-amz-security-token|x-amz-s3session-token|session_?token|secret_?access_?key|x-aws-ec2-metadata-token"""
    r"""|authorizationtoken|authorization)(?P<between>["']?\s*[:=>]\s*b?["']?|%3D|=|\ns)(?P<value>[^\s"'&<,}]+)""",
    re.IGNORECASE,
)
_SIGNATURE: Final = re.compile(r"AWS4-HMAC-SHA256\b")


class _Redacting(logging.Filter):
    """Replaces secrets in a record's text; drops no record."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Always true; it may change the record."""
        text = record.getMessage()
        clean = _SECRETS.sub(_hidden, text)
        if clean != text:
            record.msg, record.args = clean, None
        return True


def _hidden(found: re.Match[str]) -> str:
    if _SIGNATURE.match(found["value"]):  # the algorithm's name, followed by a signature, which is not a credential
        return found[0]
    return f"{found['name']}{found['between']}***"


_filter: Final = _Redacting()


def redact_logs() -> None:
    """Keep credentials out of the log records of botocore, its dependencies, and py4j. Cheap to call again."""
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and name.partition(".")[0] in _LIBRARIES:
            logger.addFilter(_filter)
