"""``python -m benchmarks.console``: pages of the console, their size and time, and searches, over many objects.

The pages are those that links lead to from the first one, some of each kind, the last page of each list, filters that
nearly all or few objects match, and the preview of a change of the matrix.
The services and the reader are one process, and one request is sent at a time.
"""

import argparse
import asyncio
import functools
import re
import sys
import tempfile
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from html import unescape
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import asyncpg
import httpx2 as httpx

from all_in_one.embedded import EmbeddedServers
from benchmarks.audit_logs import add_entries
from benchmarks.many_users import ManyUsers
from console.routes import _AREAS
from identity_common.clock import now_ms
from stead import ManagementClient
from stead.models import OrganizationTemplate, TemplatePermission, TemplateRole
from tests.support.administrator import CONSOLE, Administrator
from tests.support.recorder import AsgiApp, Recorder
from tests.support.running_stack import RunningStack

_KB: Final = 1000
_MOST_KB: Final = 100
_MOST_MS: Final = 300
_MOST_SEARCH_MS: Final = 100
_SEARCHES: Final = 50
_SEARCHED: Final = (
    *("bench0000077", "bench0000077@example.com", "customer", "example.com", "customer 4711", "user", "TCK-2075"),
    *("cannot see order 2075", "scope7", "role 0007", "a", "nothing that exists", "a b c d e f g h"),
)
"""Words of one object, of all objects of a kind, and of none."""
_OF_EACH: Final = 4
_DOWNLOADS: Final = ("/export", "/proof")
"""Ends of the addresses of files, of which one has the whole audit trail."""
_AT_ONCE: Final = 100
_WITH_ROLES: Final = 60
_ROLES: Final = 20
_INVITED: Final = 50

_ORGANIZATIONS: Final = """
    INSERT INTO organizations (tenant_id, id, name, custom_data, is_mfa_required, color, branding, created_at)
    SELECT 'default', 'bench' || lpad(number::text, 7, '0'), 'Customer ' || number, '{}', false, '{}', '{}', 0
    FROM generate_series(1, $1::bigint) AS number
"""
_BUSY: Final = "UPDATE users SET id = 'user1' WHERE id = 'bench0000001'"
"""Whom a quarter of the impersonations concern."""


class Size(NamedTuple):
    """The size of the data set, and the number of measurements of a page."""

    users: int
    organizations: int
    members: int
    roles: int
    permissions: int
    entries: int
    rounds: int


_USUAL: Final = Size(100_000, 10_000, 5_000, 1_000, 300, 1_000_000, 20)
_QUICK: Final = Size(5_000, 500, 300, 100, 50, 20_000, 5)


class _Unrecorded(Recorder):
    """Leaves out what tests do with each response, which would be measured."""

    def around(self, app: AsgiApp) -> AsgiApp:
        return app


class Page(NamedTuple):
    """The measurements of an address, or the worst ones of a kind of page."""

    kb: float
    p50_ms: float
    p95_ms: float


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.console", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less of everything")
    size = _QUICK if parser.parse_args().quick else _USUAL
    with ExitStack() as stop:
        directory = Path(stop.enter_context(tempfile.TemporaryDirectory(prefix="identity-bench-")))
        servers = EmbeddedServers(directory / "servers", sync=False)
        stop.callback(servers.stop)
        (directory / "stack").mkdir()
        stack = RunningStack(servers.start(), directory / "stack", _Unrecorded())
        stack.start()
        stop.callback(stack.stop)
        begun_at = time.monotonic()
        large = populate(stack, size)
        print(f"{size}\nmade in {time.monotonic() - begun_at:,.0f} s\n")
        print(f"{'page':62} {'kB':>7} {'p50 ms':>7} {'p95 ms':>7}")
        for kind, page in measured(Administrator(stack, "all"), large, size.rounds):
            missed = "  <-" if page.kb > _MOST_KB or page.p95_ms > _MOST_MS else ""
            print(f"{kind:62} {page.kb:7.0f} {page.p50_ms:7.0f} {page.p95_ms:7.0f}{missed}", flush=True)
        print(f"\n{'GET /api/search':62} {'groups':>7} {'p50 ms':>7} {'p95 ms':>7}")
        for text in _SEARCHED:
            groups, p50_ms, p95_ms = _search(stack.management, text)
            missed = "  <-" if p95_ms > _MOST_SEARCH_MS else ""
            print(f"{text:62} {groups:7} {p50_ms:7.0f} {p95_ms:7.0f}{missed}", flush=True)
    return 0


