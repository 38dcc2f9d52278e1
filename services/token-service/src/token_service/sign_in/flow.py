"""The next step of an authorization request: sign-in, a second factor, consent, a code, or a refusal.

The decision is made again when the request arrives, after a sign-in and after a consent, from stored state only: the
session, the pending request, the consents, what the user has set up.
"""

import time
from typing import Final

import msgspec

from identity_common.clock import Clock, now_ms
from identity_common.identifiers import new_id
from identity_common.wire.events import ApplicationState, ConnectorState
from stead.verify.acr import satisfies
from token_service.authorizations import Authorization, Authorizations, Code, Codes, Consented
from token_service.directory import Connectors, Directory
from token_service.grants.demanded_levels import demanded_of_user
from token_service.presented_tokens.liveness import why_user_not_live
from token_service.sign_in.arriving_requests import ArrivingRequests
from token_service.sign_in.ending import SessionEnds
from token_service.sign_in.missing import missing_before_consent
from token_service.sign_in.pending import Pending
from token_service.sign_in.request import AuthorizationRequest, Refusal
from token_service.sign_in.requestable_access import RequestableAccess
from token_service.sign_in.requested_access import without_organizations
from token_service.sign_in.sessions import Session, Sessions
from token_service.sign_in.steps import (
    Granted,
    NeedsAccount,
    NeedsConsent,
    NeedsMore,
    NeedsSignIn,
    NextStep,
    SignedIn,
)
from token_service.tokens.id_token_hints import Hint, IdTokenHints

_MS: Final = 1000
GROUPS_WAIT_S: Final = 2.0


