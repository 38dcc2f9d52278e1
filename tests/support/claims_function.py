"""The custom-claims function from its edges: its events and requests on the bus, and the other end of the requests."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import Final, Self, TypeVar

import msgspec
import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

from identity_common.revisions import parse_revisions
from identity_common.sealing import SealingKeys
from identity_common.wire.claims_function import (
    TOKEN_KINDS,
    Answer,
    CheckScript,
    Question,
    ScriptChecked,
    SealedRequests,
    SealedVariables,
    TokenKind,
)
from identity_common.wire.events import ClaimsFunctionState, event_subject
from stead.event_types import CloudEvent
from tests.support.management_api import Management
from tests.support.waiting import eventually, round_trip
from tests.support.world import World

Result = TypeVar("Result")


def publish_function(management_nats_url: str, tenant_id: str, state: ClaimsFunctionState, *, revision: int) -> None:
    """Publish a state of the function; return when the server has it.

    Args:
        management_nats_url: NATS, as management-service's user.
        tenant_id: The tenant.
        state: The new state.
        revision: Of management-service; any that it has published already.
    """
    event = CloudEvent(
        id=f"{tenant_id}:management:{revision}",
        source="/management",
        type=f"claims-function.{'deleted' if state.deleted else 'updated'}",
        subject=state.kind,
        time="2026-01-01T00:00:00.000Z",
        tenantid=tenant_id,
        revision=revision,
        data=msgspec.Raw(msgspec.json.encode(state)),
    )

    async def publish(client: Client) -> None:
        subject = event_subject("management", tenant_id, "claims-function", state.kind)
        await client.publish(subject, msgspec.json.encode(event))
        await round_trip(client)

    as_management(management_nats_url, publish)


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


_versions: Final = itertools.count(1)


class ClaimsFunction:
    """Sets and removes the function, and returns when token-service knows."""

    def __init__(self, world: World) -> None:
        self._world = world
        settings = world.stack.token_settings
        self._tenant_id = world.stack.tenant_id
        self._nats_url = world.stack.addresses.management_nats_url
        self._keys = SealingKeys(settings.environment_variable_keys)
        self._variables = SealedVariables(self._keys, tenant_id=self._tenant_id)
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
        version = next(_versions)
        self._publish(
            ClaimsFunctionState(
                kind=kind,
                version=version,
                script=script,
                sealed_environment_variables=self._variables.seal(
                    environment_variables or {}, kind=kind, version=version
                ),
                block_issuance_on_error=block_issuance_on_error,
            )
        )
        return version

    def remove(self) -> None:
        """Remove the functions of both kinds."""
        for kind in TOKEN_KINDS:
            if self._directory.claims_function(kind) is not None:
                self._publish(ClaimsFunctionState(kind=kind, deleted=True))

    def asked(self, question: Question) -> Answer:
        """Return token-service's reply to a request of management-service."""
        requests = SealedRequests(self._keys, tenant_id=self._tenant_id)
        sealed = requests.seal_question(question)
        return requests.open_answer(self.raw_reply(sealed), sealed_question=sealed)

    def raw_reply(self, sealed: bytes) -> bytes:
        """Return the reply to a message.

        Raises:
            nats.errors.TimeoutError: There is none.
        """

        async def ask(client: Client) -> bytes:
            subject = SealedRequests(self._keys, tenant_id=self._tenant_id).subject
            return (await client.request(subject, sealed, timeout=3)).data

        return as_management(self._nats_url, ask)

    def _publish(self, state: ClaimsFunctionState) -> None:
        # A revision of its own: token-service ignores one that is older than that of another client's change.
        self._world.management.users.create(name="Somebody")
        revision = parse_revisions([str(self._world.management.last_revision)])["management"]
        publish_function(self._nats_url, self._tenant_id, state, revision=revision)
        expected = None if state.deleted else state
        eventually(lambda: self._directory.claims_function(state.kind) == expected)


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
