"""The claims of an access token: the actor chain, and what makes a token outdated. Those of users: from profiles."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from identity_common.wire.events import UserState
from token_service.tokens.claims import AccessTokenClaims, Actor, actor_chain
from token_service.tokens.identity import person_claims


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


class TestProfile:
    @pytest.mark.parametrize(
        ("profile", "claims"),
        [
            (
                {"given_name": "Ada", "address": {"postal_code": "1"}},
                {"given_name": "Ada", "address": {"postal_code": "1"}},
            ),
            ({"givenName": "Ada", "given_name": "Eve"}, {"given_name": "Ada"}),
            ({"birthdate": "0000-12-10"}, {"birthdate": "0000-12-10"}),
            ({"birthdate": "1815"}, {"birthdate": "1815"}),
            ({"preferredUsername": ""}, {}),
            ({"name": "Eve", "picture": "x", "sub": "admin", "email": "eve@example.com", "updatedAt": 1}, {}),
            ({"birthdate": "10.12.1815", "website": "javascript:alert(1)", "profile": "example.com"}, {}),
            ({"givenName": None, "familyName": 7, "nickname": ["a"], "locale": " ", "gender": ""}, {}),
            ({"address": "London"}, {}),
            ({"address": {"country": 7, "formatted": None, "planet": "Earth"}}, {}),
            ({"address": [{"country": "GB"}]}, {}),
            ({}, {}),
        ],
    )
    def test_members_that_have_the_form_of_their_claim_are_released(
        self, profile: dict[str, Any], claims: dict[str, Any]
    ) -> None:
        """OpenID Connect Core 1.0 sections 5.1 and 5.3.2; other claims are not taken from a profile."""
        user = UserState(id="u1", username="ada", profile=msgspec.Raw(msgspec.json.encode(profile)))
        released = msgspec.to_builtins(person_claims(user, frozenset({"profile", "address"})))

        always = {"sub": "u1", "username": "ada", "preferred_username": "ada", "created_at": 0, "updated_at": 0}
        assert released == always | claims

    @pytest.mark.parametrize(("scope", "names"), [("address", {"address"}), ("email", set()), ("openid", set())])
    def test_each_scope_releases_its_own(self, scope: str, names: set[str]) -> None:
        """Section 5.4."""
        user = UserState(id="u1", profile=msgspec.Raw(b'{"locale":"de","address":{"country":"DE"}}'))

        assert msgspec.to_builtins(person_claims(user, frozenset({scope}))).keys() == {"sub", *names}
