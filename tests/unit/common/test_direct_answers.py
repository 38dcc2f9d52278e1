"""Which handlers can be answered without the framework: those to whose responses it adds nothing."""

from typing import Any

import msgspec
import pytest
from litestar import Litestar, Request, Response, get, post
from litestar.datastructures import Cookie, ResponseHeader
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody
from litestar.types import Method

from identity_common.http.direct_answers import plan_of
from identity_common.http.problems import API_EXCEPTION_HANDLERS


class Answer(msgspec.Struct):
    text: str = ""


async def before(request: "Request[Any, Any, Any]") -> None:
    del request


async def after(response: "Response[Any]") -> "Response[Any]":
    return response


def is_answered_directly(handler: HTTPRouteHandler, method: Method) -> bool:
    app = Litestar([handler], exception_handlers=API_EXCEPTION_HANDLERS, before_request=before, openapi_config=None)
    (route,) = app.routes
    registered, _ = route.route_handler_map[method]  # type: ignore[union-attr]
    return plan_of(registered, ()) is not None


@pytest.mark.parametrize(
    ("declared", "is_planned"),
    [
        ({}, True),
        ({"operation_id": None}, False),
        ({"status_code": 202}, False),
        ({"response_headers": [ResponseHeader(name="Content-Language", value="en")]}, False),
        ({"response_cookies": [Cookie(key="a", value="b")]}, False),
        ({"after_request": after}, False),
        ({"cache": True}, False),
        ({"exception_handlers": {Exception: lambda _, __: Response("")}}, False),
    ],
)
def test_a_handler_that_needs_the_framework_has_no_plan(declared: dict[str, Any], *, is_planned: bool) -> None:
    @get("/", **{"operation_id": "GetIt", **declared})
    async def handler() -> Answer:
        return Answer()

    assert is_answered_directly(handler, "GET") is is_planned


def test_a_write_with_an_optional_body_needs_the_framework() -> None:
    @post("/", operation_id="MakeIt", status_code=202)
    async def made(data: JSONBody[Answer]) -> Answer:
        return data

    @post("/", operation_id="MakeItAnyway")
    async def made_anyway(data: JSONBody[Answer | None] = None) -> Answer:
        return data or Answer()

    assert is_answered_directly(made, "POST")
    assert not is_answered_directly(made_anyway, "POST")
