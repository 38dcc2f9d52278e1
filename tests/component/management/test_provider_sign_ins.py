"""People who sign in at the provider of a connector: who gets a user, who is told to link, and who is refused."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import jwt
import nats
import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from identity_common.outgoing import MAX_ANSWER_BYTES
from identity_common.wire.events import ConnectorState, ProviderGroupsState
from identity_common.wire.provider_sign_in import (
    AccountFound,
    EndedAtProvider,
    FinishAtProvider,
    LinkIdentity,
    NotAccepted,
    ProviderAnswer,
    ProviderPerson,
    ProviderUnavailable,
    ReadLogoutToken,
)
from tests.component.management.test_administrators import role_granting, scope_of
from tests.support.management_api import Management, unique
from tests.support.provider import CLIENT, KEYS, TOKEN, USERINFO, Provider, with_secret
from tests.support.provider_sign_ins import CALLBACK, ProviderPages


@pytest_asyncio.fixture
async def pages(management: Management) -> AsyncIterator[ProviderPages]:
    client = await nats.connect(management.addresses.token_nats_url, inbox_prefix="_INBOX_token")
    with Provider() as provider:
        pages = ProviderPages(management, client, provider)
        yield pages
        await pages.disconnect()
    await client.close()


@pytest.fixture
def name() -> str:
    """Of a person, different in every test."""
    return f"p{secrets.token_hex(5)}"


def known_as(subject: str, **claims: Any) -> dict[str, Any]:
    """Return the claims of a person whose address the provider has verified."""
    return {"sub": subject, "name": "Ada Archer", "email": f"{subject}@people.test", "email_verified": True, **claims}


async def test_a_browser_is_sent_with_what_the_sign_in_needs(pages: ProviderPages) -> None:
    factors = [
        {"claim": "acr", "value": "urn:two", "level": "mfa"},
        {"claim": "acr", "value": "urn:key", "level": "phr"},
        {"claim": "amr", "value": "hwk", "level": "phr"},
    ]
    await pages.connect(trusts={"factors": factors})
    plain = await pages.begin("a-verifier")
    of_request = {"state", "nonce", "code_challenge"}
    assert {name: value for name, value in plain.items() if name not in of_request} == {
        "response_type": "code",
        "client_id": CLIENT,
        "redirect_uri": CALLBACK,
        "scope": "openid profile email",
        "code_challenge_method": "S256",
    }
    pages.provider.announced["authorization_endpoint"] = f"{pages.provider.issuer}/authorize?tenant=7"
    await pages.reread()
    asked = await pages.begin(
        "a-verifier", login_hint="ada@people.test", must_sign_in=True, level="mfa", ui_locales="de en"
    )
    assert {name: asked[name] for name in asked.keys() - plain.keys()} == {
        "tenant": "7",
        "login_hint": "ada@people.test",
        "max_age": "0",
        "prompt": "login",
        "acr_values": "urn:two urn:key",
        "ui_locales": "de en",
    }
    assert (await pages.begin("a-verifier", max_age_s=300, level="phr"))["acr_values"] == "urn:key"


async def test_the_first_sign_in_makes_a_user_and_the_next_one_finds_it(pages: ProviderPages, name: str) -> None:
    connector = await pages.connect(
        domains=["People.Test"],
        groupsClaim="groups",
        trusts={"factors": [{"claim": "amr", "value": "mfa", "level": "mfa"}]},
    )
    assert connector["domains"] == ["people.test"]
    pages.provider.userinfo = {"sid": "not from here", "groups": ["staff", "admins", "staff", "", "x" * 256, 7]}
    now = int(time.time())
    first = await pages.signed_in(**known_as(name, sid="s-1", amr=["pwd", "mfa"], auth_time=now - 5))
    user = await pages.user(first.user_id)
    assert (user["name"], user["primaryEmail"], user["isEmailVerified"], user["hasPassword"]) == (
        "Ada Archer",
        f"{name}@people.test",
        True,
        False,
    )
    assert first == ProviderPerson(
        user_id=user["id"],
        revision=first.revision,
        tokens_valid_after=0,
        level="mfa",
        amr=("mfa", "pwd"),
        auth_time=now - 5,
        provider_session_id="s-1",
        subject=first.subject,
        is_new=True,
    )
    [identity] = (await pages.management.client.get(f"/api/users/{user['id']}/identities")).json()
    said = ProviderGroupsState(
        id=identity["id"],
        user_id=user["id"],
        connector_id=pages.connector,
        email_domain="people.test",
        groups=("admins", "staff"),
    )
    assert await pages.said(identity["id"]) == said
    pages.provider.userinfo = {"groups": "staff"}
    again = await pages.signed_in(**known_as(name, name="Ada Baker"))
    assert (again.user_id, again.is_new, again.provider_session_id) == (first.user_id, False, None)
    assert again.subject == first.subject
    assert again.revision > first.revision
    assert (await pages.user(first.user_id))["name"] == "Ada Archer", "the profile does not follow"
    assert (await pages.said(identity["id"])).groups == ("staff",)
    await pages.management.client.delete(f"/api/users/{user['id']}")
    assert (await pages.said(identity["id"])).deleted


async def test_tokens_that_are_not_genuine_or_not_for_this_sign_in_are_refused(pages: ProviderPages, name: str) -> None:
    await pages.connect()
    provider, now = pages.provider, int(time.time())
    provider.keys["rsa"] = rsa.generate_private_key(65537, 2048)
    stranger = ec.generate_private_key(ec.SECP256R1())
    public = provider.keys["rsa"].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def unsigned(**claims: Any) -> str:
        claims = {"iss": provider.issuer, "aud": CLIENT, "sub": name, "iat": now, "exp": now + 60, **claims}
        return jwt.encode(claims, None, algorithm="none")

    def tokens(nonce: str) -> dict[str, str]:
        def token(**changes: Any) -> str:
            return provider.id_token(name, **{"nonce": nonce, **changes})

        return {
            "unsigned": unsigned(nonce=nonce),
            "the public key as a secret": with_secret(token(key_id="rsa", algorithm="RS256"), public),
            "another key": token(key=stranger),
            "an unknown key": token(key=stranger, headers={"kid": "second"}),
            "another audience": token(aud="mail"),
            "one more audience": token(aud=[CLIENT, "mail"], azp=CLIENT),
            "another authorized party": token(azp="mail"),
            "another issuer": token(iss="https://accounts.example.com"),
            "an issuer with a slash": token(iss=f"{provider.issuer}/"),
            "no nonce": token(nonce=None),
            "another nonce": token(nonce="another"),
            "a nonce that is no text": token(nonce=[nonce]),
            "a clock ten minutes slow": token(iat=now - 600, exp=now + 300),
            "a clock ten minutes fast": token(iat=now + 600, exp=now + 900),
            "expired": token(iat=now - 200, exp=now - 100),
            "an access token": token(headers={"typ": "at+jwt"}),
            "a logout token": token(events={}),
            "nobody": token(sub=None),
            "a number": token(sub=7),
            "garbage": "a.b.c",
        }

    for refused in tokens(""):
        answer = await pages.sign_in(sub=name, token=lambda nonce, refused=refused: tokens(nonce)[refused])
        assert isinstance(answer, NotAccepted), refused
        assert answer.reason in {"token-not-acceptable", "no-identity"}, (refused, answer)
    for content in (b"[]", b"{}", b'{"id_token": 7}', b"[" * 100_000, b"<html>", b""):
        provider.answers[TOKEN] = content
        assert isinstance(await pages.sign_in(sub=name), NotAccepted), content[:10]


async def test_a_provider_that_does_not_answer_as_it_should_is_unavailable(pages: ProviderPages, name: str) -> None:
    await pages.connect()
    for answer in (b" " * (MAX_ANSWER_BYTES + 1), 302, 307, 500, 503, 429):
        pages.provider.answers[TOKEN] = answer
        assert await pages.sign_in(sub=name) == ProviderUnavailable(10), answer
    pages.provider.answers = {KEYS: 500}
    assert isinstance(await pages.sign_in(sub=name), ProviderPerson), "its keys are known"


async def test_a_sign_in_finds_a_key_that_is_newer_than_the_known_ones(pages: ProviderPages, name: str) -> None:
    """A provider that starts with another key: at once, and whether its tokens name the key or not."""
    await pages.connect()
    provider = pages.provider

    def signed(key_id: str | None) -> Callable[[str], str]:
        return lambda nonce: provider.id_token(
            name, key_id=next(iter(provider.keys)), nonce=nonce, headers={"kid": key_id}
        )

    for key_id in ("first", "second", "second", None):
        provider.keys = {key_id or "second": ec.generate_private_key(ec.SECP256R1())}
        assert isinstance(await pages.sign_in(sub=name, token=signed(key_id)), ProviderPerson), key_id
    asked = provider.requests.count(KEYS)
    assert isinstance(await pages.sign_in(sub=name, token=signed(None)), ProviderPerson)
    assert provider.requests.count(KEYS) == asked, "the key is known"
    provider.answers[KEYS] = 500
    assert await pages.sign_in(sub=name, token=signed("third")) == ProviderUnavailable(10)


async def test_a_code_counts_once_for_its_browser_and_the_answer_is_of_this_provider(
    pages: ProviderPages, name: str
) -> None:
    await pages.connect()
    refused = "provider-refused"
    verifier = secrets.token_urlsafe(32)
    asked = await pages.begin(verifier)
    question = FinishAtProvider(
        connector_id=pages.connector,
        redirect_uri=CALLBACK,
        code=pages.provider.code(asked),
        code_verifier=verifier,
        nonce=asked["nonce"],
        begun_at=int(time.time() * 1000),
    )
    pages.provider.person = {"sub": name}
    assert isinstance(await pages.ask(question), ProviderPerson)
    for changed in ({}, {"code_verifier": "another"}, {"issuer": "https://accounts.example.com"}):
        sent = len(pages.provider.forms)
        answer = await pages.ask(question) if not changed else await pages.sign_in(changed=changed)
        assert isinstance(answer, NotAccepted), changed
        assert answer.reason == refused, changed
        assert len(pages.provider.forms) == sent + ("issuer" not in changed), "a code of another provider stays here"
    assert isinstance(await pages.sign_in(changed={"issuer": pages.provider.issuer}), ProviderPerson)
    pages.provider.announced["authorization_response_iss_parameter_supported"] = True
    await pages.reread()
    answer = await pages.sign_in()
    assert isinstance(answer, NotAccepted), "its answers name it, so one that does not may be another's"
    assert answer.reason == refused


async def test_how_long_ago_a_person_has_signed_in_is_what_the_provider_says(pages: ProviderPages, name: str) -> None:
    await pages.connect()
    now, late = int(time.time()), "signed-in-too-long-ago"
    for auth_time, max_age_s, expected in (
        (now - 3600, None, None),
        (now - 200, 300, None),
        (now - 400, 300, late),
        (now - 200, 0, late),
        (None, 300, late),
        (str(now), 300, late),
        (True, 300, late),
    ):
        answer = await pages.sign_in(changed={"max_age_s": max_age_s}, sub=name, auth_time=auth_time)
        found = answer.reason if isinstance(answer, NotAccepted) else None
        assert found == expected, (auth_time, max_age_s, answer)


async def test_userinfo_adds_claims_of_the_same_person_alone(pages: ProviderPages, name: str) -> None:
    await pages.connect(domains=["people.test"])
    pages.provider.userinfo = {"name": "Ada", "email": f"{name}@people.test", "email_verified": True, "amr": ["mfa"]}
    person = await pages.signed_in(sub=name)
    assert (await pages.user(person.user_id))["primaryEmail"] == f"{name}@people.test"
    pages.provider.userinfo["sub"] = "another"
    answer = await pages.sign_in(sub=name)
    assert answer == NotAccepted("token-not-acceptable", "userinfo of another person")
    pages.provider.answers[USERINFO] = 500
    assert await pages.sign_in(sub=name) == ProviderUnavailable(10)


async def test_addresses_that_the_provider_does_not_speak_for_or_has_not_verified_are_not_taken(
    pages: ProviderPages, name: str
) -> None:
    await pages.connect(domains=["people.test"])
    for number, claims in enumerate(
        (
            {"email_verified": False},
            {"email_verified": None},
            {"email_verified": "true"},
            {"email": f"{name}@example.com"},
            {"email": f"{name}@mail.people.test"},
            {"email": f"{name}@people.test@example.com"},
            {"email": "people.test"},
            {"email": ["ada@people.test"]},
            {"email": f"{name}@people.te\u017ft"},
        )
    ):
        person = await pages.signed_in(**known_as(name) | {"sub": f"{name}-{number}"} | claims)
        user = await pages.user(person.user_id)
        expected = f"{name}@people.te\u017ft" if number == 8 else None
        assert user["primaryEmail"] == expected, claims


async def test_the_owner_of_an_account_with_the_address_links_it_once(pages: ProviderPages, name: str) -> None:
    await pages.connect(domains=["people.test"])
    address = f"{name}@people.test"
    owner = await pages.management.created("users", primaryEmail=address, isEmailVerified=True, username=name)
    other = await pages.management.created("users")
    found = await pages.sign_in(**known_as(name, email=address.upper()))
    assert isinstance(found, AccountFound)
    assert found.identifier == name
    assert (await pages.user(owner["id"]))["name"] is None
    refused = await pages.ask(LinkIdentity(link=found.link, user_id=other["id"]))
    assert (isinstance(refused, NotAccepted) and refused.reason) == "another-account"
    question = LinkIdentity(link=found.link, user_id=owner["id"])
    answers = await asyncio.gather(*(pages.ask(question) for _ in range(3)))
    [linked] = [each for each in answers if isinstance(each, ProviderPerson)]
    assert (linked.user_id, linked.is_new) == (owner["id"], True)
    assert {each.reason for each in answers if isinstance(each, NotAccepted)} == {"link-expired"}
    again = await pages.signed_in(**known_as(name))
    assert (again.user_id, again.is_new) == (owner["id"], False)
    [identity] = (await pages.management.client.get(f"/api/users/{owner['id']}/identities")).json()
    await pages.management.client.delete(f"/api/users/{owner['id']}/identities/{identity['id']}")
    assert (await pages.said(identity["id"])).deleted
    refused = await pages.ask(question)
    assert (isinstance(refused, NotAccepted) and refused.reason) == "link-expired", "it was used"


@pytest.mark.parametrize(
    "change",
    [
        ("PATCH", "password", {"password": "Countess-of-1815"}),
        ("PATCH", "is-suspended", {"isSuspended": True}),
        ("PATCH", "", {"primaryEmail": "other@people.test", "isEmailVerified": True}),
        ("PATCH", "", {"isEmailVerified": False}),
        ("DELETE", "", None),
    ],
)
async def test_a_link_ends_when_the_account_changes(
    pages: ProviderPages, name: str, change: tuple[str, str, dict[str, Any] | None]
) -> None:
    await pages.connect(domains=["people.test"])
    address = f"{name}@people.test"
    of_owner = {"primaryEmail": address, "isEmailVerified": True, "allowsPassword": True}
    owner = await pages.management.created("users", **of_owner)
    found = await pages.sign_in(**known_as(name))
    assert isinstance(found, AccountFound)
    method, path, body = change
    answer = await pages.management.client.request(method, f"/api/users/{owner['id']}/{path}".rstrip("/"), json=body)
    assert answer.is_success, answer.text
    refused = await pages.ask(LinkIdentity(link=found.link, user_id=owner["id"]))
    assert (isinstance(refused, NotAccepted) and refused.reason) == "link-expired"
    await pages.management.client.delete(f"/api/users/{owner['id']}")


async def test_a_link_ends_when_the_connector_leads_elsewhere(pages: ProviderPages, name: str) -> None:
    """Who may change connectors would otherwise become the owner at the next sign-in, at a provider of their own."""
    await pages.connect(domains=["people.test"])
    owner = await pages.management.created("users", primaryEmail=f"{name}@people.test", isEmailVerified=True)
    found = await pages.sign_in(**known_as(name))
    assert isinstance(found, AccountFound)
    with Provider() as other:
        await pages.change(config={"issuer": other.issuer, "clientSecret": "another"})
        refused = await pages.ask(LinkIdentity(link=found.link, user_id=owner["id"]))
    assert (isinstance(refused, NotAccepted) and refused.reason) == "link-expired"
    assert (await pages.management.client.get(f"/api/users/{owner['id']}/identities")).json() == []


async def test_a_link_ends_when_the_connector_requires_more(pages: ProviderPages, name: str) -> None:
    await pages.connect(domains=["people.test"])
    of_owner = {"primaryEmail": f"{name}@people.test", "isEmailVerified": True}
    owner = await pages.management.created("users", **of_owner)
    found = await pages.sign_in(**known_as(name))
    assert isinstance(found, AccountFound)
    await pages.change(requiredClaims=[{"claim": "groups", "value": "support"}])
    refused = await pages.ask(LinkIdentity(link=found.link, user_id=owner["id"]))
    assert (isinstance(refused, NotAccepted) and refused.reason) == "link-expired"


async def test_no_account_is_taken_over_by_its_address(pages: ProviderPages, name: str) -> None:
    """The victim's account at a hostile provider; an attacker who was here first; an address that looks alike."""
    address = f"{name}@victims.test"
    victim = await pages.management.created("users", primaryEmail=address, isEmailVerified=True)
    await pages.connect(domains=["people.test"])
    hostile = await pages.signed_in(**known_as(f"{name}-1", email=address))
    assert hostile.user_id != victim["id"], "the provider does not speak for the domain"
    first = await pages.management.created("users", primaryEmail=f"{name}@people.test", password="Countess-of-1815")
    arrived = await pages.signed_in(**known_as(name))
    assert arrived.user_id != first["id"], "its address was never verified"
    assert (await pages.user(arrived.user_id))["primaryEmail"] is None
    assert (await pages.user(first["id"]))["primaryEmail"] == f"{name}@people.test"
    await pages.change(domains=["people.test", "strasse.test", "stra\u00dfe.test"])
    alike = await pages.management.created("users", primaryEmail=f"{name}@strasse.test", isEmailVerified=True)
    other = await pages.signed_in(**known_as(f"{name}-2", email=f"{name}@stra\u00dfe.test"))
    assert other.user_id != alike["id"], "the addresses only compare equal"
    assert (await pages.user(other.user_id))["primaryEmail"] is None


