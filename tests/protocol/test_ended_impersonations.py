"""An ended impersonation is over on every path, for every token that was obtained within it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import httpx2 as httpx
import pytest

from identity_common.clock import now_ms
from identity_common.oauth import TOKEN_TYPE_ACCESS_TOKEN
from stead.models import SubjectToken
from stead.verify.impersonations import ImpersonationSegments
from tests.support.world import Client, World


class Parties(NamedTuple):
    """The parties of one impersonation."""

    subject: str
    actor: str
    client: Client


def begin(world: World, user_id: str | None = None) -> SubjectToken:
    return world.management.subject_tokens.create(user_id or world.customer)


def acted(world: World, subject_token: SubjectToken, **changes: Any) -> httpx.Response:
    """Exchange with the agent as the actor, for the organization."""
    return world.exchange(
        subject_token.token,
        actor_token=world.userinfo_token(),
        actor_token_type=TOKEN_TYPE_ACCESS_TOKEN,
        resource=None,
        organization_id=world.organization,
        scope=None,
        **changes,
    )


def end(world: World, **ended: Any) -> str:
    """End an impersonation by its ``id``, or those of a party; return the revision."""
    impersonations = world.management.impersonations
    impersonations.end(ended["id"]) if "id" in ended else impersonations.end_all(**ended)
    return world.management.last_revision or ""


def is_active(world: World, access_token: str, revision: str) -> bool:
    answer = world.stack.http.post(
        "/oidc/token/introspection",
        data={"token": access_token},
        auth=world.traditional.basic,
        headers={"Identity-Revision": revision},
    )
    assert answer.status_code == 200, answer.text
    return bool(answer.json()["active"])


SELECTORS: dict[str, Callable[[World, SubjectToken], dict[str, Any]]] = {
    "id": lambda _, begun: {"id": begun.impersonation_id},
    "user": lambda world, _: {"user_id": world.customer},
    "actor": lambda world, _: {"actor_id": world.agent},
    "client": lambda world, _: {"client_id": world.traditional.id},
    "organization": lambda world, _: {"organization_id": world.organization},
    "all": lambda *_: {"all": True},
}


@pytest.mark.parametrize("selector", SELECTORS)
def test_an_end_invalidates_the_tokens_and_the_unspent_subject_token_and_nothing_later(
    world: World, selector: str
) -> None:
    spent, unspent = begin(world), begin(world)
    access_token = acted(world, spent).json()["access_token"]
    assert is_active(world, access_token, "management:0")

    revision = end(world, **SELECTORS[selector](world, spent))
    assert not is_active(world, access_token, revision)
    refused = acted(world, unspent, headers={"Identity_Revision": revision})
    if selector == "id":  # of another impersonation
        assert refused.status_code == 200
        revision = end(world, **SELECTORS[selector](world, unspent))
        assert not is_active(world, refused.json()["access_token"], revision)
    else:
        assert (refused.status_code, refused.json()["error"]) == (400, "invalid_request")

    later = acted(world, begin(world))
    assert later.status_code == 200
    assert is_active(world, later.json()["access_token"], revision)


def test_an_unspent_subject_token_ends_by_its_id(world: World) -> None:
    begun = begin(world)
    revision = end(world, id=begun.impersonation_id)
    answer = world.exchange(begun.token, headers={"Identity_Revision": revision})

    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
    assert not world.is_usable(begun.token)


def test_it_ends_at_userinfo_and_where_an_organization_token_reads_permissions(world: World) -> None:
    """The latter is another service, which reads the copy of the revocations itself."""
    spent, other = begin(world), begin(world)
    userinfo = world.exchange(spent.token, resource=None, scope="openid").json()["access_token"]
    organization = acted(world, other).json()["access_token"]
    permissions = f"/api/organizations/{world.organization}/users/{world.customer}/scopes"

    def statuses() -> list[int]:
        asked = (("/oidc/me", userinfo), (permissions, organization))
        return [
            world.stack.http.get(path, headers={"Authorization": f"Bearer {token}"}).status_code
            for path, token in asked
        ]

    assert statuses() == [200, 200]
    revision = end(world, user_id=world.customer)
    assert not is_active(world, userinfo, revision)  # awaits the revision
    assert statuses() == [401, 401]


def test_a_token_obtained_within_an_impersonation_ends_with_any_of_its_ancestors(world: World) -> None:
    outer, inner = begin(world), begin(world)
    ids = (outer.impersonation_id, inner.impersonation_id, begin(world).impersonation_id)
    token = world.forger.access_token(
        sub=world.customer,
        aud=world.resource,
        client_id=world.traditional.id,
        scope="read:things",
        gty="urn:ietf:params:oauth:grant-type:token-exchange",
        jti=ImpersonationSegments(ids, now_ms()).format(),
    )
    assert is_active(world, token, "management:0")
    assert not is_active(world, token, end(world, id=inner.impersonation_id))


def test_no_exchange_in_flight_outlives_an_acknowledged_end(world: World) -> None:
    """Whether the take or the end comes first, no live token is left."""
    for selector in ("id", "client"):
        begun = begin(world)
        with ThreadPoolExecutor(2) as threads:
            exchanging = threads.submit(world.exchange, begun.token)
            ending = threads.submit(end, world, **SELECTORS[selector](world, begun))
        answer, revision = exchanging.result(), ending.result()
        assert answer.status_code in {200, 400}
        if answer.status_code == 200:
            assert not is_active(world, answer.json()["access_token"], revision)


def test_ends_survive_the_loss_of_the_copied_revocations(world: World) -> None:
    spent, unspent = begin(world), begin(world)
    access_token = world.exchange(spent.token).json()["access_token"]
    revision = end(world, user_id=world.customer)
    assert not is_active(world, access_token, revision)

    copied = [*world.redis.scan_iter("identity:default:revocation:*"), "identity:default:revocations"]
    world.redis.delete(*copied)
    assert world.exchange(unspent.token).status_code == 400
    assert not is_active(world, access_token, revision)


TRIGGERS: dict[str, Callable[[World, Parties], object]] = {
    "the subject is suspended": lambda world, of: world.management.users.suspend(of.subject),
    "the subject is deleted": lambda world, of: world.management.users.delete(of.subject),
    "the actor is suspended": lambda world, of: world.management.users.suspend(of.actor),
    "the actor is deleted": lambda world, of: world.management.users.delete(of.actor),
    "the actor's password changes": lambda world, of: world.management.users.set_password(of.actor, "another password"),
    "the application is deleted": lambda world, of: world.management.applications.delete(of.client.id),
    "token exchange is switched off": lambda world, of: world.management.applications.update(
        of.client.id, custom_client_metadata={"allowTokenExchange": False}
    ),
}


@pytest.mark.parametrize("trigger", TRIGGERS)
def test_an_impersonation_ends_by_itself(world: World, trigger: str) -> None:
    """At introspection, for an API's token and a userinfo token, and at userinfo."""
    of = Parties(world.user(), world.user(), world.client("Traditional"))
    acting = {"actor_token": world.userinfo_token(of.actor), "actor_token_type": TOKEN_TYPE_ACCESS_TOKEN}
    targets: tuple[dict[str, str | None], ...] = ({}, {"resource": None, "scope": "openid"})
    tokens = [
        world.exchange(begin(world, of.subject).token, client=of.client, **acting, **target).json()["access_token"]
        for target in targets
    ]

    def outcomes(revision: str) -> tuple[bool, bool, int]:
        userinfo = world.stack.http.get("/oidc/me", headers={"Authorization": f"Bearer {tokens[1]}"})
        first, second = (is_active(world, token, revision) for token in tokens)
        return first, second, userinfo.status_code

    assert outcomes("management:0") == (True, True, 200)
    TRIGGERS[trigger](world, of)
    revision = world.management.last_revision or ""
    is_active(world, tokens[0], revision)  # userinfo awaits no revision
    assert outcomes(revision) == (False, False, 401)
