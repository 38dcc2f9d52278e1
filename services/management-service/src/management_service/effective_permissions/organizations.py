"""Asks template-service, which owns organizations, what a user's organization roles grant, by request on the bus."""

from typing import Final

import msgspec
from nats.errors import Error as NatsError

from identity_common.bus.connection import Bus
from identity_common.bus.requests import ask
from identity_common.failures import TemporarilyUnavailable
from identity_common.paging import DEFAULT_SIZE, Page
from identity_common.telemetry.logs import get_logger
from identity_common.wire.organization_grants import (
    GRANTS_TIMEOUT_S,
    OrganizationGrantsAnswer,
    OrganizationGrantsQuestion,
    organization_grants_subject,
)
from management_service.effective_permissions.rules import too_many_permissions

_log = get_logger(__name__)

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(OrganizationGrantsAnswer).decode


class OrganizationGrants:
    """What organization roles grant.

    The replies come from template-service's own tables, so they include every change that it has acknowledged.
    """

    def __init__(self, bus: Bus, *, tenant_id: str) -> None:
        self._bus = bus
        self._subject = organization_grants_subject(tenant_id)

    async def of_user(self, user_id: str, page: Page) -> OrganizationGrantsAnswer:
        """Return a page of a user's organizations, and what its roles there grant.

        Raises:
            Conflict: ``user.too_many_permissions``: the page does not fit into a reply.
            TemporarilyUnavailable: template-service does not answer.
        """
        if not self._bus.is_connected:
            raise TemporarilyUnavailable
        question = _encode(OrganizationGrantsQuestion(user_id, page.number, page.size or DEFAULT_SIZE, page.search))
        try:
            answer = _decode(
                await ask(self._bus, self._subject, question, name="organization-grants", timeout_s=GRANTS_TIMEOUT_S)
            )
        except (NatsError, OSError, TimeoutError, msgspec.DecodeError) as error:
            _log.warning("organization-grants.unavailable", error=type(error).__name__)
            raise TemporarilyUnavailable from None
        if answer.unavailable:
            raise TemporarilyUnavailable
        if answer.too_large:
            raise too_many_permissions()
        return answer
