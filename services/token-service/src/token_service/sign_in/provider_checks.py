"""Sends browsers to providers and judges what they come back with: limits, ``state``, management-service's verdict."""

import base64
import hashlib
from typing import Final

from identity_common.authentication import AtProvider
from identity_common.clock import Clock, now_ms
from identity_common.failures import TemporarilyUnavailable
from identity_common.identifiers import new_secret
from identity_common.wire.events import ConnectorState
from identity_common.wire.provider_sign_in import (
    AccountFound,
    BeginAtProvider,
    FinishAtProvider,
    LinkIdentity,
    NotAccepted,
    ProviderAddress,
    ProviderPerson,
)
from stead.verify.acr import Level
from token_service.audit import Origin
from token_service.sign_in.attempts import Attempts, Problem, SignInRefused
from token_service.sign_in.factor_checks import visitor_of
from token_service.sign_in.pending import PendingAuthorizations, PendingLink, ProviderVisit, state_hash
from token_service.sign_in.providers import Providers
from token_service.sign_in.request import AuthorizationRequest, Parameters

CALLBACK: Final = "/sign-in/callback"
_MS: Final = 1000
_UNAVAILABLE: Final = frozenset({"server_error", "temporarily_unavailable"})


class ProviderChecks:
    """Asks providers who a person is.

    Args:
        providers: management-service's operations.
        pending: Stores the visits.
        attempts: Limits and records them.
        base_url: The base of the callback addresses.
    """

    def __init__(
        self,
        providers: Providers,
        pending: PendingAuthorizations,
        attempts: Attempts,
        *,
        base_url: str,
        clock: Clock = now_ms,
    ) -> None:
        self._providers = providers
        self._pending = pending
        self._attempts = attempts
        self._base_url = base_url
        self._clock = clock

    async def begin(
        self,
        pending_id: str,
        request: AuthorizationRequest,
        connector: ConnectorState,
        *,
        level: Level,
        language: str | None,
        login_hint: str | None,
        origin: Origin,
    ) -> str:
        """Return where the browser of a pending request is sent to sign in.

        Args:
            pending_id: The request's id.
            request: The request.
            connector: Whose provider.
            level: How strongly the user must sign in.
            language: Of the pages, if the client has asked for one.
            login_hint: Who is expected.
            origin: Where the browser's request came from.

        Raises:
            SignInRefused: The connector is closed, there were too many attempts, or nothing answers.
        """
        await self._attempts.count(origin, request.client_id)
        state, nonce, code_verifier = f"{pending_id}.{new_secret()}", new_secret(), new_secret()
        must_sign_in = "login" in request.prompts
        begun_at = self._clock()
        question = BeginAtProvider(
            connector_id=connector.id,
            redirect_uri=self._callback(connector.id),
            state=state,
            nonce=nonce,
            code_challenge=_challenge(code_verifier),
            login_hint=login_hint,
            max_age_s=request.max_age_s,
            must_sign_in=must_sign_in,
            level=level,
            ui_locales=language,
        )
        try:
            answer = await self._providers.ask(question, ProviderAddress)
        except TemporarilyUnavailable:
            raise await self._attempts.provider_unavailable(origin) from None
        if isinstance(answer, NotAccepted):
            raise self._not_accepted(answer, connector.id, origin, request.client_id)
        visit = ProviderVisit(
            connector_id=connector.id,
            state_sha256=state_hash(state),
            nonce=nonce,
            code_verifier=code_verifier,
            begun_at=begun_at,
            max_age_s=0 if must_sign_in else request.max_age_s,
            language=language,
        )
        await self._pending.keep_visit(pending_id, visit)
        return answer.url

    async def finish(
        self, visit: ProviderVisit, answer: Parameters, *, language: str, origin: Origin, client_id: str
    ) -> ProviderPerson | AccountFound:
        """Return who has signed in, by the parameters that a provider has sent the browser back with.

        Args:
            visit: The visit, whose ``state`` it was.
            answer: The parameters.
            language: Of mail that follows.
            origin: Where the browser's request came from.
            client_id: The application to continue to.

        Raises:
            SignInRefused: It is not accepted, or nothing answers.
        """
        code, error = answer.get("code"), answer.get("error")
        if error in _UNAVAILABLE:
            raise await self._attempts.provider_unavailable(origin)
        if error is not None or code is None:
            problem: Problem = "provider-denied" if error == "access_denied" else "provider-refused"
            self._attempts.refused(problem, origin, client_id, connector_id=visit.connector_id)
            raise SignInRefused(problem)
        question = FinishAtProvider(
            connector_id=visit.connector_id,
            redirect_uri=self._callback(visit.connector_id),
            code=code,
            code_verifier=visit.code_verifier,
            nonce=visit.nonce,
            begun_at=visit.begun_at,
            issuer=answer.get("iss"),
            max_age_s=visit.max_age_s,
            language=language,
            application_id=client_id,
            visitor=visitor_of(origin),
        )
        try:
            found: ProviderPerson | AccountFound | NotAccepted
            found = await self._providers.ask(question, (ProviderPerson, AccountFound))
        except TemporarilyUnavailable:
            raise await self._attempts.provider_unavailable(origin) from None
        if isinstance(found, NotAccepted):
            raise self._not_accepted(found, visit.connector_id, origin, client_id)
        await self._attempts.forgive(origin)
        return found

    async def link(
        self, link: PendingLink, user_id: str, *, language: str, origin: Origin, client_id: str
    ) -> ProviderPerson:
        """Link an identity to the user who has signed in.

        Raises:
            SignInRefused: It is another account, or the link is not valid any more.
            TemporarilyUnavailable: Nothing answers; it may or may not be linked.
        """
        question = LinkIdentity(
            link=link.link, user_id=user_id, language=language, application_id=client_id, visitor=visitor_of(origin)
        )
        answer = await self._providers.ask(question, ProviderPerson)
        if isinstance(answer, NotAccepted):
            raise self._not_accepted(answer, link.connector_id, origin, client_id, user_id=user_id)
        return answer

    async def mixed_up(self, connector_id: str, origin: Origin, client_id: str) -> SignInRefused:
        """Record an answer of another provider than the one that was asked (RFC 9700 section 4.4), and refuse it."""
        self._attempts.refused("provider-refused", origin, client_id, connector_id=connector_id, reason="mixed-up")
        return SignInRefused("provider-refused")

    def _callback(self, connector_id: str) -> str:
        return f"{self._base_url}{CALLBACK}/{connector_id}"

    def _not_accepted(
        self, answer: NotAccepted, connector_id: str, origin: Origin, client_id: str, *, user_id: str | None = None
    ) -> SignInRefused:
        self._attempts.refused(
            "provider-refused", origin, client_id, user_id=user_id, connector_id=connector_id, reason=answer.reason
        )
        return SignInRefused(answer.reason)


def at_provider(
    person: ProviderPerson, connector_id: str, *, begun_at: int, visit: ProviderVisit | None = None
) -> AtProvider:
    """Return what is stored about a sign-in at a provider.

    Args:
        person: Who has signed in.
        connector_id: The connector.
        begun_at: When the browser was sent there, milliseconds since the epoch.
        visit: The visit; None if an identity is linked later.
    """
    known = [] if person.auth_time is None else [person.auth_time * _MS]
    if visit is not None and visit.max_age_s is not None:  # judged by management-service, with leeway
        known.append(visit.begun_at - visit.max_age_s * _MS + 1)
    return AtProvider(
        connector_id=connector_id,
        revision=person.revision,
        level=person.level,
        amr=person.amr,
        auth_time=max(known, default=None),
        session_id=person.provider_session_id,
        subject=person.subject,
        begun_at=begun_at,
    )


def _challenge(code_verifier: str) -> str:
    """Return the PKCE challenge (RFC 7636 section 4.2)."""
    return base64.urlsafe_b64encode(hashlib.sha256(code_verifier.encode()).digest()).rstrip(b"=").decode()
