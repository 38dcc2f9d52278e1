"""The integrator's backend: decides who may act as whom, and requests the subject tokens.

Stead does not decide that: it mints subject tokens for any client of its Management API with the scope
``subject-tokens``. So only this backend has it, and it checks every request for impersonation:

1. ``AccessTokenMiddleware`` admits only access tokens for this backend with the scope ``impersonate:customers``, which
   an API role grants to agents.
2. The agent must have signed in: a token from an exchange, which acts as another user, is refused.
3. Agents can act as customers only, not as colleagues; customers are the users with the API role of customers.
4. A reason and a ticket are required. They are stored with the subject token, as its context.

Agents can end their own impersonations; then APIs that follow the not-valid feed, such as the Orders API, refuse the
tokens within a second.
"""

from typing import Annotated, Any, Final

import msgspec
from litestar import Litestar, Request, Response, get, post
from litestar.exceptions import HTTPException, PermissionDeniedException
from litestar.params import JSONBody

from stead import (
    Access,
    AccessTokenMiddleware,
    AsyncAccessTokenVerifier,
    AsyncManagementClient,
    Conflict,
    IdentityError,
    SubjectToken,
    access_token_of,
)

AUDIENCE: Final = "https://support.example.com/api"
READ: Final = "read:customers"
IMPERSONATE: Final = "impersonate:customers"
ROUTES: Final[dict[str, str | Access]] = {
    "GET /api/customers": READ,
    "POST /api/request-impersonation": IMPERSONATE,
    "POST /api/end-impersonation": IMPERSONATE,
}

_MAX_REMEMBERED: Final = 10_000
_NO_STORE: Final = {"Cache-Control": "no-store"}
_INVALID: Final = {
    "/api/request-impersonation": "A user, a reason and a ticket are required.",
    "/api/end-impersonation": "The id of an impersonation is required.",
}
_Request = Request[Any, Any, Any]


class Customer(msgspec.Struct, frozen=True):
    """A user whom agents can act as."""

    id: str
    name: str
    contact: str


class ImpersonationRequest(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The user to act as, the reason, and the ticket."""

    user_id: str
    reason: Annotated[str, msgspec.Meta(pattern=r"\S", max_length=500)]
    ticket_id: Annotated[str, msgspec.Meta(pattern=r"\S", max_length=64)]


class ImpersonationEnd(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Which impersonation to end."""

    impersonation_id: str


class Customers:
    """The customers by name; a real backend has its own database."""

    def __init__(self, management: AsyncManagementClient, role_id: str) -> None:
        self._management = management
        self._role_id = role_id

    async def list(self) -> list[Customer]:
        """Return all of them."""
        return [
            Customer(user.id, user.name or user.username or user.id, user.primary_email or user.username or "")
            async for user in self._management.roles.users(self._role_id)
        ]


def create_app(management: AsyncManagementClient, *, issuer: str, customer_role: str) -> AccessTokenMiddleware:
    """Return the backend behind the middleware.

    Args:
        management: The client of the Management API, which only this backend has.
        issuer: The issuer of accepted access tokens.
        customer_role: The API role that makes a user a customer.
    """
    customers = Customers(management, customer_role)
    begun_by: dict[str, str] = {}  # impersonation → agent; a real backend has its own database

    @get("/api/customers")
    async def list_customers() -> Response[list[Customer]]:
        return Response(await customers.list(), headers=_NO_STORE)

    @post("/api/request-impersonation", status_code=200)
    async def request_impersonation(request: _Request, data: JSONBody[ImpersonationRequest]) -> Response[SubjectToken]:
        agent = access_token_of(request.scope)
        if agent.grant_type is not None:
            raise PermissionDeniedException("An agent who already acts as a customer cannot act as another one.")
        if data.user_id not in {customer.id for customer in await customers.list()}:
            raise PermissionDeniedException("You can act as customers only.")
        context = {"ticketId": data.ticket_id, "reason": data.reason, "supportEngineerId": agent.subject}
        try:
            subject_token = await management.subject_tokens.create(data.user_id, context)
        except Conflict:
            raise PermissionDeniedException("This customer is suspended, and cannot be impersonated.") from None
        begun_by[subject_token.impersonation_id] = agent.subject
        if len(begun_by) > _MAX_REMEMBERED:
            del begun_by[next(iter(begun_by))]
        return Response(subject_token, headers=_NO_STORE)

    @post("/api/end-impersonation", status_code=204)
    async def end_impersonation(request: _Request, data: JSONBody[ImpersonationEnd]) -> Response[None]:
        if begun_by.get(data.impersonation_id) != access_token_of(request.scope).subject:
            raise PermissionDeniedException("You can end your own impersonations only.")
        await management.impersonations.end(data.impersonation_id)
        return Response(None, headers=_NO_STORE)

    return AccessTokenMiddleware(
        Litestar(
            [list_customers, request_impersonation, end_impersonation],
            openapi_config=None,
            logging_config=None,
            exception_handlers={HTTPException: _refused, IdentityError: _unavailable},
        ),
        verifier=AsyncAccessTokenVerifier(issuer=issuer, audience=AUDIENCE),
        routes=ROUTES,
    )


def _refused(request: _Request, error: HTTPException) -> Response[dict[str, str]]:
    codes = {400: "invalid_request", 403: "access_denied"}
    description = _INVALID.get(request.url.path, "") if error.status_code == 400 else error.detail
    body = {"error": codes.get(error.status_code, "refused"), "error_description": description}
    return Response(body, status_code=error.status_code, headers=_NO_STORE)


def _unavailable(_: _Request, error: IdentityError) -> Response[dict[str, str]]:
    body = {
        "error": "temporarily_unavailable",
        "error_description": "Stead did not answer, or not as expected.",
    }
    return Response(body, status_code=503, headers=_NO_STORE | {"Retry-After": "1"})
