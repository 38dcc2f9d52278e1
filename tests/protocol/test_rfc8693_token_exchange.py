"""RFC 8693, OAuth 2.0 Token Exchange: impersonation with a one-time subject token; test_rfc8693_actor has the actor."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from identity_common.identifiers import new_id, new_secret
from identity_common.oauth import GRANT_TOKEN_EXCHANGE, OIDC_SCOPES, TOKEN_TYPE_ACCESS_TOKEN
from identity_common.wire.subject_tokens import SubjectTokenRecord, subject_token_key
from tests.support.retrying import SOON
from tests.support.world import MANAGEMENT_API, REFUSED, World, basic, error_body, last_revision, outcome, refused_token

JWT_TYPE = "urn:ietf:params:oauth:token-type:jwt"


@pytest.mark.servers
class TestResponse:
    """Section 2.2.1: the token that is issued."""

    def test_the_answer_is_that_of_the_interface(self, world: World) -> None:
        """Section 2.2.1: ``issued_token_type`` and ``token_type``; no refresh token, whatever is asked for."""
        answer = world.exchange(world.subject_token(), scope="write:things read:things offline_access openid")

        assert answer.status_code == 200
        body = answer.json()
        access_token = body.pop("access_token")
        assert body == {
            "issued_token_type": TOKEN_TYPE_ACCESS_TOKEN,
            "token_type": "Bearer",
            "expires_in": world.resource_ttl_s,
            "scope": "read:things write:things",
        }
        assert (answer.headers["Cache-Control"], answer.headers["Pragma"]) == ("no-store", "no-cache")
        assert world.claims(access_token, world.resource)["sub"] == world.customer

    def test_the_token_counts_at_once_for_a_user_reinstated_a_moment_ago(self, world: World) -> None:
        """docs/decisions/0004: whole seconds cannot say so, and ``iat`` must not be ahead of the clock."""
        users, user = world.management.users, world.user()
        for _ in range(3):
            users.suspend(user)
            users.suspend(user, suspended=False)
        answer = world.exchange(world.subject_token(user), resource=None, scope="openid")
        token = answer.json()["access_token"]
        claims = world.claims(token, f"{world.stack.issuer}/me")
        assert (claims["iat"] <= time.time(), claims["exp"] - claims["iat"]) == (True, answer.json()["expires_in"])
        me = world.stack.http.get("/oidc/me", headers={"Authorization": f"Bearer {token}"})

        assert (me.status_code, me.json()) == (200, {"sub": user})

    def test_the_token_represents_the_subject_and_names_the_grant(self, world: World) -> None:
        """Sections 1.1 and 4.1: impersonation has no ``act``; ``gty`` names the grant."""
        before = int(time.time())
        answer = world.exchange(world.subject_token())
        claims = world.claims(answer.json()["access_token"], world.resource)

        issued_at = claims.pop("iat")
        assert before <= issued_at <= int(time.time())
        assert re.fullmatch(r"[0-9a-z]{21}\.[0-9a-f]{32}", claims.pop("jti"))
        assert claims.pop("pv").keys() == {"management"}
        assert claims == {
            "iss": world.stack.issuer,
            "sub": world.customer,
            "aud": world.resource,
            "client_id": world.traditional.id,
            "exp": issued_at + world.resource_ttl_s,
            "scope": "read:things",
            "gty": GRANT_TOKEN_EXCHANGE,
        }

    @pytest.mark.parametrize("kind", ["MachineToMachine", "Native", "SPA", "Traditional"])
    def test_every_first_party_application_that_may_exchanges(self, world: World, kind: str) -> None:
        client = world.client(kind)
        answer = world.exchange(world.subject_token(), client=client)

        assert outcome(answer) == (200, None)
        assert world.claims(answer.json()["access_token"], world.resource)["client_id"] == client.id

    def test_the_subject_token_type_may_be_the_namespaces_own(self, world: World) -> None:
        answer = world.exchange(world.subject_token(), subject_token_type="urn:service:token-type:impersonation_token")

        assert (answer.status_code, answer.json()["issued_token_type"]) == (200, TOKEN_TYPE_ACCESS_TOKEN)

    def test_the_requested_token_type_may_be_named_if_it_is_an_access_token(self, world: World) -> None:
        answer = world.exchange(world.subject_token(), requested_token_type=TOKEN_TYPE_ACCESS_TOKEN)

        assert answer.json()["issued_token_type"] == TOKEN_TYPE_ACCESS_TOKEN


class TestScopes:
    """Section 2.1 ``scope``; RFC 6749 section 3.3: a requested scope is granted if the subject holds it."""

    @pytest.mark.parametrize(
        ("requested", "granted"),
        [
            (None, ""),
            ("read:things", "read:things"),
            ("write:things read:things", "read:things write:things"),
            ("read:things read:things", "read:things"),
            ("purge:things", ""),
            ("read:things purge:things", "read:things"),
            ("read:things unknown:things", "read:things"),
            ("READ:THINGS", ""),
            ("read:thing", ""),
            ("*", ""),
            ("all", ""),
            (" ".join(sorted(OIDC_SCOPES)), ""),
            ("openid profile read:things", "read:things"),
            ("urn:service:scope:organizations", ""),
        ],
    )
    def test_granted_scopes_never_widen(self, world: World, requested: str | None, granted: str) -> None:
        """Only the subject's permissions count, not the client's or the actor's; unknown scopes are dropped."""
        answer = world.exchange(world.subject_token(), scope=requested)

        assert (answer.status_code, answer.json()["scope"]) == (200, granted)
        assert world.claims(answer.json()["access_token"], world.resource)["scope"] == granted

    def test_a_subject_without_roles_gets_a_token_without_scopes(self, world: World) -> None:
        answer = world.exchange(world.subject_token(world.agent), scope="read:things")

        assert (answer.status_code, answer.json()["scope"]) == (200, "")

    def test_a_scope_of_the_same_name_on_another_resource_is_another_scope(self, world: World) -> None:
        """A scope counts together with its resource."""
        answer = world.exchange(world.subject_token(), resource=world.other_resource, scope="read:things")

        assert (answer.status_code, answer.json()["scope"], answer.json()["expires_in"]) == (200, "", 3600)
        assert world.claims(answer.json()["access_token"], world.other_resource)["aud"] == world.other_resource

    def test_permissions_are_the_union_over_the_roles_at_this_moment(self, world: World) -> None:
        reader, purger = world.role("read:things"), world.role("purge:things")
        user = world.user(reader, purger)
        requested = "read:things write:things purge:things"

        granted = [world.exchange(world.subject_token(user), scope=requested).json()["scope"]]
        world.management.users.remove_role(user, reader)
        granted.append(world.exchange(world.subject_token(user), scope=requested).json()["scope"])
        world.management.roles.assign_scopes(purger, [world.scope_ids["write:things"]])
        granted.append(world.exchange(world.subject_token(user), scope=requested).json()["scope"])
        world.management.roles.delete(purger)
        granted.append(world.exchange(world.subject_token(user), scope=requested).json()["scope"])
        assert granted == ["purge:things read:things", "purge:things", "purge:things write:things", ""]

    def test_very_many_requested_scopes_are_all_judged(self, world: World) -> None:
        """CVE-2024-27101: the last one counts, up to the size limit of the form."""
        scope = " ".join(f"s{number}" for number in range(2**12)) + " read:things"

        assert world.exchange(world.subject_token(), scope=scope).json()["scope"] == "read:things"


