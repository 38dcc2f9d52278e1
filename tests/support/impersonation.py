"""The set-up of an impersonation through the Management API, and its application's requests to a chosen replica."""

import base64
from typing import Any, NamedTuple

import httpx2 as httpx
import msgspec

from identity_common.oauth import GRANT_TOKEN_EXCHANGE, TOKEN_TYPE_ACCESS_TOKEN
from provision import ServerAddresses
from stead import ManagementClient, Unavailable
from tests.support.authorizing import REDIRECT_URI, Verifier, code_for, issued
from tests.support.processes import Deployment, ServiceProcess
from token_service.authorizations import Code, Consented
from token_service.settings import Settings

RESOURCE = "https://shop.example.com/api"
_TIMEOUT_S = 30

CONSENTED = Consented(
    scopes=frozenset({"openid", "offline_access"}),
    resource_scopes={RESOURCE: frozenset({"read:orders", "write:orders"})},
)


class Impersonation(msgspec.Struct, frozen=True, kw_only=True):
    """Ids and secrets of one set-up."""

    user_id: str
    role_id: str
    resource_id: str
    client_id: str
    client_secret: str

    def form(self, subject_token: str) -> dict[str, str]:
        """Return the form of an exchange for the resource."""
        return {
            "grant_type": GRANT_TOKEN_EXCHANGE,
            "subject_token": subject_token,
            "subject_token_type": TOKEN_TYPE_ACCESS_TOKEN,
            "resource": RESOURCE,
            "scope": "read:orders write:orders",
        }

    @property
    def auth(self) -> httpx.BasicAuth:
        return httpx.BasicAuth(self.client_id, self.client_secret)


def set_up(management: ManagementClient, *, resource: str = RESOURCE) -> Impersonation:
    """Create everything and return it."""
    made = management.resources.create("Shop", resource)
    scopes = [management.resources.create_scope(made.id, name).id for name in ("read:orders", "write:orders")]
    role = management.roles.create(f"Shopper of {made.id}", "may see and change orders", "User", scopes)
    user = management.users.create(name="Customer")
    management.users.assign_roles(user.id, [role.id])
    application = management.applications.create(
        name="Shop", type="Traditional", custom_client_metadata={"allowTokenExchange": True}
    )
    secret = management.applications.create_secret(application.id, "first")
    return Impersonation(
        user_id=user.id,
        role_id=role.id,
        resource_id=made.id,
        client_id=application.id,
        client_secret=secret.value or "",
    )


class Machine(NamedTuple):
    """A machine-to-machine application that holds read:orders."""

    client_id: str
    secret: str


def make_machine(management: ManagementClient, impersonation: Impersonation) -> Machine:
    """Create the application, with its own role."""
    application = management.applications.create(name="Batch", type="MachineToMachine")
    secret = management.applications.create_secret(application.id, "first")
    scope = next(s for s in management.resources.scopes(impersonation.resource_id) if s.name == "read:orders")
    role = management.roles.create(f"Reader {application.id}", "reads", "MachineToMachine", [scope.id])
    management.applications.assign_roles(application.id, [role.id])
    return Machine(application.id, secret.value or "")


def client_token(url: str, machine: Machine, *, revision: str | None = None, **more: str) -> httpx.Response:
    """Request a token for the machine from a replica, which awaits the revision."""
    form = {"grant_type": "client_credentials", "resource": RESOURCE, "scope": "read:orders", **more}
    headers = {} if revision is None else {"Identity-Revision": revision}
    return httpx.post(f"{url}/oidc/token", data=form, auth=machine, headers=headers, timeout=_TIMEOUT_S)


def exchange(url: str, impersonation: Impersonation, subject_token: str) -> httpx.Response:
    """Exchange a subject token at a replica."""
    form = impersonation.form(subject_token)
    return httpx.post(f"{url}/oidc/token", data=form, auth=impersonation.auth, timeout=_TIMEOUT_S)


def cycle_works(deployment: Deployment, management: ManagementClient, impersonation: Impersonation) -> bool:
    """Mint and exchange at every replica; a replica that succeeds has seen all changes before the minting."""
    for process in deployment.tokens:
        try:
            subject_token = management.subject_tokens.create(impersonation.user_id).token
        except Unavailable:
            return False
        answer = exchange(process.url, impersonation, subject_token)
        if answer.status_code != 200:
            assert answer.status_code == 503, answer.text
            return False
        assert answer.json()["scope"] == "read:orders write:orders"
    return True


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
        return httpx.post(
            f"{url}{path}",
            data=form,
            auth=self._impersonation.auth,
            timeout=_TIMEOUT_S,
        )

    def sign_in(self, *, consented: Consented = CONSENTED, revision: int = 0) -> dict[str, str]:
        """Return the form that redeems a new code, of a sign-in at this revision of management-service."""
        verifier, whose = Verifier(), (self._impersonation.user_id, self._impersonation.client_id)
        code: Code = code_for(*whose, verifier, consented=consented, revision=revision)
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
