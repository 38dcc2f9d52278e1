"""What a token is bound to: rules without a server."""

from __future__ import annotations

from identity_common.wire.events import ResourceState
from token_service.grants.targets import Target

RESOURCE = ResourceState(id="r", indicator="https://api.example.com")
TARGETS = [
    Target(audience="https://id.example.com/oidc/me", lifetime_s=3600),
    Target(audience="https://api.example.com", lifetime_s=60, resource=RESOURCE),
    Target(audience="urn:service:organization:o", lifetime_s=3600, organization_id="o"),
    Target(audience="https://api.example.com", lifetime_s=60, resource=RESOURCE, organization_id="o"),
]


def test_only_a_token_for_a_resource_names_the_organization_in_a_claim() -> None:
    """The contract: the token for the organization itself names it in ``aud``."""
    assert [target.organization_claim for target in TARGETS] == [None, None, None, "o"]


def test_each_target_names_the_sources_that_decide_about_its_scopes() -> None:
    """A scope that is not held yet is looked up once more in every source that could grant it."""
    assert [target.sources for target in TARGETS] == [(), ("management",), ("template",), ("management", "template")]
