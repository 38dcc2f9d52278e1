"""The integrator's backend: who may act as whom, and the subject token for whoever may.

The identity service does not judge that: it gives subject tokens to whoever may call its Management API. So this
backend keeps that access to itself, and judges every request for impersonation:

1. ``AccessTokenMiddleware`` lets in only access tokens for this backend that hold ``impersonate:customers``, which
   agents hold through an API role.
2. The agent has signed in: a token that was got by exchange, to act as somebody else, is refused.
3. Only customers can be acted for, no colleagues; a customer is who has the API role of customers.
4. There must be a reason and a ticket. They are kept with the subject token, as its context.
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
}

_NO_STORE: Final = {"Cache-Control": "no-store"}
_Request = Request[Any, Any, Any]


class Customer(msgspec.Struct, frozen=True):
    """Somebody who can be acted for."""

    id: str
    name: str
    contact: str


class ImpersonationRequest(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Who shall be acted for, and why."""

    user_id: str
    reason: Annotated[str, msgspec.Meta(pattern=r"\S", max_length=500)]
    ticket_id: Annotated[str, msgspec.Meta(pattern=r"\S", max_length=64)]


class Customers:
    """The customers, by name; a real backend asks its own database."""

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
    """Return the backend behind the verifier.

    Args:
        management: May call the Management API; this backend alone has it.
        issuer: Whose access tokens it takes.
        customer_role: The API role that makes a user a customer.
    """
    customers = Customers(management, customer_role)

    @get("/api/customers")
    async def list_customers() -> Response[list[Customer]]:
        return Response(await customers.list(), headers=_NO_STORE)

    @post("/api/request-impersonation", status_code=200)
    async def request_impersonation(request: _Request, data: JSONBody[ImpersonationRequest]) -> Response[SubjectToken]:
        agent = access_token_of(request.scope)
        if agent.grant_type is not None:
            raise PermissionDeniedException("Who acts as somebody else cannot go on to act as a third person.")
        if data.user_id not in {customer.id for customer in await customers.list()}:
            raise PermissionDeniedException("Only customers can be acted for.")
        context = {"ticketId": data.ticket_id, "reason": data.reason, "supportEngineerId": agent.subject}
        try:
            subject_token = await management.subject_tokens.create(data.user_id, context)
        except Conflict:
            raise PermissionDeniedException("This customer is suspended: nobody can act for them.") from None
        return Response(subject_token, headers=_NO_STORE)

    return AccessTokenMiddleware(
        Litestar(
            [list_customers, request_impersonation],
            openapi_config=None,
            logging_config=None,
            exception_handlers={HTTPException: _refused, IdentityError: _unavailable},
        ),
        verifier=AsyncAccessTokenVerifier(issuer=issuer, audience=AUDIENCE),
        routes=ROUTES,
    )


def _refused(_: _Request, error: HTTPException) -> Response[dict[str, str]]:
    words = {400: "invalid_request", 403: "access_denied"}
    description = "A user, a reason and a ticket are needed." if error.status_code == 400 else error.detail
    body = {"error": words.get(error.status_code, "refused"), "error_description": description}
    return Response(body, status_code=error.status_code, headers=_NO_STORE)


def _unavailable(_: _Request, error: IdentityError) -> Response[dict[str, str]]:
    body = {
        "error": "temporarily_unavailable",
        "error_description": "The identity service did not answer as it should.",
    }
    return Response(body, status_code=503, headers=_NO_STORE | {"Retry-After": "1"})
