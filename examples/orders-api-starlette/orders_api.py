"""An Orders API in Starlette that accepts access tokens of Stead; see README.md."""

import json
import os
from collections import defaultdict
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from stead import (
    Access,
    AccessTokenMiddleware,
    AsyncAccessTokenVerifier,
    OrganizationAware,
    access_token_of,
)

ROUTES: Final[dict[str, str | Access | OrganizationAware]] = {
    "GET /health": Access.PUBLIC,
    "GET /orders": "read:orders",
    "POST /orders": "write:orders",
    "GET /organizations/{organization_id}/orders": OrganizationAware("read:orders"),
    "POST /organizations/{organization_id}/orders": OrganizationAware("write:orders"),
}

orders: dict[str, list[str]] = defaultdict(list)  # by customer or organization; a real API has a database


async def health(_: Request) -> JSONResponse:
    """Report that the process is up."""
    return JSONResponse({"status": "ok"})


async def list_orders(request: Request) -> JSONResponse:
    """Return the orders."""
    return JSONResponse(_answer(request))


async def create_order(request: Request) -> JSONResponse:
    """Order something: ``{"item": "…"}``."""
    owner = _owner(request)
    try:
        item = json.loads(await request.body())["item"]
    except (ValueError, TypeError, KeyError, RecursionError):
        item = None
    if not isinstance(item, str) or not 1 <= len(item) <= 200:
        return JSONResponse({"error": "invalid_order"}, status_code=400)
    orders[owner].append(item)
    return JSONResponse(_answer(request), status_code=201)


def _owner(request: Request) -> str:
    """Return the owner of the orders: the organization, if both path and token name it, or the customer."""
    token = access_token_of(request.scope)
    organization_id: str | None = request.path_params.get("organization_id")
    if token.organization_id != organization_id:
        raise HTTPException(404, "No such organization.")
    return organization_id or token.subject


def _answer(request: Request) -> dict[str, Any]:
    """Return the orders, the subject (``sub``), and the actor if it is not the subject itself (``act``)."""
    token = access_token_of(request.scope)
    return {"sub": token.subject, "act": token.actor, "orders": orders[_owner(request)]}


def create_app(*, issuer: str, audience: str) -> AccessTokenMiddleware:
    """Return the application behind the middleware."""
    return AccessTokenMiddleware(
        Starlette(
            routes=[
                Route("/health", health),
                Route("/orders", list_orders),
                Route("/orders", create_order, methods=["POST"]),
                Route("/organizations/{organization_id}/orders", list_orders),
                Route("/organizations/{organization_id}/orders", create_order, methods=["POST"]),
            ]
        ),
        verifier=AsyncAccessTokenVerifier(issuer=issuer, audience=audience),
        routes=ROUTES,
    )


app = create_app(issuer=os.environ["ISSUER"], audience=os.environ["AUDIENCE"])
