"""Operations on applications and their secrets."""

from __future__ import annotations

from stead import (
    ApplicationSecret,
    OidcClientMetadata,
)
from tests.unit.sdk.operations.entities import (
    APPLICATION,
    APPLICATION_JSON,
    MEMBERSHIP,
    MEMBERSHIP_JSON,
    SECRET,
    SECRET_JSON,
)
from tests.unit.sdk.operations.rows import Row

ROWS: list[Row] = [
    (
        lambda c: c.applications.rename_secret("a1", "first x", new_name="second"),
        "PATCH",
        "/api/applications/a1/secrets/first%20x",
        {"name": "second"},
        {"name": "second"},
        ApplicationSecret(name="second"),
    ),
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
        lambda c: c.applications.organizations("a1"),
        "GET",
        "/api/applications/a1/organizations",
        None,
        [MEMBERSHIP_JSON],
        [MEMBERSHIP],
    ),
]
