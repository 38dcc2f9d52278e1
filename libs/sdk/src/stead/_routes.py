"""Which scopes a route demands: the declaration, and finding what it says of a request. No I/O.

A route is a method and a path, written as Starlette and Litestar write theirs: ``GET /orders/{order_id}``. Whatever is
declared wrongly is refused when it is declared; whatever is not declared is found by nobody.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import msgspec

_METHOD: Final = re.compile(r"[A-Z]+(?:-[A-Z]+)*")
_LITERAL: Final = re.compile(r"[^{}/\s%?#*]+")
_PARAMETER: Final = re.compile(r"\{[A-Za-z_][A-Za-z0-9_]*(?::([a-z]+))?\}")
_SCOPE_TOKEN: Final = re.compile(r"[\x21\x23-\x5B\x5D-\x7E]+")  # RFC 6749 section 3.3

# Neither matches what some router might take for another path: an empty segment, '.' or '..'.
_SEGMENT: Final = r"(?!\.\.?(?:/|\Z))[^/]+"
_REST: Final = rf"{_SEGMENT}(?:/{_SEGMENT})*"


class Access(enum.Enum):
    """What a route may demand instead of scopes.

    Attributes:
        PUBLIC: Nothing. The request is let through as it is, and a token that it may carry is not looked at.
        ANY_TOKEN: A valid access token, whatever its scopes.
    """

    PUBLIC = enum.auto()
    ANY_TOKEN = enum.auto()


class OrganizationAware(msgspec.Struct, frozen=True):
    """What a route may demand that looks at the organization of a token: it takes tokens that other routes refuse.

    A token with the claim ``organization_id`` counts within that organization and nowhere else. The handler compares
    ``AccessToken.organization_id`` with the organization that the request is about; None is a token that counts for the
    whole API.

    Attributes:
        demanded: Scope tokens, or ``Access.ANY_TOKEN``.
    """

    demanded: str | Access


Declared: TypeAlias = str | Access | OrganizationAware
"""What may be declared of a route."""


class TokenDemand(msgspec.Struct, frozen=True):
    """What a token must be.

    Attributes:
        scopes: It must hold all of them; perhaps none.
        organization_aware: Whether it may count within one organization only.
    """

    scopes: frozenset[str]
    organization_aware: bool = False


Demand: TypeAlias = TokenDemand | Literal[Access.PUBLIC]
"""What the token must be; or that none is needed."""


class Routes:
    """The declared routes, and what each demands.

    Of several that fit a request the most specific one counts, segment by segment from the left: a literal before a
    parameter, a parameter before a rest (``{name:path}``). A slash at the end makes no difference. HEAD is judged as
    GET.
    """

    def __init__(self, declared: Mapping[str, Declared]) -> None:
        """Read the declaration.

        Raises:
            ValueError: There is none; or a route is not of the form ``GET /path/{parameter}``, is declared twice, or
                demands nothing that can be demanded.
        """
        if not declared:
            raise ValueError("declare at least one route: nothing else is let through")
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
        """Return what the route of a request demands; None if nobody has declared one.

        Args:
            method: In capitals; None for a WebSocket.
            path: Decoded, as the router of the framework sees it.
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
        """Return the HTTP methods that are declared for a path."""
        return sorted(method for method in self._patterns if method and self.find(method, path) is not None)


def _read_demand(declared: object) -> Demand:
    if declared is Access.PUBLIC:
        return Access.PUBLIC
    organization_aware = isinstance(declared, OrganizationAware)
    demanded = declared.demanded if isinstance(declared, OrganizationAware) else declared
    if demanded is Access.ANY_TOKEN:
        return TokenDemand(frozenset(), organization_aware)
    scopes = demanded.split(" ") if isinstance(demanded, str) else []
    if not scopes or not all(_SCOPE_TOKEN.fullmatch(scope) for scope in scopes):
        raise ValueError("a route demands scope tokens with single spaces between them, or an Access")
    return TokenDemand(frozenset(scopes), organization_aware)


def _read_route(route: str) -> tuple[str | None, str]:
    method, _, path = route.partition(" ")
    if not _METHOD.fullmatch(method) or method == "HEAD" or not path.startswith("/"):
        raise ValueError(f"{route!r} is not a route: write 'GET /path', methods in capitals; HEAD is judged as GET")
    if path != "/" and path.endswith("/"):
        raise ValueError(f"{route!r}: leave out the slash at the end; it makes no difference")
    return None if method == "WEBSOCKET" else method, path


def _expression(path: str) -> tuple[str, tuple[int, ...]]:
    """Return the regular expression of a path, and how specific it is: 0 a literal, 1 a parameter, 2 a rest."""
    if path == "/":
        return "/", (0,)
    parts: list[str] = []
    rank: list[int] = []
    for segment in path[1:].split("/"):
        parameter = _PARAMETER.fullmatch(segment)
        if 2 in rank or (parameter is None and (not _LITERAL.fullmatch(segment) or segment in {".", ".."})):
            raise ValueError(f"{path!r}: a segment is literal or one {{parameter}}; {{name:path}} is the last one")
        if parameter is None:
            parts.append(re.escape(segment))
            rank.append(0)
        else:
            parts.append(_REST if parameter[1] == "path" else _SEGMENT)
            rank.append(2 if parameter[1] == "path" else 1)
    return "/" + "/".join(parts), tuple(rank)
