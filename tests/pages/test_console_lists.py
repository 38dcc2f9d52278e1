"""No list in the console ends without a word: where a page shows a part, it says of how many, or leads to the rest."""

from __future__ import annotations

import ast
import contextlib
import re
import time
from collections import Counter
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from console.routes import _AREAS
from stead import ManagementClient, NotFound
from tests.support.administrator import CONSOLE, Administrator
from tests.support.edited_objects import KIND, mark
from tests.support.mail_failures import give_up_mail
from tests.support.provider import Provider
from tests.support.running_stack import RunningStack
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
MANY = 26
"""More than a page shows."""

WITHOUT_LISTS = {
    "/audit/chain",
    "/audit/{entry_id:str}",
    "/audit/{entry_id:str}/proof",
    "/audit/suggestions",
    "/claims",
    "/impersonations/{impersonation_id:str}",
    "/shortcuts",
    "/template",
    "/template/export",
    "/template/file",
}


@pytest.fixture(scope="module")
def administrator(stack: RunningStack) -> Iterator[Administrator]:
    yield Administrator(stack, "all")
    with contextlib.suppress(NotFound):
        stack.management.custom_claims.delete(KIND)


def populated(stack: RunningStack) -> dict[str, str]:
    """Make sure that there is more than a page of everything; return the page of each kind that shows it."""
    management, name = stack.management, mark()
    numbers = range(MANY)
    users = [management.users.create(name=f"{name} {number}").id for number in numbers]
    machines = [management.applications.create(name=f"{name} {n}", type="MachineToMachine").id for n in numbers]
    organizations = [management.organizations.create(f"{name} {number}").id for number in numbers]
    resource = management.resources.create(name, f"https://{name}.example").id
    scopes = [management.resources.create_scope(resource, f"read:{number}").id for number in numbers]
    for number in numbers[1:]:
        management.resources.create(name, f"https://{name}-{number}.example")
    roles = [management.roles.create(f"{name} {number}", "", "User").id for number in numbers]
    for_machines = [management.roles.create(f"{name} m {n}", "", "MachineToMachine").id for n in numbers]
    management.roles.assign_scopes(roles[0], scopes)
    management.roles.assign_users(roles[0], users)
    management.roles.assign_applications(for_machines[0], machines)
    user, machine, organization = users[0], machines[0], organizations[0]
    management.users.assign_roles(user, roles[1:])
    management.applications.assign_roles(machine, for_machines[1:])
    in_template = [management.organization_roles.create(f"{name} {number}").id for number in numbers]
    management.organizations.add_jit_roles(organization, in_template)
    management.organizations.add_users(organization, users)
    management.organizations.add_applications(organization, machines)
    for each in organizations[1:]:
        management.organizations.add_users(each, [user])
        management.organizations.add_applications(each, [machine])
    management.organizations.assign_user_roles(organization, user, in_template)
    for each in users:
        management.users.invite(each)
    tomorrow = int((time.time() + 86_400) * 1000)
    for number in numbers:
        address = f"{name}-{number}@id.test"
        management.organization_invitations.create(organization, address, expires_at=tomorrow, send=False)
    for number in numbers:
        management.organization_permissions.create(f"read:{name}-{number}")
        management.applications.create_secret(machine, str(number))
        management.custom_claims.save(KIND, f"const getCustomJwtClaims = async () => ({{}}); // {number}")
        management.subject_tokens.create(user)
    connectors = create_connectors(management, [f"{name} {number}" for number in numbers])
    give_up_mail(stack, *(f"{name}-{number}@id.test" for number in numbers))
    asked = management.impersonations.list(user_id=user)
    eventually(lambda: len(list(asked)) == MANY)
    paths = {
        "": "",
        "/applications": "",
        "/applications/{application_id:str}": machine,
        "/applications/{application_id:str}/roles": machine,
        "/audit": "",
        "/claims/{kind:str}": KIND,
        "/claims/{kind:str}/versions/{number:str}": "",
        "/connectors": "",
        "/connectors/{connector_id:str}": connectors[0],
        "/impersonations": "",
        "/impersonations/policy": "",
        "/settings/sign-in": "",
        "/organizations": "",
        "/organizations/{organization_id:str}": organization,
        "/organizations/{organization_id:str}/invitations": organization,
        "/organizations/{organization_id:str}/joining": organization,
        "/organizations/{organization_id:str}/joining/roles": organization,
        "/organizations/{organization_id:str}/{kind:str}": organization,
        "/organizations/{organization_id:str}/{kind:str}/{member_id:str}": organization,
        "/resources": "",
        "/resources/{resource_id:str}": resource,
        "/roles": "",
        "/roles/{role_id:str}": roles[0],
        "/roles/{role_id:str}/holders": roles[0],
        "/roles/{role_id:str}/scopes": roles[0],
        "/search": "",
        "/settings/mail": "",
        "/template/{kind:str}": "",
        "/template/{kind:str}/{entry_id:str}": in_template[0],
        "/users": "",
        "/users/invitations": "",
        "/users/{user_id:str}": user,
        "/users/{user_id:str}/permissions": user,
        "/users/{user_id:str}/roles": user,
        "/users/{user_id:str}/sessions": user,
    }
    filled = {
        kind: kind.replace("{kind:str}/versions/{number:str}", f"{KIND}/versions/1")
        .replace("{kind:str}/{entry_id:str}", f"roles/{in_template[0]}")
        .replace("/template/{kind:str}", "/template/permissions")
        .replace("/claims/{kind:str}", f"/claims/{KIND}")
        .replace("{kind:str}", "users")
        .replace("{member_id:str}", user)
        for kind in paths
    }
    return {kind: re.sub(r"\{\w+:str\}", paths[kind], path) for kind, path in filled.items()} | {
        "/search": f"/search?q={name}"
    }


