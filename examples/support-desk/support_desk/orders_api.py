"""The Orders API: it knows tokens and orders, but not support desks.

``AccessTokenMiddleware`` handles the tokens. ``sub`` owns the orders; ``act``, if present, is the actor, recorded with
every change.
"""

from collections import defaultdict
from typing import Any, Final

import msgspec
from litestar import Litestar, Request, get, post
from litestar.exceptions import NotFoundException
from litestar.params import FromPath

from stead import Access, AccessTokenMiddleware, AsyncAccessTokenVerifier, NotValidFeed, access_token_of

READ: Final = "read:orders"
WRITE: Final = "write:orders"
ROUTES: Final[dict[str, str | Access]] = {
    "GET /orders": READ,
    "POST /orders/{number}/cancellation": WRITE,
}


class Order(msgspec.Struct, frozen=True):
    """One order.

    Attributes:
        cancelled_by: The actor who cancelled it; None while it is active.
    """

    number: str
    item: str
    cancelled_by: str | None = None


class Answer(msgspec.Struct, frozen=True):
    """The orders of a customer, and the parties of the token.

    Attributes:
        sub: The customer.
        act: The actor, if it is not the customer.
    """

    sub: str
    act: dict[str, Any] | None
    orders: list[Order]


def _samples() -> dict[str, Order]:
    items = {"1001": "Espresso machine", "1002": "Coffee beans, 2 kg", "1003": "Descaler"}
    return {number: Order(number, item) for number, item in items.items()}


def create_app(*, issuer: str, audience: str, feed: NotValidFeed) -> AccessTokenMiddleware:
    """Return the API behind the middleware.

    Args:
        issuer: The issuer of accepted access tokens.
        audience: The resource indicator of this API.
        feed: Tells what was ended, so that its tokens are refused before they expire.
    """
    orders: dict[str, dict[str, Order]] = defaultdict(_samples)  # by subject; a real API has a database

    @get("/orders")
    async def list_orders(request: Request[Any, Any, Any]) -> Answer:
        token = access_token_of(request.scope)
        return Answer(token.subject, token.actor, list(orders[token.subject].values()))

    @post("/orders/{number:str}/cancellation")
    async def cancel_order(request: Request[Any, Any, Any], number: FromPath[str]) -> Order:
        token = access_token_of(request.scope)
        order = orders[token.subject].get(number)
        if order is None:
            raise NotFoundException("No such order.")
        by = token.actor["sub"] if token.actor else token.subject
        orders[token.subject][number] = cancelled = Order(number, order.item, order.cancelled_by or by)
        return cancelled

    return AccessTokenMiddleware(
        Litestar([list_orders, cancel_order], openapi_config=None, logging_config=None),
        verifier=AsyncAccessTokenVerifier(issuer=issuer, audience=audience, feed=feed),
        routes=ROUTES,
    )