async def test_a_subject_that_returns_after_its_user_was_deleted_gets_a_new_user(
    pages: ProviderPages, name: str
) -> None:
    await pages.connect(domains=["people.test"])
    first = await pages.signed_in(**known_as(name))
    assert (await pages.management.client.delete(f"/api/users/{first.user_id}")).status_code == 204
    second = await pages.signed_in(**known_as(name))
    assert second.is_new
    assert second.user_id != first.user_id


async def test_a_suspended_user_gets_no_second_one(pages: ProviderPages, name: str) -> None:
    await pages.connect(domains=["people.test"])
    person = await pages.signed_in(**known_as(name))
    suspended = {"isSuspended": True}
    await pages.management.client.patch(f"/api/users/{person.user_id}/is-suspended", json=suspended)
    for subject in (name, f"{name}-2"):  # as itself, and as a new person with the same address
        refused = await pages.sign_in(**known_as(name) | {"sub": subject})
        assert (isinstance(refused, NotAccepted) and refused.reason) == "not-allowed"


async def test_first_sign_ins_at_once_make_one_user(pages: ProviderPages, name: str) -> None:
    await pages.connect(domains=["people.test"])
    pages.provider.person = known_as(name)
    answers = await asyncio.gather(*(pages.sign_in() for _ in range(5)))
    people = [each for each in answers if isinstance(each, ProviderPerson)]
    assert len(people) == 5
    assert len({each.user_id for each in people}) == 1
    assert sum(each.is_new for each in people) == 1


