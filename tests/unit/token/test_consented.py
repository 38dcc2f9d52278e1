"""What a user has consented to covers a request only if it covers all kinds of what is requested."""

from __future__ import annotations

import pytest

from token_service.authorizations import Consented

SHOP, BANK = "https://shop.example.com", "https://bank.example.com"
HELD = Consented(
    scopes=frozenset({"openid", "profile"}),
    resource_scopes={SHOP: frozenset({"read", "write"})},
    organization_permissions=frozenset({"approve"}),
)


@pytest.mark.parametrize(
    "requested",
    [
        Consented(scopes=frozenset()),
        HELD,
        Consented(scopes=frozenset({"openid"})),
        Consented(scopes=frozenset(), resource_scopes={SHOP: frozenset({"read"})}),
        Consented(scopes=frozenset(), resource_scopes={BANK: frozenset()}),
        Consented(scopes=frozenset(), organization_permissions=frozenset({"approve"})),
        Consented(scopes=frozenset(), organizations=frozenset({"picked-later"})),
    ],
)
def test_a_consent_covers_what_it_includes(requested: Consented) -> None:
    assert HELD.covers(requested)


@pytest.mark.parametrize(
    "more",
    [
        {"scopes": frozenset({"openid", "email"})},
        {"resource_scopes": {SHOP: frozenset({"read", "delete"})}},
        {"resource_scopes": {BANK: frozenset({"read"})}},
        {"organization_permissions": frozenset({"approve", "pay"})},
    ],
    ids=["scope", "scope of a resource", "another resource", "permission"],
)
def test_a_consent_covers_nothing_more_of_any_kind(more: dict[str, frozenset[str]]) -> None:
    """A scope that one resource was consented for is not consented for another one."""
    assert not HELD.covers(Consented(**{"scopes": frozenset(), **more}))  # type: ignore[arg-type]
