"""Unmodified Authlib as every kind of client and as verifier; its joserfc checks every signature."""

from __future__ import annotations

from typing import Any

import httpx2 as httpx
import pytest
from authlib.common.security import generate_token
from authlib.integrations.base_client import OAuthError
from authlib.integrations.httpx_client import AsyncOAuth2Client
from authlib.integrations.starlette_client import OAuth
from authlib.oauth2.rfc6750.errors import InvalidTokenError
from authlib.oauth2.rfc8414 import AuthorizationServerMetadata
from authlib.oauth2.rfc9068 import JWTBearerTokenValidator
from authlib.oidc.discovery import OpenIDProviderMetadata, get_well_known_url
from authlib.oidc.rpinitiated import OpenIDProviderMetadata as LogoutMetadata
from joserfc.jwk import KeySet
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from identity_common.oauth import GRANT_TOKEN_EXCHANGE, TOKEN_TYPE_ACCESS_TOKEN
from tests.support.at_a_browser import Person
from tests.support.authorizing import REDIRECT_URI
from tests.support.world import Client, World

SCOPE = "openid profile email offline_access read:things write:things"


@pytest.fixture(scope="module")
def metadata(world: World) -> dict[str, Any]:
    url = get_well_known_url(world.stack.issuer, external=True)
    return dict(world.stack.http.get(url).raise_for_status().json())


@pytest.fixture(scope="module")
def page_application(world: World) -> Client:
    """A single-page application, without a secret."""
    created = world.management.applications.create(
        name="A page", type="SPA", oidc_client_metadata={"redirectUris": [REDIRECT_URI]}
    )
    return Client(created.id)


def oauth_client(client: Client, metadata: dict[str, Any], **options: Any) -> AsyncOAuth2Client:
    return AsyncOAuth2Client(
        client.id,
        client.secret,
        redirect_uri=REDIRECT_URI,
        code_challenge_method="S256",
        token_endpoint=metadata["token_endpoint"],
        **options,
    )


async def sign_in(world: World, oauth: AsyncOAuth2Client, metadata: dict[str, Any], person: Person) -> dict[str, Any]:
    """Run the code flow with PKCE; return its tokens."""
    verifier = generate_token(48)
    url, state = oauth.create_authorization_url(
        metadata["authorization_endpoint"], code_verifier=verifier, nonce=generate_token(), resource=world.resource
    )
    tokens: dict[str, Any] = await oauth.fetch_token(
        authorization_response=person.go(url), state=state, code_verifier=verifier
    )
    return tokens


class ResourceServer(JWTBearerTokenValidator):
    """An API that accepts tokens for its audience."""

    def __init__(self, world: World, audience: str) -> None:
        super().__init__(issuer=world.stack.issuer, resource_server=audience)
        self._world = world

    def get_jwks(self) -> KeySet:
        return KeySet.import_key_set(self._world.stack.http.get("/oidc/jwks").json())

    def claims(self, access_token: str, *scopes: str) -> dict[str, Any]:
        token = self.authenticate_token(access_token)
        self.validate_token(token, list(scopes), None)
        return dict(token)


def test_discovery_conforms_to_the_specifications(world: World, metadata: dict[str, Any]) -> None:
    """One deviation from OpenID Connect Discovery 1.0 section 3: ES256 is the default, RS256 only a setting."""
    assert metadata["issuer"] == world.stack.issuer
    assert metadata["id_token_signing_alg_values_supported"] == ["ES256"]
    with_rs256 = {**metadata, "id_token_signing_alg_values_supported": ["ES256", "RS256"]}
    OpenIDProviderMetadata(with_rs256).validate(metadata_classes=[LogoutMetadata])
    path = "/.well-known/oauth-authorization-server/oidc"
    AuthorizationServerMetadata(world.stack.http.get(path).json()).validate()


class WebApplication:
    """A web application with Authlib's Starlette integration and an in-memory session."""

    def __init__(self, world: World, client: Client, goodbye: str) -> None:
        self._goodbye = goodbye
        self.session: dict[str, Any] = {}
        self._oauth = OAuth()
        self._identity = self._oauth.register(
            "identity",
            client_id=client.id,
            client_secret=client.secret,
            server_metadata_url=get_well_known_url(world.stack.issuer, external=True),
            client_kwargs={"scope": SCOPE, "code_challenge_method": "S256"},
        )
        routes = [
            Route(f"/{view.__name__}", view)
            for view in (self.sign_in, self.callback, self.me, self.sign_out, self.goodbye)
        ]
        transport = httpx.ASGITransport(app=self._with_session(Starlette(routes=routes)))
        self.http = httpx.AsyncClient(transport=transport, base_url="https://app.example.com")

    def _with_session(self, app: ASGIApp) -> ASGIApp:
        async def called(scope: Scope, receive: Receive, send: Send) -> None:
            await app({**scope, "session": self.session}, receive, send)

        return called

    async def sign_in(self, request: Request) -> Response:
        return await self._identity.authorize_redirect(request, REDIRECT_URI)  # type: ignore[no-any-return]

    async def callback(self, request: Request) -> Response:
        try:
            self.session["token"] = await self._identity.authorize_access_token(request)
        except OAuthError as error:
            return JSONResponse({"error": error.error}, status_code=403)
        return JSONResponse(self.session["token"]["userinfo"])

    async def me(self, request: Request) -> Response:
        return JSONResponse(await self._identity.userinfo(token=request.session["token"]))

    async def sign_out(self, request: Request) -> Response:
        id_token = request.session["token"]["id_token"]
        return await self._identity.logout_redirect(request, self._goodbye, id_token)  # type: ignore[no-any-return]

    async def goodbye(self, request: Request) -> Response:
        return JSONResponse(await self._identity.validate_logout_response(request))