async def test_who_gets_a_user_is_what_the_connector_says(pages: ProviderPages, name: str) -> None:
    required = [{"claim": "hd", "value": "people.test"}, {"claim": "acct", "value": "0"}]
    await pages.connect(allowedDomains=["People.test"], requiredClaims=required)
    right = {"hd": ["other.test", "people.test"], "acct": 0}
    for number, claims in enumerate(
        (
            {"hd": "people.test", "acct": 1},
            {"acct": 0},
            {"hd": "people.test", "acct": False},
            {**right, "email_verified": False},
            {**right, "email": f"{name}@example.com"},
        )
    ):
        refused = await pages.sign_in(**known_as(name) | {"sub": f"{name}-{number}"} | claims)
        assert (isinstance(refused, NotAccepted) and refused.reason) == "not-allowed", claims
    person = await pages.signed_in(**known_as(name, **right))
    assert person.is_new
    for address in ({"email_verified": False}, {"email": f"{name}@example.com"}):
        again = await pages.signed_in(**known_as(name, **right) | address)
        assert (again.user_id, again.is_new) == (person.user_id, False), "the address does not say who it is"


async def test_what_is_required_is_required_at_every_sign_in(pages: ProviderPages, name: str) -> None:
    await pages.connect(groupsClaim="groups")
    person = await pages.signed_in(**known_as(name, groups=["support"], department="sales"))
    await pages.change(requiredClaims=[{"claim": "groups", "value": "support"}])
    for claims in ({}, {"groups": ["sales"]}):
        refused = await pages.sign_in(**known_as(name, **claims))
        assert (isinstance(refused, NotAccepted) and refused.reason) == "not-allowed", claims
    [identity] = (await pages.management.client.get(f"/api/users/{person.user_id}/identities")).json()
    assert (await pages.said(identity["id"])).groups == ("support",), "a refused sign-in says nothing"
    assert (await pages.signed_in(**known_as(name, groups=["support"]))).user_id == person.user_id
    await pages.change(requiredClaims=[])
    assert (await pages.signed_in(**known_as(name))).user_id == person.user_id


