"""The next step of an authorization request: sign-in, a second factor, consent, a code, or a refusal.

The decision is made again when the request arrives, after a sign-in and after a consent, from stored state only: the
session, the pending request, the consents, what the user has set up.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from identity_common.clock import Clock, now_ms
from identity_common.identifiers import new_id
from identity_common.telemetry.logs import get_logger
from identity_common.wire.events import ApplicationState, ConnectorState, UserState
from stead.event_types import OrganizationState
from stead.verify.acr import Level, satisfies, strongest
from token_service.authorizations import Authorization, Authorizations, Code, Codes, Consented
from token_service.directory import Connectors, Directory, Person
from token_service.grants.authorization_code import requires_pkce
from token_service.grants.demanded_levels import demanded_at_sign_in, demanded_of_tokens, demanded_of_user
from token_service.grants.targets import MANAGEMENT_API_CLOSED
from token_service.presented_tokens.liveness import why_user_not_live
from token_service.sign_in.ending import SessionEnds
from token_service.sign_in.pending import Pending
from token_service.sign_in.redirect_uris import is_registered
from token_service.sign_in.request import (
    ACTION_MAX_AGE_S,
    Action,
    AuthorizationRequest,
    BadRequest,
    Parameters,
    Refusal,
    judge,
)
from token_service.sign_in.requested_access import organizations_resource, requested_access, without_organizations
from token_service.sign_in.sessions import Session, Sessions
from token_service.tokens.id_token_hints import Hint, IdTokenHints
from token_service.tokens.scopes import organizations_scope

_log = get_logger(__name__)

_MS: Final = 1000
_GROUPS_WAIT_S: Final = 2.0


class Descriptions(msgspec.Struct, frozen=True):
    """Descriptions of what is requested, written by administrators.

    Attributes:
        resources: Names of resources, by indicator.
        scopes: Descriptions of the resources' scopes, by indicator and name.
        permissions: Descriptions of organization permissions, by name.
    """

    resources: Mapping[str, str]
    scopes: Mapping[tuple[str, str], str | None]
    permissions: Mapping[str, str | None]


class SignedIn(msgspec.Struct, frozen=True):
    """A live user at this browser.

    Attributes:
        revision: Management's revision, if the user signed in with this request: later checks must not use older
            records.
    """

    session: Session
    person: Person
    revision: int = 0


class NeedsSignIn(msgspec.Struct, frozen=True):
    """The user must sign in."""


class NeedsAccount(msgspec.Struct, frozen=True):
    """The user must select an account: the one that is signed in at this browser, or another."""

    who: SignedIn


class NeedsFactor(msgspec.Struct, frozen=True):
    """The user must use another factor of those that they have set up.

    Attributes:
        level: What the sign-in then has to be: with ``phr``, a passkey; else any second factor, or a recovery code.
    """

    who: SignedIn
    level: Level


class NeedsEnrolment(msgspec.Struct, frozen=True):
    """The user, who has signed in a moment ago and as strongly as they can, must set up a factor.

    Attributes:
        level: What the sign-in then has to be: with ``phr``, a passkey; else any second factor.
    """

    who: SignedIn
    level: Level


class NeedsAction(msgspec.Struct, frozen=True):
    """The user, who has signed in a moment ago and as strongly as they can, is asked to do something."""

    who: SignedIn
    action: Action


class NeedsLink(msgspec.Struct, frozen=True):
    """The user has signed in to the account that an identity at a provider is to be linked to."""

    who: SignedIn


class NeedsConsent(msgspec.Struct, frozen=True):
    """The user must consent.

    Attributes:
        wanted: Everything that is requested.
        known: What the user has consented to before.
    """

    who: SignedIn
    wanted: Consented
    known: Consented


class Granted(msgspec.Struct, frozen=True):
    """Nothing is missing: the client gets the code."""

    code: str

    def __repr__(self) -> str:
        """Hide the code."""
        return "Granted(…)"


NeedsMore = NeedsFactor | NeedsEnrolment | NeedsAction | NeedsLink
"""What comes between signing in and consent."""

NextStep = NeedsSignIn | NeedsAccount | NeedsMore | NeedsConsent | Granted


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
        self._hints = hints
        self._urn_namespace = urn_namespace
        self._management_api = management_api
        self._clock = clock

    @property
    def connectors(self) -> Connectors:
        """The connectors to other providers."""
        return self._directory.in_memory.connectors

    @property
    def offers_registration(self) -> bool:
        """Whether people may register; which addresses may, management-service judges."""
        return self._directory.in_memory.sign_in_policy.registration != "off"

    async def application(self, client_id: str | None) -> ApplicationState | None:
        """Return an application, or None; an unknown one is looked up again after catching up."""
        if client_id is None:
            return None
        self._directory.require_current()
        return await self._directory.application(client_id)

    def known_application(self, client_id: str | None) -> ApplicationState | None:
        """Return an application that this replica knows; nothing is looked up."""
        return None if client_id is None else self._directory.in_memory.application(client_id)

    async def as_of_now(self, application: ApplicationState) -> ApplicationState:
        """Return an application after catching up with the bus: a URI may have been registered a moment ago."""
        await self._directory.catch_up()
        return self._directory.in_memory.application(application.id) or application

    async def client_of(self, parameters: Parameters) -> tuple[ApplicationState, str]:
        """Return the validated client and redirect URI of a request: errors may be sent to this URI.

        Raises:
            BadRequest: One of them is not valid, or the response mode not supported: the user sees an error page,
                nothing is redirected.

        Source:
            RFC 6749 section 4.1.2.1, RFC 9700 section 2.1, OpenID Connect Core 1.0 section 3.1.2.6.
        """
        if parameters.repeated & {"client_id", "redirect_uri"}:
            raise BadRequest("client_id or redirect_uri is repeated")
        application = await self.application(parameters.get("client_id"))
        if application is None or application.type == "MachineToMachine":
            raise BadRequest("the application is unknown, or has no sign-in")
        redirect_uri = parameters.get("redirect_uri")
        if redirect_uri is None:
            raise BadRequest("redirect_uri is missing")
        is_native = application.type == "Native"
        if not is_registered(redirect_uri, application.redirect_uris, is_native=is_native):
            application = await self.as_of_now(application)
            if not is_registered(redirect_uri, application.redirect_uris, is_native=is_native):
                raise BadRequest("redirect_uri is not registered for the application")
        if parameters.get("response_mode") not in {None, "query"}:
            raise BadRequest("only response_mode query is supported")
        return application, redirect_uri

    async def judge(
        self, parameters: Parameters, application: ApplicationState, redirect_uri: str
    ) -> AuthorizationRequest:
        """Return the validated request.

        Raises:
            Refusal: The first thing that is wrong.
        """
        hint = await self._hints.read(parameters.get("id_token_hint"))
        request = judge(
            parameters,
            client_id=application.id,
            redirect_uri=redirect_uri,
            urn_namespace=self._urn_namespace,
            hint=hint,
            requires_pkce=requires_pkce(application),
        )
        if request.action is not None and application.is_third_party:
            raise Refusal("invalid_request", "only first-party applications may ask for an action")
        for indicator in request.resources:
            if indicator == organizations_resource(self._urn_namespace):
                continue
            if await self._directory.find_resource(indicator) is None:
                raise Refusal("invalid_target", "a resource is unknown")
            if indicator == self._management_api and not await self._directory.may_manage_for_users(application):
                raise Refusal("invalid_target", MANAGEMENT_API_CLOSED)
        if not request.scopes <= self.wanted(request, application).everything():
            # an unknown scope would be dropped: catch up first
            await self._directory.catch_up("management", "template")
        return request

    async def signed_in(self, session_cookie: str | None, *, revision: int = 0) -> SignedIn | None:
        """Return the live user signed in at this browser, if any.

        Args:
            session_cookie: As sent by the browser.
            revision: Management's revision that the user's records must include.
        """
        session = await self._sessions.find(session_cookie)
        if session is None:
            return None
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

    async def level_wanted(self, request: AuthorizationRequest) -> Level:
        """Return how strongly a user must sign in for a request, before it is known who that is."""
        application = await self.application(request.client_id)
        policy = self._directory.in_memory.sign_in_policy
        demanded = demanded_of_tokens(policy, application, None) if application else None
        return strongest("password", demanded, request.acr) or "password"

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
        wanted = self.wanted(pending.request, application)
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

    def wanted(self, request: AuthorizationRequest, application: ApplicationState) -> Consented:
        """Return the requested access, limited to what exists now for an application."""
        in_memory = self._directory.in_memory
        existing = {}
        for indicator in request.resources:
            resource = in_memory.resource(indicator)
            if resource is not None:
                existing[indicator] = in_memory.existing_scopes(resource, request.scopes)
        return requested_access(
            request.scopes,
            request.resources,
            urn_namespace=self._urn_namespace,
            is_third_party=application.is_third_party,
            existing_scopes=existing,
            existing_permissions=in_memory.existing_permissions(request.scopes),
        )

    def descriptions(self, wanted: Consented) -> Descriptions:
        """Return the descriptions of what is requested."""
        in_memory = self._directory.in_memory
        resources: dict[str, str] = {}
        scopes: dict[tuple[str, str], str | None] = {}
        for indicator, names in wanted.resource_scopes.items():
            resource = in_memory.resource(indicator)
            if resource is not None:
                resources[indicator] = resource.name
                scopes |= {(indicator, name): in_memory.scope_description(resource, name) for name in names}
        permissions = {name: in_memory.permission_description(name) for name in wanted.organization_permissions}
        return Descriptions(resources, scopes, permissions)

    async def pickable(
        self, request: AuthorizationRequest, who: SignedIn, application: ApplicationState
    ) -> Sequence[OrganizationState] | None:
        """Return the organizations that a user may pick for an application, by name; None without any."""
        if (
            not application.is_third_party
            or organizations_scope(self._urn_namespace) not in self.wanted(request, application).scopes
        ):
            return None
        memberships = await self._directory.memberships_of(who.person.user.id, at_least={})
        return [each.organization for each in memberships] or None

    def _must_sign_in_again(self, who: SignedIn, request: AuthorizationRequest) -> bool:
        return "login" in request.prompts or _is_too_old(who.session, request.max_age_s, self._clock())

    async def _after_sign_in(self, request: AuthorizationRequest, who: SignedIn, *, links: bool = False) -> NextStep:
        application = await self.application(request.client_id)
        if application is None:
            raise Refusal("unauthorized_client", "the application was deleted")
        missing = self._missing(request, who, application, links=links)
        if missing is not None:
            return missing
        await self._wait_for_groups(who)
        wanted = self.wanted(request, application)
        shown = await self._concerning(wanted, who)
        wanted = shown if application.is_third_party else wanted
        async with self._authorizations.agreement(who.person.user.id, request.client_id) as agreement:
            known = agreement.known.given if application.is_third_party else agreement.known.recorded
            if "consent" in request.prompts or (application.is_third_party and not known.covers(wanted)):
                return NeedsConsent(who, shown, known)
            picked = known.organizations if application.is_third_party else None
            authorization = _authorization(application, who, msgspec.structs.replace(wanted, organizations=picked))
            await agreement.begin(authorization, implicit=not application.is_third_party)
        return await self._issue_code(request, who, authorization)

    async def _wait_for_groups(self, who: SignedIn) -> None:
        """Wait until the memberships that came with a sign-in at a provider are applied.

        Raises:
            Refusal: ``temporarily_unavailable``.
        """
        at = who.session.provider
        if at is None or not at.revision:
            return
        deadline = time.monotonic() + _GROUPS_WAIT_S
        if not await self._directory.in_memory.applied.reach({"management": at.revision}, deadline=deadline):
            raise Refusal("temporarily_unavailable", "the memberships of the user are not known yet")

    def _missing(
        self, request: AuthorizationRequest, who: SignedIn, application: ApplicationState, *, links: bool
    ) -> NeedsSignIn | NeedsMore | None:
        """Return what is missing between signing in and consent, if anything.

        Args:
            request: The request.
            who: The user.
            application: The client.
            links: Whether an identity at a provider waits for this sign-in.

        Raises:
            Refusal: ``unmet_authentication_requirements``.
        """
        policy, user, signed_in = self._directory.in_memory.sign_in_policy, who.person.user, who.session.authentication
        demanded = demanded_at_sign_in(policy, user, application, request.acr)
        lacking = None if satisfies(signed_in.level, demanded) else demanded
        if lacking is not None and _has_set_up(user, lacking) and not signed_in.used("recovery-code"):
            return NeedsFactor(who, lacking)
        if links:
            return NeedsLink(who)
        wanted: NeedsEnrolment | NeedsAction
        if lacking is not None:
            wanted = NeedsEnrolment(who, lacking)
        elif request.action is not None:
            wanted = NeedsAction(who, request.action)
        else:
            return None
        if policy.second_factor == "off":
            raise Refusal("unmet_authentication_requirements", "the tenant's policy lets no factor be set up")
        return self._before_change(who) or wanted

    def _before_change(self, who: SignedIn) -> NeedsSignIn | NeedsFactor | None:
        """Return what is missing before a user may change how they sign in: a stolen session must not be enough."""
        signed_in = who.session.authentication
        is_recent = self._clock() - signed_in.latest < ACTION_MAX_AGE_S * _MS
        if who.person.user.second_factors and not (is_recent and signed_in.level != "password"):
            return NeedsFactor(who, "mfa")
        return None if is_recent else NeedsSignIn()

    async def _concerning(self, wanted: Consented, who: SignedIn) -> Consented:
        """Return the access that applies to a user: a user without organizations is not asked about them."""
        rest = without_organizations(wanted, urn_namespace=self._urn_namespace)
        if rest == wanted or await self._directory.memberships_of(who.person.user.id, at_least={}):
            return wanted
        return rest

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


def _has_set_up(user: UserState, level: Level) -> bool:
    """Return whether a user has a factor that makes a sign-in as strong as this."""
    return "passkey" in user.second_factors if level == "phr" else bool(user.second_factors)


def _is_too_old(session: Session, max_age_s: int | None, now: int) -> bool:
    if max_age_s is None:
        return False
    auth_time = session.authentication.auth_time
    return auth_time is None or now - auth_time >= max_age_s * _MS
