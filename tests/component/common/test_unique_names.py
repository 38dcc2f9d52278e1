"""Of many concurrent creations with one canonical name, exactly one wins; the others are refused."""

import asyncio

import httpx2 as httpx
import pytest

from tests.support.management_api import Management, unique
from tests.support.template_api import Template


async def path_of(management: Management, kind: str) -> str:
    """Return where objects of a kind are created."""
    if kind == "scopes":
        resource = await management.created("resources", name="r", indicator=f"https://{unique('r')}.example.com")
        return f"/api/resources/{resource['id']}/scopes"
    if kind == "secrets":
        application = await management.created("applications", name="a", type="MachineToMachine")
        return f"/api/applications/{application['id']}/secrets"
    return f"/api/{kind}"


@pytest.mark.parametrize(
    ("kind", "body", "other"),
    [
        ("users", {"username": "Zoë{}"}, {"username": "ZOE\u0308{}"}),
        ("users", {"primaryEmail": "{}@example.com"}, {"primaryEmail": "{}@EXAMPLE.com"}),
        ("resources", {"name": "r", "indicator": "https://{}.example.com"}, {}),
        ("scopes", {"name": "read:{}", "description": ""}, {}),
        ("roles", {"name": "Zoë {}", "description": ""}, {"name": " Zoe\u0308  {}"}),
        ("secrets", {"name": "Zoë {}"}, {"name": " Zoe\u0308  {}"}),
        ("organization-roles", {"name": "Zoë {}", "description": ""}, {"name": " Zoe\u0308  {}"}),
        ("organization-scopes", {"name": "read:{}", "description": ""}, {}),
    ],
)
async def test_exactly_one_of_many_concurrent_creations_with_one_name_wins(
    management: Management, template: Template, kind: str, body: dict[str, str], other: dict[str, str]
) -> None:
    marker = unique("n")
    bodies = [{name: text.format(marker) for name, text in each.items()} for each in (body, body | other)]
    client: httpx.AsyncClient = template.client if kind.startswith("organization") else management.client
    path = await path_of(management, kind)
    answers = await asyncio.gather(*(client.post(path, json=bodies[number % 2]) for number in range(12)))
    won = [answer for answer in answers if answer.status_code in {200, 201}]
    assert sorted(answer.status_code for answer in answers if answer not in won) == [422] * 11
    assert len(won) == 1
