"""The application of an impersonation's set-up, which redeems codes and refreshes tokens at a chosen replica."""

import base64
from typing import Any

import httpx2 as httpx

from provision import ServerAddresses
from tests.support.authorizing import REDIRECT_URI, Verifier, code_for, issued
from tests.support.impersonation import RESOURCE, Impersonation
from tests.support.processes import Deployment, ServiceProcess
from token_service.authorizations import Code, Consented
from token_service.settings import Settings

CONSENTED = Consented(
    scopes=frozenset({"openid", "offline_access"}),
    resource_scopes={RESOURCE: frozenset({"read:orders", "write:orders"})},
)


class Application:
    """Sends its requests to a chosen replica, the first one by default."""

    def __init__(self, deployment: Deployment, impersonation: Impersonation, addresses: ServerAddresses) -> None:
        self._impersonation = impersonation
        self._replicas = deployment.tokens
        self._settings = Settings(
            base_url=deployment.base_url,
            environment="development",
            database_url=addresses.token_database_url,
            redis_url=addresses.token_redis_url,
            nats_url=addresses.token_nats_url,
            key_encryption_keys=(base64.b64encode(bytes(32)).decode(),),
            environment_variable_keys=(base64.b64encode(bytes(32)).decode(),),
        )

    def post(self, path: str, replica: ServiceProcess | None = None, **form: str) -> httpx.Response:
        url = (replica or self._replicas[0]).url
        return httpx.post(f"{url}{path}", data=form, auth=self._impersonation.auth, timeout=10)

    def sign_in(self) -> dict[str, str]:
        """Return the form that redeems a new code."""
        verifier = Verifier()
        code: Code = code_for(self._impersonation.user_id, self._impersonation.client_id, verifier, consented=CONSENTED)
        return {
            "grant_type": "authorization_code",
            "code": issued(self._settings, code),
            "redirect_uri": REDIRECT_URI,
            "code_verifier": verifier.secret,
        }

    def tokens(self, replica: ServiceProcess | None = None) -> dict[str, Any]:
        answer = self.post("/oidc/token", replica, **self.sign_in())
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def refresh(self, refresh_token: str, replica: ServiceProcess | None = None) -> httpx.Response:
        return self.post("/oidc/token", replica, grant_type="refresh_token", refresh_token=refresh_token)

    def is_active(self, token: str, replica: ServiceProcess | None = None) -> bool | None:
        """Return the ``active`` of introspection; None for 503."""
        answer = self.post("/oidc/token/introspection", replica, token=token)
        if answer.status_code == 503:
            assert int(answer.headers["Retry-After"]) >= 1
            return None
        assert answer.status_code == 200, answer.text
        return bool(answer.json()["active"])
