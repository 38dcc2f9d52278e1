"""Invitations in the console: an administrator creates one, and the invited person chooses a password with it."""

from __future__ import annotations

import re
import secrets

import httpx2 as httpx
import pytest

from tests.support.administrator import CONSOLE, Administrator, errors, heading, notices
from tests.support.running_stack import RunningStack

USERS = f"{CONSOLE}/users"
ACCEPTING = f"{CONSOLE}/invitation"
PASSWORD = "chosen by the invited person"


@pytest.fixture(scope="module")
def administrator(stack: RunningStack) -> Administrator:
    return Administrator(stack, "all")


@pytest.fixture
def username(stack: RunningStack) -> str:
    stack.recorder.keep(PASSWORD, "password")
    return f"invited_{secrets.token_hex(5)}"


@pytest.fixture
def page_of(stack: RunningStack, username: str) -> str:
    return f"{USERS}/{stack.management.users.create(username=username, name='Katherine Johnson').id}"


def invitation_in(stack: RunningStack, page: httpx.Response) -> str:
    found = re.search(r'<code id="secret">(\w{43})</code>', page.text)
    assert found is not None
    stack.recorder.keep(found[1], "invitation")
    return found[1]


def chooses(stack: RunningStack, invitation: str, **changed: str) -> httpx.Response:
    """Send the form of the page that anybody can open."""
    values = {"invitation": invitation, "password": PASSWORD, "repeated": PASSWORD, **changed}
    with httpx.Client(base_url=stack.base_url, timeout=30) as browser:
        assert browser.get(ACCEPTING).status_code == 200
        return browser.post(ACCEPTING, data=values, headers={"Origin": stack.base_url})


def test_an_invited_administrator_chooses_a_password_and_signs_in(
    stack: RunningStack, administrator: Administrator
) -> None:
    invited = Administrator(stack, "read", name="Ada Lovelace")
    page = administrator.opens(f"{USERS}/{invited.user_id}/invitation")
    page = administrator.follows(administrator.sends(page, minutes="60", step="invite"))
    assert notices(page)[0].startswith("Created an invitation.")
    invitation = invitation_in(stack, page)
    assert invitation not in administrator.opens(f"{USERS}/{invited.user_id}").text

    accepted = chooses(stack, f" {invitation}\n")
    assert (accepted.status_code, heading(accepted)) == (200, "Your password is set")
    assert accepted.headers["Cache-Control"] == "no-store"
    invited._password = PASSWORD
    assert heading(invited.opens(USERS)) == "Users"
    again = chooses(stack, invitation)
    assert again.status_code == 422
    assert errors(again) == {"invitation": "The invitation is not valid: it was used, replaced or withdrawn, it has"
                             " expired, or you have been given more rights. Ask for a new one."}  # fmt: skip


def test_what_is_wrong_is_said_beside_its_field_and_loses_nothing(
    stack: RunningStack, administrator: Administrator, page_of: str
) -> None:
    page = administrator.sends(administrator.opens(f"{page_of}/invitation"), minutes="0", step="invite")
    assert (page.status_code, list(errors(page))) == (400, ["minutes"])
    page = administrator.follows(administrator.sends(page, minutes="5", step="invite"))
    invitation = invitation_in(stack, page)
    assert errors(chooses(stack, invitation, repeated="another")) == {"repeated": "The two passwords differ."}
    assert list(errors(chooses(stack, invitation, password="short", repeated="short"))) == ["password"]
    page = chooses(stack, '"><script>alert(1)</script>')
    assert (page.status_code, list(errors(page))) == (422, ["invitation"])
    assert "<script>alert" not in page.text
    assert chooses(stack, invitation).status_code == 200


def test_a_withdrawn_invitation_is_worth_nothing(
    stack: RunningStack, administrator: Administrator, page_of: str
) -> None:
    page = administrator.follows(
        administrator.sends(administrator.opens(f"{page_of}/invitation"), minutes="5", step="invite")
    )
    invitation = invitation_in(stack, page)
    page = administrator.follows(
        administrator.sends(administrator.opens(f"{page_of}/invitation"), minutes="5", step="withdraw")
    )
    assert notices(page) == ["Withdrew the invitation."]
    assert chooses(stack, invitation).status_code == 422


def test_another_sites_form_is_refused(stack: RunningStack) -> None:
    with httpx.Client(base_url=stack.base_url, timeout=30) as browser:
        values = {"invitation": "x", "password": PASSWORD, "repeated": PASSWORD}
        assert browser.post(ACCEPTING, data=values, headers={"Origin": "https://evil.example"}).status_code == 403
        assert browser.post(ACCEPTING, json=values, headers={"Origin": stack.base_url}).status_code == 403
