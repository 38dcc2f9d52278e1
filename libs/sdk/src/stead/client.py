"""The client of applications that people sign in to: the authorization code flow with PKCE, tokens and their renewal.

One client is one person's: give it a storage of that person, the session of a web framework or a file of a native
application. ``IdentityClient`` (threads) and ``AsyncIdentityClient`` (tasks) drive the same steps.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Final, Self

import httpx

from stead import _http
from stead._client_state import ClientState, MemoryStorage, Storage
from stead._http import Operation
from stead._key_source import AsyncKeySource, KeyFreshness, KeySource
from stead._keys import KeySet
from stead._oidc_operations import TIMEOUT_S, OidcOperations, ScopesWatch
from stead._tls import default_ssl_context
from stead.errors import Unavailable
from stead.verification import UnverifiedToken

__all__ = ["AsyncIdentityClient", "IdentityClient", "MemoryStorage", "Storage"]

_KEYS_FLOOR_S: Final = 5.0
_PAUSE_S: Final = 1.0


class _Client:
    """What needs no I/O.

    Attributes:
        state: What is known; for tests and tools.
    """

    def __init__(
        self,
        endpoint: str,
        client_id: str,
        client_secret: str | None,
        *,
        scopes: Iterable[str],
        resources: Iterable[str],
        storage: Storage | None,
        clock: Callable[[], float],
    ) -> None:
        self.state = ClientState(
            endpoint,
            client_id=client_id,
            scopes=scopes,
            resources=resources,
            storage=storage or MemoryStorage(),
            clock=clock,
        )
        self._operations = OidcOperations(self.state, client_secret)

    def sign_in_url(self, redirect_uri: str, prompt: str | None = None, *, login_hint: str | None = None) -> str:
        """Return where to send the person's browser.

        Args:
            redirect_uri: Where it comes back to; registered for the application.
            prompt: ``login`` to sign in again, ``consent`` to be asked again (needed before tokens carry permissions
                that were added to ``scopes`` since), ``none`` to come back at once whatever happens.
            login_hint: What to write into the field for the name.
        """
        return self.state.begin(redirect_uri, prompt=prompt, login_hint=login_hint)

    def is_signed_in(self) -> bool:
        """Tell whether somebody is signed in, as far as this side knows."""
        return self.state.is_signed_in()

    def claims(self) -> Mapping[str, Any]:
        """Return the claims of the ID token: who is signed in.

        Raises:
            SignInRequired: Nobody is.
        """
        return self.state.signed_in().claims

    def clear_organization_token(self, organization_id: str) -> None:
        """Forget the stored token of an organization, so that the next one shows what changed.

        Raises:
            SignInRequired: Nobody is signed in.
        """
        self.state.drop_token(self.state.target_key(None, organization_id))

    def sign_out_url(self, post_logout_redirect_uri: str | None = None) -> str:
        """Return where to send the browser to sign out there too; here, everything is forgotten."""
        return self.state.sign_out(post_logout_redirect_uri)


class IdentityClient(_Client):
    """Signs a person in, and gets tokens in their name. Safe for threads; one refresh is under way at a time."""

    def __init__(
        self,
        endpoint: str,
        client_id: str,
        client_secret: str | None = None,
        *,
        scopes: Iterable[str] = (),
        resources: Iterable[str] = (),
        storage: Storage | None = None,
        clock: Callable[[], float] = time.time,
        http: httpx.Client | None = None,
    ) -> None:
        """Prepare to sign a person in.

        Args:
            endpoint: Base address of the service.
            client_id: The application.
            client_secret: Of a Traditional application; None for Native and SPA.
            scopes: Everything that tokens shall carry, besides ``openid``, ``offline_access`` and ``profile``: scopes
                of the resources; for organizations ``urn:service:scope:organizations`` and every organization
                permission that is used.
            resources: Indicators of the APIs that tokens are needed for.
            storage: Of this person; without one everything is forgotten with the client.
            clock: Seconds since the epoch.
            http: Sends the requests; stays yours to close.

        Raises:
            ValueError: The endpoint is no address.
        """
        super().__init__(
            endpoint,
            client_id,
            client_secret,
            scopes=scopes,
            resources=resources,
            storage=storage,
            clock=clock,
        )
        self._http = http or httpx.Client(timeout=TIMEOUT_S, verify=default_ssl_context())
        self._owns_http = http is None
        self._keys = KeySource(
            f"{self.state.issuer}/jwks",
            freshness=KeyFreshness(floor_s=_KEYS_FLOOR_S),
            clock=clock,
            timeout_s=TIMEOUT_S,
            http=self._http,
        )
        self._refreshing = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        if self._owns_http:
            self._http.close()

    def handle_callback(self, url: str) -> Mapping[str, Any]:
        """Take the answer that the browser has brought; return the claims of the ID token.

        Raises:
            SignInRequired: The person or the service refused, or it is no answer to a sign-in that was begun here.
            OAuthError: The code was refused.
            TokenInvalid: The ID token does not say what it must.
            Unavailable: The service did not answer.
        """
        sign_in, code = self.state.answered(url)
        redeemed = self._run(self._operations.redeem(sign_in, code))
        keys = self._keys_for(redeemed.id_token)
        return self._operations.signed_in(redeemed, keys, target=self.state.target_key(None, None))

    def get_access_token(self, resource: str | None = None, organization_id: str | None = None) -> str:
        """Return an access token that lasts a while: a stored one, or a new one.

        Args:
            resource: The API; None for the userinfo endpoint.
            organization_id: Within which organization; alone it is an organization token.

        Raises:
            SignInRequired: Nobody is signed in, or not any more.
            OAuthError: Refused: the target was not asked for, or the person is no member.
            Unavailable: The service did not answer.
        """
        return self._token(resource, organization_id)

    def get_organization_token(self, organization_id: str) -> str:
        """Return an organization token; see ``get_access_token``."""
        return self.get_access_token(organization_id=organization_id)

    def fetch_user_info(self) -> dict[str, Any]:
        """Return what the userinfo endpoint says of the person.

        Raises:
            SignInRequired: Nobody is signed in, or not any more.
            Unavailable: The service did not answer.
        """
        return self._run(self._operations.user_info(self.get_access_token()))

    def watch_organization_scopes(self, organization_id: str) -> Iterator[str]:
        """Yield an organization token, and a new one whenever the person's permissions there have changed.

        Blocks between them, for as long as nothing changes. What is not answered is asked again after a pause.

        Raises:
            SignInRequired: The person is signed out.
            OAuthError: ``access_denied``: the person is no member any more, or the organization is gone. Or refused
                otherwise, as ``get_access_token`` is.
            ApiError: The answer is none of the service's.
        """
        watch = ScopesWatch()
        while True:
            try:
                token = self._token(None, organization_id)
                watch.take(self._run(self._operations.watch(organization_id, token, watch.etag)))
                if watch.is_due:
                    self.clear_organization_token(organization_id)
                    with self._refreshing:  # not a token that another caller has asked for before the change
                        token = self._refreshed(None, organization_id, watch.revision)
                    watch.is_due = False
                    yield token
            except Unavailable as error:
                time.sleep(error.retry_after or _PAUSE_S)

    def _token(self, resource: str | None, organization_id: str | None) -> str:
        target = self.state.target_key(resource, organization_id)
        token = self.state.usable_token(target)
        if token is None:
            with self._refreshing:
                token = self.state.usable_token(target)  # got while this caller waited
                if token is None:
                    token = self._refreshed(resource, organization_id)
        return token

    def _refreshed(self, resource: str | None, organization_id: str | None, revision: str | None = None) -> str:
        """Return a new token; whoever calls has seen to it that no other refresh is under way."""
        target = self.state.target_key(resource, organization_id)
        while True:
            refreshed = self._run(self._operations.refresh(resource, organization_id, revision))
            keys = self._keys_for(refreshed.id_token) if refreshed.id_token is not None else None
            if self._operations.renewed(refreshed, keys, target=target):
                return refreshed.response.access_token

    def _keys_for(self, token: UnverifiedToken) -> KeySet:
        keys = self._keys.keys()
        return keys if token.key_id in keys else self._keys.keys(stale=keys)

    def _run(self, operation: Operation[_http.T]) -> _http.T:
        return _http.run(operation, lambda request: _http.send(self._http, self.state.endpoint, request, {}))


class AsyncIdentityClient(_Client):
    """The same as ``IdentityClient`` in tasks of one event loop."""

    def __init__(
        self,
        endpoint: str,
        client_id: str,
        client_secret: str | None = None,
        *,
        scopes: Iterable[str] = (),
        resources: Iterable[str] = (),
        storage: Storage | None = None,
        clock: Callable[[], float] = time.time,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        """Prepare to sign a person in; see ``IdentityClient``.

        Raises:
            ValueError: The endpoint is no address.
        """
        super().__init__(
            endpoint,
            client_id,
            client_secret,
            scopes=scopes,
            resources=resources,
            storage=storage,
            clock=clock,
        )
        self._http = http or httpx.AsyncClient(timeout=TIMEOUT_S, verify=default_ssl_context())
        self._owns_http = http is None
        self._keys = AsyncKeySource(
            f"{self.state.issuer}/jwks",
            freshness=KeyFreshness(floor_s=_KEYS_FLOOR_S),
            clock=clock,
            timeout_s=TIMEOUT_S,
            http=self._http,
        )
        self._refreshing = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        if self._owns_http:
            await self._http.aclose()

    async def handle_callback(self, url: str) -> Mapping[str, Any]:
        """Take the answer that the browser has brought; see ``IdentityClient.handle_callback``."""
        sign_in, code = self.state.answered(url)
        redeemed = await self._run(self._operations.redeem(sign_in, code))
        keys = await self._keys_for(redeemed.id_token)
        return self._operations.signed_in(redeemed, keys, target=self.state.target_key(None, None))

    async def get_access_token(self, resource: str | None = None, organization_id: str | None = None) -> str:
        """Return an access token; see ``IdentityClient.get_access_token``."""
        return await self._token(resource, organization_id)

    async def get_organization_token(self, organization_id: str) -> str:
        """Return an organization token; see ``get_access_token``."""
        return await self.get_access_token(organization_id=organization_id)

    async def fetch_user_info(self) -> dict[str, Any]:
        """Return what the userinfo endpoint says; see ``IdentityClient.fetch_user_info``."""
        return await self._run(self._operations.user_info(await self.get_access_token()))

    async def watch_organization_scopes(self, organization_id: str) -> AsyncIterator[str]:
        """Yield organization tokens; see ``IdentityClient.watch_organization_scopes``."""
        watch = ScopesWatch()
        while True:
            try:
                token = await self._token(None, organization_id)
                watch.take(await self._run(self._operations.watch(organization_id, token, watch.etag)))
                if watch.is_due:
                    self.clear_organization_token(organization_id)
                    async with self._refreshing:  # not a token that another caller has asked for before the change
                        token = await self._refreshed(None, organization_id, watch.revision)
                    watch.is_due = False
                    yield token
            except Unavailable as error:
                await asyncio.sleep(error.retry_after or _PAUSE_S)

    async def _token(self, resource: str | None, organization_id: str | None) -> str:
        target = self.state.target_key(resource, organization_id)
        token = self.state.usable_token(target)
        if token is None:
            async with self._refreshing:
                token = self.state.usable_token(target)  # got while this caller waited
                if token is None:
                    token = await self._refreshed(resource, organization_id)
        return token

    async def _refreshed(self, resource: str | None, organization_id: str | None, revision: str | None = None) -> str:
        """Return a new token; whoever calls has seen to it that no other refresh is under way."""
        target = self.state.target_key(resource, organization_id)
        while True:
            refreshed = await self._run(self._operations.refresh(resource, organization_id, revision))
            keys = await self._keys_for(refreshed.id_token) if refreshed.id_token is not None else None
            if self._operations.renewed(refreshed, keys, target=target):
                return refreshed.response.access_token

    async def _keys_for(self, token: UnverifiedToken) -> KeySet:
        keys = await self._keys.keys()
        return keys if token.key_id in keys else await self._keys.keys(stale=keys)

    async def _run(self, operation: Operation[_http.T]) -> _http.T:
        return await _http.async_run(
            operation, lambda request: _http.async_send(self._http, self.state.endpoint, request, {})
        )
