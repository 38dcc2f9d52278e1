"""What each operation sends, and how it reads the answer: one row each, for both clients."""

from __future__ import annotations

import inspect
import json
import operator
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stead import (
    ApiError,
    Application,
    ApplicationSecret,
    AsyncManagementClient,
    AuditEntry,
    AuditFigure,
    ClaimsFunction,
    ClaimsFunctionFailure,
    ClaimsFunctionVersion,
    Consent,
    CustomClientMetadata,
    DryRunReport,
    HeldPermissions,
    Impersonation,
    Invitation,
    ManagementClient,
    NotFound,
    OidcClientMetadata,
    Organization,
    OrganizationApplication,
    OrganizationMembership,
    OrganizationPermission,
    OrganizationRole,
    OrganizationRoleReference,
    OrganizationTemplate,
    OrganizationUser,
    Resource,
    ResourceConsent,
    ResourceReference,
    ResourceScope,
    Role,
    Scope,
    SubjectToken,
    TemplatePermission,
    TemplateReport,
    TemplateRole,
    TemplateScope,
    TestedClaims,
    User,
)
from stead.event_types import GrantedPermission
from stead.models import (
    AuditContext,
    AuditGap,
    ConsistencyProof,
    DryRunOfInput,
    InclusionProof,
    MemberEffect,
    Reach,
    Recording,
    SavedBy,
    ScriptProblem,
    SignedHead,
    TemplateChange,
    TemplateChanges,
    TextChange,
)
from tests.unit.sdk.service import PASSWORD, SUBJECT_TOKEN, Service

USER_JSON = {
    "tenantId": "default",
    "id": "u1",
    "username": "ada",
    "primaryEmail": "ada@example.com",
    "primaryPhone": None,
    "name": "Ada",
    "avatar": None,
    "customData": {"plan": "gold"},
    "profile": {},
    "isSuspended": False,
    "createdAt": 1,
    "updatedAt": 2,
    "addedLater": True,
}
USER = User(
    tenant_id="default",
    id="u1",
    username="ada",
    primary_email="ada@example.com",
    name="Ada",
    custom_data={"plan": "gold"},
    created_at=1,
    updated_at=2,
)
APPLICATION_JSON = {
    "tenantId": "default",
    "id": "a1",
    "name": "Shop",
    "type": "Traditional",
    "oidcClientMetadata": {"redirectUris": ["https://shop.example/cb"], "postLogoutRedirectUris": []},
    "customClientMetadata": {"allowTokenExchange": True},
    "isThirdParty": False,
}
APPLICATION = Application(
    tenant_id="default",
    id="a1",
    name="Shop",
    type="Traditional",
    oidc_client_metadata=OidcClientMetadata(redirect_uris=["https://shop.example/cb"]),
    custom_client_metadata=CustomClientMetadata(allow_token_exchange=True),
)
SECRET_JSON = {"applicationId": "a1", "name": "first", "value": "the-secret", "expiresAt": 5, "createdAt": 1}
SECRET = ApplicationSecret(application_id="a1", name="first", value="the-secret", expires_at=5, created_at=1)
RESOURCE_JSON = {"id": "r1", "name": "Shop", "indicator": "https://api.example.com", "accessTokenTtl": 600}
RESOURCE = Resource(id="r1", name="Shop", indicator="https://api.example.com", access_token_ttl=600)
SCOPE_JSON = {"id": "s1", "resourceId": "r1", "name": "read:things", "description": "Read"}
SCOPE = Scope(id="s1", resource_id="r1", name="read:things", description="Read")
ROLE_JSON = {"id": "ro1", "name": "Support", "description": "d", "type": "User", "isDefault": False}
ROLE = Role(id="ro1", name="Support", description="d")
TEMPLATE_JSON = {
    "permissions": [{"name": "read:members", "description": "Read"}],
    "roles": [
        {
            "name": "Editor",
            "description": None,
            "type": "MachineToMachine",
            "permissions": ["read:members"],
            "scopes": [{"resource": "https://api.example.com", "name": "read:things"}],
        }
    ],
}
TEMPLATE = OrganizationTemplate(
    permissions=[TemplatePermission(name="read:members", description="Read")],
    roles=[
        TemplateRole(
            name="Editor",
            type="MachineToMachine",
            permissions=["read:members"],
            scopes=[TemplateScope(resource="https://api.example.com", name="read:things")],
        )
    ],
)
REPORT_JSON = {
    "permissions": {
        "created": ["a"],
        "updated": [{"name": "b", "description": {"before": None, "after": "d"}}],
        "deleted": ["c"],
    },
    "roles": {
        "created": [],
        "updated": [
            {
                "name": "Editor",
                "type": {"before": "User", "after": "MachineToMachine"},
                "added": [{"name": "read:things", "resource": "https://api.example.com"}],
                "removed": [{"name": "c"}],
            }
        ],
        "deleted": [],
    },
    "members": [
        {
            "name": "read:things",
            "resource": "https://api.example.com",
            "gaining": {"members": 3, "organizations": 2},
            "losing": {"members": 0, "organizations": 0},
        }
    ],
}
REPORT = TemplateReport(
    permissions=TemplateChanges(
        created=["a"],
        updated=[TemplateChange(name="b", description=TextChange(before=None, after="d"))],
        deleted=["c"],
    ),
    roles=TemplateChanges(
        updated=[
            TemplateChange(
                name="Editor",
                type=TextChange(before="User", after="MachineToMachine"),
                added=[GrantedPermission("read:things", "https://api.example.com")],
                removed=[GrantedPermission("c")],
            )
        ]
    ),
    members=[
        MemberEffect(
            name="read:things",
            resource="https://api.example.com",
            gaining=Reach(members=3, organizations=2),
            losing=Reach(members=0, organizations=0),
        )
    ],
)
PERMISSION_JSON = {"tenantId": "default", "id": "p1", "name": "read:members", "description": None}
PERMISSION = OrganizationPermission(tenant_id="default", id="p1", name="read:members")
ORGANIZATION_ROLE_JSON = {"id": "or1", "name": "Editor", "description": "d", "type": "MachineToMachine"}
ORGANIZATION_ROLE = OrganizationRole(id="or1", name="Editor", description="d", type="MachineToMachine")
LISTED_ROLE_JSON = {
    **ORGANIZATION_ROLE_JSON,
    "scopes": [{"id": "p1", "name": "read:members"}],
    "resourceScopes": [{"id": "s1", "name": "read:things", "resource": {"id": "r1", "name": "Shop"}}],
}
RESOURCE_SCOPE = ResourceScope(id="s1", name="read:things", resource=ResourceReference(id="r1", name="Shop"))
LISTED_ROLE = OrganizationRole(
    id="or1",
    name="Editor",
    description="d",
    type="MachineToMachine",
    scopes=[OrganizationPermission(id="p1", name="read:members")],
    resource_scopes=[RESOURCE_SCOPE],
)
RESOURCE_SCOPE_JSON = {"id": "s1", "name": "read:things", "resourceId": "r1", "resource": {"id": "r1", "name": "Shop"}}
ORGANIZATION_JSON = {
    "id": "o1",
    "name": "Acme",
    "description": None,
    "customData": {"plan": "gold"},
    "isMfaRequired": True,
    "color": {"primaryColor": "#fff"},
    "branding": {},
    "customCss": "a {}",
    "createdAt": 1,
}
ORGANIZATION = Organization(
    id="o1",
    name="Acme",
    custom_data={"plan": "gold"},
    is_mfa_required=True,
    color={"primaryColor": "#fff"},
    custom_css="a {}",
    created_at=1,
)
ETAG = 'W/"0123"'
HELD_JSON = {"organizationRoles": [{"id": "or1", "name": "Editor"}]}
HELD = [OrganizationRoleReference(id="or1", name="Editor")]
MEMBER_USER_JSON = {**USER_JSON, **HELD_JSON}
MEMBER_USER = OrganizationUser(**msgspec.structs.asdict(USER), organization_roles=HELD)
MEMBER_APPLICATION_JSON = {"id": "a1", "name": "Batch", "type": "MachineToMachine", "isThirdParty": False, **HELD_JSON}
MEMBER_APPLICATION = OrganizationApplication(id="a1", name="Batch", type="MachineToMachine", organization_roles=HELD)
MEMBERSHIP_JSON = {**ORGANIZATION_JSON, **HELD_JSON}
MEMBERSHIP = OrganizationMembership(**msgspec.structs.asdict(ORGANIZATION), organization_roles=HELD)
VERSION_JSON = {
    "tenantId": "default",
    "tokenType": "access-token",
    "version": 3,
    "isActive": True,
    "environmentVariables": ["KEY"],
    "blockIssuanceOnError": True,
    "createdAt": 1,
    "createdBy": {"applicationId": "a1", "userId": None},
}
VERSION_MEMBERS: dict[str, Any] = {
    "tenant_id": "default",
    "token_type": "access-token",
    "version": 3,
    "is_active": True,
    "environment_variables": ["KEY"],
    "block_issuance_on_error": True,
    "created_at": 1,
    "created_by": SavedBy(application_id="a1"),
}
FUNCTION_JSON = {**VERSION_JSON, "script": "s", "contextSample": {"a": 1}, "tokenSample": None}
FUNCTION = ClaimsFunction(**VERSION_MEMBERS, script="s", context_sample={"a": 1})
FUNCTION_PATH = "/api/configs/jwt-customizer/access-token"

