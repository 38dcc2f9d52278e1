"""The data of the protocol tests: a client of every kind, a resource and users; and a valid exchange to spoil."""

import asyncio
import base64
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import httpx2 as httpx
import jwt
import msgspec
import redis

from identity_common.identifiers import new_id
from identity_common.oauth import GRANT_TOKEN_EXCHANGE, TOKEN_TYPE_ACCESS_TOKEN
from identity_common.wire.subject_tokens import subject_token_key
from provision import ServerAddresses
from stead import ManagementClient
from stead.event_types import MemberType
from tests.support.forger import Forger
from tests.support.organization_template import OrganizationTemplate
from tests.support.running_stack import RunningStack
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import eventually

MANAGEMENT_API = "https://default.service.internal/api"
NOT_ACCEPTABLE = "the subject token or the actor token is not acceptable"
_LATE_S = 0.2

Form = dict[str, str | list[str] | None]


class Client:
    """An application and, unless it is public, one live secret."""

    def __init__(self, client_id: str, secret: str | None = None) -> None:
        self.id = client_id
        self.secret = secret

    @property
    def basic(self) -> tuple[str, str]:
        assert self.secret is not None
        return self.id, self.secret

    def __repr__(self) -> str:
        return f"Client({self.id!r})"


INVALID_CLIENT_DESCRIPTION = (
    "client authentication failed: an application with a secret must authenticate with the Authorization header "
    "(HTTP Basic), unless it may use client_secret_post"
)


def error_body(error: str, description: str) -> dict[str, str]:
    """Return the whole body of a refusal."""
    return {"error": error, "error_description": description, "code": f"oidc.{error}", "message": description}


def outcome(answer: httpx.Response) -> tuple[int, str | None]:
    """Return the status and the error, None for a success."""
    return answer.status_code, answer.json().get("error")


REFUSED = error_body("invalid_request", NOT_ACCEPTABLE)


def refused_token(answer: httpx.Response) -> bool:
    """Tell whether a subject or actor token was refused; any other refusal fails the test."""
    if answer.status_code == 200:
        return False
    assert (answer.status_code, answer.json()) == (400, REFUSED)
    return True


