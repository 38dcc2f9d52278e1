"""Invitations in the console: an administrator creates one, and the invited person chooses a password with it."""

from __future__ import annotations

import re
import secrets
from concurrent.futures import ThreadPoolExecutor
from html import unescape

import httpx2 as httpx
import pytest

from tests.support.administrator import ACCOUNT, CONSOLE, Administrator, errors, heading, notices
from tests.support.databases import locked
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
    found = re.search(r'<code id="secret">https?://[^<]+/console/invitation#(\w{43})</code>', page.text)
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
    assert re.findall('<a[^>]* href="([^"]+)"', accepted.text) == [ACCOUNT, CONSOLE]
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


INVITE = f"{USERS}/invite"


def text(page: httpx.Response) -> str:
    return " ".join(unescape(re.sub("<[^>]+>", " ", page.text)).split())


def found(stack: RunningStack, email: str) -> list[str]:
    return [each.id for each in stack.management.users.list(exact={"primaryEmail": email})]


@pytest.fixture
def email() -> str:
    return f"invited.{secrets.token_hex(5)}@example.com"


def test_one_form_makes_a_user_with_what_it_may_do_and_a_link(
    stack: RunningStack, administrator: Administrator, email: str
) -> None:
    management, mark = stack.management, secrets.token_hex(5)
    role = management.roles.create(f"Auditor {mark}", "Exports and nothing else", "User")
    organization = management.organizations.create(f"Engines {mark}")
    clerk = management.organization_roles.create(f"clerk {mark}")
    typed = {"role": f" {role.name.upper()}", "organization": organization.id, "organizationRole": clerk.name}
    page = administrator.opens(INVITE)
    refused = administrator.sends(page, name="Ada", primaryEmail=email, **typed)
    assert (refused.status_code, errors(refused)) == (422, {"role": "There is none with this name."})
    assert found(stack, email) == []

    page = administrator.follows(administrator.sends(refused, role=f" {role.name} ", minutes="1440"))
    assert page.status_code == 200, (errors(page), administrator.form(page))
    (user_id,) = found(stack, email)
    assert page.url.path == f"{USERS}/{user_id}"
    assert re.match(r"Created an invitation\. Give this link .* works once, until 20.* UTC", notices(page)[0])
    invitation = invitation_in(stack, page)
    assert [each.id for each in management.users.roles(user_id)] == [role.id]
    (membership,) = management.users.organizations(user_id)
    assert (membership.id, [each.id for each in membership.organization_roles]) == (organization.id, [clerk.id])
    assert "invited, not accepted" in text(page)
    listed = administrator.opens(f"{USERS}/invitations?search={email}")
    assert f'href="{USERS}/{user_id}"' in listed.text
    assert "Grace Hopper" in text(listed)
    assert invitation not in listed.text

    again = administrator.sends(administrator.opens(INVITE), primaryEmail=email.upper())
    assert (again.status_code, list(errors(again))) == (422, ["primaryEmail"])
    assert f'href="{USERS}/{user_id}/invitation"' in again.text
    assert found(stack, email) == [user_id]

    assert chooses(stack, invitation).status_code == 200
    assert "No invitation matches." in text(administrator.opens(f"{USERS}/invitations?state=all&search={email}"))
    assert "active" in text(administrator.opens(f"{USERS}/{user_id}"))


@pytest.mark.parametrize(
    ("typed", "status", "wrong"),
    [
        ({"primaryEmail": " "}, 422, {"primaryEmail": "This is needed."}),
        ({"primaryEmail": "no address"}, 400, None),
        ({"minutes": "0"}, 400, None),
        ({"minutes": "9" * 400}, 400, None),
        ({"name": "x" * 2000}, 400, None),
        ({"role": "\"'><script>alert(1)</script>\u202e"}, 422, {"role": "There is none with this name."}),
        ({"role": "x" * 100_000}, 422, {"role": "There is none with this name."}),
        ({"role": "\0"}, 422, {"role": "There is none with this name."}),
        ({"organization": "%"}, 422, {"organization": "There is none with this name."}),
        ({"organization": "../users"}, 422, {"organization": "There is none with this name."}),
        ({"organizationRole": "none"}, 422, {"organizationRole": "There is none with this name."}),
    ],
)
def test_what_is_wrong_makes_nobody_and_stays_in_the_form(
    stack: RunningStack,
    administrator: Administrator,
    email: str,
    typed: dict[str, str],
    status: int,
    wrong: dict[str, str] | None,
) -> None:
    values = {"name": "Ada & <b>Co</b>", "primaryEmail": email, **typed}
    refused = administrator.sends(administrator.opens(INVITE), **values)
    assert refused.status_code == status
    assert wrong is None or errors(refused) == wrong
    assert "<script>alert" not in refused.text
    assert "<b>Co" not in refused.text
    shown = administrator.form(refused)[1]
    assert {name: shown[name] for name in ("name", "primaryEmail")} == {
        name: [values[name]] for name in ("name", "primaryEmail")
    }
    assert found(stack, email) == []


