"""Each role at each page and form of the console: what the table of operations allows, and no page offers more."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Final

import pytest

from console.console import Declared
from console.rights import missing_scope
from console.routes import _AREAS
from identity_common.rights.roles import SEEDED_ROLES
from identity_common.rights.scopes import implied
from tests.support.administrator import CONSOLE, Administrator, heading
from tests.support.factors import stored_passkey_of
from tests.support.provider import Provider
from tests.support.running_stack import RunningStack
from tests.support.waiting import eventually

SCRIPT = "const getCustomJwtClaims = async () => ({});"
REFUSED: Final = "does not grant access to this part of the Management API"
SCRIPTED: Final = "client-credentials"
KINDS: Final[dict[str, tuple[str, ...]]] = {
    "organizations": ("users", "applications"),
    "template": ("roles", "permissions"),
    "claims": (SCRIPTED,),
}
QUERIES: Final = {
    "/audit/export": "?last=hour",
    "/applications/{application_id:str}/secrets/rename": "?name=first",
    "/applications/{application_id:str}/secrets/delete": "?name=first",
}
NOTHING_TO_UNDO: Final = f"{CONSOLE}/template/file/undo"
NOT_LINKED: Final = {
    CONSOLE,  # where each begins
    NOTHING_TO_UNDO,
    f"{CONSOLE}/audit/suggestions",  # asked by the script
    f"{CONSOLE}/users/{{user_id:str}}/consents/{{application_id:str}}",  # the consent to the console is implicit
    f"{CONSOLE}/template/changes",  # a refreshed form
    f"{CONSOLE}/users/{{user_id:str}}/factors/enrolment-code",  # of users without a factor
}
DECLARED: Final = sorted((each for area in _AREAS for each in area.declared), key=lambda each: each.path.count("{"))
PATTERNS: Final = [(each, re.compile(re.sub(r"\{\w+:str\}", "[^/]+", each.path))) for each in DECLARED]


def declared_at(path: str, *, is_form: bool) -> Declared:
    return next(each for each, pattern in PATTERNS if each.is_form is is_form and pattern.fullmatch(path))


class Offers(HTMLParser):
    """The links of a page, and the addresses of its forms that have a button."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.forms: set[str] = set()
        self._form: dict[str, str] = {}
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        if tag == "a" and named.get("href", "").startswith(CONSOLE):
            self.links.add(named["href"].partition("?")[0].partition("#")[0])
        elif tag == "form":
            self._form = named
            if named.get("role") == "search":
                self.links.add(named["action"])
        elif tag == "button" and named.get("type", "submit") == "submit" and "action" in self._form:
            found = self.forms if self._form.get("method") == "post" else self.links
            found.add(named.get("formaction", self._form["action"]).partition("?")[0])

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._form = {}


