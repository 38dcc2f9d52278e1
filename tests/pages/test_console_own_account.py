"""An administrator's own account: its pages say whose it is, and the last administrator stays."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx
import pytest

from provision import ServerAddresses
from stead.errors import Conflict
from tests.support.administrator import CONSOLE, Administrator, notices
from tests.support.factors import stored_passkey_of
from tests.support.recorder import Recorder
from tests.support.running_stack import RunningStack

pytestmark = pytest.mark.heavy

OWN = "This is your own account."
LAST = "At least one user who can sign in must hold"
PAGES = ("suspension", "delete", "roles")


@pytest.fixture(scope="module")
def stack(servers: ServerAddresses, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    """A tenant of its own, whose only administrator is the seeded one."""
    directory: Path = tmp_path_factory.mktemp("administrators")
    stack = RunningStack(servers, directory, Recorder(), tenant_id=f"administrators-{secrets.token_hex(4)}")
    try:
        stack.start()
        yield stack
    finally:
        stack.stop()


@pytest.fixture(scope="module")
def administrator(stack: RunningStack) -> Administrator:
    """The only administrator, in place of the seeded one."""
    administrator = Administrator(stack, "all")
    users = stack.management.users
    (seeded,) = users.list(exact={"username": stack.credentials.administrator.username})
    users.delete(seeded.id)
    return administrator


@pytest.mark.parametrize("page", PAGES)
def test_the_pages_of_an_own_account_say_so(administrator: Administrator, page: str) -> None:
    assert OWN in administrator.opens(f"{CONSOLE}/users/{administrator.user_id}/{page}").text
    other = administrator.stack.management.users.create(name="Katherine Johnson").id
    assert OWN not in administrator.opens(f"{CONSOLE}/users/{other}/{page}").text


def test_own_factors_are_changed_in_the_account_alone(administrator: Administrator) -> None:
    here = f"{CONSOLE}/users/{administrator.user_id}"
    offers = ("/factors/enrolment-code", "/factors/reset", "/remove")
    for _ in range(2):
        page = administrator.opens(here).text
        assert ('href="/account/factors"' in page, [each for each in offers if f'{each}"' in page]) == (True, [])
        asyncio.run(stored_passkey_of(administrator.stack, administrator.user_id))


def test_holders_of_a_role_mark_the_own_account(administrator: Administrator) -> None:
    management = administrator.stack.management
    (role,) = management.users.roles(administrator.user_id)
    page = administrator.opens(f"{CONSOLE}/roles/{role.id}/holders")
    assert page.text.count('<span class="tag">your own account</span>') == 1


def test_the_last_administrator_is_neither_suspended_nor_deleted_nor_loses_the_role(
    administrator: Administrator,
) -> None:
    management, path = administrator.stack.management, f"{CONSOLE}/users/{administrator.user_id}"
    suspension = administrator.sends(administrator.opens(f"{path}/suspension"))
    name = management.users.get(administrator.user_id).name or ""
    deletion = administrator.sends(administrator.opens(f"{path}/delete"), confirmation=name)
    removal = administrator.sends(administrator.opens(f"{path}/roles"), step="save", held=[])
    for refused in (suspension, deletion, removal):
        assert (refused.status_code, LAST in refused.text) == (422, True)
    assert not management.users.get(administrator.user_id).is_suspended
    with pytest.raises(Conflict) as refusal:
        management.users.suspend(administrator.user_id)
    assert refusal.value.code == "user.last_administrator"


def test_beside_a_second_one_an_administrator_leaves(administrator: Administrator) -> None:
    second = Administrator(administrator.stack, "all")
    page = second.sends(second.opens(f"{CONSOLE}/users/{second.user_id}/suspension"))
    assert page.status_code == 303
    assert administrator.stack.management.users.get(second.user_id).is_suspended


def test_what_one_signs_in_with_needs_a_recent_sign_in_and_what_was_typed_is_kept_for_it(stack: RunningStack) -> None:
    """A stolen session would otherwise take over the account that it is of."""
    person, username = Administrator(stack, "all"), f"grace_{secrets.token_hex(5)}"
    here = f"{CONSOLE}/users/{person.user_id}/edit"
    person.opens()
    person.signed_in_long_ago()
    person.browser.cookies.delete("identity-console")
    assert person.sends(person.opens(here), name="Grace").status_code == 303

    asked = person.sends(person.opens(here), username=username)
    assert httpx.URL(asked.headers["Location"]).params["prompt"] == "login"
    page = person.follows(asked)
    assert notices(page)[0].startswith("You have signed in again. What you typed is here")
    assert person.form(page)[1]["username"] == [username]
    assert person.sends(page).status_code == 303
    assert stack.management.users.get(person.user_id).username == username
