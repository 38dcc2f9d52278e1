"""Identities of users, and who joins an organization by signing in, in the console without scripts."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from stead import ManagementClient
from tests.support.administrator import CONSOLE, Administrator, errors, notices
from tests.support.at_a_browser import application
from tests.support.company import Company
from tests.support.provider import Provider
from tests.support.running_stack import RunningStack
from tests.support.waiting import eventually
from tests.support.world import World

HOLDS = ["Saved. It holds from the next sign-in of each person."]


@pytest.fixture(scope="module")
def administrator(stack: RunningStack) -> Administrator:
    return Administrator(stack, "all", name="Grace Hopper")


@pytest.fixture(scope="module")
def connector(stack: RunningStack) -> Iterator[str]:
    with Provider() as provider:
        made = stack.management.connectors.create(f"Okta {secrets.token_hex(4)}", {"issuer": provider.issuer}).id
    yield made
    stack.management.connectors.delete(made)


def made_role(management: ManagementClient) -> str:
    return management.organization_roles.create(f"Editor {secrets.token_hex(4)}").id


def test_an_identity_is_added_shown_and_removed(
    stack: RunningStack, administrator: Administrator, connector: str
) -> None:
    users, value = stack.management.users, secrets.token_hex(4)
    ada, alan = users.create(name="Ada").id, users.create(name="Alan").id
    page = administrator.opens(f"{CONSOLE}/users/{ada}/identities/new")
    assert list(errors(administrator.sends(page, value=""))) == ["value"]
    shown = administrator.follows(administrator.sends(page, connectorId=connector, value=f" {value} "))
    assert notices(shown) == ["Added the identity."]
    assert f"<code><bdi>{value}</bdi></code>" in shown.text
    assert "active, signs in at a provider" in shown.text
    (identity,) = users.identities(ada)
    assert (identity.connector_id, identity.value) == (connector, value)
    page = administrator.opens(f"{CONSOLE}/users/{alan}/identities/new")
    refused = administrator.sends(page, connectorId=connector, value=value)
    assert errors(refused) == {"value": "A user has this identity already."}
    page = administrator.opens(f"{CONSOLE}/users/{ada}/identities/{identity.id}/remove")
    assert notices(administrator.follows(administrator.sends(page))) == ["Removed the identity."]
    assert list(users.identities(ada)) == []


def test_a_password_is_allowed_beside_a_provider(stack: RunningStack, administrator: Administrator) -> None:
    user = stack.management.users.create(name="Ada").id
    page = administrator.opens(f"{CONSOLE}/users/{user}/edit")
    shown = administrator.follows(administrator.sends(page, allowsPassword="yes"))
    assert "allowed, although a connector signs the user in" in shown.text
    assert stack.management.users.get(user).allows_password


def test_domains_and_connectors_of_joining_are_changed_together(
    stack: RunningStack, administrator: Administrator, connector: str
) -> None:
    api = stack.management.organizations
    organization = api.create("Acme").id
    page = administrator.opens(f"{CONSOLE}/organizations/{organization}/joining")
    refused = administrator.sends(page, emailDomains="example.com\na b")
    assert list(errors(refused)) == ["emailDomains"]
    typed: dict[str, str | list[str]] = {"emailDomains": "Example.com", "connector": [connector]}
    assert notices(administrator.follows(administrator.sends(page, **typed))) == HOLDS
    assert [each.email_domain for each in api.jit_email_domains(organization)] == ["example.com"]
    assert [each.id for each in api.jit_connectors(organization)] == [connector]
    overtaken = administrator.sends(page, emailDomains="example.org")
    assert overtaken.status_code == 412
    assert [each.email_domain for each in api.jit_email_domains(organization)] == ["example.com"]


@pytest.mark.heavy
def test_roles_are_found_beyond_those_that_a_page_shows(
    stack: RunningStack, administrator: Administrator, connector: str
) -> None:
    api, mark = stack.management.organizations, f"Zz{secrets.token_hex(4)}"
    made = [stack.management.organization_roles.create(f"{mark} {number:02}").id for number in range(30)]
    organization = api.create("Acme").id
    api.add_jit_roles(organization, made[:26])
    here = f"{CONSOLE}/organizations/{organization}/joining"
    assert "25 of 26" in administrator.opens(here).text
    page = administrator.sends(administrator.opens(f"{here}/roles"), step="search", search=mark)
    held = administrator.form(page)[1]["held"]
    assert (held, f"<bdi>{mark} 26</bdi>" in page.text) == (made[:25], True)
    page = administrator.sends(page, step="search", search=f"{mark} 29", held=[*held[1:], made[26]])
    assert "1 change on another page of the lists is kept" in page.text
    saved = administrator.sends(page, step="save", held=[*administrator.form(page)[1]["held"], made[29]])
    assert notices(administrator.follows(saved)) == HOLDS
    assert {each.id for each in api.jit_roles(organization)} == {*made[1:27], made[29]}

    typed: dict[str, str | list[str]] = {"ssoConnectorId": connector, "group": "support"}
    found = administrator.sends(administrator.opens(f"{here}/groups/new"), step="search", search=f"{mark} 29", **typed)
    found = administrator.sends(found, step="search", search=f"{mark} 28", organizationRoleIds=[made[29]])
    chosen = [*administrator.form(found)[1]["organizationRoleIds"], made[28]]
    assert notices(administrator.follows(administrator.sends(found, organizationRoleIds=chosen))) == HOLDS
    (group,) = api.jit_groups(organization)
    assert (group.group, {each.id for each in group.organization_roles}) == ("support", {made[28], made[29]})


def test_a_group_gives_roles_until_it_is_removed(
    stack: RunningStack, administrator: Administrator, connector: str
) -> None:
    api = stack.management.organizations
    organization, role = api.create("Acme").id, made_role(stack.management)
    here = f"{CONSOLE}/organizations/{organization}/joining"
    page = administrator.opens(f"{here}/groups/new")
    assert errors(administrator.sends(page, group="support")) == {"organizationRoleIds": "Choose a role."}
    typed: dict[str, str | list[str]] = {"group": "support", "organizationRoleIds": [role]}
    typed["ssoConnectorId"] = connector
    assert notices(administrator.follows(administrator.sends(page, **typed))) == HOLDS
    assert list(errors(administrator.sends(page, **typed))) == ["group"]
    (group,) = api.jit_groups(organization)
    assert (group.group, [each.id for each in group.organization_roles]) == ("support", [role])
    page = administrator.opens(f"{here}/groups/{group.id}/remove")
    assert notices(administrator.follows(administrator.sends(page))) == HOLDS
    assert list(api.jit_groups(organization)) == []


@pytest.mark.heavy
def test_pages_say_where_roles_come_from(world: World, administrator: Administrator) -> None:
    api, client = world.stack.management.organizations, application(world, "SPA")
    organization, by_group, by_joining = api.create("Acme").id, *(made_role(world.stack.management) for _ in "12")
    with Company(world, client, groupsClaim="groups") as company:
        api.add_jit_group(organization, company.connector, "support", [by_group])
        api.add_jit_roles(organization, [by_joining])
        employee = company.hire(groups=["support"])
        employee.arrive(employee.begin(client))
        eventually(lambda: bool(list(api.users(organization))))  # on a slow machine, after the answer
        (member,) = api.users(organization)
        name = world.stack.management.connectors.get(company.connector).connector_name
        here = f"{CONSOLE}/organizations/{organization}"
        for path in (here, f"{here}/users", f"{here}/users/{member.id}", f"{CONSOLE}/users/{member.id}"):
            page = administrator.opens(path).text
            assert f"by a group of <bdi>{name}</bdi></span>" in page, path
            assert "by joining</span>" in page, path
