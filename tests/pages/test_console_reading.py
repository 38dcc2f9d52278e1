"""An administrator who may only read reaches every page that there is to read, by links alone."""

from __future__ import annotations

import re
import secrets
from collections import Counter, deque
from html import unescape
from urllib.parse import urlsplit

import pytest

from console.routes import _AREAS
from stead import ManagementClient
from stead.errors import ApiError
from tests.support.administrator import CONSOLE, Administrator
from tests.support.provider import Provider
from tests.support.running_stack import RunningStack
from tests.support.waiting import eventually

SCRIPT = "const getCustomJwtClaims = async () => ({});"
ENOUGH = 6
"""Pages of one kind that are opened: not every organization leads to a member."""

BY_A_FORM = {"/console/search"}
BY_THE_SCRIPT = {"/console/audit/suggestions"}


def kinds() -> dict[str, re.Pattern[str]]:
    """Return the paths that the scope ``read`` opens, each with what matches it; those without parameters first."""
    paths = {each.path for area in _AREAS for each in area.declared if not each.is_form and each.scope == "read"}
    return {
        path: re.compile(re.sub(r"\{\w+:str\}", "[^/]+", path)) for path in sorted(paths, key=lambda p: p.count("{"))
    }


def populate(stack: RunningStack, administrator: Administrator) -> None:
    """Make sure that there is something of every kind."""
    management, mark = stack.management, secrets.token_hex(4)
    permission = management.organization_permissions.create(f"read:{mark}")
    role = management.organization_roles.create(f"editor {mark}", permission_ids=[permission.id])
    organization = management.organizations.create(f"! {mark}")  # the first by name: some of them are opened
    management.organizations.add_users(organization.id, [administrator.user_id])
    management.organizations.assign_user_roles(organization.id, administrator.user_id, role_ids=[role.id])
    management.custom_claims.save("client-credentials", SCRIPT)
    subject_token = management.subject_tokens.create(administrator.user_id)
    stack.exchange(subject_token.token, scope=["openid"])
    eventually(lambda: any(management.impersonations.list(user_id=administrator.user_id)))
    administrator.opens()
    signed_in = management.logs.list(user_id=administrator.user_id, key="token.sign-in.succeeded")
    eventually(lambda: any(is_proved(management, entry.id) for entry in signed_in))


def is_proved(management: ManagementClient, entry_id: str) -> bool:
    """Return whether a signed head covers an entry: its page leads to the proof then."""
    try:
        management.logs.proof(entry_id)
    except ApiError as error:
        assert error.code == "log.not_in_tree"
        return False
    return True


@pytest.mark.heavy
def test_links_lead_to_every_page_that_may_be_read(stack: RunningStack) -> None:
    reader = Administrator(stack, "read")
    populate(stack, reader)
    with Provider() as provider:
        config = {"issuer": provider.issuer}
        connector = stack.management.connectors.create(f"! {secrets.token_hex(4)}", config, is_enabled=False)
    patterns = kinds()
    opened: Counter[str] = Counter()
    seen, waiting = {CONSOLE}, deque([CONSOLE])
    while waiting:
        address = waiting.popleft()
        path = urlsplit(address).path
        kind = next((kind for kind, pattern in patterns.items() if pattern.fullmatch(path)), None)
        if kind is None or opened[kind] >= ENOUGH:
            continue
        opened[kind] += 1
        page = reader.opens(address)
        assert page.status_code == 200, address
        if not page.headers["Content-Type"].startswith("text/html"):
            continue
        for link in map(unescape, re.findall(r'<a [^>]*href="([^"]+)"', page.text)):
            if link.startswith(CONSOLE) and link not in seen:
                seen.add(link)
                waiting.append(link)
    stack.management.custom_claims.delete("client-credentials")
    stack.management.connectors.delete(connector.id)
    assert patterns.keys() - opened.keys() == BY_A_FORM | BY_THE_SCRIPT