class TestUserinfoTokens:
    """Neither ``resource`` nor ``organization_id``: with ``openid`` a userinfo token."""

    def test_with_openid_a_userinfo_token_is_issued(self, world: World) -> None:
        answer = world.exchange(
            world.subject_token(), resource=None, scope="openid profile email offline_access read:things unknown"
        )

        assert answer.status_code == 200
        body = answer.json()
        claims = world.claims(body.pop("access_token"), f"{world.stack.issuer}/me")
        assert body == {
            "issued_token_type": TOKEN_TYPE_ACCESS_TOKEN,
            "token_type": "Bearer",
            "expires_in": 3600,
            "scope": "email openid profile",
        }
        assert (claims["sub"], claims["scope"], claims["gty"], claims["exp"] - claims["iat"]) == (
            world.customer,
            "email openid profile",
            GRANT_TOKEN_EXCHANGE,
            3600,
        )

    @pytest.mark.parametrize("scope", [None, "", "profile", "openid2", "read:openid", "OPENID", "xopenid openidx"])
    def test_without_openid_there_is_no_target(self, world: World, scope: str | None) -> None:
        """``openid`` is compared as a scope token, not searched for in the text."""
        subject_token = world.subject_token()
        answer = world.exchange(subject_token, resource=None, scope=scope)

        assert (answer.status_code, answer.json()) == (
            400,
            error_body("invalid_target", "name a resource, or request the scope openid"),
        )
        assert world.is_usable(subject_token)

    def test_a_userinfo_token_cannot_be_requested_by_its_audience(self, world: World) -> None:
        """The audience of userinfo tokens is not a resource."""
        answer = world.exchange(world.subject_token(), resource=f"{world.stack.issuer}/me", scope="openid")

        assert outcome(answer) == (400, "invalid_target")


