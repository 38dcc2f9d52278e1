"""The client for applications that users sign in to: authorization code flow with PKCE, and token renewal.

``IdentityClient`` (threads) and ``AsyncIdentityClient`` (tasks) run the same operations (``operations``) over the
same state (``state``).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Final, Self

import httpx2 as httpx

from stead._transport.http import async_send, send
from stead._transport.operations import Steps, T, async_run, run
from stead._transport.tls import default_ssl_context
from stead.errors import Unavailable
from stead.sign_in.operations import OidcOperations, ScopesWatch, target_of
from stead.sign_in.state import ClientState, MemoryStorage, SignInForm, Storage, sign_in_options

__all__ = ["AsyncIdentityClient", "IdentityClient", "MemoryStorage", "SignInForm", "Storage"]

_TIMEOUT_S: Final = 10.0
_RETRY_DELAY_S: Final = 1.0


class _Client:
    """The part of both clients that needs no I/O.

    Attributes:
        state: The stored state; for tests and tools.
    """

    def __init__(
        self,
        base_url: str,
        client_id: str,
        client_secret: str | None,
        *,
        scopes: Iterable[str],
        resources: Iterable[str],
        storage: Storage | None,
        clock: Callable[[], float],
        lock: Callable[[], Any],
    ) -> None:
        self.state = ClientState(
            base_url,
            client_id=client_id,
            scopes=scopes,
            resources=resources,
            storage=MemoryStorage() if storage is None else storage,
            clock=clock,
        )
        self._operations = OidcOperations(self.state, client_secret, lock=lock)

    def sign_in_url(
        self,
        redirect_uri: str,
        prompt: str | None = None,
        *,
        login_hint: str | None = None,
        acr_values: str | Iterable[str] = (),
        max_age: int | None = None,
    ) -> str:
        """Begin a sign-in: return the address to which to redirect the browser.

        Args:
            redirect_uri: The callback address, registered for the application.
            prompt: ``login`` forces a new sign-in; ``consent`` asks for consent again, which is necessary after scopes
                were added; ``select_account`` offers the user another account; ``none`` never shows a page. Several are
                separated by spaces.
            login_hint: Prefills the user name.
            acr_values: How strongly the user must sign in: one or more values of ``acr``, such as
                ``urn:service:acr:mfa``, of which the sign-in must meet one. ``handle_callback`` refuses a weaker one.
            max_age: How long ago the sign-in may be, in seconds. ``handle_callback`` refuses an older one.

        Raises:
            ValueError: The address is longer than proxies accept: use ``sign_in_form``.
        """
        return self.state.begin_by_url(
            redirect_uri, sign_in_options(prompt, login_hint=login_hint, acr_values=acr_values, max_age=max_age)
        )

    def sign_in_form(
        self,
        redirect_uri: str,
        prompt: str | None = None,
        *,
        login_hint: str | None = None,
        acr_values: str | Iterable[str] = (),
        max_age: int | None = None,
    ) -> SignInForm:
        """Begin a sign-in: return the form that a page of the application posts, however many scopes it asks for.

        Args:
            redirect_uri: The callback address, registered for the application.
            prompt: See ``sign_in_url``.
            login_hint: Prefills the user name.
            acr_values: See ``sign_in_url``.
            max_age: See ``sign_in_url``.
        """
        return self.state.begin(
            redirect_uri, sign_in_options(prompt, login_hint=login_hint, acr_values=acr_values, max_age=max_age)
        )

    def is_signed_in(self) -> bool:
        """Tell whether a user is signed in, according to the storage; nothing is sent."""
        return self.state.is_signed_in()

    def claims(self) -> Mapping[str, Any]:
        """Return the claims of the user's ID token.

        Raises:
            SignInRequired: No user is signed in.
        """
        return self.state.signed_in().claims

    def clear_organization_token(self, organization_id: str) -> None:
        """Drop the cached tokens of an organization, so that the next one has the user's current permissions.

        Raises:
            SignInRequired: No user is signed in.
        """
        self.state.drop_organization_tokens(organization_id)

    def sign_out_url(self, post_logout_redirect_uri: str | None = None) -> str:
        """Sign out here, and return the address to which to redirect the browser to end the session there too."""
        return self.state.sign_out(post_logout_redirect_uri)


class IdentityClient(_Client):
    """Signs a user in and gets tokens on their behalf. Safe for threads.

    ::

        client = IdentityClient(
            "https://id.example.com",
            client_id=...,
            client_secret=...,
            scopes=["read:orders"],
            resources=["https://orders.example.com/api"],
            storage=session_storage,
        )
        redirect(client.sign_in_url("https://app.example.com/callback"))
        # in the handler of /callback
        claims = client.handle_callback(request.url)
        # from then on
        token = client.get_access_token("https://orders.example.com/api")

    A client belongs to one user: give it a storage of that user, such as the session of a web framework or a file of a
    native application. Tokens are cached and renewed when needed, with one refresh at a time.
    """

    def __init__(
        self,
        base_url: str,
        client_id: str,
        client_secret: str | None = None,
        *,
        scopes: Iterable[str] = (),
        resources: Iterable[str] = (),
        storage: Storage | None = None,
        clock: Callable[[], float] = time.time,
        http: httpx.Client | None = None,
    ) -> None:
        """Create a client; nothing is sent yet.

        Args:
            base_url: Base address of the service.
            client_id: The application.
            client_secret: Secret of a Traditional application; None for Native and SPA.
            scopes: Scopes to request besides ``openid``, ``offline_access`` and ``profile``: those of the resources;
                for organizations, ``urn:service:scope:organizations`` and each organization permission in use.
            resources: Resource indicators of the APIs to call.
            storage: The user's storage; by default, in memory for the lifetime of the client.
            clock: Returns seconds since the epoch.
            http: Client for all requests; you close it.

        Raises:
            ValueError: ``base_url`` is not an http or https URL.
        """
        super().__init__(
            base_url,
            client_id,
            client_secret,
            scopes=scopes,
            resources=resources,
            storage=storage,
            clock=clock,
            lock=threading.Lock,
        )
        self._http = http or httpx.Client(timeout=_TIMEOUT_S, verify=default_ssl_context())
        self._owns_http = http is None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, except those of an ``http`` that you passed in."""
        if self._owns_http:
            self._http.close()

    def handle_callback(self, url: str) -> Mapping[str, Any]:
        """Complete a sign-in: redeem the code, and return the claims of the ID token.

        Args:
            url: The full address of the callback request, with its query.

        Raises:
            SignInRequired: The user or the service refused, this client did not begin the sign-in, or it is older
                (``sign_in_too_old``) or weaker (``sign_in_too_weak``) than was requested: then the user who signed in
                before is still the current one.
            OAuthError: The code was refused.
            TokenInvalid: The ID token was rejected.
            Unavailable: The service did not answer.
        """
        return self._run(self._operations.complete(url))

    def get_access_token(
        self,
        resource: str | None = None,
        organization_id: str | None = None,
        *,
        scope: str | Iterable[str] | None = None,
    ) -> str:
        """Return an access token, from the cache if it is valid for at least 30 s more.

        ::

            token = client.get_access_token("https://orders.example.com/api", scope=["read:orders"])

        A token has all scopes that the user has, or those of them that ``scope`` names: for an API that needs few, or
        where all together are more than a token holds (``invalid_scope``).

        Args:
            resource: Resource indicator of the API to call; None for the userinfo endpoint.
            organization_id: Limits the token to one organization; without ``resource``, requests an organization token.
            scope: Scope tokens, among those requested at sign-in (RFC 6749 section 6); None for all of them.

        Raises:
            SignInRequired: No user is signed in, or the session has ended.
            OAuthError: The service refused: the resource or a scope was not requested at sign-in, the scopes are more
                than a token holds, the user is not a member, or must sign in more strongly (``requires_sign_in``).
            Unavailable: The service did not answer.
            ValueError: ``scope`` is empty.
        """
        return self._run(self._operations.access_token(target_of(resource, organization_id, scope)))

    def get_organization_token(self, organization_id: str, *, scope: str | Iterable[str] | None = None) -> str:
        """Return an organization token; see ``get_access_token``."""
        return self.get_access_token(organization_id=organization_id, scope=scope)

    def fetch_user_info(self) -> dict[str, Any]:
        """Return the user's claims from the userinfo endpoint.

        Raises:
            SignInRequired: No user is signed in, or the session has ended.
            Unavailable: The service did not answer.
        """
        return self._run(self._operations.user_info())

    def watch_organization_scopes(
        self, organization_id: str, *, scope: str | Iterable[str] | None = None
    ) -> Iterator[str]:
        """Yield an organization token, and a new one whenever the user's permissions in the organization change.

        ::

            for token in client.watch_organization_scopes(organization_id):
                connection.replace_token(token)

        Blocks while nothing changes. While the service is unavailable, retries with a delay.

        Args:
            organization_id: The organization.
            scope: The scopes of the tokens; see ``get_access_token``. A change of any permission yields a new token.

        Raises:
            SignInRequired: The user has signed out.
            OAuthError: ``access_denied``: the user is no longer a member, or the organization was deleted. Or any
                refusal of ``get_access_token``.
            ApiError: The response does not come from the service.
        """
        watch = ScopesWatch(target_of(None, organization_id, scope).scope)
        while True:
            try:
                token = self._run(self._operations.next_organization_token(organization_id, watch))
                if token is not None:
                    yield token
            except Unavailable as error:
                time.sleep(error.retry_after or _RETRY_DELAY_S)

    def _run(self, steps: Steps[T]) -> T:
        return run(steps, lambda request: send(self._http, self.state.base_url, request, {}))


