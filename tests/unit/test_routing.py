"""The routing table: exact, prefix and one-segment patterns; everything else is management-service's."""

import pytest

from identity_common.http.routing import service_for


@pytest.mark.parametrize(
    ("path", "service"),
    [
        ("/oidc/token", "token"),
        ("/oidc", "token"),
        ("/oidc/me", "token"),
        ("/oidc/me/impersonations", "management"),
        ("/oidc/me/impersonations/i1/end", "management"),
        ("/oidc/me/impersonationsx", "token"),
        ("/.well-known/oauth-authorization-server/oidc", "token"),
        ("/.well-known/openid-configuration", "token"),
        ("/.well-known", "token"),
        ("/oidc/.well-known/oauth-authorization-server", "token"),
        ("/sign-in", "token"),
        ("/api/configs/oidc/private-keys", "token"),
        ("/api/organizations", "template"),
        ("/api/organizations/1/users/2/scopes", "template"),
        ("/api/organization-scopes/x", "template"),
        ("/api/users/u1/organizations", "template"),
        ("/api/applications/a1/organizations", "template"),
        ("/api/users/u1/consents", "token"),
        ("/api/users/u1/consents/a1", "token"),
        ("/api/users/u1/consentsx", "management"),
        ("/api/users/u1/sessions", "token"),
        ("/api/users/u1/sessions/s1", "token"),
        ("/api/my-account", "management"),
        ("/api/my-account/password", "management"),
        ("/api/my-account/sessions", "token"),
        ("/api/my-account/sessions/s1", "token"),
        ("/api/my-account/consents/a1", "token"),
        ("/api/my-account/sessionsx", "management"),
        ("/api/users/u1", "management"),
        ("/api/users/u1/x/organizations", "management"),
        ("/api/users//organizations", "management"),
        ("/api/configs/jwt-customizer/access-token", "management"),
        ("/api/organizationsx", "management"),
        ("/oidcx", "management"),
        ("/console", "console"),
        ("/console/users/u1", "console"),
        ("/consolex", "management"),
        ("/account", "console"),
        ("/account/sessions", "console"),
        ("/accountx", "management"),
        ("/", "management"),
        ("/health/ready", None),
        ("/metrics", None),
        ("/schema/openapi.json", None),
    ],
)
def test_each_path_belongs_to_one_service(path: str, service: str | None) -> None:
    assert service_for(path) == service
