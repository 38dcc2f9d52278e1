"""What a user has agreed to, read and withdrawn over the Management API."""

from __future__ import annotations

import re
from typing import Any

import jwt
import pytest

from stead import Consent, NotFound, ResourceConsent
from tests.support.at_a_browser import Person, application, callback, heading
from tests.support.authorizing import REDIRECT_URI, Verifier
from tests.support.waiting import eventually
from tests.support.world import Client, World

ORGANIZATIONS = "urn:service:scope:organizations"


@pytest.fixture(scope="module")
def partner(world: World) -> Client:
    return application(world, "SPA", third_party=True)


def test_a_consent_is_shown_and_its_withdrawal_ends_its_tokens(world: World, partner: Client) -> None:
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


def test_a_third_party_sees_the_organizations_that_were_picked(world: World, partner: Client) -> None:
    person, template = Person(world), world.template
    picked, other = template.organization(), template.organization()
    for organization in (picked, other):
        template.member(organization, person.user_id)
    world.caught_up()
    verifier = Verifier()
    page = person.sign_in(person.follow(person.authorize(partner, verifier=verifier, scope=f"openid {ORGANIZATIONS}")))
    back = person.send(person.follow(page), decision="allow", organization=picked)
    tokens = person.redeem(partner, callback(back)["code"], verifier)
    me = world.stack.http.get("/oidc/me", headers={"Authorization": f"Bearer {tokens['access_token']}"})
    assert me.json() == {"sub": person.user_id, "organizations": [picked]}
    (consent,) = world.management.users.consents(person.user_id)
    assert consent.organization_ids == (picked,)


def test_a_new_choice_of_organizations_applies_to_earlier_tokens_too(world: World, partner: Client) -> None:
    person, template = Person(world), world.template
    kept, dropped, added = (template.organization() for _ in range(3))
    for organization in (kept, dropped, added):
        template.member(organization, person.user_id)
    world.caught_up()
    asked = {"scope": f"openid offline_access {ORGANIZATIONS}", "prompt": "consent"}

    def pick(*organizations: str) -> dict[str, Any]:
        verifier = Verifier()
        answer = person.authorize(partner, verifier=verifier, **asked)
        if "/sign-in" in answer.headers["Location"]:
            answer = person.sign_in(person.follow(answer))
        back = person.send(person.follow(answer), decision="allow", organization=organizations)
        return person.redeem(partner, callback(back)["code"], verifier)

    def organizations_seen_by(tokens: dict[str, Any]) -> set[str]:
        """Return the organizations that the client sees, in the ID token and at userinfo alike."""
        refreshed = refresh(tokens)
        told = jwt.decode(refreshed["id_token"], options={"verify_signature": False})["organizations"]
        bearer = {"Authorization": f"Bearer {tokens['access_token']}"}
        assert world.stack.http.get("/oidc/me", headers=bearer).json()["organizations"] == told
        return set(told)

    def refresh(tokens: dict[str, Any], **changes: str) -> dict[str, Any]:
        form = {"grant_type": "refresh_token", "client_id": partner.id, "refresh_token": tokens["refresh_token"]}
        answer = world.stack.token_request(form | changes)
        if answer.status_code == 200:
            tokens["refresh_token"] = answer.json()["refresh_token"]
        return dict(answer.json())

    earlier = pick(kept, dropped)
    assert "access_token" in refresh(earlier, organization_id=dropped)
    later = pick(kept, added)
    for tokens in (earlier, later):
        assert organizations_seen_by(tokens) == {kept, added}
        assert refresh(tokens, organization_id=dropped)["error"] == "access_denied"
        for organization in (kept, added):
            assert "access_token" in refresh(tokens, organization_id=organization)
    (consent,) = world.management.users.consents(person.user_id)
    assert set(consent.organization_ids) == {kept, added}
    page = person.follow(person.authorize(partner, **asked))
    ticked = set(re.findall(r'value="([^"]+)"\s+checked', page.text))
    assert ticked == {kept, added}
    person.send(page, decision="allow")
    assert organizations_seen_by(earlier) == organizations_seen_by(later) == set()


def test_organizations_stay_picked_when_the_page_does_not_ask_about_them(world: World, partner: Client) -> None:
    person = Person(world)
    picked = world.template.organization()
    world.template.member(picked, person.user_id)
    world.caught_up()
    page = person.follow(person.sign_in(person.follow(person.authorize(partner, scope=f"openid {ORGANIZATIONS}"))))
    assert callback(person.send(page, decision="allow", organization=picked))["code"]
    page = person.follow(person.authorize(partner, scope="openid email"))
    assert picked not in page.text
    assert callback(person.send(page, decision="allow"))["code"]
    (consent,) = world.management.users.consents(person.user_id)
    assert consent.organization_ids == (picked,)


