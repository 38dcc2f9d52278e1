"""Operations on users, their consents, sessions, roles and organizations."""

from __future__ import annotations

from stead import (
    Consent,
    EffectivePermissions,
    EnrolmentCode,
    Factor,
    Factors,
    GrantedPermission,
    GrantingRole,
    Impersonation,
    ImportedUser,
    Invitation,
    OpenInvitation,
    OrganizationRoleReference,
    PermissionsForResource,
    PermissionsInOrganization,
    ResourceConsent,
    SignInPolicy,
    SignInSession,
)
from tests.unit.sdk.operations.entities import (
    IMPERSONATION,
    MEMBERSHIP,
    MEMBERSHIP_JSON,
    ROLE,
    ROLE_JSON,
    USER,
    USER_JSON,
)
from tests.unit.sdk.operations.rows import Row
from tests.unit.sdk.service import PASSWORD

PERMISSION_AND_ROLE_JSON = {"id": "s1", "name": "read:orders", "roles": [{"id": "ro1", "name": "Clerk"}]}
PERMISSION_AND_ROLE = GrantedPermission(id="s1", name="read:orders", roles=(GrantingRole(id="ro1", name="Clerk"),))
PERMISSIONS_FOR_RESOURCE_JSON = {
    "id": "r1",
    "name": "Orders",
    "indicator": "https://orders.example.com",
    "scopes": [PERMISSION_AND_ROLE_JSON],
}
PERMISSIONS_FOR_RESOURCE = PermissionsForResource(
    id="r1", name="Orders", indicator="https://orders.example.com", scopes=(PERMISSION_AND_ROLE,)
)

FACTOR_JSON = {"id": "f1", "type": "passkey", "name": "Key", "createdAt": 1, "lastUsedAt": None, "isBackedUp": True}
FACTOR = Factor(id="f1", type="passkey", name="Key", created_at=1, is_backed_up=True)

