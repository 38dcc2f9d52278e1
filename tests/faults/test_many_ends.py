"""Very many impersonations are ended, in every way, while others go on: each is refused, and none of the others."""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Final

import httpx2 as httpx
import pytest

from provision import ServerAddresses
from stead import AccessTokenVerifier, Conflict, ManagementClient, NotValidFeed, TokenInvalid, Unavailable
from tests.support.impersonation import RESOURCE, Impersonation, cycle_works
from tests.support.lengths import length
from tests.support.organization_template import OrganizationTemplate
from tests.support.processes import Deployment, free_port
from tests.support.serving import serving
from tests.support.waiting import WAIT_S, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(length(short=600, long=3 * 3600))]

ENDS = length(short=75, long=100_000)
"""At least one in every way."""
AT_ONCE: Final = length(short=6, long=12)
RENEWED_AFTER: Final = 2_000
"""Ends until those that go on are replaced: their tokens expire after an hour."""
POLL_S: Final = 0.01


Refusal = Callable[[str], str | None]
"""Why a token is refused on one path; None if it is accepted."""


class System:
    """The deployment, and verifiers that follow its feed: of the SDK over HTTP and NATS, and the verifier process."""

    def __init__(
        self,
        deployment: Deployment,
        management: ManagementClient,
        impersonation: Impersonation,
        feeds: dict[str, NotValidFeed],
        verifier_process: str,
    ) -> None:
        self.management = management
        self.impersonation = impersonation
        self.template = OrganizationTemplate(management)
        scopes = management.resources.scopes(impersonation.resource_id)
        self.organization_role = self.template.role(scope_ids=[scope.id for scope in scopes])
        limits = httpx.Limits(max_keepalive_connections=None)
        self.http = httpx.Client(timeout=30, limits=limits)
        self._process = verifier_process
        self.paths: dict[str, Refusal] = {
            path: partial(
                refusal,
                AccessTokenVerifier(
                    issuer=deployment.issuer,
                    jwks_url=f"{deployment.tokens[0].url}/oidc/jwks",
                    audience=RESOURCE,
                    feed=feed,
                ),
            )
            for path, feed in feeds.items()
        }
        self.paths["verifier process"] = self._refused_by_the_process
        self._urls = [process.url for process in deployment.tokens]
        self._replicas = itertools.cycle(self._urls)

    def post(self, path: str, form: dict[str, str], auth: tuple[str, str], url: str | None = None) -> httpx.Response:
        """Send a form to one replica of token-service or another, which waits until it knows of every write so far."""
        headers = {"Identity-Revision": self.template.last_revision}
        return self.http.post(f"{url or next(self._replicas)}/oidc/{path}", data=form, auth=auth, headers=headers)

    def ask(self, path: str, form: dict[str, str], auth: tuple[str, str], url: str | None = None) -> httpx.Response:
        """Send a form that changes nothing when it is repeated, again after 503: a correct answer on a busy machine."""
        while (answer := self.post(path, form, auth, url)).status_code == httpx.codes.SERVICE_UNAVAILABLE:
            continue
        return answer

    def knows(self, auth: tuple[str, str]) -> bool:
        """Return whether a client authenticates at every replica: authentication does not wait for a revision."""
        answers = (self.ask("token/introspection", {"token": "-"}, auth, url) for url in self._urls)
        return all(answer.status_code == httpx.codes.OK for answer in answers)

    def is_active(self, token: str) -> bool:
        own = (self.impersonation.client_id, self.impersonation.client_secret)
        answer = self.ask("token/introspection", {"token": token}, own)
        return bool(answer.json()["active"])

    def _refused_by_the_process(self, token: str) -> str | None:
        headers = {"Authorization": f"Bearer {token}"}
        status = self.http.get(f"{self._process}/check-in-organization/read:orders", headers=headers).status_code
        return None if status == 200 else str(status)


def refusal(verifier: AccessTokenVerifier, token: str) -> str | None:
    try:
        verifier.verify(token, organization_aware=True)
    except TokenInvalid as invalid:
        return invalid.reason
    except Unavailable:
        return "unavailable"
    return None