OPENAPI = Path(__file__).parents[3] / "services/management-service/src/management_service/openapi.json"

Call = Callable[[Any], Any]

IMPERSONATION = {"id": "i1", "userId": "u1", "createdAt": 1, "expiresAt": 2}
OPERATIONS: list[tuple[Call, str, str, Any, Any, Any]] = [
    # call, method, path, body sent, answer, result
    (lambda c: c.users.create(), "POST", "/api/users", {}, USER_JSON, USER),
    (
        lambda c: c.users.create(
            username="ada",
            password=PASSWORD,
            name="Ada",
            primary_email="ada@example.com",
            primary_phone="123",
            avatar="https://example.com/a.png",
            custom_data={"plan": "gold"},
            profile={"nickname": "A"},
        ),
        "POST",
        "/api/users",
        {
            "username": "ada",
            "password": PASSWORD,
            "name": "Ada",
            "primaryEmail": "ada@example.com",
            "primaryPhone": "123",
            "avatar": "https://example.com/a.png",
            "customData": {"plan": "gold"},
            "profile": {"nickname": "A"},
        },
        USER_JSON,
        USER,
    ),
    (lambda c: c.users.list(), "GET", "/api/users", None, [USER_JSON], [USER]),
    (
        lambda c: c.users.consents("u1"),
        "GET",
        "/api/users/u1/consents",
        None,
        (  # answered whole, not in pages
            {
                "tenantId": "default",
                "applicationId": "a1",
                "scopes": ["openid"],
                "resources": [{"resource": "https://orders.example.com", "scopes": ["read:orders"]}],
                "organizationPermissions": ["read:members"],
                "organizationIds": ["o1"],
                "consentedAt": 1,
            },
        ),
        [
            Consent(
                tenant_id="default",
                application_id="a1",
                scopes=("openid",),
                resources=(ResourceConsent(resource="https://orders.example.com", scopes=("read:orders",)),),
                organization_permissions=("read:members",),
                organization_ids=("o1",),
                consented_at=1,
            )
        ],
    ),
    (lambda c: c.users.withdraw_consent("u1", "a1"), "DELETE", "/api/users/u1/consents/a1", None, None, None),
    (
        lambda c: c.users.update("u1", name="Ada", primary_email=None, custom_data={"plan": "gold"}),
        "PATCH",
        "/api/users/u1",
        {"name": "Ada", "primaryEmail": None, "customData": {"plan": "gold"}},
        USER_JSON,
        USER,
    ),
    (
        lambda c: c.users.update("u1", username="ada", primary_phone="123", avatar=None, profile={}),
        "PATCH",
        "/api/users/u1",
        {"username": "ada", "primaryPhone": "123", "avatar": None, "profile": {}},
        USER_JSON,
        USER,
    ),
    (lambda c: c.users.get("u1"), "GET", "/api/users/u1", None, USER_JSON, USER),
    (lambda c: c.users.delete("u1"), "DELETE", "/api/users/u1", None, None, None),
    (lambda c: c.users.suspend("u1"), "PATCH", "/api/users/u1/is-suspended", {"isSuspended": True}, USER_JSON, None),
    (
        lambda c: c.users.suspend("u1", suspended=False),
        "PATCH",
        "/api/users/u1/is-suspended",
        {"isSuspended": False},
        None,
        None,
    ),
    (
        lambda c: c.users.set_password("u1", PASSWORD),
        "PATCH",
        "/api/users/u1/password",
        {"password": PASSWORD},
        None,
        None,
    ),
    (
        lambda c: c.users.clear_sign_in_attempts("u1"),
        "POST",
        "/api/users/u1/sign-in-attempts/clear",
        None,
        None,
        None,
    ),
    (
        lambda c: c.users.invite("u1", minutes=60),
        "POST",
        "/api/users/u1/invitation",
        {"minutes": 60},
        {"invitation": "x", "expiresAt": 7},
        Invitation(invitation="x", expires_at=7),
    ),
    (
        lambda c: c.resources.update_scope("r1", "s1", description=None),
        "PATCH",
        "/api/resources/r1/scopes/s1",
        {"description": None},
        {"id": "s1", "resourceId": "r1", "name": "read"},
        Scope(id="s1", resource_id="r1", name="read"),
    ),
    (
        lambda c: c.applications.rename_secret("a1", "first x", new_name="second"),
        "PATCH",
        "/api/applications/a1/secrets/first%20x",
        {"name": "second"},
        {"name": "second"},
        ApplicationSecret(name="second"),
    ),
    (lambda c: c.users.withdraw_invitation("u1"), "DELETE", "/api/users/u1/invitation", None, None, None),
    (lambda c: c.users.roles("u1"), "GET", "/api/users/u1/roles", None, [ROLE_JSON], [ROLE]),
    (lambda c: c.users.assign_roles("u1", ["ro1"]), "POST", "/api/users/u1/roles", {"roleIds": ["ro1"]}, None, None),
    (lambda c: c.users.replace_roles("u1", iter([])), "PUT", "/api/users/u1/roles", {"roleIds": []}, None, None),
    (lambda c: c.users.remove_role("u1", "ro1"), "DELETE", "/api/users/u1/roles/ro1", None, None, None),
    (
        lambda c: c.applications.create(
            name="Shop",
            type="Traditional",
            description="d",
            oidc_client_metadata=OidcClientMetadata(),
            custom_client_metadata={"allowTokenExchange": True},
            is_third_party=False,
            branding={"primaryColor": "#2450c8"},
            custom_data={"team": "x"},
        ),
        "POST",
        "/api/applications",
        {
            "name": "Shop",
            "type": "Traditional",
            "description": "d",
            "oidcClientMetadata": {"redirectUris": [], "postLogoutRedirectUris": []},
            "customClientMetadata": {"allowTokenExchange": True},
            "isThirdParty": False,
            "branding": {"primaryColor": "#2450c8"},
            "customData": {"team": "x"},
        },
        APPLICATION_JSON,
        APPLICATION,
    ),
    (lambda c: c.applications.get("a1"), "GET", "/api/applications/a1", None, APPLICATION_JSON, APPLICATION),
    (lambda c: c.applications.list(), "GET", "/api/applications", None, [APPLICATION_JSON], [APPLICATION]),
    (
        lambda c: c.applications.update("a1", name="Shop", description=None),
        "PATCH",
        "/api/applications/a1",
        {"name": "Shop", "description": None},
        APPLICATION_JSON,
        APPLICATION,
    ),
    (lambda c: c.applications.update("a1"), "PATCH", "/api/applications/a1", {}, APPLICATION_JSON, APPLICATION),
    (lambda c: c.applications.delete("a1"), "DELETE", "/api/applications/a1", None, None, None),
    (lambda c: c.applications.secrets("a1"), "GET", "/api/applications/a1/secrets", None, [SECRET_JSON], [SECRET]),
    (
        lambda c: c.applications.create_secret("a1", "first", expires_at=5),
        "POST",
        "/api/applications/a1/secrets",
        {"name": "first", "expiresAt": 5},
        SECRET_JSON,
        SECRET,
    ),
    (
        lambda c: c.applications.create_secret("a1", "first"),
        "POST",
        "/api/applications/a1/secrets",
        {"name": "first"},
        SECRET_JSON,
        SECRET,
    ),
    (
        lambda c: c.applications.delete_secret("a1", "my first"),
        "DELETE",
        "/api/applications/a1/secrets/my%20first",
        None,
        None,
        None,
    ),
    (lambda c: c.applications.roles("a1"), "GET", "/api/applications/a1/roles", None, [], []),
    (
        lambda c: c.applications.assign_roles("a1", ("ro1", "ro2")),
        "POST",
        "/api/applications/a1/roles",
        {"roleIds": ["ro1", "ro2"]},
        None,
        None,
    ),
    (
        lambda c: c.applications.replace_roles("a1", {"ro1"}),
        "PUT",
        "/api/applications/a1/roles",
        {"roleIds": ["ro1"]},
        None,
        None,
    ),
    (lambda c: c.applications.remove_role("a1", "ro1"), "DELETE", "/api/applications/a1/roles/ro1", None, None, None),
    (
        lambda c: c.resources.create("Shop", "https://api.example.com", access_token_ttl=600),
        "POST",
        "/api/resources",
        {"name": "Shop", "indicator": "https://api.example.com", "accessTokenTtl": 600},
        RESOURCE_JSON,
        RESOURCE,
    ),
    (lambda c: c.resources.get("r1"), "GET", "/api/resources/r1", None, RESOURCE_JSON, RESOURCE),
    (lambda c: c.resources.list(), "GET", "/api/resources", None, [RESOURCE_JSON], [RESOURCE]),
    (
        lambda c: c.resources.update("r1", name="Shop", access_token_ttl=None),
        "PATCH",
        "/api/resources/r1",
        {"name": "Shop", "accessTokenTtl": None},
        RESOURCE_JSON,
        RESOURCE,
    ),
    (
        lambda c: c.resources.set_default("r1", is_default=True),
        "PATCH",
        "/api/resources/r1/is-default",
        {"isDefault": True},
        RESOURCE_JSON,
        RESOURCE,
    ),
    (lambda c: c.resources.delete("r1"), "DELETE", "/api/resources/r1", None, None, None),
    (lambda c: c.resources.scopes("r1"), "GET", "/api/resources/r1/scopes", None, [SCOPE_JSON], [SCOPE]),
    (
        lambda c: c.resources.create_scope("r1", "read:things", description="Read"),
        "POST",
        "/api/resources/r1/scopes",
        {"name": "read:things", "description": "Read"},
        SCOPE_JSON,
        SCOPE,
    ),
    (lambda c: c.resources.delete_scope("r1", "s1"), "DELETE", "/api/resources/r1/scopes/s1", None, None, None),
    (
        lambda c: c.roles.create("Support", "d"),
        "POST",
        "/api/roles",
        {"name": "Support", "description": "d", "type": "User"},
        ROLE_JSON,
        ROLE,
    ),
    (
        lambda c: c.roles.create("Support", "", type="MachineToMachine", scope_ids=["s1"], is_default=False),
        "POST",
        "/api/roles",
        {
            "name": "Support",
            "description": "",
            "type": "MachineToMachine",
            "scopeIds": ["s1"],
            "isDefault": False,
        },
        ROLE_JSON,
        ROLE,
    ),
    (lambda c: c.roles.get("ro1"), "GET", "/api/roles/ro1", None, ROLE_JSON, ROLE),
    (lambda c: c.roles.list(), "GET", "/api/roles", None, [ROLE_JSON], [ROLE]),
    (
        lambda c: c.roles.update("ro1", name="Support", description="", is_default=True),
        "PATCH",
        "/api/roles/ro1",
        {"name": "Support", "description": "", "isDefault": True},
        ROLE_JSON,
        ROLE,
    ),
    (lambda c: c.roles.delete("ro1"), "DELETE", "/api/roles/ro1", None, None, None),
    (lambda c: c.roles.scopes("ro1"), "GET", "/api/roles/ro1/scopes", None, [SCOPE_JSON], [SCOPE]),
    (
        lambda c: c.roles.assign_scopes("ro1", ["s1"]),
        "POST",
        "/api/roles/ro1/scopes",
        {"scopeIds": ["s1"]},
        [SCOPE_JSON],
        [SCOPE],
    ),
    (lambda c: c.roles.remove_scope("ro1", "s1"), "DELETE", "/api/roles/ro1/scopes/s1", None, None, None),
    (lambda c: c.roles.users("ro1"), "GET", "/api/roles/ro1/users", None, [USER_JSON], [USER]),
    (lambda c: c.roles.assign_users("ro1", ["u1"]), "POST", "/api/roles/ro1/users", {"userIds": ["u1"]}, None, None),
    (lambda c: c.roles.remove_user("ro1", "u1"), "DELETE", "/api/roles/ro1/users/u1", None, None, None),
    (
        lambda c: c.roles.applications("ro1"),
        "GET",
        "/api/roles/ro1/applications",
        None,
        [APPLICATION_JSON],
        [APPLICATION],
    ),
    (
        lambda c: c.roles.remove_application("ro1", "a1"),
        "DELETE",
        "/api/roles/ro1/applications/a1",
        None,
        None,
        None,
    ),
    (
        lambda c: c.roles.assign_applications("ro1", ["a1"]),
        "POST",
        "/api/roles/ro1/applications",
        {"applicationIds": ["a1"]},
        None,
        None,
    ),
    (
        lambda c: c.organization_permissions.create("read:members", "Read"),
        "POST",
        "/api/organization-scopes",
        {"name": "read:members", "description": "Read"},
        PERMISSION_JSON,
        PERMISSION,
    ),
    (
        lambda c: c.organization_permissions.get("p1"),
        "GET",
        "/api/organization-scopes/p1",
        None,
        PERMISSION_JSON,
        PERMISSION,
    ),
    (
        lambda c: c.organization_permissions.list(),
        "GET",
        "/api/organization-scopes",
        None,
        [PERMISSION_JSON],
        [PERMISSION],
    ),
    (
        lambda c: c.organization_permissions.update("p1", name="read:members", description=None),
        "PATCH",
        "/api/organization-scopes/p1",
        {"name": "read:members", "description": None},
        PERMISSION_JSON,
        PERMISSION,
    ),
    (
        lambda c: c.organization_permissions.delete("p1"),
        "DELETE",
        "/api/organization-scopes/p1",
        None,
        None,
        None,
    ),
    (
        lambda c: c.organization_roles.create("Editor"),
        "POST",
        "/api/organization-roles",
        {"name": "Editor", "type": "User"},
        ORGANIZATION_ROLE_JSON,
        ORGANIZATION_ROLE,
    ),
    (
        lambda c: c.organization_roles.create(
            "Editor", "d", "MachineToMachine", permission_ids=["p1"], resource_scope_ids=iter(["s1"])
        ),
        "POST",
        "/api/organization-roles",
        {
            "name": "Editor",
            "description": "d",
            "type": "MachineToMachine",
            "organizationScopeIds": ["p1"],
            "resourceScopeIds": ["s1"],
        },
        ORGANIZATION_ROLE_JSON,
        ORGANIZATION_ROLE,
    ),
    (
        lambda c: c.organization_roles.get("or1"),
        "GET",
        "/api/organization-roles/or1",
        None,
        ORGANIZATION_ROLE_JSON,
        ORGANIZATION_ROLE,
    ),
    (
        lambda c: c.organization_roles.list(),
        "GET",
        "/api/organization-roles",
        None,
        [LISTED_ROLE_JSON],
        [LISTED_ROLE],
    ),
    (
        lambda c: c.organization_roles.update("or1", name="Editor", description=None, type="User"),
        "PATCH",
        "/api/organization-roles/or1",
        {"name": "Editor", "description": None, "type": "User"},
        ORGANIZATION_ROLE_JSON,
        ORGANIZATION_ROLE,
    ),
    (lambda c: c.organization_roles.delete("or1"), "DELETE", "/api/organization-roles/or1", None, None, None),
    (
        lambda c: c.organization_roles.permissions("or1"),
        "GET",
        "/api/organization-roles/or1/scopes",
        None,
        [PERMISSION_JSON],
        [PERMISSION],
    ),
    (
        lambda c: c.organization_roles.assign_permissions("or1", {"p1"}),
        "POST",
        "/api/organization-roles/or1/scopes",
        {"organizationScopeIds": ["p1"]},
        None,
        None,
    ),
    (
        lambda c: c.organization_roles.replace_permissions("or1", iter([])),
        "PUT",
        "/api/organization-roles/or1/scopes",
        {"organizationScopeIds": []},
        None,
        None,
    ),
    (
        lambda c: c.organization_roles.remove_permission("or1", "p1"),
        "DELETE",
        "/api/organization-roles/or1/scopes/p1",
        None,
        None,
        None,
    ),
    (
        lambda c: c.organization_roles.resource_scopes("or1"),
        "GET",
        "/api/organization-roles/or1/resource-scopes",
        None,
        [RESOURCE_SCOPE_JSON],
        [RESOURCE_SCOPE],
    ),
    (
        lambda c: c.organization_roles.assign_resource_scopes("or1", ["s1"]),
        "POST",
        "/api/organization-roles/or1/resource-scopes",
        {"scopeIds": ["s1"]},
        None,
        None,
    ),
    (
        lambda c: c.organization_roles.replace_resource_scopes("or1", ("s1", "s2")),
        "PUT",
        "/api/organization-roles/or1/resource-scopes",
        {"scopeIds": ["s1", "s2"]},
        None,
        None,
    ),
    (
        lambda c: c.organization_roles.remove_resource_scope("or1", "s1"),
        "DELETE",
        "/api/organization-roles/or1/resource-scopes/s1",
        None,
        None,
        None,
    ),
    (
        lambda c: c.organization_template.get(),
        "GET",
        "/api/organization-template",
        None,
        TEMPLATE_JSON,
        TEMPLATE,
    ),
    (
        lambda c: c.organization_template.put(TEMPLATE),
        "PUT",
        "/api/organization-template",
        TEMPLATE_JSON,
        REPORT_JSON,
        REPORT,
    ),
    (
        lambda c: c.organizations.create("Acme"),
        "POST",
        "/api/organizations",
        {"name": "Acme"},
        ORGANIZATION_JSON,
        ORGANIZATION,
    ),
    (
        lambda c: c.organizations.create(
            "Acme",
            "d",
            custom_data={"plan": "gold"},
            is_mfa_required=True,
            color={},
            branding={},
            custom_css="a {}",
        ),
        "POST",
        "/api/organizations",
        {
            "name": "Acme",
            "description": "d",
            "customData": {"plan": "gold"},
            "isMfaRequired": True,
            "color": {},
            "branding": {},
            "customCss": "a {}",
        },
        ORGANIZATION_JSON,
        ORGANIZATION,
    ),
    (lambda c: c.organizations.get("o1"), "GET", "/api/organizations/o1", None, ORGANIZATION_JSON, ORGANIZATION),
    (lambda c: c.organizations.list(), "GET", "/api/organizations", None, [ORGANIZATION_JSON], [ORGANIZATION]),
    (
        lambda c: c.organizations.update("o1", name="Acme", custom_data=None, is_mfa_required=False, custom_css=None),
        "PATCH",
        "/api/organizations/o1",
        {"name": "Acme", "customData": None, "isMfaRequired": False, "customCss": None},
        ORGANIZATION_JSON,
        ORGANIZATION,
    ),
    (
        lambda c: c.organizations.update("o1", description=None, color={}, branding=None),
        "PATCH",
        "/api/organizations/o1",
        {"description": None, "color": {}, "branding": None},
        ORGANIZATION_JSON,
        ORGANIZATION,
    ),
    (lambda c: c.organizations.delete("o1"), "DELETE", "/api/organizations/o1", None, None, None),
    (
        lambda c: c.organizations.users("o1"),
        "GET",
        "/api/organizations/o1/users",
        None,
        [MEMBER_USER_JSON],
        [MEMBER_USER],
    ),
    (
        lambda c: c.organizations.add_users("o1", ["u1"]),
        "POST",
        "/api/organizations/o1/users",
        {"userIds": ["u1"]},
        None,
        None,
    ),
    (
        lambda c: c.organizations.replace_users("o1", iter(["u1"])),
        "PUT",
        "/api/organizations/o1/users",
        {"userIds": ["u1"]},
        None,
        None,
    ),
    (
        lambda c: c.organizations.remove_user("o1", "u1"),
        "DELETE",
        "/api/organizations/o1/users/u1",
        None,
        None,
        None,
    ),
    (
        lambda c: c.organizations.assign_roles_to_users("o1", ["u1"], {"or1"}),
        "POST",
        "/api/organizations/o1/users/roles",
        {"userIds": ["u1"], "organizationRoleIds": ["or1"]},
        None,
        None,
    ),
    (
        lambda c: c.organizations.user_roles("o1", "u1"),
        "GET",
        "/api/organizations/o1/users/u1/roles",
        None,
        [ORGANIZATION_ROLE_JSON],
        [ORGANIZATION_ROLE],
    ),
    (
        lambda c: c.organizations.assign_user_roles("o1", "u1", ["or1"]),
        "POST",
        "/api/organizations/o1/users/u1/roles",
        {"organizationRoleIds": ["or1"], "organizationRoleNames": []},
        {"organizationRoleIds": ["or1"]},
        ["or1"],
    ),
    (
        lambda c: c.organizations.replace_user_roles("o1", "u1", role_names=["Editor"]),
        "PUT",
        "/api/organizations/o1/users/u1/roles",
        {"organizationRoleIds": [], "organizationRoleNames": ["Editor"]},
        None,
        None,
    ),
    (
        lambda c: c.organizations.remove_user_role("o1", "u1", "or1"),
        "DELETE",
        "/api/organizations/o1/users/u1/roles/or1",
        None,
        None,
        None,
    ),
    (
        lambda c: c.users.organizations("u1"),
        "GET",
        "/api/users/u1/organizations",
        None,
        [MEMBERSHIP_JSON],
        [MEMBERSHIP],
    ),
    (
        lambda c: c.organizations.applications("o1"),
        "GET",
        "/api/organizations/o1/applications",
        None,
        [MEMBER_APPLICATION_JSON],
        [MEMBER_APPLICATION],
    ),
    (
        lambda c: c.organizations.add_applications("o1", ["a1"]),
        "POST",
        "/api/organizations/o1/applications",
        {"applicationIds": ["a1"]},
        None,
        None,
    ),
    (
        lambda c: c.organizations.replace_applications("o1", iter(["a1"])),
        "PUT",
        "/api/organizations/o1/applications",
        {"applicationIds": ["a1"]},
        None,
        None,
    ),
    (
        lambda c: c.organizations.remove_application("o1", "a1"),
        "DELETE",
        "/api/organizations/o1/applications/a1",
        None,
        None,
        None,
    ),
    (
        lambda c: c.organizations.assign_roles_to_applications("o1", ["a1"], {"or1"}),
        "POST",
        "/api/organizations/o1/applications/roles",
        {"applicationIds": ["a1"], "organizationRoleIds": ["or1"]},
        None,
        None,
    ),
    (
        lambda c: c.organizations.application_roles("o1", "a1"),
        "GET",
        "/api/organizations/o1/applications/a1/roles",
        None,
        [ORGANIZATION_ROLE_JSON],
        [ORGANIZATION_ROLE],
    ),
    (
        lambda c: c.organizations.assign_application_roles("o1", "a1", ["or1"]),
        "POST",
        "/api/organizations/o1/applications/a1/roles",
        {"organizationRoleIds": ["or1"], "organizationRoleNames": []},
        {"organizationRoleIds": ["or1"]},
        ["or1"],
    ),
    (
        lambda c: c.organizations.replace_application_roles("o1", "a1", role_names=["Editor"]),
        "PUT",
        "/api/organizations/o1/applications/a1/roles",
        {"organizationRoleIds": [], "organizationRoleNames": ["Editor"]},
        None,
        None,
    ),
    (
        lambda c: c.organizations.remove_application_role("o1", "a1", "or1"),
        "DELETE",
        "/api/organizations/o1/applications/a1/roles/or1",
        None,
        None,
        None,
    ),
    (
        lambda c: c.applications.organizations("a1"),
        "GET",
        "/api/applications/a1/organizations",
        None,
        [MEMBERSHIP_JSON],
        [MEMBERSHIP],
    ),
    (
        lambda c: c.organizations.user_permissions("o1", "u1"),
        "GET",
        "/api/organizations/o1/users/u1/scopes",
        None,
        json.dumps([PERMISSION_JSON]).encode(),
        HeldPermissions(permissions=(PERMISSION,), etag=ETAG),
    ),
    (
        lambda c: c.organizations.application_permissions("o1", "a1"),
        "GET",
        "/api/organizations/o1/applications/a1/scopes",
        None,
        b"[]",
        HeldPermissions(permissions=(), etag=ETAG),
    ),
    (
        lambda c: c.custom_claims.save("access-token", "s"),
        "PUT",
        FUNCTION_PATH,
        {"script": "s"},
        FUNCTION_JSON,
        FUNCTION,
    ),
    (
        lambda c: c.custom_claims.save(
            "access-token",
            "s",
            environment_variables={"KEY": "v"},
            context_sample={"a": 1},
            token_sample={},
            block_issuance_on_error=True,
        ),
        "PUT",
        FUNCTION_PATH,
        {
            "script": "s",
            "environmentVariables": {"KEY": "v"},
            "contextSample": {"a": 1},
            "tokenSample": {},
            "blockIssuanceOnError": True,
        },
        FUNCTION_JSON,
        FUNCTION,
    ),
    (lambda c: c.custom_claims.get("access-token"), "GET", FUNCTION_PATH, None, FUNCTION_JSON, FUNCTION),
    (
        lambda c: c.custom_claims.update("access-token", environment_variables=None, block_issuance_on_error=True),
        "PATCH",
        FUNCTION_PATH,
        {"environmentVariables": None, "blockIssuanceOnError": True},
        FUNCTION_JSON,
        FUNCTION,
    ),
    (lambda c: c.custom_claims.delete("access-token"), "DELETE", FUNCTION_PATH, None, None, None),
    (
        lambda c: c.custom_claims.versions("access-token"),
        "GET",
        f"{FUNCTION_PATH}/versions",
        None,
        [VERSION_JSON],
        [ClaimsFunctionVersion(**VERSION_MEMBERS)],
    ),
    (
        lambda c: c.custom_claims.get_version("access-token", 3),
        "GET",
        f"{FUNCTION_PATH}/versions/3",
        None,
        FUNCTION_JSON,
        FUNCTION,
    ),
    (
        lambda c: c.custom_claims.activate("access-token", 3),
        "POST",
        f"{FUNCTION_PATH}/versions/3/activate",
        None,
        FUNCTION_JSON,
        FUNCTION,
    ),
    (
        lambda c: c.custom_claims.test("access-token", version=3, token={}, context={}),
        "POST",
        "/api/configs/jwt-customizer/test",
        {"tokenType": "access-token", "version": 3, "token": {}, "context": {}},
        {},
        TestedClaims(claims={}),
    ),
    (
        lambda c: c.custom_claims.dry_run("access-token", version=3),
        "POST",
        f"{FUNCTION_PATH}/dry-run",
        {"version": 3},
        {"runs": []},
        DryRunReport(runs=[]),
    ),
    (
        lambda c: c.custom_claims.test("access-token", "s", token={"aud": "a"}, context={}),
        "POST",
        "/api/configs/jwt-customizer/test",
        {"tokenType": "access-token", "script": "s", "token": {"aud": "a"}, "context": {}},
        {"plan": "gold"},
        TestedClaims(claims={"plan": "gold"}),
    ),
    (
        lambda c: c.custom_claims.dry_run("access-token", "s", environment_variables={}),
        "POST",
        f"{FUNCTION_PATH}/dry-run",
        {"script": "s", "environmentVariables": {}},
        {
            "runs": [
                {
                    "recordedAt": 1,
                    "added": {"a": 1},
                    "changed": {},
                    "removed": ["b"],
                    "denied": None,
                    "problem": {"reason": "time", "message": "m", "line": None, "column": None},
                }
            ],
            "omitted": 2,
        },
        DryRunReport(
            runs=[
                DryRunOfInput(
                    recorded_at=1, added={"a": 1}, removed=["b"], problem=ScriptProblem(reason="time", message="m")
                )
            ],
            omitted=2,
        ),
    ),
    (
        lambda c: c.custom_claims.record("access-token", 60),
        "POST",
        f"{FUNCTION_PATH}/recording",
        {"minutes": 60},
        {"expiresAt": 5, "inputCount": 0},
        Recording(expires_at=5),
    ),
    (
        lambda c: c.custom_claims.recording("access-token"),
        "GET",
        f"{FUNCTION_PATH}/recording",
        None,
        {"expiresAt": 5, "inputCount": 7},
        Recording(expires_at=5, input_count=7),
    ),
    (
        lambda c: c.custom_claims.failures("access-token"),
        "GET",
        f"{FUNCTION_PATH}/failures",
        None,
        ({"time": 1, "version": 3, "reason": "exception", "line": 2, "column": None},),  # answered whole
        [ClaimsFunctionFailure(time=1, version=3, reason="exception", line=2)],
    ),
    (
        lambda c: c.subject_tokens.create("u1"),
        "POST",
        "/api/subject-tokens",
        {"userId": "u1"},
        {"subjectToken": SUBJECT_TOKEN, "expiresIn": 600},
        SubjectToken(token=SUBJECT_TOKEN, expires_in=600),
    ),
    (
        lambda c: c.subject_tokens.create("u1", context={"ticketId": "T-1"}),
        "POST",
        "/api/subject-tokens",
        {"userId": "u1", "context": {"ticketId": "T-1"}},
        {"subjectToken": SUBJECT_TOKEN, "expiresIn": 600},
        SubjectToken(token=SUBJECT_TOKEN, expires_in=600),
    ),
    (
        lambda c: c.logs.list(),
        "GET",
        "/api/logs?page_size=100",
        None,
        (  # in pages with cursors
            {
                "id": "l1",
                "occurredAt": 5,
                "key": "audit.gap",
                "log": "exchanges",
                "epoch": "b",
                "outcome": "unknown",
                "gap": {"from": 1, "to": 2, "previousEpoch": "a"},
            },
        ),
        [
            AuditEntry(
                id="l1",
                occurred_at=5,
                key="audit.gap",
                log="exchanges",
                epoch="b",
                outcome="unknown",
                gap=AuditGap(first=1, last=2, previous_epoch="a"),
            )
        ],
    ),
    (
        lambda c: c.logs.get("l1"),
        "GET",
        "/api/logs/l1",
        None,
        {"id": "l1", "occurredAt": 5, "key": "k", "context": {"reason": "r", "ticketId": "t"}, "addedLater": 1},
        AuditEntry(id="l1", occurred_at=5, key="k", context=AuditContext(reason="r", ticket_id="t")),
    ),
    (
        lambda c: c.logs.head(),
        "GET",
        "/api/logs/head",
        None,
        {"head": "a.b.c", "treeSize": 2},
        SignedHead(head="a.b.c", tree_size=2),
    ),
    (
        lambda c: c.logs.figures(start_time=1, end_time=2),
        "GET",
        "/api/logs/figures?start_time=1&end_time=2",
        None,
        ({"hour": 0, "key": "token.exchange.refused", "entries": 3},),  # answered whole
        [AuditFigure(hour=0, key="token.exchange.refused", entries=3)],
    ),
    (lambda c: c.logs.keys(), "GET", "/api/logs/jwks", None, {"keys": []}, {"keys": []}),
    (
        lambda c: c.logs.proof("l1"),
        "GET",
        "/api/logs/l1/proof",
        None,
        {"leafIndex": 0, "leafHash": "h", "treeSize": 2, "auditPath": ["i"], "head": "a.b.c"},
        InclusionProof(leaf_index=0, leaf_hash="h", tree_size=2, audit_path=("i",), head="a.b.c"),
    ),
    (
        lambda c: c.logs.consistency(1),
        "GET",
        "/api/logs/consistency?from=1",
        None,
        {"from": 1, "to": 2, "path": ["h"], "head": "a.b.c"},
        ConsistencyProof(first=1, second=2, path=("h",), head="a.b.c"),
    ),
    (
        lambda c: c.impersonations.list(active=True, user_id="u1"),
        "GET",
        "/api/impersonations?active=true&userId=u1&page_size=100",
        None,
        (IMPERSONATION,),
        [Impersonation(id="i1", user_id="u1", created_at=1, expires_at=2)],
    ),
    (
        lambda c: c.impersonations.get("i1"),
        "GET",
        "/api/impersonations/i1",
        None,
        IMPERSONATION | {"events": [{"id": "l1", "occurredAt": 5, "key": "k"}]},
        Impersonation(
            id="i1",
            user_id="u1",
            created_at=1,
            expires_at=2,
            events=(AuditEntry(id="l1", occurred_at=5, key="k"),),
        ),
    ),
    (
        lambda c: c.users.impersonations("u1", role="actor"),
        "GET",
        "/api/users/u1/impersonations?role=actor&page_size=100",
        None,
        (IMPERSONATION,),
        [Impersonation(id="i1", user_id="u1", created_at=1, expires_at=2)],
    ),
    (lambda c: c.impersonations.end("i1"), "POST", "/api/impersonations/i1/end", None, None, None),
    (
        lambda c: c.impersonations.end_all(actor_id="u1"),
        "POST",
        "/api/impersonations/end",
        {"actorId": "u1"},
        None,
        None,
    ),
    (lambda c: c.impersonations.end_all(all=True), "POST", "/api/impersonations/end", {"all": True}, None, None),
]
IDS = [f"{row[1]} {row[2]}" for row in OPERATIONS]


