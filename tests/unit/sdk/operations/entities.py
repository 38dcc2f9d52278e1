"""Entities as the service answers them, and as the SDK returns them."""

from __future__ import annotations

from typing import Any

import msgspec

from stead import (
    Application,
    ApplicationSecret,
    ClaimsFunction,
    CustomClientMetadata,
    OidcClientMetadata,
    Organization,
    OrganizationApplication,
    OrganizationInvitation,
    OrganizationMembership,
    OrganizationPermission,
    OrganizationRole,
    OrganizationRoleReference,
    OrganizationTemplate,
    OrganizationUser,
    Resource,
    ResourceReference,
    ResourceScope,
    Role,
    Scope,
    TemplatePermission,
    TemplateReport,
    TemplateRole,
    TemplateScope,
    User,
)
from stead.event_types import GrantedPermission
from stead.models import (
    AffectedMember,
    AffectedMembers,
    MemberEffect,
    OrganizationReference,
    Reach,
    SavedBy,
    TemplateChange,
    TemplateChanges,
    TextChange,
)

USER_JSON = {
    "tenantId": "default",
    "id": "u1",
    "username": "ada",
    "primaryEmail": "ada@example.com",
    "primaryPhone": None,
    "name": "Ada",
    "avatar": None,
    "externalId": "crm-1",
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
    external_id="crm-1",
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
    "customClientMetadata": {"allowTokenExchange": True, "minimumAcr": "mfa"},
    "isThirdParty": False,
}
APPLICATION = Application(
    tenant_id="default",
    id="a1",
    name="Shop",
    type="Traditional",
    oidc_client_metadata=OidcClientMetadata(redirect_uris=["https://shop.example/cb"]),
    custom_client_metadata=CustomClientMetadata(allow_token_exchange=True, minimum_acr="mfa"),
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
INVITATION_TO_ORGANIZATION_JSON = {
    "id": "i1",
    "organizationId": "o1",
    "invitee": "ada@id.test",
    "status": "Pending",
    "createdAt": 1,
    "expiresAt": 2,
    "messageSentAt": None,
    **HELD_JSON,
}
INVITATION_TO_ORGANIZATION = OrganizationInvitation(
    id="i1",
    organization_id="o1",
    invitee="ada@id.test",
    status="Pending",
    created_at=1,
    expires_at=2,
    organization_roles=HELD,
)
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


IMPERSONATION = {"id": "i1", "userId": "u1", "createdAt": 1, "expiresAt": 2}

AFFECTED_JSON = {
    "members": [
        {
            "type": "application",
            "id": "a1",
            "organization": {"id": "o1", "name": "Acme"},
            "gaining": [{"name": "read:things", "resource": "https://api.example.com"}],
            "losing": [{"name": "c"}],
        }
    ],
    "hasMore": True,
}
AFFECTED = AffectedMembers(
    members=[
        AffectedMember(
            type="application",
            id="a1",
            organization=OrganizationReference(id="o1", name="Acme"),
            gaining=[GrantedPermission("read:things", "https://api.example.com")],
            losing=[GrantedPermission("c")],
        )
    ],
    has_more=True,
)
