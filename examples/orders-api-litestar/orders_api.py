"""An Orders API in Litestar that takes this identity service's access tokens; see README.md."""

import os
from collections import defaultdict
from typing import Annotated, Any, Final

import msgspec
from litestar import Litestar, Request, get, post
from litestar.params import JSONBody

from identity_sdk import Access, AccessTokenMiddleware, AsyncAccessTokenVerifier, access_token_of

ROUTES: Final[dict[str, str | Access]] = {
    "GET /health": Access.PUBLIC,
    "GET /orders": "read:orders",
    "POST /orders": "write:orders",
}

orders: dict[str, list[str]] = defaultdict(list)  # by subject; a real API asks its database


class NewOrder(msgspec.Struct, forbid_unknown_fields=True):
    """What somebody wants."""

    item: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class Answer(msgspec.Struct):
    """The orders of a customer, and who has asked.

    Attributes:
        sub: The customer.
        act: Who really acts, if it is somebody else.
    """

    sub: str
    act: dict[str, Any] | None
    orders: list[str]


@get("/health")
async def health() -> dict[str, str]:
    """Tell that the process is there."""
    return {"status": "ok"}


@get("/orders")
async def list_orders(request: Request[Any, Any, Any]) -> Answer:
    """Return the customer's orders."""
    token = access_token_of(request.scope)
    return Answer(token.subject, token.actor, orders[token.subject])


@post("/orders")
async def create_order(request: Request[Any, Any, Any], data: JSONBody[NewOrder]) -> Answer:
    """Order something for the customer."""
    token = access_token_of(request.scope)
    orders[token.subject].append(data.item)
    return Answer(token.subject, token.actor, orders[token.subject])


def create_app(*, issuer: str, audience: str) -> AccessTokenMiddleware:
    """Return the application behind the verifier."""
    return AccessTokenMiddleware(
        Litestar([health, list_orders, create_order], openapi_config=None),
        verifier=AsyncAccessTokenVerifier(issuer=issuer, audience=audience),
        routes=ROUTES,
    )


app = create_app(issuer=os.environ["ISSUER"], audience=os.environ["AUDIENCE"])
