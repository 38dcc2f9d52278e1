"""Operations on who joins an organization just in time."""

from __future__ import annotations

from stead import JitConnector, JitEmailDomain, JitGroup, OrganizationRoleReference
from tests.unit.sdk.operations.entities import ORGANIZATION_ROLE, ORGANIZATION_ROLE_JSON
from tests.unit.sdk.operations.rows import Row

PATH = "/api/organizations/o1/jit"
DOMAIN_JSON = {"tenantId": "default", "organizationId": "o1", "emailDomain": "a.test"}
DOMAIN = JitEmailDomain(tenant_id="default", organization_id="o1", email_domain="a.test")
CONNECTOR_JSON = {"tenantId": "default", "id": "c1", "connectorName": "Okta"}
CONNECTOR = JitConnector(tenant_id="default", id="c1", connector_name="Okta")
NEW_GROUP = {"ssoConnectorId": "c1", "group": "support", "organizationRoleIds": ["or1"]}
GROUP_JSON = {
    "tenantId": "default",
    "id": "g1",
    "ssoConnectorId": "c1",
    "group": "support",
    "organizationRoles": [{"id": "or1", "name": "Editor"}],
}
GROUP = JitGroup(
    tenant_id="default",
    id="g1",
    sso_connector_id="c1",
    group="support",
    organization_roles=[OrganizationRoleReference(id="or1", name="Editor")],
)

ROWS: list[Row] = [
    (
        lambda c: c.organizations.jit_email_domains("o1"),
        "GET",
        f"{PATH}/email-domains",
        None,
        [DOMAIN_JSON],
        [DOMAIN],
    ),
    (
        lambda c: c.organizations.add_jit_email_domain("o1", "a.test"),
        "POST",
        f"{PATH}/email-domains",
        {"emailDomain": "a.test"},
        DOMAIN_JSON,
        DOMAIN,
    ),
    (
        lambda c: c.organizations.replace_jit_email_domains("o1", iter(["a.test"])),
        "PUT",
        f"{PATH}/email-domains",
        {"emailDomains": ["a.test"]},
        None,
        None,
    ),
    (
        lambda c: c.organizations.remove_jit_email_domain("o1", "a.test"),
        "DELETE",
        f"{PATH}/email-domains/a.test",
        None,
        None,
        None,
    ),
    (
        lambda c: c.organizations.jit_roles("o1"),
        "GET",
        f"{PATH}/roles",
        None,
        [ORGANIZATION_ROLE_JSON],
        [ORGANIZATION_ROLE],
    ),
    (
        lambda c: c.organizations.add_jit_roles("o1", {"or1"}),
        "POST",
        f"{PATH}/roles",
        {"organizationRoleIds": ["or1"]},
        None,
        None,
    ),
    (
        lambda c: c.organizations.replace_jit_roles("o1", ["or1"]),
        "PUT",
        f"{PATH}/roles",
        {"organizationRoleIds": ["or1"]},
        None,
        None,
    ),
    (lambda c: c.organizations.remove_jit_role("o1", "or1"), "DELETE", f"{PATH}/roles/or1", None, None, None),
    (
        lambda c: c.organizations.jit_connectors("o1"),
        "GET",
        f"{PATH}/sso-connectors",
        None,
        [CONNECTOR_JSON],
        [CONNECTOR],
    ),
    (
        lambda c: c.organizations.add_jit_connectors("o1", ["c1"]),
        "POST",
        f"{PATH}/sso-connectors",
        {"ssoConnectorIds": ["c1"]},
        None,
        None,
    ),
    (
        lambda c: c.organizations.replace_jit_connectors("o1", iter(["c1"])),
        "PUT",
        f"{PATH}/sso-connectors",
        {"ssoConnectorIds": ["c1"]},
        None,
        None,
    ),
    (
        lambda c: c.organizations.remove_jit_connector("o1", "c1"),
        "DELETE",
        f"{PATH}/sso-connectors/c1",
        None,
        None,
        None,
    ),
    (lambda c: c.organizations.jit_groups("o1"), "GET", f"{PATH}/groups", None, [GROUP_JSON], [GROUP]),
    (
        lambda c: c.organizations.add_jit_group("o1", "c1", "support", iter(["or1"])),
        "POST",
        f"{PATH}/groups",
        NEW_GROUP,
        {"id": "g1", **NEW_GROUP},
        "g1",
    ),
    (
        lambda c: c.organizations.replace_jit_groups("o1", iter([NEW_GROUP])),
        "PUT",
        f"{PATH}/groups",
        {"groups": [NEW_GROUP]},
        None,
        None,
    ),
    (lambda c: c.organizations.remove_jit_group("o1", "g1"), "DELETE", f"{PATH}/groups/g1", None, None, None),
]