@pytest.mark.servers
class TestSubjectToken:
    """Section 2.2.2: an unacceptable one is ``invalid_request``, with one description for every reason."""

    def test_it_is_spent_at_most_once(self, world: World) -> None:
        subject_token = world.subject_token()

        answers = [world.exchange(subject_token) for _ in range(3)]
        assert [refused_token(answer) for answer in answers] == [False, True, True]

    def test_unknown_expired_and_spent_are_indistinguishable(self, world: World) -> None:
        """Status, body and every header but date and request id are the same."""
        spent = world.subject_token()
        assert outcome(world.exchange(spent)) == (200, None)
        expired = _stored(world, expires_at=int(time.time() * 1000) - 1)
        expired_and_asked_twice = _stored(world, expires_at=int(time.time() * 1000) - 1)
        world.exchange(expired_and_asked_twice)
        candidates = {
            "spent": spent,
            "expired": expired,
            "expired before": expired_and_asked_twice,
            "unknown": f"sub_{new_secret()}",
            "malformed": "sub_x",
            "without its prefix": spent.removeprefix("sub_"),
            "an access token": world.userinfo_token(),
            "with a space": f"{spent} ",
            "in another case": world.subject_token().swapcase(),
            "very long": "sub_" + "x" * 60_000,
            "not ASCII": "sub_\u00e9\u4e2d\U0001f511" * 3,
        }
        seen = {name: world.exchange(candidate) for name, candidate in candidates.items()}

        plain = {
            name: (
                answer.status_code,
                answer.content,
                tuple((k, v) for k, v in answer.headers.items() if k not in {"date", "x-request-id"}),
            )
            for name, answer in seen.items()
        }
        assert len(set(plain.values())) == 1
        assert seen["spent"].json() == REFUSED
        assert seen["spent"].status_code == 400

    def test_the_store_holds_no_token(self, world: World) -> None:
        """Only its hash: an attacker who reads Redis cannot exchange anything."""
        subject_token = world.subject_token()
        keys = [key.decode() for key in world.redis.scan_iter("identity:default:subject-token:*")]
        record = world.redis.get(subject_token_key("default", subject_token)) or b""

        assert subject_token_key("default", subject_token) in keys
        assert not [key for key in keys if subject_token.removeprefix("sub_") in key]
        assert subject_token.removeprefix("sub_") not in record.decode()

    @pytest.mark.parametrize("end", ["suspend", "delete", "set_password"])
    def test_a_subject_whose_account_ended_is_refused_and_the_token_is_spent(self, world: World, end: str) -> None:
        """CVE-2025-14559: in the next exchange, with the revision of the write."""
        user = world.user(world.keeper_role)
        subject_token = world.subject_token(user)
        arguments = (new_secret(),) if end == "set_password" else ()
        getattr(world.management.users, end)(user, *arguments)

        assert refused_token(world.exchange(subject_token, headers=last_revision(world)))
        assert not world.is_usable(subject_token)

    def test_the_end_of_a_suspension_does_not_revive_an_old_token(self, world: World) -> None:
        """Only tokens minted afterwards count."""
        user = world.user(world.keeper_role)
        old = world.subject_token(user)
        world.management.users.suspend(user)
        world.management.users.suspend(user, suspended=False)
        new = world.subject_token(user)

        # The token of the later revision goes first: without it, no request waits for the change.
        assert [refused_token(world.exchange(token)) for token in (new, old)] == [False, True]

    @pytest.mark.heavy
    def test_after_a_password_change_a_new_token_counts_at_once(self, world: World) -> None:
        """Strict before the change, and no false refusal after it, at any fraction of the second."""
        user = world.user(world.keeper_role)
        for _ in range(10):
            old = world.subject_token(user)
            world.management.users.set_password(user, new_secret())
            new = world.subject_token(user)
            assert [refused_token(world.exchange(token)) for token in (new, old)] == [False, True]

    def test_subject_tokens_end_with_the_application_that_requested_them(self, world: World) -> None:
        """Client and requester of a subject token must both be live when it is exchanged."""
        minter = world.minter()
        before, after = (minter.subject_tokens.create(world.customer).token for _ in range(2))
        assert not refused_token(world.exchange(before))
        world.management.applications.delete(minter._client_id)

        assert refused_token(world.exchange(after, headers=last_revision(world)))

    @pytest.mark.heavy
    def test_it_waits_for_the_revision_at_which_it_was_minted(self, world: World) -> None:
        """A token is not judged by a directory that is older than the token."""
        token = _stored(world, expires_at=int(time.time() * 1000) + 60_000, revision=10**9)
        answer = world.exchange(token)

        assert outcome(answer) == (503, "temporarily_unavailable")
        assert answer.headers["Retry-After"] in SOON