async def test_the_profile_follows_the_provider_if_the_connector_says_so(pages: ProviderPages, name: str) -> None:
    await pages.connect(domains=["people.test"], syncProfile=True)
    person = await pages.signed_in(**known_as(name, picture="https://people.test/ada.png"))
    await pages.management.created("users", primaryEmail=f"{name}-3@people.test")
    for claims, expected in (
        ({"name": "Ada Baker", "email": f"{name}-2@people.test"}, ("Ada Baker", f"{name}-2@people.test", True)),
        ({"name": None, "email": None}, ("Ada Baker", f"{name}-2@people.test", True)),
        ({"email": f"{name}-3@people.test"}, ("Ada Archer", f"{name}-2@people.test", True)),
        ({"name": "\u202e", "picture": "javascript:alert()"}, ("Ada Archer", f"{name}@people.test", True)),
    ):
        assert (await pages.signed_in(**known_as(name) | claims)).user_id == person.user_id
        user = await pages.user(person.user_id)
        assert (user["name"], user["primaryEmail"], user["isEmailVerified"]) == expected, claims
        assert user["avatar"] == "https://people.test/ada.png"


async def test_a_closed_connector_signs_no_one_in_and_says_since_when(pages: ProviderPages, name: str) -> None:
    await pages.connect(sessionMaxAgeS=600, branding={"displayName": "People", "logoUri": "https://people.test/l.png"})
    await pages.signed_in(sub=name)
    opened = await pages.published()
    assert opened == ConnectorState(
        id=pages.connector,
        name="People",
        is_open=True,
        logo_uri="https://people.test/l.png",
        session_max_age_s=600,
        closed_at=opened.closed_at,
    )
    closed_at = opened.closed_at
    for closing, opening in (
        ({"isEnabled": False}, {"isEnabled": True}),
        ({"config": {"clientId": None}}, {"config": {"clientId": CLIENT, "clientSecret": pages.provider.secret}}),
    ):
        verifier = secrets.token_urlsafe(32)
        asked = await pages.begin(verifier)
        await pages.change(**closing)
        state = await pages.published()
        assert (state.is_open, state.closed_at > closed_at) == (False, True)
        finishing = FinishAtProvider(
            connector_id=pages.connector,
            redirect_uri=CALLBACK,
            code=pages.provider.code(asked),
            code_verifier=verifier,
            nonce=asked["nonce"],
            begun_at=0,
        )
        assert await pages.ask(finishing) == NotAccepted("connector-closed")
        await pages.change(**opening)
        state, before = await pages.published(), state
        assert (state.is_open, state.closed_at > before.closed_at) == (True, True)
        closed_at = state.closed_at
        assert isinstance(await pages.sign_in(sub=name), ProviderPerson)
    connector = pages.connector
    await pages.disconnect()
    assert await pages.published(connector) == ConnectorState(id=connector, deleted=True)


