"""What declared routes demand of a request: never less than was intended; undeclared paths are not found."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stead import Access, OrganizationAware
from stead.verify.routes import Declared, Demand, Routes, TokenDemand

ROUTES = Routes(
    {
        "GET /": "root",
        "GET /orders": "read:orders",
        "POST /orders": "write:orders",
        "GET /orders/{order_id}": "read:order",
        "GET /orders/export": "export:orders",
        "PATCH /orders/{order_id:int}/lines/{line}": "write:orders write:lines",
        "GET /files/{name}": "read:files",
        "GET /files/{rest:path}": "read:everything",
        "GET /files/{name}/meta": "read:meta",
        "GET /organizations/{id}/orders": OrganizationAware("read:orders list:orders"),
        "GET /organizations/{id}/me": OrganizationAware(Access.ANY_TOKEN),
        "GET /me": Access.ANY_TOKEN,
        "GET /health": Access.PUBLIC,
        "GET /docs/{rest:path}": Access.PUBLIC,
        "M-SEARCH /things": "search",
        "WEBSOCKET /feed": "read:feed",
    }
)


def scopes(*names: str, organization_aware: bool = False) -> TokenDemand:
    return TokenDemand(frozenset(names), organization_aware)


@pytest.mark.parametrize(
    ("method", "path", "demanded"),
    [
        ("GET", "/", scopes("root")),
        ("GET", "/orders", scopes("read:orders")),
        ("GET", "/orders/", scopes("read:orders")),
        ("HEAD", "/orders", scopes("read:orders")),
        ("POST", "/orders", scopes("write:orders")),
        ("GET", "/orders/17", scopes("read:order")),
        ("GET", "/orders/17/", scopes("read:order")),
        ("HEAD", "/orders/17", scopes("read:order")),
        ("GET", "/orders/{order_id}", scopes("read:order")),
        ("GET", "/orders/.17", scopes("read:order")),
        ("GET", "/orders/...", scopes("read:order")),
        ("GET", "/orders/a b\n", scopes("read:order")),
        ("GET", "/orders/export", scopes("export:orders")),
        ("PATCH", "/orders/17/lines/1", scopes("write:orders", "write:lines")),
        ("GET", "/files/a", scopes("read:files")),
        ("GET", "/files/a/b", scopes("read:everything")),
        ("GET", "/files/a/b/c.txt", scopes("read:everything")),
        ("GET", "/files/a/meta", scopes("read:meta")),
        ("GET", "/organizations/1/orders", scopes("read:orders", "list:orders", organization_aware=True)),
        ("GET", "/organizations/1/me", scopes(organization_aware=True)),
        ("GET", "/me", scopes()),
        ("GET", "/health", Access.PUBLIC),
        ("GET", "/docs/a/b.css", Access.PUBLIC),
        ("M-SEARCH", "/things", scopes("search")),
        (None, "/feed", scopes("read:feed")),
    ],
)
def test_a_request_finds_the_most_specific_route(method: str | None, path: str, demanded: Demand) -> None:
    assert ROUTES.find(method, path) == demanded


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("GET", "*"),
        ("GET", "//"),
        ("GET", "/ORDERS"),
        ("GET", "//orders"),
        ("GET", "/orders//"),
        ("GET", "/orders\n"),
        ("GET", "/orders?x"),
        ("GET", "orders"),
        ("GET", "/orders/17/lines"),
        ("DELETE", "/orders"),
        ("get", "/orders"),
        ("GET /orders", ""),
        ("OPTIONS", "/orders"),
        ("PATCH", "/orders/17/lines/1/2"),
        ("HEAD", "/feed"),
        ("GET", "/feed"),
        ("WEBSOCKET", "/feed"),
        ("websocket", "/feed"),
        (None, "/orders"),
        ("POST", "/health"),
        (None, "/health"),
    ],
)
def test_an_undeclared_route_is_not_found(method: str | None, path: str) -> None:
    assert ROUTES.find(method, path) is None


@pytest.mark.parametrize(
    "path",
    [
        "/docs",
        "/docs/",
        "/docs//",
        "/docs//orders",
        "/docs/..",
        "/docs/../orders",
        "/docs/../",
        "/docs/./orders",
        "/docs/a/../../orders",
        "/docs/a/..",
        "/docs/a//b",
        "//docs/a",
        "/./docs/a",
        "/orders/../docs/a",
    ],
)
def test_an_ambiguous_path_is_not_found(path: str) -> None:
    """With two readings of one path, the checked path could differ from the served one."""
    assert ROUTES.find("GET", path) is None


@given(path=st.text(alphabet="/.ab{}*%\\\n", max_size=12))
def test_a_public_prefix_opens_only_the_paths_below_it(path: str) -> None:
    routes = Routes({"GET /a/{rest:path}": Access.PUBLIC})
    segments = path.removesuffix("/").split("/")
    is_below = (
        segments[:2] == ["", "a"]
        and len(segments) > 2
        and not any(segment in {"", ".", ".."} for segment in segments[2:])
    )
    assert (routes.find("GET", path) is Access.PUBLIC) == is_below


def test_the_order_of_declaration_makes_no_difference() -> None:
    declared: dict[str, Declared] = {
        "GET /{a}/{b}": "any",
        "GET /{rest:path}": "rest",
        "GET /x/{b}": "x",
        "GET /{a}/y": "y",
        "GET /x/y": "both",
    }
    for routes in (Routes(declared), Routes(dict(reversed(declared.items())))):
        found = [routes.find("GET", path) for path in ("/x/y", "/x/1", "/1/y", "/1/2", "/1", "/1/2/3")]
        assert found == [scopes(name) for name in ("both", "x", "y", "any", "rest", "rest")]


@pytest.mark.parametrize(
    ("path", "methods"), [("/orders", ["GET", "POST"]), ("/orders/17", ["GET"]), ("/feed", []), ("/nothing", [])]
)
def test_the_methods_of_a_path_are_known(path: str, methods: list[str]) -> None:
    assert ROUTES.methods(path) == methods


@pytest.mark.parametrize(
    "route",
    [
        "",
        "/orders",
        "GET",
        "GET orders",
        "get /orders",
        "GET  /orders",
        "GET,POST /orders",
        "* /orders",
        "HEAD /orders",
        "GET /orders/",
        "GET //orders",
        "GET /orders//x",
        "GET /orders/..",
        "GET /orders/.",
        "GET /orders?x=1",
        "GET /a b",
        "GET /a%20b",
        "GET /orders/{}",
        "GET /orders/{order id}",
        "GET /orders/{id}.json",
        "GET /orders/{id",
        "GET /orders/*",
        "GET /files/{rest:path}/meta",
    ],
)
def test_a_meaningless_route_is_refused_when_it_is_declared(route: str) -> None:
    with pytest.raises(ValueError, match=r"GET|segment|slash"):
        Routes({route: "x"})


@pytest.mark.parametrize(
    "demanded", ["", " ", "a  b", " a", "a ", "a\tb", 'a"b', "a\\b", "é", "a\nb", None, [], ["a"], frozenset("a"), True]
)
def test_a_meaningless_demand_is_refused_when_it_is_declared(demanded: Any) -> None:
    """An empty setting must not open a route, and no value can break out of a header."""
    for declared in (demanded, OrganizationAware(demanded)):
        with pytest.raises(ValueError, match="scope tokens"):
            Routes({"GET /orders": declared})


@pytest.mark.parametrize("demanded", [Access.PUBLIC, OrganizationAware("read:orders")])
def test_organization_aware_takes_scopes_only(demanded: Any) -> None:
    with pytest.raises(ValueError, match="scope tokens"):
        Routes({"GET /orders": OrganizationAware(demanded)})


@pytest.mark.parametrize(
    ("first", "second"),
    [("GET /orders/{a}", "GET /orders/{b}"), ("GET /x/{a:int}", "GET /x/{a:str}"), ("GET /{a:path}", "GET /{b:path}")],
)
def test_routes_that_are_the_same_are_refused(first: str, second: str) -> None:
    """Neither of two demands on one route is dropped silently."""
    with pytest.raises(ValueError, match="declared twice"):
        Routes({first: "a", second: "b"})


def test_an_empty_declaration_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Routes({})