class Objects:
    """One object of every kind; nothing in them is changed."""

    def __init__(self, stack: RunningStack, person: Administrator, issuer: str) -> None:
        management, mark = stack.management, secrets.token_hex(4)
        machine = management.applications.create(name=f"Machine {mark}", type="MachineToMachine").id
        management.applications.create_secret(machine, "first")
        resource = management.resources.create(f"Shop {mark}", f"https://{mark}.example").id
        scope = management.resources.create_scope(resource, "read:orders").id
        role = management.roles.create(f"Clerk {mark}", "", "User", [scope]).id
        management.users.assign_roles(person.user_id, [role])
        permission = management.organization_permissions.create(f"read:{mark}").id
        organization_role = management.organization_roles.create(f"Editor {mark}", permission_ids=[permission]).id
        organization = management.organizations.create(f"Engines {mark}").id
        management.organizations.add_users(organization, [person.user_id])
        management.organizations.assign_user_roles(organization, person.user_id, [organization_role])
        management.organizations.add_applications(organization, [machine])
        invitation = management.organization_invitations.create(
            organization, f"{mark}@id.test", expires_at=int((time.time() + 3600) * 1000), send=False
        )
        connector = management.connectors.create(f"Okta {mark}", {"issuer": issuer}).id
        identity = management.users.add_identity(person.user_id, connector, mark).id
        group = management.organizations.add_jit_group(organization, connector, mark, [organization_role])
        management.custom_claims.save(SCRIPTED, SCRIPT)
        subject_token = management.subject_tokens.create(person.user_id)
        stack.exchange(subject_token.token, scope=["openid"])
        eventually(lambda: any(management.impersonations.list(user_id=person.user_id)))
        self.ids = {
            "user_id": person.user_id,
            "factor_id": asyncio.run(stored_passkey_of(stack, person.user_id)),
            "organization_id": organization,
            "invitation_id": invitation.id,
            "application_id": machine,
            "connector_id": connector,
            "identity_id": identity,
            "group_id": group,
            "resource_id": resource,
            "scope_id": scope,
            "role_id": role,
            "impersonation_id": subject_token.impersonation_id,
            "session_id": next(iter(management.users.sessions(person.user_id))).id,
            "number": str(management.custom_claims.get(SCRIPTED).version),
            "users.member_id": person.user_id,
            "applications.member_id": machine,
            "roles.entry_id": organization_role,
            "permissions.entry_id": permission,
            ".entry_id": next(iter(management.logs.list(target_id=person.user_id))).id,
        }
        self.console = stack.credentials.console.client_id

    def addresses(self, path: str) -> list[str]:
        """Return the addresses of a page, one for each kind of what it shows."""
        area = path.split("/")[2] if path != CONSOLE else ""
        kinds = KINDS[area] if "{kind:str}" in path else ("",)
        return [self._address(path, kind) for kind in kinds]

    def _address(self, path: str, kind: str) -> str:
        ids = {**self.ids, "kind": kind}
        if "/consents/" in path:
            ids["application_id"] = self.console

        def value(found: re.Match[str]) -> str:
            return ids.get(found[1]) or ids[f"{kind}.{found[1]}"]

        return re.sub(r"\{(\w+):str\}", value, path)


@pytest.fixture(scope="module")
def objects(stack: RunningStack) -> Iterator[Objects]:
    person = Administrator(stack, "all")
    person.opens()
    with Provider() as provider:
        objects = Objects(stack, person, provider.issuer)
    yield objects
    stack.management.custom_claims.delete(SCRIPTED)
    stack.management.connectors.delete(objects.ids["connector_id"])


@pytest.mark.heavy
@pytest.mark.parametrize(
    "scopes",
    [
        *(pytest.param(role.scopes, id=role.name) for role in SEEDED_ROLES),
        *(pytest.param((scope,), id=scope) for scope in ("users", "organizations", "config")),
    ],
)
def test_a_role_sees_and_changes_what_the_table_allows_and_is_offered_nothing_else(
    stack: RunningStack, objects: Objects, scopes: tuple[str, ...]
) -> None:
    person, granted = Administrator(stack, *scopes), implied(scopes)
    sign_out = person.form(person.opens(), f"{CONSOLE}/sign-out")[1]
    seen, offered = set(), set()
    for declared in DECLARED:
        for address in objects.addresses(declared.path):
            missing = missing_scope(granted, address, changes=declared.scope == "all")
            if missing is not None:
                page = person.browser.post(address, data=sign_out) if declared.is_form else person.opens(address)
                assert (page.status_code, heading(page)) == (403, "You may not do this"), address
                assert f"<code><bdi>{missing}</bdi></code>" in page.text, address
            elif not declared.is_form:
                page = person.opens(address + QUERIES.get(declared.path.removeprefix(CONSOLE), ""))
                assert page.status_code == (404 if declared.path == NOTHING_TO_UNDO else 200), address
                assert REFUSED not in page.text, address
                seen.add(declared.path)
                offers = Offers(page.text)
                for place, is_form in [*((e, False) for e in offers.links), *((e, True) for e in offers.forms)]:
                    leads_to = declared_at(place, is_form=is_form)
                    lacking = missing_scope(granted, place, changes=leads_to.scope == "all")
                    assert lacking is None, (address, place, lacking)
                    offered |= set() if is_form else {leads_to.path}
    assert seen - NOT_LINKED <= offered
