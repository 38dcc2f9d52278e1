"""The custom-claims function of a running stack, set by its event, as management-service publishes it."""

import itertools
from typing import Final

from nats.aio.client import Client

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
from identity_common.wire.events import ClaimsFunctionState
from tests.support.function_events import as_management, publish_function
from tests.support.waiting import eventually
from tests.support.world import World

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
