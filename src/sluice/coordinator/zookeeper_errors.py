"""What each exception of kazoo means here, by class name, so that only `zookeeper.py` has to import kazoo."""

from __future__ import annotations

from typing import Final

from ..storage.errors import InvalidRequest, InvariantBroken, SluiceError
from .errors import SessionLost
from .store import BadVersion, NodeExists, NoNode, NotEmpty, ParentIsEphemeral, ReplyLost

__all__ = ["MEANING", "translate"]

MEANING: Final[dict[str, type[SluiceError]]] = {
    # Answers.
    "NoNodeError": NoNode,
    "NodeExistsError": NodeExists,
    "BadVersionError": BadVersion,
    "NotEmptyError": NotEmpty,
    "NoChildrenForEphemeralsError": ParentIsEphemeral,
    # No answer, or one that leaves open what happened.
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
    # The ensemble does not allow it.
    "NoAuthError": InvalidRequest,
    "AuthFailedError": InvalidRequest,
    "InvalidACLError": InvalidRequest,
    "SASLException": InvalidRequest,
    "SessionClosedRequireSaslError": InvalidRequest,
    "QuotaExceededError": InvalidRequest,
    "BadArgumentsError": InvalidRequest,
    "MarshallingError": InvalidRequest,
    "UnimplementedError": InvalidRequest,
    "ConfigurationError": InvalidRequest,
    "NotReadOnlyCallError": InvalidRequest,
    "EphemeralOnLocalSessionError": InvalidRequest,
    "ReconfigDisabledError": InvalidRequest,
    # Part of the answer to a refused multi, or not to be had from what is asked here.
    "RolledBackError": InvariantBroken,
    "RuntimeInconsistency": InvariantBroken,
    "APIError": InvariantBroken,
    "InvalidCallbackError": InvariantBroken,
    "NoWatcherError": InvariantBroken,
    "LockTimeout": InvariantBroken,
}
"""Kazoo's exceptions by class name."""


def translate(error: Exception, about: str) -> SluiceError:
    """Our error for one of kazoo's; `about` is the path or the request it belongs to."""
    name = type(error).__name__
    return MEANING[name](f"{about}: ZooKeeper answers {name} {error}".rstrip(), about=about)
