"""What the forms of the console show is what is stored, and what they accept is what the API accepts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from console.routes import _AREAS
from stead import ManagementClient, NotFound
from tests.support.administrator import CONSOLE, Administrator, errors
from tests.support.edited_objects import (
    EDITED,
    KIND,
    STORED,
    Edited,
    claims,
    long,
    mark,
    members,
    received,
    web_application,
)
from tests.support.running_stack import RunningStack
from tests.support.waiting import eventually

SECRET_NAME = "\"><b> Ada &amp; 'Co' عبد \U0001f642"


@pytest.fixture(scope="module")
def administrator(stack: RunningStack) -> Administrator:
    return Administrator(stack, "all")


@pytest.fixture(autouse=True)
def without_function(stack: RunningStack) -> Iterator[None]:
    yield
    with contextlib.suppress(NotFound):
        stack.management.custom_claims.delete(KIND)


@pytest.mark.parametrize("make", [each for makers in EDITED.values() for each in makers])
def test_what_was_not_edited_stays_as_it_is_stored_and_what_was_typed_is_stored(
    stack: RunningStack, administrator: Administrator, make: Callable[[ManagementClient], Edited]
) -> None:
    edited = make(stack.management)
    expected = members(stack.management, edited)
    page = administrator.opens(f"{CONSOLE}/{edited.page}")
    assert administrator.sends(page).status_code == 303
    assert members(stack.management, edited) == expected
    for name, value in edited.typed.items():
        page = administrator.opens(f"{CONSOLE}/{edited.page}")
        answer = administrator.sends(page, **{name: value})
        assert answer.status_code == 303, errors(answer)
        expected[name] = received(value)
        assert members(stack.management, edited) == expected


class Created(NamedTuple):
    """A form that creates an object.

    Attributes:
        page: Path of the form.
        typed: What to type into it, by the members of the object.
        listed: Address of a list with the new object alone.
    """

    page: str
    typed: dict[str, str]
    listed: str


def new(area: str, **typed: str) -> Callable[[ManagementClient], Created]:
    def made(_: ManagementClient) -> Created:
        name = mark()
        listed = area.replace("template/roles", "organization-roles").replace(
            "template/permissions", "organization-scopes"
        )
        return Created(f"{area}/new", {"name": name, **typed}, f"{listed}?q={name}")

    return made


def new_scope(management: ManagementClient) -> Created:
    of = management.resources.create("Orders", f"https://{mark()}.example").id
    typed = {"name": "read:<orders>'&", "description": STORED}
    return Created(f"resources/{of}/scopes/new", typed, f"resources/{of}/scopes")


def new_secret(management: ManagementClient) -> Created:
    of = management.applications.create(name="Batch", type="MachineToMachine").id
    return Created(f"applications/{of}/secrets/new", {"name": SECRET_NAME}, f"applications/{of}/secrets")


def renamed_secret(management: ManagementClient) -> Created:
    of = management.applications.create(name="Batch", type="MachineToMachine").id
    management.applications.create_secret(of, "a &'\"")
    page = f"applications/{of}/secrets/rename?name=a%20%26%27%22"
    return Created(page, {"newName": SECRET_NAME}, f"applications/{of}/secrets")


CREATED: dict[str, list[Callable[[ManagementClient], Created]]] = {
    "/organizations/new": [new("organizations", description=STORED), new("organizations", description=long(1024))],
    "/users/new": [new("users", primaryEmail=f"ü{mark()}@bücher.example")],
    "/roles/new": [new("roles", description=STORED, type="MachineToMachine")],
    "/applications/new": [new("applications", description=STORED, type="SPA")],
    "/applications/{application_id:str}/secrets/new": [new_secret],
    "/applications/{application_id:str}/secrets/rename": [renamed_secret],
    "/resources/new": [new("resources", indicator=f"https://{mark()}.example/{'x' * 2000}")],
    "/resources/{resource_id:str}/scopes/new": [new_scope],
    "/template/{kind:str}/new": [
        new("template/roles", description=STORED, type="User"),
        new("template/permissions", description=STORED),
    ],
}


@pytest.mark.parametrize("make", [each for makers in CREATED.values() for each in makers])
def test_what_was_typed_is_created(
    stack: RunningStack, administrator: Administrator, make: Callable[[ManagementClient], Created]
) -> None:
    created = make(stack.management)
    page = administrator.opens(f"{CONSOLE}/{created.page}")
    answer = administrator.sends(page, **created.typed)
    assert answer.status_code == 303, errors(answer)
    (found,) = stack.management.request("GET", f"/api/{created.listed}")
    typed = {name.replace("newName", "name"): received(value) for name, value in created.typed.items()}
    assert {name: found[name] for name in typed} == typed


def test_a_context_is_kept_as_it_was_typed(stack: RunningStack, administrator: Administrator) -> None:
    user = stack.management.users.create(name="Ada").id
    page = administrator.opens(f"{CONSOLE}/impersonations/new")
    assert administrator.sends(page, userId=user, reason=STORED, ticketId=" T-1 ").status_code == 303
    asked = stack.management.impersonations.list(user_id=user)
    eventually(lambda: any(asked))
    assert [(each.context.reason, each.context.ticket_id) for each in asked] == [(received(STORED), " T-1 ")]


@pytest.mark.parametrize(
    ("make", "field"), [(web_application, "customData"), (claims, "tokenSample"), (None, "document")]
)
@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('{"a": 1, "a": 2}', "repeated member"),
        ('{"a": 123456789012345678901234567890}', "integers must fit into 64 bits"),
        ("{", "This is not a JSON object."),
        ("[]", "This is not a JSON object."),
    ],
)
def test_json_that_the_api_refuses_is_refused_and_stays(
    stack: RunningStack,
    administrator: Administrator,
    make: Callable[[ManagementClient], Edited] | None,
    field: str,
    text: str,
    error: str,
) -> None:
    page = administrator.opens(f"{CONSOLE}/{make(stack.management).page if make else 'template/file'}")
    refused = administrator.sends(page, **{field: text})
    assert (refused.status_code, errors(refused)) == (422, {field: error})
    assert administrator.form(refused)[1][field] == [text]


def test_the_name_that_ends_impersonations_is_compared_as_it_is_shown(
    stack: RunningStack, administrator: Administrator
) -> None:
    user = stack.management.users.create(name=" Ada  Lovelace ").id
    page = administrator.opens(f"{CONSOLE}/impersonations/end?userId={user}")
    target = f"{CONSOLE}/impersonations/end"
    assert administrator.sends(page, target, confirmation="Ada Love").status_code == 422
    assert administrator.sends(page, target, confirmation="Ada Lovelace").status_code == 303


WITHOUT_TEXTS = {
    "/sign-out",
    "/applications/{application_id:str}/delete",
    "/applications/{application_id:str}/roles",
    "/applications/{application_id:str}/secrets/delete",
    "/audit/chain",
    "/connectors/new",
    "/connectors/{connector_id:str}",
    "/connectors/{connector_id:str}/delete",
    "/connectors/{connector_id:str}/disable",
    "/connectors/{connector_id:str}/enable",
    "/connectors/{connector_id:str}/test",
    "/claims/{kind:str}/delete",
    "/claims/{kind:str}/recording",
    "/claims/{kind:str}/versions/{number:str}",
    "/impersonations/end",
    "/impersonations/policy",
    "/impersonations/{impersonation_id:str}/end",
    "/organizations/{organization_id:str}/delete",
    "/organizations/{organization_id:str}/invitations/new",
    "/organizations/{organization_id:str}/invitations/{invitation_id:str}",
    "/organizations/{organization_id:str}/joining",
    "/organizations/{organization_id:str}/joining/roles",
    "/organizations/{organization_id:str}/joining/groups/new",
    "/organizations/{organization_id:str}/joining/groups/{group_id:str}/remove",
    "/organizations/{organization_id:str}/{kind:str}/add",
    "/organizations/{organization_id:str}/{kind:str}/{member_id:str}",
    "/organizations/{organization_id:str}/{kind:str}/{member_id:str}/remove",
    "/resources/{resource_id:str}/default",
    "/resources/{resource_id:str}/delete",
    "/resources/{resource_id:str}/scopes/{scope_id:str}/delete",
    "/roles/{role_id:str}/delete",
    "/roles/{role_id:str}/holders",
    "/roles/{role_id:str}/scopes",
    "/template/changes",
    "/template/file",
    "/template/{kind:str}/{entry_id:str}/delete",
    "/settings/sign-in",
    "/users/{user_id:str}/consents/{application_id:str}",
    "/users/invite",
    "/users/{user_id:str}/delete",
    "/users/{user_id:str}/factors/enrolment-code",
    "/users/{user_id:str}/factors/reset",
    "/users/{user_id:str}/factors/{factor_id:str}/remove",
    "/users/{user_id:str}/identities/new",
    "/users/{user_id:str}/identities/{identity_id:str}/remove",
    "/users/{user_id:str}/invitation",
    "/users/{user_id:str}/password",
    "/users/{user_id:str}/roles",
    "/users/{user_id:str}/sessions/{session_id:str}",
    "/users/{user_id:str}/sign-in-attempts",
    "/users/{user_id:str}/verification-email",
    "/users/{user_id:str}/suspension",
}
"""Forms that store no text as it is typed: they confirm, choose among what is there, hold a name in each line, show
nothing of it again, or need a provider (``test_console_connectors``)."""


def test_every_form_is_tried() -> None:
    declared = {each.path.removeprefix(CONSOLE) for area in _AREAS for each in area.declared if each.is_form}
    assert declared == {*EDITED, *CREATED, "/impersonations/new", *WITHOUT_TEXTS}
