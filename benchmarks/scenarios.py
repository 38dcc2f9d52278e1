"""What is measured: whom the requests are about, their bytes, and where subject tokens come from."""

import base64
import time
from typing import Final
from urllib.parse import urlencode

import msgspec
import redis

from benchmarks.load import HOST, Step
from identity_common.identifiers import new_id, new_secret
from identity_common.oauth import GRANT_CLIENT_CREDENTIALS, GRANT_TOKEN_EXCHANGE, TOKEN_TYPE_ACCESS_TOKEN
from identity_common.wire.subject_tokens import PREFIX, SubjectTokenRecord, subject_token_key
from identity_sdk import ManagementClient

SCENARIOS: Final = ("floor", "token exchange", "client credentials", "minting", "full cycle")
FLOOR: Final = SCENARIOS[0]

MANAGEMENT_API: Final = "https://default.service.internal/api"
_RESOURCE: Final = "https://orders.example.com/api"
_SCOPES: Final = ("read:orders", "write:orders")
_TTL_S: Final = 600
SUBJECT_TOKEN_CHARS: Final = len(PREFIX) + 43


class Client(msgspec.Struct, frozen=True):
    """An application with its secret."""

    id: str
    secret: str

    @property
    def basic(self) -> str:
        """The value of its Authorization header (RFC 7617; ids and secrets are letters and digits)."""
        return "Basic " + base64.b64encode(f"{self.id}:{self.secret}".encode()).decode()


class Parties(msgspec.Struct, frozen=True, kw_only=True):
    """Who takes part in an impersonation.

    Attributes:
        user_id: For whom subject tokens are minted; holds both scopes through an API role.
        backend: Machine-to-machine: may mint, and holds both scopes itself.
        application: Traditional: may exchange tokens.
        revision: Management's, when everything was made.
    """

    user_id: str
    backend: Client
    application: Client
    revision: int


def make_parties(management: ManagementClient) -> Parties:
    """Make everything that the requests are about, through the Management API."""
    resource = management.resources.create("Orders", _RESOURCE)
    scopes = [management.resources.create_scope(resource.id, name).id for name in _SCOPES]
    api = next(each for each in management.resources.list() if each.indicator == MANAGEMENT_API)
    minting = next(scope.id for scope in management.resources.scopes(api.id) if scope.name == "subject-tokens")
    customer = management.roles.create("Customer", "Sees and changes orders", "User", scopes)
    backend = management.roles.create("Backend", "Mints and works on orders", "MachineToMachine", [*scopes, minting])
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


def steps(
    scenario: str, parties: Parties, *, token_port: int, management_port: int, floor_port: int, access_token: str
) -> list[Step]:
    """Return the requests of one pass.

    Args:
        scenario: One of ``SCENARIOS``.
        parties: Whom they are about.
        token_port: Of token-service.
        management_port: Of management-service.
        floor_port: Of the floor, which gets the very requests of the exchange.
        access_token: The backend's, for the Management API.
    """
    if scenario == FLOOR:
        return [_exchange(parties, floor_port)]
    if scenario == "token exchange":
        return [_exchange(parties, token_port)]
    if scenario == "client credentials":
        form = {"grant_type": GRANT_CLIENT_CREDENTIALS, "resource": _RESOURCE, "scope": " ".join(_SCOPES)}
        return [form_step(token_port, parties.backend, urlencode(form), "")]
    minting = _minting(parties, management_port, access_token)
    if scenario == "minting":
        return [minting]
    return [minting, _exchange(parties, token_port)]


def needs_subject_tokens(scenario: str) -> bool:
    """Return whether each pass takes a subject token that is there beforehand."""
    return scenario in {FLOOR, "token exchange"}


def _exchange(parties: Parties, port: int) -> Step:
    first = {"grant_type": GRANT_TOKEN_EXCHANGE, "subject_token": ""}
    rest = {"subject_token_type": TOKEN_TYPE_ACCESS_TOKEN, "resource": _RESOURCE, "scope": " ".join(_SCOPES)}
    return form_step(port, parties.application, urlencode(first), "&" + urlencode(rest), between=SUBJECT_TOKEN_CHARS)


def form_step(port: int, client: Client, first: str, rest: str, *, between: int = 0) -> Step:
    head = _head("/oidc/token", client.basic, "application/x-www-form-urlencoded", len(first) + between + len(rest))
    return Step(port, head + first.encode(), rest.encode())


def _minting(parties: Parties, port: int, access_token: str) -> Step:
    body = msgspec.json.encode({"userId": parties.user_id, "context": {"ticket": "T-1042", "reason": "call"}})
    head = _head("/api/subject-tokens", f"Bearer {access_token}", "application/json", len(body))
    return Step(port, head + body, status=201, mints=True)


def _head(path: str, authorization: str, content_type: str, length: int) -> bytes:
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: {HOST}",
        "Accept: application/json",
        "User-Agent: benchmark/1",
        f"Authorization: {authorization}",
        f"Content-Type: {content_type}",
        f"Content-Length: {length}",
    ]
    return "\r\n".join([*lines, "", ""]).encode()


class Mint:
    """Writes subject tokens into Redis in bulk: the same records, by the same user, as management-service."""

    def __init__(self, redis_url: str, parties: Parties) -> None:
        self._redis = redis.Redis.from_url(redis_url)
        self._parties = parties

    def __call__(self, count: int) -> list[str]:
        """Return so many new subject tokens."""
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
