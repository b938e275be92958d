"""The meaning of kazoo's exceptions, by class name, so that only `session.py` has to import kazoo."""

from __future__ import annotations

from typing import Final

from ....storage.errors import AccessDenied, InvalidRequest, InvariantBroken, SluiceError
from ...errors import CoordinatorUnavailable, SessionLost
from ..store import BadVersion, NodeExists, NoNode, NotEmpty, ParentIsEphemeral, ReplyLost
from .trust import Line

MEANING: Final[dict[str, type[SluiceError]]] = {
    # Answers.
    "NoNodeError": NoNode,
    "NodeExistsError": NodeExists,
    "BadVersionError": BadVersion,
    "NotEmptyError": NotEmpty,
    "NoChildrenForEphemeralsError": ParentIsEphemeral,
    # No answer, or an answer that leaves the outcome open.
    "ConnectionLoss": ReplyLost,
    "ConnectionDropped": ReplyLost,
    "OperationTimeoutError": ReplyLost,
    "RequestTimeoutError": ReplyLost,
    "ThrottledOpError": ReplyLost,
    "SessionMovedError": ReplyLost,
    "CancelledError": ReplyLost,
    "NewConfigNoQuorumError": ReplyLost,
    "ReconfigInProcessError": ReplyLost,
    "SystemZookeeperError": ReplyLost,
    "DataInconsistency": ReplyLost,
    "KazooTimeoutError": ReplyLost,
    # The session is over.
    "SessionExpiredError": SessionLost,
    "ConnectionClosedError": SessionLost,
    "UnknownSessionError": SessionLost,
    "ZookeeperStoppedError": SessionLost,
    "WriterNotClosedException": SessionLost,
    "RuntimeError": SessionLost,
    # The ensemble denies this to these credentials, or to clients without any.
    "NoAuthError": AccessDenied,
    "AuthFailedError": AccessDenied,
    "InvalidACLError": AccessDenied,
    "SASLException": AccessDenied,
    "SessionClosedRequireSaslError": AccessDenied,
    # Denied to everybody.
    "QuotaExceededError": InvalidRequest,
    "BadArgumentsError": InvalidRequest,
    "MarshallingError": InvalidRequest,
    "UnimplementedError": InvalidRequest,
    "ConfigurationError": InvalidRequest,
    "NotReadOnlyCallError": InvalidRequest,
    "EphemeralOnLocalSessionError": InvalidRequest,
    "ReconfigDisabledError": InvalidRequest,
    # Part of the answer to a refused multi, or impossible for the requests made here.
    "RolledBackError": InvariantBroken,
    "RuntimeInconsistency": InvariantBroken,
    "APIError": InvariantBroken,
    "InvalidCallbackError": InvariantBroken,
    "NoWatcherError": InvariantBroken,
    "LockTimeout": InvariantBroken,
}
"""Kazoo's exceptions by class name."""


WHERE: Final = "SLUICE_ZOOKEEPER_USER and SLUICE_ZOOKEEPER_PASSWORD, or credentials= and cert= in the address"
"""Where credentials come from."""

_DENIED: Final = f"compare {WHERE} with those of the table's other writers"


def is_refusal(result: Exception) -> bool:
    """Whether this operation caused the refusal of a multi, rather than failing along with it."""
    return type(result).__name__ not in ("RolledBackError", "RuntimeInconsistency")


def translate(error: Exception, about: str, who: str = "this client") -> SluiceError:
    """Our error for one of kazoo's; `about` is its path or request, `who` this client."""
    name = type(error).__name__
    meaning = MEANING[name]
    message = f"{about}: ZooKeeper answers {name} {error}".rstrip()
    if meaning is AccessDenied:
        message = f"{about} is denied to {who} ({name}): {_DENIED}"
    return meaning(message, about=about, path=about)


def no_answer(hosts: str, waited_s: float, line: Line | None) -> SluiceError:
    """The error for a first connection that failed: AccessDenied if one side of TLS refused for good, otherwise it may pass."""
    if line is not None and line.refused:
        return AccessDenied(
            f"no TLS connection with ZooKeeper at {hosts}: {line.refused}; check ca= (who signed the server's certificate), cert= and key= "
            "(this client's), and that the port is the one for TLS",
            hosts=hosts,
        )
    return CoordinatorUnavailable(
        f"no ZooKeeper server answered at {hosts} within {waited_s:g} s: check the address, and that the server runs and can be reached "
        f"from here{_at_last(line)}",
        hosts=hosts,
        waited_s=waited_s,
    )


def unavailable(hosts: str, waited_s: float, what: str, line: Line | None) -> CoordinatorUnavailable:
    """The error of a verb that waited too long for a connection."""
    return CoordinatorUnavailable(
        f"ZooKeeper at {hosts} could not be reached for {waited_s:g} s ({what}): check that a majority of its servers runs and can be "
        f"reached from here, then try again; staged data are not lost{_at_last(line)}",
        hosts=hosts,
        waited_s=waited_s,
    )


def _at_last(line: Line | None) -> str:
    return f" (at last: {line.trouble})" if line is not None and line.trouble else ""
