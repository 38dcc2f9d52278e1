"""Bodies of requests, and the types of their members."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from msgspec import UNSET

ApplicationType: TypeAlias = Literal["Native", "SPA", "Traditional", "MachineToMachine"]
TokenKind: TypeAlias = Literal["access-token", "client-credentials"]
RoleType: TypeAlias = Literal["User", "MachineToMachine"]
SearchField: TypeAlias = Literal["id", "externalId", "username", "primaryEmail", "primaryPhone", "name"]
FreeForm: TypeAlias = Mapping[str, Any]


def create_body(**members: object) -> dict[str, object]:
    """Return the body of a POST without the members that are None or unset."""
    return {name: value for name, value in members.items() if value is not UNSET and value is not None}


def flag(value: bool | None) -> str | None:
    """Return the value of a boolean query parameter; None leaves it out."""
    return None if value is None else str(value).lower()


def patch_body(**members: object) -> dict[str, object]:
    """Return the body of a PATCH without the unset members; None clears a member."""
    return {name: value for name, value in members.items() if value is not UNSET}
