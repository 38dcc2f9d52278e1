"""Names of resource scopes and organization permissions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from identity_common.oauth import OIDC_SCOPES
from identity_common.scope_names import is_scope_name

SCOPE_CHARACTERS = [chr(code) for code in (0x21, *range(0x23, 0x5C), *range(0x5D, 0x7F))]


@given(st.text(alphabet=SCOPE_CHARACTERS, min_size=1, max_size=128))
def test_every_scope_token_is_a_scope_name_unless_it_is_reserved(name: str) -> None:
    """RFC 6749 section 3.3."""
    is_reserved = name in OIDC_SCOPES or name.lower().startswith("urn:service:")
    assert is_scope_name(name, urn_namespace="service") is not is_reserved


@given(st.text())
def test_nothing_else_is_a_scope_name(name: str) -> None:
    if is_scope_name(name, urn_namespace="service"):
        assert 1 <= len(name) <= 128
        assert set(name) <= set(SCOPE_CHARACTERS)


@pytest.mark.parametrize(
    "name",
    [
        *sorted(OIDC_SCOPES),
        "urn:service:scope:organizations",
        "URN:Service:x",
        "a b",
        "a\n",
        "",
        "x" * 129,
        "\U0001f600",
        "\0",
    ],
)
def test_reserved_and_malformed_names_are_not_scope_names(name: str) -> None:
    assert not is_scope_name(name, urn_namespace="service")


def test_the_namespace_is_a_setting() -> None:
    assert is_scope_name("urn:service:x", urn_namespace="logto")
    assert not is_scope_name("urn:logto:x", urn_namespace="logto")