class World:
    """A small world on the running stack, made through the Management API.

    Attributes:
        resource: Indicator of an API with the scopes ``read:things``, ``write:things`` and ``purge:things``.
        resource_ttl_s: Lifetime of its tokens.
        other_resource: Indicator of another API, with its own scope ``read:things``.
        customer: A user who holds ``read:things`` and ``write:things`` of the resource.
        agent: A user who holds nothing.
        permission_ids: By name, the organization permissions ``read:invoices``, ``write:invoices``, ``sign:invoices``,
            each with a suffix unique to this world: see ``permission``.
        clerk_roles: For members of each kind, an organization role with the first two of them, ``write:things`` and
            ``purge:things``.
        organization: An organization in which the customer and the machine are clerks.
        other_organization: An organization without members.
    """

    def __init__(self, stack: RunningStack) -> None:
        self.stack = stack
        self.management: ManagementClient = stack.management
        self.redis = redis.Redis.from_url(stack.addresses.admin_redis_url)
        name = secrets.token_hex(4)
        self.resource, self.resource_ttl_s = f"https://things-{name}.example.com/api", 1234
        self.other_resource = f"https://other-{name}.example.com/api"
        things = self.management.resources.create("Things", self.resource, self.resource_ttl_s)
        other = self.management.resources.create("Other things", self.other_resource)
        self.scope_ids = {
            scope: self.management.resources.create_scope(things.id, scope).id
            for scope in ("read:things", "write:things", "purge:things")
        }
        self.management.resources.create_scope(other.id, "read:things")
        self._role_name = f"role {name}"
        self.keeper_role = self.role("read:things", "write:things")
        self.machine_role = self.role("read:things", kind="MachineToMachine")
        self.customer = self.user(self.keeper_role)
        self.agent = self.user()
        self.traditional = self.client("Traditional")
        self.spa = self.client("SPA")
        self.native = self.client("Native")
        self.traditional_without_exchange = self.client("Traditional", exchange=False)
        self.spa_without_exchange = self.client("SPA", exchange=False)
        self.third_party = self.client("Traditional", exchange=False, third_party=True)
        self.machine = self.client("MachineToMachine", exchange=False)
        self.management.applications.assign_roles(self.machine.id, [self.machine_role])
        self.machine_without_roles = self.client("MachineToMachine", exchange=False)
        self.template = OrganizationTemplate(self.management)
        self._suffix = name
        self.permission_ids = {
            name: self.template.permission(name)
            for name in map(self.permission, ("read:invoices", "write:invoices", "sign:invoices"))
        }
        kinds: tuple[MemberType, ...] = get_args(MemberType)
        self.clerk_roles = {
            kind: self.organization_role(
                "read:invoices", "write:invoices", scopes=("write:things", "purge:things"), kind=kind
            )
            for kind in kinds
        }
        self.organization = self.template.organization()
        self.other_organization = self.template.organization()
        self.template.member(self.organization, self.customer, self.clerk_roles["user"])
        self.template.member(self.organization, self.machine.id, self.clerk_roles["application"], kind="application")

    @cached_property
    def forger(self) -> Forger:
        return Forger(self.stack.token_settings)

    def close(self) -> None:
        self.redis.close()

    # the data

    def role(self, *scopes: str, kind: str = "User") -> str:
        """Create an API role with these scopes of the resource."""
        name = f"{self._role_name} {secrets.token_hex(4)}"
        ids = [self.scope_ids[scope] for scope in scopes]
        return self.management.roles.create(name, "for tests", kind, ids).id  # type: ignore[arg-type]

    def permission(self, name: str) -> str:
        """Return the full name of an organization permission of this world: all worlds share one template."""
        return f"{name}:{self._suffix}"

    def organization_role(self, *permissions: str, scopes: Sequence[str] = (), kind: MemberType = "user") -> str:
        """Create an organization role with these permissions and scopes of the resource."""
        return self.template.role(kind, **self.organization_role_contents(*permissions, scopes=scopes))

    def organization_role_contents(self, *permissions: str, scopes: Sequence[str] = ()) -> dict[str, list[str]]:
        """Return the ids of the permissions and scopes that an organization role grants."""
        return {
            "permission_ids": [self.permission_ids[self.permission(name)] for name in permissions],
            "scope_ids": [self.scope_ids[scope] for scope in scopes],
        }

    def organization_audience(self, organization_id: str | None = None) -> str:
        """Return the audience of the tokens of an organization."""
        namespace = self.stack.token_settings.urn_namespace
        return f"urn:{namespace}:organization:{organization_id or self.organization}"

    def user(self, *role_ids: str) -> str:
        """Create a user with these roles."""
        user_id = self.management.users.create(name="Somebody").id
        if role_ids:
            self.management.users.assign_roles(user_id, role_ids)
        return user_id

    def client(self, kind: str, *, exchange: bool = True, third_party: bool = False) -> Client:
        """Create an application, with a secret unless its kind is public."""
        application = self.management.applications.create(
            name=f"{kind} {secrets.token_hex(4)}",
            type=kind,  # type: ignore[arg-type]
            custom_client_metadata={"allowTokenExchange": True} if exchange else None,
            is_third_party=third_party,
        )
        if kind in {"SPA", "Native"}:
            return Client(application.id)
        return Client(application.id, self.management.applications.create_secret(application.id, "first").value)

    def reader(self) -> str:
        """Create a user who may read everything of the Management API."""
        return self.user(self._management_role("read", "User"))

    def _management_role(self, scope_name: str, kind: Literal["User", "MachineToMachine"]) -> str:
        api = next(each for each in self.management.resources.list() if each.indicator == MANAGEMENT_API)
        scope = next(each for each in self.management.resources.scopes(api.id) if each.name == scope_name)
        name = f"{self._role_name} {secrets.token_hex(4)}"
        return self.management.roles.create(name, "of the Management API", kind, [scope.id]).id

    def minter(self) -> ManagementClient:
        """Return a client of the Management API with its own application, which may mint subject tokens."""
        machine = self.client("MachineToMachine", exchange=False)
        self.management.applications.assign_roles(
            machine.id, [self._management_role("subject-tokens", "MachineToMachine")]
        )
        return ManagementClient(
            self.stack.base_url,
            client_id=machine.id,
            client_secret=machine.secret or "",
            scope="subject-tokens",
            http=self.stack.http,
        )

    # requests

    def subject_token(self, user_id: str | None = None) -> str:
        """Return a new subject token, for the customer by default."""
        return self.stack.subject_token(user_id or self.customer)

    def is_usable(self, subject_token: str) -> bool:
        """Return whether a subject token is still in the store, without spending it."""
        return bool(self.redis.exists(subject_token_key("default", subject_token)))

    def exchange_form(self, subject_token: str, /, **changes: str | list[str] | None) -> Form:
        """Return the form of a valid exchange with these changes."""
        return {
            "grant_type": GRANT_TOKEN_EXCHANGE,
            "subject_token": subject_token,
            "subject_token_type": TOKEN_TYPE_ACCESS_TOKEN,
            "resource": self.resource,
            "scope": "read:things",
            **changes,
        }

    def exchange(
        self,
        subject_token: str,
        /,
        *,
        client: Client | None = None,
        headers: Mapping[str, str] | None = None,
        **changes: str | list[str] | None,
    ) -> httpx.Response:
        """Exchange a subject token as a client, the Traditional one by default."""
        client = client or self.traditional
        form = self.exchange_form(subject_token, **changes)
        if client.secret is None:
            form.setdefault("client_id", client.id)
        return self.stack.token_request(form, auth=client.basic if client.secret else None, **(headers or {}))

    def caught_up(self) -> None:
        """Return when token-service knows of every write so far: a request with the last revision waits for it."""
        named = {"Identity_Revision": self.template.last_revision}
        eventually(lambda: self.exchange(self.subject_token(), headers=named).status_code == 200)

    def client_credentials(
        self, client: Client | None = None, *, headers: Mapping[str, str] | None = None, **changes: Any
    ) -> httpx.Response:
        """Request a token for a machine-to-machine client."""
        form = {"grant_type": "client_credentials", "resource": self.resource, "scope": "read:things", **changes}
        return self.stack.token_request(form, auth=(client or self.machine).basic, **(headers or {}))

    def userinfo_token(self, user_id: str | None = None, *, scope: str = "openid", client: Client | None = None) -> str:
        """Return a userinfo token from a sign-in, which can be an actor token; for the agent by default."""
        from tests.support.signing_in import SignIn  # it imports this module

        return str(SignIn(self, client, user_id or self.agent, scope=scope).tokens()["access_token"])

    def exchanged_userinfo_token(self, user_id: str | None = None, *, scope: str = "openid", **changes: Any) -> str:
        """Return a userinfo token from an exchange, for the agent by default."""
        answer = self.exchange(self.subject_token(user_id or self.agent), resource=None, scope=scope, **changes)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["access_token"])

    def with_actor(self, actor_token: str, **changes: Any) -> httpx.Response:
        """Exchange a new subject token with an actor token."""
        return self.exchange(
            self.subject_token(), actor_token=actor_token, actor_token_type=TOKEN_TYPE_ACCESS_TOKEN, **changes
        )

    # answers

    @cached_property
    def _keys(self) -> dict[str, Any]:
        keys = self.stack.http.get("/oidc/jwks").json()["keys"]
        return {key["kid"]: jwt.PyJWK(key).key for key in keys}

    def claims(self, access_token: str, audience: str) -> dict[str, Any]:
        """Verify an access token with a third-party library, and return its claims."""
        key = self._keys[jwt.get_unverified_header(access_token)["kid"]]
        return jwt.decode(
            access_token,
            key,
            algorithms=["ES256"],
            audience=audience,
            issuer=self.stack.issuer,
            leeway=2,
        )


