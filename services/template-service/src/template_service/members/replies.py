"""Replies to management-service, which asks on the bus for the members of an organization."""

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from identity_common.bus.connection import Bus
from identity_common.bus.requests import Responder
from identity_common.wire.memberships import (
    MEMBERS_IN_A_REPLY,
    MEMBERS_TIMEOUT_S,
    MembersAnswer,
    MembersQuestion,
    members_subject,
)
from template_service.answering import database_responder
from template_service.members import store


def member_responder(bus: Bus, engine: AsyncEngine, *, tenant_id: str) -> Responder:
    """Return the responder to the requests of one tenant."""

    async def answer(connection: AsyncConnection, question: MembersQuestion) -> MembersAnswer:
        ids = await store.next_member_ids(
            connection,
            tenant_id,
            question.organization_id,
            question.member_type,
            after=question.after,
            limit=MEMBERS_IN_A_REPLY,
        )
        return MembersAnswer(tuple(ids))

    return database_responder(
        bus,
        engine,
        members_subject(tenant_id),
        MembersQuestion,
        answer,
        unavailable=MembersAnswer(unavailable=True),
        name="members",
        timeout_s=MEMBERS_TIMEOUT_S,
    )