ROWS: list[Row] = [
    (lambda c: c.users.create(), "POST", "/api/users", {}, USER_JSON, USER),
    (
        lambda c: c.users.create(
            username="ada",
            password=PASSWORD,
            name="Ada",
            primary_email="ada@example.com",
            primary_phone="123",
            avatar="https://example.com/a.png",
            external_id="crm-1",
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
            "externalId": "crm-1",
            "customData": {"plan": "gold"},
            "profile": {"nickname": "A"},
        },
        USER_JSON,
        USER,
    ),
    (
        lambda c: c.users.import_users([{"externalId": "crm-1", "name": "Ada"}]),
        "POST",
        "/api/users/import",
        {"externalId": "crm-1", "name": "Ada"},
        {"line": 1, "status": "created", "externalId": "crm-1", "id": "u1"},
        [ImportedUser(line=1, status="created", external_id="crm-1", id="u1")],
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
    (
        lambda c: c.users.effective_permissions("u1"),
        "GET",
        "/api/users/u1/effective-permissions?page=1&page_size=20",
        None,
        {
            "isSuspended": True,
            "resources": [PERMISSIONS_FOR_RESOURCE_JSON],
            "organizations": [
                {
                    "id": "o1",
                    "name": "Acme",
                    "organizationRoles": [{"id": "or1", "name": "Editor", "origins": ["c1", "manual"]}],
                    "permissions": [PERMISSION_AND_ROLE_JSON],
                    "resources": [PERMISSIONS_FOR_RESOURCE_JSON],
                }
            ],
        },
        EffectivePermissions(
            is_suspended=True,
            resources=(PERMISSIONS_FOR_RESOURCE,),
            organizations=(
                PermissionsInOrganization(
                    id="o1",
                    name="Acme",
                    organization_roles=(OrganizationRoleReference(id="or1", name="Editor", origins=["c1", "manual"]),),
                    permissions=(PERMISSION_AND_ROLE,),
                    resources=(PERMISSIONS_FOR_RESOURCE,),
                ),
            ),
            organization_count=1,
        ),
    ),
    (
        lambda c: c.users.sessions("u1"),
        "GET",
        "/api/users/u1/sessions",
        None,
        [
            {
                "tenantId": "default",
                "id": "s1",
                "userId": "u1",
                "createdAt": 1,
                "signedInAt": 2,
                "expiresAt": None,
                "address": "203.0.113.7",
                "userAgent": "Firefox",
            }
        ],
        [
            SignInSession(
                tenant_id="default",
                id="s1",
                user_id="u1",
                created_at=1,
                signed_in_at=2,
                address="203.0.113.7",
                user_agent="Firefox",
            )
        ],
    ),
    (
        lambda c: c.users.factors("u1"),
        "GET",
        "/api/users/u1/factors",
        None,
        {"factors": [FACTOR_JSON], "recoveryCodes": 9},
        Factors(factors=(FACTOR,), recovery_codes=9),
    ),
    (lambda c: c.users.remove_factor("u1", "f1"), "DELETE", "/api/users/u1/factors/f1", None, None, None),
    (
        lambda c: c.users.reset_factors("u1", reason="A lost phone."),
        "POST",
        "/api/users/u1/factors/reset",
        {"reason": "A lost phone."},
        None,
        None,
    ),
    (
        lambda c: c.users.create_enrolment_code("u1"),
        "POST",
        "/api/users/u1/factors/enrolment-code",
        None,
        {"code": "ABCDE-FGHIJ", "expiresAt": 2},
        EnrolmentCode(code="ABCDE-FGHIJ", expires_at=2),
    ),
    (lambda c: c.users.end_session("u1", "s1"), "DELETE", "/api/users/u1/sessions/s1", None, None, None),
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
        lambda c: c.users.send_verification_email("u1"),
        "POST",
        "/api/users/u1/verification-email",
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
        lambda c: c.users.invitations(),
        "GET",
        "/api/invitations",
        None,
        [
            {
                "userId": "u1",
                "status": "Expired",
                "createdAt": 1,
                "expiresAt": 7,
                "inviterId": "u2",
                "applicationId": "a1",
            }
        ],
        [
            OpenInvitation(
                user_id="u1", status="Expired", created_at=1, expires_at=7, inviter_id="u2", application_id="a1"
            )
        ],
    ),
    (lambda c: c.users.withdraw_invitation("u1"), "DELETE", "/api/users/u1/invitation", None, None, None),
    (lambda c: c.users.roles("u1"), "GET", "/api/users/u1/roles", None, [ROLE_JSON], [ROLE]),
    (lambda c: c.users.assign_roles("u1", ["ro1"]), "POST", "/api/users/u1/roles", {"roleIds": ["ro1"]}, None, None),
    (lambda c: c.users.replace_roles("u1", iter([])), "PUT", "/api/users/u1/roles", {"roleIds": []}, None, None),
    (lambda c: c.users.remove_role("u1", "ro1"), "DELETE", "/api/users/u1/roles/ro1", None, None, None),
    (
        lambda c: c.users.organizations("u1"),
        "GET",
        "/api/users/u1/organizations",
        None,
        [MEMBERSHIP_JSON],
        [MEMBERSHIP],
    ),
    (
        lambda c: c.users.impersonations("u1", role="actor"),
        "GET",
        "/api/users/u1/impersonations?role=actor&page_size=100",
        None,
        (IMPERSONATION,),
        [Impersonation(id="i1", user_id="u1", created_at=1, expires_at=2)],
    ),
    (
        lambda c: c.sign_in_policy.get(),
        "GET",
        "/api/configs/sign-in",
        None,
        {
            "tenantId": "default",
            "registration": "domains",
            "registrationDomains": ["example.com"],
            "secondFactor": "required",
        },
        SignInPolicy(registration="domains", registration_domains=("example.com",), second_factor="required"),
    ),
    (
        lambda c: c.sign_in_policy.update(
            registration=None, registration_domains=iter(["example.com"]), second_factor="off"
        ),
        "PATCH",
        "/api/configs/sign-in",
        {"registration": None, "registrationDomains": ["example.com"], "secondFactor": "off"},
        {
            "tenantId": "default",
            "registration": "off",
            "registrationDomains": ["example.com"],
            "secondFactor": "off",
        },
        SignInPolicy(registration_domains=("example.com",), second_factor="off"),
    ),
]