def last_revision(world: World) -> dict[str, str]:
    """Return the header that names the last write."""
    assert world.management.last_revision is not None
    return {"Identity_Revision": world.management.last_revision}


def basic(client_id: str, secret: str) -> str:
    """Return the value of an Authorization header."""
    return "Basic " + base64.b64encode(f"{client_id}:{secret}".encode()).decode()


def create_then_use(world: World) -> dict[str, object]:
    """Create something of every kind and use it in the very next request, without a header.

    Returns:
        The unexpected answers by kind; empty on success.
    """
    management = world.management
    wrong: dict[str, object] = {}

    def expect(what: str, answer: object, good: object) -> None:
        if answer != good:
            wrong[what] = answer

    application = world.client("Traditional")
    expect("application and secret", outcome(world.exchange("sub_x", client=application))[0], 400)

    user = world.user()
    expect("user", outcome(world.exchange(world.subject_token(user), client=application)), (200, None))

    resource = management.resources.create("New", f"https://{new_id()}.example.com/api")
    expect("resource", outcome(world.exchange(world.subject_token(user), resource=resource.indicator)), (200, None))

    early = world.subject_token(user)
    scope = management.resources.create_scope(resource.id, "read:new")
    role = management.roles.create(f"role {resource.id}", "new", "User", [scope.id])
    management.users.assign_roles(user, [role.id])
    answer = world.exchange(early, resource=resource.indicator, scope="read:new openid")
    expect("assignment", (answer.status_code, answer.json().get("scope")), (200, "read:new"))

    second = management.resources.create_scope(resource.id, "write:new")
    management.roles.assign_scopes(role.id, [second.id])
    answer = world.exchange(world.subject_token(user), resource=resource.indicator, scope="read:new write:new")
    expect("scope", (answer.status_code, answer.json().get("scope")), (200, "read:new write:new"))

    machine = world.client("MachineToMachine", exchange=False)
    expect("machine", outcome(world.client_credentials(machine)), (200, None))
    machine_role = management.roles.create(f"machine role {resource.id}", "new", "MachineToMachine", [scope.id])
    management.applications.assign_roles(machine.id, [machine_role.id])
    answer = world.client_credentials(machine, resource=resource.indicator, scope="read:new")
    expect("machine's assignment", (answer.status_code, answer.json().get("scope")), (200, "read:new"))
    management.roles.assign_scopes(machine_role.id, [second.id])
    answer = world.client_credentials(machine, resource=resource.indicator, scope="write:new")
    expect("machine's scope", (answer.status_code, answer.json().get("scope")), (200, "write:new"))

    actor = world.user()
    expect("actor", outcome(world.with_actor(world.userinfo_token(actor))), (200, None))
    return wrong


