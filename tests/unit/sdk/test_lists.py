"""Lists: read lazily, and always to their end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2 as httpx
import pytest

from stead import ApiError, AsyncManagementClient, ManagementClient, Role
from stead.manage.lists import ListRequest, PageReader
from tests.unit.sdk.http_server import Answer, Received
from tests.unit.sdk.service import Service


def role(number: int) -> dict[str, Any]:
    return {"id": f"ro{number}", "name": f"Role {number}"}


class PagedService:
    """Lets a stand-in answer ``/api/…`` lists in pages, as the contract says."""

    def __init__(self, service: Service, total: int) -> None:
        self.items = [role(number) for number in range(total)]
        self.service = service
        self.base_url = service.url
        service.answer = self.answer

    def answer(self, request: Received) -> Answer:
        if request.path == "/oidc/token":
            return self.service.issue()
        page, size = (int(request.query[name][0]) for name in ("page", "page_size"))
        return Answer(200, json.dumps(self.items[(page - 1) * size : page * size]).encode(), self.headers(page, size))

    def headers(self, page: int, size: int) -> dict[str, str]:
        address = f"{self.base_url}/api/roles?page="
        links = [f'<{address}1&page_size={size}>; rel="first"']
        if page * size < len(self.items):
            links.append(f'<{address}{page + 1}&page_size={size}>; rel="next"')
        return {"Total-Number": str(len(self.items)), "Link": ", ".join(links)}

    @property
    def pages(self) -> list[str]:
        return [call.query["page"][0] for call in self.service.calls]


@pytest.mark.parametrize("total", [0, 1, 20, 21, 100, 101, 257])
async def test_a_list_is_read_to_its_end(
    service: Service, client: ManagementClient, async_client: AsyncManagementClient, total: int
) -> None:
    """No silent cap, neither at the default page nor at the largest."""
    paged = PagedService(service, total)
    expected = [item["id"] for item in paged.items]

    assert [found.id for found in client.roles.list()] == expected
    assert paged.pages == [str(page + 1) for page in range(max(1, -(-total // 100)))]
    assert [found.id async for found in async_client.roles.list()] == expected


@pytest.mark.parametrize(
    ("total", "page_size"), [(2**8, 1), (2**8, 100), (2**16, 64), (2**16 + 1, 64), (2**16 + 1, 100)]
)
def test_no_number_of_items_is_special(total: int, page_size: int) -> None:
    """CVE-2024-27101: an overflow in the counting of pages would lose some."""
    reading: PageReader[Role] = PageReader(ListRequest("/api/roles", Role, page_size=page_size))
    received, pages = 0, 0
    while not reading.ended:
        steps = reading.next_page()
        request = next(steps)
        assert request.params is not None
        page = int(request.params["page"])
        of_page = min(page_size, total - (page - 1) * page_size)
        content = b"[" + b",".join([b'{"id":"r","name":"n"}'] * of_page) + b"]"
        with pytest.raises(StopIteration) as done:
            steps.send(httpx.Response(200, content=content, headers={"Total-Number": str(total)}))
        received += len(done.value.value)
        pages += 1
    assert (received, pages) == (total, -(-total // page_size))


def test_a_page_is_not_requested_before_it_is_needed(service: Service, client: ManagementClient) -> None:
    paged = PagedService(service, 257)
    roles = client.roles.list(page_size=50)
    assert service.received == []

    going = iter(roles)
    for number in range(51):
        assert next(going).id == f"ro{number}"
        assert paged.pages == (["1"] if number < 50 else ["1", "2"])


async def test_a_list_left_early_requests_no_more_pages(service: Service, async_client: AsyncManagementClient) -> None:
    paged = PagedService(service, 257)
    async for found in async_client.roles.list(page_size=10):
        if found.id == "ro9":
            break
    assert paged.pages == ["1"]


async def test_a_list_is_read_from_the_beginning_each_time(
    service: Service, client: ManagementClient, async_client: AsyncManagementClient
) -> None:
    """A used-up iterator would look like an empty list."""
    PagedService(service, 3)
    roles, async_roles = client.roles.list(), async_client.roles.list()
    assert [len(list(roles)) for _ in range(2)] == [3, 3]
    assert [len([found async for found in async_roles]) for _ in range(2)] == [3, 3]


def test_filters_of_lists_are_parameters(service: Service, client: ManagementClient) -> None:
    for path, listed in (
        ("resources", client.resources.list(search="ü")),
        ("organization-scopes", client.organization_permissions.list(search="ü")),
        ("organization-roles", client.organization_roles.list(search="ü")),
        ("organizations", client.organizations.list(search="ü", show_featured=True)),
    ):
        service.will_list(f"/api/{path}", [])
        assert list(listed) == []
        more = {"showFeatured": ["true"]} if path == "organizations" else {}
        assert service.calls[-1].query == {"q": ["ü"], **more, "page": ["1"], "page_size": ["100"]}


def test_page_size_and_search_are_parameters(service: Service, client: ManagementClient) -> None:
    service.will_list("/api/users", [])
    assert list(client.users.list(search="a&b=ü", page_size=7)) == []
    assert service.calls[0].query == {"search": ["a&b=ü"], "page": ["1"], "page_size": ["7"]}


@pytest.mark.parametrize("page_size", [0, -1, 101, True])
async def test_a_page_size_that_the_service_would_not_give_is_refused_at_once(
    service: Service, client: ManagementClient, async_client: AsyncManagementClient, page_size: int
) -> None:
    """It is not reduced silently."""
    for of_client in (client.users.list, async_client.users.list):
        with pytest.raises(ValueError, match="page_size"):
            of_client(page_size=page_size)
    assert service.received == []


def test_an_id_that_would_name_something_else_is_refused_at_once(
    service: Service, async_client: AsyncManagementClient
) -> None:
    """Before the list is iterated."""
    with pytest.raises(ValueError, match="id or name"):
        async_client.users.roles("..")


class Script:
    """Answers list requests one after the other, each as it is told."""

    def __init__(self, service: Service, *answers: tuple[int, dict[str, str]]) -> None:
        self.left = iter(answers)
        self.service = service
        service.answer = self.answer

    def answer(self, request: Received) -> Answer:
        if request.path == "/oidc/token":
            return self.service.issue()
        items, headers = next(self.left)
        return Answer(200, json.dumps([role(number) for number in range(items)]).encode(), headers)


NEXT = {"Link": '<https://id.example.com/api/roles?page=2>; rel="next"'}


def total(number: int) -> dict[str, str]:
    return {"Total-Number": str(number)}


@pytest.mark.parametrize("headers", [{}, NEXT, total(-1), {"Total-Number": "many"}, {"Total-Number": ""}])
def test_a_list_that_does_not_say_how_long_it_is_is_an_error(
    service: Service, client: ManagementClient, headers: dict[str, str]
) -> None:
    """A proxy that dropped the header may have dropped the rest."""
    Script(service, (20, headers))
    with pytest.raises(ApiError, match="how long") as refused:
        list(client.roles.list())
    assert refused.value.code == "unexpected_answer"


@pytest.mark.parametrize(
    ("answers", "read", "asked"),
    [
        # no link, and more by the number: the number counts
        ([(2, total(3)), (1, total(3))], 3, ["1", "2"]),
        # a link, and no more by the number: the link counts
        ([(2, total(2) | NEXT), (1, total(3))], 3, ["1", "2"]),
        ([(2, total(2) | NEXT), (0, total(2))], 2, ["1", "2"]),
        # an item was deleted between counting and reading
        ([(2, total(3) | NEXT), (0, total(3)), (0, total(2))], 2, ["1", "2", "2"]),
        ([(0, total(1)), (0, total(0))], 0, ["1", "1"]),
        ([(0, total(1)), (1, total(1))], 1, ["1", "1"]),
        # an item was inserted before the current page: one is seen twice, and the end is still reached
        ([(2, total(3) | NEXT), (2, total(4))], 4, ["1", "2"]),
        # a page with fewer items than requested
        ([(1, total(2) | NEXT), (1, total(2))], 2, ["1", "2"]),
    ],
)
async def test_an_end_is_believed_only_if_number_and_link_agree(
    service: Service,
    client: ManagementClient,
    async_client: AsyncManagementClient,
    answers: list[tuple[int, dict[str, str]]],
    read: int,
    asked: list[str],
) -> None:
    Script(service, *answers)
    assert len(list(client.roles.list(page_size=2))) == read
    assert [call.query["page"][0] for call in service.calls] == asked

    Script(service, *answers)
    assert len([found async for found in async_client.roles.list(page_size=2)]) == read


async def test_a_list_that_ends_before_its_number_is_an_error(
    service: Service, client: ManagementClient, async_client: AsyncManagementClient
) -> None:
    """The items are yielded, and then the error."""
    answers = [(2, total(5) | NEXT), (0, total(5)), (0, total(5))]
    Script(service, *answers)
    going = iter(client.roles.list())
    assert [next(going).id for _ in range(2)] == ["ro0", "ro1"]
    with pytest.raises(ApiError, match="a list of 5 ended after 2"):
        next(going)

    Script(service, *answers)
    with pytest.raises(ApiError, match="a list of 5 ended after 2"):
        _ = [found async for found in async_client.roles.list()]


def test_a_link_to_a_next_page_is_never_followed_elsewhere(service: Service, client: ManagementClient) -> None:
    """The client asks the service that it was told to ask, whatever an answer says."""
    headers = total(2) | {"Link": '<https://attacker.example/api/roles?page=7>; rel="next"'}
    Script(service, (1, headers), (1, total(2)))
    assert len(list(client.roles.list())) == 2
    assert [call.target for call in service.calls] == [
        "/api/roles?page=1&page_size=100",
        "/api/roles?page=2&page_size=100",
    ]


async def test_a_link_that_is_not_a_url_is_an_error(
    service: Service, client: ManagementClient, async_client: AsyncManagementClient
) -> None:
    """An error of this library: none of the HTTP library reaches the caller."""
    malformed = {"Link": '<https://id.example.com:port/api/logs?after=x>; rel="next"'}
    for list_of in (client.roles.list, client.logs.list):
        Script(service, (0, malformed | total(0)))
        with pytest.raises(ApiError, match="link") as refused:
            list_of().page()
        assert refused.value.code == "unexpected_answer"
    Script(service, (0, malformed))
    with pytest.raises(ApiError, match="link"):
        list(client.logs.list())
    Script(service, (0, malformed))
    with pytest.raises(ApiError, match="link"):
        await async_client.logs.list().page()


@pytest.fixture
def refusing_second_page(service: Service) -> Iterator[Service]:
    paged = PagedService(service, 3)
    answer = service.answer
    service.answer = lambda request: (
        Answer(403, b'{"code":"auth.forbidden","message":"no"}')
        if request.query.get("page") == ["2"]
        else answer(request)
    )
    yield paged.service


def test_a_refusal_halfway_is_an_error_and_not_an_end(refusing_second_page: Service, client: ManagementClient) -> None:
    going = iter(client.roles.list(page_size=2))
    assert [next(going).id for _ in range(2)] == ["ro0", "ro1"]
    with pytest.raises(ApiError) as refused:
        next(going)
    assert refused.value.code == "auth.forbidden"
