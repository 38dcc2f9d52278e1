"""Every write of the Management API leaves one entry for the audit trail, in the order of the commits."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx2 as httpx
import msgspec
import nats
import pytest
import pytest_asyncio
from nats.js import JetStreamContext

from identity_common.http.openapi.document import document
from identity_common.outbox.changes import NOTIFY_CHANNEL
from identity_common.revisions import Source
from identity_common.rights.operations import OWN
from identity_common.wire.audit import STREAM_AUDIT, AuditEntry, audit_subject
from identity_common.wire.claims_function import DryRunAnswer, RecordingState, ScriptTested
from provision import ServerAddresses
from stead.verify.acr import acr_of
from tests.support.audit_entries import entries_in, entries_on_the_bus
from tests.support.claims_function import ScriptAnswers
from tests.support.factors import stored_passkey
from tests.support.issuer import Issuer
from tests.support.management_api import Management, revision_of, unique
from tests.support.organizations import known_users
from tests.support.provider import Provider
from tests.support.published_sign_ins import provider_sign_ins
from tests.support.service_in_a_tenant import ServiceInATenant
from tests.support.template_api import Template
from tests.support.waiting import WAIT_S

_END_ACTIVE_RELAY = """
    SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND classid::bigint = hashtext('identity-audit-relay')::bigint & 4294967295
        AND objid::bigint = hashtext($1)::bigint & 4294967295