async def test_a_logout_token_ends_what_it_names(pages: ProviderPages, name: str) -> None:
    """OpenID Connect Back-Channel Logout 1.0 sections 2.4 and 2.6."""
    await pages.connect()
    person = await pages.signed_in(sub=name)
    provider, event = pages.provider, "http://schemas.openid.net/event/backchannel-logout"

    async def ended(**changes: Any) -> ProviderAnswer:
        claims = {"events": {event: {}}, "jti": secrets.token_hex(8), "headers": {"typ": "logout+jwt"}, **changes}
        token = provider.id_token(claims.pop("sub", name), **claims)
        return await pages.ask(ReadLogoutToken(connector_id=pages.connector, logout_token=token))

    known = {"user_id": person.user_id, "subject": person.subject}
    assert await ended(sid="s-1") == EndedAtProvider(**known, provider_session_id="s-1")
    assert await ended(headers={}, exp=None) == EndedAtProvider(**known)
    assert await ended(sub=None, sid="s-1") == EndedAtProvider(provider_session_id="s-1")
    unknown = await ended(sub=f"{name}-2")
    assert isinstance(unknown, EndedAtProvider)
    assert unknown == EndedAtProvider(subject=unknown.subject)
    assert unknown.subject not in {None, person.subject}
    now = int(time.time())
    for changes in (
        {"nonce": "n"},
        {"events": None},
        {"events": {}},
        {"events": {event: []}},
        {"events": [event]},
        {"jti": None},
        {"jti": "\0"},
        {"aud": "mail"},
        {"iss": "https://accounts.example.com"},
        {"iat": now - 600, "exp": now + 600},
        {"iat": now + 600, "exp": now + 900},
        {"exp": now - 100},
        {"headers": {"typ": "at+jwt"}},
        {"key": ec.generate_private_key(ec.SECP256R1())},
    ):
        refused = await ended(**changes)
        assert (isinstance(refused, NotAccepted) and refused.reason) == "token-not-acceptable", changes
    refused = await ended(sub=None)
    assert (isinstance(refused, NotAccepted) and refused.reason) == "no-identity"
    token = provider.id_token(name, events={event: {}}, jti=secrets.token_hex(8), iat=now)
    question = ReadLogoutToken(connector_id=pages.connector, logout_token=token)
    answers = await asyncio.gather(*(pages.ask(question) for _ in range(3)))
    first = EndedAtProvider(**known)
    repeated = EndedAtProvider(**known, before=now * 1000)  # may repeat what failed, but ends no new one
    assert sorted(answers, key=lambda each: each == first) == [repeated, repeated, first]


