"""The scenarios: their parties, their requests, and the source of subject tokens."""

import base64
import time
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlencode

import msgspec
import redis

from benchmarks.load import HOST, Step
from identity_common.identifiers import new_id, new_secret
from identity_common.oauth import GRANT_CLIENT_CREDENTIALS, GRANT_TOKEN_EXCHANGE, TOKEN_TYPE_ACCESS_TOKEN
from identity_common.wire.subject_tokens import PREFIX, SubjectTokenRecord, subject_token_key
from stead import ManagementClient

MANAGEMENT_API: Final = "https://default.service.internal/api"
RESOURCE: Final = "https://orders.example.com/api"
_SCOPES: Final = ("read:orders", "write:orders")
_TTL_S: Final = 600
SUBJECT_TOKEN_CHARS: Final = len(PREFIX) + 43


class Client(msgspec.Struct, frozen=True):
    """An application with its secret."""

    id: str
    secret: str

    @property
    def basic(self) -> str:
        """The value of its Authorization header (RFC 7617; ids and secrets are alphanumeric)."""
        return "Basic " + base64.b64encode(f"{self.id}:{self.secret}".encode()).decode()


class Parties(msgspec.Struct, frozen=True, kw_only=True):
    """The parties of an impersonation.

    Attributes:
        user_id: The user of the subject tokens, who holds both scopes through an API role.
        backend: Machine-to-machine, with full access to the Management API and both scopes.
        application: Traditional, with token exchange allowed.
        revision: Of management-service, after all of this was created.
    """

    user_id: str
    backend: Client
    application: Client
    revision: int


def make_parties(management: ManagementClient) -> Parties:
    """Create the parties through the Management API."""
    resource = management.resources.create("Orders", RESOURCE)
    scopes = [management.resources.create_scope(resource.id, name).id for name in _SCOPES]
    api = next(each for each in management.resources.list() if each.indicator == MANAGEMENT_API)
    management_scopes = [scope.id for scope in management.resources.scopes(api.id)]
    customer = management.roles.create("Customer", "Sees and changes orders", "User", scopes)
    backend = management.roles.create(
        "Backend", "Mints and works on orders", "MachineToMachine", [*scopes, *management_scopes]
    )
    user = management.users.create(name="A Customer", custom_data={"plan": "gold", "since": 2019})
    management.users.assign_roles(user.id, [customer.id])
    m2m = management.applications.create(name="Backend", type="MachineToMachine")
    management.applications.assign_roles(m2m.id, [backend.id])
    web = management.applications.create(
        name="Web", type="Traditional", custom_client_metadata={"allowTokenExchange": True}
    )
    m2m_secret = management.applications.create_secret(m2m.id, "first").value or ""
    web_secret = management.applications.create_secret(web.id, "first").value or ""
    return Parties(
        user_id=user.id,
        backend=Client(m2m.id, m2m_secret),
        application=Client(web.id, web_secret),
        revision=int((management.last_revision or "").removeprefix("management:")),
    )


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """The targets and parties of the requests.

    Attributes:
        parties: The parties.
        token_port: Of token-service.
        management_port: Of management-service.
        floor_port: Of the floor, which receives the same requests as the exchange.
        access_token: Of the backend, for the Management API.
    """

    parties: Parties
    token_port: int
    management_port: int
    floor_port: int
    access_token: str


def floor(stage: Stage) -> list[Step]:
    """The minimum that a correct token endpoint must do."""
    return [_exchange(stage.parties, stage.floor_port)]


def token_exchange(stage: Stage) -> list[Step]:
    """Exchange a subject token that was stored beforehand."""
    return [_exchange(stage.parties, stage.token_port)]


def client_credentials(stage: Stage) -> list[Step]:
    """Request a token of a machine-to-machine client."""
    form = {"grant_type": GRANT_CLIENT_CREDENTIALS, "resource": RESOURCE, "scope": " ".join(_SCOPES)}
    return [form_step(stage.token_port, stage.parties.backend, urlencode(form), "")]


