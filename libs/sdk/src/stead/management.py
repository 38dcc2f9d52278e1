"""The Management API clients: one that blocks, and its twin for tasks.

Owns the client's token and the memory of revisions. The names under which operations are found stand in ``_operation_groups``;
what an operation sends and how its answer is read, in ``_operations``: once for both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

import httpx

from stead import _http
from stead import _operation_groups as groups
from stead._client_token import AsyncClientToken, ClientToken
from stead._http import AsyncRun, Operation, Request, Run
from stead._revisions import HEADER as REVISION_HEADER
from stead._revisions import HighestRevisions
from stead._tls import default_ssl_context
from stead.token_endpoint import TokenResponse, request_client_credentials

__all__ = ["AsyncManagementClient", "ManagementClient"]

T = TypeVar("T")
R = TypeVar("R", Run, AsyncRun)

_RESOURCE: Final = "https://default.service.internal/api"
_TIMEOUT_S: Final = 10.0


class _Client(Generic[R]):
    """What the clients have in common: everything but sending and waiting."""

    def __init__(
        self, endpoint: str, *, client_id: str, client_secret: str, resource: str, scope: str, run: R, is_async: bool
    ) -> None:
        if not client_id or not client_secret:
            raise ValueError("client_id and client_secret must not be empty")
        self._endpoint = _http.checked_endpoint(endpoint)
        self._client_id = client_id
        self._client_secret = client_secret
        self._resource = resource
        self._scope = scope
        self._revisions = HighestRevisions()
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
        self.subject_tokens: groups.SubjectTokens[R] = groups.SubjectTokens(run, is_async=is_async)

    @property
    def last_revision(self) -> str | None:
        """The highest revisions seen, such as ``management:97, template:184``; None if no answer has carried any.

        Hand it to whoever asks next elsewhere, as ``revision`` of a token request for example.
        """
        return self._revisions.header

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._endpoint!r}, client_id={self._client_id!r})"

    def _token_operation(self) -> Operation[TokenResponse]:
        return request_client_credentials(
            client_id=self._client_id, client_secret=self._client_secret, resource=self._resource, scope=self._scope
        )

    def _headers(self, token: str | None) -> dict[str, str]:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        revision = self._revisions.header
        return headers if revision is None else {**headers, REVISION_HEADER: revision}

    def _noted(self, answer: httpx.Response) -> httpx.Response:
        self._revisions.observe(answer.headers.get(REVISION_HEADER))
        return answer


class ManagementClient(_Client[Run]):
    """A client of the Management API. Safe for threads; close it, or use it as a context manager.

    It authenticates with client credentials, keeps its access token and renews it in time. It remembers the highest
    ``Identity-Revision`` that it has seen and sends it along, so that whatever it asks next is answered from a state
    that includes what it has done before. It repeats no write by itself but one whose token was refused, once and with
    a new token: a refused request has not been carried out.

    Lists are read as somebody goes through them, page by page and from the beginning each time:
    ``for user in client.users.list(search="ada"): …``.

    Attributes:
        users: People.
        applications: Clients of the token endpoint.
        resources: APIs and their scopes.
        roles: API roles.
        organization_permissions: Permissions that all organizations share.
        organization_roles: Roles that all organizations share.
        organization_template: These permissions and roles as one document.
        organizations: Organizations and their members.
        subject_tokens: One-time tokens that stand for a user.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        client_id: str,
        client_secret: str,
        resource: str = _RESOURCE,
        scope: str = "all",
        timeout_s: float = _TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
        http: httpx.Client | None = None,
    ) -> None:
        """Prepare to talk to the service; nothing is sent yet.

        Args:
            endpoint: Base address of the service, such as ``https://id.example.com``.
            client_id: Of a machine-to-machine application that may call the Management API.
            client_secret: One of its live secrets.
            resource: Resource indicator of the Management API; does not change with the address.
            scope: ``all``, or the narrower ``subject-tokens``.
            timeout_s: Seconds to wait for each answer; does not apply to an ``http`` of your own.
            clock: Seconds, from any beginning; by it the token's age is told.
            http: Sends the requests, if you need a proxy or certificates of your own; stays yours to close.

        Raises:
            ValueError: The endpoint is no http or https URL, or the credentials are empty.
        """
        super().__init__(
            endpoint,
            client_id=client_id,
            client_secret=client_secret,
            resource=resource,
            scope=scope,
            run=self._run,
            is_async=False,
        )
        self._http = http if http is not None else httpx.Client(timeout=timeout_s, verify=default_ssl_context())
        self._http_is_ours = http is None
        self._token = ClientToken(self._request_token, clock=clock)

    def request(
        self, method: str, path: str, *, json: object = None, params: Mapping[str, str | int] | None = None
    ) -> Any:
        """Send any request to the Management API, for what has no method of its own here.

        Args:
            method: HTTP method.
            path: From the root of the service, percent-encoded: ``/api/users``.
            json: The body; None for none.
            params: Of the query.

        Returns:
            The answer's JSON, decoded; None if it has no body.

        Raises:
            ApiError: The service refused.
            OAuthError: It gives this client no token.
            Unavailable: It did not answer, or asked to come back later.
        """
        return self._run(_any_request(method, path, json, params))

    def close(self) -> None:
        """Close the connections, unless they belong to an ``http`` of your own."""
        if self._http_is_ours:
            self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, operation: Operation[T]) -> T:
        return _http.run(operation, self._send_authorized)

    def _send_authorized(self, request: Request) -> httpx.Response:
        token = self._token.value()
        answer = self._send(request, token)
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            answer = self._send(request, self._token.value(refused=token))
        return answer

    def _request_token(self) -> TokenResponse:
        return _http.run(self._token_operation(), self._send)

    def _send(self, request: Request, token: str | None = None) -> httpx.Response:
        return self._noted(_http.send(self._http, self._endpoint, request, self._headers(token)))


