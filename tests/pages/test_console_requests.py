"""What the services learn of a page from the requests that the console makes for it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from provision import ServerAddresses
from stead.models import AuditEntry
from tests.support.administrator import CONSOLE, Administrator
from tests.support.at_a_browser import PASSWORD
from tests.support.running_stack import RunningStack
from tests.support.waiting import eventually


def entry(stack: RunningStack, key: str, target_id: str) -> AuditEntry:
    """Return the entry of a write to an object, as soon as the trail has it."""
    found: list[AuditEntry] = []

    def is_there() -> bool:
        found.extend(stack.management.logs.list(key=key, target_id=target_id))
        return bool(found)

    eventually(is_there)
    return found[0]


def create_organization(administrator: Administrator) -> str:
    """Create an organization; return its id."""
    page = administrator.opens(f"{CONSOLE}/organizations/new")
    answer = administrator.sends(page, name=f"Engines {secrets.token_hex(4)}")
    return str(answer.headers["Location"].rpartition("/")[2])


@pytest.mark.heavy
def test_a_page_and_the_requests_that_the_console_makes_for_it_have_one_request_id(stack: RunningStack) -> None:
    administrator = Administrator(stack, "all")
    page = administrator.opens(f"{CONSOLE}/users/new")
    answer = administrator.sends(page, name="Ada", username="", primaryEmail="")
    user = answer.headers["Location"].rpartition("/")[2]
    assert entry(stack, "management.user.create", user).request_id == answer.headers["X-Request-Id"]
    administrator.browser.headers["X-Request-Id"] = given = f"page-{secrets.token_hex(8)}"
    assert entry(stack, "template.organization.create", create_organization(administrator)).request_id == given


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("user_agent", "recorded"),
    [(b"B\xe9b\xe9/1.0", "B?b?/1.0"), (b"\xa0 b/1.0", "b/1.0"), (b"b" * 300, "b" * 256)],
    ids=["not ASCII", "not printable", "long"],
)
def test_a_browser_may_call_itself_anything(stack: RunningStack, user_agent: bytes, recorded: str) -> None:
    administrator = Administrator(stack, "all")
    administrator.browser.headers.update([(b"User-Agent", user_agent)])
    organization = create_organization(administrator)
    assert entry(stack, "template.organization.create", organization).user_agent == recorded


def recorded_addresses(stack: RunningStack, forwarded_for: str) -> list[str | None]:
    """Return the addresses of two changes in the console, one of each service, and of an accepted invitation."""
    administrator = Administrator(stack, "all")
    administrator.browser.headers["X-Forwarded-For"] = forwarded_for
    organization = create_organization(administrator)
    user = stack.management.users.create(name="Ada").id
    page = administrator.opens(f"{CONSOLE}/users/{user}/password")
    assert administrator.sends(page, password=PASSWORD).status_code == 303
    invitation = stack.management.users.invite(administrator.user_id).invitation
    form = {"invitation": invitation, "password": PASSWORD, "repeated": PASSWORD}
    assert administrator.browser.post(f"{CONSOLE}/invitation", data=form).status_code == 200
    found = (
        entry(stack, "template.organization.create", organization),
        entry(stack, "management.user.update", user),
        entry(stack, "management.user.update", administrator.user_id),
    )
    return [each.address for each in found]


@pytest.mark.heavy
def test_without_a_proxy_the_audit_trail_has_the_address_of_the_browser_and_nothing_that_it_claims(
    stack: RunningStack,
) -> None:
    assert recorded_addresses(stack, "198.51.100.66") == ["127.0.0.1"] * 3


@pytest.fixture(scope="module")
def behind_two_proxies(servers: ServerAddresses, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    stack = RunningStack(
        servers,
        tmp_path_factory.mktemp("console"),
        tenant_id=f"console-{secrets.token_hex(4)}",
        environment={"TRUSTED_PROXIES": "2"},
    )
    stack.start()
    try:
        yield stack
    finally:
        stack.stop()


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("forwarded_for", "address"),
    [("198.51.100.66, 203.0.113.5, 192.0.2.1", "203.0.113.5"), ("198.51.100.66", "127.0.0.1")],
    ids=["through both", "past one of them"],
)
def test_behind_two_proxies_the_audit_trail_has_the_address_of_the_browser_and_nothing_that_it_claims(
    behind_two_proxies: RunningStack, forwarded_for: str, address: str
) -> None:
    assert recorded_addresses(behind_two_proxies, forwarded_for) == [address] * 3
