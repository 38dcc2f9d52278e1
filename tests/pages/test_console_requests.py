"""What the services learn of a page from the requests that the console makes for it."""

from __future__ import annotations

import secrets

from stead.models import AuditEntry
from tests.support.administrator import CONSOLE, Administrator
from tests.support.patience import eventually
from tests.support.running_stack import RunningStack


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


def test_a_page_and_the_requests_that_the_console_makes_for_it_have_one_request_id(stack: RunningStack) -> None:
    administrator = Administrator(stack, "all")
    page = administrator.opens(f"{CONSOLE}/users/new")
    answer = administrator.sends(page, name="Ada", username="", primaryEmail="")
    user = answer.headers["Location"].rpartition("/")[2]
    assert entry(stack, "management.user.create", user).request_id == answer.headers["X-Request-Id"]
    administrator.browser.headers["X-Request-Id"] = given = f"page-{secrets.token_hex(8)}"
    assert entry(stack, "template.organization.create", create_organization(administrator)).request_id == given
