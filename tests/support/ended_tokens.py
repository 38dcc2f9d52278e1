"""Every kind of token of one user, and every path that takes it, to see where and when it is rejected."""

from __future__ import annotations

import secrets
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cached_property, partial
from typing import Any, Final

import httpx2 as httpx

from identity_common.oauth import TOKEN_TYPE_ACCESS_TOKEN
from stead import AccessTokenVerifier, NotValidFeed, TokenInvalid
from tests.support.processes import free_port
from tests.support.serving import serving
from tests.support.signing_in import SignIn
from tests.support.waiting import WAIT_S, eventually
from tests.support.world import Client, World

KEYS: Final = "/api/configs/oidc/private-keys"


class Readers:
    """What checks tokens without asking: SDK verifiers on both feeds, and verifier processes.

    Attributes:
        world: Whose tokens.
        feeds: By path.
        managing_role: A role of machines, with every permission of the Management API.
        times_ms: By path, from each acknowledged change to the first rejection.
    """

    def __init__(self, world: World, feeds: dict[str, NotValidFeed], running: ExitStack) -> None:
        self.world = world
        self.feeds = feeds
        self.managing_role = managing_role(world)
        self.times_ms: dict[str, list[float]] = defaultdict(list)
        self._verifiers: dict[tuple[str, str, bool], AccessTokenVerifier] = {}
        self._processes = {
            strict: running.enter_context(self.process(world.resource, strict=strict)) for strict in (False, True)
        }

    def accepts(self, path: str, audience: str, token: str, *, strict: bool) -> bool:
        key = path, audience, strict
        if key not in self._verifiers:
            self._verifiers[key] = AccessTokenVerifier(
                base_url=self.world.stack.base_url,
                audience=audience,
                feed=self.feeds[path],
                reject_stale_permissions=strict,
            )
        try:
            self._verifiers[key].verify(token, organization_aware=True)
        except TokenInvalid:
            return False
        return True

    def passes(self, token: str, *, strict: bool) -> bool:
        return passes(self._processes[strict], token, scope="read:things")

    def process(self, audience: str, *, strict: bool = False) -> AbstractContextManager[httpx.Client]:
        """Run a verifier process, and yield a client of it once its feed is fresh."""
        stack, (client_id, secret) = self.world.stack, self.world.machine.basic
        arguments = ["--issuer", stack.issuer, "--audience", audience, "--feed-url", stack.base_url]
        arguments += ["--reject-stale-permissions", str(strict).lower(), "--stale-after-s", str(WAIT_S)]
        return verifier_process(arguments, CLIENT_ID=client_id, CLIENT_SECRET=secret)


@contextmanager
def verifier_process(arguments: list[str], **environment: str) -> Iterator[httpx.Client]:
    port = free_port()
    command = [sys.executable, "-m", "verifier", *arguments, "--port", str(port)]
    with (
        serving(command, port, cwd=None, **environment) as address,
        httpx.Client(base_url=address, timeout=30) as process,
    ):
        eventually(lambda: "stead_verifier_feed_fresh 1.0" in process.get("/metrics").text)
        yield process


