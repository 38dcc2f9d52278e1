"""Anyone can send requests with the id of a public client. They are counted, and do not fill the audit trail."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterator

import httpx2 as httpx
import pytest

from identity_common.oauth import GRANT_TOKEN_EXCHANGE, TOKEN_TYPE_ACCESS_TOKEN
from identity_common.stores.audit_streams import AuditStreamKeys
from provision import ServerAddresses
from stead.models import AuditEntry
from tests.support.at_a_browser import application
from tests.support.authorizing import REDIRECT_URI
from tests.support.browser import ORGANIZATIONS
from tests.support.signing_in import SignIn
from tests.support.waiting import eventually
from tests.support.world import Client, World, own_world
from token_service.audit.token_requests import LOG

pytestmark = pytest.mark.heavy

BACKLOG = 200
AUTHENTICATED = 20


@pytest.fixture(scope="module")
def world(servers: ServerAddresses, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A world behind a proxy, so that requests have addresses, whose log has place for few entries."""
    directory = tmp_path_factory.mktemp("junk")
    with own_world(servers, directory, "junk", trusted_proxies=1, audit_backlog=BACKLOG) as world:
        yield world


@pytest.fixture
def spa(world: World) -> Client:
    return application(world, "SPA")


def code_form(client: Client) -> dict[str, str]:
    return {
        "grant_type": "authorization_code",
        "client_id": client.id,
        "code": f"cod_{secrets.token_hex(16)}",
        "redirect_uri": REDIRECT_URI,
        "code_verifier": "v" * 43,
    }


def refresh_form(client: Client) -> dict[str, str]:
    return {
        "grant_type": "refresh_token",
        "client_id": client.id,
        "refresh_token": f"ref_{secrets.token_hex(16)}",
    }


def exchange_form(client: Client) -> dict[str, str]:
    return {
        "grant_type": GRANT_TOKEN_EXCHANGE,
        "client_id": client.id,
        "subject_token": f"sub_{secrets.token_hex(16)}",
        "subject_token_type": TOKEN_TYPE_ACCESS_TOKEN,
        "scope": "openid",
    }


def send(world: World, form: dict[str, str], address: str) -> httpx.Response:
    return world.stack.http.post("/oidc/token", data=form, headers={"X-Forwarded-For": address})


def end_windows(world: World, *, counted: int) -> None:
    """Let the open windows end, once so many refusals are counted in them: entries are appended after the response."""
    stream = AuditStreamKeys.of(LOG, world.stack.tenant_id).stream
    windows = f"{stream}:windows"

    def are_counted() -> bool:
        fields = world.redis.hmget(f"{stream}:counted", ["", *world.redis.zrange(windows, 0, -1)])
        return sum(int(each) for each in fields if each) >= counted

    eventually(are_counted)
    for window in world.redis.zrange(windows, 0, -1):
        world.redis.zadd(windows, {window: 0}, xx=True)
    eventually(lambda: world.redis.zcard(windows) == 0)


def entries(world: World, client: Client, *, requests: int) -> list[AuditEntry]:
    """Return the entries of the client's token requests, oldest first, once they stand for as many requests."""
    found: list[AuditEntry] = []

    def are_there() -> bool:
        found[:] = [each for each in world.management.logs.list(application_id=client.id) if each.log == LOG][::-1]
        return sum(each.count for each in found) >= requests

    eventually(are_there)
    return found


