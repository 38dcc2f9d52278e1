"""The whole system in its own tenant with something of every kind in it, for fuzzing."""

import itertools
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2 as httpx
import msgspec
from redis import Redis

from identity_common.identifiers import new_id
from identity_common.oauth import GRANT_CLIENT_CREDENTIALS, GRANT_TOKEN_EXCHANGE, TOKEN_TYPE_ACCESS_TOKEN
from provision import ServerAddresses
from stead import client_credentials
from tests.support.connectors import connector_of_a_system
from tests.support.forger import Forger
from tests.support.running_stack import RunningStack
from tests.support.waiting import eventually
from token_service.sign_in.sessions import Session

_names = (f"fuzz-{number}" for number in itertools.count())
_OF_CLAIMS_FUNCTIONS = {"kind": "access-token", "version_number": "1"}
_POLICY = "/api/configs/impersonation"
_REVISION_WAIT_S = 0.02  # fuzzed requests often name a revision that never comes


class FuzzedSystem:
    """A running system, and the credentials and ids that let requests get past the first check.

    Attributes:
        base_url: Its base URL.
    """

    def __init__(self, addresses: ServerAddresses, directory: Path) -> None:
        self._stack = RunningStack(
            addresses, directory, tenant_id=f"fuzz-{directory.name}", revision_wait_s=_REVISION_WAIT_S
        )
        self.base_url = self._stack.base_url
        self._http = httpx.Client(base_url=self.base_url, timeout=20)
        self._ids: dict[str, str] = {}
        self._may_have_set_the_policy = False

    def start(self) -> None:
        self._stack.start()
        self._forger = Forger(self._stack.token_settings)
        self._authorize()
        credentials = self._stack.credentials
        self._web = (credentials.traditional.client_id, credentials.traditional.client_secret)
        machine = self._made("applications", {"name": "Machine", "type": "MachineToMachine"})["id"]
        secret = self._made(f"applications/{machine}/secrets", {"name": "first"})
        self._machine = (machine, secret["value"])
        self._agent, self._customer = (user.id for user in credentials.demo.users)
        self._organization = self._made("organizations", {"name": "Organization"})["id"]
        self._made(f"organizations/{self._organization}/users", {"userIds": [self._agent, self._customer]})
        self._made(f"organizations/{self._organization}/applications", {"applicationIds": [machine]})
        self._act()

    def stop(self) -> None:
        self._http.close()
        self._stack.stop()

    def _authorize(self) -> None:
        """Get an access token for the Management API."""
        access = self._stack.credentials.management_api
        issued = client_credentials(
            self.base_url,
            client_id=access.client_id,
            client_secret=access.client_secret,
            resource=access.resource,
            scope=access.scope,
        )
        self._bearer = {"Authorization": f"Bearer {issued.access_token}"}
        self._http.headers.update(self._bearer)
        self._may_have_retired_its_key = False

    def _act(self) -> None:
        """Get an actor token."""
        subject_token = self._made("subject-tokens", {"userId": self._agent})["subjectToken"]
        self._actor_token = self._stack.exchange(subject_token, scope="openid").access_token

    def _person_token(self) -> str:
        """Return a userinfo token of a new person's own sign-in just now: a new password ends earlier ones."""
        user_id = self._made("users", {"username": next(_names)})["id"]
        claims = {"sub": user_id, "client_id": self._web[0], "aud": f"{self.base_url}/oidc/me"}
        return self._forger.access_token(**claims, scope="openid account", auth_time=int(time.time()))

    def _ensure_tokens(self) -> None:
        """Replace the tokens after an emergency rotation, which retires the key that signed them."""
        if self._may_have_retired_its_key:
            self._forger = Forger(self._stack.token_settings)
            self._authorize()
            self._act()
        if self._may_have_set_the_policy:  # which would refuse the subject tokens of later cases
            self._http.patch(_POLICY, json={"requireActor": None, "requireContext": None}).raise_for_status()
            self._may_have_set_the_policy = False

    # The Management API of all services

    def authorization(self, path: str, body: object, chance: int) -> tuple[dict[str, str], tuple[str, str] | None]:
        """Return headers and Basic credentials for a path; for token requests sometimes wrong ones or none."""
        self._ensure_tokens()
        self._may_have_retired_its_key = path.endswith("/rotate")
        self._may_have_set_the_policy = path == _POLICY
        if path.startswith("/api/my-account"):
            return {"Authorization": f"Bearer {self._person_token()}"}, None
        if path.startswith("/api/"):
            return self._bearer, None
        if path == "/oidc/token":
            is_exchange = not isinstance(body, dict) or body.get("grant_type") != GRANT_CLIENT_CREDENTIALS
            right, other = (self._web, self._machine) if is_exchange else (self._machine, self._web)
            return {}, (right, right, right, right, right, right, other, None)[chance % 8]
        return {}, None

    def existing(self, path: str, names: set[str]) -> dict[str, str]:
        """Return ids of existing things by path parameter; each child belongs to its parent.

        Args:
            path: The path template.
            names: The names of its parameters.
        """
        self._ensure_tokens()
        roles = {"name": next(_names), "description": "", "type": "User"}
        member_role = "MachineToMachine" if "/applications" in path else "User"
        chain: dict[str, tuple[str, dict[str, Any]]] = {
            "user_id": ("users", {}),
            "application_id": ("applications", {"name": "n", "type": "MachineToMachine"}),
            "secret_name": ("applications/{application_id}/secrets", {"name": "first"}),
            "resource_id": ("resources", {"name": "n", "indicator": f"urn:fuzz:{next(_names)}"}),
            "scope_id": ("resources/{resource_id}/scopes", {"name": next(_names)}),
            "role_id": ("organization-roles" if path.startswith("/api/organization-roles") else "roles", roles),
            "organization_id": ("organizations", {"name": "n"}),
            "organization_invitation_id": (
                "organization-invitations",
                {
                    "organizationId": self._organization,
                    "invitee": f"{next(_names)}@id.test",
                    "expiresAt": int((time.time() + 3600) * 1000),
                },
            ),
            "permission_id": ("organization-scopes", {"name": next(_names)}),
            "organization_role_id": ("organization-roles", {"name": next(_names), "type": member_role}),
        }
        found = {name: value for name, value in _OF_CLAIMS_FUNCTIONS.items() if name in names}
        if found:
            self._ensure_claims_function()
        for name, (at, body) in chain.items():
            if name in names and set(re.findall(r"{(\w+)}", at)) <= found.keys():
                found[name] = self._existing(name, at.format(**found), body)
        made_otherwise: dict[str, Callable[[], str]] = {
            "key_id": lambda: str(self._http.get("/api/configs/oidc/private-keys").json()[0]["id"]),
            "log_id": self._log_id,
            "impersonation_id": self._impersonation_id,
            "session_id": lambda: self._session_id(found.get("user_id", "")),
            "email_domain": lambda: self._email_domain(found["organization_id"]),
        }
        found |= {name: make() for name, make in made_otherwise.items() if name in names}
        if names & {"connector_id", "identity_id"}:
            settings = self._stack._stack.management
            found["connector_id"], identity = connector_of_a_system(settings, found.get("user_id"))
            found["identity_id"] = identity or new_id()  # the caller of my-account has none
        # None: a browser makes factors, and template-service knows connectors by events alone.
        found |= {name: new_id() for name in names & {"factor_id", "sso_connector_id", "group_id"}}
        unknown = names - found.keys() - {"scope_id"}  # the path of a role's scope does not name its resource
        assert not unknown, f"{path}: how is one made?"
        self._relate(found)
        return found

    def _log_id(self) -> str:
        """Return the id of an entry of the audit trail, once there is one."""
        eventually(lambda: bool(self._http.get("/api/logs").json()))
        return str(self._http.get("/api/logs").json()[0]["id"])

    def _impersonation_id(self) -> str:
        """Return the id of an impersonation that the audit trail has."""
        user_id = self._made("users", {})["id"]  # one that no earlier case has suspended
        begun = self._http.post("/api/subject-tokens", json={"userId": user_id}).raise_for_status()
        found = begun.headers["Impersonation-Id"]
        eventually(lambda: self._http.get(f"/api/impersonations/{found}").status_code == 200)
        return str(found)

    def _session_id(self, user_id: str) -> str:
        """Store a session, as a sign-in does, and return its id."""
        now, settings = int(time.time() * 1000), self._stack.token_settings
        session = Session(id=new_id(), user_id=user_id, signed_in_at=now, secret_sha256="", created_at=now)
        with Redis.from_url(settings.redis_url) as store:
            key = f"identity:{settings.tenant_id}:session:{session.id}"
            store.set(key, msgspec.json.encode(session), ex=3600)
        return session.id

    def _email_domain(self, organization_id: str) -> str:
        """Return a domain whose people join an organization."""
        domain, path = "id.test", f"organizations/{organization_id}/jit/email-domains"
        self._http.put(f"/api/{path}", json={"emailDomains": [domain]}).raise_for_status()
        return domain

    def _ensure_claims_function(self) -> None:
        """Save a function, unless one is active."""
        path = f"/api/configs/jwt-customizer/{_OF_CLAIMS_FUNCTIONS['kind']}"
        if self._http.get(path).status_code == 404:
            script = "const getCustomJwtClaims = async () => ({});"
            self._http.put(path, json={"script": script}).raise_for_status()

    def _relate(self, found: dict[str, str]) -> None:
        """Relate children to their parent: members and their roles, or permissions of an organization role."""
        for kind, name in (("users", "user_id"), ("applications", "application_id")):
            if "organization_id" in found and name in found:
                members = f"organizations/{found['organization_id']}/{kind}"
                self._made(members, {f"{kind[:-1]}Ids": [found[name]]})
                if "organization_role_id" in found:
                    role_ids = {"organizationRoleIds": [found["organization_role_id"]]}
                    self._made(f"{members}/{found[name]}/roles", role_ids)
        if "permission_id" in found and "role_id" in found:
            self._made(
                f"organization-roles/{found['role_id']}/scopes", {"organizationScopeIds": [found["permission_id"]]}
            )

    def _existing(self, name: str, path: str, body: dict[str, Any]) -> str:
        kind = f"{path}:{body.get('type', '')}"
        known = self._ids.get(kind)
        if known is not None and self._is_there(name, path, known):
            return known
        made = self._http.post(f"/api/{path}", json=body)
        if made.status_code == 422:  # a secret with this name exists
            return str(body["name"])
        made.raise_for_status()
        self._ids[kind] = made.json()["id" if name != "secret_name" else "name"]
        return self._ids[kind]

    def _is_there(self, name: str, path: str, known: str) -> bool:
        if name in {"scope_id", "secret_name"}:
            return any(known in item.values() for item in self._http.get(f"/api/{path}").json())
        return self._http.get(f"/api/{path}/{known}").status_code == 200

    def _made(self, path: str, body: dict[str, Any]) -> Any:
        answer = self._http.post(f"/api/{path}", json=body).raise_for_status()
        return answer.json() if answer.content else None

    # The token endpoint

    def improved(self, form: dict[str, Any], chance: int) -> dict[str, Any]:
        """Return a form with some parameters made valid, so that it gets past the first check.

        Args:
            form: The generated form.
            chance: A bit mask of the parameters.
        """
        bits = [bool(chance >> number & 1) for number in range(16)]
        better = dict(form)
        if bits[0]:
            better.pop("organization_id", None)
        elif bits[1]:
            better["organization_id"] = self._organization
        if bits[2] or bits[3]:
            better["resource"] = self._stack.credentials.demo.resource
        elif bits[4]:
            better.pop("resource", None)  # with openid: a userinfo token
        if bits[5]:
            better["scope"] = "openid read:orders write:orders unknown"
        if bits[6] or bits[7]:
            better.pop("client_id", None)
            better.pop("client_secret", None)
        if form.get("grant_type") == GRANT_TOKEN_EXCHANGE:
            self._improve_tokens(better, bits[8:])
        return better

    def _improve_tokens(self, form: dict[str, Any], bits: list[bool]) -> None:
        if bits[0] or bits[1]:
            form["subject_token"] = self._made("subject-tokens", {"userId": self._customer})["subjectToken"]
        if bits[2] or bits[3]:
            form["subject_token_type"] = TOKEN_TYPE_ACCESS_TOKEN
        if bits[4] or bits[5]:
            form.pop("actor_token", None)
            form.pop("actor_token_type", None)
        elif bits[6]:
            form |= {"actor_token": self._actor_token, "actor_token_type": TOKEN_TYPE_ACCESS_TOKEN}
