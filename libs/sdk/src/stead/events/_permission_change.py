"""A change of a member's permissions: as an event says it, and as it is handed on."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Final

import msgspec

from stead.event_types import CloudEvent, GrantedPermission, MemberType, permission_order
from stead.events._decoding import decode_state
from stead.events._member_snapshots import MemberSnapshot

KIND: Final = "member-permissions"
REPUBLISHED: Final = "republished"
"""The cause of an event that was sent again after the stream was lost: it says what is held, and not what changed."""

_log = logging.getLogger("stead.events")


class DecodedPermissions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``MemberPermissionsState`` as it is heard: a newer service may know more causes."""

    organization_id: str
    member_id: str
    member_type: MemberType
    version: int
    cause: str
    added: tuple[GrantedPermission, ...] = ()
    removed: tuple[GrantedPermission, ...] = ()
    permissions: tuple[GrantedPermission, ...] = ()
    incomplete: bool = False


class PermissionChange(msgspec.Struct, frozen=True, kw_only=True):
    """The permissions of one member are not what they were.

    Attributes:
        organization_id: Of which organization.
        member_id: A user's id or an application's.
        member_type: ``user`` or ``application``.
        version: The member's own; grows by exactly 1.
        cause: ``assignment``, ``role-changed``, ``role-deleted``, ``permission-changed``, ``permission-deleted``,
            ``member-removed``, ``organization-deleted``, ``republished``; there may come to be others.
        added: What the member did not hold before. Sorted by name, then resource.
        removed: What it does not hold any more. Where the cause is ``republished``, which happens after the stream was
            lost, both are against what was heard before, and empty if nothing was.
        permissions: Everything that it holds now; empty when it is no member any more.
        missed: How many of the member's versions were not heard before this one. ``added`` and ``removed`` then are
            against what was heard last, and ``permissions`` is what holds now.
        healed: Something was missing, and the organization permissions were read from the Management API instead:
            they are those of the moment, perhaps newer than ``version``. Those of API resources are the event's.
        incomplete: The lists were too long for an event, and the permissions of API resources are not known; without
            ``healed`` none are.
        revision: Of template-service, as in ``Identity-Revision``.
        time: When the change was made.
    """

    organization_id: str
    member_id: str
    member_type: MemberType
    version: int
    cause: str
    added: tuple[GrantedPermission, ...]
    removed: tuple[GrantedPermission, ...]
    permissions: tuple[GrantedPermission, ...]
    missed: int = 0
    healed: bool = False
    incomplete: bool = False
    revision: int
    time: datetime


def decode_permissions(event: CloudEvent) -> DecodedPermissions | None:
    """Return what an event says of its member; none if it cannot be read."""
    state = decode_state(event, DecodedPermissions)
    if state is not None and event.subject != f"{state.organization_id}/{state.member_id}":
        _log.error("left out event %s, which speaks of another member than it says", event.id)
        return None
    return state


def change_from(event: CloudEvent, state: DecodedPermissions, seen: MemberSnapshot | None) -> PermissionChange:
    """Return what an event says of a member, compared with what was heard before."""
    change = PermissionChange(
        **{name: getattr(state, name) for name in state.__struct_fields__},
        missed=0 if seen is None else state.version - seen.version - 1,
        revision=event.revision,
        time=datetime.fromisoformat(event.time),
    )
    return diffed_against(change, seen) if change.missed or change.cause == REPUBLISHED else change


def diffed_against(change: PermissionChange, seen: MemberSnapshot | None) -> PermissionChange:
    """Return the change with what it adds and removes against what was heard last."""
    if seen is None or seen.permissions is None or change.incomplete != seen.incomplete:
        return change
    before, now = set(seen.permissions), set(change.permissions)
    return msgspec.structs.replace(
        change,
        added=tuple(sorted(now - before, key=permission_order)),
        removed=tuple(sorted(before - now, key=permission_order)),
    )


def snapshot_of(state: DecodedPermissions | PermissionChange) -> MemberSnapshot:
    """Return what is known of a member after this."""
    told = not state.incomplete or (isinstance(state, PermissionChange) and state.healed)
    return MemberSnapshot(state.version, state.permissions if told else None, state.incomplete)
