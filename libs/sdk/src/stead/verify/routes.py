"""The route table of ``AccessTokenMiddleware``: which scopes each route requires. No I/O.

A route is a method and a path in the syntax of Starlette and Litestar: ``GET /orders/{order_id}``. An invalid
declaration is rejected when the table is built; an undeclared route is never found.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from stead.verify.step_up import SignInDemand

_METHOD: Final = re.compile(r"[A-Z]+(?:-[A-Z]+)*")
_LITERAL: Final = re.compile(r"[^{}/\s%?#*]+")
_PARAMETER: Final = re.compile(r"\{[A-Za-z_][A-Za-z0-9_]*(?::([a-z]+))?\}")
_SCOPE_TOKEN: Final = re.compile(r"[\x21\x23-\x5B\x5D-\x7E]+")  # RFC 6749 section 3.3

# Neither matches a segment that some routers normalize: an empty one, '.' or '..'.
_SEGMENT: Final = r"(?!\.\.?(?:/|\Z))[^/]+"
_REST: Final = rf"{_SEGMENT}(?:/{_SEGMENT})*"


class Access(enum.Enum):
    """Alternatives to scopes in the declaration of a route.

    Attributes:
        PUBLIC: Nothing. The request passes unchanged, and a token in it is ignored.
        ANY_TOKEN: A valid access token with any scopes.
    """

    PUBLIC = enum.auto()
    ANY_TOKEN = enum.auto()


class OrganizationAware(msgspec.Struct, frozen=True):
    """Declares that a route also accepts tokens that are valid within one organization only.

    Its handler must compare ``AccessToken.organization_id`` with the organization that the request is about; None means
    that the token is valid for the whole API.

    ::

        "GET /organizations/{organization_id}/orders": OrganizationAware("read:orders")

    Attributes:
        demanded: The required scope tokens, or ``Access.ANY_TOKEN``.
    """

    demanded: str | Access


class Requires(SignInDemand, frozen=True):
    """Declares that a route needs a recent or a strong sign-in of the user, besides what it demands of the token.

    A request without it is answered 401 ``insufficient_user_authentication``, with ``acr_values`` and ``max_age``, by
    which the client lets the user sign in again (RFC 9470).

    ::

        "POST /payouts": Requires("write:payouts", max_age_s=600, acr="urn:service:acr:mfa")

    Attributes:
        demanded: The required scope tokens, ``Access.ANY_TOKEN``, or ``OrganizationAware`` around one of these.

    Raises:
        ValueError: Neither ``max_age_s`` nor ``acr`` is given, or one is invalid.
    """

    demanded: str | Access | OrganizationAware


Declared: TypeAlias = str | Access | OrganizationAware | Requires
"""Declared requirement of a route."""


class TokenDemand(msgspec.Struct, frozen=True):
    """Requirement of a route on the token.

    Attributes:
        scopes: The token must have all of them; may be empty.
        organization_aware: Whether a token that is valid within one organization only is accepted.
        sign_in: How its user must have signed in; None for any way.
    """

    scopes: frozenset[str]
    organization_aware: bool = False
    sign_in: SignInDemand | None = None


Demand: TypeAlias = TokenDemand | Literal[Access.PUBLIC]
"""Requirement of a route: a token, or nothing."""


class Routes:
    """The declared routes and what each requires.

    If several match, the most specific one wins, compared segment by segment from the left: a literal before a
    parameter, a parameter before a rest (``{name:path}``). A trailing slash is ignored. HEAD is treated as GET.
    """

    def __init__(self, declared: Mapping[str, Declared]) -> None:
        """Build the table.

        Raises:
            ValueError: No route is declared, or one is not of the form ``GET /path/{parameter}``, is declared twice, or
                has an invalid requirement.
        """
        if not declared:
            raise ValueError("declare at least one route: undeclared routes are refused")
        by_method: dict[str | None, dict[str, tuple[tuple[int, ...], Demand]]] = {}
        self._literal: dict[tuple[str | None, str], Demand] = {}
        for route, demanded in declared.items():
            method, path = _read_route(route)
            expression, rank = _expression(path)
            of_method = by_method.setdefault(method, {})
            if expression in of_method:
                raise ValueError(f"{route!r} is declared twice")
            demand = _read_demand(demanded)
            of_method[expression] = rank, demand
            if not any(rank):
                self._literal[method, path] = demand
        self._patterns = {
            method: [
                (re.compile(expression), demand)
                for expression, (rank, demand) in sorted(of_method.items(), key=lambda item: item[1][0])
                if any(rank)
            ]
            for method, of_method in by_method.items()
        }

    def find(self, method: str | None, path: str) -> Demand | None:
        """Return what the route of a request requires; None if it is not declared.

        Args:
            method: In upper case; None for a WebSocket.
            path: Decoded, as the framework's router sees it.
        """
        if len(path) > 1 and path[-1] == "/" and path[-2] != "/":
            path = path[:-1]
        if method == "HEAD":
            method = "GET"
        demand = self._literal.get((method, path))
        if demand is not None:
            return demand
        for pattern, demanded in self._patterns.get(method, ()):
            if pattern.fullmatch(path):
                return demanded
        return None

    def methods(self, path: str) -> list[str]:
        """Return the HTTP methods declared for a path."""
        return sorted(method for method in self._patterns if method and self.find(method, path) is not None)


def _read_demand(declared: object) -> Demand:
    if declared is Access.PUBLIC:
        return Access.PUBLIC
    sign_in, demanded = (declared, declared.demanded) if isinstance(declared, Requires) else (None, declared)
    organization_aware = isinstance(demanded, OrganizationAware)
    if isinstance(demanded, OrganizationAware):
        demanded = demanded.demanded
    if demanded is Access.ANY_TOKEN:
        return TokenDemand(frozenset(), organization_aware, sign_in)
    scopes = demanded.split(" ") if isinstance(demanded, str) else []
    if not scopes or not all(_SCOPE_TOKEN.fullmatch(scope) for scope in scopes):
        raise ValueError("a route requires scope tokens separated by single spaces, or an Access")
    return TokenDemand(frozenset(scopes), organization_aware, sign_in)


def _read_route(route: str) -> tuple[str | None, str]:
    method, _, path = route.partition(" ")
    if not _METHOD.fullmatch(method) or method == "HEAD" or not path.startswith("/"):
        raise ValueError(
            f"{route!r} is not a route: write 'GET /path' with the method in upper case; HEAD is treated as GET"
        )
    if path != "/" and path.endswith("/"):
        raise ValueError(f"{route!r}: remove the trailing slash; it is ignored anyway")
    return None if method == "WEBSOCKET" else method, path


def _expression(path: str) -> tuple[str, tuple[int, ...]]:
    """Return a path's regular expression and, per segment, its rank: 0 literal, 1 parameter, 2 rest."""
    if path == "/":
        return "/", (0,)
    parts: list[str] = []
    rank: list[int] = []
    for segment in path[1:].split("/"):
        parameter = _PARAMETER.fullmatch(segment)
        if 2 in rank or (parameter is None and (not _LITERAL.fullmatch(segment) or segment in {".", ".."})):
            raise ValueError(
                f"{path!r}: a segment must be a literal or one {{parameter}}, and {{name:path}} the last one"
            )
        if parameter is None:
            parts.append(re.escape(segment))
            rank.append(0)
        else:
            parts.append(_REST if parameter[1] == "path" else _SEGMENT)
            rank.append(2 if parameter[1] == "path" else 1)
    return "/" + "/".join(parts), tuple(rank)
