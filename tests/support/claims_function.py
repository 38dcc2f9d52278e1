"""The custom-claims function of a running stack, set by its event, as management-service publishes it."""

import asyncio
import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec

from identity_common.bus.connection import Bus
from identity_common.revisions import parse_revisions
from identity_common.sealing import SealingKeys
from identity_common.wire.claims_function import (
    TOKEN_KINDS,
    Answer,
    Question,
    SealedRequests,
    SealedVariables,
    TokenKind,
)
from identity_common.wire.events import ClaimsFunctionState, event_subject
from stead.event_types import CloudEvent
from tests.support.patience import eventually, round_trip
from tests.support.world import World

_versions: Final = itertools.count(1)


class ClaimsFunction:
    """Sets and removes the function, and returns when token-service knows."""

    def __init__(self, world: World) -> None:
        self._world = world
        settings = world.stack.token_settings
        self._tenant_id = world.stack.tenant_id
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

        async def ask(bus: Bus) -> bytes:
            subject = SealedRequests(self._keys, tenant_id=self._tenant_id).subject
            return (await bus.client.request(subject, sealed, timeout=3)).data

        return self._on_the_bus(ask)  # type: ignore[no-any-return]

    def _publish(self, state: ClaimsFunctionState) -> None:
        revision = parse_revisions([self._world.management.last_revision or "management:0"])["management"]
        event = CloudEvent(
            id=f"{self._tenant_id}:management:{revision}",
            source="/management",
            type=f"claims-function.{'deleted' if state.deleted else 'updated'}",
            subject=state.kind,
            time="2026-01-01T00:00:00.000Z",
            tenantid=self._tenant_id,
            revision=revision,
            data=msgspec.Raw(msgspec.json.encode(state)),
        )

        async def publish(bus: Bus) -> None:
            subject = event_subject("management", self._tenant_id, "claims-function", state.kind)
            await bus.client.publish(subject, msgspec.json.encode(event))
            await round_trip(bus.client)

        self._on_the_bus(publish)
        expected = None if state.deleted else state
        eventually(lambda: self._directory.claims_function(state.kind) == expected)

    def _on_the_bus(self, work: object) -> object:
        async def connected() -> object:
            bus = Bus(self._world.stack.addresses.management_nats_url, service="management")
            bus.start()
            try:
                await bus.connected()
                return await work(bus)  # type: ignore[operator]
            finally:
                await bus.stop()

        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, connected()).result()
