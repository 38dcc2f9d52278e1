"""The page of a person in the console: what it may do and why, each part by the viewer's own rights."""

from __future__ import annotations

import asyncio
import re
import secrets
from functools import partial
from html import unescape
from urllib.parse import urlsplit

import asyncpg
import httpx2 as httpx
import pytest

from identity_common.clock import now_ms
from identity_common.stores.redis import RedisCommands, connect_redis
from tests.support.administrator import CONSOLE, Administrator, AtTheConsole, notices
from tests.support.at_a_browser import PASSWORD
from tests.support.factors import stored_passkey_of
from tests.support.running_stack import RunningStack
from tests.support.waiting import eventually
from token_service.sign_in.sessions import Sessions

USERS = f"{CONSOLE}/users"
LARGEST_PAGE = 100_000


@pytest.fixture(scope="module")
def administrator(stack: RunningStack) -> Administrator:
    return Administrator(stack, "all")


def text(page: httpx.Response) -> str:
    return " ".join(unescape(re.sub("<[^>]+>", " ", page.text)).split())


def _is_told(administrator: Administrator, path: str, told: str) -> bool:
    return told in text(administrator.opens(path))


def groups(page: httpx.Response) -> list[str]:
    """Return what each group of permissions says."""
    found = re.findall(r"<details.*?</details>", page.text, re.DOTALL)
    return [" ".join(unescape(re.sub("<[^>]+>", " ", each)).split()) for each in found]


@pytest.fixture
def person(stack: RunningStack) -> str:
    """A user with a permission from an API role, and two in an organization from different roles."""
    management, mark = stack.management, secrets.token_hex(4)
    user = management.users.create(name=f"Ada {mark}", username=f"ada_{mark}", primary_email=f"ada.{mark}@example.com")
    resource = management.resources.create(f"Orders {mark}", f"https://{mark}.example.com")
    scope = management.resources.create_scope(resource.id, f"write:{mark}")
    for name in ("Clerk", "Driver"):
        role = management.roles.create(f"{name} {mark}", "", "User", [scope.id])
        management.users.assign_roles(user.id, [role.id])
    organization = management.organizations.create(f"Engines {mark}")
    permission = management.organization_permissions.create(f"read:{mark}")
    keeper = management.organization_roles.create(
        f"Keeper {mark}", permission_ids=[permission.id], resource_scope_ids=[scope.id]
    )
    management.organizations.add_users(organization.id, [user.id])
    management.organizations.assign_user_roles(organization.id, user.id, [keeper.id])
    return user.id


def test_it_says_what_the_person_may_do_and_why(stack: RunningStack, administrator: Administrator, person: str) -> None:
    user = stack.management.users.get(person)
    mark = (user.username or "").removeprefix("ada_")
    page = administrator.opens(f"{USERS}/{person}")
    of_api, within = groups(page)
    assert of_api.startswith(f"Orders {mark} 1 permission · https://{mark}.example.com")
    assert of_api.endswith(f"write:{mark} Clerk {mark} , Driver {mark}")
    assert f"read:{mark} the organization Keeper {mark} write:{mark} Orders {mark} Keeper {mark}" in within
    assert f'<a href="{CONSOLE}/template/roles/' in page.text
    for shown in ("cannot sign in: no password", user.primary_email, "none in the audit trail"):
        assert str(shown) in text(page)
    organization = next(iter(stack.management.users.organizations(person)))
    for path in (f"{USERS}/{person}", f"{CONSOLE}/organizations/{organization.id}"):
        told = f"gave the member {user.name} the role Keeper {mark} in Engines {mark}"
        eventually(partial(_is_told, administrator, path, told))
    assert [*administrator.form(page, f"{USERS}/{person}/sign-in-attempts")[1]] == ["csrf_token"]
    assert f"{user.primary_email} not confirmed Mail a link to confirm it" in text(page)

    reader = Administrator(stack, "users:read")
    told = text(reader.opens(f"{USERS}/{person}"))
    assert f"{user.primary_email} not confirmed User name" in told
    for scope in ("roles:read", "organizations:read", "impersonations:read", "audit:read", "sessions:read"):
        assert f"Not shown: none of your roles has the permission {scope} of the Management API." in told
    assert f"write:{mark}" not in told
    assert f"{CONSOLE}/roles/" not in reader.opens(f"{USERS}/{person}").text
    assert reader.opens(f"{USERS}/{person}/permissions").status_code == 403


