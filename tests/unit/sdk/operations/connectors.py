"""Operations on connectors, and on the identities of users."""

from __future__ import annotations

from stead import Connector, ConnectorConfig, ConnectorTrusts, TrustedFactor, UserIdentity
from tests.unit.sdk.operations.rows import Row

PATH = "/api/sso-connectors"
FACTOR_JSON = {"claim": "amr", "value": "mfa", "level": "mfa"}
CONNECTOR_JSON = {
    "tenantId": "default",
    "id": "c1",
    "providerName": "OIDC",
    "connectorName": "Okta",
    "config": {"issuer": "https://okta.test", "unknown": "to this version"},
    "matchClaim": "oid",
    "isEnabled": False,
    "trusts": {"actors": ["a1"], "factors": [FACTOR_JSON]},
    "createdAt": 1,
}
CONNECTOR = Connector(
    id="c1",
    connector_name="Okta",
    config=ConnectorConfig(issuer="https://okta.test"),
    match_claim="oid",
    is_enabled=False,
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
            trusts={"actors": ["a1"], "factors": [FACTOR_JSON]},
        ),
        "POST",
        PATH,
        {member: CONNECTOR_JSON[member] for member in ("providerName", "connectorName", "matchClaim", "isEnabled")}
        | {"config": {"issuer": "https://okta.test"}, "trusts": CONNECTOR_JSON["trusts"]},
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
        lambda c: c.connectors.update("c1", connector_name="Okta", config={"issuer": "https://i"}, match_claim="oid"),
        "PATCH",
        f"{PATH}/c1",
        {"connectorName": "Okta", "config": {"issuer": "https://i"}, "matchClaim": "oid"},
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