class Parties:
    """A user, a client, and an organization that the user is a member of, for one impersonation after the other.

    Attributes:
        were_restored: Whether they were ended by the last end and are valid again, which the feed tells a moment later.
    """

    were_restored = False

    def __init__(self, system: System) -> None:
        self.system = system
        management = system.management
        self.user = management.users.create(name="Customer").id
        self.organization = system.template.organization()
        eventually(self._joins)
        self.client = management.applications.create(
            name="Shop", type="Traditional", custom_client_metadata={"allowTokenExchange": True}
        ).id
        self.auth = self.client, management.applications.create_secret(self.client, "first").value or ""
        eventually(lambda: system.knows(self.auth))

    def restore(self, *, after: str) -> None:
        """Restore the parties for the next impersonation, after one was ended in this way."""
        self.were_restored = after in RESTORED
        if self.were_restored:
            RESTORED[after](self)

    def _joins(self) -> bool:
        """Join unless template-service, which does not wait for a revision, has not heard of the user yet."""
        try:
            self.join()
        except Conflict:
            return False
        return True

    def join(self) -> None:
        self.system.template.member(self.organization, self.user, self.system.organization_role)

    def suspend(self, *, suspended: bool) -> None:
        self.system.management.users.suspend(self.user, suspended=suspended)

    def allow_exchange(self, *, allowed: bool) -> None:
        metadata = {"allowTokenExchange": allowed}
        self.system.management.applications.update(self.client, custom_client_metadata=metadata)


class Impersonated:
    """One impersonation of these parties, with its token for the organization."""

    def __init__(self, of: Parties) -> None:
        self.of = of
        self.management = management = of.system.management
        status: int = httpx.codes.SERVICE_UNAVAILABLE  # after which the subject token may be spent
        while status == httpx.codes.SERVICE_UNAVAILABLE:
            begun = management.subject_tokens.create(of.user)
            form = {**of.system.impersonation.form(begun.token), "organization_id": of.organization}
            answer = of.system.post("token", form, of.auth)
            status = answer.status_code
        assert status == 200, answer.text
        self.id = begun.impersonation_id
        self.token = str(answer.json()["access_token"])

    def revoke(self) -> None:
        assert self.of.system.ask("token/revocation", {"token": self.token}, self.of.auth).status_code == 200


REPEATABLE: Final[dict[str, Callable[[Impersonated], object]]] = {
    "token revoked": lambda one: one.revoke(),
    "ended": lambda one: one.management.impersonations.end(one.id),
    "all of the user ended": lambda one: one.management.impersonations.end_all(user_id=one.of.user),
    "all of the client ended": lambda one: one.management.impersonations.end_all(client_id=one.of.client),
    "all in the organization ended": lambda one: one.management.impersonations.end_all(
        organization_id=one.of.organization
    ),
    "password changed": lambda one: one.management.users.set_password(one.of.user, "a good password"),
    "user suspended": lambda one: one.of.suspend(suspended=True),
    "member removed": lambda one: one.management.organizations.remove_user(one.of.organization, one.of.user),
    "exchange switched off": lambda one: one.of.allow_exchange(allowed=False),
}
"""Ways after which the same parties serve the next impersonation, restored first if need be."""

RESTORED: Final[dict[str, Callable[[Parties], object]]] = {
    "user suspended": lambda parties: parties.suspend(suspended=False),
    "member removed": Parties.join,
    "exchange switched off": lambda parties: parties.allow_exchange(allowed=True),
}

DELETING: Final[dict[str, Callable[[Impersonated], object]]] = {
    "user deleted": lambda one: one.management.users.delete(one.of.user),
    "organization deleted": lambda one: one.management.organizations.delete(one.of.organization),
    "client deleted": lambda one: one.management.applications.delete(one.of.client),
}
"""Ways after which the next impersonation has new parties: eight requests, where others have none or one or two."""

WAYS: Final = {**REPEATABLE, **DELETING}
TURNS: Final = [*REPEATABLE] * 8 + [*DELETING]


