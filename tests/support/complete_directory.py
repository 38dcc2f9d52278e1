"""A directory in Redis that is complete, and what a take requires of it at least: for takes without token-service."""

from typing import Final

import msgspec

from token_service.directory import Requirement
from token_service.directory.projection import ProjectionState

COMPLETE: Final = msgspec.json.encode(ProjectionState(complete=True, heard_at=0, revisions={"management": 0}))
REQUIRED: Final = Requirement(checked=0, heard_since=0, at_least={})