def minting(stage: Stage) -> list[Step]:
    """Mint a subject token."""
    body = {"userId": stage.parties.user_id, "context": {"ticket": "T-1042", "reason": "call"}}
    return [msgspec.structs.replace(_management(stage, "POST", "/api/subject-tokens", body), status=201, mints=True)]


def full_cycle(stage: Stage) -> list[Step]:
    """Mint a subject token and exchange it."""
    return [*minting(stage), *token_exchange(stage)]


def reading_a_user(stage: Stage) -> list[Step]:
    """Read one user through the Management API."""
    return [_management(stage, "GET", f"/api/users/{stage.parties.user_id}")]


def creating_a_user(stage: Stage) -> list[Step]:
    """Create a user through the Management API, which answers once the event is in the stream."""
    return [_management(stage, "POST", "/api/users", {"name": "Another Customer"})]


def list_of_users(stage: Stage) -> list[Step]:
    """Read the first 100 users and their total through the Management API."""
    return [_management(stage, "GET", "/api/users?page=1&page_size=100")]


FLOOR: Final = "floor"
SCENARIOS: Final[Mapping[str, Callable[[Stage], list[Step]]]] = {
    FLOOR: floor,
    "token exchange": token_exchange,
    "client credentials": client_credentials,
    "minting": minting,
    "full cycle": full_cycle,
    "reading a user": reading_a_user,
    "creating a user": creating_a_user,
}
"""The rows of the table: the requests of one pass of each scenario."""


def needs_subject_tokens(scenario: str) -> bool:
    """Return whether each pass needs a subject token that was stored beforehand."""
    return scenario in {FLOOR, "token exchange"}


def _exchange(parties: Parties, port: int) -> Step:
    first = {"grant_type": GRANT_TOKEN_EXCHANGE, "subject_token": ""}
    rest = {"subject_token_type": TOKEN_TYPE_ACCESS_TOKEN, "resource": RESOURCE, "scope": " ".join(_SCOPES)}
    return form_step(port, parties.application, urlencode(first), "&" + urlencode(rest), between=SUBJECT_TOKEN_CHARS)


def form_step(port: int, client: Client, first: str, rest: str, *, between: int = 0) -> Step:
    length = len(first) + between + len(rest)
    head = _head("POST", "/oidc/token", client.basic, "application/x-www-form-urlencoded", length)
    return Step(port, head + first.encode(), rest.encode())


def _management(stage: Stage, method: str, path: str, body: object = None) -> Step:
    encoded = b"" if body is None else msgspec.json.encode(body)
    head = _head(method, path, f"Bearer {stage.access_token}", "application/json", len(encoded))
    return Step(stage.management_port, head + encoded)


def _head(method: str, path: str, authorization: str, content_type: str, length: int) -> bytes:
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: {HOST}",
        "Accept: application/json",
        "User-Agent: benchmark/1",
        f"Authorization: {authorization}",
    ]
    if length:
        lines += [f"Content-Type: {content_type}", f"Content-Length: {length}"]
    return "\r\n".join([*lines, "", ""]).encode()


class Mint:
    """Writes subject tokens into Redis in bulk: the same records with the same Redis user as management-service."""

    def __init__(self, redis_url: str, parties: Parties) -> None:
        self._redis = redis.Redis.from_url(redis_url)
        self._parties = parties

    def __call__(self, count: int) -> list[str]:
        """Return new subject tokens."""
        now = time.time_ns() // 1_000_000
        tokens = [PREFIX + new_secret() for _ in range(count)]
        pipeline = self._redis.pipeline(transaction=False)
        for token in tokens:
            record = SubjectTokenRecord(
                id=new_id(),
                user_id=self._parties.user_id,
                issued_to=self._parties.backend.id,
                issued_at=now,
                expires_at=now + _TTL_S * 1000,
                revision=self._parties.revision,
                context=msgspec.Raw(b'{"ticket":"T-1042","reason":"call"}'),
            )
            pipeline.set(subject_token_key("default", token), msgspec.json.encode(record), nx=True, px=_TTL_S * 1000)
        if not all(pipeline.execute()):
            raise RuntimeError("Redis did not store every subject token")
        return tokens

    def close(self) -> None:
        """Close the connection."""
        self._redis.close()
