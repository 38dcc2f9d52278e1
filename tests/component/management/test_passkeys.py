"""Passkeys, as token-service's pages create and verify them over the bus."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator
from typing import Final

import nats
import pytest_asyncio
from nats.aio.client import Client

from identity_common.sealing import SealingKeys
from identity_common.wire.factors import (
    Answer,
    ArmedFactors,
    BeginPasskey,
    FactorRequests,
    PasskeyBegun,
    Question,
    ReadFactors,
    Refused,
    VerifyPasskey,
)
from tests.support.authenticator import Authenticator, new_challenge
from tests.support.management_api import Management, unique

NOT_ACCEPTED: Final = Refused(reason="not-accepted")


class FactorPages:
    """Sends the same requests as token-service."""

    def __init__(self, management: Management, client: Client) -> None:
        self.management = management
        self._client = client
        keys = SealingKeys(management.settings.environment_variable_keys)
        self._requests = FactorRequests(keys, tenant_id=management.tenant_id)

    async def ask(self, question: Question) -> Answer:
        sealed = self._requests.seal_question(question)
        reply = await self._client.request(self._requests.subject, sealed, timeout=20)
        return self._requests.open_answer(reply.data, sealed_question=sealed)


@pytest_asyncio.fixture
async def factors(management: Management) -> AsyncIterator[FactorPages]:
    client = await nats.connect(management.addresses.token_nats_url, inbox_prefix="_INBOX_token")
    yield FactorPages(management, client)
    await client.close()


def authenticator_of(management: Management, **changed: object) -> Authenticator:
    return Authenticator(origin=management.settings.base_url, **changed)  # type: ignore[arg-type]


async def test_a_user_keeps_its_handle_which_does_not_tell_who_it_is(factors: FactorPages) -> None:
    user = await factors.management.created("users", username=unique("ada"), name="Ada")
    begun = await factors.ask(BeginPasskey(user_id=user["id"]))
    assert isinstance(begun, PasskeyBegun)
    assert begun == await factors.ask(BeginPasskey(user_id=user["id"]))
    assert (begun.name, begun.display_name, begun.existing) == (user["username"], "Ada", ())
    handle = urlsafe_b64decode(begun.user_handle + "=")
    assert (len(handle), user["id"].encode() in handle) == (32, False)
    assert await factors.ask(BeginPasskey(user_id="unknown")) == NOT_ACCEPTED
    assert await factors.ask(ReadFactors(user_id=user["id"])) == ArmedFactors()


async def test_a_passkey_that_was_never_added_is_not_accepted(factors: FactorPages) -> None:
    authenticator, challenge = authenticator_of(factors.management), new_challenge()
    authenticator.create(challenge, user_handle=b"h" * 32)
    question = VerifyPasskey(challenge=challenge, credential=authenticator.get(challenge))
    assert await factors.ask(question) == NOT_ACCEPTED
