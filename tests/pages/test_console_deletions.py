"""The console deletes what its confirmation page showed, or nothing."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from html import unescape
from typing import Any
from urllib.parse import urlencode

import httpx2 as httpx
import pytest

from stead import ManagementClient
from stead.errors import NotFound
from tests.support.administrator import CONSOLE, Administrator, errors, heading
from tests.support.running_stack import RunningStack

CHANGED = "This was changed after you had opened the page, so nothing was done."
GEAENDERT = "Dies wurde geändert, nachdem Sie die Seite geöffnet hatten; deshalb ist nichts geschehen."
SCRIPT = "const getCustomJwtClaims = async () => ({});"
OUT_OF_DATE = (403, "This page is out of date")
GONE = (404, "There is no such thing")


@dataclass(frozen=True)
class Deletable:
    """Something that the console deletes.

    Attributes:
        page: Address of the confirmation page.
        name: Reads what is typed to confirm; None if the button suffices.
        change: Changes the thing itself.
        is_there: Whether it still exists.
        delete: Deletes it by the API.
        has_version: Whether the API has a version of it.
        grow: Adds to what is lost with it; None if the page names nothing of that kind.
        after: What the page says then.
    """

    page: str
    name: Callable[[], str] | None
    change: Callable[[], object]
    is_there: Callable[[], bool]
    delete: Callable[[], object]
    has_version: bool = True
    grow: Callable[[], object] | None = None
    after: str = ""

    def confirmation(self) -> dict[str, str]:
        """Return what is typed to confirm."""
        return {"confirmation": self.name()} if self.name else {}


def unique(text: str) -> str:
    return f"{text} {secrets.token_hex(4)}"


def found(read: Callable[[], object]) -> bool:
    try:
        read()
    except NotFound:
        return False
    return True


def entity(operations: Any, created: Any, page: str, grow: Callable[[], object], after: str) -> Deletable:
    """Return something that has an id, a name and a version."""
    return Deletable(
        page=f"{CONSOLE}/{page}/{created.id}/delete",
        name=lambda: operations.get(created.id).name,
        change=lambda: operations.update(created.id, name=f"{created.name}2"),
        is_there=lambda: found(lambda: operations.get(created.id)),
        delete=lambda: operations.delete(created.id),
        grow=grow,
        after=after,
    )


def application(api: ManagementClient) -> Deletable:
    made = api.applications.create(name=unique("<i>Batch</i>"), type="MachineToMachine")

    def join() -> None:
        api.organizations.add_applications(api.organizations.create(unique("Engines")).id, [made.id])

    return entity(api.applications, made, "applications", join, "It is a member of 1 organization.")


def user(api: ManagementClient) -> Deletable:
    made = api.users.create(name=unique("Ada"))

    def join() -> None:
        api.organizations.add_users(api.organizations.create(unique("Engines")).id, [made.id])

    return entity(api.users, made, "users", join, "the membership in 1 organization")


def organization(api: ManagementClient) -> Deletable:
    made = api.organizations.create(unique("Engines"))

    def join() -> None:
        api.organizations.add_users(made.id, [api.users.create().id])

    return entity(api.organizations, made, "organizations", join, "has 1 member, who loses")


def resource(api: ManagementClient) -> Deletable:
    made = api.resources.create(unique("Orders"), f"https://{secrets.token_hex(4)}.example.com")
    return entity(
        api.resources, made, "resources", lambda: api.resources.create_scope(made.id, "read"), "its 1 permission"
    )


def role(api: ManagementClient) -> Deletable:
    made = api.roles.create(unique("Reader"), "", "User")
    return entity(
        api.roles, made, "roles", lambda: api.roles.assign_users(made.id, [api.users.create().id]), "1 holder loses"
    )


def granted(api: ManagementClient) -> tuple[Any, Any, Callable[[], None], str]:
    """Return a role of the template, its permission, what gives a member the role, and what a page says of that."""
    permission = api.organization_permissions.create(f"pay:{secrets.token_hex(4)}")
    template_role = api.organization_roles.create(unique("Clerk"), permission_ids=[permission.id])

    def join() -> None:
        member, place = api.users.create().id, api.organizations.create(unique("Engines")).id
        api.organizations.add_users(place, [member])
        api.organizations.assign_user_roles(place, member, [template_role.id])

    return template_role, permission, join, f"1 member in 1 organization loses {permission.name}"


def template_role(api: ManagementClient) -> Deletable:
    made, _, join, after = granted(api)
    return entity(api.organization_roles, made, "template/roles", join, after)


def template_permission(api: ManagementClient) -> Deletable:
    _, made, join, after = granted(api)
    return entity(api.organization_permissions, made, "template/permissions", join, after)


def claims(api: ManagementClient) -> Deletable:
    save = lambda: api.custom_claims.save("access-token", f"// {secrets.token_hex(4)}\n{SCRIPT}")  # noqa: E731
    save()
    return Deletable(
        page=f"{CONSOLE}/claims/access-token/delete",
        name=None,
        change=save,
        is_there=lambda: found(lambda: api.custom_claims.get("access-token")),
        delete=lambda: api.custom_claims.delete("access-token"),
    )


def secret(api: ManagementClient) -> Deletable:
    client, name = api.applications.create(name=unique("Batch"), type="MachineToMachine").id, "a b <1>"
    api.applications.create_secret(client, name)

    def replace() -> None:
        api.applications.delete_secret(client, name)
        api.applications.create_secret(client, name)

    return Deletable(
        page=f"{CONSOLE}/applications/{client}/secrets/delete?{urlencode({'name': name})}",
        name=lambda: name,
        change=replace,
        is_there=lambda: [each.name for each in api.applications.secrets(client)] == [name],
        delete=lambda: api.applications.delete_secret(client, name),
        has_version=False,
    )


def scope(api: ManagementClient) -> Deletable:
    owner = api.resources.create(unique("Orders"), f"https://{secrets.token_hex(4)}.example.com").id
    made = api.resources.create_scope(owner, "read")
    return Deletable(
        page=f"{CONSOLE}/resources/{owner}/scopes/{made.id}/delete",
        name=lambda: next(each.name for each in api.resources.scopes(owner)),
        change=lambda: api.resources.update_scope(owner, made.id, name="write"),
        is_there=lambda: [each.id for each in api.resources.scopes(owner)] == [made.id],
        delete=lambda: api.resources.delete_scope(owner, made.id),
        has_version=False,
    )


def member_user(api: ManagementClient) -> Deletable:
    member, place = api.users.create(name=unique("Ada")).id, api.organizations.create(unique("Engines")).id
    clerk = api.organization_roles.create(unique("Clerk"))
    api.organizations.add_users(place, [member])
    return Deletable(
        page=f"{CONSOLE}/organizations/{place}/users/{member}/remove",
        name=None,
        change=lambda: api.users.update(member, name=unique("Augusta")),
        is_there=lambda: [each.id for each in api.organizations.users(place)] == [member],
        delete=lambda: api.organizations.remove_user(place, member),
        has_version=False,
        grow=lambda: api.organizations.assign_user_roles(place, member, [clerk.id]),
        after=f"Roles: {clerk.name} .",
    )


def member_application(api: ManagementClient) -> Deletable:
    member = api.applications.create(name=unique("Batch"), type="MachineToMachine").id
    place = api.organizations.create(unique("Engines")).id
    clerk = api.organization_roles.create(unique("Clerk"), type="MachineToMachine")
    api.organizations.add_applications(place, [member])
    return Deletable(
        page=f"{CONSOLE}/organizations/{place}/applications/{member}/remove",
        name=None,
        change=lambda: api.applications.update(member, name=unique("Nightly")),
        is_there=lambda: [each.id for each in api.organizations.applications(place)] == [member],
        delete=lambda: api.organizations.remove_application(place, member),
        has_version=False,
        grow=lambda: api.organizations.assign_application_roles(place, member, [clerk.id]),
        after=f"Roles: {clerk.name} .",
    )


def consent(stack: RunningStack) -> Deletable:
    person = Administrator(stack)
    person.opens()  # signs in to the console, a first-party application
    users = stack.management.users
    (given,) = users.consents(person.user_id)
    return Deletable(
        page=f"{CONSOLE}/users/{person.user_id}/consents/{given.application_id}",
        name=None,
        change=lambda: users.update(person.user_id, name=unique("Augusta")),
        is_there=lambda: len(users.consents(person.user_id)) == 1,
        delete=lambda: users.withdraw_consent(person.user_id, given.application_id),
        has_version=False,
    )


KINDS: tuple[Callable[[Any], Deletable], ...] = (
    application, user, organization, resource, role, template_role, template_permission, claims, secret, scope,
    member_user, member_application, consent,
)  # fmt: skip
GROWING = tuple(kind for kind in KINDS if kind not in {claims, secret, scope, consent})


@pytest.fixture(scope="module")
def administrator(stack: RunningStack) -> Administrator:
    return Administrator(stack, "all")


@pytest.fixture
def deletable(stack: RunningStack, request: pytest.FixtureRequest) -> Iterator[Deletable]:
    yield request.param(stack if request.param is consent else stack.management)
    if request.param is claims:
        with suppress(NotFound):
            stack.management.custom_claims.delete("access-token")


def of(*kinds: Callable[[Any], Deletable]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("deletable", kinds, indirect=True, ids=lambda kind: kind.__name__)


def text(page: httpx.Response) -> str:
    return " ".join(unescape(re.sub("<[^>]+>", " ", page.text)).split())


def said(page: httpx.Response) -> tuple[int, str]:
    return page.status_code, heading(page)


def confirmed_again(administrator: Administrator, deletable: Deletable, shown: httpx.Response) -> httpx.Response:
    """Assert that a page was shown again and nothing deleted; confirm, and assert that it is deleted now."""
    assert shown.status_code == 412, errors(shown)
    assert CHANGED in text(shown)
    assert deletable.is_there()
    values = administrator.form(shown)[1]
    assert values.get("confirmation", [""]) == [""]
    deleted = administrator.sends(shown, **deletable.confirmation())
    assert deleted.status_code == 303, errors(deleted)
    assert not deletable.is_there()
    return deleted


@of(*KINDS)
def test_what_was_changed_meanwhile_is_shown_again_and_confirmed_again(
    administrator: Administrator, deletable: Deletable
) -> None:
    page = administrator.opens(deletable.page)
    assert page.status_code == 200
    assert CHANGED not in text(page)
    typed = deletable.confirmation()
    deletable.change()
    refused = administrator.sends(page, **typed)
    before, after = administrator.form(page)[1], administrator.form(refused)[1]
    assert {name for name in before if before[name] != after[name]} <= {"etag", "shown"}
    assert before != after
    confirmed_again(administrator, deletable, refused)


@of(*GROWING)
def test_what_more_would_be_lost_is_shown_and_confirmed_again(
    administrator: Administrator, deletable: Deletable
) -> None:
    page = administrator.opens(deletable.page)
    assert deletable.after not in text(page)
    assert deletable.grow
    deletable.grow()
    refused = administrator.sends(page, **deletable.confirmation())
    assert deletable.after in text(refused)
    confirmed_again(administrator, deletable, refused)


@pytest.mark.heavy
@of(user, template_role)
def test_a_form_with_anything_but_a_version_and_a_digest_deletes_nothing(
    administrator: Administrator, deletable: Deletable
) -> None:
    target, values = administrator.form(administrator.opens(deletable.page))
    values |= {name: [value] for name, value in deletable.confirmation().items()}
    wrong = {
        "shown": ["x", "0" * 31, "0" * 33, "A" * 32, "0" * 32 + "\n"],
        "etag": ["*", "1", 'W/"1"', '"1", "2"', f"{values['etag'][0]}\n", '"' + "x" * 200 + '"'],
    }
    for field, texts in wrong.items():
        for each in texts:
            assert said(administrator.browser.post(target, data={**values, field: each})) == OUT_OF_DATE, each
    assert deletable.is_there()


@pytest.mark.heavy
@of(*KINDS)
def test_a_form_that_does_not_say_what_its_page_showed_deletes_nothing(
    administrator: Administrator, deletable: Deletable
) -> None:
    page = administrator.opens(deletable.page)
    target, values = administrator.form(page)
    assert ("etag" in values) == deletable.has_version
    values |= {name: [value] for name, value in deletable.confirmation().items()}
    for field in ("shown", "etag") if deletable.has_version else ("shown",):
        sent = [{**values, field: [""]}, {**values, field: values[field] * 2}]
        sent.append({name: each for name, each in values.items() if name != field})
        for each in sent:
            assert said(administrator.browser.post(target, data=each)) == OUT_OF_DATE, each.get(field)
        other = '"0"' if field == "etag" else "0" * 32
        for typed in ({}, {"confirmation": "another"}):  # what changed is said first
            refused = administrator.browser.post(target, data={**values, field: other, **typed})
            assert refused.status_code == 412
    assert deletable.is_there()
    assert administrator.browser.post(target, data=values).status_code == 303
    assert not deletable.is_there()


@of(*KINDS)
def test_what_was_deleted_meanwhile_is_not_there(administrator: Administrator, deletable: Deletable) -> None:
    page, typed = administrator.opens(deletable.page), deletable.confirmation()
    deletable.delete()
    assert said(administrator.sends(page, **typed)) == GONE
    assert said(administrator.opens(deletable.page)) == GONE


@of(*KINDS)
def test_a_form_that_is_sent_again_finds_nothing(administrator: Administrator, deletable: Deletable) -> None:
    page, typed = administrator.opens(deletable.page), deletable.confirmation()
    assert administrator.sends(page, **typed).status_code == 303
    assert said(administrator.sends(page, **typed)) == GONE


@of(*(kind for kind in KINDS if kind not in {claims, member_user, member_application, consent}))
def test_another_name_deletes_nothing_and_nothing_is_filled_in_again(
    administrator: Administrator, deletable: Deletable
) -> None:
    page = administrator.opens(deletable.page)
    refused = administrator.sends(page, confirmation="<another>")
    assert (refused.status_code, list(errors(refused))) == (422, ["confirmation"])
    assert CHANGED not in text(refused)
    assert "&lt;another&gt;" not in refused.text
    assert administrator.form(refused)[1] == administrator.form(page)[1]
    assert deletable.is_there()
    assert administrator.sends(refused, **deletable.confirmation()).status_code == 303


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("Ada\u2029Lovelace", "Ada Lovelace"),
        ("Ada  Lovelace", "Ada Lovelace"),
        (
            "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 Ada",
            "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 Ada",
        ),
    ],
)
@pytest.mark.parametrize("is_copied", [True, False], ids=["from the page", "from the API"])
def test_a_name_is_typed_as_the_page_shows_it_or_as_it_is(
    stack: RunningStack, administrator: Administrator, name: str, shown: str, is_copied: bool
) -> None:
    made = stack.management.users.create(name=name)
    page = administrator.opens(f"{CONSOLE}/users/{made.id}/delete")
    assert f"<bdi>{shown}</bdi>" in page.text
    assert f'data-expected="{shown}"' in page.text
    assert administrator.sends(page, confirmation=shown.replace("Ada", "Eve")).status_code == 422
    assert administrator.sends(page, confirmation=shown if is_copied else made.name or "").status_code == 303
    assert not found(lambda: stack.management.users.get(made.id))


@pytest.mark.heavy
@of(user, secret)
def test_a_deletion_that_waited_for_a_sign_in_is_confirmed_again(stack: RunningStack, deletable: Deletable) -> None:
    administrator = Administrator(stack, "all")
    page = administrator.opens(deletable.page)
    administrator.session_expires()
    deletable.change()
    shown = administrator.follows(administrator.sends(page, **deletable.confirmation()))
    assert shown.status_code == 200
    assert deletable.is_there()
    assert administrator.form(shown)[1].get("confirmation") == [""]
    assert administrator.sends(shown).status_code == 422
    assert administrator.sends(shown, **deletable.confirmation()).status_code == 303


@of(user, member_user)
def test_the_notice_is_german_for_germans(stack: RunningStack, deletable: Deletable) -> None:
    administrator = Administrator(stack, "all")
    administrator.browser.headers["Accept-Language"] = "de"
    page = administrator.opens(deletable.page)
    deletable.change()
    shown = administrator.sends(page, **deletable.confirmation())
    assert shown.status_code == 412
    assert GEAENDERT in text(shown)


@pytest.mark.heavy
def test_a_change_at_the_same_moment_prevents_the_deletion_or_comes_too_late(
    stack: RunningStack, administrator: Administrator
) -> None:
    """Not both: the API compares the version while it deletes."""
    users, outcomes = stack.management.users, set()
    with ThreadPoolExecutor(1) as another:
        for number in range(20):
            made = users.create(name="Ada")
            page = administrator.opens(f"{CONSOLE}/users/{made.id}/delete")
            change = another.submit(found, lambda made=made: users.update(made.id, custom_data={"plan": "gold"}))
            answer = administrator.sends(page, confirmation="Ada")
            outcomes.add((answer.status_code, change.result()))
            assert found(lambda made=made: users.get(made.id)) == (answer.status_code == 412), number
    assert outcomes <= {(412, True), (303, False)}