@pytest.mark.parametrize(
    ("form", "junk", "key", "reason"),
    [
        (code_form, 1000, "token.authorization-code.refused", "invalid_grant"),
        (refresh_form, 200, "token.refresh-token.refused", "invalid_grant"),
        (exchange_form, 200, "token.exchange.refused", "subject_token.unknown_or_spent"),
    ],
)
def test_junk_leaves_two_entries_with_its_number_and_drops_no_other_entry(
    world: World, form: Callable[[Client], dict[str, str]], junk: int, key: str, reason: str
) -> None:
    client, address = world.client("SPA"), f"192.0.2.{secrets.randbelow(256)}"
    authenticated = world.client("Traditional")
    for number in range(junk):
        assert send(world, form(client), address).status_code == 400
        if number % (junk // AUTHENTICATED) == 0:
            assert world.exchange("sub_junk", client=authenticated).status_code == 400
    assert len(entries(world, authenticated, requests=AUTHENTICATED)) == AUTHENTICATED
    assert [each.count for each in entries(world, client, requests=1)] == [1]

    end_windows(world, counted=junk - 1)
    found = entries(world, client, requests=junk)
    assert [(each.key, each.reason, each.outcome, each.count, each.address) for each in found] == [
        (key, reason, "refused", 1, address),
        (key, reason, "refused", junk - 1, address),
    ]


def test_each_address_client_and_reason_has_a_window_of_its_own(world: World) -> None:
    one, other = world.client("SPA"), world.client("Native")
    for _ in range(3):
        for client, address in ((one, "192.0.2.1"), (one, "192.0.2.2"), (other, "192.0.2.1")):
            assert send(world, code_form(client), address).status_code == 400
        for host in (1, 2, 3):  # a network of one customer
            assert send(world, code_form(one), f"2001:db8::{host}").status_code == 400
        assert send(world, refresh_form(one), "192.0.2.1").status_code == 400
    end_windows(world, counted=16)
    counts: Counter[tuple[str, str]] = Counter()
    for each in entries(world, one, requests=18):
        counts[each.key, each.address.partition("::")[0]] += each.count
    assert counts == {
        ("token.authorization-code.refused", "192.0.2.1"): 3,
        ("token.authorization-code.refused", "192.0.2.2"): 3,
        ("token.authorization-code.refused", "2001:db8"): 9,
        ("token.refresh-token.refused", "192.0.2.1"): 3,
    }
    assert [each.count for each in entries(world, other, requests=3)] == [1, 2]


def test_junk_does_not_hide_the_second_use_of_a_code(world: World, spa: Client) -> None:
    address = "198.51.100.7"
    sign_in = SignIn(world, spa)
    redemption = {**code_form(spa), "code": sign_in.code, "code_verifier": sign_in.verifier.secret}
    for _ in range(5):
        assert send(world, code_form(spa), address).status_code == 400
    assert send(world, redemption, address).status_code == 200
    for _ in range(3):
        assert send(world, redemption, address).status_code == 400
    end_windows(world, counted=6)
    found = entries(world, spa, requests=9)
    told = [(each.key, each.reason, each.user_id, each.count) for each in found]
    assert sorted(told, key=str) == sorted(
        [
            ("token.authorization-code.refused", "invalid_grant", None, 1),
            ("token.authorization-code.refused", "invalid_grant", None, 4),
            ("token.authorization-code.refused", "authorization_code.reused", sign_in.user_id, 1),
            ("token.authorization-code.refused", "authorization_code.reused", sign_in.user_id, 2),
            ("token.authorization-code.succeeded", None, sign_in.user_id, 1),
        ],
        key=str,
    )


def test_refusals_of_a_user_are_told_apart_by_organization(world: World, spa: Client) -> None:
    sign_in = SignIn(world, spa, scope=f"openid offline_access {ORGANIZATIONS}")
    form = {**refresh_form(spa), "refresh_token": sign_in.tokens()["refresh_token"]}
    organizations = ["o1", "o2", "o2"]
    for organization_id in organizations:
        assert send(world, {**form, "organization_id": organization_id}, "198.51.100.8").status_code == 403
    end_windows(world, counted=1)
    found = [each for each in entries(world, spa, requests=4) if each.outcome == "refused"]
    assert Counter(each.organization_id for each in found for _ in range(each.count)) == Counter(organizations)


def test_what_an_address_without_a_secret_can_store_is_bounded(world: World) -> None:
    """Any number of public clients and kinds of refusals: 17 windows, of which the last is for all the others."""
    address = "203.0.113.9"
    clients = [world.client("SPA") for _ in range(20)]
    for client in clients:
        for form in (code_form(client), refresh_form(client)):
            headers = [(b"X-Forwarded-For", address.encode()), (b"User-Agent", b"\xff" * 999)]
            for _ in range(2):
                answer = world.stack.http.post("/oidc/token", data=form, headers=headers)
                assert answer.status_code == 400
    keys = AuditStreamKeys.of(LOG, world.stack.tenant_id)
    eventually(lambda: world.redis.zcard(f"{keys.stream}:windows") == 17)
    used = sum(world.redis.memory_usage(f"{keys.stream}:{kind}") or 0 for kind in ("windows", "counted"))
    assert used < 64 << 10
    end_windows(world, counted=63)
    counted = sum(each.count for client in clients[:8] for each in entries(world, client, requests=4))
    others: list[AuditEntry] = []

    def are_there() -> bool:
        found = world.management.logs.list(key="token.other.refused")
        others[:] = [each for each in found if each.address == address]
        return sum(each.count for each in others) >= 48

    eventually(are_there)
    assert (counted, [each.count for each in others]) == (32, [47, 1])
    assert {(each.application_id, each.user_id, each.reason) for each in others} == {(None, None, "several")}
    assert world.redis.exists(f"{keys.stream}:counted") == 0
