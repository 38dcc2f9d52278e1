"""Replies to management-service, which asks on the bus which organizations have a name."""

from typing import Final

import msgspec
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.bus.connection import Bus
from identity_common.bus.requests import Responder
from identity_common.telemetry.logs import get_logger
from identity_common.wire.organization_names import (
    MOST_ALIKE,
    OrganizationsAnswer,
    OrganizationsQuestion,
    organization_names_subject,
)
from template_service.organizations import store

_log = get_logger(__name__)

_decode: Final = msgspec.json.Decoder(OrganizationsQuestion).decode
_encode: Final = msgspec.json.Encoder().encode


def organization_name_responder(bus: Bus, reader: AsyncEngine, *, tenant_id: str) -> Responder:
    """Return the responder to the requests of one tenant."""

    async def reply(request: bytes, _: float) -> bytes:
        text = _decode(request).text
        async with reader.connect() as connection:
            ids = await store.ids_called(connection, tenant_id, text, limit=MOST_ALIKE)
        return _encode(OrganizationsAnswer(tuple(ids)))

    return Responder(
        bus,
        organization_names_subject(tenant_id),
        reply,
        unavailable=lambda _: _encode(OrganizationsAnswer(unavailable=True)),
        name="organization-names",
        log=_log,
        failed="organization-names.unavailable",
        expected=(SQLAlchemyError, OSError, msgspec.DecodeError),
    )