def create_connectors(management: ManagementClient, names: list[str]) -> list[str]:
    """Create connectors that are not used, each to a provider of its own; return their ids."""
    with contextlib.ExitStack() as providers:
        configs = [{"issuer": providers.enter_context(Provider()).issuer} for _ in names]
        create = management.connectors.create
        return [create(name, config, is_enabled=False).id for name, config in zip(names, configs, strict=True)]


def partial_lists(said: list[str]) -> Iterator[str | None]:
    """Yield the length, if given, of each list of which these answers have a part; one item stands for a count."""
    for headers in said:
        if re.search(r"page_size=(?!1>)\d+>; rel=\"next\"", headers):
            total = re.search(r"b'total-number': b'(\d+)'", headers, re.IGNORECASE)
            yield total[1] if total else None


@pytest.mark.heavy
def test_where_a_page_shows_a_part_it_says_so(stack: RunningStack, administrator: Administrator) -> None:
    pages = populated(stack)
    readable = (each for area in _AREAS for each in area.declared if each.scope == "read" and not each.is_form)
    assert {*pages, *WITHOUT_LISTS} == {each.path.removeprefix(CONSOLE) for each in readable}
    administrator.opens()
    silent = []
    for path in pages.values():
        before = len([*stack.recorder.said])
        page = administrator.opens(CONSOLE + path)
        assert page.status_code == 200, path
        text = " ".join(re.sub("<[^>]+>", " ", page.text).split())
        lists = Counter(partial_lists([*stack.recorder.said][before:]))
        for total, count in lists.items():
            if total is None:
                is_said = 'rel="next"' in page.text or "/console/audit?" in page.text or "More than" in text
            else:
                is_said = len(re.findall(rf"\b(?:of|All) {total}\b|\b{total} in all", text)) >= count
            if not is_said:
                silent.append((path, total))
    assert silent == []


@pytest.mark.parametrize(
    "path", ["users", "roles", "organizations", "applications?type=SPA", "template/roles?search=x"]
)
def test_a_page_beyond_the_end_of_a_list_leads_to_the_first(administrator: Administrator, path: str) -> None:
    administrator.opens()
    beyond = f"{CONSOLE}/{path}{'&' if '?' in path else '?'}page=77777"
    page = administrator.opens(beyond)
    assert page.status_code == 404
    assert "This list has no page 77777." in page.text
    (first,) = re.findall(r'<a class="button" href="([^"]+)">', page.text)
    assert unescape(first) == f"{CONSOLE}/{path}"


@pytest.mark.parametrize("path", ["users", "applications", "audit", "organizations"])
def test_the_api_alone_limits_what_is_searched_for(administrator: Administrator, path: str) -> None:
    """A browser cuts off what is pasted, and counts other units."""
    administrator.opens()
    assert "maxlength" not in administrator.opens(f"{CONSOLE}/{path}").text
    refused = administrator.opens(f"{CONSOLE}/{path}?{'operation' if path == 'audit' else 'search'}={'x' * 300}")
    assert refused.status_code in {400, 422}
    assert re.search(r"at most \d+|too long|length|characters", refused.text)


def test_every_list_of_the_console_names_its_page_size() -> None:
    """With the default of the SDK, 100, a list that ends too early is found by those alone who have more."""
    silent = []
    for module in (ROOT / "services/console/src/console/areas").glob("*.py"):
        nodes = [*ast.walk(ast.parse(module.read_text()))]
        assigned = {
            ast.unparse(target): node.value for node in nodes if isinstance(node, ast.Assign) for target in node.targets
        }
        for node in nodes:
            if (
                not isinstance(node, ast.Attribute)
                or node.attr != "page"
                or ast.unparse(node.value) in {"AREA", "request"}
            ):
                continue
            listed = assigned.get(ast.unparse(node.value), node.value)
            if not isinstance(listed, ast.Call) or "page_size" not in {each.arg for each in listed.keywords}:
                silent.append((module.name, ast.unparse(node)))
    assert silent == []


def test_examples_and_guides_iterate_over_lists() -> None:
    places = ("examples", "services/all-in-one/src", "docs/guides", "README.md")
    files = [file for place in places for file in [ROOT / place, *(ROOT / place).rglob("*")] if file.is_file()]
    texts = {file: file.read_text() for file in files if file.suffix in {".py", ".md", ".js", ".ts", ".html"}}
    assert [str(file) for file, text in texts.items() if re.search(r"\.page\(|[?&]page(_size)?=", text)] == []
