"""Which connectors are offered, and which sign-ins through them are over."""

from __future__ import annotations

from typing import Any

import pytest

from identity_common.authentication import AtProvider
from identity_common.wire.events import ConnectorState
from token_service.directory import Connectors

AT = AtProvider(connector_id="c", revision=1)


def connectors(**changes: Any) -> Connectors:
    known = Connectors()
    known.put(ConnectorState(**{"id": "c", "name": "Okta", "is_open": True, "domains": ("example.com",), **changes}))
    return known


def test_the_owner_of_an_address_is_led_to_the_connector_of_its_domain() -> None:
    known = connectors()
    known.put(ConnectorState(id="b", name="entra", is_open=True))
    assert [each.id for each in known.offered] == ["b", "c"]
    found = [
        known.of_address(address) for address in ("Ada@EXAMPLE.com ", "ada@sub.example.com", "example.com", "", None)
    ]
    assert [each and each.id for each in found] == ["c", None, None, None, None]
    known.put(ConnectorState(id="c", name="Okta", is_open=False, domains=("example.com",)))
    assert (known.of_address("ada@example.com"), known.open("c"), known.have_domains) == (None, None, False)


@pytest.mark.parametrize("domain", ["straße.de", "STRAßE.de", "straße。de", "xn--strae-oqa.de"])
def test_every_spelling_of_a_domain_leads_there(domain: str) -> None:
    known = connectors(domains=("xn--strae-oqa.de",))
    assert (known.of_address(f"ada@{domain}"), known.of_address("ada@strasse.de")) == (known.open("c"), None)


@pytest.mark.parametrize("typed", ["ada@", "@", "ada@-.de", "ada@" + "ß" * 5_000, "ada@" + "a." * 5_000])
def test_what_is_no_address_leads_nowhere(typed: str) -> None:
    assert connectors().of_address(typed) is None


@pytest.mark.parametrize(
    ("changes", "is_over"),
    [
        ({}, False),
        ({"is_open": False}, True),
        ({"deleted": True}, True),
        ({"closed_at": 1_000}, False),
        ({"closed_at": 1_001}, True),
        ({"session_max_age_s": 1}, True),
        ({"session_max_age_s": 2}, False),
        ({"id": "another"}, True),
    ],
)
def test_a_sign_in_is_over_when_its_connector_was_closed_since_or_asks_again(
    changes: dict[str, Any], is_over: bool
) -> None:
    known = connectors(**changes)
    assert (known.why_over(AT, signed_in_at=1_000, now=2_500) is not None) is is_over
    assert known.why_over(None, signed_in_at=1_000, now=2_500) is None


def test_a_closed_connector_is_settled_only_as_it_was() -> None:
    known = connectors(closed_at=5)
    (first,) = known.closed()
    known.put(ConnectorState(id="c", is_open=False, closed_at=9))
    known.settle(first)
    (second,) = known.closed()
    assert (second.closed_at, known.has_closed.is_set()) == (9, True)
    known.settle(second)
    assert known.closed() == []
