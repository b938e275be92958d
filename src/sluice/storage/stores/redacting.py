"""Keeps credentials out of what libraries log at level DEBUG.

botocore writes whole requests, session tokens among their headers; py4j writes every call of Spark's, options among its arguments.
"""

from __future__ import annotations

import logging
import re
from typing import Final

__all__ = ["redact_logs"]

_LIBRARIES: Final = ("botocore", "boto3", "urllib3", "s3transfer", "py4j")
# A header as a signed request and as a dictionary show it, an option as py4j sends it (on two lines), what a credentials service answers.
_SECRETS: Final = re.compile(
    r"""(?P<name>x-amz-security-token|x-amz-s3session-token|session_?token|secret_?access_?key|x-aws-ec2-metadata-token"""
    r"""|authorizationtoken|authorization)(?P<between>["']?\s*[:=>]\s*b?["']?|%3D|=|\ns)(?P<value>[^\s"'&<,}]+)""",
    re.IGNORECASE,
)
_SIGNATURE: Final = re.compile(r"AWS4-HMAC-SHA256\b")


class _Redacting(logging.Filter):
    """Replaces secrets in a record's text; drops nothing."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Always true; the record may be another one afterwards."""
        text = record.getMessage()
        clean = _SECRETS.sub(_hidden, text)
        if clean != text:
            record.msg, record.args = clean, None
        return True


def _hidden(found: re.Match[str]) -> str:
    if _SIGNATURE.match(found["value"]):  # the algorithm's name; what follows is a signature, which is no credential
        return found[0]
    return f"{found['name']}{found['between']}***"


_filter: Final = _Redacting()


def redact_logs() -> None:
    """See to it that no record of the loggers of botocore, of what it uses, and of py4j shows a credential. Cheap to call again."""
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and name.partition(".")[0] in _LIBRARIES:
            logger.addFilter(_filter)
