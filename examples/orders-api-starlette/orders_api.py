"""An Orders API in Starlette that takes this identity service's access tokens; see README.md."""

import json
import os
from collections import defaultdict
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from identity_sdk import Access, AccessToken, AccessTokenMiddleware, AsyncAccessTokenVerifier, access_token_of

ROUTES: Final[dict[str, str | Access]] = {
    "GET /health": Access.PUBLIC,
    "GET /orders": "read:orders",
    "POST /orders": "write:orders",
}

orders: dict[str, list[str]] = defaultdict(list)  # by subject; a real API asks its database


async def health(_: Request) -> JSONResponse:
    """Tell that the process is there."""
    return JSONResponse({"status": "ok"})


async def list_orders(request: Request) -> JSONResponse:
    """Return the customer's orders."""
    return JSONResponse(_answer(access_token_of(request.scope)))


async def create_order(request: Request) -> JSONResponse:
    """Order something for the customer: ``{"item": "…"}``."""
    token = access_token_of(request.scope)
    try:
        item = json.loads(await request.body())["item"]
    except (ValueError, TypeError, KeyError, RecursionError):
        item = None
    if not isinstance(item, str) or not 1 <= len(item) <= 200:
        return JSONResponse({"error": "invalid_order"}, status_code=400)
    orders[token.subject].append(item)
    return JSONResponse(_answer(token), status_code=201)


def _answer(token: AccessToken) -> dict[str, Any]:
    """Return the orders of a customer (``sub``), and who really acts if it is somebody else (``act``)."""
    return {"sub": token.subject, "act": token.actor, "orders": orders[token.subject]}


def create_app(*, issuer: str, audience: str) -> AccessTokenMiddleware:
    """Return the application behind the verifier."""
    return AccessTokenMiddleware(
        Starlette(
            routes=[
                Route("/health", health),
                Route("/orders", list_orders),
                Route("/orders", create_order, methods=["POST"]),
            ]
        ),
        verifier=AsyncAccessTokenVerifier(issuer=issuer, audience=audience),
        routes=ROUTES,
    )


app = create_app(issuer=os.environ["ISSUER"], audience=os.environ["AUDIENCE"])