async def test_a_web_application_signs_a_user_in_and_out(
    world: World, application: Client, person: Person, goodbye: str
) -> None:
    app = WebApplication(world, application, goodbye)
    to_sign_in = await app.http.get("/sign_in")
    back = person.go(to_sign_in.headers["Location"])
    claims = (await app.http.get(back)).json()
    assert (claims["sub"], claims["aud"], claims["name"]) == (person.user_id, application.id, "Ada Lovelace")
    assert (await app.http.get("/me")).json() == {
        name: claims[name]
        for name in claims.keys()
        & {"sub", "name", "picture", "username", "preferred_username", "email", "created_at", "updated_at"}
    }
    to_sign_out = await app.http.get("/sign_out")
    gone = person.browser.get(to_sign_out.headers["Location"])
    assert (await app.http.get(gone.headers["Location"])).json() == {"post_logout_redirect_uri": goodbye}
    assert "/sign-in" in person.browser.get((await app.http.get("/sign_in")).headers["Location"]).headers["Location"]


async def test_a_web_application_receives_a_refusal(
    world: World, application: Client, person: Person, goodbye: str
) -> None:
    app = WebApplication(world, application, goodbye)
    to_sign_in = await app.http.get("/sign_in")
    page = person.follow(person.browser.get(to_sign_in.headers["Location"]))
    refused = person.cancel(page)
    answer = await app.http.get(refused.headers["Location"])
    assert (answer.status_code, answer.json()) == (403, {"error": "access_denied"})


async def test_tokens_are_issued_refreshed_introspected_and_revoked(
    world: World, metadata: dict[str, Any], application: Client, person: Person
) -> None:
    async with oauth_client(application, metadata, scope=SCOPE) as oauth:
        first = await sign_in(world, oauth, metadata, person)
        second = await oauth.refresh_token(resource=world.resource, scope="read:things write:things")
        assert second["refresh_token"] != first["refresh_token"]
        api = ResourceServer(world, world.resource)
        claims = api.claims(second["access_token"], "read:things write:things")
        assert (claims["sub"], claims["client_id"]) == (person.user_id, application.id)
        with pytest.raises(InvalidTokenError):
            ResourceServer(world, world.other_resource).claims(second["access_token"])
        with pytest.raises(InvalidTokenError):
            api.claims(first["id_token"])
        endpoint = metadata["introspection_endpoint"]
        for token in ("access_token", "refresh_token"):
            introspected = (await oauth.introspect_token(endpoint, second[token], token)).json()
            assert (introspected["active"], introspected["client_id"]) == (True, application.id)
        revoked = await oauth.revoke_token(metadata["revocation_endpoint"], second["refresh_token"], "refresh_token")
        assert revoked.status_code == 200
        for token in ("access_token", "refresh_token"):
            assert (await oauth.introspect_token(endpoint, second[token])).json() == {"active": False}
        with pytest.raises(OAuthError) as refused:
            await oauth.refresh_token()
        assert refused.value.error == "invalid_grant"


async def test_an_expired_token_is_refreshed_automatically(
    world: World, metadata: dict[str, Any], page_application: Client, person: Person
) -> None:
    async with oauth_client(page_application, metadata, scope=SCOPE) as oauth:
        first = dict(await sign_in(world, oauth, metadata, person))
        oauth.token = {**first, "expires_at": 1}
        answer = await oauth.get(metadata["userinfo_endpoint"])
        assert (answer.status_code, answer.json()["sub"]) == (200, person.user_id)
        assert oauth.token["access_token"] != first["access_token"]
        assert oauth.token["refresh_token"] != first["refresh_token"]


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
async def test_a_machine_gets_a_token(world: World, metadata: dict[str, Any], method: str) -> None:
    async with oauth_client(world.machine, metadata, token_endpoint_auth_method=method) as oauth:
        token = await oauth.fetch_token(grant_type="client_credentials", scope="read:things", resource=world.resource)
    claims = ResourceServer(world, world.resource).claims(token["access_token"], "read:things")
    assert claims["sub"] == claims["client_id"] == world.machine.id


async def test_an_agent_acts_for_a_customer(
    world: World, metadata: dict[str, Any], application: Client, person: Person
) -> None:
    async with oauth_client(application, metadata, scope=SCOPE) as oauth:
        agent = await sign_in(world, oauth, metadata, person)
        token = await oauth.fetch_token(
            grant_type=GRANT_TOKEN_EXCHANGE,
            subject_token=world.subject_token(),
            subject_token_type=TOKEN_TYPE_ACCESS_TOKEN,
            actor_token=agent["access_token"],
            actor_token_type=TOKEN_TYPE_ACCESS_TOKEN,
            resource=world.resource,
            scope="read:things",
        )
    assert token["issued_token_type"] == TOKEN_TYPE_ACCESS_TOKEN
    claims = ResourceServer(world, world.resource).claims(token["access_token"], "read:things")
    assert (claims["sub"], claims["act"]) == (world.customer, {"sub": person.user_id})
