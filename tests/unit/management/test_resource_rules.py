"""Indicators of resources."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from identity_common.uris import is_resource_indicator

ISSUER = "https://id.example.com/oidc"


def is_indicator(text: str) -> bool:
    return is_resource_indicator(text, urn_namespace="service", issuer=ISSUER)


@pytest.mark.parametrize(
    "indicator",
    [
        "https://api.example.com",
        "https://api.example.com/v1?tenant=a",
        "http://localhost:3000/api",
        "urn:example:api",
        "api://orders",
        "https://[2001:db8::1]:8443/a%20b;v=1?c=@d/?",
        "https://id.example.com/oidcs",
        "https://id.example.com/api",
    ],
)
def test_valid_indicators_are_accepted(indicator: str) -> None:
    """RFC 8707 section 2."""
    assert is_indicator(indicator)


@pytest.mark.parametrize(
    "indicator",
    [
        "",
        "orders",
        "/orders",
        "//api.example.com",
        "https://api.example.com#x",
        "https://api.example.com/#",
        "https:",
        "https://",
        "https://api example.com",
        "https://[::1",
        "https://h:99999/",
        "https://h:0/",
        "https://h:1a/",
        "https://us:pw@h/",
        "https://us@h/",
        "https://h/%zz",
        "https://h/%2",
        "https://h%/",
        "https://h/a[b]",
        "https://h/?a[]=b",
        "https://[not-an-address]/",
        "https://[1.2.3.4]/",
        "https://a[::1]/",
        "urn:service:organization:1",
        "URN:service:x",
        "urn:Service:x",
        ISSUER,
        f"{ISSUER}/me",
        f"{ISSUER}?a=b",
        "HTTPS://ID.example.com/oidc/me",
        ISSUER.upper(),
    ],
)
def test_invalid_indicators_are_refused(indicator: str) -> None:
    assert not is_indicator(indicator)


@given(st.text())
def test_any_text_is_judged_without_an_error(text: str) -> None:
    is_indicator(text)
    is_indicator(f"https://{text}")
