"""Rendering of errors: the API renders those it knows, a page may render all others."""

import httpx2 as httpx
import pytest
from litestar import Litestar, Response, get
from litestar.exceptions import HTTPException
from litestar.params import FromPath
from sqlalchemy.exc import InterfaceError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from identity_common.http.api_errors import API_EXCEPTION_HANDLERS, store_unavailable

ERRORS: dict[str, tuple[Exception, int]] = {
    "api": (store_unavailable(), 503),
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
