"""A name that turns text around stands isolated on every page that shows it."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from urllib.parse import urlsplit

import pytest

from tests.support.administrator import ACCOUNT, CONSOLE, Administrator
from tests.support.at_a_browser import Person, application, callback
from tests.support.running_stack import RunningStack
from tests.support.waiting import eventually
from tests.support.world import World

pytestmark = pytest.mark.heavy

TURNED = "\u05e2"  # a letter of a script that is written from right to left
ISOLATED = re.compile(f"\u2068[^\u2068\u2069]*{TURNED}[^\u2068\u2069]*\u2069")
ALONE = {"option", "textarea", "pre"}
"""Elements whose whole text is the name: boxes of their own."""
VOID = {"meta", "link", "input", "br", "img", "path", "circle", "line", "rect", "use"}


class Names(HTMLParser):
    """Where a page shows names that turn text around without isolating them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.shown = 0
        self.found: list[str] = []
        self._open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self._open.append(tag)
        named = dict(attrs)
        for name in ("aria-label", "title", "alt", "placeholder", "data-text"):
            self._judge(named.get(name) or "", f"{tag}[{name}]")

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if not {"bdi", *ALONE}.intersection(self._open):
            self._judge(data, ">".join(self._open[-3:]))
        self.shown += TURNED in data

    def _judge(self, text: str, where: str) -> None:
        if TURNED in ISOLATED.sub("", text):
            self.found.append(f"{where}: {text.strip()[:80]!r}")


def name_of(what: str) -> str:
    return f"{TURNED}{what} {secrets.token_hex(3)}"


@pytest.fixture(scope="module")
def administrator(stack: RunningStack) -> Administrator:
    return Administrator(stack, "all", name=name_of("administrator"))


@pytest.fixture(scope="module")
def ids(stack: RunningStack) -> Iterator[list[str]]:
    """Entities of every kind with such names, related to each other, by the addresses of their pages."""
    api = stack.management
    user = api.users.create(name=name_of("user"), username=f"u_{secrets.token_hex(5)}")
    organization = api.organizations.create(name_of("organization"), name_of("d"))
    permission = api.organization_permissions.create(f"p:{secrets.token_hex(4)}", name_of("d"))
    member_role = api.organization_roles.create(name_of("member role"), name_of("d"))
    api.organization_roles.assign_permissions(member_role.id, [permission.id])
    api.organizations.add_users(organization.id, [user.id])
    api.organizations.assign_user_roles(organization.id, user.id, [member_role.id])
    api.organization_invitations.create(
        organization.id,
        f"{secrets.token_hex(4)}@id.test",
        expires_at=int((time.time() + 3600) * 1000),
        role_ids=[member_role.id],
    )
    resource = api.resources.create(name_of("resource"), f"https://{secrets.token_hex(4)}.example.com")
    scope = api.resources.create_scope(resource.id, "read", name_of("d"))
    role = api.roles.create(name_of("role"), name_of("d"), "User", [scope.id])
    api.users.assign_roles(user.id, [role.id])
    machine = api.applications.create(name=name_of("machine"), type="MachineToMachine")
    yield [
        f"users/{user.id}",
        f"organizations/{organization.id}",
        f"organizations/{organization.id}/users",
        f"organizations/{organization.id}/users/{user.id}",
        f"roles/{role.id}",
        f"resources/{resource.id}",
        f"applications/{machine.id}",
        f"template/roles/{member_role.id}",
        f"template/permissions/{permission.id}",
    ]
    for operations, each in (
        (api.users, user),
        (api.organizations, organization),
        (api.organization_roles, member_role),
        (api.organization_permissions, permission),
        (api.roles, role),
        (api.resources, resource),
        (api.applications, machine),
    ):
        operations.delete(each.id)


def crawled(person: Administrator, waiting: list[str], below: Iterable[str]) -> dict[str, Names]:
    """Return what is shown on pages, and on all below these paths that they link to."""
    seen: dict[str, Names] = {}
    while waiting:
        path = waiting.pop()
        page = person.opens(path)
        is_a_file = "attachment" in page.headers.get("Content-Disposition", "")
        seen[path] = Names("" if is_a_file else page.text)
        links = {link.replace("&amp;", "&") for link in re.findall(r'<a[^>]* href="(/[^"#]+)"', page.text)}
        found = {link for link in links if any(urlsplit(link).path.startswith(each) for each in below)}
        waiting += found - seen.keys() - set(waiting)
    return seen


def test_in_the_console(administrator: Administrator, ids: list[str]) -> None:
    areas = ("users", "organizations", "roles", "applications", "resources", "template", "template/roles", "audit")
    waiting = [CONSOLE, *(f"{CONSOLE}/{area}" for area in areas), *(f"{CONSOLE}/{each}" for each in ids)]
    seen = crawled(administrator, waiting, [f"{CONSOLE}/{each}" for each in ids])
    assert {path: names.found for path, names in seen.items() if names.found} == {}
    assert len(seen) >= 35
    assert sum(names.shown for names in seen.values()) > len(seen)


def test_on_the_account_page(world: World) -> None:
    management, partner = world.management, application(world, "SPA", third_party=True)
    management.applications.update(partner.id, name=name_of("partner"))
    consenting = Person(world)
    consent = consenting.follow(consenting.sign_in(consenting.follow(consenting.authorize(partner))))
    assert "code" in callback(consenting.send(consent, decision="allow"))
    management.users.update(consenting.user_id, name=name_of("person"))
    context = {"reason": name_of("reason"), "ticketId": name_of("ticket")}
    world.stack.exchange(management.subject_tokens.create(consenting.user_id, context).token, scope=["openid"])
    listed = management.impersonations.list(user_id=consenting.user_id)
    eventually(lambda: any(each.context.reason and each.exchanged_at for each in listed))
    person = Administrator(world.stack)
    person.username = consenting.username
    seen = crawled(person, [ACCOUNT], [ACCOUNT])
    assert {path: names.found for path, names in seen.items() if names.found} == {}
    assert {f"{ACCOUNT}/{each}" for each in ("email", "password", f"applications/{partner.id}")} <= seen.keys()
    assert min(names.shown for names in seen.values()) >= 1
    assert min(seen[path].shown for path in (ACCOUNT, f"{ACCOUNT}/impersonations", f"{ACCOUNT}/applications")) >= 2


def test_in_notices(administrator: Administrator) -> None:
    name = name_of("another")
    created = administrator.sends(administrator.opens(f"{CONSOLE}/users/new"), name=name)
    page = administrator.follows(created)
    assert Names(page.text).found == []
    assert f"Created <strong><bdi>{name}</bdi></strong>." in page.text
    assert f"<title>\u2068{name}\u2069 · " in page.text


def test_while_signing_in_and_consenting_and_signing_out(world: World) -> None:
    partner = application(world, "SPA", third_party=True)
    world.management.applications.update(partner.id, name=name_of("partner"))
    person = Person(world)
    world.management.users.update(person.user_id, name=name_of("person"))
    sign_in = person.follow(person.authorize(partner))
    consent = person.follow(person.sign_in(sign_in))
    account = person.follow(person.authorize(partner, prompt="select_account"))
    sign_out = person.browser.get("/oidc/session/end", params={"client_id": partner.id})
    for page in (sign_in, account, consent, sign_out):
        assert (page.status_code, Names(page.text).found) == (200, [])
        assert Names(page.text).shown
    assert callback(person.send(consent, decision="deny"))["error"] == "access_denied"