def carried_out(result: Any) -> Any:
    """Return a result; an iterable, other than a JSON object, as a list."""
    return list(result) if hasattr(result, "__iter__") and not isinstance(result, dict) else result


async def async_carried_out(result: Any) -> Any:
    return [item async for item in result] if hasattr(result, "__aiter__") else await result


def is_listed(method: str, answer: Any) -> bool:
    return method == "GET" and isinstance(answer, list)


def prepare(service: Service, method: str, path: str, answer: Any) -> None:
    if is_listed(method, answer):
        service.will_list(path, answer)
    else:
        status = 204 if answer is None else 200
        service.will_answer(method, path.partition("?")[0], answer, status=status, headers={"ETag": ETAG})


def assert_sent(service: Service, method: str, path: str, body: Any, answer: Any) -> None:
    (sent,) = service.calls
    assert (sent.method, sent.target) == (method, path + ("?page=1&page_size=100" if is_listed(method, answer) else ""))
    assert (json.loads(sent.body) if sent.body else None) == body


@pytest.mark.parametrize(("call", "method", "path", "body", "answer", "result"), OPERATIONS, ids=IDS)
def test_an_operation_sends_one_request_and_reads_one_answer(
    service: Service, client: ManagementClient, call: Call, method: str, path: str, body: Any, answer: Any, result: Any
) -> None:
    prepare(service, method, path, answer)
    assert carried_out(call(client)) == result
    assert_sent(service, method, path, body, answer)


