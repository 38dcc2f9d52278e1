"""RFC 8693, OAuth 2.0 Token Exchange: the actor token, and the claim ``act``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from identity_common.authentication import UsedFactor
from identity_common.identifiers import new_secret
from identity_common.oauth import TOKEN_TYPE_ACCESS_TOKEN
from provision import ServerAddresses
from tests.support.signing_in import SignIn
from tests.support.world import REFUSED, World, error_body, last_revision, outcome, own_world, refused_token

JWT_TYPE = "urn:ietf:params:oauth:token-type:jwt"


class TestActor:
    """Section 4.1: ``act`` names the current actor outermost; prior ones are nested."""

    def test_the_actor_is_named(self, world: World) -> None:
        answer = world.with_actor(world.userinfo_token())

        assert outcome(answer) == (200, None)
        claims = world.claims(answer.json()["access_token"], world.resource)
        assert (claims["sub"], claims["act"]) == (world.customer, {"sub": world.agent})

    def test_how_the_actor_signed_in_is_told_and_that_the_subject_did_not(self, world: World) -> None:
        """Beside ``act``, since non-identity claims within it are not meaningful (section 4.1)."""
        factors = (UsedFactor("password", 1_700_000_000_000), UsedFactor("passkey", 1_700_000_005_000))
        sign_in = SignIn(world, user_id=world.agent, scope="openid", factors=factors)
        answer = world.with_actor(sign_in.tokens()["access_token"])

        claims = world.claims(answer.json()["access_token"], world.resource)
        said = {"auth_time": 1_700_000_000, "amr": ["mfa", "pop", "pwd", "user"], "acr": "phr"}
        assert (claims["act"], claims["actor_authentication"]) == ({"sub": world.agent}, said)
        assert claims.keys().isdisjoint(said)
        introspected = world.stack.http.post(
            "/oidc/token/introspection", data={"token": answer.json()["access_token"]}, auth=world.machine.basic
        ).json()
        assert introspected["actor_authentication"] == said
        assert introspected.keys().isdisjoint(said)

    @pytest.mark.heavy
    def test_in_a_chain_it_is_the_sign_in_of_the_first_actor(self, servers: ServerAddresses, tmp_path: Path) -> None:
        """Who was impersonated in between has not signed in either; such actor tokens are a setting, off by default."""
        with own_world(servers, tmp_path, "chain", actor_tokens_by_exchange=True) as world:
            factors = (UsedFactor("password", 1_700_000_000_000), UsedFactor("authenticator", 1_700_000_005_000))
            first = SignIn(world, user_id=world.agent, scope="openid", factors=factors).tokens()["access_token"]
            second = world.user()
            as_second = world.exchange(
                world.subject_token(second),
                actor_token=first,
                actor_token_type=TOKEN_TYPE_ACCESS_TOKEN,
                resource=None,
                scope="openid",
            ).json()["access_token"]
            world.management.impersonation_policy.update(actor_acr="mfa")
            answer = world.with_actor(as_second, headers=last_revision(world))
            claims = world.claims(answer.json()["access_token"], world.resource)
            said = {"auth_time": 1_700_000_000, "amr": ["mfa", "otp", "pwd"], "acr": "urn:service:acr:mfa"}
            assert claims["act"] == {"sub": second, "act": {"sub": world.agent}}
            assert claims["actor_authentication"] == said

    def test_the_actors_permissions_are_not_the_subjects(self, world: World) -> None:
        """They are neither added nor subtracted."""
        other = world.user(world.role("purge:things"))
        answer = world.with_actor(world.userinfo_token(other), scope="read:things purge:things")

        assert answer.json()["scope"] == "read:things"

    def test_an_actor_token_can_be_used_again(self, world: World) -> None:
        actor_token = world.userinfo_token()

        assert [outcome(world.with_actor(actor_token)) for _ in range(3)] == [(200, None)] * 3

    def test_actors_nest_four_deep_and_not_deeper(self, world: World) -> None:
        """Section 4.1: the chain is kept whole, or refused; every actor in it is alive."""
        people = [world.user() for _ in range(5)]
        chain: dict[str, Any] | None = None
        for person in people:
            token = world.forger.access_token(
                sub=person, aud=f"{world.stack.issuer}/me", client_id=world.traditional.id, scope="openid", act=chain
            )
            chain = {"sub": person, "act": chain} if chain else {"sub": person}
            if person != people[-1]:
                answer = world.with_actor(token)
                assert world.claims(answer.json()["access_token"], world.resource)["act"] == chain

        subject_token = world.subject_token()
        fifth = world.exchange(subject_token, actor_token=token, actor_token_type=TOKEN_TYPE_ACCESS_TOKEN)
        assert (fifth.status_code, fifth.json()) == (400, REFUSED)
        assert world.is_usable(subject_token)

    def test_a_token_from_an_exchange_is_not_an_actor_token(self, world: World) -> None:
        """A client that impersonates a user cannot go on to act in that user's name."""
        exchanged = world.exchanged_userinfo_token()
        claims = world.claims(exchanged, f"{world.stack.issuer}/me")
        control = world.forger.access_token(**{name: claims[name] for name in ("sub", "aud", "client_id", "scope")})

        assert [refused_token(world.with_actor(token)) for token in (exchanged, control)] == [True, False]

    def test_an_actor_behind_the_actor_must_be_alive_too(self, world: World) -> None:
        """The check covers every actor that the token names."""
        prior = world.user()
        token = world.forger.access_token(
            sub=world.agent,
            aud=f"{world.stack.issuer}/me",
            client_id=world.traditional.id,
            scope="openid",
            act={"sub": prior},
        )
        assert outcome(world.with_actor(token)) == (200, None)
        world.management.users.suspend(prior)

        assert refused_token(world.with_actor(token, headers=last_revision(world)))

    def test_the_actor_is_not_the_subject(self, world: World) -> None:
        """Section 1.1: the actor is another party. Who the subject is shows the take only, which spends the token."""
        subject_token, actor_token = world.subject_token(world.agent), world.userinfo_token()
        answer = world.exchange(subject_token, actor_token=actor_token, actor_token_type=TOKEN_TYPE_ACCESS_TOKEN)

        assert (answer.status_code, answer.json()) == (400, REFUSED)
        assert refused_token(world.exchange(subject_token))
        assert outcome(world.with_actor(actor_token)) == (200, None)

    def test_the_subject_may_be_a_prior_actor(self, world: World) -> None:
        """Section 4.1: for access control, a verifier considers the current actor only; the prior ones are history."""
        chain = {"sub": world.agent, "act": {"sub": world.customer}}
        token = world.forger.access_token(
            **chain, aud=f"{world.stack.issuer}/me", client_id=world.traditional.id, scope="openid"
        )
        answer = world.with_actor(token)

        assert outcome(answer) == (200, None)
        claims = world.claims(answer.json()["access_token"], world.resource)
        assert (claims["sub"], claims["act"]) == (world.customer, chain)

    @pytest.mark.parametrize(
        ("changes", "description"),
        [
            ({"actor_token": "x"}, "actor_token and actor_token_type belong together"),
            ({"actor_token_type": TOKEN_TYPE_ACCESS_TOKEN}, "actor_token and actor_token_type belong together"),
            (
                {"actor_token": "", "actor_token_type": TOKEN_TYPE_ACCESS_TOKEN},
                "actor_token and actor_token_type belong together",
            ),
            (
                {"actor_token": "x", "actor_token_type": ""},
                "actor_token and actor_token_type belong together",
            ),
            ({"actor_token": "x", "actor_token_type": JWT_TYPE}, "this actor_token_type is not supported"),
            (
                {"actor_token": "x", "actor_token_type": "urn:service:token-type:impersonation_token"},
                "this actor_token_type is not supported",
            ),
        ],
    )
    def test_actor_token_and_its_type_belong_together(
        self, world: World, changes: dict[str, str], description: str
    ) -> None:
        """Section 2.1: ``actor_token_type`` is required with, and MUST NOT be present without, the actor token."""
        subject_token = world.subject_token()
        answer = world.exchange(subject_token, **changes)

        assert (answer.status_code, answer.json()) == (400, error_body("invalid_request", description))
        assert world.is_usable(subject_token)

    def test_an_actor_whose_account_ended_is_refused(self, world: World) -> None:
        """Suspended, deleted, or with a password changed since: the same check as for the subject."""
        ended = []
        for end in (
            world.management.users.suspend,
            world.management.users.delete,
            lambda user: world.management.users.set_password(user, new_secret()),
        ):
            actor = world.user()
            token = world.userinfo_token(actor)
            assert outcome(world.with_actor(token)) == (200, None)
            end(actor)
            ended.append(world.with_actor(token, headers=last_revision(world)))

        assert [refused_token(answer) for answer in ended] == [True, True, True]

    def test_the_end_of_a_suspension_does_not_revive_an_actor_token(self, world: World) -> None:
        actor = world.user()
        token = world.userinfo_token(actor)
        world.management.users.suspend(actor)
        world.management.users.suspend(actor, suspended=False)

        assert refused_token(world.with_actor(token, headers=last_revision(world)))
        assert outcome(world.with_actor(world.userinfo_token(actor))) == (200, None)

    @pytest.mark.heavy
    @pytest.mark.parametrize("first", ["set_password", "suspend"])
    @pytest.mark.parametrize("second", ["set_password", "suspend"])
    def test_the_second_of_two_changes_within_a_second_ends_tokens_issued_in_between(
        self, world: World, first: str, second: str
    ) -> None:
        """An access token is dated in whole seconds, so it may seem younger than the second change."""
        users = world.management.users

        def change(how: str) -> None:
            if how == "set_password":
                users.set_password(actor, new_secret())
            else:
                users.suspend(actor)
                users.suspend(actor, suspended=False)

        for _ in range(3):
            actor = world.user()
            change(first)
            between = world.userinfo_token(actor)
            change(second)
            after = world.userinfo_token(actor)
            answers = [world.with_actor(token, headers=last_revision(world)) for token in (between, after)]
            assert [refused_token(answer) for answer in answers] == [True, False]

    def test_the_application_of_the_actor_token_must_exist_and_be_first_party(self, world: World) -> None:
        """A token of a deleted or third-party application is refused."""
        client = world.client("Traditional")
        token = world.userinfo_token(client=client)
        assert outcome(world.with_actor(token)) == (200, None)
        world.management.applications.delete(client.id)

        assert refused_token(world.with_actor(token, headers=last_revision(world)))
        audience = f"{world.stack.issuer}/me"
        claims = {"sub": world.agent, "aud": audience, "scope": "openid"}
        good = world.forger.access_token(**claims, client_id=world.traditional.id)
        foreign = world.forger.access_token(**claims, client_id=world.third_party.id)
        assert [refused_token(world.with_actor(token)) for token in (good, foreign)] == [False, True]

    @pytest.mark.parametrize("scope", ["", "profile", "openid2", "xopenid", "OPENID", "open id", None])
    def test_an_actor_token_needs_openid(self, world: World, scope: str | None) -> None:
        """It is compared as a scope token."""
        claims = {"sub": world.agent, "aud": f"{world.stack.issuer}/me", "client_id": world.traditional.id}
        answers = [
            world.with_actor(world.forger.access_token(**claims, scope=each)) for each in ("openid email", scope)
        ]

        assert [refused_token(answer) for answer in answers] == [False, True]