def populate(stack: RunningStack, size: Size) -> list[str]:
    """Create the data; return the addresses of its largest pages, relative to that of the console."""
    management = stack.management
    names = [f"permission:{number:04}" for number in range(size.permissions)]
    roles = [
        TemplateRole(name=f"Role {number:04}", permissions=[names[(number + step) % len(names)] for step in range(10)])
        for number in range(size.roles)
    ]
    document = OrganizationTemplate(permissions=[TemplatePermission(name=name) for name in names], roles=roles)
    management.organization_template.put(document)
    for number in range(20):
        resource = management.resources.create(f"API {number}", f"https://api{number}.example.com")
        for scope in range(10):
            management.resources.create_scope(resource.id, f"scope{scope}")
    api_roles = [
        management.roles.create(f"API role {number:03}", "for the benchmark", "User").id for number in range(100)
    ]
    for number in range(100):
        management.applications.create(name=f"Application {number:03}", type="SPA")
    organization = management.organizations.create("The largest").id
    members = [management.users.create(name=f"Member {number:04}").id for number in range(size.members)]
    for first in range(0, size.members, _AT_ONCE):
        management.organizations.add_users(organization, members[first : first + _AT_ONCE])
    held = [role.id for role, _ in zip(management.organization_roles.list(), range(5), strict=False)]
    for user in members[:_WITH_ROLES]:
        management.organizations.assign_user_roles(organization, user, held)
    management.users.assign_roles(members[0], api_roles[:_ROLES])
    for user in members[:_INVITED]:
        management.users.invite(user)
    for user in members[:100]:
        stack.exchange(stack.subject_token(user), scope=["openid"])
    asyncio.run(_insert(stack, size))
    of_the_largest = f"organizations/{organization}/users"
    return [
        *(f"{of_the_largest}/{members[0]}", f"{of_the_largest}/{members[0]}?search=Role", of_the_largest),
        *(f"{of_the_largest}?page=10", f"{of_the_largest}?search=member"),
        *("users?search=member", "users?page=100", "organizations?search=99", "organizations?page=15"),
        *(f"users/{members[0]}", "users/user1", f"users/{members[0]}/permissions", "users/invitations"),
        *("audit", "audit?person=userbench0000001", "audit?event=subject-token.issued", "audit?ticketId=TCK-2075"),
        *("audit?userId=user1&unfolded=1", "impersonations", "impersonations?person=userbench0000001"),
        *("impersonations?q=customer", "impersonations?state=all", "impersonations?ticketId=TCK-2075"),
        *("search?q=bench", "search?q=example.com"),
    ]


async def _insert(stack: RunningStack, size: Size) -> None:
    async with ManyUsers(stack.addresses.management_database_url) as users:
        await users.add(size.users)
    management = await asyncpg.connect(stack.addresses.management_database_url.replace("+asyncpg", ""))
    await management.execute(_BUSY)
    await management.close()
    template = await asyncpg.connect(stack.addresses.template_database_url.replace("+asyncpg", ""))
    await template.execute(_ORGANIZATIONS, size.organizations)
    await template.execute("VACUUM ANALYZE organizations")
    await template.close()
    await add_entries(stack.addresses.management_database_url, size.entries, ends_at=now_ms())


def measured(administrator: Administrator, large: list[str], rounds: int) -> Iterator[tuple[str, Page]]:
    """Open these pages and those that they link to; yield the measurements of each kind, sorted by kind."""
    declared = (each for area in _AREAS for each in area.declared)
    paths = {each.path for each in declared if not each.is_form and not each.path.endswith(_DOWNLOADS)}
    kinds = {
        path: re.compile(re.sub(r"\{\w+:str\}", "[^/]+", path)) for path in sorted(paths, key=lambda p: p.count("{"))
    }
    opened: Counter[str] = Counter()
    found: dict[str, list[Page]] = defaultdict(list)
    given = [*(f"{CONSOLE}/{each}" for each in large), CONSOLE]
    waiting = deque(given)
    seen = set(given)
    while waiting:
        address = waiting.popleft()
        path = urlsplit(address).path
        kind = next((kind for kind, pattern in kinds.items() if pattern.fullmatch(path)), None)
        if kind is None or (opened[kind] >= _OF_EACH and address not in given):
            continue
        opened[kind] += 1
        page = administrator.opens(address)
        if not page.is_success or not page.headers["Content-Type"].startswith("text/html"):
            continue
        found[kind].append(_page(functools.partial(administrator.opens, address), rounds))
        for link in map(unescape, re.findall(r'<a [^>]*href="([^"]+)"', page.text)):
            if link.startswith(CONSOLE) and link not in seen:
                seen.add(link)
                waiting.append(link)
    matrix = administrator.opens(f"{CONSOLE}/template")
    preview = functools.partial(administrator.sends, matrix, f"{CONSOLE}/template/changes", cell=[])
    assert preview().status_code == 200
    found[f"{CONSOLE}/template/changes (preview)"].append(_page(preview, rounds))
    for kind in sorted(found):
        yield kind, Page(*map(max, zip(*found[kind], strict=True)))


def _search(management: ManagementClient, text: str) -> tuple[int, float, float]:
    """Return the number of groups with results, and the median and the 95th percentile in milliseconds."""
    times = []
    groups = 0
    for _ in range(_SEARCHES):
        begun_at = time.perf_counter()
        groups = len(management.search(text).groups)
        times.append((time.perf_counter() - begun_at) * 1000)
    times.sort()
    return groups, times[len(times) // 2], times[int(len(times) * 0.95)]


def _page(asked: Callable[[], httpx.Response], rounds: int) -> Page:
    times = []
    length = 0
    for _ in range(rounds):
        begun_at = time.perf_counter()
        answer = asked()
        times.append((time.perf_counter() - begun_at) * 1000)
        length = len(answer.content)
    times.sort()
    return Page(length / _KB, times[len(times) // 2], times[int(len(times) * 0.95)])


if __name__ == "__main__":
    sys.exit(main())
