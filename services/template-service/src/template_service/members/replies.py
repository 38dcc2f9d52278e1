"""Replies to management-service, which asks on the bus for the members of an organization."""

from typing import Final

import msgspec
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.bus.connection import Bus
from identity_common.bus.requests import Responder
from identity_common.telemetry.logs import get_logger
from identity_common.wire.memberships import MEMBERS_IN_A_REPLY, MembersAnswer, MembersQuestion, members_subject
from template_service.members import store

_log = get_logger(__name__)

_decode: Final = msgspec.json.Decoder(MembersQuestion).decode
_encode: Final = msgspec.json.Encoder().encode


def member_responder(bus: Bus, reader: AsyncEngine, *, tenant_id: str) -> Responder:
    """Return the responder to the requests of one tenant."""

    async def reply(request: bytes, _: float) -> bytes:
        question = _decode(request)
        async with reader.connect() as connection:
            ids = await store.next_member_ids(
                connection,
                tenant_id,
                question.organization_id,
                question.member_type,
                after=question.after,
                limit=MEMBERS_IN_A_REPLY,
            )
        return _encode(MembersAnswer(tuple(ids)))

    return Responder(
        bus,
        members_subject(tenant_id),
        reply,
        unavailable=lambda _: _encode(MembersAnswer(unavailable=True)),
        name="members",
        log=_log,
        failed="members.unavailable",
        expected=(SQLAlchemyError, OSError, msgspec.DecodeError),
    )