def test_a_deleted_application_is_not_shown(world: World) -> None:
    person, users = Person(world), world.management.users
    passing, staying = application(world, "SPA"), application(world, "SPA")
    for client in (passing, staying):
        person.code(client)
    assert {each.application_id for each in users.consents(person.user_id)} == {passing.id, staying.id}
    world.management.applications.delete(passing.id)
    eventually(lambda: [each.application_id for each in users.consents(person.user_id)] == [staying.id])


def test_unknown_users_and_consents_are_not_found(world: World, partner: Client) -> None:
    users = world.management.users
    with pytest.raises(NotFound, match="not_exists_with_id"):
        users.consents("unknown")
    with pytest.raises(NotFound, match="not_exists_with_id"):
        users.withdraw_consent("unknown", partner.id)
    for application_id in (partner.id, "nothing", "x" * 1000):
        with pytest.raises(NotFound, match="not_found"):
            users.withdraw_consent(world.customer, application_id)


def test_consents_need_a_token_for_the_management_api(world: World, partner: Client) -> None:
    path = f"/api/users/{world.customer}/consents"
    own = {"Authorization": f"Bearer {world.userinfo_token(world.customer)}"}
    for headers in ({}, own):
        assert world.stack.http.get(path, headers=headers).status_code == 401
        assert world.stack.http.delete(f"{path}/{partner.id}", headers=headers).status_code == 401


def test_what_a_first_party_got_without_a_page_ends_when_it_becomes_a_third_party(world: World) -> None:
    """A consent that was not given never counts for a third party: neither for a code nor for a token got earlier."""
    person, client = Person(world), application(world, "SPA")
    verifier = Verifier()
    back = person.sign_in(person.follow(person.authorize(client, verifier=verifier)))
    tokens = person.redeem(client, callback(back)["code"], verifier)
    code = callback(person.authorize(client, verifier=verifier, prompt="none"))["code"]
    (recorded,) = world.management.users.consents(person.user_id)
    assert recorded.implicit

    world.management.applications.update(client.id, is_third_party=True)
    world.caught_up()
    assert callback(person.authorize(client, prompt="none"))["error"] == "consent_required"
    redemption = {"grant_type": "authorization_code", "code": code, "redirect_uri": REDIRECT_URI}
    for form in (
        {**redemption, "code_verifier": verifier.secret},
        {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"]},
    ):
        refused = world.stack.token_request({**form, "client_id": client.id})
        assert (refused.status_code, refused.json()["error"]) == (400, "invalid_grant")
    bearer = {"Authorization": f"Bearer {tokens['access_token']}"}
    eventually(lambda: world.stack.http.get("/oidc/me", headers=bearer).status_code == 401)

    page = person.follow(person.authorize(client, verifier=verifier))
    assert heading(page) == "Allow access?"
    given = person.redeem(client, callback(person.send(page, decision="allow"))["code"], verifier)
    refresh = {"grant_type": "refresh_token", "client_id": client.id, "refresh_token": given["refresh_token"]}
    assert world.stack.token_request(refresh).status_code == 200
    assert callback(person.authorize(client, prompt="none"))["code"]
    (consent,) = world.management.users.consents(person.user_id)
    assert not consent.implicit


def test_a_consent_given_on_a_page_counts_whatever_the_application_becomes(world: World) -> None:
    person, client = Person(world), application(world, "SPA")
    verifier = Verifier()
    page = person.follow(person.sign_in(person.follow(person.authorize(client, verifier=verifier, prompt="consent"))))
    assert callback(person.send(page, decision="allow"))["code"]
    (consent,) = world.management.users.consents(person.user_id)
    assert not consent.implicit

    world.management.applications.update(client.id, is_third_party=True)
    world.caught_up()
    assert callback(person.authorize(client, prompt="none"))["code"]


def test_the_account_is_for_first_parties_only(world: World, partner: Client) -> None:
    person, ours = Person(world), application(world, "SPA")
    asked: dict[str, Any] = {"scope": "openid account", "resource": None, "prompt": "consent"}
    shown, granted = {}, {}
    for client in (partner, ours):
        verifier = Verifier()
        answer = person.follow(person.authorize(client, verifier=verifier, **asked))
        page = answer if heading(answer) == "Allow access?" else person.follow(person.sign_in(answer))
        shown[client.id] = "See and change your account" in page.text
        tokens = person.redeem(client, callback(person.send(page, decision="allow"))["code"], verifier)
        granted[client.id] = tokens["scope"]
    assert shown == {partner.id: False, ours.id: True}
    assert granted == {partner.id: "openid", ours.id: "account openid"}
