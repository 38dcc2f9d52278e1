"""No write gives or takes over a scope of the Management API that its caller lacks, on any route."""

from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from identity_common.rights.scopes import SCOPE_ALL, implied
from management_service.attainable_scopes import missing_scopes
from tests.component.management.test_administrators import role_granting, scope_of
from tests.support.connectors import stored_connector, stored_identity
from tests.support.management_api import Management, unique

PASSWORD = "a good password"


class Objects(NamedTuple):
    """Ids by name: ``{auditors}`` is a role of users that grants ``audit:export``, ``{auditor}`` has it."""

    management: Management
    ids: dict[str, str]

    def filled(self, value: Any) -> Any:
        """Return a path or body with the ids for their names, and a new name for each ``{new}``."""
        if isinstance(value, dict):
            return {name: self.filled(member) for name, member in value.items()}
        if isinstance(value, list):
            return [self.filled(member) for member in value]
        return value.format(**self.ids, new=unique("new")) if isinstance(value, str) else value


@pytest_asyncio.fixture
async def objects(own: Management) -> Objects:
    scope = await scope_of(own, "audit:export")
    auditors = await role_granting(own, scope)
    machines = (
        await own.created("roles", name=unique("role"), description="", type="MachineToMachine", scopeIds=[scope])
    )["id"]
    users = [(await own.created("users", username=unique("user")))["id"] for _ in range(3)]
    auditor, suspended, user = users
    applications = [await own.machine() for _ in range(2)]
    for path, role in ((f"users/{auditor}", auditors), (f"users/{suspended}", auditors)):
        await own.client.post(f"/api/{path}/roles", json={"roleIds": [role]})
    await own.client.post(f"/api/applications/{applications[0]}/roles", json={"roleIds": [machines]})
    await own.client.patch(f"/api/users/{suspended}/is-suspended", json={"isSuspended": True})
    domain = f"{unique('at')}.example.com".lower()
    connected = (await own.created("users", primaryEmail=f"auditor@{domain}"))["id"]
    await own.client.post(f"/api/users/{connected}/roles", json={"roleIds": [auditors]})
    companies = [await stored_connector(own.database, own.tenant_id) for _ in range(2)]
    for connector in companies:
        await stored_identity(own.database, own.tenant_id, connected, connector)
    await own.client.patch(f"/api/sso-connectors/{companies[1]}", json={"isEnabled": False})
    return Objects(
        own,
        {
            "scope": scope,
            "auditors": auditors,
            "machines": machines,
            "role": await role_granting(own),
            "auditor": auditor,
            "suspended": suspended,
            "user": user,
            "exporter": applications[0],
            "machine": applications[1],
            "console": await _console(own),
            "shop": (await _application(own))["id"],
            "connector": await stored_connector(own.database, own.tenant_id),
            "company": companies[0],
            "closed": companies[1],
            "domain": domain,
        },
    )


async def _console(own: Management) -> str:
    """Return an application with everything that may be taken from it."""
    addresses = {"redirectUris": ["https://console.example.com"]}
    created = await _application(own, customClientMetadata={"allowManagementApi": True}, oidcClientMetadata=addresses)
    await own.client.post(f"/api/applications/{created['id']}/secrets", json={"name": "first"})
    return str(created["id"])


async def _application(own: Management, **members: Any) -> dict[str, Any]:
    return await own.created("applications", name=unique("application"), type="Traditional", **members)


WAYS = [
    ("POST", "roles", {"name": "{new}", "description": "", "type": "User", "scopeIds": ["{scope}"]}),
    ("POST", "roles/{role}/scopes", {"scopeIds": ["{scope}"]}),
    ("PUT", "roles/{role}/scopes", {"scopeIds": ["{scope}"]}),
    ("POST", "roles/{auditors}/users", {"userIds": ["{user}"]}),
    ("PUT", "roles/{auditors}/users", {"userIds": ["{user}", "{auditor}"]}),
    ("POST", "roles/{machines}/applications", {"applicationIds": ["{machine}"]}),
    ("PUT", "roles/{machines}/applications", {"applicationIds": ["{machine}"]}),
    ("POST", "users/{user}/roles", {"roleIds": ["{role}", "{auditors}"]}),
    ("PUT", "users/{user}/roles", {"roleIds": ["{auditors}"]}),
    ("POST", "applications/{machine}/roles", {"roleIds": ["{machines}"]}),
    ("PUT", "applications/{machine}/roles", {"roleIds": ["{machines}"]}),
    ("PATCH", "users/{auditor}", {"username": "{new}"}),
    ("PATCH", "users/{auditor}", {"primaryEmail": "{new}@example.com"}),
    ("PATCH", "users/{auditor}", {"primaryPhone": "+4915112345678"}),
    ("PATCH", "users/{auditor}", {"username": None}),
    ("PATCH", "users/{auditor}/password", {"password": PASSWORD}),
    ("PATCH", "users/{auditor}", {"allowsPassword": True}),
    ("PATCH", "users/{suspended}/is-suspended", {"isSuspended": False}),
    ("POST", "users/{auditor}/invitation", {}),
    ("POST", "users/{auditor}/sign-in-attempts/clear", None),
    ("POST", "users/{auditor}/identities", {"connectorId": "{connector}", "value": "{new}"}),
    ("PATCH", "sso-connectors/{company}", {"trusts": {"actors": ["{new}"]}}),
    ("PATCH", "sso-connectors/{closed}", {"isEnabled": True}),
    ("PATCH", "sso-connectors/{connector}", {"domains": ["{domain}"]}),
    ("DELETE", "sso-connectors/{company}", None),
    ("POST", "applications/{exporter}/secrets", {"name": "{new}"}),
    ("PATCH", "applications/{exporter}", {"customClientMetadata": {"corsAllowedOrigins": ["https://a.example.com"]}}),
    ("PATCH", "roles/{auditors}", {"isDefault": True}),
]
EVERYTHING_ELSE = " ".join(sorted(implied([SCOPE_ALL]) - {"all", "audit:export"}))


