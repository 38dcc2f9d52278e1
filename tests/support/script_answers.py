"""The other end of management-service's requests about the custom-claims function, on the real bus.

It receives as token-service does and answers what a test has chosen, so that a test sees what crosses, and what each
answer becomes. What scripts do is tested with the whole system.
"""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Self

import nats
from nats.aio.msg import Msg

from identity_common.sealing import SealingKeys
from identity_common.wire.claims_function import Answer, CheckScript, Question, ScriptChecked, SealedRequests
from tests.support.management_api import Management
from tests.support.waiting import round_trip


class ScriptAnswers:
    """Finds every script acceptable unless told otherwise.

    Attributes:
        asked: The requests, in order.
        answer: The answer to all other requests.
        check: The answer to the check of a script.
        before_answering: Awaited first.
        received: The requests as they crossed the bus.
    """

    def __init__(self, management: Management) -> None:
        settings = management.settings
        self._url = management.addresses.token_nats_url
        self._requests = SealedRequests(SealingKeys(settings.environment_variable_keys), tenant_id=settings.tenant_id)
        self._started = AsyncExitStack()
        self.asked: list[Question] = []
        self.received: list[bytes] = []
        self.answer: Answer = ScriptChecked()
        self.check: Answer = ScriptChecked()
        self.before_answering: Callable[[], Awaitable[None]] | None = None

    async def __aenter__(self) -> Self:
        client = await nats.connect(self._url, inbox_prefix="_INBOX_token")
        self._started.push_async_callback(client.close)
        await client.subscribe(self._requests.subject, queue="token", cb=self._take)
        await round_trip(client)
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._started.aclose()

    def forget(self) -> None:
        """Begin a new test."""
        self.asked.clear()
        self.received.clear()
        self.answer = self.check = ScriptChecked()
        self.before_answering = None

    async def _take(self, message: Msg) -> None:
        self.received.append(message.data)
        question = self._requests.open_question(message.data)
        self.asked.append(question)
        if self.before_answering is not None:
            await self.before_answering()
        answer = self.check if isinstance(question, CheckScript) else self.answer
        await message.respond(self._requests.seal_answer(answer, sealed_question=message.data))