class AsyncIdentityClient(_Client):
    """Signs a user in and gets tokens on their behalf, in the tasks of one event loop; see ``IdentityClient``."""

    def __init__(
        self,
        base_url: str,
        client_id: str,
        client_secret: str | None = None,
        *,
        scopes: Iterable[str] = (),
        resources: Iterable[str] = (),
        storage: Storage | None = None,
        clock: Callable[[], float] = time.time,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        """Create a client; see ``IdentityClient`` for the arguments.

        Raises:
            ValueError: ``base_url`` is not an http or https URL.
        """
        super().__init__(
            base_url,
            client_id,
            client_secret,
            scopes=scopes,
            resources=resources,
            storage=storage,
            clock=clock,
            lock=asyncio.Lock,
        )
        self._http = http or httpx.AsyncClient(timeout=_TIMEOUT_S, verify=default_ssl_context())
        self._owns_http = http is None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections, except those of an ``http`` that you passed in."""
        if self._owns_http:
            await self._http.aclose()

    async def handle_callback(self, url: str) -> Mapping[str, Any]:
        """Complete a sign-in; see ``IdentityClient.handle_callback``."""
        return await self._run(self._operations.complete(url))

    async def get_access_token(
        self,
        resource: str | None = None,
        organization_id: str | None = None,
        *,
        scope: str | Iterable[str] | None = None,
    ) -> str:
        """Return an access token; see ``IdentityClient.get_access_token``."""
        return await self._run(self._operations.access_token(target_of(resource, organization_id, scope)))

    async def get_organization_token(self, organization_id: str, *, scope: str | Iterable[str] | None = None) -> str:
        """Return an organization token; see ``get_access_token``."""
        return await self.get_access_token(organization_id=organization_id, scope=scope)

    async def fetch_user_info(self) -> dict[str, Any]:
        """Return the user's claims; see ``IdentityClient.fetch_user_info``."""
        return await self._run(self._operations.user_info())

    async def watch_organization_scopes(
        self, organization_id: str, *, scope: str | Iterable[str] | None = None
    ) -> AsyncIterator[str]:
        """Yield organization tokens; see ``IdentityClient.watch_organization_scopes``."""
        watch = ScopesWatch(target_of(None, organization_id, scope).scope)
        while True:
            try:
                token = await self._run(self._operations.next_organization_token(organization_id, watch))
                if token is not None:
                    yield token
            except Unavailable as error:
                await asyncio.sleep(error.retry_after or _RETRY_DELAY_S)

    async def _run(self, steps: Steps[T]) -> T:
        return await async_run(steps, lambda request: async_send(self._http, self.state.base_url, request, {}))