def test_a_link_to_confirm_the_address_is_mailed_until_it_is_confirmed(
    stack: RunningStack, administrator: Administrator, person: str
) -> None:
    page, send = administrator.opens(f"{USERS}/{person}"), f"{USERS}/{person}/verification-email"
    assert notices(administrator.follows(administrator.sends(page, send))) == [
        "A link to confirm the address is on its way by e-mail."
    ]
    sent = [administrator.sends(page, send) for _ in range(4)]
    assert [answer.status_code for answer in sent[-1:]] == [429]
    assert "Too many mails were requested for this address, or for this user." in text(sent[-1])
    stack.management.users.update(person, is_email_verified=True, external_id="auth0|<b>4711")
    refused = administrator.sends(page, send)
    assert (refused.status_code, "The e-mail address is verified." in text(refused)) == (422, True)
    shown = administrator.opens(f"{USERS}/{person}")
    assert "example.com confirmed User name" in text(shown)
    assert "Id elsewhere auth0|<b>4711" in text(shown)
    assert send not in shown.text


def test_it_says_when_the_person_signed_in_and_who_acted_as_it(
    stack: RunningStack, administrator: Administrator
) -> None:
    other = Administrator(stack, "audit:read")
    other.opens()
    token = stack.management.subject_tokens.create(other.user_id, {"reason": "The customer cannot see it."})
    signed_in = stack.management.logs.list(user_id=other.user_id, key="token.sign-in.succeeded")
    eventually(lambda: any(signed_in) and any(stack.management.impersonations.list(user_id=other.user_id)))
    page = administrator.opens(f"{USERS}/{other.user_id}")
    told = text(page)
    (entry,) = signed_in
    assert f'<a href="{CONSOLE}/audit/{entry.id}">' in page.text
    assert "The customer cannot see it." in told
    assert f"{CONSOLE}/impersonations/{token.impersonation_id}" in page.text
    assert "State active" in told
    stack.management.users.suspend(other.user_id)
    assert "State suspended" in text(administrator.opens(f"{USERS}/{other.user_id}"))


def test_it_says_where_the_person_is_signed_in_and_ends_it(stack: RunningStack, administrator: Administrator) -> None:
    other, sessions = Administrator(stack, "audit:read"), stack.management.users.sessions
    attacker = AtTheConsole(stack.base_url, other.username, PASSWORD)
    for browser, user_agent in (
        (other, "Mozilla/5.0 (X11; Linux) Firefox/146.0"),
        (attacker, "<script>alert(1)</script>"),
    ):
        browser.browser.headers["User-Agent"] = user_agent
        browser.opens()
    newest, oldest = sessions(other.user_id)
    path = f"{USERS}/{other.user_id}"
    page = administrator.opens(path)
    assert "Firefox on Linux 127.0.0.1" in text(page)
    assert re.search("End (\u2068)?Firefox(\u2069)? on (\u2068)?Linux(\u2069)? 20[0-9-]+ [0-9:]+", text(page)), text(
        page
    )
    assert "<script>alert" not in page.text
    assert "&lt;script&gt;alert(1)" in page.text

    administrator.sends(page, f"{path}/sessions/{newest.id}")
    listed = administrator.opens(f"{path}/sessions")
    assert notices(listed)[0].startswith("Ended the session.")
    assert "script" not in text(listed)
    assert [each.id for each in sessions(other.user_id)] == [oldest.id]
    assert administrator.sends(page, f"{path}/sessions/{newest.id}").status_code == 303, "it has ended already"
    administrator.sends(listed, f"{path}/sessions/{oldest.id}")
    assert "The user is not signed in anywhere." in text(administrator.opens(path))

    reader = Administrator(stack, "users:read", "sessions:read")
    assert "not signed in anywhere" in text(reader.opens(f"{path}/sessions"))
    own = f"{USERS}/{reader.user_id}/sessions"
    assert f'action="{own}' not in reader.opens(own).text
    assert Administrator(stack, "users:read").opens(own).status_code == 403


async def test_many_sessions_are_on_pages_of_their_own(stack: RunningStack, administrator: Administrator) -> None:
    user_id = stack.management.users.create(name="Ada").id
    redis = connect_redis(stack.addresses.token_redis_url)
    sessions = Sessions(RedisCommands(redis), redis, tenant_id=stack.tenant_id, replicas=0)
    begin = partial(
        sessions.sign_in, user_id, judged_at=now_ms(), tokens_valid_after=0, address="x" * 128, user_agent="<&>" * 100
    )
    await asyncio.gather(*(begin() for _ in range(30)))
    await redis.aclose()
    page = await asyncio.to_thread(administrator.opens, f"{USERS}/{user_id}")
    assert "5 of 30 Show all" in text(page)
    first, second = [
        await asyncio.to_thread(administrator.opens, f"{USERS}/{user_id}/sessions?page={n}") for n in (1, 2)
    ]
    assert ("1 to 25 of 30" in text(first), "26 to 30 of 30" in text(second)) == (True, True)
    assert max(len(each.content) for each in (page, first)) < LARGEST_PAGE
    beyond = await asyncio.to_thread(administrator.opens, f"{USERS}/{user_id}/sessions?page=9")
    assert beyond.status_code == 404


