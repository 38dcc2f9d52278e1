"""Which handlers can be answered without the framework: those to whose responses it adds nothing."""

from typing import Any

import msgspec
import pytest
from litestar import Litestar, Request, Response, get
from litestar.datastructures import Cookie, ResponseHeader

from identity_common.http.direct_reads import plan_of
from identity_common.http.problems import API_EXCEPTION_HANDLERS


class Answer(msgspec.Struct):
    text: str = ""


async def before(request: "Request[Any, Any, Any]") -> None:
    del request


async def after(response: "Response[Any]") -> "Response[Any]":
    return response


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

    app = Litestar([handler], exception_handlers=API_EXCEPTION_HANDLERS, before_request=before, openapi_config=None)
    (route,) = app.routes
    registered, _ = route.route_handler_map["GET"]  # type: ignore[union-attr]
    assert (plan_of(registered, ()) is not None) is is_planned