@pytest.mark.parametrize(("method", "path", "body"), WAYS)
async def test_a_write_that_gives_or_takes_over_a_scope_needs_it(
    objects: Objects, method: str, path: str, body: Any
) -> None:
    own, path, body = objects.management, f"/api/{objects.filled(path)}", objects.filled(body)
    lacking = own.client_with(own.token(scope=EVERYTHING_ELSE))
    refused = await lacking.request(method, path, json=body)
    assert refused.status_code == 403, refused.text
    assert refused.json()["code"] == "auth.scopes_missing"
    assert refused.json()["data"] == {"missing": ["audit:export"]}
    assert refused.headers["WWW-Authenticate"] == 'Bearer error="insufficient_scope", scope="audit:export"'
    assert (await lacking.request(method, path, json=body)).status_code == 403  # nothing was written
    for scope in (f"{EVERYTHING_ELSE} audit:export", "all"):
        allowed = await own.client_with(own.token(scope=scope)).request(method, path, json=objects.filled(body))
        assert allowed.is_success or allowed.json()["code"] in {
            "entity.unique_integrity_violation",  # the second time
            "application.secret_name_exists",
            "identity.in_use",
            "entity.not_found",
        }, allowed.text
    if "isDefault" in (body or {}):
        refused = await lacking.post("/api/users", json={"username": unique("late")})
        await own.client.delete(f"/api/roles/{objects.ids['auditors']}")  # other tests create users
        assert (refused.status_code, refused.json()["data"]) == (403, {"missing": ["audit:export"]})


SETTINGS = [
    {"oidcClientMetadata": {"redirectUris": ["https://a.example.com"]}},
    {"oidcClientMetadata": {"redirectUris": []}},
    {"oidcClientMetadata": {"postLogoutRedirectUris": ["https://a.example.com"]}},
    {"customClientMetadata": {"corsAllowedOrigins": ["https://a.example.com"]}},
    {"customClientMetadata": {"requirePkce": False}},
    {"customClientMetadata": {"minimumAcr": "mfa"}},
    {"customClientMetadata": {"tokenEndpointAuthMethod": "client_secret_post"}},
    {"customClientMetadata": {"allowManagementApi": False, "requirePkce": False}},
    {"isThirdParty": True},
]
AS_BEFORE = {"isThirdParty": False, "customClientMetadata": {"requirePkce": True}}
OPEN = {"customClientMetadata": {"allowManagementApi": True}}


WORTH_EVERYTHING: list[tuple[str, str, Any]] = [
    ("POST", "applications", {"name": "{new}", "type": "SPA", **OPEN}),
    ("PATCH", "applications/{shop}", OPEN),
    ("POST", "applications/{console}/secrets", {"name": "{new}"}),
    *(("PATCH", "applications/{console}", settings) for settings in SETTINGS),
    ("PATCH", "applications/{console}", {"customClientMetadata": {"allowManagementApi": False}}),
    ("PATCH", "applications/{console}", {"customClientMetadata": None}),
    ("DELETE", "applications/{console}/secrets/first", None),
    ("DELETE", "applications/{console}", None),
]


async def test_what_may_request_the_management_api_for_its_users_is_worth_everything(objects: Objects) -> None:
    own = objects.management
    lacking = own.client_with(own.token(scope=f"{EVERYTHING_ELSE} audit:export"))
    writes = [(method, f"/api/{objects.filled(path)}", objects.filled(body)) for method, path, body in WORTH_EVERYTHING]
    for method, path, body in writes * 2:  # twice: nothing was written
        refused = await lacking.request(method, path, json=body)
        assert (refused.status_code, refused.json().get("data")) == (403, {"missing": ["all"]}), (method, path, body)
    for method, path, body in writes:
        assert (await own.client.request(method, path, json=body)).is_success, (method, path, body)
        if method == "PATCH":
            assert (await own.client.patch(path, json=AS_BEFORE)).is_success


