"""Replies to management-service, which asks on the bus for what a search finds here."""

from typing import Final

import msgspec
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.bus.connection import Bus
from identity_common.bus.requests import Responder
from identity_common.stores.searching import Searched, search_objects
from identity_common.telemetry.logs import get_logger
from identity_common.wire.search import SearchQuestion, SearchReply, search_subject
from template_service.schema import organizations, permissions, roles

_log = get_logger(__name__)

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

_decode: Final = msgspec.json.Decoder(SearchQuestion).decode
_encode: Final = msgspec.json.Encoder().encode


def search_responder(bus: Bus, reader: AsyncEngine, *, tenant_id: str) -> Responder:
    """Return the responder to the requests of one tenant."""

    async def reply(request: bytes, _: float) -> bytes:
        question = _decode(request)
        searched = tuple(each for each in OBJECTS if each.group in question.groups)
        async with reader.connect() as connection:
            groups = await search_objects(connection, searched, tenant_id, question.text, limit=question.limit)
        return _encode(SearchReply(tuple(groups)))

    return Responder(
        bus,
        search_subject(tenant_id),
        reply,
        unavailable=lambda _: _encode(SearchReply(unavailable=True)),
        name="search",
        log=_log,
        failed="search.unavailable",
        expected=(SQLAlchemyError, OSError, msgspec.DecodeError),
    )
