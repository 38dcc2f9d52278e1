"""What a search finds."""

from __future__ import annotations

import msgspec


class SearchResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An object that was found.

    Attributes:
        type: What it is: ``user``, ``organization``, ``application``, ``resource``, ``role``, ``permission`` (the scope
            of a resource), ``organizationRole``, ``organizationPermission``, ``impersonation`` or ``log`` (an entry of
            the audit trail).
        id: Its id.
        name: Its name; of an impersonation, the ticket or else the reason, of an entry its key.
        detail: What tells it apart: an e-mail address, a description, a reason.
        resource_id: The resource of a permission.
        user_id: The subject of an impersonation.
        occurred_at: When an impersonation began or an entry was recorded; milliseconds since the epoch.
    """

    type: str
    id: str
    name: str
    detail: str | None = None
    resource_id: str | None = None
    user_id: str | None = None
    occurred_at: int | None = None


class SearchGroup(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Results of a kind.

    Attributes:
        name: The kind, such as ``users`` or ``organizationRoles``.
        results: The best matches.
        has_more: Whether there are others.
    """

    name: str
    results: list[SearchResult]
    has_more: bool


class SearchAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a search has found.

    Attributes:
        groups: Those with results; that of the object with this very id is the first.
        incomplete: Names of the groups that could not be searched in time: they may have results.
    """

    groups: list[SearchGroup]
    incomplete: list[str]
