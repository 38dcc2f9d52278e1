"""Failures become responses at the edge: each kind has a status, and a page may render what the API does not know."""

import httpx2 as httpx
import pytest
from litestar import Litestar, Response, get
from litestar.exceptions import HTTPException
from litestar.params import FromPath
from sqlalchemy.exc import InterfaceError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from identity_common.failures import (
    Conflict,
    Failure,
    Issue,
    NotYetThere,
    Refused,
    StoreUnavailable,
    TemporarilyUnavailable,
    TooManyAttempts,
    body_too_large,
    duplicate,
    invalid_input,
    missing_by_id,
)
from identity_common.http.problems import API_EXCEPTION_HANDLERS, refusal_of
from tests.support.retrying import soon_after

STATUSES = {
    invalid_input(Issue(path="name", message="m")): 400,
    Refused("jwt_customizer.general", "m"): 403,
    missing_by_id(): 404,
    NotYetThere("log.not_in_tree", "m"): 409,
    body_too_large(): 413,
    duplicate(): 422,
    TooManyAttempts("session.verification_blocked_too_many_attempts", "m", retry_after_s=7): 429,
    Conflict("log.tree_inconsistent", "m"): 500,
    NotYetThere("temporarily_unavailable", "m"): 503,
    TemporarilyUnavailable(retry_after_s=7): 503,
    StoreUnavailable("redis", "ConnectionError"): 503,
}


@pytest.mark.parametrize(("failure", "status"), STATUSES.items(), ids=lambda each: getattr(each, "code", str(each)))
def test_each_kind_of_failure_has_a_status_and_keeps_its_code(failure: Failure, status: int) -> None:
    refusal = refusal_of(failure)
    assert (refusal.status, refusal.body.code, refusal.body.data) == (status, failure.code, failure.data)
    if status in {429, 503}:
        assert refusal.headers.keys() == {"Retry-After"}
        assert refusal.headers["Retry-After"] in soon_after(getattr(failure, "retry_after_s", 1))
    else:
        assert refusal.headers == {}


ERRORS: dict[str, tuple[Exception, int]] = {
    "api": (TemporarilyUnavailable(), 503),
    "framework": (HTTPException(status_code=413), 413),
    "connection": (ConnectionResetError(), 503),
    "driver": (InterfaceError("", None, Exception()), 503),
    "pool": (PoolTimeoutError(), 503),
    "unexpected": (RuntimeError(), 418),
}


@get("/{name:str}", exception_handlers={Exception: lambda *_: Response("", status_code=418)})
async def page(name: FromPath[str]) -> None:
    raise ERRORS[name][0]


@pytest.mark.parametrize("name", ERRORS)
async def test_a_page_with_its_own_rendering_of_failures_leaves_known_errors_to_the_api(name: str) -> None:
    app = Litestar([page], exception_handlers=API_EXCEPTION_HANDLERS, logging_config=None, openapi_config=None)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://identity.example.com") as client:
        answer = await client.get(f"/{name}")
    assert answer.status_code == ERRORS[name][1]