@pytest.mark.parametrize(("call", "method", "path", "body", "answer", "result"), OPERATIONS, ids=IDS)
async def test_an_operation_of_the_client_for_tasks_sends_and_reads_the_same(
    service: Service,
    async_client: AsyncManagementClient,
    call: Call,
    method: str,
    path: str,
    body: Any,
    answer: Any,
    result: Any,
) -> None:
    prepare(service, method, path, answer)
    assert await async_carried_out(call(async_client)) == result
    assert_sent(service, method, path, body, answer)


async def test_a_dry_run_is_a_parameter_and_a_document_may_be_decoded_json(
    service: Service, client: ManagementClient, async_client: AsyncManagementClient
) -> None:
    service.will_answer("PUT", "/api/organization-template", REPORT_JSON)
    assert client.organization_template.put(TEMPLATE_JSON, dry_run=True) == REPORT
    assert await async_client.organization_template.put(TEMPLATE, dry_run=True) == REPORT
    assert [call.target for call in service.calls] == ["/api/organization-template?dry-run=true"] * 2
    assert [json.loads(call.body) for call in service.calls] == [TEMPLATE_JSON] * 2


async def test_reserved_claims_are_named_by_a_header(
    service: Service, client: ManagementClient, async_client: AsyncManagementClient
) -> None:
    path = "/api/configs/jwt-customizer/test"
    service.will_answer("POST", path, {"a": 1}, headers={"Dropped-Claims": "aud, sub"})
    expected = TestedClaims(claims={"a": 1}, dropped=["aud", "sub"])
    arguments: dict[str, Any] = {"token": {}, "context": {}}
    assert client.custom_claims.test("client-credentials", "s", **arguments) == expected
    assert await async_client.custom_claims.test("client-credentials", "s", **arguments) == expected


