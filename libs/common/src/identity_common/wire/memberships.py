"""The request in which management-service asks template-service for the members of an organization.

A NATS request on a subject that belongs to no stream. Only management-service may send it, only template-service may
reply. Ids only, a page at a time: a message of the bus has at most 1 MiB.
"""

from typing import Final

import msgspec

from stead.event_types import MemberType

MEMBERS_TIMEOUT_S: Final = 4.0
"""How long management-service waits for all replies together, in seconds."""

MEMBERS_IN_A_REPLY: Final = 20_000
"""Ids in a full reply, of at most 21 characters each: less than 512 KiB."""


def members_subject(tenant_id: str) -> str:
    """Return the subject of the request."""
    return f"identity-rpc.{tenant_id}.members"


class MembersQuestion(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which ids to return.

    Attributes:
        organization_id: The organization; an unknown one has no members.
        member_type: Users or applications.
        after: The last id of the reply before; empty for the first reply.
    """

    organization_id: str
    member_type: MemberType
    after: str = ""


class MembersAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Members as they are at the moment of the reply.

    Attributes:
        ids: The next members in the order of their ids, at most ``MEMBERS_IN_A_REPLY``; fewer if these are the last.
        unavailable: Whether the database does not answer; try again later.
    """

    ids: tuple[str, ...] = ()
    unavailable: bool = False
