"""What a user has agreed to, read and withdrawn over the Management API."""

from __future__ import annotations

import pytest

from identity_sdk import Consent, NotFound, ResourceConsent
from tests.pages.test_authorization import application
from tests.support.at_a_browser import Person, callback, heading
from tests.support.authorizing import Verifier
from tests.support.world import Client, World

ORGANIZATIONS = "urn:service:scope:organizations"


@pytest.fixture(scope="module")
def partner(world: World) -> Client:
    return application(world, "SPA", third_party=True)


def test_a_consent_is_shown_and_its_withdrawal_ends_what_it_gave(world: World, partner: Client) -> None:
    person, users = Person(world), world.management.users
    assert users.consents(person.user_id) == []
    verifier = Verifier()
    asked = person.follow(person.sign_in(person.follow(person.authorize(partner, verifier=verifier))))
    tokens = person.redeem(partner, callback(person.send(asked, decision="allow"))["code"], verifier)
    (consent,) = users.consents(person.user_id)
    assert consent == Consent(
        tenant_id=consent.tenant_id,
        application_id=partner.id,
        scopes=("offline_access", "openid", "profile"),
        resources=(ResourceConsent(resource=world.resource, scopes=("read:things",)),),
        consented_at=consent.consented_at,
    )
    assert callback(person.authorize(partner, prompt="none"))["code"]

    users.withdraw_consent(person.user_id, partner.id)
    assert users.consents(person.user_id) == []
    refused = world.stack.token_request(
        {"grant_type": "refresh_token", "client_id": partner.id, "refresh_token": tokens["refresh_token"]}
    )
    assert (refused.status_code, refused.json()["error"]) == (400, "invalid_grant")
    bearer = {"Authorization": f"Bearer {tokens['access_token']}"}
    assert world.stack.http.get("/oidc/me", headers=bearer).status_code == 401
    assert heading(person.follow(person.authorize(partner))) == "Allow access?"
    with pytest.raises(NotFound):
        users.withdraw_consent(person.user_id, partner.id)


def test_a_third_party_hears_of_the_organizations_that_were_picked(world: World, partner: Client) -> None:
    person, template = Person(world), world.template
    picked, other = template.organization(), template.organization()
    for organization in (picked, other):
        template.member(organization, person.user_id)
    verifier = Verifier()
    page = person.sign_in(person.follow(person.authorize(partner, verifier=verifier, scope=f"openid {ORGANIZATIONS}")))
    back = person.send(person.follow(page), decision="allow", organization=picked)
    tokens = person.redeem(partner, callback(back)["code"], verifier)
    me = world.stack.http.get("/oidc/me", headers={"Authorization": f"Bearer {tokens['access_token']}"})
    assert me.json() == {"sub": person.user_id, "organizations": [picked]}
    (consent,) = world.management.users.consents(person.user_id)
    assert consent.organization_ids == (picked,)


def test_who_and_what_is_not_there_is_a_miss(world: World, partner: Client) -> None:
    users = world.management.users
    with pytest.raises(NotFound, match="not_exists_with_id"):
        users.consents("nobody")
    with pytest.raises(NotFound, match="not_exists_with_id"):
        users.withdraw_consent("nobody", partner.id)
    for application_id in (partner.id, "nothing", "x" * 1000):
        with pytest.raises(NotFound, match="not_found"):
            users.withdraw_consent(world.customer, application_id)


def test_nobody_but_the_management_api_may_ask(world: World, partner: Client) -> None:
    path = f"/api/users/{world.customer}/consents"
    own = {"Authorization": f"Bearer {world.userinfo_token(world.customer)}"}
    for headers in ({}, own):
        assert world.stack.http.get(path, headers=headers).status_code == 401
        assert world.stack.http.delete(f"{path}/{partner.id}", headers=headers).status_code == 401
