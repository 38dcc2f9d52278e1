"""The request in which management-service asks template-service which organizations have a name.

A NATS request on a subject that belongs to no stream. Only management-service may send it, only template-service may
reply.
"""

from typing import Final

import msgspec

NAMES_TIMEOUT_S: Final = 4.0
"""How long management-service waits for the reply, in seconds."""

MOST_ALIKE: Final = 11
"""Ids in a reply at most: names of organizations are not unique."""


def organization_names_subject(tenant_id: str) -> str:
    """Return the subject of the request."""
    return f"identity-rpc.{tenant_id}.organization-names"


class OrganizationsQuestion(msgspec.Struct, frozen=True):
    """The id of an organization, or the name of any number of them.

    Attributes:
        text: Compared with ids as it is, and with names in its canonical form; case matters.
    """

    text: str


class OrganizationsAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Organizations as they are at the moment of the reply.

    Attributes:
        ids: The organization with this id, or else those with this name, at most ``MOST_ALIKE``.
        unavailable: Whether the database does not answer; try again later.
    """

    ids: tuple[str, ...] = ()
    unavailable: bool = False