@pytest.mark.heavy
def test_many_permissions_are_folded_and_lead_to_all_of_them(stack: RunningStack, administrator: Administrator) -> None:
    management, mark = stack.management, secrets.token_hex(4)
    user = management.users.create(name="Ada").id
    resource = management.resources.create(f"Orders {mark}", f"https://{mark}.example.com")
    scopes = [management.resources.create_scope(resource.id, f"p{number:03}:{mark}").id for number in range(65)]
    for number in range(5):
        role = management.roles.create(f"{'r' * 200} {mark} {number}", "", "User", scopes)
        management.users.assign_roles(user, [role.id])
    page = administrator.opens(f"{USERS}/{user}")
    assert len(page.content) < LARGEST_PAGE
    (group,) = groups(page)
    assert "65 permissions" in group
    assert "and 2 other roles" in group
    assert "20 of 65 Show all" in group
    here = f"{USERS}/{user}/permissions"
    first = administrator.opens(f"{here}?resource={resource.id}")
    assert "1 to 60 of 65" in text(first)
    second = administrator.opens(f"{here}?resource={resource.id}&page=2")
    assert f"p064:{mark}" in second.text
    assert f"p059:{mark}" not in second.text
    assert len(first.content) < LARGEST_PAGE
    for query in (f"resource={resource.id}&page=3", "resource=none", "resource=..%2F", "page=9", "resource=%22%3E"):
        assert administrator.opens(f"{here}?{query}").status_code == 404, query
    for query in ("search=nowhere", "search=%3Cb%3E", "page=x"):
        assert administrator.opens(f"{here}?{query}").status_code == 200, query


async def test_a_part_whose_service_does_not_answer_says_so_in_its_place(
    stack: RunningStack, administrator: Administrator, person: str
) -> None:
    administrator.opens()
    template = await asyncpg.connect(stack.addresses.template_database_url.replace("+asyncpg", ""))
    async with template.transaction():
        await template.execute("LOCK TABLE members")
        page = await asyncio.to_thread(administrator.opens, f"{USERS}/{person}")
    await template.close()
    assert page.status_code == 200
    assert text(page).count("Not shown: the service that knows this does not answer.") == 2
    assert groups(page) == []
    assert "Consents None." in text(page)


def test_an_organization_is_shown_by_parts_and_edited_behind_a_button(
    stack: RunningStack, administrator: Administrator, person: str
) -> None:
    (membership,) = stack.management.users.organizations(person)
    path = f"{CONSOLE}/organizations/{membership.id}"
    page = administrator.opens(path)
    keeper = membership.organization_roles[0].name
    assert f"1 user Change Name Roles Ada {keeper[-8:]} {keeper}" in text(page)
    links = {urlsplit(link).path for link in re.findall(r'href="([^"]+)"', page.text)}
    assert {f"{path}/edit", f"{path}/users/{person}", f"{USERS}/invite"} <= links
    narrow = text(Administrator(stack, "organizations:read").opens(path))
    for scope in ("users:read", "applications:read", "impersonations:read", "audit:read"):
        assert f"Not shown: none of your roles has the permission {scope} of the Management API." in narrow


def test_factors_are_listed_reset_with_a_reason_and_begun_with_a_code(
    stack: RunningStack, administrator: Administrator, person: str
) -> None:
    here = f"{USERS}/{person}"
    page = administrator.opens(here)
    assert "Code to set up the first" in text(page)
    made = administrator.follows(administrator.sends(administrator.opens(f"{here}/factors/enrolment-code")))
    (code,) = re.findall('<code id="secret">([^<]+)</code>', made.text)
    assert notices(made)[0].startswith("Created a code. Give it to the user: it works once, until ")
    assert code not in administrator.opens(here).text

    first, second = (asyncio.run(stored_passkey_of(stack, person)) for _ in range(2))
    shown = text(administrator.opens(here))
    assert ("cannot sign in" in shown, shown.count("Key Passkey")) == (False, 2)
    asked = administrator.opens(f"{here}/factors/{first}/remove")
    assert "Remove this passkey?" in text(asked)
    assert notices(administrator.follows(administrator.sends(asked))) == ["Removed."]
    assert administrator.opens(f"{here}/factors/{first}/remove").status_code == 404
    assert "It is the last one: the recovery codes go with it." in text(
        administrator.opens(f"{here}/factors/{second}/remove")
    )

    resetting = administrator.opens(f"{here}/factors/reset")
    for reason in ("", " ", "x" * 257):
        refused = administrator.sends(resetting, reason=reason)
        assert (refused.status_code, 'id="reason-text"' in refused.text) == (400, True)
    assert len(stack.management.users.factors(person).factors) == 1
    done = administrator.follows(administrator.sends(resetting, reason="A lost phone."))
    assert notices(done)[0].startswith("Removed all passkeys and second factors of the user.")
    assert stack.management.users.factors(person).factors == ()
    eventually(partial(_is_told, administrator, here, "reset the factors of"))
