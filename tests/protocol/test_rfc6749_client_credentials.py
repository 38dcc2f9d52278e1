"""RFC 6749 section 4.4, the client credentials grant: a machine-to-machine application acts for itself."""

from __future__ import annotations

from typing import Any

import pytest

from identity_common.identifiers import new_secret
from tests.support.retrying import SOON
from tests.support.world import MANAGEMENT_API, Client, World, basic, error_body, outcome


def test_the_answer_has_a_token_and_no_refresh_token(world: World) -> None:
    """Section 4.4.3: a refresh token SHOULD NOT be included; ``issued_token_type`` belongs to the exchange."""
    answer = world.client_credentials(scope="read:things")

    assert answer.status_code == 200
    body = answer.json()
    claims = world.claims(body.pop("access_token"), world.resource)
    assert body == {"token_type": "Bearer", "expires_in": world.resource_ttl_s, "scope": "read:things"}
    assert claims["sub"] == claims["client_id"] == world.machine.id


def test_the_secret_may_be_in_the_header_or_in_the_form(world: World) -> None:
    """Section 4.4.2: the client MUST authenticate, by a method of its type."""
    client_id, secret = world.machine.basic
    form = {"grant_type": "client_credentials", "resource": world.resource}

    posted = world.stack.token_request({**form, "client_id": client_id, "client_secret": secret})
    sent = world.stack.token_request(form, Authorization=basic(client_id, secret))
    assert [outcome(answer) for answer in (posted, sent)] == [(200, None), (200, None)]


@pytest.mark.parametrize(
    ("requested", "granted"),
    [
        (None, ""),
        ("read:things", "read:things"),
        ("read:things write:things purge:things", "read:things"),
        ("write:things", ""),
        ("unknown", ""),
        ("READ:THINGS", ""),
        ("openid profile offline_access", ""),
        ("all", ""),
    ],
)
def test_a_requested_scope_is_granted_if_it_is_held_through_api_roles(
    world: World, requested: str | None, granted: str
) -> None:
    """Section 3.3: none requested, none granted; never more than is held."""
    answer = world.client_credentials(scope=requested)

    assert (answer.status_code, answer.json()["scope"]) == (200, granted)
    assert world.claims(answer.json()["access_token"], world.resource)["scope"] == granted


def test_without_roles_nothing_is_granted(world: World) -> None:
    answer = world.client_credentials(world.machine_without_roles)

    assert (answer.status_code, answer.json()["scope"]) == (200, "")


def test_a_scope_of_the_same_name_on_another_resource_is_another_scope(world: World) -> None:
    assert world.client_credentials(resource=world.other_resource).json()["scope"] == ""


@pytest.mark.parametrize("name", ["traditional", "third_party", "traditional_without_exchange"])
def test_only_machines_may_use_the_grant(world: World, name: str) -> None:
    """Not even with a good secret."""
    client: Client = getattr(world, name)
    answer = world.client_credentials(client)

    assert answer.status_code == 400
    assert answer.json() == error_body("unauthorized_client", "only machine-to-machine applications may use this grant")


@pytest.mark.parametrize("name", ["spa", "native"])
def test_public_clients_may_not_use_it(world: World, name: str) -> None:
    """Section 4.4: the grant MUST only be used by confidential clients."""
    client: Client = getattr(world, name)
    answer = world.stack.token_request(
        {"grant_type": "client_credentials", "client_id": client.id, "resource": world.resource}
    )

    assert outcome(answer) == (400, "unauthorized_client")


def test_without_a_target_the_token_is_for_the_default_resource(world: World) -> None:
    """RFC 9068 section 3; an organization, or another grant, does not become one for the default resource."""
    resources = world.management.resources
    ids = {resource.indicator: resource.id for resource in resources.list()}

    def default(indicator: str, *, is_default: bool) -> dict[str, str]:
        resources.set_default(ids[indicator], is_default=is_default)
        return {"Identity_Revision": world.management.last_revision or ""}

    headers = default(world.resource, is_default=True)
    try:
        answer = world.client_credentials(resource=None, scope="read:things", headers=headers)
        assert world.claims(answer.json()["access_token"], world.resource)["scope"] == "read:things"
        in_organization = world.client_credentials(resource=None, organization_id=world.organization)
        assert world.claims(in_organization.json()["access_token"], world.organization_audience())["scope"] == ""
        assert outcome(world.exchange(world.subject_token(), resource=None)) == (400, "invalid_target")
        assert outcome(world.client_credentials(resource="https://x.example")) == (400, "invalid_target")

        headers = default(world.other_resource, is_default=True)
        answer = world.client_credentials(resource=None, scope="read:things", headers=headers)
        assert world.claims(answer.json()["access_token"], world.other_resource)["scope"] == ""
    finally:
        default(world.other_resource, is_default=False)


