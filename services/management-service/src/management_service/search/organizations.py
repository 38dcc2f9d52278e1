"""Asks template-service, by request on the bus, for what a search finds of organizations and their template."""

from collections.abc import Sequence
from typing import Final

import msgspec
from nats.errors import Error as NatsError

from identity_common.bus.connection import Bus
from identity_common.bus.requests import ask
from identity_common.telemetry.logs import get_logger
from identity_common.wire.search import (
    SEARCH_TIMEOUT_S,
    SearchGroup,
    SearchGroupName,
    SearchQuestion,
    SearchReply,
    search_subject,
)

_log = get_logger(__name__)

ASKED_GROUPS: Final[frozenset[SearchGroupName]] = frozenset(
    {"organizations", "organizationRoles", "organizationPermissions"}
)

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(SearchReply).decode


class OrganizationSearch:
    """The groups of template-service."""

    def __init__(self, bus: Bus, *, tenant_id: str) -> None:
        self._bus = bus
        self._subject = search_subject(tenant_id)

    async def search(self, text: str, groups: Sequence[SearchGroupName], *, limit: int) -> tuple[SearchGroup, ...]:
        """Return what template-service finds within 100 ms; without the groups that it does not answer for."""
        if not groups or not self._bus.is_connected:
            return ()
        question = _encode(SearchQuestion(text, tuple(groups), limit))
        try:
            reply = _decode(await ask(self._bus, self._subject, question, name="search", timeout_s=SEARCH_TIMEOUT_S))
        except (NatsError, OSError, TimeoutError, msgspec.DecodeError) as error:
            _log.warning("search.incomplete", error=type(error).__name__)
            return ()
        return tuple(group for group in reply.groups if group.name in groups)
