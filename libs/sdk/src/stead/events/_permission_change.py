"""Changes of a member's permissions: decodes them from events, and compares them with the last known state."""

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
"""The cause of events that were republished after the stream was lost: they carry the state, not a change."""

_log = logging.getLogger("stead.events")


class DecodedPermissions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``MemberPermissionsState`` as received: a newer service may send more causes."""

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
    """A change of one member's permissions.

    Attributes:
        organization_id: The organization.
        member_id: The id of a user or an application.
        member_type: ``user`` or ``application``.
        version: Per member; increases by exactly 1.
        cause: ``assignment``, ``role-changed``, ``role-deleted``, ``permission-changed``, ``permission-deleted``,
            ``member-removed``, ``organization-deleted`` or ``republished``. Newer services may send others.
        added: Permissions gained, sorted by name, then resource.
        removed: Permissions lost. If the cause is ``republished``, which happens after the stream was lost, both are
            relative to the last state seen, and empty if there was none.
        permissions: All current permissions; empty after removal.
        missed: Number of versions missed before this one. If not 0, ``added`` and ``removed`` are relative to the last
            state seen.
        healed: The event had gaps, so the organization permissions were read from the Management API. They may be newer
            than ``version``. The permissions of API resources are the event's.
        incomplete: The lists exceeded the size of an event: permissions of API resources are unknown, and without
            ``healed`` all are.
        revision: The revision of template-service, as in ``Identity-Revision``.
        time: Time of the change.
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
    """Decode the permissions in an event; None if they are invalid."""
    state = decode_state(event, DecodedPermissions)
    if state is not None and event.subject != f"{state.organization_id}/{state.member_id}":
        _log.error("ignored event %s: subject and data name different members", event.id)
        return None
    return state


def change_from(event: CloudEvent, state: DecodedPermissions, seen: MemberSnapshot | None) -> PermissionChange:
    """Return the change from the last known state to an event's."""
    change = PermissionChange(
        **{name: getattr(state, name) for name in state.__struct_fields__},
        missed=0 if seen is None else state.version - seen.version - 1,
        revision=event.revision,
        time=datetime.fromisoformat(event.time),
    )
    return diffed_against(change, seen) if change.missed or change.cause == REPUBLISHED else change


def diffed_against(change: PermissionChange, seen: MemberSnapshot | None) -> PermissionChange:
    """Return the change with ``added`` and ``removed`` relative to the last known state."""
    if seen is None or seen.permissions is None or change.incomplete != seen.incomplete:
        return change
    before, now = set(seen.permissions), set(change.permissions)
    return msgspec.structs.replace(
        change,
        added=tuple(sorted(now - before, key=permission_order)),
        removed=tuple(sorted(before - now, key=permission_order)),
    )


def snapshot_of(state: DecodedPermissions | PermissionChange) -> MemberSnapshot:
    """Return a member's state after an event or a change."""
    is_known = not state.incomplete or (isinstance(state, PermissionChange) and state.healed)
    return MemberSnapshot(state.version, state.permissions if is_known else None, state.incomplete)
