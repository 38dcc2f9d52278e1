"""The claims of an access token: the actor chain, and what makes a token outdated."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from token_service.tokens.claims import AccessTokenClaims, Actor, actor_chain, is_outdated, issued_at_s

TIMES = st.integers(min_value=1_600_000_000_000, max_value=2_000_000_000_000)


def nested(*subjects: str) -> dict[str, Any] | None:
    """Return an ``act`` claim as it stands in a token: the outermost first."""
    claim: dict[str, Any] | None = None
    for subject in reversed(subjects):
        claim = {"sub": subject} if claim is None else {"sub": subject, "act": claim}
    return claim


class TestActorChain:
    def test_the_actor_tokens_subject_is_the_current_actor(self) -> None:
        """RFC 8693 section 4.1: the outermost ``act`` is the current actor."""
        assert actor_chain("agent", None) == Actor("agent")

    def test_an_actors_own_actor_nests_inside(self) -> None:
        """RFC 8693 section 4.1: prior actors are kept, the least recent is nested deepest."""
        assert actor_chain("a", nested("b", "c", "d")) == Actor("a", Actor("b", Actor("c", Actor("d"))))

    @pytest.mark.parametrize("depth", range(1, 8))
    def test_a_chain_is_four_actors_deep_at_most(self, depth: int) -> None:
        """Four actors are kept whole; a fifth is refused and not cut off."""
        subjects = [f"user{number}" for number in range(depth)]
        chain = actor_chain(subjects[0], nested(*subjects[1:]))

        expected = nested(*subjects) if depth <= 4 else None
        assert (None if chain is None else msgspec.json.decode(msgspec.json.encode(chain))) == expected

    @pytest.mark.parametrize("depth", [2**8, 2**16])
    def test_a_very_deep_chain_is_refused(self, depth: int) -> None:
        """Without exhausting the stack."""
        assert actor_chain("a", nested(*["b"] * depth)) is None

    @pytest.mark.parametrize(
        "earlier",
        [
            {},
            {"sub": None},
            {"sub": 7},
            {"sub": ["b"]},
            {"sub": {"sub": "b"}},
            {"sub": "b", "act": "c"},
            {"sub": "b", "act": ["c"]},
            {"sub": "b", "act": 7},
            {"sub": "b", "act": {}},
            {"sub": "b", "act": {"sub": 7}},
            {"act": {"sub": "c"}},
        ],
    )
    def test_a_malformed_chain_is_refused(self, earlier: dict[str, Any]) -> None:
        """No part of it is dropped silently."""
        assert actor_chain("a", earlier) is None

    def test_other_members_are_not_taken_along(self) -> None:
        earlier = {"sub": "b", "iss": "https://elsewhere.example", "act": None}

        assert actor_chain("a", earlier) == Actor("a", Actor("b"))


class TestAge:
    @given(now=TIMES, tokens_valid_after=TIMES)
    @example(now=1_700_000_000_999, tokens_valid_after=1_700_000_000_001)
    @example(now=1_700_000_000_001, tokens_valid_after=1_700_000_000_001)
    @example(now=1_700_000_000_000, tokens_valid_after=1_700_000_000_000)
    def test_a_token_issued_under_the_present_rule_is_never_outdated_by_it(
        self, now: int, tokens_valid_after: int
    ) -> None:
        """Whatever the clocks of issuer and writer say, a token issued with knowledge of the change outlives it."""
        issued_at = issued_at_s(now=now, tokens_valid_after=tokens_valid_after)

        assert not is_outdated(issued_at_ms=issued_at * 1000, tokens_valid_after=tokens_valid_after)

    @given(now=TIMES, earlier=st.integers(min_value=0, max_value=1_600_000_000_000), after=TIMES)
    def test_a_token_of_an_earlier_second_is_always_outdated(self, now: int, earlier: int, after: int) -> None:
        """A password change and suspension end everything that was issued before."""
        issued_at = issued_at_s(now=now, tokens_valid_after=earlier)

        if now // 1000 < after // 1000:
            assert is_outdated(issued_at_ms=issued_at * 1000, tokens_valid_after=after)
        if now >= after:
            assert not is_outdated(
                issued_at_ms=issued_at_s(now=now, tokens_valid_after=after) * 1000, tokens_valid_after=after
            )

    @given(now=TIMES, tokens_valid_after=TIMES)
    def test_a_token_of_the_same_second_but_before_the_change_is_outdated(
        self, now: int, tokens_valid_after: int
    ) -> None:
        """Strict to the millisecond wherever the change does not fall on a whole second."""
        issued_at = issued_at_s(now=now, tokens_valid_after=0)

        if now < tokens_valid_after and tokens_valid_after % 1000:
            assert is_outdated(issued_at_ms=issued_at * 1000, tokens_valid_after=tokens_valid_after)

    @given(now=TIMES, tokens_valid_after=TIMES)
    def test_a_token_is_dated_now_or_less_than_a_second_after_the_change(
        self, now: int, tokens_valid_after: int
    ) -> None:
        issued_at = issued_at_s(now=now, tokens_valid_after=tokens_valid_after)

        assert issued_at == now // 1000 or 0 <= issued_at * 1000 - tokens_valid_after < 1000

    def test_without_a_change_no_token_is_outdated(self) -> None:
        assert not is_outdated(issued_at_ms=0, tokens_valid_after=0)
        assert issued_at_s(now=1_700_000_000_999, tokens_valid_after=0) == 1_700_000_000


class TestEncoding:
    def test_absent_claims_are_left_out_and_an_empty_scope_is_not(self) -> None:
        claims = AccessTokenClaims(iss="i", sub="s", aud="a", client_id="c", iat=1, exp=2, jti="j", scope="")

        assert msgspec.json.decode(msgspec.json.encode(claims)) == {
            "iss": "i",
            "sub": "s",
            "aud": "a",
            "client_id": "c",
            "iat": 1,
            "exp": 2,
            "jti": "j",
            "scope": "",
        }

    def test_an_actor_has_a_subject_and_nothing_else(self) -> None:
        """The interface: ``act`` holds ``sub``."""
        assert msgspec.json.encode(Actor("a", Actor("b"))) == b'{"sub":"a","act":{"sub":"b"}}'
