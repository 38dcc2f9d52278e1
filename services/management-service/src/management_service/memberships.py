"""Asks template-service, which owns memberships, for the members of an organization, by request on the bus."""

import asyncio
from typing import Final

import msgspec
from nats.errors import Error as NatsError

from identity_common.bus.connection import Bus
from identity_common.bus.requests import ask
from identity_common.failures import Conflict, TemporarilyUnavailable
from identity_common.telemetry.logs import get_logger
from identity_common.wire.memberships import (
    MEMBERS_IN_A_REPLY,
    MEMBERS_TIMEOUT_S,
    MembersAnswer,
    MembersQuestion,
    members_subject,
)
from stead.event_types import MemberType

_log = get_logger(__name__)

MAX_MEMBERS: Final = 200_000
"""Most members that can be excluded from a list: their ids are sent to the database with each page."""

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(MembersAnswer).decode


def _too_many_members() -> Conflict:
    message = (
        f"The organization has more than {MAX_MEMBERS} members. List its members with"
        " GET /api/organizations/{id}/users or GET /api/organizations/{id}/applications, and leave them out yourself."
    )
    return Conflict("organization.too_many_members", message)


class Memberships:
    """The members of organizations.

    The replies come from template-service's own tables, so they include every change that it has acknowledged.
    """

    def __init__(self, bus: Bus, *, tenant_id: str) -> None:
        self._bus = bus
        self._subject = members_subject(tenant_id)

    async def members(self, organization_id: str | None, member_type: MemberType) -> list[str]:
        """Return the ids of an organization's members of a type; empty if the organization is unknown or None.

        Raises:
            Conflict: There are more than ``MAX_MEMBERS``.
            TemporarilyUnavailable: template-service does not answer.
        """
        if organization_id is None:
            return []
        try:
            async with asyncio.timeout(MEMBERS_TIMEOUT_S):
                return await self._all(organization_id, member_type)
        except (NatsError, OSError, TimeoutError, msgspec.DecodeError) as error:
            _log.warning("members.unavailable", error=type(error).__name__)
            raise TemporarilyUnavailable from None

    async def _all(self, organization_id: str, member_type: MemberType) -> list[str]:
        found: list[str] = []
        while len(found) <= MAX_MEMBERS:
            ids = await self._after(MembersQuestion(organization_id, member_type, found[-1] if found else ""))
            found += ids
            if len(ids) < MEMBERS_IN_A_REPLY:
                break
        if len(found) > MAX_MEMBERS:
            raise _too_many_members()
        return found

    async def _after(self, question: MembersQuestion) -> tuple[str, ...]:
        if not self._bus.is_connected:
            raise TemporarilyUnavailable
        answer = _decode(
            await ask(self._bus, self._subject, _encode(question), name="members", timeout_s=MEMBERS_TIMEOUT_S)
        )
        if answer.unavailable:
            raise TemporarilyUnavailable
        return answer.ids