def passes(process: httpx.Client, token: str, *, scope: str) -> bool:
    """Tell whether a verifier process accepts a token; it answers 401 to an ended one, and 503 if it cannot tell."""
    answer = process.get(f"/check-in-organization/{scope}", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code in {200, 401}, answer.text
    return answer.status_code == 200


def managing_role(world: World) -> str:
    """Create a role of machines with every permission of the Management API."""
    indicator = world.stack.credentials.management_api.resource
    api = next(each for each in world.management.resources.list() if each.indicator == indicator)
    everything = next(each.id for each in world.management.resources.scopes(api.id) if each.name == "all")
    return world.management.roles.create("Manager of ended things", "all", "MachineToMachine", [everything]).id


ON_LINE: Final = ("introspection",)
OFF_LINE: Final = ("SDK over HTTP", "SDK over NATS")
KINDS: Final[dict[str, tuple[str, ...]]] = {
    "userinfo": (*ON_LINE, "userinfo", "actor token"),
    "signed_in": (*ON_LINE, *OFF_LINE, "verifier process"),
    "signed_in_to_organization": (*ON_LINE, "/api", *OFF_LINE),
    "refresh_token": ("refresh",),
    "impersonating": (*ON_LINE, *OFF_LINE, "verifier process"),
    "impersonating_userinfo": (*ON_LINE, "userinfo"),
    "impersonating_to_organization": (*ON_LINE, "/api", *OFF_LINE),
    "impersonating_in_organization": (*ON_LINE, *OFF_LINE, "verifier process"),
    "actor_token": (*ON_LINE, "userinfo", "actor token"),
    "machine": (*ON_LINE, *OFF_LINE, "verifier process"),
    "machine_to_organization": (*ON_LINE, "/api", *OFF_LINE),
    "managing": (*ON_LINE, "/api", "/api of template-service", "/api of token-service", *OFF_LINE),
}
"""Each kind of token, and the paths that take it. There are no others:

- An exchange and a machine get no refresh token, and neither an exchanged token nor a machine's is an actor token.
- A userinfo token is for the issuer alone; a token to an organization for its routes of /api and for APIs that know
  organizations as audiences; one to a resource, within an organization or not, for the API that is this resource.
- A verifier process has one audience, here the resource.
"""
FAMILY: Final = ("userinfo", "signed_in", "signed_in_to_organization", "refresh_token")
IMPERSONATED_IN_ORGANIZATION: Final = ("impersonating_to_organization", "impersonating_in_organization")
IMPERSONATED: Final = ("impersonating", "impersonating_userinfo", *IMPERSONATED_IN_ORGANIZATION)
MACHINE: Final = ("machine", "machine_to_organization", "managing")


class Case:
    """A user, an actor, clients and an organization of their own, and every kind of token that they can have.

    Each is made when it is first asked for: a test that ends a few kinds makes no others.
    """

    def __init__(self, readers: Readers, *, user: str | None = None, session_id: str | None = None) -> None:
        self.readers = readers
        self.world = world = readers.world
        self.role = world.role("read:things")
        self.user = user or world.user()
        world.management.users.assign_roles(self.user, [self.role])
        self.client = world.client("Traditional")
        self.organization = world.template.organization()
        self.organization_role = self._new_organization_role()
        self._join_the_user()
        world.caught_up()
        self.impersonation_ids: list[str] = []
        self.session_id = session_id or secrets.token_hex(8)
        self._management_api = world.stack.credentials.management_api.resource

    @cached_property
    def actor(self) -> str:
        return self.world.user()

    @cached_property
    def machine_role(self) -> str:
        return self.world.role("read:things", kind="MachineToMachine")

    @cached_property
    def machine_client(self) -> Client:
        made = self.world.client("MachineToMachine", exchange=False)
        self.world.management.applications.assign_roles(made.id, [self.machine_role, self.readers.managing_role])
        self._join(made)
        self.world.caught_up()
        return made

    @cached_property
    def sign_in(self) -> SignIn:
        return SignIn(
            self.world,
            self.client,
            self.user,
            scope="openid offline_access impersonations urn:service:scope:organizations",
            organization_permissions=self.world.permission("read:invoices"),
            session_id=self.session_id,
        )

    @cached_property
    def _first(self) -> dict[str, Any]:
        return self.sign_in.tokens()

    def replace(self, part: str) -> None:
        """Make a part of the case anew that a test took away or spoiled, and with it the tokens that depend on it."""
        match part:
            case "user" | "role" | "organization_role":
                if part == "role":
                    self.role = self.world.role("read:things")
                if part == "organization_role":
                    self.organization_role = self._new_organization_role()
                self.user = self.world.user(self.role)
                self._join_the_user()
                self.renew(*FAMILY, *IMPERSONATED)
            case "actor":
                self.__dict__.pop("actor", None)
                self.renew("actor_token", *IMPERSONATED)
            case "client":
                self.client = self.world.client("Traditional")
                self.renew(*FAMILY, *IMPERSONATED)
            case "machine":
                self.__dict__.pop("machine_client", None)
                self.renew(*MACHINE)
            case "organization":
                self.organization = self.world.template.organization()
                self._join_the_user()
                self._join(self.machine_client)
                self.renew(*FAMILY, *IMPERSONATED, "machine_to_organization")
            case _:
                raise ValueError(part)
        self.world.caught_up()

    def _new_organization_role(self) -> str:
        return self.world.organization_role("read:invoices", scopes=["read:things"])

    def _join_the_user(self) -> None:
        self.world.template.member(self.organization, self.user, self.organization_role)

    def _join(self, machine: Client) -> None:
        clerk = self.world.clerk_roles["application"]
        self.world.template.member(self.organization, machine.id, clerk, kind="application")

    def renew(self, *kinds: str) -> None:
        """Make new tokens of these kinds when they are next asked for: the others of their family go with them."""
        renewed = set(kinds)
        if not renewed.isdisjoint(FAMILY):
            renewed |= {"sign_in", "_first", *FAMILY}
        if not renewed.isdisjoint(IMPERSONATED):
            renewed |= set(IMPERSONATED)
            self.impersonation_ids.clear()
        for name in renewed:
            self.__dict__.pop(name, None)

    @property
    def userinfo(self) -> str:
        return str(self._first["access_token"])

    @property
    def id_token(self) -> str:
        return str(self._first["id_token"])

    @cached_property
    def refresh_token(self) -> str:
        """The last one: each use replaces it."""
        return str(self._first["refresh_token"])

    @cached_property
    def signed_in(self) -> str:
        return self._refreshed(resource=self.world.resource)

    @cached_property
    def signed_in_to_organization(self) -> str:
        return self._refreshed(organization_id=self.organization)

    @cached_property
    def actor_token(self) -> str:
        return self.world.userinfo_token(self.actor)

    @cached_property
    def impersonating(self) -> str:
        return self._impersonate()

    @cached_property
    def impersonating_userinfo(self) -> str:
        return self._impersonate(resource=None, scope="openid")

    @cached_property
    def impersonating_to_organization(self) -> str:
        return self._impersonate(**self._to_organization)

    @cached_property
    def impersonating_in_organization(self) -> str:
        return self._impersonate(organization_id=self.organization)

    @cached_property
    def machine(self) -> str:
        return self._of_the_machine()

    @cached_property
    def machine_to_organization(self) -> str:
        return self._of_the_machine(**self._to_organization)

    @cached_property
    def managing(self) -> str:
        return self._of_the_machine(resource=self._management_api, scope="all")

    @property
    def _to_organization(self) -> dict[str, Any]:
        return {"resource": None, "organization_id": self.organization, "scope": None}

    def _refreshed(self, **target: str) -> str:
        answer = self.sign_in.refreshed(self.refresh_token, **target)
        self.refresh_token = answer.get("refresh_token", self.refresh_token)
        return str(answer["access_token"])

    def _impersonate(self, **target: Any) -> str:
        begun = self.world.management.subject_tokens.create(self.user)
        self.impersonation_ids.append(begun.impersonation_id)
        acting: dict[str, Any] = {"actor_token": self.actor_token, "actor_token_type": TOKEN_TYPE_ACCESS_TOKEN}
        answer = self.world.exchange(begun.token, client=self.client, **acting, **target)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["access_token"])

    def _of_the_machine(self, **target: Any) -> str:
        answer = self.world.client_credentials(self.machine_client, **target)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["access_token"])

    def paths(self, kind: str, *, strict: bool = False) -> dict[str, Callable[[], bool]]:
        """Return, by name, each path that takes a kind of token, as a function that tells whether it accepts it."""
        getattr(self, kind)  # before it is ended
        checks = ("verifier process", *OFF_LINE)
        return {
            f"{kind}: {path}": partial(self._accepts, kind, path, strict=strict)
            for path in KINDS[kind]
            if path in checks or not strict
        }

    def _accepts(self, kind: str, path: str, *, strict: bool) -> bool:
        token: str = getattr(self, kind)
        match path:
            case "introspection":
                return self.is_active(token)
            case "userinfo":
                return self._gets("/oidc/me", token)
            case "actor token":
                return self.world.with_actor(token).status_code == 200
            case "refresh":
                return self._refreshes()
            case "/api":
                return self._gets(self._own_api(kind), token)
            case "/api of template-service":
                return self._gets("/api/organization-roles", token)
            case "/api of token-service":
                return self._gets(KEYS, token)
            case "verifier process":
                return self.readers.passes(token, strict=strict)
            case _:
                return self.readers.accepts(path, self._audience(kind), token, strict=strict)

    def _own_api(self, kind: str) -> str:
        if kind == "managing":
            return f"/api/applications/{self.machine_client.id}"
        own = f"applications/{self.machine_client.id}" if kind.startswith("machine") else f"users/{self.user}"
        return f"/api/organizations/{self.organization}/{own}/scopes"

    def _audience(self, kind: str) -> str:
        if kind.endswith("_to_organization"):
            return self.world.organization_audience(self.organization)
        return self._management_api if kind == "managing" else self.world.resource

    def is_active(self, token: str) -> bool:
        form, auth = {"token": token}, self.world.traditional.basic
        answer = self.world.stack.http.post("/oidc/token/introspection", data=form, auth=auth)
        assert answer.status_code == 200, answer.text
        return bool(answer.json()["active"])

    def _gets(self, path: str, token: str) -> bool:
        answer = self.world.stack.http.get(path, headers={"Authorization": f"Bearer {token}"})
        # 404 without the organization, 422 without the membership
        assert answer.status_code in {200, 401, 404, 422}, answer.text
        return answer.status_code == 200

    def _refreshes(self) -> bool:
        answer = self.sign_in.refresh(self.refresh_token)
        if answer.status_code == 200:
            self.refresh_token = answer.json().get("refresh_token", self.refresh_token)
        return answer.status_code == 200

    # what ends tokens

    def revoke(self, *kinds: str) -> None:
        for kind in kinds:
            owner = {"actor_token": self.world.traditional}.get(
                kind, self.machine_client if kind in MACHINE else self.client
            )
            form = {"token": getattr(self, kind)}
            answer = self.world.stack.http.post("/oidc/token/revocation", data=form, auth=owner.basic)
            assert answer.status_code == 200, answer.text

    def sign_out(self, browser: httpx.Client, id_token: str) -> None:
        answer = browser.get("/oidc/session/end", params={"id_token_hint": id_token})
        assert answer.status_code == 200, answer.text

    def end_each(self) -> None:
        for impersonation_id in self.impersonation_ids:
            self.world.management.impersonations.end(impersonation_id)

    def end_each_as_the_subject(self) -> None:
        bearer = {"Authorization": f"Bearer {self.userinfo}"}
        for impersonation_id in self.impersonation_ids:
            path = f"/oidc/me/impersonations/{impersonation_id}/end"
            # until the exchange is in the register
            eventually(lambda path=path: self.world.stack.http.post(path, headers=bearer).is_success)  # type: ignore[misc]

    def switch_exchange_off(self) -> None:
        switched_off = {"allowTokenExchange": False}
        self.world.management.applications.update(self.client.id, custom_client_metadata=switched_off)


def management_http(world: World) -> httpx.Client:
    access = world.stack.credentials.management_api
    form = {"grant_type": "client_credentials", "resource": access.resource, "scope": access.scope}
    token = world.stack.token_request(form, auth=(access.client_id, access.client_secret)).json()["access_token"]
    bearer = {"Authorization": f"Bearer {token}"}
    return httpx.Client(base_url=world.stack.base_url, headers=bearer)
