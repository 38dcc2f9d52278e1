"""An Orders API in Litestar that accepts access tokens of Stead; see README.md."""

import os
from collections import defaultdict
from typing import Annotated, Any, Final

import msgspec
from litestar import Litestar, Request, get, post
from litestar.exceptions import NotFoundException
from litestar.params import JSONBody

from stead import Access, AccessTokenMiddleware, AsyncAccessTokenVerifier, OrganizationAware, access_token_of

ROUTES: Final[dict[str, str | Access | OrganizationAware]] = {
    "GET /health": Access.PUBLIC,
    "GET /orders": "read:orders",
    "POST /orders": "write:orders",
    "GET /organizations/{organization_id}/orders": OrganizationAware("read:orders"),
    "POST /organizations/{organization_id}/orders": OrganizationAware("write:orders"),
}

orders: dict[str, list[str]] = defaultdict(list)  # by customer or organization; a real API has a database


class NewOrder(msgspec.Struct, forbid_unknown_fields=True):
    """A new order."""

    item: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class Answer(msgspec.Struct):
    """The orders of a customer or an organization, and the parties of the token.

    Attributes:
        sub: The customer, or the member of the organization.
        act: The actor, if it is not the subject itself.
    """

    sub: str
    act: dict[str, Any] | None
    orders: list[str]


@get("/health")
async def health() -> dict[str, str]:
    """Report that the process is up."""
    return {"status": "ok"}


@get(["/orders", "/organizations/{organization_id:str}/orders"])
async def list_orders(request: Request[Any, Any, Any]) -> Answer:
    """Return the orders."""
    return _answer(request)


@post(["/orders", "/organizations/{organization_id:str}/orders"])
async def create_order(request: Request[Any, Any, Any], data: JSONBody[NewOrder]) -> Answer:
    """Order something."""
    orders[_owner(request)].append(data.item)
    return _answer(request)


def _owner(request: Request[Any, Any, Any]) -> str:
    """Return the owner of the orders: the organization, if both path and token name it, or the customer."""
    token = access_token_of(request.scope)
    organization_id: str | None = request.path_params.get("organization_id")
    if token.organization_id != organization_id:
        raise NotFoundException("No such organization.")
    return organization_id or token.subject


def _answer(request: Request[Any, Any, Any]) -> Answer:
    token = access_token_of(request.scope)
    return Answer(token.subject, token.actor, orders[_owner(request)])


def create_app(*, issuer: str, audience: str) -> AccessTokenMiddleware:
    """Return the application behind the middleware."""
    return AccessTokenMiddleware(
        Litestar([health, list_orders, create_order], openapi_config=None),
        verifier=AsyncAccessTokenVerifier(issuer=issuer, audience=audience),
        routes=ROUTES,
    )


app = create_app(issuer=os.environ["ISSUER"], audience=os.environ["AUDIENCE"])