class AsyncManagementClient(_Client[AsyncRun]):
    """A client of the Management API for tasks of one event loop; otherwise the same as ``ManagementClient``.

    Close it, or use it with ``async with``. Operations are awaited, lists gone through with ``async for``.

    Attributes:
        users: People.
        applications: Clients of the token endpoint.
        resources: APIs and their scopes.
        roles: API roles.
        organization_permissions: Permissions that all organizations share.
        organization_roles: Roles that all organizations share.
        organization_template: These permissions and roles as one document.
        organizations: Organizations and their members.
        subject_tokens: One-time tokens that stand for a user.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        client_id: str,
        client_secret: str,
        resource: str = _RESOURCE,
        scope: str = "all",
        timeout_s: float = _TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        """Prepare to talk to the service; nothing is sent yet. See ``ManagementClient`` for the arguments.

        Raises:
            ValueError: The endpoint is no http or https URL, or the credentials are empty.
        """
        super().__init__(
            endpoint,
            client_id=client_id,
            client_secret=client_secret,
            resource=resource,
            scope=scope,
            run=self._run,
            is_async=True,
        )
        self._http = http if http is not None else httpx.AsyncClient(timeout=timeout_s, verify=default_ssl_context())
        self._http_is_ours = http is None
        self._token = AsyncClientToken(self._request_token, clock=clock)

    async def request(
        self, method: str, path: str, *, json: object = None, params: Mapping[str, str | int] | None = None
    ) -> Any:
        """Send any request to the Management API; see ``ManagementClient.request``.

        Raises:
            ApiError: The service refused.
            OAuthError: It gives this client no token.
            Unavailable: It did not answer, or asked to come back later.
        """
        return await self._run(_any_request(method, path, json, params))

    async def close(self) -> None:
        """Close the connections, unless they belong to an ``http`` of your own."""
        if self._http_is_ours:
            await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _run(self, operation: Operation[T]) -> T:
        return await _http.async_run(operation, self._send_authorized)

    async def _send_authorized(self, request: Request) -> httpx.Response:
        token = await self._token.value()
        answer = await self._send(request, token)
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            answer = await self._send(request, await self._token.value(refused=token))
        return answer

    async def _request_token(self) -> TokenResponse:
        return await _http.async_run(self._token_operation(), self._send)

    async def _send(self, request: Request, token: str | None = None) -> httpx.Response:
        return self._noted(await _http.async_send(self._http, self._endpoint, request, self._headers(token)))


def _any_request(method: str, path: str, json: object, params: Mapping[str, str | int] | None) -> Operation[Any]:
    answer = yield _http.json_request(method, path, json, params=params)
    if not answer.content:
        _http.require_success(answer)
        return None
    return _http.decode(answer, Any)
