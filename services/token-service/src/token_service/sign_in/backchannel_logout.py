"""Where the provider of a connector says that a person has signed out there.

Source:
    OpenID Connect Back-Channel Logout 1.0 sections 2.5 to 2.8.
"""

import re
from typing import Final

import msgspec
from litestar import MediaType, Response, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from identity_common.clock import Clock, now_ms
from identity_common.failures import StoreUnavailable, TemporarilyUnavailable
from identity_common.pages.cookies import Cookies
from identity_common.stores.source_limit import SourceLimit
from identity_common.telemetry.logs import get_logger
from identity_common.wire.provider_sign_in import EndedAtProvider, NotAccepted, ReadLogoutToken
from token_service.audit import TokenAudit
from token_service.authorizations import Through
from token_service.sign_in.ending import SessionEnds
from token_service.sign_in.pages.browser import Browser
from token_service.sign_in.pages.problems import AnyRequest
from token_service.sign_in.providers import Providers
from token_service.sign_in.request import BadRequest

_log = get_logger(__name__)

PATH: Final = "/sign-in/backchannel-logout"
_MAX_TOKEN: Final = 16 * 1024
_CONNECTOR_ID: Final = re.compile(r"[0-9A-Za-z_-]{1,64}")
_NO_STORE: Final = {"Cache-Control": "no-store"}


class _Error(msgspec.Struct, frozen=True):
    error: str
    error_description: str


class BackchannelLogout:
    """Ends the sessions that a provider names, and what applications got in them.

    Args:
        providers: management-service's operations, which verify the token.
        ends: Ends sessions.
        limit: Of refused requests of an address.
        audit: The audit trail.
        trusted_proxies: How many proxies in front append to ``X-Forwarded-For``.
    """

    def __init__(
        self,
        providers: Providers,
        ends: SessionEnds,
        limit: SourceLimit,
        audit: TokenAudit,
        *,
        trusted_proxies: int,
        clock: Clock = now_ms,
    ) -> None:
        self._providers = providers
        self._ends = ends
        self._limit = limit
        self._audit = audit
        self._trusted_proxies = trusted_proxies
        self._clock = clock

    def routes(self) -> list[HTTPRouteHandler]:
        """Return the route."""

        @post(f"{PATH}/{{connector_id:str}}", include_in_schema=False)
        async def log_out(request: AnyRequest, connector_id: FromPath[str]) -> Response[_Error] | Response[None]:
            caller = Browser(request, Cookies(secure=False), trusted_proxies=self._trusted_proxies)
            return await self._log_out(caller, connector_id)

        return [log_out]

    async def _log_out(self, caller: Browser, connector_id: str) -> Response[_Error] | Response[None]:
        throttled = await self._limit.count(caller.address)
        if throttled is not None:
            return _refused("invalid_request", "too many refused requests from this address", 429, throttled.wait_s)
        if not _CONNECTOR_ID.fullmatch(connector_id):
            return _refused("invalid_request", "there is no such connector")
        try:
            logout_token = (await caller.form()).get("logout_token") or ""
            if not logout_token or len(logout_token) > _MAX_TOKEN:
                return _refused("invalid_request", "logout_token is missing or too long")
            question = ReadLogoutToken(connector_id=connector_id, logout_token=logout_token)
            answer = await self._providers.ask(question, EndedAtProvider)
            if isinstance(answer, NotAccepted):
                _log.info("provider-logout.refused", connector_id=connector_id, reason=answer.reason)
                return _refused("invalid_request", "the logout token is not acceptable")
            await self._end(connector_id, answer, caller)
        except BadRequest as error:
            return _refused("invalid_request", error.reason)
        except (TemporarilyUnavailable, StoreUnavailable):
            await self._limit.forgive(caller.address)
            return _refused("temporarily_unavailable", "try again in a moment", wait_s=1)
        await self._limit.forgive(caller.address)
        return Response(None, status_code=200, headers=_NO_STORE)

    async def _end(self, connector_id: str, ended: EndedAtProvider, caller: Browser) -> None:
        which = Through(
            connector_id=connector_id,
            before=ended.before,
            user_id=ended.user_id,
            provider_session_id=ended.provider_session_id,
        )
        until = self._clock() if ended.before is None else ended.before
        for session in await self._ends.of_person(which, subject=ended.subject, until=until):
            self._audit.signed_out(session.user_id, client_id=None, origin=caller.origin, connector_id=connector_id)


def _refused(error: str, description: str, status: int = 400, wait_s: int | None = None) -> Response[_Error]:
    waiting = {} if wait_s is None else {"Retry-After": str(wait_s)}
    return Response(
        _Error(error, description), status_code=status, media_type=MediaType.JSON, headers={**_NO_STORE, **waiting}
    )
