"""A user has signed in to a client and consented: the code, its redemption, and refreshed tokens."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import asyncpg
import httpx2 as httpx
import jwt

from identity_common.clock import now_ms
from identity_common.revisions import parse_revisions
from tests.support.authorizing import REDIRECT_URI, Stores, Verifier, code_for, in_stores, issued
from tests.support.world import Client, Form, World
from token_service.authorizations import Code, Consented

EVERYTHING = "openid offline_access profile email phone roles"
NOT_ACCEPTABLE = "the code or refresh token is not acceptable"


class SignIn:
    """One sign-in of a user at a client, up to its code.

    Attributes:
        code: To be redeemed.
        stands_for: The stored content of the code.
        verifier: The PKCE verifier.
    """

    def __init__(
        self,
        world: World,
        client: Client | None = None,
        user_id: str | None = None,
        *,
        scope: str = EVERYTHING,
        resource_scopes: dict[str, str] | None = None,
        organization_permissions: str = "",
        organizations: frozenset[str] | None = None,
        verifier: Verifier | None = None,
        **changes: Any,
    ) -> None:
        self.world = world
        self.client = client or world.traditional
        self.user_id = user_id or world.customer
        self.verifier = verifier or Verifier()
        if resource_scopes is None:
            resource_scopes = {world.resource: "read:things write:things purge:things"}
        consented = Consented(
            scopes=frozenset(scope.split()),
            resource_scopes={indicator: frozenset(names.split()) for indicator, names in resource_scopes.items()},
            organization_permissions=frozenset(organization_permissions.split()),
            organizations=organizations,
        )
        as_of = parse_revisions([world.management.last_revision or "management:0"])
        self.stands_for: Code = code_for(
            self.user_id,
            self.client.id,
            self.verifier,
            **{
                "consented": consented,
                "revision": as_of.get("management", 0),
                "auth_time": max(now_ms(), tokens_valid_after(world, self.user_id)),
                **changes,
            },
        )
        self.code = issued(world.stack.token_settings, self.stands_for)
        world.stack.recorder.keep(self.code, "code")

    @property
    def authorization_id(self) -> str:
        return self.stands_for.authorization.id

    def redeem(self, *, client: Client | None = None, **changes: str | list[str] | None) -> httpx.Response:
        """Redeem the code with these changes to a valid request."""
        form: Form = {
            "grant_type": "authorization_code",
            "code": self.code,
            "redirect_uri": REDIRECT_URI,
            "code_verifier": self.verifier.secret,
            **changes,
        }
        return ask(self.world, client or self.client, form)

    def tokens(self, **changes: str | list[str] | None) -> dict[str, Any]:
        """Redeem the code and return the whole answer."""
        answer = self.redeem(client=None, **changes)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def refresh(
        self, refresh_token: str, *, client: Client | None = None, **changes: str | list[str] | None
    ) -> httpx.Response:
        """Present a refresh token."""
        form: Form = {"grant_type": "refresh_token", "refresh_token": refresh_token, **changes}
        return ask(self.world, client or self.client, form)

    def refreshed(self, refresh_token: str, **changes: str | list[str] | None) -> dict[str, Any]:
        """Present a refresh token and return the whole answer."""
        answer = self.refresh(refresh_token, client=None, **changes)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def granted(self, grant: str, **changes: str | list[str] | None) -> str:
        """Return the scope of the token for the code, or for a refresh token that came from it."""
        if grant == "code":
            return scope_of(self.tokens(**changes))
        return scope_of(self.refreshed(self.tokens()["refresh_token"], **changes))

    def end(self) -> None:
        """End the authorization, as removing the consent does."""

        async def withdraw(stores: Stores) -> None:
            await stores.authorizations.withdraw_consent(self.user_id, self.client.id)

        in_stores(self.world.stack.token_settings, withdraw)

    def id_token_claims(self, id_token: str) -> dict[str, Any]:
        """Verify an ID token with a third-party library, and return its claims."""
        header = jwt.get_unverified_header(id_token)
        assert header["typ"] == "JWT"
        return jwt.decode(
            id_token,
            self.world._keys[header["kid"]],
            algorithms=["ES256"],
            audience=self.client.id,
            issuer=self.world.stack.issuer,
            leeway=2,
            options={"require": ["iss", "sub", "aud", "exp", "iat"]},
        )


def scope_of(tokens: dict[str, Any]) -> str:
    """Return the scope of an access token; that of the answer may have ``offline_access`` beside a userinfo token."""
    claims = jwt.decode(tokens["access_token"], options={"verify_signature": False})
    scope = str(claims["scope"])
    beside = {"offline_access"} if claims["aud"] == f"{claims['iss']}/me" else set()
    assert set(tokens["scope"].split()) - beside == set(scope.split())
    return scope


def tokens_valid_after(world: World, user_id: str) -> int:
    """Return the earliest valid time of a sign-in, as the password check knows it."""

    async def read() -> int:
        connection = await asyncpg.connect(world.stack.addresses.management_database_url.replace("+asyncpg", ""))
        try:
            return int(await connection.fetchval("SELECT tokens_valid_after FROM users WHERE id = $1", user_id) or 0)
        finally:
            await connection.close()

    with ThreadPoolExecutor(1) as thread:  # this thread may have a running event loop
        return thread.submit(asyncio.run, read()).result()


def ask(world: World, client: Client, form: Form) -> httpx.Response:
    """Send a form to the token endpoint as a client."""
    if client.secret is None:
        form.setdefault("client_id", client.id)
        return world.stack.token_request(form)
    return world.stack.token_request(form, auth=client.basic)
