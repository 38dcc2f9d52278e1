"""Authenticator apps, recovery codes and enrolment codes, as token-service asks about them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import nats
import pytest_asyncio

from identity_common.wire.factors import (
    ArmedFactors,
    FactorAccepted,
    ReadFactors,
    Refused,
)
from tests.support.factors import FactorPages
from tests.support.management_api import Management

WRONG = Refused(reason="wrong-code")


@pytest_asyncio.fixture
async def factors(management: Management) -> AsyncIterator[FactorPages]:
    client = await nats.connect(management.addresses.token_nats_url, inbox_prefix="_INBOX_token")
    yield FactorPages(management, client)
    await client.close()


async def test_an_authenticator_app_is_set_up_and_verified(factors: FactorPages) -> None:
    user = await factors.user()
    armed = await factors.ask(ReadFactors(user_id=user["id"]))
    assert isinstance(armed, ArmedFactors)
    assert (armed.has_authenticator, armed.recovery_codes, armed.needs_code) == (False, 0, True)
    app, added = await factors.authenticator(user)
    assert (added.method, len(set(added.recovery_codes))) == ("authenticator", 10)
    accepted = await factors.verify(user, app.code())
    assert isinstance(accepted, FactorAccepted)
    assert (accepted.user_id, accepted.method, accepted.recovery_codes) == (user["id"], "authenticator", None)
    armed = await factors.ask(ReadFactors(user_id=user["id"]))
    assert isinstance(armed, ArmedFactors)
    assert (armed.has_authenticator, armed.recovery_codes) == (True, 10)
