"""While a replica of token-service or NATS is killed, verifiers reject what was ended; prints how soon."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import pytest

from all_in_one.embedded import EmbeddedServers
from provision import ServerAddresses
from stead import AccessTokenVerifier, ManagementClient, NotValidFeed, TokenInvalid, Unavailable
from tests.support.impersonation import RESOURCE, Impersonation, cycle_works, exchange
from tests.support.lengths import length
from tests.support.processes import Deployment, Victim
from tests.support.waiting import WAIT_S, eventually

pytestmark = pytest.mark.slow

ROUNDS = length(short=1, long=25)
ENDED_AT_ONCE = length(short=5, long=40)
POLL_S = 0.02


class Reader:
    """A verifier that fails closed, with the feed of one replica or of NATS."""

    def __init__(self, name: str, feed: NotValidFeed, deployment: Deployment, url: str) -> None:
        self.name = name
        self.feed = feed
        jwks_url = f"{url}/oidc/jwks"
        self.verifier = AccessTokenVerifier(issuer=deployment.issuer, jwks_url=jwks_url, audience=RESOURCE, feed=feed)

    def refusal(self, token: str) -> str | None:
        try:
            self.verifier.verify(token)
        except TokenInvalid as invalid:
            return invalid.reason
        except Unavailable:
            return "unavailable"
        return None


@pytest.fixture
def readers(
    deployment: Deployment,
    own_addresses: ServerAddresses,
    management: ManagementClient,
    impersonation: Impersonation,
) -> Iterator[list[Reader]]:
    eventually(lambda: cycle_works(deployment, management, impersonation))
    reading = {"client_id": impersonation.client_id, "client_secret": impersonation.client_secret}
    with ExitStack() as following:
        made = []
        for number, process in enumerate(deployment.tokens):
            http = NotValidFeed.over_http(process.url, issuer=deployment.issuer, **reading)
            bus = own_addresses.subscriber_nats_url
            nats = NotValidFeed.over_nats(bus, base_url=process.url, issuer=deployment.issuer, **reading)
            for name, feed in (("HTTP", http), ("NATS", nats)):
                following.enter_context(feed)
                made.append(Reader(f"{name} {number}", feed, deployment, process.url))
        for each in made:
            assert each.feed.wait_until_fresh(WAIT_S), each.name
        yield made


def test_what_was_ended_is_rejected_while_a_process_is_killed(
    readers: list[Reader],
    deployment: Deployment,
    own_servers: EmbeddedServers,
    management: ManagementClient,
    impersonation: Impersonation,
    request: pytest.FixtureRequest,
) -> None:
    """The readers of a killed replica are checked only afterwards, when they have caught up."""
    victims: dict[str, Victim] = {f"replica {number}": process for number, process in enumerate(deployment.tokens)}
    victims["NATS"] = own_servers.nats
    lines = [f"{'killed':12} {'rejections':>10} {'p50 ms':>8} {'max ms':>8}"]
    for victim in [*victims] * ROUNDS:
        eventually(lambda: cycle_works(deployment, management, impersonation))
        ended = [begin(deployment, management, impersonation) for _ in range(ENDED_AT_ONCE)]
        kept = begin(deployment, management, impersonation)
        settle(readers, ended, None)
        asked = [reader for reader in readers if reader.name.split()[1] != victim.split()[-1]]
        victims[victim].kill()
        try:
            times = sorted(rejections(asked, ended, management))
        finally:
            victims[victim].start()
        lines.append(f"{victim:12} {len(times):10} {times[len(times) // 2]:8.0f} {times[-1]:8.0f}")
        for process in deployment.tokens:
            process.wait_until_ready()
        settle(readers, ended, "ended_token")
        settle(readers, [kept], None)
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        sys.stdout.write(os.linesep + os.linesep.join(lines) + os.linesep)


def begin(deployment: Deployment, management: ManagementClient, impersonation: Impersonation) -> tuple[str, str]:
    """Return an access token and the id of its impersonation."""
    begun = management.subject_tokens.create(impersonation.user_id)
    answer = exchange(deployment.tokens[0].url, impersonation, begun.token)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["access_token"]), begun.impersonation_id


def settle(readers: list[Reader], begun: list[tuple[str, str]], refusal: str | None) -> None:
    """Return when every reader gives the same answer about these tokens."""
    for reader in readers:
        eventually(partial(lambda reader: {reader.refusal(token) for token, _ in begun} == {refusal}, reader))


def rejections(asked: list[Reader], ended: list[tuple[str, str]], management: ManagementClient) -> list[float]:
    """End impersonations; return the milliseconds from each answer to the rejection by each reader."""

    def end(token: str, impersonation_id: str) -> list[float]:
        management.impersonations.end(impersonation_id)
        acknowledged_at = time.monotonic()
        waiting, times = set(asked), []
        while waiting:
            for reader in [each for each in waiting if each.refusal(token)]:
                waiting.discard(reader)
                times.append((time.monotonic() - acknowledged_at) * 1000)
            assert time.monotonic() < acknowledged_at + WAIT_S, {each.name for each in waiting}
            time.sleep(POLL_S)
        return times

    with ThreadPoolExecutor(len(ended)) as threads:
        return [each for times in threads.map(lambda pair: end(*pair), ended) for each in times]