async def test_the_secret_is_not_shown_and_not_sent_to_another_provider(pages: ProviderPages) -> None:
    created = await pages.connect()
    path = f"/api/sso-connectors/{pages.connector}"
    client = pages.management.client
    shown = (await client.get(path)).json()
    issuer = pages.provider.issuer
    assert (
        created["config"]
        == shown["config"]
        == {
            "issuer": issuer,
            "clientId": CLIENT,
            "hasClientSecret": True,
            "scope": "openid profile email",
        }
    )
    stored = await pages.management.database.fetchval(
        "SELECT sealed_secret FROM connectors WHERE tenant_id = $1 AND id = $2", pages.management.tenant_id, shown["id"]
    )
    assert (pages.provider.secret or "").encode() not in stored
    with Provider() as other:
        answer = await client.patch(path, json={"config": {"issuer": other.issuer}})
        assert answer.status_code == 400
        assert "config.clientSecret" in answer.text
        config = {"issuer": other.issuer, "clientSecret": "another"}
        assert (await client.patch(path, json={"config": config})).status_code == 200
        assert other.forms == []
    for config in ({"clientSecret": "x", "clientId": None}, {"scope": "profile"}, {"scope": "openid  email"}):
        assert (await client.patch(path, json={"config": config})).status_code == 400, config


