"""Impersonations that were ended: an exchange that is sent after the answer is refused, by every replica."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import httpx2 as httpx
import pytest
import redis

from all_in_one.embedded import EmbeddedServers
from identity_common.oauth import SCOPE_IMPERSONATIONS
from identity_common.wire.revocations import revocation_key
from provision import ServerAddresses
from stead import ManagementClient, Unavailable
from stead.models import SubjectToken
from tests.support.impersonation import Application, Impersonation, cycle_works, exchange
from tests.support.lengths import length
from tests.support.processes import Deployment, stopped
from tests.support.waiting import eventually
from token_service.authorizations import Consented

pytestmark = pytest.mark.slow

ROUNDS: Final = length(short=30, long=1_000)
BUSY: Final = 0.1
"""Of the exchanges, less get 503 because the machine is busy."""


class Race:
    """Impersonations of one user that are ended while their subject tokens are exchanged, in rounds.

    Attributes:
        outcomes: Statuses of the exchanges, by when they were sent.
    """

    def __init__(
        self,
        http: httpx.AsyncClient,
        deployment: Deployment,
        management: ManagementClient,
        impersonation: Impersonation,
    ) -> None:
        self.outcomes: Counter[tuple[str, int]] = Counter()
        self._http = http
        self._urls = [process.url for process in deployment.tokens]
        self._management = management
        self._impersonation = impersonation

    async def run(self, end: Callable[[Sequence[SubjectToken]], object]) -> None:
        """End impersonations whose tokens are exchanged before, meanwhile and afterwards, one at each replica."""
        minted = [await asyncio.to_thread(self._mint) for _ in range(3 * len(self._urls))]
        before, meanwhile, after = (minted[first::3] for first in range(3))
        issued = await self._exchange("before", before)
        ending = asyncio.create_task(asyncio.to_thread(end, minted))
        issued += await self._exchange("meanwhile", meanwhile)
        await ending
        await self._exchange("after", after)
        assert not any(await asyncio.gather(*(self._is_active(url, each) for url in self._urls for each in issued)))

    def _mint(self) -> SubjectToken:
        return self._management.subject_tokens.create(self._impersonation.user_id)

    async def _exchange(self, when: str, minted: Sequence[SubjectToken]) -> list[str]:
        """Exchange a token at each replica; return the access tokens that were issued."""
        forms = [self._impersonation.form(each.token) for each in minted]
        answers = await asyncio.gather(
            *(self._http.post(f"{url}/oidc/token", data=form) for url, form in zip(self._urls, forms, strict=True))
        )
        self.outcomes.update((when, answer.status_code) for answer in answers)
        return [answer.json()["access_token"] for answer in answers if answer.status_code == 200]

    async def _is_active(self, url: str, token: str) -> bool:
        while True:
            answer = await self._http.post(f"{url}/oidc/token/introspection", data={"token": token})
            if answer.status_code != 503:
                return bool(answer.json()["active"])


async def test_no_exchange_sent_after_the_answer_succeeds(
    deployment: Deployment, management: ManagementClient, impersonation: Impersonation
) -> None:
    """Without a revision. One that overlaps may succeed; introspection refuses its token from the answer on."""
    eventually(lambda: cycle_works(deployment, management, impersonation))
    ends = management.impersonations

    def end_each(minted: Sequence[SubjectToken]) -> None:
        for each in minted:
            ends.end(each.impersonation_id)

    ways: list[Callable[[Sequence[SubjectToken]], object]] = [
        end_each,
        lambda _: ends.end_all(user_id=impersonation.user_id),
        lambda _: ends.end_all(client_id=impersonation.client_id),
        lambda _: ends.end_all(all=True),
    ]
    limits = httpx.Limits(keepalive_expiry=None)
    async with httpx.AsyncClient(auth=impersonation.auth, limits=limits, timeout=30) as http:
        race = Race(http, deployment, management, impersonation)
        for end in itertools.islice(itertools.cycle(ways), ROUNDS):
            await race.run(end)
    expected = {("before", 200), ("meanwhile", 200), ("meanwhile", 400), ("after", 400)}
    assert race.outcomes.keys() - {(when, 503) for when, _ in expected} <= expected, race.outcomes
    sent = ROUNDS * len(deployment.tokens)
    assert min(race.outcomes[("before", 200)], race.outcomes[("after", 400)]) > (1 - BUSY) * sent, race.outcomes


End = Callable[["Ends", SubjectToken], object]


class Ends(NamedTuple):
    """Ends impersonations of one user as an administrator, or as that user."""

    management: ManagementClient
    impersonation: Impersonation
    api: httpx.Client

    def own(self, impersonation_id: str) -> None:
        assert self.api.post(f"/oidc/me/impersonations/{impersonation_id}/end").status_code == 204


WAYS: Final[Mapping[str, End]] = {
    "one": lambda ends, minted: ends.management.impersonations.end(minted.impersonation_id),
    "own": lambda ends, minted: ends.own(minted.impersonation_id),
    "user": lambda ends, _: ends.management.impersonations.end_all(user_id=ends.impersonation.user_id),
    "client": lambda ends, _: ends.management.impersonations.end_all(client_id=ends.impersonation.client_id),
    "all": lambda ends, _: ends.management.impersonations.end_all(all=True),
}


@pytest.fixture
def ends(
    own_addresses: ServerAddresses, deployment: Deployment, management: ManagementClient, impersonation: Impersonation
) -> Iterator[Ends]:
    eventually(lambda: cycle_works(deployment, management, impersonation))
    application = Application(deployment, impersonation, own_addresses)
    consented = Consented(scopes=frozenset({"openid", SCOPE_IMPERSONATIONS}))
    answer = application.post("/oidc/token", **application.sign_in(consented=consented))
    assert answer.status_code == 200, answer.text
    headers = {"Authorization": f"Bearer {answer.json()['access_token']}"}
    with httpx.Client(base_url=deployment.management.url, headers=headers, timeout=30) as api:
        yield Ends(management, impersonation, api)


@pytest.mark.parametrize("way", WAYS)
def test_an_end_does_not_wait_for_the_bus(
    own_servers: EmbeddedServers, own_addresses: ServerAddresses, deployment: Deployment, ends: Ends, way: str
) -> None:
    """Nor does introspection: token-service learns of the end from Redis alone."""
    application = Application(deployment, ends.impersonation, own_addresses)
    with stopped(own_servers.nats):
        minted = [ends.management.subject_tokens.create(ends.impersonation.user_id) for _ in range(4)]
        unspent, spent = minted[:3], minted[3]
        token = exchange(deployment.tokens[0].url, ends.impersonation, spent.token).json()["access_token"]
        for each in minted:
            WAYS[way](ends, each)
        for process, each in zip(deployment.tokens, unspent, strict=True):
            refused = exchange(process.url, ends.impersonation, each.token)
            assert (refused.status_code, refused.json().get("error")) == (400, "invalid_request")
            assert application.is_active(token, process) is False


def test_an_end_that_redis_does_not_have_is_not_acknowledged(
    own_servers: EmbeddedServers, deployment: Deployment, ends: Ends
) -> None:
    """It is recorded, and a repeated request writes it again."""
    impersonations, user = ends.management.impersonations, ends.impersonation.user_id
    minted = ends.management.subject_tokens.create(user)
    with stopped(own_servers.valkey):
        for end in (
            partial(impersonations.end, minted.impersonation_id),
            partial(impersonations.end_all, user_id=user),
        ):
            with pytest.raises(Unavailable) as unavailable:
                end()
            assert unavailable.value.retry_after is not None
    eventually(lambda: cycle_works(deployment, ends.management, ends.impersonation))


def test_ending_again_writes_what_redis_has_lost(
    own_servers: EmbeddedServers, own_addresses: ServerAddresses, deployment: Deployment, ends: Ends
) -> None:
    """A repetition is a no-op in the database only."""
    minted = ends.management.subject_tokens.create(ends.impersonation.user_id)
    with stopped(own_servers.nats), redis.Redis.from_url(own_addresses.admin_redis_url) as administrator:
        ends.management.impersonations.end(minted.impersonation_id)
        assert administrator.delete(revocation_key("default", minted.impersonation_id)) == 1
        ends.management.impersonations.end(minted.impersonation_id)
        refused = exchange(deployment.tokens[0].url, ends.impersonation, minted.token)
        assert (refused.status_code, refused.json().get("error")) == (400, "invalid_request")
