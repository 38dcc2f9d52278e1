"""The SDK's ``if_match`` against the running stack: no write replaces what its caller has not seen."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from stead import AsyncManagementClient, VersionMismatch
from tests.support.running_stack import RunningStack

WRITERS = 4
CHANGES = 5
ROUNDS = 20


def name() -> str:
    return f"name:{secrets.token_hex(6)}"


@pytest.mark.parametrize(
    ("group", "create"),
    [
        ("users", lambda users: users.create(name=name())),
        ("applications", lambda applications: applications.create(name=name(), type="MachineToMachine")),
        ("resources", lambda resources: resources.create("n", f"https://{secrets.token_hex(6)}.example.com")),
        ("organizations", lambda organizations: organizations.create(name())),
        ("organization_roles", lambda roles: roles.create(name())),
        ("organization_permissions", lambda permissions: permissions.create(name())),
    ],
)
def test_an_entity_is_written_only_as_it_was_read(
    stack: RunningStack, group: str, create: Callable[[Any], Any]
) -> None:
    operations: Any = getattr(stack.management, group)
    entity = operations.get(create(operations).id)
    changed, again = name(), name()
    operations.update(entity.id, name=changed, if_match=entity.etag)
    for write in (lambda: operations.update(entity.id, name=again, if_match=entity.etag),
                  lambda: operations.delete(entity.id, if_match=entity.etag)):  # fmt: skip
        with pytest.raises(VersionMismatch) as refused:
            write()
        assert refused.value.code == "entity.version_mismatch"
    current = operations.get(entity.id)
    assert current.name == changed
    operations.delete(entity.id, if_match=current.etag)


@pytest.mark.heavy
def test_a_relation_is_replaced_only_as_it_was_read(stack: RunningStack) -> None:
    management = stack.management
    user, organization = management.users.create().id, management.organizations.create(name()).id
    roles = [management.roles.create(name(), "").id for _ in range(2)]
    organization_roles = [management.organization_roles.create(name()).id for _ in range(2)]
    permissions = [management.organization_permissions.create(name()).id for _ in range(2)]
    resource = management.resources.create("n", f"https://{secrets.token_hex(6)}.example.com").id
    scopes = [management.resources.create_scope(resource, each).id for each in ("read", "write")]
    application = management.applications.create(name=name(), type="MachineToMachine").id
    machine_role = management.roles.create(name(), "", "MachineToMachine").id
    management.organizations.add_users(organization, [user])
    granting = organization_roles[0]
    users, applications = management.users, management.applications
    template, organizations = management.organization_roles, management.organizations
    relations: list[tuple[Any, Callable[..., None], list[str]]] = [
        (users.roles(user), partial(users.replace_roles, user), roles),
        (applications.roles(application), partial(applications.replace_roles, application), [machine_role]),
        (
            organizations.user_roles(organization, user),
            partial(organizations.replace_user_roles, organization, user),
            organization_roles,
        ),
        (template.permissions(granting), partial(template.replace_permissions, granting), permissions),
        (template.resource_scopes(granting), partial(template.replace_resource_scopes, granting), scopes),
        (
            organizations.applications(organization),
            partial(organizations.replace_applications, organization),
            [application],
        ),
        (organizations.users(organization), partial(organizations.replace_users, organization), []),
    ]
    for listed, replace, ids in relations:
        before = listed.page()
        replace(ids, if_match=before.etag)
        with pytest.raises(VersionMismatch):
            replace([], if_match=before.etag)
        assert {each.id for each in listed} == set(ids)


def test_the_template_is_replaced_only_as_it_was_read(stack: RunningStack) -> None:
    template = stack.management.organization_template
    document = template.get()
    template.put(document, if_match=document.etag)
    role = stack.management.organization_roles.create(name())
    for dry_run in (True, False):
        with pytest.raises(VersionMismatch):
            template.put(document, dry_run=dry_run, if_match=document.etag)
    assert stack.management.organization_roles.get(role.id) == role


@pytest.mark.heavy
def test_of_two_threads_with_the_same_version_one_writes(stack: RunningStack) -> None:
    users = stack.management.users
    user = users.create().id

    def writes(text: str, etag: str | None) -> str | None:
        try:
            return users.update(user, name=text, if_match=etag).name
        except VersionMismatch:
            return None

    with ThreadPoolExecutor(2) as threads:
        for number in range(ROUNDS):
            etag = users.get(user).etag
            names = [f"{number}-{writer}" for writer in range(2)]
            written = list(threads.map(writes, names, [etag, etag]))
            assert [each for each in written if each is not None] == [users.get(user).name]


@pytest.mark.heavy
async def test_what_is_read_changed_and_written_is_never_lost(stack: RunningStack) -> None:
    access = stack.credentials.management_api
    user = stack.management.users.create(custom_data={"count": 0}).id
    own = {"client_id": access.client_id, "client_secret": access.client_secret, "resource": access.resource}
    async with AsyncManagementClient(stack.base_url, **own) as client:

        async def count() -> None:
            for _ in range(CHANGES):
                while True:
                    seen = await client.users.get(user)
                    data = {"count": seen.custom_data["count"] + 1}
                    try:
                        await client.users.update(user, custom_data=data, if_match=seen.etag)
                    except VersionMismatch:
                        continue
                    break

        await asyncio.gather(*(count() for _ in range(WRITERS)))
        assert (await client.users.get(user)).custom_data == {"count": WRITERS * CHANGES}