async def test_a_domain_has_one_connector_and_a_provider_must_be_able_to_sign_people_in(pages: ProviderPages) -> None:
    await pages.connect(domains=["people.test", "PEOPLE.test"])
    client = pages.management.client
    with Provider() as other:
        config = {"issuer": other.issuer, "clientId": CLIENT, "clientSecret": "x"}
        body = {"providerName": "OIDC", "connectorName": unique("Other"), "config": config}
        answer = await client.post("/api/sso-connectors", json=body | {"domains": ["People.Test"]})
        assert (answer.status_code, answer.json()["code"]) == (422, "connector.domain_in_use")
        for announced, problem in (
            ({"authorization_endpoint": None}, "no authorization_endpoint"),
            ({"token_endpoint": "https://u:p@example.com/"}, "unusable token_endpoint"),
            ({"token_endpoint": "http://10.0.0.1/token"}, "token_endpoint"),
            ({"token_endpoint_auth_methods_supported": ["private_key_jwt"]}, "takes no client secret"),
            ({"code_challenge_methods_supported": ["plain"]}, "PKCE"),
        ):
            other.announced = announced
            answer = await client.post("/api/sso-connectors", json=body)
            if announced != {"token_endpoint": "http://10.0.0.1/token"}:  # it is judged when it is called
                assert (answer.status_code, answer.json()["code"]) == (422, "connector.provider_unusable"), announced
                assert problem in answer.json()["message"]


