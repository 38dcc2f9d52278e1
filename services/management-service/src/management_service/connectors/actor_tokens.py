"""Replies to token-service, which asks whom an actor token of another provider is about."""

from typing import Final

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.bus.connection import Bus
from identity_common.bus.requests import Responder
from identity_common.bus.sealed_responder import sealed_responder
from identity_common.clock import Clock, now_ms
from identity_common.failures import TemporarilyUnavailable
from identity_common.telemetry.logs import get_logger
from identity_common.wire.actor_tokens import (
    ActorAnswer,
    ActorIdentified,
    ActorNotIdentified,
    ActorTokenRequests,
    ActorUnavailable,
    IdentifyActor,
)
from management_service.connectors import id_tokens, people, store
from management_service.connectors.id_tokens import NotAcceptableError
from management_service.connectors.providers import ProviderError, Providers
from management_service.connectors.store import Connector

_log = get_logger(__name__)

_AT_ONCE: Final = 256
_PROVIDER_RETRY_S: Final = 10


class ActorTokenAnswers:
    """Replies to the requests of one tenant.

    Args:
        requests: Opens requests and seals replies.
        reader: Reads the connectors and identities.
        providers: The providers' keys.
        tenant_id: The tenant.
        clock: Clock, for tests.
    """

    def __init__(
        self,
        requests: ActorTokenRequests,
        reader: AsyncEngine,
        providers: Providers,
        *,
        tenant_id: str,
        clock: Clock = now_ms,
    ) -> None:
        self._requests = requests
        self._reader = reader
        self._providers = providers
        self._tenant_id = tenant_id
        self._clock = clock

    def responder(self, bus: Bus) -> Responder:
        """Return the responder to the requests on the bus."""
        return sealed_responder(
            bus,
            self._requests,
            self._reply,
            unavailable=ActorUnavailable(),
            name="actor-token",
            log=_log,
            expected=(SQLAlchemyError, TemporarilyUnavailable, OSError),
            at_once=_AT_ONCE,
        )

    async def _reply(self, question: IdentifyActor, _: float) -> ActorAnswer:
        try:
            return await self._identify(question.id_token)
        except NotAcceptableError as refused:
            return ActorNotIdentified(str(refused))
        except ProviderError:
            return ActorUnavailable(_PROVIDER_RETRY_S)

    async def _identify(self, token: str) -> ActorAnswer:
        said = id_tokens.read_unverified(token)
        connector = await self._trusted_connector(said.issuer)
        key = await self._providers.key(connector.issuer, said.key_id)
        if key is None:
            raise NotAcceptableError("unknown key")
        claims = id_tokens.verified_claims(
            token,
            key,
            issuer=connector.issuer,
            clients=connector.actor_clients,
            max_age_s=id_tokens.MAX_AGE_S,
            now_s=self._clock() / 1000,
        )
        if (objection := people.objection(connector, claims)) is not None:
            raise NotAcceptableError(objection)
        value = id_tokens.identity_value(claims, connector.match_claim)
        async with self._reader.connect() as connection:
            user_id = await store.user_with_identity(connection, connector, value)
        if user_id is None:
            raise NotAcceptableError("no user has this identity")
        return ActorIdentified(
            user_id=user_id,
            issued_at=int(claims["iat"]),
            level=id_tokens.trusted_level(claims, connector.trusted_factors),
            auth_time=id_tokens.auth_time(claims),
            amr=id_tokens.methods(claims) if connector.trusted_factors else (),
        )

    async def _trusted_connector(self, issuer: str) -> Connector:
        async with self._reader.connect() as connection:
            connector = await store.find_by_issuer(connection, self._tenant_id, issuer)
        if connector is None:
            raise NotAcceptableError("no connector has this issuer")
        if not connector.is_enabled or not connector.actor_clients:
            raise NotAcceptableError("its connector is not trusted for actors")
        return connector