@pytest.mark.parametrize(("call", "method", "path"), [row[:3] for row in OPERATIONS], ids=IDS)
async def test_no_operation_overlooks_a_refusal(
    service: Service,
    client: ManagementClient,
    async_client: AsyncManagementClient,
    call: Call,
    method: str,
    path: str,
) -> None:
    refusal = {"code": "entity.not_found", "message": "No."}
    service.will_answer(method, path.partition("?")[0], refusal, status=404)
    with pytest.raises(NotFound):
        carried_out(call(client))
    with pytest.raises(NotFound):
        await async_carried_out(call(async_client))


def offered(client: ManagementClient | AsyncManagementClient) -> dict[str, Any]:
    """Return the operations of a client by name."""
    return {
        f"{group_name}.{name}": getattr(type(group), name)
        for group_name, group in vars(client).items()
        if not group_name.startswith("_")
        for name in dir(type(group))
        if not name.startswith("_")
    }


class Recorder:
    """Stands for a client, and notes the name of the operation that is called."""

    def __init__(self, called: set[str], name: str = "") -> None:
        self.called = called
        self.name = name

    def __getattr__(self, attribute: str) -> Recorder:
        return Recorder(self.called, f"{self.name}.{attribute}".removeprefix("."))

    def __call__(self, *_: Any, **__: Any) -> None:
        self.called.add(self.name)