GIVE_NOTHING: list[tuple[str, str, Any]] = [
    ("PATCH", "users/{auditor}", {"name": "Another"}),
    ("POST", "users/{auditor}/roles", {"roleIds": ["{role}", "{auditors}"]}),
    ("PUT", "roles/{auditors}/users", {"userIds": ["{auditor}"]}),
    ("PATCH", "applications/{exporter}", {"name": "Another", "description": "text"}),
    ("POST", "applications/{machine}/secrets", {"name": "{new}"}),
    ("PATCH", "applications/{console}", {"name": "Another", **OPEN}),
    *(("PATCH", "applications/{shop}", settings) for settings in SETTINGS),
    ("PATCH", "users/{user}/password", {"password": PASSWORD}),
    ("DELETE", "users/{auditor}/invitation", None),
    ("PATCH", "sso-connectors/{company}", {"isEnabled": False, "groupsClaim": "groups"}),
    ("PATCH", "sso-connectors/{connector}", {"domains": ["{new}.example.org"], "trusts": {"actors": ["{new}"]}}),
    # These take a scope away, or what has it.
    ("DELETE", "sso-connectors/{connector}", None),
    ("DELETE", "applications/{exporter}", None),
    ("PATCH", "users/{auditor}/is-suspended", {"isSuspended": True}),
    ("DELETE", "users/{auditor}/roles/{auditors}", None),
    ("PUT", "roles/{auditors}/scopes", {"scopeIds": []}),
]


async def test_a_write_that_gives_nothing_needs_only_its_area(objects: Objects) -> None:
    own = objects.management
    client = own.client_with(own.token(scope=EVERYTHING_ELSE))
    for method, path, body in GIVE_NOTHING:
        answer = await client.request(method, f"/api/{objects.filled(path)}", json=objects.filled(body))
        assert answer.is_success, (method, path, answer.text)
        if body in SETTINGS:
            assert (await own.client.patch(f"/api/{objects.filled(path)}", json=AS_BEFORE)).is_success


async def test_what_counts_as_a_factor_is_said_by_those_who_may_change_the_policies(objects: Objects) -> None:
    own, path = objects.management, f"/api/sso-connectors/{objects.ids['connector']}"
    lacking = own.client_with(own.token(scope=" ".join({*EVERYTHING_ELSE.split()} - {"config"})))
    factor = {"claim": "amr", "value": "mfa", "level": "mfa"}
    refused = await lacking.patch(path, json={"trusts": {"factors": [factor]}})
    assert (refused.status_code, refused.json()["data"]) == (403, {"missing": ["config"]}), refused.text
    assert (await own.client.patch(path, json={"trusts": {"factors": [factor]}})).is_success
    wider = await lacking.patch(path, json={"trusts": {"factors": [{**factor, "level": "phr"}]}})
    assert wider.status_code == 403
    for kept in ([factor], []):
        assert (await lacking.patch(path, json={"trusts": {"factors": kept}})).is_success


async def test_an_invitation_does_not_take_over_what_the_user_is_given_later(objects: Objects) -> None:
    own, user, path = objects.management, objects.ids["user"], "/api/invitations/accept"
    client = own.client_with(own.token(scope=EVERYTHING_ELSE))
    invitation = (await client.post(f"/api/users/{user}/invitation", json={})).json()["invitation"]
    await own.client.post(f"/api/users/{user}/roles", json={"roleIds": [objects.ids["auditors"]]})
    async with own.client_with(None) as anonymous:
        early = await anonymous.post(path, json={"invitation": invitation, "password": PASSWORD})
        assert (early.status_code, early.json()["code"]) == (422, "invitation.not_valid")
        assert not (await own.client.get(f"/api/users/{user}")).json()["hasPassword"]
        later = (await own.client.post(f"/api/users/{user}/invitation", json={})).json()["invitation"]
        assert (await anonymous.post(path, json={"invitation": later, "password": PASSWORD})).is_success


async def test_the_scopes_of_the_management_api_cannot_be_changed_at_all(own: Management) -> None:
    scope = await scope_of(own, "audit:export")
    resources = (await own.client.get("/api/resources")).json()
    path = next(
        f"/api/resources/{each['id']}"
        for each in resources
        if each["indicator"] == own.settings.management_api_resource
    )
    for method, of, body in (
        ("PATCH", f"/scopes/{scope}", {"name": "all2"}),
        ("POST", "/scopes", {"name": "all2"}),
        ("DELETE", f"/scopes/{scope}", None),
        ("DELETE", "", None),
    ):
        answer = await own.client.request(method, path + of, json=body)
        assert (answer.status_code, answer.json()["code"]) == (400, "resource.cannot_modify_management_api")


@pytest.mark.parametrize(
    ("attainable", "held", "missing"),
    [
        ([], [], []),
        (["users:read"], ["users"], []),
        (["users"], ["users:read"], ["users"]),
        (["all"], ["users", "read"], ["all"]),
        (["all", "keys", "unknown"], ["all"], []),
        (["keys", "config"], ["read"], ["config", "keys"]),
        (["unknown"], ["users"], ["unknown"]),
    ],
)
def test_what_a_caller_lacks(attainable: list[str], held: list[str], missing: list[str]) -> None:
    assert missing_scopes(attainable, held=held) == missing