@pytest.mark.parametrize("methods", [["client_secret_post"], ["none"]])
async def test_a_client_authenticates_as_its_provider_wants(
    pages: ProviderPages, name: str, methods: list[str]
) -> None:
    pages.provider.announced["token_endpoint_auth_methods_supported"] = methods
    pages.provider.secret = None
    secret = {"clientSecret": "s3cr3t"} if methods == ["client_secret_post"] else {}
    await pages.connect(config={"issuer": pages.provider.issuer, "clientId": CLIENT, **secret})
    await pages.signed_in(sub=name)
    form = pages.provider.forms[-1]
    assert (form["client_id"], form.get("client_secret")) == (CLIENT, secret.get("clientSecret"))


async def test_default_roles_give_no_one_the_management_api(management: Management, name: str) -> None:
    async with Management(management.addresses, management.issuer) as own:
        client = await nats.connect(own.addresses.token_nats_url, inbox_prefix="_INBOX_token")
        with Provider() as provider:
            pages = ProviderPages(own, client, provider)
            await pages.connect()
            scopes = (await own.client.get("/api/resources/management-api/scopes")).json()
            [reading] = [each["id"] for each in scopes if each["name"] == "users:read"]
            everyone = {"name": "Everyone", "description": "", "type": "User", "isDefault": True}
            await own.created("roles", **everyone, scopeIds=[reading])
            refused = await pages.sign_in(sub=name)
            assert (isinstance(refused, NotAccepted) and refused.reason) == "not-allowed"
        await client.close()


async def test_our_own_issuer_is_no_other_provider(pages: ProviderPages) -> None:
    await pages.connect()
    config = {"issuer": pages.management.settings.issuer, "clientSecret": None}
    answer = await pages.management.client.patch(f"/api/sso-connectors/{pages.connector}", json={"config": config})
    assert (answer.status_code, "another provider" in answer.text) == (400, True), answer.text


async def test_another_client_of_people_with_scopes_needs_these(pages: ProviderPages, name: str) -> None:
    await pages.connect()
    person, own = await pages.signed_in(**known_as(name)), pages.management
    role = await role_granting(own, await scope_of(own, "audit:export"))
    await own.client.post(f"/api/users/{person.user_id}/roles", json={"roleIds": [role]})
    path, body = f"/api/sso-connectors/{pages.connector}", {"config": {"clientId": "of the attacker"}}
    refused = await own.client_with(own.token(scope="connectors")).patch(path, json=body)
    assert (refused.status_code, refused.json()["data"]) == (403, {"missing": ["audit:export"]}), refused.text
    allowed = await own.client_with(own.token(scope="connectors audit:export")).patch(path, json=body)
    assert allowed.status_code == 200, allowed.text