def test_every_operation_has_a_row_above_and_a_docstring(client: ManagementClient) -> None:
    called: set[str] = set()
    for row in OPERATIONS:
        row[0](Recorder(called))
    assert called == set(offered(client))
    assert all(operation.__doc__ for operation in offered(client).values())


def test_a_write_takes_a_version_where_the_api_does(client: ManagementClient) -> None:
    paths: dict[str, Any] = json.loads(OPENAPI.read_bytes())["paths"]
    conditional = [
        (method.upper(), re.compile(re.sub(r"{\w+}", "[^/]+", path)))
        for path, operations in paths.items()
        for method, operation in operations.items()
        if any(parameter.get("name") == "If-Match" for parameter in operation.get("parameters", ()))
    ]
    taking: set[str] = set()
    for call, method, path, *_ in OPERATIONS:
        if any(method == verb and pattern.fullmatch(path) for verb, pattern in conditional):
            call(Recorder(taking))
    with_parameter = {
        name
        for name in offered(client)
        if "if_match" in inspect.signature(operator.attrgetter(name)(client)).parameters
    }
    assert taking == with_parameter


def test_both_clients_offer_the_same(client: ManagementClient, async_client: AsyncManagementClient) -> None:
    assert offered(client) == offered(async_client)


async def test_a_bound_operation_shows_its_parameters(
    client: ManagementClient, async_client: AsyncManagementClient
) -> None:
    """For ``help`` and for editors."""
    for users in (client.users, async_client.users):
        assert users.create.__name__ == "create_user"
        assert users.create.__doc__ is not None
        parameters = ["search", "exact", "like", "joint", "ids"]
        parameters += ["without_role_id", "without_organization_id", "page_size"]
        assert list(inspect.signature(users.list).parameters) == parameters
    assert inspect.iscoroutinefunction(async_client.users.create)