@contextmanager
def own_world(servers: ServerAddresses, directory: Path, name: str, **token_settings: Any) -> Iterator[World]:
    """Start a world on a system and in a tenant of its own.

    Args:
        servers: The servers behind it.
        directory: For its files.
        name: Begins the name of the tenant.
        token_settings: Other settings of token-service than the default ones.
    """
    stack = RunningStack(servers, directory, tenant_id=f"{name}-{secrets.token_hex(4)}", **token_settings)
    stack.start()
    try:
        world = World(stack)
        yield world
        world.close()
    finally:
        stack.stop()


@asynccontextmanager
async def world_of_late_news(servers: ServerAddresses, directory: Path, **token_settings: Any) -> AsyncIterator[World]:
    """Start a world, in its own tenant, in which token-service receives every change with a delay.

    Args:
        servers: The servers behind it.
        directory: For its files.
        token_settings: For example how long token-service waits for a revision, or to catch up.
    """
    async with TcpProxy(servers.token_nats_url, delay_s=_LATE_S) as wire:
        stack = RunningStack(
            msgspec.structs.replace(servers, token_nats_url=wire.url),
            directory,
            tenant_id=f"late-{secrets.token_hex(4)}",
            **token_settings,
        )
        await asyncio.to_thread(stack.start)
        world = await asyncio.to_thread(World, stack)
        yield world
        world.close()
        await asyncio.to_thread(stack.stop)
