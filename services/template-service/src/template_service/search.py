"""Replies to management-service, which asks on the bus for what a search finds here."""

from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from identity_common.bus.connection import Bus
from identity_common.bus.requests import Responder
from identity_common.stores.searching import Searched, search_objects
from identity_common.wire.search import SEARCH_TIMEOUT_S, SearchQuestion, SearchReply, search_subject
from template_service.answering import database_responder
from template_service.schema import organizations, permissions, roles

_WORDS: Final = ("name", "description")
OBJECTS: Final = (
    Searched(
        group="organizations",
        type="organization",
        table=organizations,
        words=_WORDS,
        detail=organizations.c.description,
        is_long=True,
    ),
    Searched(
        group="organizationRoles",
        type="organizationRole",
        table=roles,
        words=_WORDS,
        detail=roles.c.description,
    ),
    Searched(
        group="organizationPermissions",
        type="organizationPermission",
        table=permissions,
        words=_WORDS,
        detail=permissions.c.description,
    ),
)


def search_responder(bus: Bus, engine: AsyncEngine, *, tenant_id: str) -> Responder:
    """Return the responder to the requests of one tenant."""

    async def answer(connection: AsyncConnection, question: SearchQuestion) -> SearchReply:
        searched = tuple(each for each in OBJECTS if each.group in question.groups)
        return SearchReply(
            tuple(await search_objects(connection, searched, tenant_id, question.text, limit=question.limit))
        )

    return database_responder(
        bus,
        engine,
        search_subject(tenant_id),
        SearchQuestion,
        answer,
        unavailable=SearchReply(unavailable=True),
        name="search",
        timeout_s=SEARCH_TIMEOUT_S,
    )
