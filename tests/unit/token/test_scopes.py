"""Scope rules: the granted scopes are never more than the requested ones, nor more than the held ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from identity_common.oauth import OIDC_SCOPES
from token_service.tokens.scopes import format_scope, grantable_scopes, is_scope, parse_scope, userinfo_scopes

# RFC 6749 section 3.3: scope-token = 1*( %x21 / %x23-5B / %x5D-7E )
SCOPE_TOKENS = st.text(
    st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters='"\\'), min_size=1, max_size=12
)
OURS = {"urn:acme:scope:organizations", "urn:acme:scope:organization_roles"}
SPECIAL = sorted(OIDC_SCOPES | OURS | {"urn:service:scope:organizations"})
SCOPES = st.frozensets(st.one_of(SCOPE_TOKENS, st.sampled_from(SPECIAL)), max_size=12)


@given(scopes=SCOPES.filter(bool))
def test_every_list_of_scope_tokens_is_a_scope(scopes: frozenset[str]) -> None:
    assert is_scope(format_scope(scopes))


@pytest.mark.parametrize(
    "scope", ["", " ", "a ", " a", "a  b", "a\tb", "a\nb", "a\n", 'a"', "a\\", "ä", "a\x7f", "a\u00a0b"]
)
def test_anything_else_is_not(scope: str) -> None:
    """RFC 6749 section 3.3."""
    assert not is_scope(scope)


@given(requested=SCOPES, held=SCOPES)
def test_a_grant_never_widens(requested: frozenset[str], held: frozenset[str]) -> None:
    """A subset of both, and everything that is in both."""
    granted = grantable_scopes(requested=requested, held=held)

    assert granted <= requested
    assert granted <= held
    assert granted == {scope for scope in requested if scope in held}


@given(requested=SCOPES, held=SCOPES, more=SCOPES)
def test_requesting_more_removes_nothing_and_holding_more_adds_nothing_unrequested(
    requested: frozenset[str], held: frozenset[str], more: frozenset[str]
) -> None:
    granted = grantable_scopes(requested=requested, held=held)

    assert granted <= grantable_scopes(requested=requested | more, held=held)
    assert grantable_scopes(requested=requested, held=held | more) <= requested


def test_a_userinfo_token_carries_scopes_about_people_only() -> None:
    """No permission of a resource, no URN of another namespace; ``offline_access`` is not a permission."""
    assert userinfo_scopes("acme") == (OIDC_SCOPES - {"offline_access"}) | OURS


@given(scopes=SCOPES)
def test_formatted_scopes_are_parsed_back(scopes: frozenset[str]) -> None:
    assert parse_scope(format_scope(scopes)) == scopes


@given(st.text())
def test_any_text_is_a_set_of_tokens_without_spaces(text: str) -> None:
    """Only the space separates; nothing is folded, trimmed or normalized."""
    tokens = parse_scope(text)

    assert tokens == {token for token in text.split(" ") if token}
    assert parse_scope(format_scope(tokens)) == tokens


@pytest.mark.parametrize(
    ("scope", "tokens"),
    [
        (None, set()),
        ("", set()),
        (" ", set()),
        ("a", {"a"}),
        ("b a", {"a", "b"}),
        ("a  a b", {"a", "b"}),
        (" a ", {"a"}),
        ("a A", {"a", "A"}),
        ("a\tb", {"a\tb"}),
        ("a\nopenid", {"a\nopenid"}),
        ("read:openid openid2", {"read:openid", "openid2"}),
    ],
)
def test_a_scope_parameter_is_a_set_of_case_sensitive_tokens(scope: str | None, tokens: set[str]) -> None:
    """RFC 6749 section 3.3: ``openid`` is a token and not a part of one."""
    assert parse_scope(scope) == tokens


@pytest.mark.parametrize("count", [2**8, 2**16, 2**16 + 1])
def test_very_many_scopes_are_neither_cut_nor_counted_wrongly(count: int) -> None:
    """CVE-2024-27101."""
    scopes = frozenset(f"s{number}" for number in range(count))

    assert parse_scope(format_scope(scopes)) == scopes
    assert grantable_scopes(requested=scopes, held=scopes - {"s0"}) == scopes - {"s0"}


def test_a_scope_value_is_sorted() -> None:
    assert format_scope({"b", "a", "B"}) == "B a b"
    assert format_scope(()) == ""
