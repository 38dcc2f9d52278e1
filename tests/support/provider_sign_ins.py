"""Sign-ins at a connector's provider, asked for over the bus as token-service does."""

from __future__ import annotations

import base64
import hashlib
import secrets
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
from nats.aio.client import Client

from identity_common.sealing import SealingKeys
from identity_common.wire.events import ConnectorState, ProviderGroupsState
from identity_common.wire.provider_sign_in import (
    BeginAtProvider,
    FinishAtProvider,
    ProviderAddress,
    ProviderAnswer,
    ProviderPerson,
    ProviderQuestion,
    ProviderSignInRequests,
)
from tests.support.management_api import Management, unique
from tests.support.provider import CLIENT, SECRET, Provider

CALLBACK = "https://id.test/sign-in/callback/a-connector"


class ProviderPages:
    """Asks the same questions as token-service, for a connector to a provider."""

    def __init__(self, management: Management, client: Client, provider: Provider) -> None:
        self.management = management
        self.provider = provider
        self.connector = ""
        self._client = client
        self._requests = ProviderSignInRequests(
            SealingKeys(management.settings.environment_variable_keys), tenant_id=management.tenant_id
        )

    async def connect(self, **members: Any) -> dict[str, Any]:
        """Create the connector."""
        config = {"issuer": self.provider.issuer, "clientId": CLIENT, "clientSecret": SECRET}
        members = {"providerName": "OIDC", "connectorName": unique("Provider"), "config": config, **members}
        created = await self.management.created("sso-connectors", **members)
        self.connector = created["id"]
        return dict(created)

    async def change(self, **members: Any) -> None:
        answer = await self.management.client.patch(f"/api/sso-connectors/{self.connector}", json=members)
        assert answer.status_code == 200, answer.text

    async def disconnect(self) -> None:
        """Delete the connector, if there is one."""
        if self.connector:
            await self.management.client.delete(f"/api/sso-connectors/{self.connector}")
        self.connector = ""

    async def reread(self) -> None:
        """Have the metadata of the provider read again."""
        answer = await self.management.client.post(f"/api/sso-connectors/{self.connector}/test")
        assert answer.status_code == 204, answer.text

    async def published(self, connector: str = "") -> ConnectorState:
        """Return the published state of the connector."""
        return msgspec.convert(
            await self.management.event_data("connector", connector or self.connector), type=ConnectorState
        )

    async def said(self, identity: str) -> ProviderGroupsState:
        """Return what the last sign-in with an identity has said, as published."""
        return msgspec.convert(await self.management.event_data("provider-groups", identity), type=ProviderGroupsState)

    async def ask(self, question: ProviderQuestion) -> ProviderAnswer:
        sealed = self._requests.seal_question(question)
        reply = await self._client.request(self._requests.subject, sealed, timeout=20)
        return self._requests.open_answer(reply.data, sealed_question=sealed)

    async def begin(self, verifier: str, **members: Any) -> dict[str, str]:
        """Return the parameters with which a browser is sent to the provider."""
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
        question = BeginAtProvider(
            connector_id=self.connector,
            redirect_uri=CALLBACK,
            state=secrets.token_urlsafe(16),
            nonce=secrets.token_urlsafe(16),
            code_challenge=challenge,
            **members,
        )
        answer = await self.ask(question)
        assert isinstance(answer, ProviderAddress), answer
        assert answer.url.startswith(f"{self.provider.issuer}/authorize?")
        return dict(parse_qsl(urlsplit(answer.url).query))

    async def sign_in(
        self,
        *,
        changed: dict[str, Any] | None = None,
        token: Callable[[str], str] | None = None,
        **person: Any,
    ) -> ProviderAnswer:
        """Sign a person in at the provider, and return the answer to the code."""
        self.provider.token = token
        if person:
            self.provider.person = person
        verifier = secrets.token_urlsafe(32)
        asked = await self.begin(verifier)
        question = {
            "connector_id": self.connector,
            "redirect_uri": CALLBACK,
            "code": self.provider.code(asked),
            "code_verifier": verifier,
            "nonce": asked["nonce"],
            "begun_at": int(time.time() * 1000),
            **(changed or {}),
        }
        return await self.ask(FinishAtProvider(**question))

    async def signed_in(self, **person: Any) -> ProviderPerson:
        """Sign a person in who has a user, or gets one."""
        answer = await self.sign_in(**person)
        assert isinstance(answer, ProviderPerson), answer
        return answer

    async def user(self, user_id: str) -> dict[str, Any]:
        answer = await self.management.client.get(f"/api/users/{user_id}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())
