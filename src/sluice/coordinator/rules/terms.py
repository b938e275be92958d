"""On what terms an operation commits: said once, by its caller, and handed on unchanged until others read them in its intent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...storage.arguments import RULES
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest
from ..limits import DEFAULT_TIMEOUT_S

if TYPE_CHECKING:
    from ..service.clock import Timeout

NOTHING_YET: Final = -1
"""The `if_version` of what creates a table: there is no version before it."""


@dataclass(frozen=True, slots=True)
class Terms:
    """On what terms an operation commits. Its caller says them once; they travel unchanged until an intent copies what others must see."""

    isolation: str | None = None
    """A level that is stricter than the table's; None: the table's."""
    once: tuple[str, int] | None = None
    """The application's transaction (id, number), by which the operation happens once; a key is one of these, too."""
    read_version: int | None = None
    """The version from which the caller computed the rows, so that the operation depends on it; None: the caller named none."""
    if_version: int | None = None
    """The version that the commit must follow as the very next one; None: any may come in between."""
    user_metadata: str | None = None
    """A text of the caller's for the history (Delta's `userMetadata`)."""
    ack: str = "published"
    """When the commit is acknowledged: "published" (any engine reads it) or "ratified" (decided for good)."""
    timeout_s: Timeout = DEFAULT_TIMEOUT_S
    """How long each of the operation's calls may take."""

    def __post_init__(self) -> None:
        """Raises InvalidRequest for terms that contradict, or that no commit can have."""
        for name, value in (("transaction", self.once), ("user_metadata", self.user_metadata)):
            if value is not None:
                RULES[name].check(name, value)
        if None not in (self.read_version, self.if_version) and self.read_version != self.if_version:
            raise InvalidRequest(
                f"read_version={self.read_version} and if_version={self.if_version} were given; give one of them, or the same version"
            )

    @property
    def version(self) -> int | None:
        """The version that the operation works on; None: the latest one."""
        return self.read_version if self.if_version is None else self.if_version
