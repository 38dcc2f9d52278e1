"""Whose address a request has, behind proxies and through a service that asks on its behalf, and how it is counted."""

from typing import cast

import pytest
from litestar.types import Scope

from identity_common.addresses import network_of
from identity_common.http.client_address import client_address, forwarded_for


def a_request(*forwarded: bytes, peer: str = "10.0.0.9") -> Scope:
    return cast("Scope", {"client": (peer, 1), "headers": [(b"x-forwarded-for", each) for each in forwarded]})


@pytest.mark.parametrize("trusted_proxies", [0, 1, 2, 3])
@pytest.mark.parametrize(
    "forwarded",
    [
        (),
        (b"203.0.113.5",),
        (b"198.51.100.66, 203.0.113.5", b"192.0.2.1"),
        (b"198.51.100.66, 203.0.113.5, 192.0.2.1, 192.0.2.2",),
        (b" , ,",),
        (b"2001:db8::1 , 192.0.2.1",),
    ],
)
def test_a_service_past_the_proxies_finds_the_address_that_the_console_has_found(
    trusted_proxies: int, forwarded: tuple[bytes, ...]
) -> None:
    request = a_request(*forwarded)
    on_its_behalf = a_request(forwarded_for(request, trusted_proxies=trusted_proxies).encode(), peer="10.0.0.1")
    expected = client_address(request, trusted_proxies=trusted_proxies) if trusted_proxies else "10.0.0.1"
    assert client_address(on_its_behalf, trusted_proxies=trusted_proxies) == expected


def test_nothing_goes_along_that_a_client_claims() -> None:
    request = a_request(b"198.51.100.66, 203.0.113.5, 192.0.2.1")
    assert forwarded_for(request, trusted_proxies=2) == "203.0.113.5,203.0.113.5"
    assert forwarded_for(request, trusted_proxies=0) == "10.0.0.9"


def test_an_address_that_no_header_may_have_is_replaced() -> None:
    assert forwarded_for(a_request(b"\xe9"), trusted_proxies=1) == "?"


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("198.51.100.7", "198.51.100.7"),
        ("198.51.100.7:51234", "198.51.100.7"),
        ("::ffff:198.51.100.7", "198.51.100.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2::9]:443", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("unknown", "unknown"),
        ("", ""),
    ],
)
def test_an_address_is_counted_as_the_network_of_one_customer(address: str, network: str) -> None:
    assert network_of(address) == network
