"""The verifiers' cache of verified tokens: it changes the cost of a token and never the decision."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stead import AccessToken, AccessTokenVerifier, AsyncAccessTokenVerifier, TokenInvalid
from stead.verify.access_tokens import Expectations, TokenChecker, read_token
from stead.verify.keys import KeySet
from stead.verify.signed_claims import SignedClaims
from tests.unit.sdk.issuer import AUDIENCE, ISSUER, NOW, Clock, SigningKey, jwks, token

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


class Verifier:
    """A verifier for threads or for tasks, the keys that its issuer published last, and the time.

    Attributes:
        checker: The object with the cache.
    """

    def __init__(
        self,
        kind: type[AccessTokenVerifier | AsyncAccessTokenVerifier] = AccessTokenVerifier,
        *,
        cache_size: int = 1024,
    ) -> None:
        self._clock = Clock()
        self._verifier = kind(issuer=ISSUER, audience=AUDIENCE, cache_size=cache_size, clock=self._clock)
        self.checker = self._verifier._checker

    async def decide(self, candidate: str, *, keys: KeySet, now: float = NOW) -> AccessToken | str:
        """Return what a token says, or why it is refused, with these keys just fetched."""
        self._clock.now = now
        self._verifier._source._freshness.fetched(keys, max_age_s=10, now=now)
        try:
            verified = self._verifier.verify(candidate)
            return verified if isinstance(verified, AccessToken) else await verified
        except TokenInvalid as refused:
            return refused.reason


@pytest.fixture(params=[AccessTokenVerifier, AsyncAccessTokenVerifier])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def verifier(kind: Any) -> Verifier:
    return Verifier(kind)


@pytest.mark.heavy
@pytest.mark.parametrize("kind", [AccessTokenVerifier, AsyncAccessTokenVerifier])
@settings(max_examples=300)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(TOKENS), st.sampled_from(KEY_SETS), st.integers(-200, 4000)), min_size=2, max_size=30
    ),
    cache_size=st.sampled_from([1, 2, 1024]),
)
async def test_with_and_without_the_cache_every_decision_is_the_same(
    kind: Any, steps: list[tuple[str, KeySet, int]], cache_size: int
) -> None:
    """CVE-2024-56323, CVE-2026-33729: differential test over tokens, times and changes of keys."""
    remembering, forgetful = Verifier(kind, cache_size=cache_size), Verifier(kind, cache_size=0)
    for candidate, keys, offset in steps:
        assert await remembering.decide(candidate, keys=keys, now=NOW + offset) == await forgetful.decide(
            candidate, keys=keys, now=NOW + offset
        )


class CountingKeySet(KeySet):
    """A key set that counts how often a key is asked for: once for each signature that is verified."""

    asked = 0

    def get(self, key_id: str) -> Any:
        self.asked += 1
        return super().get(key_id)


async def test_a_repeated_token_is_not_verified_a_second_time(verifier: Verifier) -> None:
    keys = CountingKeySet.parse(jwks(KEY))
    assert isinstance(keys, CountingKeySet)

    first, second = [await verifier.decide(TOKENS[0], keys=keys) for _ in range(2)]

    assert first == second
    assert keys.asked == 1


async def test_a_remembered_token_still_expires(verifier: Verifier) -> None:
    """Time is an input of the decision."""
    assert isinstance(await verifier.decide(TOKENS[0], keys=KEY_SETS[0]), AccessToken)

    assert await verifier.decide(TOKENS[0], keys=KEY_SETS[0], now=NOW + 3660) == "expired"


async def test_a_token_whose_key_was_withdrawn_is_forgotten(verifier: Verifier) -> None:
    """The key set is an input of the decision."""
    assert isinstance(await verifier.decide(TOKENS[0], keys=KEY_SETS[1]), AccessToken)

    assert await verifier.decide(TOKENS[0], keys=KEY_SETS[2]) == "unknown_key"
    assert await verifier.decide(TOKENS[0], keys=KEY_SETS[3]) == "bad_signature"


async def test_only_accepted_tokens_are_remembered_and_only_so_many(kind: Any) -> None:
    """A client that sends junk, or tokens that have expired, cannot fill the cache."""
    verifier = Verifier(kind, cache_size=4)
    for candidate in TOKENS[2:6]:
        await verifier.decide(candidate, keys=KEY_SETS[1], now=NOW + 35)
    assert len(verifier.checker._cache) == 0

    for number in range(9):
        await verifier.decide(token(KEY, jti=f"token-{number}"), keys=KEY_SETS[1])
    assert len(verifier.checker._cache) == 4


async def test_the_least_recently_used_token_is_evicted_first(kind: Any) -> None:
    verifier = Verifier(kind, cache_size=2)
    often, seldom, new = (token(KEY, jti=name) for name in ("often", "seldom", "new"))
    for candidate in (often, seldom, often, new):
        await verifier.decide(candidate, keys=KEY_SETS[1])

    assert list(verifier.checker._cache._entries) == [
        read_token(candidate, EXPECTED).digest for candidate in (often, new)
    ]


async def test_the_token_itself_is_not_kept(verifier: Verifier) -> None:
    """Only a hash and its claims are; nothing that a verifier would accept as the token."""
    await verifier.decide(TOKENS[0], keys=KEY_SETS[0])

    unchecked = read_token(TOKENS[0], EXPECTED)
    assert verifier.checker._cache._entries == {
        unchecked.digest: SignedClaims(KEY_SETS[0], unchecked.key_id, unchecked.payload)
    }
    assert "user" not in repr(verifier.checker._cache._entries.values())


@pytest.mark.parametrize(
    "what", ["", "a.b.c", TOKENS[0] + "A", TOKENS[0][:-1], "é" * 40, "\ud800", "x" * 20_000, None, 1]
)
async def test_the_cache_has_no_answer_for_another_token(verifier: Verifier, what: object) -> None:
    await verifier.decide(TOKENS[0], keys=KEY_SETS[0])

    recalled = [verifier.checker.recall(each, keys=KEY_SETS[0], now=NOW) for each in (TOKENS[0], what)]
    assert [each is not None for each in recalled] == [True, False]


@pytest.mark.parametrize("cache_size", [0, 1024])
async def test_a_caller_that_changes_the_claims_does_not_affect_others(kind: Any, cache_size: int) -> None:
    """No caller can change the answer to the next one."""
    verifier = Verifier(kind, cache_size=cache_size)
    first = await verifier.decide(TOKENS[6], keys=KEY_SETS[0])
    assert isinstance(first, AccessToken)
    assert first.actor is not None
    first.claims["scope"] = "admin"
    first.actor["sub"] = "somebody-else"

    second = await verifier.decide(TOKENS[6], keys=KEY_SETS[0])

    assert isinstance(second, AccessToken)
    assert (second.actor, second.claims["scope"]) == ({"sub": "user00000002"}, "read:things write:things")


def test_expectations_of_one_check_do_not_apply_to_the_next() -> None:
    """CVE-2024-56323: only signatures are cached; the expected audience belongs to the single check."""
    checker, other = TokenChecker(EXPECTED), msgspec.structs.replace(EXPECTED, audience="https://other.example.com")
    unchecked = read_token(TOKENS[5], other)
    for _ in range(2):
        assert checker.check(unchecked, keys=KEY_SETS[0], now=NOW, expected=other).audience == other.audience
        with pytest.raises(TokenInvalid, match="wrong_audience"):
            checker.check(unchecked, keys=KEY_SETS[0], now=NOW)
    with pytest.raises(ValueError, match="audience must not be empty"):
        msgspec.structs.replace(EXPECTED, audience="")
