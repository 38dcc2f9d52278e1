"""The search: its results, and the request in which management-service asks template-service for its share.

A NATS request on a subject that belongs to no stream. Only management-service may send it, only template-service may
reply.
"""

from typing import Final, Literal, get_args

import msgspec

SearchGroupName = Literal[
    "users",
    "organizations",
    "applications",
    "resources",
    "roles",
    "permissions",
    "organizationRoles",
    "organizationPermissions",
    "impersonations",
    "logs",
]
"""The groups in the order of an answer; ``permissions`` are the scopes of API resources."""

SearchResultType = Literal[
    "user",
    "organization",
    "application",
    "resource",
    "role",
    "permission",
    "organizationRole",
    "organizationPermission",
    "impersonation",
    "log",
]

SEARCH_TIMEOUT_S: Final = 0.1
"""How long management-service waits for the reply, in seconds."""

GROUPS: Final[tuple[SearchGroupName, ...]] = get_args(SearchGroupName)


class SearchResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An object that was found.

    Attributes:
        type: What it is.
        id: Its id.
        name: Its name; of an impersonation, the ticket or else the reason, of an entry its key.
        detail: What tells it apart: an e-mail address, a description, a reason.
        resource_id: The resource of a permission.
        user_id: The subject of an impersonation.
        occurred_at: When an impersonation began or an entry was recorded, milliseconds since the epoch.
    """

    type: SearchResultType
    id: str
    name: str
    detail: str | None = None
    resource_id: str | None = None
    user_id: str | None = None
    occurred_at: int | None = None


class SearchGroup(msgspec.Struct, frozen=True, rename="camel"):
    """Results of a kind.

    Attributes:
        name: The kind.
        results: The best matches, at most as many as requested.
        has_more: Whether there are others.
    """

    name: SearchGroupName
    results: list[SearchResult]
    has_more: bool


class SearchQuestion(msgspec.Struct, frozen=True):
    """What template-service is to find.

    Attributes:
        text: The canonical text of the search.
        groups: The groups to search, of its own.
        limit: The most results in a group.
    """

    text: str
    groups: tuple[SearchGroupName, ...]
    limit: int


class SearchReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was found.

    Attributes:
        groups: One for each that was requested.
        unavailable: Whether the database did not answer in time, or too many searches waited.
    """

    groups: tuple[SearchGroup, ...] = ()
    unavailable: bool = False


def search_subject(tenant_id: str) -> str:
    """Return the subject of the request."""
    return f"identity-rpc.{tenant_id}.search"
