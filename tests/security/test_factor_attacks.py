"""Attacks on people with second factors, through the pages of the whole system.

What the pages of factors refuse by themselves is in pages/test_factors.py, and what management-service refuses in
component/management: counters, races, hostile CBOR, guessed codes.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import httpx2 as httpx
import pytest

from tests.pages.test_factors import CONFIRM, FactorPerson, of_page
from tests.support.at_a_browser import Form, callback, heading, plant
from tests.support.authenticator import UP, Authenticator
from tests.support.authorizing import REDIRECT_URI
from tests.support.mailed_links import mails_of
from tests.support.world import Client, World
from token_service.sign_in.pages.cookies import DEVICE, SESSION

NEW_PASSWORD = "chosen through a mailed link"
VARYING = re.compile(r'(data-challenge|nonce|value)="[^"]*"')

Owner = tuple[FactorPerson, Authenticator]


@pytest.fixture(scope="module")
def owner(world: World, ours: Client) -> Owner:
    """A person with a passkey."""
    person = FactorPerson(world)
    return person, person.with_passkey(ours)[0]


def with_password(person: FactorPerson, client: Client) -> httpx.Response:
    """Return the page after a sign-in with the password alone, in a new browser."""
    person.leaves()
    page = person.arrive(client)
    assert heading(page) == CONFIRM
    return page


def has_code(answer: httpx.Response) -> bool:
    return "code" in callback(answer)


def test_every_refused_passkey_is_answered_alike(world: World, owner: Owner, ours: Client) -> None:
    """The answer does not tell whether there is such a passkey, whose it is, or what is wrong with the response."""
    person, device = owner
    suspended, stranger = FactorPerson(world), Authenticator(origin=world.stack.base_url)
    other, _ = suspended.with_passkey(ours)
    world.management.users.suspend(suspended.user_id)
    stranger.user_handle = b"x" * 32
    person.leaves()
    page = person.follow(person.authorize(ours))
    hostile: list[tuple[Authenticator, dict[str, Any]]] = [
        (other, {}),
        (stranger, {}),
        (device, {"origin": "https://evil.example.com"}),
        (device, {"origin": f"{world.stack.base_url}.evil.example.com"}),
        (device, {"rp_id": "evil.example.com"}),
        (device, {"flags": UP}),
        (device, {"type": "webauthn.create"}),
        (device, {"cross_origin": True}),
        (device, {"signature": b"\x00" * 70}),
        (device, {"user_handle": other.user_handle}),
        (device, {"credential_id": other.credential_id}),
    ]
    answers = set()
    for answering, changes in hostile:
        credential = answering.get(of_page(page, "challenge"), **changes)
        page = person.submit(page, "/sign-in/passkey", credential=credential)
        answers.add((page.status_code, VARYING.sub("", page.text)))
    ((status, text),) = answers
    assert (status, "The passkey was not accepted." in text) == (200, True)
    assert SESSION not in person.browser.cookies


def test_the_password_alone_skips_no_page(owner: Owner, ours: Client, partner: Client) -> None:
    person, _ = owner
    page = with_password(person, partner)
    values = {name: Form(page.text).values[name] for name in ("request", "csrf_token")}
    for path in ("/sign-in", "/consent", "/sign-in/set-up/passkey"):
        answer = person.browser.get(path, params={"request": values["request"]})
        assert heading(person.follow(answer)) == CONFIRM, path
    consent = person.browser.post("/consent", data={**values, "decision": "allow"})
    assert not consent.headers.get("Location", "").startswith(REDIRECT_URI)
    for client in (ours, partner):
        for acr in (None, "urn:service:acr:password"):
            assert not has_code(person.authorize(client, prompt="none", acr_values=acr))


def test_a_new_password_by_a_mailed_link_is_no_second_factor(world: World, ours: Client) -> None:
    person = FactorPerson(world)
    person.with_passkey(ours)
    person.leaves()
    address = world.management.users.get(person.user_id).primary_email
    person.browser.post("/sign-in/forgotten", data={"address": address})
    mails = asyncio.run(mails_of(world.stack._stack.management))
    link = [mail for mail in mails if mail.recipient == address][-1].values["link"]
    world.stack.recorder.keep(link.partition("?link=")[2], "mailed link")
    page = person.follow(person.browser.get(link))
    assert heading(person.send(page, password=NEW_PASSWORD, repeated=NEW_PASSWORD)) == "Your password is set"
    sign_in = person.follow(person.authorize(ours))
    assert heading(person.follow(person.sign_in(sign_in, password=NEW_PASSWORD))) == CONFIRM


def test_sessions_and_known_browsers_from_before_are_asked_for_the_factor(world: World, ours: Client) -> None:
    person = FactorPerson(world)
    assert has_code(person.sign_in(person.follow(person.authorize(ours))))
    before, person.browser = person.browser, person.new_browser()
    person.with_passkey(ours)
    world.caught_up()
    person.browser = before
    assert not has_code(person.authorize(ours, prompt="none"))
    assert heading(person.follow(person.authorize(ours))) == CONFIRM
    person.browser.cookies.delete(SESSION)
    assert DEVICE in person.browser.cookies
    assert heading(person.arrive(ours)) == CONFIRM


def test_a_session_that_was_stolen_before_the_factor_does_not_become_stronger(owner: Owner, ours: Client) -> None:
    person, device = owner
    page = with_password(person, ours)
    stolen = person.browser.cookies[SESSION]
    credential = device.get(of_page(page, "challenge"))
    assert has_code(person.submit(page, "/sign-in/factor/passkey", credential=credential))
    assert has_code(person.authorize(ours, prompt="none"))
    person.leaves()
    plant(person.browser, SESSION, stolen)
    assert not has_code(person.authorize(ours, prompt="none"))