def test_the_audit_trail_is_followed_by_the_cursor_of_each_link(service: Service, client: ManagementClient) -> None:
    listed = iter(client.logs.list(key="k", user_id="u1", start_time=7, page_size=1))
    for entry_id, cursor in (("l3", "30.3"), ("l2", "20.2"), ("l1", None)):
        link = f'<https://elsewhere.example/api/logs?logKey=k&after={cursor}&page_size=1>; rel="next"'
        answer = [{"id": entry_id, "occurredAt": 1, "key": "k"}]
        service.will_answer("GET", "/api/logs", answer, headers={"Link": link} if cursor else {})
        assert next(listed).id == entry_id
    assert next(listed, None) is None
    given = "/api/logs?userId=u1&logKey=k&start_time=7"
    expected = [f"{given}&page_size=1", f"{given}&after=30.3&page_size=1", f"{given}&after=20.2&page_size=1"]
    assert [call.target for call in service.calls] == expected


def test_a_link_without_a_new_cursor_ends_with_an_error(service: Service, client: ManagementClient) -> None:
    for query in ("page_size=1", "after="):
        service.will_answer("GET", "/api/logs", [], headers={"Link": f'</api/logs?{query}>; rel="next"'})
        with pytest.raises(ApiError):
            list(client.logs.list())
