"""What the operations are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import httpx
from msgspec import UNSET

from stead._http import Request, Steps, decode, json_request, require_success, unexpected_answer
from stead.models import HeldPermissions, OrganizationPermission

ApplicationType: TypeAlias = Literal["Native", "SPA", "Traditional", "MachineToMachine"]
RoleType: TypeAlias = Literal["User", "MachineToMachine"]
FreeForm: TypeAlias = Mapping[str, Any]

_MAX_WAIT_S: Final = 20


def given(**members: object) -> dict[str, object]:
    """Return a body without the members that nobody gave."""
    return {name: value for name, value in members.items() if value is not UNSET and value is not None}


def changed(**members: object) -> dict[str, object]:
    """Return the body of a PATCH: absent keeps, None clears."""
    return {name: value for name, value in members.items() if value is not UNSET}


def carry_out(method: str, path: str, body: object = None) -> Steps[None]:
    """Send a change of which nothing is read but that it was done."""
    require_success((yield json_request(method, path, body)))


def held_permissions(path: str, known: HeldPermissions | None, wait_s: int) -> Steps[HeldPermissions]:
    """Read what a member may do; with what is known of it, wait for something else."""
    headers: dict[str, str] = {}
    held_s = 0
    if known is not None:
        headers["If-None-Match"] = known.etag
        held_s = min(max(wait_s, 0), _MAX_WAIT_S)
    if held_s:
        headers["Prefer"] = f"wait={held_s}"
    answer = yield Request(method="GET", path=path, headers=headers, held_s=held_s)
    if known is not None and answer.status_code == httpx.codes.NOT_MODIFIED:
        return known
    permissions = decode(answer, list[OrganizationPermission])
    if not answer.headers.get("ETag"):
        raise unexpected_answer("the answer has no entity tag", answer)
    return HeldPermissions(permissions=tuple(permissions), etag=answer.headers["ETag"])
