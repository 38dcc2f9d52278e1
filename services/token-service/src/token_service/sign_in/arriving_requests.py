"""Authorization requests as they arrive: their client, and what is wrong with them."""

from identity_common.wire.events import ApplicationState
from stead.verify.acr import Level, strongest
from token_service.directory import Directory
from token_service.grants.authorization_code import requires_pkce
from token_service.grants.demanded_levels import demanded_of_tokens
from token_service.grants.targets import MANAGEMENT_API_CLOSED
from token_service.sign_in.redirect_uris import is_registered
from token_service.sign_in.request import AuthorizationRequest, BadRequest, Parameters, Refusal, judge
from token_service.sign_in.requestable_access import RequestableAccess
from token_service.sign_in.requested_access import organizations_resource
from token_service.tokens.id_token_hints import IdTokenHints


class ArrivingRequests:
    """Judges authorization requests before anything is asked of the user."""

    def __init__(
        self,
        directory: Directory,
        access: RequestableAccess,
        hints: IdTokenHints,
        *,
        urn_namespace: str,
        management_api: str,
    ) -> None:
        self._directory = directory
        self._access = access
        self._hints = hints
        self._urn_namespace = urn_namespace
        self._management_api = management_api

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
        if not request.scopes <= self._access.wanted(request, application).everything():
            # an unknown scope would be dropped: catch up first
            await self._directory.catch_up("management", "template")
        return request

    async def level_wanted(self, request: AuthorizationRequest) -> Level:
        """Return how strongly a user must sign in for a request, before it is known who that is."""
        application = await self.application(request.client_id)
        policy = self._directory.in_memory.sign_in_policy
        demanded = demanded_of_tokens(policy, application, None) if application else None
        return strongest("password", demanded, request.acr) or "password"
