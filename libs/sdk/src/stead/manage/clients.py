"""The clients of the Management API.

Owns authentication and the revisions seen. Does not own the operations: ``operations`` describes them, and
``operation_groups`` names them, once for both clients.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeAlias, TypeVar

import httpx2 as httpx
import msgspec

from stead._transport.api import asks_for_a_recent_sign_in, decode, json_request, require_success
from stead._transport.http import async_send, checked_base_url, send
from stead._transport.operations import AsyncRun, Operation, Request, Run, Steps, async_run, run
from stead._transport.revisions import HEADER as REVISION_HEADER
from stead._transport.revisions import HighestRevisions, checked_revision
from stead._transport.tls import default_ssl_context
from stead.manage import operation_groups as groups
from stead.manage.access_token import ClientToken, SuppliedToken
from stead.manage.operations.search import search
from stead.models import SearchAnswer
from stead.sign_in.token_endpoint import TokenResponse, request_client_credentials

__all__ = ["AccessTokenSupplier", "AsyncAccessTokenSupplier", "AsyncManagementClient", "ManagementClient"]

T = TypeVar("T")
R = TypeVar("R", Run, AsyncRun)

_RESOURCE: Final = "https://default.service.internal/api"
_TIMEOUT_S: Final = 10.0

AccessTokenSupplier: TypeAlias = Callable[[str | None], str]
"""Returns an access token for the Management API. The argument is the token that was refused, or None."""
AsyncAccessTokenSupplier: TypeAlias = Callable[[str | None], Awaitable[str]]
"""The asynchronous ``AccessTokenSupplier``."""


class _Client(Generic[R]):
    """The part of both clients that needs no I/O."""

    def __init__(
        self,
        base_url: str,
        *,
        client_id: str,
        client_secret: str,
        access_token: Callable[[str | None], Any] | None,
        resource: str,
        scope: str,
        revision: str | None,
        headers: Mapping[str, str] | None,
        clock: Callable[[], float],
        lock: Any,
        run: R,
        is_async: bool,
    ) -> None:
        if access_token is not None and (client_id or client_secret):
            raise ValueError("give credentials or access_token, not both")
        if access_token is None and not (client_id and client_secret):
            raise ValueError("client_id and client_secret must not be empty")
        self._base_url = checked_base_url(base_url)
        self._client_id = client_id
        self._client_secret = client_secret
        self._resource = resource
        self._scope = scope
        self._sent_headers = dict(headers or {})
        self._revisions = HighestRevisions()
        if revision is not None:
            self._revisions.observe(checked_revision(revision))
        self._token: ClientToken | SuppliedToken = (
            ClientToken(self._token_operation, clock=clock, lock=lock)
            if access_token is None
            else SuppliedToken(access_token)
        )
        self.users: groups.Users[R] = groups.Users(run, is_async=is_async)
        self.applications: groups.Applications[R] = groups.Applications(run, is_async=is_async)
        self.resources: groups.Resources[R] = groups.Resources(run, is_async=is_async)
        self.roles: groups.Roles[R] = groups.Roles(run, is_async=is_async)
        self.organization_permissions: groups.OrganizationPermissions[R] = groups.OrganizationPermissions(
            run, is_async=is_async
        )
        self.organization_roles: groups.OrganizationRoles[R] = groups.OrganizationRoles(run, is_async=is_async)
        self.organization_template: groups.OrganizationTemplate[R] = groups.OrganizationTemplate(run, is_async=is_async)
        self.organizations: groups.Organizations[R] = groups.Organizations(run, is_async=is_async)
        self.organization_invitations: groups.OrganizationInvitations[R] = groups.OrganizationInvitations(
            run, is_async=is_async
        )
        self.connectors: groups.Connectors[R] = groups.Connectors(run, is_async=is_async)
        self.custom_claims: groups.CustomClaims[R] = groups.CustomClaims(run, is_async=is_async)
        self.logs: groups.Logs[R] = groups.Logs(run, is_async=is_async)
        self.mail: groups.Mail[R] = groups.Mail(run, is_async=is_async)
        self.subject_tokens: groups.SubjectTokens[R] = groups.SubjectTokens(run, is_async=is_async)
        self.impersonations: groups.Impersonations[R] = groups.Impersonations(run, is_async=is_async)
        self.my_account: groups.MyAccount[R] = groups.MyAccount(run, is_async=is_async)
        self.impersonation_policy: groups.ImpersonationPolicy[R] = groups.ImpersonationPolicy(run, is_async=is_async)
        self.sign_in_policy: groups.SignInPolicy[R] = groups.SignInPolicy(run, is_async=is_async)

    @property
    def last_revision(self) -> str | None:
        """The highest revisions seen, such as ``management:97, template:184``; None before the first one.

        Pass it to a request made elsewhere, such as ``exchange_subject_token(…, revision=…)``, so that its
        response includes the changes made with this client.
        """
        return self._revisions.header

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._base_url!r}, client_id={self._client_id!r})"

    def _token_operation(self) -> Operation[TokenResponse]:
        return request_client_credentials(
            client_id=self._client_id, client_secret=self._client_secret, resource=self._resource, scope=self._scope
        )

    def _authorized(self, request: Request) -> Steps[httpx.Response]:
        token = yield from self._token.value()
        answer: httpx.Response = yield msgspec.structs.replace(request, access_token=token)
        if answer.status_code == httpx.codes.UNAUTHORIZED and not asks_for_a_recent_sign_in(answer):
            token = yield from self._token.value(refused=token)
            answer = yield msgspec.structs.replace(request, access_token=token)
        return answer

    def _headers(self) -> dict[str, str]:
        headers = dict(self._sent_headers)
        revision = self._revisions.header
        if revision is not None:
            headers[REVISION_HEADER] = revision
        return headers

    def _observed(self, answer: httpx.Response) -> httpx.Response:
        self._revisions.observe(answer.headers.get(REVISION_HEADER))
        return answer


class ManagementClient(_Client[Run]):
    """A client of the Management API. Safe for threads.

    ::

        with ManagementClient("https://id.example.com", client_id=..., client_secret=...) as client:
            user = client.users.create(username="ada")
            organization = client.organizations.create("Analytical Engines")
            client.organizations.add_users(organization.id, [user.id])
            client.organizations.assign_user_roles(organization.id, user.id, role_names=["editor"])
            for user in client.users.list(search="ada"):
                print(user.id)

    It authenticates with client credentials, and caches and renews its access token. Each request carries the highest
    ``Identity-Revision`` seen, so that its response includes all changes made with this client before. It never
    retries, with one exception: a request that was refused with 401, and therefore not carried out, is sent once more
    with a new token.

    Lists are fetched page by page during iteration, from the beginning each time.

    The result of ``get``, and a ``page()`` that has a whole list, has an ``etag``. A write with it as ``if_match``
    raises ``VersionMismatch``, and changes nothing, if another write came in between.

    Attributes:
        users: Users, their API roles, consents, factors, sessions and identities.
        applications: OAuth clients, their secrets and API roles.
        resources: API resources and their scopes.
        roles: API roles, their scopes and holders.
        organization_permissions: Permissions of the organization template.
        organization_roles: Roles of the organization template.
        organization_template: The organization template as one document.
        organizations: Organizations, their members and the members' roles.
        connectors: OpenID providers at which people sign in.
        custom_claims: The function that adds claims to access tokens.
        logs: The audit trail.
        mail: Mail that was given up.
        subject_tokens: One-time tokens that represent a user.
        impersonations: Impersonations, each of which begins with a subject token.
        impersonation_policy: What impersonations need, and which users they exclude.
        sign_in_policy: Who may register, and whether users need a second factor.
        my_account: A person's own account: with ``access_token``, which supplies their own token.
    """

    def __init__(
        self,
        base_url: str,
        *,
        client_id: str = "",
        client_secret: str = "",
        access_token: AccessTokenSupplier | None = None,
        resource: str = _RESOURCE,
        scope: str = "all",
        revision: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = _TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
        http: httpx.Client | None = None,
    ) -> None:
        """Create a client; nothing is sent yet.

        Args:
            base_url: Base address of the service, such as ``https://id.example.com``.
            client_id: A machine-to-machine application that may call the Management API.
            client_secret: One of its valid secrets.
            access_token: Supplies access tokens in place of the credentials, such as those of a person who signed in.
            resource: Resource indicator of the Management API; independent of the address.
            scope: ``all``, or narrower ones, such as ``read`` or ``users organizations:read``: docs/guides/rights.md.
            revision: ``last_revision`` of another client, whose changes the responses to this one must include.
            headers: Sent with each request.
            timeout_s: Timeout of each request in seconds; ignored if ``http`` is given.
            clock: Monotonic clock in seconds, for the age of the token.
            http: Client for all requests, for a proxy or your own certificates. You close it.

        Raises:
            ValueError: ``base_url`` is not an http or https URL, ``revision`` is malformed, or there are neither
                credentials nor a supplier, or both.
        """
        super().__init__(
            base_url,
            client_id=client_id,
            client_secret=client_secret,
            access_token=access_token,
            resource=resource,
            scope=scope,
            revision=revision,
            headers=headers,
            clock=clock,
            lock=threading.Lock(),
            run=self._run,
            is_async=False,
        )
        self._http = http if http is not None else httpx.Client(timeout=timeout_s, verify=default_ssl_context())
        self._http_is_ours = http is None

    def search(self, text: str, *, limit: int | None = None) -> SearchAnswer:
        """Find objects of every kind by words, or by an id, among those that this client may read.

        ::

            for group in client.search("ann@example.com").groups:
                for result in group.results:
                    print(result.type, result.id, result.name)

        Each word must begin a word of the object, regardless of case and accents. Impersonations are found by ticket
        and reason, entries of the audit trail by their id and that of their request.

        Args:
            text: At most 256 characters.
            limit: Results per group, 1 to 20; None for 5.

        Raises:
            InvalidInput: The text is blank, too long, or has invisible characters.
            Conflict: The search took too long.
        """
        return self._run(search(text, limit=limit))

    def request(
        self, method: str, path: str, *, json: object = None, params: Mapping[str, str | int] | None = None
    ) -> Any:
        """Send a request to the Management API that has no method of its own.

        ::

            status = client.request("GET", "/api/status")

        Args:
            method: HTTP method.
            path: From the root of the service, percent-encoded: ``/api/users``.
            json: The body; None for none.
            params: Query parameters.

        Returns:
            The decoded JSON of the response; None if it has no body.

        Raises:
            ApiError: The service refused.
            OAuthError: The service issues no token to this client.
            Unavailable: The service did not answer, or asked for a later retry.
        """
        return self._run(_any_request(method, path, json, params))

    def close(self) -> None:
        """Close the connections, except those of an ``http`` that you passed in."""
        if self._http_is_ours:
            self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, operation: Operation[T]) -> T:
        return run(operation, self._send_authorized)

    def _send_authorized(self, request: Request) -> httpx.Response:
        return run(self._authorized(request), self._send)

    def _send(self, request: Request) -> httpx.Response:
        return self._observed(send(self._http, self._base_url, request, self._headers()))


class AsyncManagementClient(_Client[AsyncRun]):
    """A client of the Management API for the tasks of one event loop; see ``ManagementClient``.

    ::

        async with AsyncManagementClient("https://id.example.com", client_id=..., client_secret=...) as client:
            user = await client.users.create(username="ada")
            async for user in client.users.list(search="ada"):
                print(user.id)

    Attributes:
        users: Users, their API roles, consents, factors, sessions and identities.
        applications: OAuth clients, their secrets and API roles.
        resources: API resources and their scopes.
        roles: API roles, their scopes and holders.
        organization_permissions: Permissions of the organization template.
        organization_roles: Roles of the organization template.
        organization_template: The organization template as one document.
        organizations: Organizations, their members and the members' roles.
        connectors: OpenID providers at which people sign in.
        custom_claims: The function that adds claims to access tokens.
        logs: The audit trail.
        mail: Mail that was given up.
        subject_tokens: One-time tokens that represent a user.
        impersonations: Impersonations, each of which begins with a subject token.
        impersonation_policy: What impersonations need, and which users they exclude.
        sign_in_policy: Who may register, and whether users need a second factor.
        my_account: A person's own account: with ``access_token``, which supplies their own token.
    """

    def __init__(
        self,
        base_url: str,
        *,
        client_id: str = "",
        client_secret: str = "",
        access_token: AsyncAccessTokenSupplier | None = None,
        resource: str = _RESOURCE,
        scope: str = "all",
        revision: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = _TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        """Create a client; see ``ManagementClient`` for the arguments.

        Raises:
            ValueError: ``base_url`` is not an http or https URL, ``revision`` is malformed, or there are neither
                credentials nor a supplier, or both.
        """
        super().__init__(
            base_url,
            client_id=client_id,
            client_secret=client_secret,
            access_token=access_token,
            resource=resource,
            scope=scope,
            revision=revision,
            headers=headers,
            clock=clock,
            lock=asyncio.Lock(),
            run=self._run,
            is_async=True,
        )
        self._http = http if http is not None else httpx.AsyncClient(timeout=timeout_s, verify=default_ssl_context())
        self._http_is_ours = http is None

    async def search(self, text: str, *, limit: int | None = None) -> SearchAnswer:
        """Find objects of every kind by words, or by an id; see ``ManagementClient.search``.

        Raises:
            InvalidInput: The text is blank, too long, or has invisible characters.
            Conflict: The search took too long.
        """
        return await self._run(search(text, limit=limit))

    async def request(
        self, method: str, path: str, *, json: object = None, params: Mapping[str, str | int] | None = None
    ) -> Any:
        """Send a request to the Management API; see ``ManagementClient.request``.

        Raises:
            ApiError: The service refused.
            OAuthError: The service issues no token to this client.
            Unavailable: The service did not answer, or asked for a later retry.
        """
        return await self._run(_any_request(method, path, json, params))

    async def aclose(self) -> None:
        """Close the connections, except those of an ``http`` that you passed in."""
        if self._http_is_ours:
            await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _run(self, operation: Operation[T]) -> T:
        return await async_run(operation, self._send_authorized)

    async def _send_authorized(self, request: Request) -> httpx.Response:
        return await async_run(self._authorized(request), self._send)

    async def _send(self, request: Request) -> httpx.Response:
        return self._observed(await async_send(self._http, self._base_url, request, self._headers()))


def _any_request(method: str, path: str, json: object, params: Mapping[str, str | int] | None) -> Operation[Any]:
    answer = yield json_request(method, path, json, params=params)
    if not answer.content:
        require_success(answer)
        return None
    return decode(answer, Any)
