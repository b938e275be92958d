"""The meaning of kazoo's exceptions, by class name, so that only `session.py` has to import kazoo."""

from __future__ import annotations

from typing import Final

from ....storage.errors import AccessDenied, InvalidRequest, InvariantBroken, SluiceError
from ...errors import CoordinatorUnavailable, SessionLost
from ..store import BadVersion, NodeExists, NoNode, NotEmpty, ParentIsEphemeral, ReplyLost
from .trust import Line

_NAMES: Final[dict[type[SluiceError], str]] = {
    # Answers.
    NoNode: "NoNodeError",
    NodeExists: "NodeExistsError",
    BadVersion: "BadVersionError",
    NotEmpty: "NotEmptyError",
    ParentIsEphemeral: "NoChildrenForEphemeralsError",
    # No answer, or an answer that leaves the outcome open.
    ReplyLost: "ConnectionLoss ConnectionDropped OperationTimeoutError RequestTimeoutError ThrottledOpError SessionMovedError "
    "CancelledError NewConfigNoQuorumError ReconfigInProcessError SystemZookeeperError DataInconsistency KazooTimeoutError",
    # The session is over.
    SessionLost: "SessionExpiredError ConnectionClosedError UnknownSessionError ZookeeperStoppedError WriterNotClosedException "
    "RuntimeError",
    # The ensemble denies this to these credentials, or to clients without any.
    AccessDenied: "NoAuthError AuthFailedError InvalidACLError SASLException SessionClosedRequireSaslError",
    # Denied to everybody.
    InvalidRequest: "QuotaExceededError BadArgumentsError MarshallingError UnimplementedError ConfigurationError NotReadOnlyCallError "
    "EphemeralOnLocalSessionError ReconfigDisabledError",
    # Part of the answer to a refused multi, or impossible for the requests made here.
    InvariantBroken: "RolledBackError RuntimeInconsistency APIError InvalidCallbackError NoWatcherError LockTimeout",
}
MEANING: Final = {name: meaning for meaning, names in _NAMES.items() for name in names.split()}
"""What kazoo's exceptions mean, by class name."""

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
