"""Replies to management-service, which asks on the bus which organizations have a name."""

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from identity_common.bus.connection import Bus
from identity_common.bus.requests import Responder
from identity_common.wire.organization_names import (
    MOST_ALIKE,
    NAMES_TIMEOUT_S,
    OrganizationsAnswer,
    OrganizationsQuestion,
    organization_names_subject,
)
from template_service.answering import database_responder
from template_service.organizations import store


def organization_name_responder(bus: Bus, engine: AsyncEngine, *, tenant_id: str) -> Responder:
    """Return the responder to the requests of one tenant."""

    async def answer(connection: AsyncConnection, question: OrganizationsQuestion) -> OrganizationsAnswer:
        ids = await store.ids_called(connection, tenant_id, question.text, limit=MOST_ALIKE)
        return OrganizationsAnswer(tuple(ids))

    return database_responder(
        bus,
        engine,
        organization_names_subject(tenant_id),
        OrganizationsQuestion,
        answer,
        unavailable=OrganizationsAnswer(unavailable=True),
        name="organization-names",
        timeout_s=NAMES_TIMEOUT_S,
    )