"""

RECORDED_ELSEWHERE = frozenset({"CreateSubjectToken"})
"""It has a log of its own."""

_COUNT_ON = "UPDATE source_revision SET audit_sequence = audit_sequence + $2 WHERE tenant_id = $1"


@pytest_asyncio.fixture(scope="module")
async def management(servers: ServerAddresses, issuer: Issuer) -> AsyncIterator[Management]:
    """A tenant of its own: no other module has left a function, or a template too large for one request."""
    async with Management(servers, issuer) as management:
        yield management


@pytest_asyncio.fixture(scope="module")
async def template(management: Management) -> AsyncIterator[Template]:
    async with Template(management) as template:
        yield template


@pytest.fixture
async def jetstream(management: Management) -> AsyncIterator[JetStreamContext]:
    """A connection of management-service, which alone may read the stream."""
    client = await nats.connect(management.settings.nats_url, inbox_prefix="_INBOX_management")
    yield client.jetstream()
    await client.close()


async def relayed(service: ServiceInATenant) -> None:
    query = "SELECT count(*) FROM audit_outbox WHERE tenant_id = $1"
    async with asyncio.timeout(WAIT_S):
        while await service.database.fetchval(query, service.tenant_id):  # noqa: ASYNC110 - seen from outside only
            await asyncio.sleep(0.01)


async def entries(jetstream: JetStreamContext, source: Source, service: ServiceInATenant) -> list[AuditEntry]:
    """Return the published entries of a service, each once: a relay may repeat them, as a reader knows."""
    await relayed(service)
    found: dict[int, AuditEntry] = {}
    for entry in await entries_on_the_bus(jetstream, audit_subject(source, service.tenant_id)):
        assert found.setdefault(entry.sequence, entry) == entry
    return [*found.values()]


def _has_revision(answers: dict[str, Any]) -> bool:
    return any("Identity-Revision" in answer["headers"] for status, answer in answers.items() if status.startswith("2"))


class History:
    """Writes, and which entry each of them must leave."""

    def __init__(self, service: ServiceInATenant, source: Source) -> None:
        self.client = service.client
        self.expected: dict[str, tuple[str, str, int]] = {}
        self.revised: set[str] = set()
        self._service = service
        self._source: Source = source
        self._revision = 0

    async def write(self, operation: str, key: str, method: str, path: str, body: Any = None) -> Any:
        """Send a write that changes something."""
        answer = await self.send(method, path, body)
        assert answer.is_success, f"{operation}: {answer.text}"
        if "Identity-Revision" in answer.headers:
            self._revision = revision_of(answer, self._source)
            self.revised.add(operation)
        self.expected[answer.headers["X-Request-Id"]] = (operation, f"{self._source}.{key}", self._revision)
        return answer.json() if answer.content else None

    async def send(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """Send a request that leaves no entry; a body of bytes has JSON lines."""
        if isinstance(body, bytes):
            lines = {"Content-Type": "application/x-ndjson"}
            return await self.client.request(method, f"/api/{path}", content=body, headers=lines)
        return await self.client.request(method, f"/api/{path}", **({} if body is None else {"json": body}))

    def check_completeness(self, elsewhere: frozenset[str]) -> None:
        """Assert that every operation of the service's Management API that writes was called, but for some.

        Those whose answers have a revision are those of which the document says so.
        """
        paths = document(self._service.app, title="API", base_url="http://localhost")["paths"]
        writing = {
            operation["operationId"]: operation["responses"]
            for path, methods in paths.items()
            if path.startswith("/api/")
            for method, operation in methods.items()
            if method in {"post", "put", "patch", "delete"} and operation["operationId"] not in elsewhere
        }
        assert {operation for operation, _, _ in self.expected.values()} == writing.keys()
        assert self.revised == {operation for operation, answers in writing.items() if _has_revision(answers)}

    async def check(self, before: int, jetstream: JetStreamContext) -> list[AuditEntry]:
        """Assert that exactly the expected entries were added; return them."""
        found = await entries(jetstream, self._source, self._service)
        assert [entry.sequence for entry in found] == [*range(1, len(found) + 1)]
        new = found[before:]
        assert [(entry.request_id, (entry.operation, entry.key, entry.revision)) for entry in new] == [
            *self.expected.items()
        ]
        return new


async def write_in_own_account(history: History, management: Management, user: str) -> None:
    """Send every write of a person who has signed in, whose password is already set."""
    write, path, by_administrator = history.write, "my-account", history.client
    answer = await history.send("POST", "subject-tokens", {"userId": user})
    impersonation = answer.headers["Impersonation-Id"]
    token = management.own_token(user, issued_at=time.time() + 2)  # not of the second in which the password changed
    async with management.client_with(token) as history.client:
        await write("UpdateOwnAccount", "user.update", "PATCH", path, {"name": "Ada Byron"})
        await write("UpdateOwnProfile", "user.update", "PATCH", f"{path}/profile", {"nickname": "Countess"})
        email = {"email": "countess@example.com"}
        await write("UpdateOwnPrimaryEmail", "email-verification.create", "POST", f"{path}/primary-email", email)
        end = f"{path}/impersonations/{impersonation}/end"
        await write("EndOwnAccountImpersonation", "impersonation.update", "POST", end, {"reason": "Enough."})
        body = {"currentPassword": "Countess-of-1815", "password": "Countess-of-1816"}
        await write("UpdateOwnPassword", "user.update", "POST", f"{path}/password", body)
    history.client = by_administrator


async def write_of_factors(history: History, management: Management, user: str) -> None:
    """Send every write of factors, the last of which are of a user without any."""
    write, by_administrator = history.write, history.client
    keys = [await stored_passkey(management.database, management.tenant_id, user) for _ in range(2)]
    acr = acr_of("mfa", urn_namespace=management.settings.urn_namespace)
    token = management.own_token(user, acr=acr, issued_at=time.time() + 2)  # as above
    async with management.client_with(token) as history.client:
        path = f"my-account/factors/{keys[0]}"
        await write("UpdateOwnFactor", "passkey.update", "PATCH", path, {"name": "Countess"})
        await write("DeleteOwnFactor", "passkey.delete", "DELETE", path)
    history.client = by_administrator
    path = f"users/{user}/factors"
    await write("DeleteUserFactor", "user.update", "DELETE", f"{path}/{keys[1]}")
    await write("CreateUserEnrolmentCode", "enrolment-code.create", "POST", f"{path}/enrolment-code")
    await write("ResetUserFactors", "user.update", "POST", f"{path}/reset", {"reason": "A lost phone."})


@pytest.mark.heavy
async def test_every_write_of_management_service_leaves_one_entry(
    management: Management, jetstream: JetStreamContext
) -> None:
    of_function = "configs/jwt-customizer/access-token"
    before = len(await entries(jetstream, "management", management))
    history = History(management, "management")
    write = history.write

    username = f"u{secrets.token_hex(6)}"
    body = {"username": username, "primaryEmail": f"{username}@example.com", "externalId": f"x-{username}"}
    user = (await write("CreateUser", "user.create", "POST", "users", body))["id"]
    of_user = f"users/{user}"
    await write(
        "UpdateUser", "user.update", "PATCH", of_user, {"name": "Ada Lovelace", "profile": {"nick": "Countess"}}
    )
    await write(
        "UpdateUserCustomData",
        "user.update",
        "PATCH",
        f"{of_user}/custom-data",
        {"customData": {"Byron": "her father"}},
    )
    await write("ImportUsers", "user.create", "POST", "users/import", b'{"externalId": "moved"}')
    ended = "impersonation.update"
    await write("EndImpersonations", ended, "POST", "impersonations/end", {"userId": user})
    answer = await history.send("POST", "subject-tokens", {"userId": user})
    impersonation = answer.headers["Impersonation-Id"]
    await write("EndImpersonation", ended, "POST", f"impersonations/{impersonation}/end")
    path, accept = f"{of_user}/invitation", "invitations/accept"
    await write("CreateUserInvitation", "invitation.create", "POST", path, {})
    await write("DeleteUserInvitation", "invitation.delete", "DELETE", path)
    invitation = (await write("CreateUserInvitation", "invitation.create", "POST", path, {"minutes": 5}))["invitation"]
    body = {"invitation": invitation, "password": "Countess-of-1815"}
    await write("AcceptInvitation", "user.update", "POST", accept, body)
    assert (await history.send("POST", accept, body)).status_code == 422
    with Provider() as provider:
        config = {"issuer": provider.issuer}
        body = {"providerName": "OIDC", "connectorName": f"Provider {username}", "config": config}
        connector = (await write("CreateConnector", "connector.create", "POST", "sso-connectors", body))["id"]
        path, name = f"sso-connectors/{connector}", {"connectorName": f"Renamed {username}"}
        await write("UpdateConnector", "connector.update", "PATCH", path, name)
        await write("TestConnector", "connector.test", "POST", f"{path}/test")
        body, identities = {"connectorId": connector, "value": "agent-7"}, f"{of_user}/identities"
        identity = (await write("CreateUserIdentity", "identity.create", "POST", identities, body))["id"]
        await write("DeleteUserIdentity", "identity.delete", "DELETE", f"{identities}/{identity}")
        own = (await write("CreateUserIdentity", "identity.create", "POST", identities, body))["id"]
        by_administrator, token = history.client, management.own_token(user, issued_at=time.time() + 2)
        async with management.client_with(token) as history.client:
            await write("DeleteOwnIdentity", "identity.delete", "DELETE", f"my-account/identities/{own}")
        history.client = by_administrator
        await write("DeleteConnector", "connector.delete", "DELETE", path)
    path = f"{of_user}/verification-email"
    await write("SendUserVerificationEmail", "email-verification.create", "POST", path)
    await write_of_factors(history, management, user)
    await write_in_own_account(history, management, user)
    await write("UpdateUserPassword", "user.update", "PATCH", f"{of_user}/password", {"password": "Countess-of-1815"})
    await write("UpdateUserIsSuspended", "user.update", "PATCH", f"{of_user}/is-suspended", {"isSuspended": True})
    await history.send("PATCH", f"{of_user}/is-suspended", {"isSuspended": True})
    path = f"{of_user}/sign-in-attempts/clear"
    await write("ClearUserSignInAttempts", "sign-in-attempts.clear", "POST", path)
    assert (await history.send("POST", "users/nobody/sign-in-attempts/clear")).status_code == 404

    machine = {"name": unique("m"), "type": "MachineToMachine"}
    application = (await write("CreateApplication", "application.create", "POST", "applications", machine))["id"]
    of_application = f"applications/{application}"
    await write("UpdateApplication", "application.update", "PATCH", of_application, {"description": "Engine"})
    path = f"{of_application}/custom-data"
    await write("UpdateApplicationCustomData", "application.update", "PATCH", path, {"customData": {"Byron": 1}})
    path = f"{of_application}/secrets"
    secret = await write("CreateApplicationSecret", "application.update", "POST", path, {"name": "Countess"})
    path = f"{path}/Countess"
    await write("UpdateApplicationSecret", "application.update", "PATCH", path, {"name": "Byron"})
    path = f"{of_application}/secrets/Byron"
    await write("DeleteApplicationSecret", "application.update", "DELETE", path)

    body = {"name": "Engine", "indicator": f"https://{unique('r')}.example.com"}
    resource = (await write("CreateResource", "resource.create", "POST", "resources", body))["id"]
    await write("UpdateResource", "resource.update", "PATCH", f"resources/{resource}", {"name": "Difference engine"})
    for is_default in (True, False):
        path = f"resources/{resource}/is-default"
        await write("UpdateResourceIsDefault", "resource.update", "PATCH", path, {"isDefault": is_default})
    scopes = f"resources/{resource}/scopes"
    scope = (await write("CreateResourceScope", "scope.create", "POST", scopes, {"name": "turn"}))["id"]
    await write("UpdateResourceScope", "scope.update", "PATCH", f"{scopes}/{scope}", {"description": "Turn"})

    for kind, holder, holders in (("User", user, "users"), ("MachineToMachine", application, "applications")):
        singular = {"users": "User", "applications": "Application"}[holders]
        plural = f"{singular}s"
        body = {"name": unique("role"), "description": "d", "type": kind}
        role = (await write("CreateRole", "role.create", "POST", "roles", body))["id"]
        await write("UpdateRole", "role.update", "PATCH", f"roles/{role}", {"description": "Operator"})
        path, ids = f"roles/{role}/scopes", {"scopeIds": [scope]}
        await write("AddRoleScopes", "role.update", "POST", path, ids)
        await write("RemoveRoleScope", "role.update", "DELETE", f"{path}/{scope}")
        await write("ReplaceRoleScopes", "role.update", "PUT", path, ids)
        path, ids = f"roles/{role}/{holders}", {f"{singular.lower()}Ids": [holder]}
        await write(f"AddRole{plural}", "assignment.update", "POST", path, ids)
        await history.send("POST", path, ids)
        await write(f"RemoveRole{singular}", "assignment.update", "DELETE", f"{path}/{holder}")
        await write(f"ReplaceRole{plural}", "assignment.update", "PUT", path, ids)
        path, ids = f"{holders}/{holder}/roles", {"roleIds": [role]}
        await write(f"Remove{singular}Role", "assignment.update", "DELETE", f"{path}/{role}")
        await write(f"Add{singular}Roles", "assignment.update", "POST", path, ids)
        await write(f"Replace{singular}Roles", "assignment.update", "PUT", path, {"roleIds": []})
        await write("DeleteRole", "role.delete", "DELETE", f"roles/{role}")

    path, body = "configs/impersonation", {"requireContext": ["a value of a policy"]}
    await write("UpdateImpersonationPolicy", "impersonation-policy.update", "PATCH", path, body)
    await history.send("PATCH", path, body)

    path, body = "configs/sign-in", {"registrationDomains": ["a-value-of-a-policy.example"]}
    await write("UpdateSignInPolicy", "sign-in-policy.update", "PATCH", path, body)
    await history.send("PATCH", path, body)

    async with ScriptAnswers(management) as answers:
        key = "claims-function"
        script = {"script": "const getCustomJwtClaims = async () => ({});"}
        await write("ReplaceClaimsFunction", f"{key}.create", "PUT", of_function, script)
        body = {"blockIssuanceOnError": True}
        await write("UpdateClaimsFunction", f"{key}.update", "PATCH", of_function, body)
        path = f"{of_function}/versions/1/activate"
        await write("ActivateClaimsFunctionVersion", f"{key}.update", "POST", path)
        answers.answer = RecordingState(until=1764547200000)
        path, of_recording = f"{of_function}/recording", "claims-function-recording"
        await write("RecordClaimsFunctionInputs", f"{of_recording}.update", "POST", path, {"minutes": 1})
        answers.answer = DryRunAnswer()
        path, variables = f"{of_function}/dry-run", {"environmentVariables": {"A": "a value of a variable"}}
        await write("DryRunClaimsFunction", f"{key}.dry-run", "POST", path, {**script, **variables})
        answers.answer = ScriptTested()
        body = {"tokenType": "access-token", "token": {}, "context": {"user": "a value of a context"}}
        await write("TestClaimsFunction", f"{key}.test", "POST", "configs/jwt-customizer/test", {**body, "version": 1})
        await write("DeleteClaimsFunction", f"{key}.delete", "DELETE", of_function)

    await write("RotateLogKeys", "audit-key.rotate", "POST", "logs/keys/rotate", {"emergency": True})

    refused = await history.send("PATCH", of_user, {"name": 1})
    assert refused.status_code == 400
    missing = await history.send("DELETE", "users/nobody")
    assert missing.status_code == 404
    async with management.client_with(management.token(scope="read")) as stranger:
        assert (await stranger.delete(f"/api/{of_user}")).status_code == 403

    await write("DeleteResourceScope", "scope.delete", "DELETE", f"{scopes}/{scope}")
    await write("DeleteResource", "resource.delete", "DELETE", f"resources/{resource}")
    await write("DeleteApplication", "application.delete", "DELETE", of_application)
    await write("DeleteUser", "user.delete", "DELETE", of_user)

    history.check_completeness(RECORDED_ELSEWHERE)
    new = await history.check(before, jetstream)
    (accepted,) = (entry for entry in new if entry.operation == "AcceptInvitation")
    assert (accepted.application_id, accepted.user_id, accepted.token_id) == (None, user, "")
    assert accepted.address
    of_person = [entry for entry in new if entry.operation in OWN]
    assert {(entry.application_id, entry.user_id, bool(entry.token_id)) for entry in of_person} == {
        (management.credentials.client_id, user, True)
    }
    others = [entry for entry in new if entry is not accepted and entry not in of_person]
    assert {(entry.application_id, entry.user_id, entry.tenant_id, entry.log, entry.outcome) for entry in others} == {
        (management.credentials.client_id, None, management.tenant_id, "management", "success")
    }
    assert all(entry.token_id for entry in others)
    assert new[0].given == {}, "an external id may be personal"
    assert [(entry.ids, entry.members, entry.aggregates, entry.aggregate_count) for entry in new[:3]] == [
        ({}, ("externalId", "primaryEmail", "username"), (f"user/{user}",), 1),
        ({"user_id": user}, ("name", "profile"), (f"user/{user}",), 1),
        ({"user_id": user}, ("customData",), (f"user/{user}",), 1),
    ]
    written = msgspec.json.encode(new).decode()
    assert [
        text
        for text in ("Lovelace", "Countess", "Byron", "father", "Engine", "a value of", secret["value"])
        if text in written
    ] == []


@pytest.mark.heavy
async def test_every_write_of_template_service_leaves_one_entry(
    template: Template, jetstream: JetStreamContext
) -> None:
    before = len(await entries(jetstream, "template", template))
    user = (await template.management.created("users"))["id"]
    machine = await template.management.machine()
    scope = (await template.resource("turn"))["scopes"][0]["id"]
    history = History(template, "template")
    write = history.write

    body = {"name": unique("permission")}
    permission = (await write("CreateOrganizationScope", "permission.create", "POST", "organization-scopes", body))[
        "id"
    ]
    path = f"organization-scopes/{permission}"
    await write("UpdateOrganizationScope", "permission.update", "PATCH", path, {"description": "Turn"})
    body = {"name": unique("organization")}
    organization = (await write("CreateOrganization", "organization.create", "POST", "organizations", body))["id"]
    of_organization = f"organizations/{organization}"
    await write("UpdateOrganization", "organization.update", "PATCH", of_organization, {"description": "Society"})

    for kind, member, members in (("User", user, "users"), ("MachineToMachine", machine, "applications")):
        singular = {"users": "User", "applications": "Application"}[members]
        plural = f"{singular}s"
        body = {"name": unique("role"), "type": kind}
        role = (await write("CreateOrganizationRole", "role.create", "POST", "organization-roles", body))["id"]
        of_role = f"organization-roles/{role}"
        await write("UpdateOrganizationRole", "role.update", "PATCH", of_role, {"description": "Operator"})
        for name, content, member_name, content_id in (
            ("ResourceScope", "resource-scopes", "scopeIds", scope),
            ("Scope", "scopes", "organizationScopeIds", permission),
        ):
            path, ids = f"{of_role}/{content}", {member_name: [content_id]}
            await write(f"AddOrganizationRole{name}s", "role.update", "POST", path, ids)
            await write(f"RemoveOrganizationRole{name}", "role.update", "DELETE", f"{path}/{content_id}")
            await write(f"ReplaceOrganizationRole{name}s", "role.update", "PUT", path, ids)
        path, ids = f"{of_organization}/{members}", {f"{singular.lower()}Ids": [member]}
        await write(f"AddOrganization{plural}", "member.create", "POST", path, ids)
        await write(f"RemoveOrganization{singular}", "member.delete", "DELETE", f"{path}/{member}")
        await write(f"ReplaceOrganization{plural}", "member.create", "PUT", path, ids)
        assign = ids | {"organizationRoleIds": [role]}
        await write(f"AssignOrganizationRolesTo{plural}", "member.update", "POST", f"{path}/roles", assign)
        path, ids = f"{path}/{member}/roles", {"organizationRoleIds": [role]}
        await write(f"RemoveOrganization{singular}Role", "member.update", "DELETE", f"{path}/{role}")
        await write(f"AddOrganization{singular}Roles", "member.update", "POST", path, ids)
        await history.send("POST", path, ids)
        await write(f"ReplaceOrganization{singular}Roles", "member.update", "PUT", path, {"organizationRoleIds": []})
        await write("DeleteOrganizationRole", "role.delete", "DELETE", of_role)

    invitations, expires_at = "organization-invitations", int((time.time() + 3600) * 1000)
    address, key = f"{unique('countess')}@id.test", "organization-invitation"
    invited = (await template.management.created("users", primaryEmail=address))["id"]
    body = {"organizationId": organization, "invitee": address, "expiresAt": expires_at}
    for decision, kind in (
        ({"status": "Accepted", "acceptedUserId": invited}, "member.create"),
        ({"status": "Accepted", "acceptedUserId": invited}, f"{key}.accept"),
        ({"status": "Revoked"}, f"{key}.revoke"),
    ):
        of_invitation = (await write("CreateOrganizationInvitation", f"{key}.create", "POST", invitations, body))["id"]
        path = f"{invitations}/{of_invitation}"
        assert (await history.send("POST", f"{path}/message", {"message": 1})).status_code == 400
        await write("ReplaceOrganizationInvitationStatus", kind, "PUT", f"{path}/status", decision)
        assert (await history.send("PUT", f"{path}/status", decision)).status_code == 422
    of_invitation = (await write("CreateOrganizationInvitation", f"{key}.create", "POST", invitations, body))["id"]
    path = f"{invitations}/{of_invitation}"
    message = {"message": "Countess"}
    await write("SendOrganizationInvitationMessage", f"{key}.send", "POST", f"{path}/message", message)
    await write("DeleteOrganizationInvitation", f"{key}.delete", "DELETE", path)

    jit, joining = f"{of_organization}/jit", "organization.configure-joining"
    people = (
        await write("CreateOrganizationRole", "role.create", "POST", "organization-roles", {"name": unique("r")})
    )["id"]
    async with provider_sign_ins(template) as sign_ins:
        connector = await sign_ins.connector()
        group = {"ssoConnectorId": connector, "group": "Countesses", "organizationRoleIds": [people]}
        for name, path, one, many, removed in (
            ("EmailDomain", "email-domains", {"emailDomain": "id.test"}, {"emailDomains": []}, "id.test"),
            ("Role", "roles", {"organizationRoleIds": [people]}, {"organizationRoleIds": []}, people),
            ("SsoConnector", "sso-connectors", {"ssoConnectorIds": [connector]}, {"ssoConnectorIds": []}, connector),
            ("Group", "groups", group, {"groups": []}, None),
        ):
            plural = "" if name in {"EmailDomain", "Group"} else "s"
            added = await write(f"AddOrganizationJit{name}{plural}", joining, "POST", f"{jit}/{path}", one)
            await write(f"RemoveOrganizationJit{name}", joining, "DELETE", f"{jit}/{path}/{removed or added['id']}")
            await write(f"ReplaceOrganizationJit{name}s", joining, "PUT", f"{jit}/{path}", many)

    document = (await template.client.get("/api/organization-template")).json()
    document["permissions"].append({"name": unique("permission")})
    dry_run = await history.send("PUT", "organization-template?dry-run=true", document)
    assert dry_run.is_success, dry_run.text
    await write("ReplaceOrganizationTemplate", "permission.create", "PUT", "organization-template", document)

    assert (await history.send("PATCH", of_organization, {"name": None})).status_code == 400
    await write("DeleteOrganization", "organization.delete", "DELETE", of_organization)
    await write("DeleteOrganizationScope", "permission.delete", "DELETE", f"organization-scopes/{permission}")

    history.check_completeness(frozenset({"ListAffectedMembers", "ExportAffectedMembers"}))  # they change nothing
    new = await history.check(before, jetstream)
    assert new[1].ids == {"permission_id": permission}
    assert new[1].members == ("description",)
    assert new[-2].aggregates == (f"organization/{organization}",)
    written = msgspec.json.encode(new).decode()
    assert [text for text in (address, "Countess") if text in written] == []
    accepted = next(entry for entry in new if entry.operation == "ReplaceOrganizationInvitationStatus")
    assert accepted.given == {"acceptedUserId": (invited,)}
    assert accepted.ids.keys() == {"organization_invitation_id"}


@pytest.mark.heavy
async def test_a_write_of_many_aggregates_leaves_an_entry_for_each_hundred(
    template: Template, jetstream: JetStreamContext
) -> None:
    users = await known_users(template, 120)
    body = {"name": unique("organization")}
    organization = (await template.client.post("/api/organizations", json=body)).json()["id"]
    answer = await template.client.post(f"/api/organizations/{organization}/users", json={"userIds": users})
    assert answer.status_code == 201, answer.text
    found = await entries(jetstream, "template", template)
    of_request = [entry for entry in found if entry.request_id == answer.headers["X-Request-Id"]]
    assert [len(entry.aggregates) for entry in of_request] == [100, 20]
    assert {aggregate for entry in of_request for aggregate in entry.aggregates} == {
        f"member/{organization}/{user}" for user in users
    }
    first = of_request[0]
    assert first.given == {"userIds": tuple(users[:100])}
    alike = msgspec.structs.replace(first, id="", sequence=0, aggregates=())
    assert [msgspec.structs.replace(entry, id="", sequence=0, aggregates=()) for entry in of_request] == [alike] * 2
    assert (alike.aggregate_count, len({entry.id for entry in of_request})) == (120, 2)


@pytest.mark.parametrize(
    ("trusted_proxies", "address"), [(0, "127.0.0.1"), (1, "192.0.2.7"), (2, "203.0.113.5"), (4, "127.0.0.1")]
)
async def test_an_entry_has_the_address_that_the_trusted_proxies_vouch_for(
    management: Management, jetstream: JetStreamContext, trusted_proxies: int, address: str
) -> None:
    access = management.app.state.management_access
    access.trusted_proxies, before = trusted_proxies, access.trusted_proxies
    try:
        headers = {"X-Forwarded-For": "198.51.100.1, 203.0.113.5,192.0.2.7", "User-Agent": "demo/1"}
        assert (await management.client.post("/api/users", json={}, headers=headers)).is_success
    finally:
        access.trusted_proxies = before
    last = (await entries(jetstream, "management", management))[-1]
    assert (last.address, last.user_agent) == (address, "demo/1")


@pytest.mark.heavy
@pytest.mark.servers
async def test_a_relay_that_was_killed_before_it_deleted_a_published_entry_repeats_it_with_its_number(
    management: Management, jetstream: JetStreamContext
) -> None:
    await management.created("users")
    found = await entries(jetstream, "management", management)
    last = found[-1]
    text = msgspec.json.encode(msgspec.structs.replace(last, sequence=0, revision=0)).decode()
    values = (management.tenant_id, last.sequence, last.revision, text)
    await management.database.execute("INSERT INTO audit_outbox VALUES ($1, $2, $3, $4)", *values)
    assert await management.database.fetchval(_END_ACTIVE_RELAY, management.tenant_id)
    await management.created("users")
    again = await entries(jetstream, "management", management)
    assert again[:-1] == found
    assert [entry.sequence for entry in again] == [*range(1, last.sequence + 2)]


@pytest.mark.servers
async def test_entries_that_wait_together_are_published_in_one_message(
    management: Management, jetstream: JetStreamContext
) -> None:
    await management.created("users")
    last = (await entries(jetstream, "management", management))[-1]
    text = msgspec.json.encode(msgspec.structs.replace(last, sequence=0, revision=0)).decode()
    await management.database.executemany(
        "INSERT INTO audit_outbox VALUES ($1, $2, 1, $3)",
        [(management.tenant_id, last.sequence + number, text) for number in (1, 2, 3)],
    )
    await management.database.execute(_COUNT_ON, management.tenant_id, 3)
    await management.database.execute("SELECT pg_notify($1, '')", NOTIFY_CHANNEL)
    await relayed(management)
    message = await jetstream.get_last_msg(STREAM_AUDIT, audit_subject("management", management.tenant_id))
    assert [(each.id, each.revision) for each in entries_in(message.data)] == [(last.id, 1)] * 3
