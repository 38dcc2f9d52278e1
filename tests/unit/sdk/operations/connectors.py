"""Operations on connectors, and on the identities of users."""

from __future__ import annotations

from stead import (
    Connector,
    ConnectorBranding,
    ConnectorConfig,
    ConnectorTrusts,
    RequiredClaim,
    TrustedFactor,
    UserIdentity,
)
from tests.unit.sdk.operations.rows import Row

PATH = "/api/sso-connectors"
FACTOR_JSON = {"claim": "amr", "value": "mfa", "level": "mfa"}
CONNECTOR_JSON = {
    "tenantId": "default",
    "id": "c1",
    "providerName": "OIDC",
    "connectorName": "Okta",
    "config": {
        "issuer": "https://okta.test",
        "clientId": "0oa",
        "hasClientSecret": True,
        "scope": "openid groups",
        "unknown": "to this version",
    },
    "matchClaim": "oid",
    "isEnabled": False,
    "domains": ["a.test"],
    "allowedDomains": ["b.test"],
    "requiredClaims": [{"claim": "hd", "value": "a.test"}],
    "groupsClaim": "groups",
    "syncProfile": True,
    "sessionMaxAgeS": 3600,
    "branding": {"displayName": "Work", "logoUri": "https://a.test/logo"},
    "trusts": {"actors": ["a1"], "factors": [FACTOR_JSON]},
    "createdAt": 1,
}
CONNECTOR = Connector(
    id="c1",
    connector_name="Okta",
    config=ConnectorConfig(issuer="https://okta.test", client_id="0oa", has_client_secret=True, scope="openid groups"),
    match_claim="oid",
    is_enabled=False,
    domains=("a.test",),
    allowed_domains=("b.test",),
    required_claims=(RequiredClaim(claim="hd", value="a.test"),),
    groups_claim="groups",
    sync_profile=True,
    session_max_age_s=3600,
    branding=ConnectorBranding(display_name="Work", logo_uri="https://a.test/logo"),
    trusts=ConnectorTrusts(actors=("a1",), factors=(TrustedFactor(claim="amr", value="mfa", level="mfa"),)),
    created_at=1,
)
IDENTITY_JSON = {"id": "i1", "connectorId": "c1", "value": "4711", "createdAt": 1}
IDENTITY = UserIdentity(id="i1", connector_id="c1", value="4711", created_at=1)

ROWS: list[Row] = [
    (
        lambda c: c.connectors.create("Okta", {"issuer": "https://okta.test"}),
        "POST",
        PATH,
        {"providerName": "OIDC", "connectorName": "Okta", "config": {"issuer": "https://okta.test"}},
        CONNECTOR_JSON,
        CONNECTOR,
    ),
    (
        lambda c: c.connectors.create(
            "Okta",
            {"issuer": "https://okta.test"},
            match_claim="oid",
            is_enabled=False,
            domains=["a.test"],
            allowed_domains=iter(["b.test"]),
            required_claims=[{"claim": "hd", "value": "a.test"}],
            groups_claim="groups",
            sync_profile=True,
            session_max_age_s=3600,
            branding={"displayName": "Work", "logoUri": "https://a.test/logo"},
            trusts={"actors": ["a1"], "factors": [FACTOR_JSON]},
        ),
        "POST",
        PATH,
        {member: value for member, value in CONNECTOR_JSON.items() if member not in {"tenantId", "id", "createdAt"}}
        | {"config": {"issuer": "https://okta.test"}},
        CONNECTOR_JSON,
        CONNECTOR,
    ),
    (lambda c: c.connectors.get("c1"), "GET", f"{PATH}/c1", None, CONNECTOR_JSON, CONNECTOR),
    (lambda c: c.connectors.list(), "GET", PATH, None, [CONNECTOR_JSON], [CONNECTOR]),
    (
        lambda c: c.connectors.update("c1", is_enabled=False, trusts=None),
        "PATCH",
        f"{PATH}/c1",
        {"isEnabled": False, "trusts": None},
        CONNECTOR_JSON,
        CONNECTOR,
    ),
    (
        lambda c: c.connectors.update(
            "c1",
            connector_name="Okta",
            config={"issuer": "https://i"},
            match_claim="oid",
            domains=iter(["a.test"]),
            allowed_domains=[],
            required_claims=[],
            groups_claim=None,
            sync_profile=False,
            session_max_age_s=None,
            branding=None,
        ),
        "PATCH",
        f"{PATH}/c1",
        {
            "connectorName": "Okta",
            "config": {"issuer": "https://i"},
            "matchClaim": "oid",
            "domains": ["a.test"],
            "allowedDomains": [],
            "requiredClaims": [],
            "groupsClaim": None,
            "syncProfile": False,
            "sessionMaxAgeS": None,
            "branding": None,
        },
        CONNECTOR_JSON,
        CONNECTOR,
    ),
    (lambda c: c.connectors.delete("c1"), "DELETE", f"{PATH}/c1", None, None, None),
    (lambda c: c.connectors.test("c1"), "POST", f"{PATH}/c1/test", None, None, None),
    (
        lambda c: c.users.add_identity("u1", "c1", "4711"),
        "POST",
        "/api/users/u1/identities",
        {"connectorId": "c1", "value": "4711"},
        IDENTITY_JSON,
        IDENTITY,
    ),
    (lambda c: c.users.identities("u1"), "GET", "/api/users/u1/identities", None, [IDENTITY_JSON], [IDENTITY]),
    (
        lambda c: c.users.remove_identity("u1", "i1"),
        "DELETE",
        "/api/users/u1/identities/i1",
        None,
        None,
        None,
    ),
]
