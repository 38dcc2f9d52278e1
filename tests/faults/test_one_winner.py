"""A subject token is spent at most once, however many exchanges race for it."""

import asyncio
from collections import Counter

import httpx2 as httpx
import pytest

from stead import ManagementClient
from tests.support.impersonation import Impersonation, cycle_works
from tests.support.lengths import length
from tests.support.processes import Deployment
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

ROUNDS = length(short=30, long=1_000)
CLIENTS = 64


async def test_exactly_one_of_many_concurrent_exchanges_wins(
    deployment: Deployment, management: ManagementClient, impersonation: Impersonation
) -> None:
    """64 clients race for each token over three processes: check and use must be one atomic step.

    On a busy machine one may get 503, also the winner.
    """
    eventually(lambda: cycle_works(deployment, management, impersonation))  # every replica is up to date
    urls = [f"{process.url}/oidc/token" for process in deployment.tokens]
    # No expiry: on a busy machine httpx may close a connection as expired that it has just handed out.
    limits = httpx.Limits(max_connections=CLIENTS, keepalive_expiry=None)
    async with httpx.AsyncClient(auth=impersonation.auth, limits=limits, timeout=30) as client:
        clear = 0
        while clear < ROUNDS:
            form = impersonation.form(management.subject_tokens.create(impersonation.user_id).token)
            answers = await asyncio.gather(
                *(client.post(urls[number % len(urls)], data=form) for number in range(CLIENTS))
            )
            outcomes = Counter((answer.status_code, answer.json().get("error")) for answer in answers)
            busy = outcomes.pop((503, "temporarily_unavailable"), 0)
            won = outcomes.pop((200, None), 0)
            assert outcomes == {(400, "invalid_request"): CLIENTS - won - busy}
            assert won == 1 or (won == 0 and busy)
            clear += not busy