class SignInFlow:
    """Decides authorization requests, and ends sessions."""

    def __init__(
        self,
        directory: Directory,
        sessions: Sessions,
        authorizations: Authorizations,
        codes: Codes,
        hints: IdTokenHints,
        *,
        urn_namespace: str,
        management_api: str,
        clock: Clock = now_ms,
    ) -> None:
        self._directory = directory
        self._sessions = sessions
        self._authorizations = authorizations
        self._ends = SessionEnds(sessions, authorizations)
        self._codes = codes
        self._urn_namespace = urn_namespace
        self._clock = clock
        self.access = RequestableAccess(directory, urn_namespace=urn_namespace)
        self.requests = ArrivingRequests(
            directory, self.access, hints, urn_namespace=urn_namespace, management_api=management_api
        )

    @property
    def connectors(self) -> Connectors:
        """The connectors to other providers."""
        return self._directory.in_memory.connectors

    @property
    def offers_registration(self) -> bool:
        """Whether people may register; which addresses may, management-service judges."""
        return self._directory.in_memory.sign_in_policy.registration != "off"

    async def signed_in(self, session_cookie: str | None) -> SignedIn | None:
        """Return the live user signed in at this browser, if any.

        Args:
            session_cookie: As sent by the browser.
        """
        session = await self._sessions.find(session_cookie)
        return None if session is None else await self.live(session)

    async def live(self, session: Session, *, revision: int = 0) -> SignedIn | None:
        """Return the user of a session, if it counts: the user is live, and the connector that it came through open.

        Args:
            session: The session.
            revision: Management's revision that the user's records must include.
        """
        if session.provider is not None:
            if self._why_over(session) is not None:
                return None
            revision = max(revision, session.provider.revision)
        person = await self._directory.person(session.user_id, at_least={"management": revision})
        if person is None or why_user_not_live(person, issued_at_ms=session.authentication.valid_since) is not None:
            return None
        return SignedIn(session, person, revision)

    async def connector_of(self, request: AuthorizationRequest, session_cookie: str | None) -> ConnectorState | None:
        """Return the connector whose provider is asked without a page, for a request that needs a sign-in.

        It is the one that the client or its ``login_hint`` names, or that of a session which is too old.
        """
        if not self.connectors.offered:
            return None
        named = self.connectors.open(request.connector_id) or self.connectors.of_address(request.login_hint)
        if named is not None or "login" in request.prompts:
            return named
        session = await self._sessions.find(session_cookie)
        if session is None or session.provider is None or self._why_over(session) is None:
            return None
        connector = self.connectors.open(session.provider.connector_id)
        return None if connector is None or session.signed_in_at < connector.closed_at else connector

    async def begin(self, request: AuthorizationRequest, who: SignedIn | None) -> NextStep:
        """Return the next step of a request that has just arrived.

        Raises:
            Refusal: ``login_required`` or ``consent_required``: no page may be shown (``prompt=none``);
                ``unmet_authentication_requirements``: no page would help.
        """
        step: NextStep = NeedsSignIn()
        if who and request.accepts(who.person.user.id):
            if "select_account" in request.prompts:
                step = NeedsAccount(who)
            elif not self._must_sign_in_again(who, request):
                step = await self._after_sign_in(request, who)
        if "none" in request.prompts and isinstance(step, NeedsSignIn | NeedsMore):
            raise Refusal("login_required", "no sign-in at this browser satisfies the request")
        if "none" in request.prompts and isinstance(step, NeedsConsent):
            raise Refusal("consent_required", "the user has not consented to this yet")
        return step

    async def resume(self, pending: Pending, who: SignedIn | None) -> NextStep:
        """Return the next step of a pending request.

        Raises:
            Refusal: ``unmet_authentication_requirements``: no page would help.
        """
        accepted = acceptable(who, pending)
        if accepted is not None:
            return await self._after_sign_in(pending.request, accepted, links=pending.link is not None)
        if who and pending.request.accepts(who.person.user.id) and "select_account" in pending.request.prompts:
            return NeedsAccount(who)
        return NeedsSignIn()

    def before_consent(
        self, pending: Pending, who: SignedIn | None, application: ApplicationState
    ) -> SignedIn | NeedsSignIn | NeedsMore:
        """Return the user who may decide about consent, or what is missing before.

        Raises:
            Refusal: As ``resume``.
        """
        accepted = acceptable(who, pending)
        if accepted is None:
            return NeedsSignIn()
        return self._missing(pending.request, accepted, application, links=pending.link is not None) or accepted

    def is_usual(self, who: SignedIn) -> bool:
        """Return whether a sign-in is as strong as every sign-in of its user must be."""
        demanded = demanded_of_user(self._directory.in_memory.sign_in_policy, who.person.user)
        return satisfies(who.session.authentication.level, demanded)

    async def agree(
        self,
        pending: Pending,
        who: SignedIn,
        application: ApplicationState,
        *,
        organizations: frozenset[str] | None,
    ) -> NextStep:
        """Record the user's consent, and issue the code.

        Args:
            pending: The request.
            who: The user.
            application: The application that the page named.
            organizations: The picked organizations, which replace earlier ones. None if the page did not ask.
        """
        wanted = self.access.wanted(pending.request, application)
        if application.is_third_party and organizations is None:  # only what was on the page is consented to
            wanted = without_organizations(wanted, urn_namespace=self._urn_namespace)
        wanted = msgspec.structs.replace(wanted, organizations=organizations)
        authorization = _authorization(application, who, wanted)
        whose = (who.person.user.id, pending.request.client_id)
        async with self._authorizations.agreement(*whose, exclusive=organizations is not None) as agreement:
            await agreement.begin(authorization, implicit=False)
        return await self._issue_code(pending.request, who, authorization)

    async def sign_out(self, session: Session) -> None:
        """End a session and its authorizations."""
        await self._ends.sign_out(session)

    async def sign_out_client(self, hint: Hint) -> bool:
        """End a client's authorizations in the session that its ID token names; return whether there were any.

        The session itself goes on.
        """
        if hint.session_id is None:
            return False
        return await self._authorizations.end_of_session(hint.session_id, application_id=hint.client_id)

    def _must_sign_in_again(self, who: SignedIn, request: AuthorizationRequest) -> bool:
        return "login" in request.prompts or _is_too_old(who.session, request.max_age_s, self._clock())

    async def _after_sign_in(self, request: AuthorizationRequest, who: SignedIn, *, links: bool = False) -> NextStep:
        application = await self.requests.application(request.client_id)
        if application is None:
            raise Refusal("unauthorized_client", "the application was deleted")
        missing = self._missing(request, who, application, links=links)
        if missing is not None:
            return missing
        await self._wait_for_groups(who)
        wanted = self.access.wanted(request, application)
        shown = await self.access.concerning(wanted, who)
        wanted = shown if application.is_third_party else wanted
        async with self._authorizations.agreement(who.person.user.id, request.client_id) as agreement:
            known = agreement.known.given if application.is_third_party else agreement.known.recorded
            if "consent" in request.prompts or (application.is_third_party and not known.covers(wanted)):
                return NeedsConsent(who, shown, known)
            picked = known.organizations if application.is_third_party else None
            authorization = _authorization(application, who, msgspec.structs.replace(wanted, organizations=picked))
            await agreement.begin(authorization, implicit=not application.is_third_party)
        return await self._issue_code(request, who, authorization)

    def _missing(
        self, request: AuthorizationRequest, who: SignedIn, application: ApplicationState, *, links: bool
    ) -> NeedsSignIn | NeedsMore | None:
        policy = self._directory.in_memory.sign_in_policy
        return missing_before_consent(request, who, application, policy, links=links, now=self._clock())

    async def _wait_for_groups(self, who: SignedIn) -> None:
        """Wait until the memberships that came with a sign-in at a provider are applied.

        Raises:
            Refusal: ``temporarily_unavailable``.
        """
        at = who.session.provider
        if at is None or not at.revision:
            return
        deadline = time.monotonic() + GROUPS_WAIT_S
        if not await self._directory.in_memory.applied.reach({"management": at.revision}, deadline=deadline):
            raise Refusal("temporarily_unavailable", "the memberships of the user are not known yet")

    async def _issue_code(self, request: AuthorizationRequest, who: SignedIn, authorization: Authorization) -> NextStep:
        """Issue the code of an authorization that has begun, unless the user has signed out meanwhile.

        An authorization that began before the session ended has ended with it; a later one finds no session here.
        """
        if not await self._sessions.is_alive(who.session) or self._why_over(who.session) is not None:
            return NeedsSignIn()
        code = Code(
            authorization=authorization,
            redirect_uri=request.redirect_uri,
            code_challenge=request.code_challenge,
            nonce=request.nonce,
            revision=who.revision,
            template_revision=self._directory.in_memory.applied_as_of if who.session.provider else 0,
        )
        return Granted(await self._codes.issue(code))

    def _why_over(self, session: Session) -> str | None:
        return self.connectors.why_over(session.provider, signed_in_at=session.signed_in_at, now=self._clock())