def test_a_role_beyond_ones_own_is_refused_in_words_and_the_user_is_deleted_again(
    stack: RunningStack, email: str
) -> None:
    inviter = Administrator(stack, "users", "roles")
    mighty = Administrator(stack, "keys")
    (role,) = stack.management.users.roles(mighty.user_id)
    page = inviter.opens(INVITE)
    assert "none of your roles has the permission organizations of the Management API" in text(page)
    refused = inviter.sends(page, primaryEmail=email, role=role.name)
    assert refused.status_code == 403
    assert "the access token needs more scopes of the Management API: keys." in text(refused)
    assert "Nothing was kept: the user that had been created is deleted again." in text(refused)
    assert found(stack, email) == []
    page = inviter.follows(inviter.sends(refused, role=""))
    invitation_in(stack, page)
    assert len(found(stack, email)) == 1


def test_what_is_left_when_the_session_ends_in_the_middle_is_told_after_the_next_sign_in(
    stack: RunningStack, email: str
) -> None:
    inviter, role = (
        Administrator(stack, "all"),
        stack.management.roles.create(f"Clerk {secrets.token_hex(5)}", "", "User"),
    )
    page = inviter.opens(INVITE)
    out = inviter.form(page, f"{CONSOLE}/sign-out")[1]
    lock = "SELECT FROM roles WHERE id = $1 FOR UPDATE"
    with ThreadPoolExecutor(1) as thread:
        with locked(stack.addresses.management_database_url, lock, role.id) as until_waited_for:
            sending = thread.submit(inviter.sends, page, primaryEmail=email, role=role.name)
            until_waited_for()
            assert inviter.browser.post(f"{CONSOLE}/sign-out", data=out).is_redirect
        answer = sending.result()
    (user_id,) = found(stack, email)
    page = inviter.follows(answer)
    assert page.url.path == INVITE
    assert "was created, but not completed, and could not be deleted again" in text(page)
    assert f'href="{USERS}/{user_id}"' in page.text
    assert inviter.form(page)[1]["primaryEmail"] == [email]
    assert "could not be deleted" not in text(inviter.opens(INVITE))


def test_a_form_that_is_sent_several_times_at_once_makes_one_user(
    stack: RunningStack, administrator: Administrator, email: str
) -> None:
    target, values = administrator.form(administrator.opens(INVITE))
    sent = {**values, "primaryEmail": email}
    with ThreadPoolExecutor(4) as pool:
        answers = [*pool.map(lambda _: administrator.browser.post(target, data=sent), range(4))]
    assert sorted(answer.status_code for answer in answers) == [303, 422, 422, 422]
    (user_id,) = found(stack, email)
    page = administrator.opens(f"{USERS}/{user_id}")
    if '<code id="secret">' in page.text:
        invitation_in(stack, page)
    assert len(list(stack.management.users.invitations(user_id=user_id))) == 1


def test_who_has_the_scope_users_alone_invites_without_roles(stack: RunningStack, email: str) -> None:
    inviter = Administrator(stack, "users")
    page = inviter.opens(INVITE)
    assert not {"role", "organization", "organizationRole"} & inviter.form(page)[1].keys()
    page = inviter.follows(inviter.sends(page, primaryEmail=email, name="Ada"))
    assert (page.status_code, heading(page)) == (200, "<bdi>Ada</bdi>")
    assert text(page).count("Not shown: none of your roles has the permission") == 9
    invitation_in(stack, page)
    forced = inviter.sends(inviter.opens(INVITE), primaryEmail=f"x.{email}", role="Administrator")
    assert forced.status_code == 403
    assert found(stack, f"x.{email}") == []


def test_the_open_invitations_are_filtered_renewed_and_withdrawn(
    stack: RunningStack, administrator: Administrator, page_of: str, username: str
) -> None:
    user_id = page_of.rpartition("/")[2]
    stack.management.users.invite(user_id)
    listed = f"{USERS}/invitations?search={username}"
    assert f'href="{page_of}/invitation"' in administrator.opens(listed).text
    assert "No invitation matches." in text(administrator.opens(f"{listed}&state=expired"))
    for state in ("", "x" * 300, "'--", "pending"):
        assert administrator.opens(f"{listed}&state={state}").status_code == 200
    reader = Administrator(stack, "users:read")
    assert f'href="{page_of}"' in reader.opens(listed).text
    assert f"{page_of}/invitation" not in reader.opens(listed).text
    page = administrator.opens(f"{page_of}/invitation")
    assert "An invitation works until" in text(page)
    administrator.sends(page, step="withdraw")
    assert "No invitation matches." in text(administrator.opens(listed))
