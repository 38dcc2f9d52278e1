"""The custom-claims function from its edges: saved versions, requests on the bus, and the other end of the requests."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import Self, TypeVar

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

from identity_common.sealing import SealingKeys
from identity_common.wire.claims_function import (
    TOKEN_KINDS,
    Answer,
    CheckScript,
    ClaimsFunctionRequests,
    Question,
    ScriptChecked,
    TokenKind,
)
from tests.support.management_api import Management
from tests.support.waiting import eventually, round_trip
from tests.support.world import World

Result = TypeVar("Result")


def as_management(management_nats_url: str, work: Callable[[Client], Awaitable[Result]]) -> Result:
    """Do something on the bus as management-service; this thread may have a running event loop."""

    async def connected() -> Result:
        client = await nats.connect(management_nats_url, inbox_prefix=b"_INBOX_management")
        try:
            return await work(client)
        finally:
            await client.close()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, connected()).result()


class ClaimsFunction:
    """Saves and deletes the function, and returns when token-service knows."""

    def __init__(self, world: World) -> None:
        settings = world.stack.token_settings
        self._saved = world.management.custom_claims
        self._tenant_id = world.stack.tenant_id
        self._nats_url = world.stack.addresses.management_nats_url
        self._keys = SealingKeys(settings.environment_variable_keys)
        self._directory = world.stack.apps["token"].state["directory"].in_memory

    def set(
        self,
        script: str,
        *,
        kind: TokenKind = "access-token",
        environment_variables: dict[str, str] | None = None,
        block_issuance_on_error: bool = False,
    ) -> int:
        """Make a script the active version; return its number."""
        saved = self._saved.save(
            kind,
            script,
            environment_variables=environment_variables,
            block_issuance_on_error=block_issuance_on_error,
        )
        eventually(lambda: self._active(kind) == saved.version)
        return saved.version

    def remove(self) -> None:
        """Delete the functions of both kinds."""
        for kind in TOKEN_KINDS:
            if self._active(kind) is not None:
                self._saved.delete(kind)
        eventually(lambda: not any(map(self._active, TOKEN_KINDS)))

    def _active(self, kind: TokenKind) -> int | None:
        """Return the version that token-service knows as active, if any."""
        state = self._directory.claims_function(kind)
        return None if state is None else state.version

    def asked(self, question: Question) -> Answer:
        """Return token-service's reply to a request of management-service."""
        requests = ClaimsFunctionRequests(self._keys, tenant_id=self._tenant_id)
        sealed = requests.seal_question(question)
        return requests.open_answer(self.raw_reply(sealed), sealed_question=sealed)

    def raw_reply(self, sealed: bytes) -> bytes:
        """Return the reply to a message.

        Raises:
            nats.errors.TimeoutError: There is none.
        """

        async def ask(client: Client) -> bytes:
            subject = ClaimsFunctionRequests(self._keys, tenant_id=self._tenant_id).subject
            return (await client.request(subject, sealed, timeout=3)).data

        return as_management(self._nats_url, ask)


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
        self._requests = ClaimsFunctionRequests(
            SealingKeys(settings.environment_variable_keys), tenant_id=settings.tenant_id
        )
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
