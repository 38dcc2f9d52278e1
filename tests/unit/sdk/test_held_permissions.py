"""Reading held permissions: a known answer is not sent again, and the caller can wait for a change."""

from __future__ import annotations

import threading
from typing import Any

import httpx2 as httpx
import pytest

from stead import (
    ApiError,
    AsyncManagementClient,
    Conflict,
    HeldPermissions,
    ManagementClient,
    OrganizationPermission,
    Unavailable,
)
from tests.unit.sdk.http_server import Answer, Received
from tests.unit.sdk.issuer import Clock
from tests.unit.sdk.service import Service

PATH = "/api/organizations/o1/users/u1/scopes"
KNOWN = HeldPermissions(permissions=(OrganizationPermission(id="p1", name="read"),), etag='W/"1"')


def sent(service: Service) -> dict[str, str | None]:
    headers = service.calls[-1].headers
    return {name: headers.get(name) for name in ("if-none-match", "prefer")}


async def read(client: ManagementClient | AsyncManagementClient, **filters: Any) -> HeldPermissions:
    found = client.organizations.user_permissions("o1", "u1", **filters)
    return found if isinstance(found, HeldPermissions) else await found


async def test_a_known_answer_is_returned_while_it_is_current(
    service: Service, client: ManagementClient, async_client: AsyncManagementClient
) -> None:
    for each in (client, async_client):
        service.will_answer("GET", PATH, status=304, headers={"ETag": KNOWN.etag})
        assert await read(each, known=KNOWN) is KNOWN
        assert sent(service) == {"if-none-match": KNOWN.etag, "prefer": None}
        service.will_answer("GET", PATH, [{"id": "p2", "name": "write"}], headers={"ETag": 'W/"2"'})
        assert await read(each, known=KNOWN, wait_s=7) == HeldPermissions(
            permissions=(OrganizationPermission(id="p2", name="write"),), etag='W/"2"'
        )
        assert sent(service) == {"if-none-match": KNOWN.etag, "prefer": "wait=7"}


@pytest.mark.parametrize(("wait_s", "prefer"), [(0, None), (-1, None), (1, "wait=1"), (20, "wait=20"), (21, "wait=20")])
async def test_a_wait_is_limited_to_that_of_the_service(
    service: Service, client: ManagementClient, wait_s: int, prefer: str | None
) -> None:
    service.will_answer("GET", PATH, status=304)
    assert await read(client, known=KNOWN, wait_s=wait_s) is KNOWN
    assert sent(service)["prefer"] == prefer


async def test_without_a_known_answer_there_is_nothing_to_wait_for(service: Service, client: ManagementClient) -> None:
    service.will_answer("GET", PATH, [], headers={"ETag": 'W/"2"'})
    assert await read(client, wait_s=20) == HeldPermissions(permissions=(), etag='W/"2"')
    assert sent(service) == {"if-none-match": None, "prefer": None}


async def test_answers_that_the_service_would_not_give_are_errors(
    service: Service, client: ManagementClient, async_client: AsyncManagementClient
) -> None:
    for each in (client, async_client):
        service.will_answer("GET", PATH, status=304)
        with pytest.raises(ApiError):
            await read(each)
        service.will_answer("GET", PATH, [])
        with pytest.raises(ApiError, match="no entity tag"):
            await read(each)
        code = "organization.require_membership"
        service.will_answer("GET", PATH, {"code": code, "message": "No."}, status=422)
        with pytest.raises(Conflict):
            await read(each, known=KNOWN, wait_s=20)


@pytest.mark.heavy
async def test_a_requested_wait_is_not_a_timeout(service: Service) -> None:
    answered = threading.Event()

    def late(request: Received) -> Answer:
        if request.path == "/oidc/token":
            return service.issue()
        answered.wait(1)
        return Answer(304, b"", {})

    service.answer = late
    timeout = httpx.Timeout(None, read=0.5)
    with (
        httpx.Client(timeout=timeout) as http,
        service.client(Clock(), http=http) as client,
    ):
        assert await read(client, known=KNOWN, wait_s=2) is KNOWN
        with pytest.raises(Unavailable):
            await read(client, known=KNOWN)
    async with httpx.AsyncClient(timeout=timeout) as async_http, service.async_client(Clock(), http=async_http) as each:
        assert await read(each, known=KNOWN, wait_s=2) is KNOWN
        with pytest.raises(Unavailable):
            await read(each, known=KNOWN)
    answered.set()