def _stored(world: World, *, expires_at: int, revision: int = 0) -> str:
    """Store a record as management-service would have, at another time; return its token."""
    token = f"sub_{new_secret()}"
    record = SubjectTokenRecord(
        id=new_id(),
        user_id=world.customer,
        issued_to=world.stack.credentials.management_api.client_id,
        issued_at=int(time.time() * 1000) - 1000,
        expires_at=expires_at,
        revision=revision,
    )
    world.redis.set(subject_token_key("default", token), msgspec.json.encode(record), px=60_000)
    return token


class TestWhatLeavesTheTokenUsable:
    """Checks that do not need the subject come first: the token stays good for the right request."""

    REASONS: tuple[tuple[str, dict[str, Any], tuple[int, str]], ...] = (
        ("a repeated parameter", {"scope": ["a", "b"]}, (400, "invalid_request")),
        ("a NUL character", {"scope": "a\0"}, (400, "invalid_request")),
        ("another content type", {"headers": {"Content_Type": "text/plain"}}, (415, "invalid_request")),
        ("a malformed revision", {"headers": {"Identity_Revision": "management"}}, (400, "invalid_request")),
        ("an empty revision", {"headers": {"Identity_Revision": ""}}, (400, "invalid_request")),
        ("an unknown source", {"headers": {"Identity_Revision": "other:1"}}, (400, "invalid_request")),
        (
            "a known and an unknown source",
            {"headers": {"Identity_Revision": "management:1, other:1"}},
            (400, "invalid_request"),
        ),
        ("two methods of authentication", {"client_secret": "x"}, (400, "invalid_request")),
        ("another client id", {"client_id": "other"}, (400, "invalid_request")),
        (
            "no such grant",
            {"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer"},
            (400, "unsupported_grant_type"),
        ),
        ("no grant", {"grant_type": None}, (400, "invalid_request")),
        ("the password grant", {"grant_type": "password"}, (400, "unsupported_grant_type")),
        ("another grant", {"grant_type": "client_credentials"}, (400, "unauthorized_client")),
        ("no subject token type", {"subject_token_type": None}, (400, "invalid_request")),
        ("another subject token type", {"subject_token_type": JWT_TYPE}, (400, "invalid_request")),
        (
            "another namespace",
            {"subject_token_type": "urn:other:token-type:impersonation_token"},
            (400, "invalid_request"),
        ),
        ("another requested type", {"requested_token_type": JWT_TYPE}, (400, "invalid_request")),
        (
            "a refresh token",
            {"requested_token_type": "urn:ietf:params:oauth:token-type:refresh_token"},
            (400, "invalid_request"),
        ),
        ("no target", {"resource": None}, (400, "invalid_target")),
        ("an unknown target", {"resource": "https://unknown.example.com"}, (400, "invalid_target")),
        ("the Management API", {"resource": MANAGEMENT_API, "scope": "all"}, (400, "invalid_target")),
        ("an audience", {"audience": "https://things.example.com"}, (400, "invalid_target")),
        ("an organization twice", {"organization_id": ["a", "b"]}, (400, "invalid_request")),
        (
            "an unknown target in an organization",
            {"organization_id": "o12345678901", "resource": "https://unknown.example.com"},
            (400, "invalid_target"),
        ),
        (
            "the Management API in an organization",
            {"organization_id": "o12345678901", "resource": MANAGEMENT_API, "scope": "all"},
            (400, "invalid_target"),
        ),
        ("an actor token without its type", {"actor_token": "x"}, (400, "invalid_request")),
        (
            "a bad actor token",
            {"actor_token": "x", "actor_token_type": TOKEN_TYPE_ACCESS_TOKEN},
            (400, "invalid_request"),
        ),
    )

    @pytest.mark.parametrize(("changes", "expected"), [each[1:] for each in REASONS], ids=[each[0] for each in REASONS])
    def test_a_refusal_for_another_reason(
        self, world: World, changes: dict[str, Any], expected: tuple[int, str]
    ) -> None:
        subject_token = world.subject_token()

        assert outcome(world.exchange(subject_token, **changes)) == expected
        assert outcome(world.exchange(subject_token)) == (200, None)

    @pytest.mark.parametrize(
        ("client", "expected"),
        [
            ("machine", (400, "unauthorized_client")),
            ("traditional_without_exchange", (400, "unauthorized_client")),
            ("spa_without_exchange", (400, "unauthorized_client")),
            ("third_party", (400, "unauthorized_client")),
        ],
    )
    def test_a_client_that_may_not_exchange(self, world: World, client: str, expected: tuple[int, str]) -> None:
        """CVE-2022-1245: the client must be first-party, and allowed to."""
        subject_token = world.subject_token()
        answer = world.exchange(subject_token, client=getattr(world, client))

        assert outcome(answer) == expected
        assert answer.json() == error_body("unauthorized_client", "this application may not exchange tokens")
        assert outcome(world.exchange(subject_token)) == (200, None)

    @pytest.mark.parametrize("secret", ["", "wrong", None])
    def test_a_client_that_does_not_authenticate(self, world: World, secret: str | None) -> None:
        subject_token = world.subject_token()
        client_id = world.traditional.id
        headers = {} if secret is None else {"Authorization": basic(client_id, secret)}
        answer = world.stack.token_request(world.exchange_form(subject_token, client_id=client_id), **headers)

        assert outcome(answer) == (401, "invalid_client")
        assert outcome(world.exchange(subject_token)) == (200, None)

    def test_a_second_resource(self, world: World) -> None:
        subject_token = world.subject_token()
        answer = world.exchange(subject_token, resource=[world.resource, world.other_resource])

        assert outcome(answer) == (400, "invalid_target")
        assert outcome(world.exchange(subject_token)) == (200, None)

    @pytest.mark.servers
    @pytest.mark.heavy
    def test_a_revision_that_does_not_arrive(self, world: World) -> None:
        """The contract: 503 with ``Retry-After`` after a bounded wait, and nothing is spent."""
        subject_token = world.subject_token()
        answer = world.exchange(subject_token, headers={"Identity_Revision": "management:999999999"})

        assert outcome(answer) == (503, "temporarily_unavailable")
        assert answer.headers["Retry-After"] in SOON
        assert outcome(world.exchange(subject_token)) == (200, None)

    @pytest.mark.servers
    def test_an_actor_who_is_suspended(self, world: World) -> None:
        actor = world.user()
        actor_token = world.userinfo_token(actor)
        world.management.users.suspend(actor)
        subject_token = world.subject_token()
        answer = world.exchange(
            subject_token,
            actor_token=actor_token,
            actor_token_type=TOKEN_TYPE_ACCESS_TOKEN,
            headers=last_revision(world),
        )

        assert refused_token(answer)
        assert outcome(world.exchange(subject_token)) == (200, None)

    @pytest.mark.servers
    def test_a_known_revision_changes_nothing(self, world: World) -> None:
        for revision in ("management:0", world.management.last_revision or ""):
            answer = world.exchange(world.subject_token(), headers={"Identity_Revision": revision})
            assert outcome(answer) == (200, None)


