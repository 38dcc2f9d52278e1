"""The memory of verified tokens: it changes what a token costs and never what is decided."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stead import AccessToken, TokenInvalid
from stead._signed_claims import SignedClaims
from stead.verification import Expectations, KeySet, TokenChecker, read_token
from tests.unit.sdk.issuer import AUDIENCE, ISSUER, NOW, SigningKey, jwks, token

KEY = SigningKey("current")
NEXT_KEY = SigningKey("next")
IMPOSTOR = SigningKey("current")
EXPECTED = Expectations(issuer=ISSUER, audience=AUDIENCE)
KEY_SETS = [KeySet.parse(jwks(*keys)) for keys in ((KEY,), (KEY, NEXT_KEY), (NEXT_KEY,), (IMPOSTOR,))]
TOKENS = [
    token(KEY),
    token(NEXT_KEY),
    token(IMPOSTOR),
    token(KEY, exp=int(NOW) - 30),
    token(KEY, nbf=int(NOW) + 100),
    token(KEY, aud="https://other.example.com"),
    token(KEY, act={"sub": "user00000002"}),
    token(KEY)[:-8] + "AAAAAAAA",
]


def decide(checker: TokenChecker, candidate: object, *, keys: KeySet, now: float) -> AccessToken | str:
    """Decide as the verifiers do: ask the cache, then feed keys to the generator."""
    try:
        recalled = checker.recall(candidate, keys=keys, now=now)
        if recalled is not None:
            return recalled
        steps = checker.verification(candidate, clock=lambda: now)
        next(steps)
        while True:
            steps.send(keys)
    except StopIteration as done:
        accepted: AccessToken = done.value
        return accepted
    except TokenInvalid as refused:
        return refused.reason


@pytest.mark.heavy
@settings(max_examples=300)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(TOKENS), st.sampled_from(KEY_SETS), st.integers(-200, 4000)), min_size=2, max_size=30
    ),
    cache_size=st.sampled_from([1, 2, 1024]),
)
def test_with_and_without_the_memory_every_decision_is_the_same(
    steps: list[tuple[str, KeySet, int]], cache_size: int
) -> None:
    """CVE-2024-56323, CVE-2026-33729: differential test over tokens, times and changes of keys."""
    remembering, forgetful = TokenChecker(EXPECTED, cache_size=cache_size), TokenChecker(EXPECTED, cache_size=0)
    for candidate, keys, offset in steps:
        assert decide(remembering, candidate, keys=keys, now=NOW + offset) == decide(
            forgetful, candidate, keys=keys, now=NOW + offset
        )


class CountingKeySet(KeySet):
    """A key set that counts how often a key is asked for: once for each signature that is verified."""

    asked = 0

    def get(self, key_id: str) -> Any:
        self.asked += 1
        return super().get(key_id)


def test_a_token_that_comes_again_costs_no_second_verification() -> None:
    checker, keys = TokenChecker(EXPECTED), CountingKeySet.parse(jwks(KEY))
    assert isinstance(keys, CountingKeySet)

    first, second = (decide(checker, TOKENS[0], keys=keys, now=NOW) for _ in range(2))

    assert first == second
    assert keys.asked == 1


def test_a_remembered_token_still_expires() -> None:
    """Time is an input of the decision."""
    checker = TokenChecker(EXPECTED)
    assert isinstance(decide(checker, TOKENS[0], keys=KEY_SETS[0], now=NOW), AccessToken)

    assert decide(checker, TOKENS[0], keys=KEY_SETS[0], now=NOW + 3660) == "expired"


def test_a_token_whose_key_was_withdrawn_is_forgotten() -> None:
    """The key set is an input of the decision."""
    checker = TokenChecker(EXPECTED)
    assert isinstance(decide(checker, TOKENS[0], keys=KEY_SETS[1], now=NOW), AccessToken)

    assert decide(checker, TOKENS[0], keys=KEY_SETS[2], now=NOW) == "unknown_key"
    assert decide(checker, TOKENS[0], keys=KEY_SETS[3], now=NOW) == "bad_signature"


def test_only_accepted_tokens_are_remembered_and_only_so_many() -> None:
    """Whoever sends junk, or tokens that have expired, cannot fill the memory."""
    checker = TokenChecker(EXPECTED, cache_size=4)
    for candidate in TOKENS[2:6]:
        decide(checker, candidate, keys=KEY_SETS[1], now=NOW + 35)
    assert len(checker._cache) == 0

    for number in range(9):
        decide(checker, token(KEY, jti=f"token-{number}"), keys=KEY_SETS[1], now=NOW)
    assert len(checker._cache) == 4


def test_the_token_that_was_not_seen_for_longest_is_forgotten_first() -> None:
    checker = TokenChecker(EXPECTED, cache_size=2)
    often, seldom, new = (token(KEY, jti=name) for name in ("often", "seldom", "new"))
    for candidate in (often, seldom, often, new):
        decide(checker, candidate, keys=KEY_SETS[1], now=NOW)

    assert list(checker._cache._entries) == [read_token(candidate, EXPECTED).digest for candidate in (often, new)]


def test_the_token_itself_is_not_kept() -> None:
    """A hash of it is, and what it says; nothing that anybody would take for the token."""
    checker = TokenChecker(EXPECTED)
    decide(checker, TOKENS[0], keys=KEY_SETS[0], now=NOW)

    unverified = read_token(TOKENS[0], EXPECTED)
    assert checker._cache._entries == {unverified.digest: SignedClaims(KEY_SETS[0], unverified.payload)}
    assert "user" not in repr(checker._cache._entries.values())


@pytest.mark.parametrize(
    "what", ["", "a.b.c", TOKENS[0] + "A", TOKENS[0][:-1], "é" * 40, "\ud800", "x" * 20_000, None, 1]
)
def test_nothing_is_remembered_of_what_is_not_that_token(what: object) -> None:
    checker = TokenChecker(EXPECTED)
    decide(checker, TOKENS[0], keys=KEY_SETS[0], now=NOW)

    assert isinstance(decide(checker, TOKENS[0], keys=KEY_SETS[0], now=NOW), AccessToken)
    assert decide(checker, what, keys=KEY_SETS[0], now=NOW) in {"malformed", "too_large", "bad_signature"}
    assert len(checker._cache) == 1


@pytest.mark.parametrize("cache_size", [0, 1024])
def test_what_a_caller_does_to_the_claims_stays_with_the_caller(cache_size: int) -> None:
    """No caller can change what the next one is told."""
    checker = TokenChecker(EXPECTED, cache_size=cache_size)
    first = decide(checker, TOKENS[6], keys=KEY_SETS[0], now=NOW)
    assert isinstance(first, AccessToken)
    assert first.actor is not None
    first.claims["scope"] = "admin"
    first.actor["sub"] = "somebody-else"

    second = decide(checker, TOKENS[6], keys=KEY_SETS[0], now=NOW)

    assert isinstance(second, AccessToken)
    assert (second.actor, second.claims["scope"]) == ({"sub": "user00000002"}, "read:things write:things")


def test_what_one_token_must_fit_does_not_hold_for_the_next() -> None:
    """The memory is of signatures; an audience that is expected once is no other token's, nor this one's again."""
    checker, other = TokenChecker(EXPECTED), msgspec.structs.replace(EXPECTED, audience="https://other.example.com")
    unverified = read_token(TOKENS[5], other)
    for _ in range(2):
        assert checker.check(unverified, keys=KEY_SETS[0], now=NOW, expected=other).audience == other.audience
        with pytest.raises(TokenInvalid, match="wrong_audience"):
            checker.check(unverified, keys=KEY_SETS[0], now=NOW)
    with pytest.raises(ValueError, match="audience must not be empty"):
        msgspec.structs.replace(EXPECTED, audience="")