@pytest.fixture
def system(
    deployment: Deployment,
    own_addresses: ServerAddresses,
    management: ManagementClient,
    impersonation: Impersonation,
) -> Iterator[System]:
    eventually(lambda: cycle_works(deployment, management, impersonation))
    credentials = {"client_id": impersonation.client_id, "client_secret": impersonation.client_secret}
    # A heartbeat that a busy machine delays is not what this test is about.
    reading = {"issuer": deployment.issuer, "stale_after_s": WAIT_S, **credentials}
    bus = own_addresses.subscriber_nats_url
    first, second = (process.url for process in deployment.tokens[:2])
    with ExitStack() as following:
        feeds = {
            "HTTP": NotValidFeed.over_http(first, **reading),
            "NATS": NotValidFeed.over_nats(bus, base_url=second, **reading),
        }
        for feed in feeds.values():
            following.enter_context(feed)
        for feed in feeds.values():
            assert feed.wait_until_fresh(WAIT_S)
        port = free_port()
        command = [
            *(sys.executable, "-m", "verifier", "--port", str(port), "--issuer", deployment.issuer),
            *("--audience", RESOURCE, "--feed-url", second, "--jwks-url", f"{first}/oidc/jwks"),
            *("--stale-after-s", str(WAIT_S)),
        ]
        environment = {name.upper(): value for name, value in credentials.items()}
        process = following.enter_context(serving(command, port, **environment))
        system = System(deployment, management, impersonation, feeds, process)
        following.enter_context(system.http)
        eventually(lambda: "stead_verifier_feed_fresh 1.0" in system.http.get(f"{process}/metrics").text)
        yield system


class Ending:
    """Ends impersonations, one after the other in each thread, and watches one that goes on."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._own = threading.local()
        self.times_ms: dict[str, list[float]] = defaultdict(list)

    def end(self, number: int) -> None:
        """End one impersonation, in the next of the ways."""
        system, way = self._system, TURNS[number % len(TURNS)]
        parties, other = self._parties(), self._going_on(number)
        one = Impersonated(parties)
        if parties.were_restored:
            eventually(lambda: not any(refused(one.token) for refused in system.paths.values()))
        for path, refused in system.paths.items():
            assert refused(one.token) is None, (way, path)
        WAYS[way](one)
        acknowledged_at = time.monotonic()
        assert not system.is_active(one.token), way
        for path, refused in system.paths.items():
            while not refused(one.token):
                assert time.monotonic() < acknowledged_at + WAIT_S, (way, path)
                time.sleep(POLL_S)
            self.times_ms[way].append((time.monotonic() - acknowledged_at) * 1000)
        assert {path: refused(other.token) for path, refused in system.paths.items()} == dict.fromkeys(system.paths), (
            way
        )
        assert system.is_active(other.token), way
        if way in DELETING:
            del self._own.parties
        else:
            parties.restore(after=way)

    def _parties(self) -> Parties:
        if not hasattr(self._own, "parties"):
            self._own.parties = Parties(self._system)
        found: Parties = self._own.parties
        return found

    def _going_on(self, number: int) -> Impersonated:
        if number >= getattr(self._own, "until", 0):
            self._own.going_on = Impersonated(Parties(self._system))
            self._own.until = number + RENEWED_AFTER
        found: Impersonated = self._own.going_on
        return found


def test_each_of_many_is_refused_and_no_other(system: System, request: pytest.FixtureRequest) -> None:
    """Prints how soon after the acknowledged change, by what was done, and how many a second.

    One of 25 deletes a party of the impersonation; the others share users, clients and organizations. The paths
    are looked at in turn, so a time is that of its path or of a slower one before.
    """
    ending = Ending(system)
    begun_at = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as threads:
        for _ in threads.map(ending.end, range(ENDS)):
            pass
    lines = [f"{ENDS / (time.monotonic() - begun_at):.1f} a second"]
    lines += [f"{'how':32} {'rejections':>10} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8}"]
    for way in WAYS:
        times = sorted(ending.times_ms[way])
        shown = [times[int((len(times) - 1) * share)] for share in (0.5, 0.99, 1)]
        lines.append(f"{way:32} {len(times):10} " + " ".join(f"{each:8.0f}" for each in shown))
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        sys.stdout.write(os.linesep + os.linesep.join(lines) + os.linesep)