def acceptable(who: SignedIn | None, pending: Pending) -> SignedIn | None:
    """Return the signed-in user if a pending request accepts the user and the time of the sign-in.

    Signing in for the request also selects the account. That a provider sent the browser back is no sign-in there.
    """
    request = pending.request
    if who is None or not request.accepts(who.person.user.id):
        return None
    since, session = pending.created_at, who.session
    if "select_account" in request.prompts and session.signed_in_at < since:
        return None
    is_new = session.authentication.auth_time is not None and session.authentication.auth_time >= since
    if "login" in request.prompts and not is_new:
        return None
    return None if _is_too_old(session, request.max_age_s, since) and not is_new else who


def _authorization(application: ApplicationState, who: SignedIn, consented: Consented) -> Authorization:
    return Authorization(
        id=new_id(),
        user_id=who.person.user.id,
        application_id=application.id,
        session_id=who.session.id,
        auth_time=who.session.signed_in_at,
        consented=consented,
        first_party=not application.is_third_party,
        factors=who.session.authentication.factors,
        judged_valid_after=who.session.judged_valid_after,
    )


def _is_too_old(session: Session, max_age_s: int | None, now: int) -> bool:
    if max_age_s is None:
        return False
    auth_time = session.authentication.auth_time
    return auth_time is None or now - auth_time >= max_age_s * _MS
