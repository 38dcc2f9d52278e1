"""Every failure that reaches a route for browsers is answered with a page: those of sign-in and of the console."""

from collections.abc import Mapping
from typing import Any, get_args

import httpx2 as httpx
import pytest
from litestar import Litestar, get
from litestar.exceptions import ClientException
from litestar.types import ExceptionHandlersMap
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from console.problems import problem_pages
from console.rendering import Look, Pages
from identity_common.failures import AnyFailure, Failure, NotYetThere, StoreUnavailable, TemporarilyUnavailable
from identity_common.http.problems import API_EXCEPTION_HANDLERS, ApiError
from tests.support.captured_logs import captured_logs
from tests.support.retrying import soon_after
from token_service.sign_in.pages.problems import PROBLEMS

TABLES = {"sign-in": PROBLEMS, "console": problem_pages(Pages(Look("Stead")))}
TEMPORARY: Mapping[Any, Exception] = {
    NotYetThere: NotYetThere("c", "m", retry_after_s=7),
    TemporarilyUnavailable: TemporarilyUnavailable(retry_after_s=7),
    StoreUnavailable: StoreUnavailable("redis", "ConnectionError"),
    OSError: ConnectionRefusedError("swordfish"),
    PoolTimeoutError: PoolTimeoutError("swordfish"),
}
UNEXPECTED: Mapping[Any, Exception] = {
    **{kind: kind("c", "swordfish") for kind in get_args(Failure) if kind not in TEMPORARY},
    AnyFailure: AnyFailure("c", "swordfish"),
    ApiError: ApiError(418, "c", "swordfish"),
    DBAPIError: DBAPIError("swordfish", {}, Exception("swordfish")),
    ClientException: ClientException("swordfish"),
    Exception: LookupError("swordfish"),
}


async def shown(problems: ExceptionHandlersMap, error: Exception) -> tuple[httpx.Response, str]:
    """Return the answer of a route for browsers that raises an error, and the log."""

    @get("/page", exception_handlers=problems)
    async def page() -> None:
        raise error

    app = Litestar([page], exception_handlers=API_EXCEPTION_HANDLERS, openapi_config=None, logging_config=None)
    with captured_logs("unit-tests") as log:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="https://id.example.com") as client:
            return await client.get("/page"), log.getvalue()


@pytest.mark.parametrize("problems", TABLES.values(), ids=TABLES)
@pytest.mark.parametrize("error", [*TEMPORARY.values(), *UNEXPECTED.values()], ids=repr)
async def test_every_failure_is_answered_with_a_page(problems: ExceptionHandlersMap, error: Exception) -> None:
    answer, log = await shown(problems, error)
    is_temporary = error in TEMPORARY.values()
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert answer.status_code == (503 if is_temporary else 500)
    expected = soon_after(getattr(error, "retry_after_s", 1)) if is_temporary else (None,)
    assert answer.headers.get("Retry-After") in expected
    assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
    assert log.count("\n") == 1
    assert ("traceback" in log) != is_temporary
    assert "swordfish" not in log + answer.text
    if isinstance(error, StoreUnavailable):
        assert '"store":"redis"' in log
