"""Documents of the organization template: parts of them, requests with them, and their effects on members."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import httpx2 as httpx

from tests.support.template_api import Template

PATH = "/api/organization-template"
EMPTY: dict[str, Any] = {"permissions": [], "roles": []}
NOTHING: dict[str, list[str]] = {"created": [], "updated": [], "deleted": []}
UNCHANGED = {"permissions": NOTHING, "roles": NOTHING, "members": []}
UNKNOWN = (422, "entity.relation_foreign_key_not_found")
WRONG_KIND = (422, "entity.db_constraint_violated")


def permission(name: str, description: str | None = None) -> dict[str, Any]:
    return {"name": name, "description": description}


def role(name: str, *permissions: str, **members: Any) -> dict[str, Any]:
    return {
        "name": name,
        "description": None,
        "type": "User",
        "permissions": list(permissions),
        "scopes": [],
        **members,
    }


def document(names: Iterable[str], *roles: dict[str, Any]) -> dict[str, Any]:
    return {"permissions": [permission(name) for name in names], "roles": list(roles)}


def scopes(resource: Any, *names: str) -> list[dict[str, str]]:
    return [{"resource": resource["indicator"], "name": name} for name in names]


async def send(template: Template, wanted: dict[str, Any], *, dry_run: bool = False) -> httpx.Response:
    return await template.client.put(PATH, json=wanted, params={"dry-run": "true"} if dry_run else {})


async def put(template: Template, wanted: dict[str, Any], *, dry_run: bool = False) -> Any:
    answer = await send(template, wanted, dry_run=dry_run)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def shown(template: Template) -> Any:
    answer = await template.client.get(PATH)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def ids(template: Template, path: str) -> dict[str, str]:
    return {each["name"]: each["id"] for each in (await template.client.get(path, params={"page_size": 100})).json()}


async def role_ids(template: Template) -> dict[str, str]:
    return await ids(template, "/api/organization-roles")


async def permission_ids(template: Template) -> dict[str, str]:
    return await ids(template, "/api/organization-scopes")


class Permission(NamedTuple):
    """A permission that a member holds."""

    name: str
    resource: str | None


Held = dict[tuple[str, str], set[Permission]]


async def held(template: Template) -> Held:
    """Wait for the fan-out; return the permissions last published for each member."""
    async with asyncio.timeout(300):
        query = "SELECT count(*) FROM fan_outs WHERE tenant_id = $1"
        while await template.database.fetchval(query, template.tenant_id):  # noqa: ASYNC110 - seen from outside
            await asyncio.sleep(0.02)
    rows = await template.database.fetch(
        "SELECT organization_id, member_id, permissions FROM published_permissions WHERE tenant_id = $1",
        template.tenant_id,
    )
    return {
        (organization, member): {Permission(each["name"], each.get("resource")) for each in json.loads(permissions)}
        for organization, member, permissions in rows
    }


def effects(before: Held, after: Held) -> list[dict[str, Any]]:
    """Return the effects on members that a report must list between these two states."""
    gaining: Counter[tuple[Permission, str]] = Counter()
    losing: Counter[tuple[Permission, str]] = Counter()
    for key in before.keys() | after.keys():
        old, new = before.get(key, set()), after.get(key, set())
        gaining.update((each, key[0]) for each in new - old)
        losing.update((each, key[0]) for each in old - new)
    return [
        {
            "name": each.name,
            **({} if each.resource is None else {"resource": each.resource}),
            "gaining": reach(each, gaining),
            "losing": reach(each, losing),
        }
        for each in sorted({each for each, _ in gaining | losing}, key=lambda each: (each.name, each.resource or ""))
    ]


def affected(before: Held, after: Held) -> dict[tuple[str, str], tuple[set[Permission], set[Permission]]]:
    """Return what each affected member gains and loses between these two states."""
    found = {}
    for key in before.keys() | after.keys():
        old, new = before.get(key, set()), after.get(key, set())
        if old != new:
            found[key] = (new - old, old - new)
    return found


def reach(of: Permission, counted: Counter[tuple[Permission, str]]) -> dict[str, int]:
    members = [count for (each, _), count in counted.items() if each == of]
    return {"members": sum(members), "organizations": len(members)}


def random_document(dice: random.Random, resource: Any) -> dict[str, Any]:
    """Return a random subset of eight permissions and of seven roles; the last two roles are for machines."""
    names = dice.sample([f"p{number}" for number in range(8)], dice.randint(3, 8))
    known = [scope["name"] for scope in resource["scopes"]]
    return {
        "permissions": [permission(name, dice.choice([None, "d", "e"])) for name in names],
        "roles": [
            role(
                f"r{number}",
                *dice.sample(names, dice.randint(0, 3)),
                scopes=scopes(resource, *dice.sample(known, dice.randint(0, 2))),
                type="MachineToMachine" if number > 4 else "User",
                description=dice.choice([None, "d"]),
            )
            for number in dice.sample(range(7), dice.randint(3, 7))
        ],
    }