@pytest.mark.parametrize("scope", [None, "openid"])
def test_without_a_default_resource_a_target_is_needed(world: World, scope: str | None) -> None:
    """The contract: neither ``resource`` nor ``organization_id``: invalid_target; ``openid`` changes nothing.

    A resource that is deleted is no longer the default.
    """
    passing = world.management.resources.create("Passing", f"https://{new_secret()}.example.com/api")
    world.management.resources.set_default(passing.id, is_default=True)
    headers = {"Identity_Revision": world.management.last_revision or ""}
    assert outcome(world.client_credentials(resource=None, scope=scope, headers=headers)) == (200, None)
    world.management.resources.delete(passing.id)

    headers = {"Identity_Revision": world.management.last_revision or ""}
    answer = world.client_credentials(resource=None, scope=scope, headers=headers)
    assert (answer.status_code, answer.json()) == (
        400,
        error_body("invalid_target", "name a resource or an organization: no resource is the default"),
    )


def test_the_management_api_needs_its_scope(world: World) -> None:
    """Any machine gets a token for it; the scope decides what the token opens."""
    nothing = world.client_credentials(resource=MANAGEMENT_API, scope="all subject-tokens")
    access = world.stack.credentials.management_api
    everything = world.client_credentials(
        Client(access.client_id, access.client_secret), resource=MANAGEMENT_API, scope="all subject-tokens"
    )

    assert [answer.json()["scope"] for answer in (nothing, everything)] == ["", "all"]


def test_a_deleted_client_or_secret_or_role_or_resource_no_longer_counts(world: World) -> None:
    """CVE-2023-0091, CVE-2025-64521: in the next request, with the revision that the write returned."""
    management = world.management
    client = world.client("MachineToMachine", exchange=False)
    role = world.role("read:things", kind="MachineToMachine")
    management.applications.assign_roles(client.id, [role])
    resource = management.resources.create("Passing", f"https://{client.id}.example.com/api")

    def ask(**changes: Any) -> tuple[int, str | None, str | None]:
        answer = world.client_credentials(
            client, headers={"Identity_Revision": management.last_revision or ""}, **changes
        )
        return *outcome(answer), answer.json().get("scope")

    seen = [ask(), ask(resource=resource.indicator)]
    management.roles.delete(role)
    seen.append(ask())
    management.resources.delete(resource.id)
    seen.append(ask(resource=resource.indicator))
    management.applications.delete(client.id)
    seen.append(ask())
    assert seen == [
        (200, None, "read:things"),
        (200, None, ""),
        (200, None, ""),
        (400, "invalid_target", None),
        (401, "invalid_client", None),
    ]


@pytest.mark.parametrize(
    "revision", ["management", "management:x", "other:1", "management:1,", "", "97", "management:-1"]
)
def test_a_malformed_revision_is_refused(world: World, revision: str) -> None:
    """It is not ignored."""
    answer = world.client_credentials(headers={"Identity_Revision": revision})

    assert (answer.status_code, answer.json()) == (
        400,
        error_body("invalid_request", "Identity-Revision is malformed; expected, for example, management:97"),
    )


@pytest.mark.heavy
def test_a_revision_that_does_not_arrive_is_503(world: World) -> None:
    answer = world.client_credentials(headers={"Identity_Revision": "management:999999999"})

    assert answer.status_code == 503
    assert answer.headers["Retry-After"] in SOON
    assert answer.json() == error_body("temporarily_unavailable", "the awaited revision has not arrived yet")


@pytest.mark.heavy
def test_an_unauthenticated_client_does_not_wait(world: World) -> None:
    """An attacker cannot make the service hold requests: waiting begins after authentication and validation."""
    headers = {"Identity_Revision": "management:999999999"}

    wrong = Client(world.machine.id, "x" * 43)
    assert outcome(world.client_credentials(wrong, headers=headers)) == (401, "invalid_client")
    assert outcome(world.client_credentials(grant_type="x", headers=headers)) == (400, "unsupported_grant_type")
    assert outcome(world.client_credentials(resource="https://x.example", headers=headers)) == (400, "invalid_target")