@pytest.mark.servers
@pytest.mark.parametrize("what", ["application", "resource", "exchange switched off", "third-party"])
def test_a_deletion_or_prohibition_counts_for_the_next_exchange(world: World, what: str) -> None:
    """With the revision that the write returned."""
    management = world.management
    client = world.client("Traditional")
    resource = management.resources.create("Short-lived", f"https://{client.id}.example.com/api")
    token = world.subject_token()
    endings: dict[str, tuple[Callable[[], object], tuple[int, str]]] = {
        "application": (lambda: management.applications.delete(client.id), (401, "invalid_client")),
        "resource": (lambda: management.resources.delete(resource.id), (400, "invalid_target")),
        "exchange switched off": (
            lambda: management.applications.update(client.id, custom_client_metadata={"allowTokenExchange": False}),
            (400, "unauthorized_client"),
        ),
        "third-party": (
            lambda: management.applications.update(
                client.id, is_third_party=True, custom_client_metadata={"allowTokenExchange": False}
            ),
            (400, "unauthorized_client"),
        ),
    }
    end, expected = endings[what]
    assert outcome(world.exchange(world.subject_token(), client=client, resource=resource.indicator)) == (200, None)
    end()
    answer = world.exchange(token, client=client, resource=resource.indicator, headers=last_revision(world))

    assert outcome(answer) == expected
    assert world.is_usable(token)
