"""Factors of users: seen and removed by administrators and by the users themselves, over HTTP."""

from __future__ import annotations

import asyncio
import time
from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Final

import httpx2 as httpx
import nats
import pytest
import pytest_asyncio

from identity_common.serving import CommandError
from identity_common.wire.audit import AuditEntry
from identity_common.wire.factors import AddPasskey, Answer, BeginPasskey, FactorAdded, PasskeyBegun, Refused
from identity_common.wire.mail import Mail
from management_service.commands import reset_factors
from stead.verify.acr import acr_of
from tests.support.audit_entries import entries_on_the_bus
from tests.support.authenticator import Authenticator, new_challenge
from tests.support.connectors import stored_connector, stored_identity
from tests.support.factors import FactorPages, signed_in
from tests.support.mailed_links import mails_of
from tests.support.management_api import AUDIENCE, Management, issues, refusal, revision_of, unique
from tests.support.waiting import WAIT_S

OWN: Final = "/api/my-account/factors"
TOO_WEAK: Final = (401, "auth.insufficient_user_authentication")
UNKNOWN: Final = "m5vq8x2kd7w0z3n9r6t1y"


class Person:
    """A user with a verified address, and what it sets up on the pages."""

    def __init__(self, pages: FactorPages, user: dict[str, Any]) -> None:
        self.pages, self.management = pages, pages.management
        self.user = user
        self.id: str = user["id"]
        self.path = f"/api/users/{self.id}/factors"
        self.acr = acr_of("mfa", urn_namespace=self.management.settings.urn_namespace)

    async def enrolment_code(self) -> str:
        answer = await self.management.client.post(f"{self.path}/enrolment-code")
        assert answer.status_code == 200, answer.text
        return str(answer.json()["code"])

    async def adds_passkey(self, name: str, code: str = "") -> Answer:
        begun = await self.pages.ask(BeginPasskey(user_id=self.id))
        assert isinstance(begun, PasskeyBegun)
        challenge, browser = new_challenge(), Authenticator(origin=self.management.settings.base_url)
        handle = urlsafe_b64decode(begun.user_handle + "=")
        return await self.pages.ask(
            AddPasskey(
                user_id=self.id,
                challenge=challenge,
                credential=browser.create(challenge, user_handle=handle),
                name=name,
                signed_in=signed_in("password") if code else signed_in("password", "passkey"),
                code=code,
            )
        )

    async def request(self, method: str, path: str, body: Any = None, **changed: Any) -> httpx.Response:
        token = self.management.own_token(self.id, **{"acr": self.acr, **changed})
        async with self.management.client_with(token) as client:
            return await client.request(method, path, **({} if body is None else {"json": body}))

    async def told(self) -> list[Mail]:
        """Return the mails about removed factors."""
        mails = await mails_of(self.management.settings)
        return [each for each in mails if (each.recipient, each.kind) == (self.user["primaryEmail"], "factor-removed")]

    async def factors(self) -> dict[str, dict[str, Any]]:
        """Return the factors by name."""
        return {each["name"]: each for each in (await self.management.client.get(self.path)).json()["factors"]}


@pytest_asyncio.fixture
async def pages(own: Management) -> AsyncIterator[FactorPages]:
    """The pages of a tenant of this module, whose policy changes."""
    client = await nats.connect(own.addresses.token_nats_url, inbox_prefix="_INBOX_token")
    yield FactorPages(own, client)
    await client.close()


async def created(pages: FactorPages, **members: Any) -> Person:
    return Person(pages, await pages.user(**members))


@pytest_asyncio.fixture
async def person(pages: FactorPages) -> Person:
    """A user with an authenticator app and a passkey."""
    person = await created(pages, profile={"locale": "de"})
    await pages.authenticator(person.user)
    assert isinstance(await person.adds_passkey("Key"), FactorAdded)
    return person


@pytest_asyncio.fixture
async def required(own: Management) -> AsyncIterator[None]:
    """A tenant that requires second factors."""
    await own.client.patch("/api/configs/sign-in", json={"secondFactor": "required"})
    yield
    await own.client.patch("/api/configs/sign-in", json={"secondFactor": None})


async def test_what_is_set_up_is_shown_and_none_of_its_secrets(person: Person) -> None:
    shown = (await person.management.client.get(person.path)).json()
    app, key = shown["factors"]
    times = {"createdAt": app["createdAt"], "lastUsedAt": None}
    assert app == {"id": app["id"], "type": "authenticator", "name": "", **times, "isBackedUp": False}
    assert key == {
        "id": key["id"],
        "type": "passkey",
        "name": "Key",
        "createdAt": key["createdAt"],
        "lastUsedAt": None,
        "isBackedUp": True,
    }
    assert shown["recoveryCodes"] == 10
    own = (await person.request("GET", OWN, acr=None, auth_time=1)).json()
    assert own == {**shown, "canAdd": ["authenticator", "passkey"], "isRequired": False}
    other = await created(person.pages)
    assert (await other.management.client.get(other.path)).json() == {"factors": [], "recoveryCodes": 0}
    unknown = await person.management.client.get(f"/api/users/{UNKNOWN}/factors")
    assert refusal(unknown) == (404, "entity.not_exists_with_id")


async def test_what_can_be_added_follows_the_policy(person: Person) -> None:
    client = person.management.client
    for mode, can_add, is_required in (("off", [], False), ("required", ["authenticator", "passkey"], True)):
        assert (await client.patch("/api/configs/sign-in", json={"secondFactor": mode})).status_code == 200
        own = (await person.request("GET", OWN)).json()
        assert (own["canAdd"], own["isRequired"], len(own["factors"])) == (can_add, is_required, 2)
    await client.patch("/api/configs/sign-in", json={"secondFactor": None})


async def test_a_passkey_is_named_by_its_user(person: Person) -> None:
    factors = await person.factors()
    path = f"{OWN}/{factors['Key']['id']}"
    renamed = await person.request("PATCH", path, {"name": "  My   laptop "}, acr=None, auth_time=1)
    assert (renamed.status_code, renamed.json()) == (200, {**factors["Key"], "name": "My laptop"})
    assert "My laptop" in await person.factors()

    assert issues(await person.request("PATCH", path, {"name": ""})) == {"name"}
    assert issues(await person.request("PATCH", path, {"name": "x" * 257})) == {"name"}
    assert issues(await person.request("PATCH", path, {"name": None, "type": "passkey"})) == {"name", "type"}
    for name in ("  ", "a\u202eb", "a\u200b"):
        assert refusal(await person.request("PATCH", path, {"name": name})) == (422, "entity.invalid_name")
    gone = (404, "entity.not_exists")
    assert refusal(await person.request("PATCH", f"{OWN}/{factors['']['id']}", {"name": "App"})) == gone
    other = await created(person.pages)
    assert refusal(await other.request("PATCH", path, {"name": "Theirs"})) == gone
    assert "My laptop" in await person.factors()


@pytest.mark.parametrize("changed", [{"acr": "password"}, {"acr": None}, {"auth_time": 1}, {"auth_time": None}])
async def test_a_stolen_session_removes_no_factor(person: Person, changed: dict[str, Any]) -> None:
    """RFC 9470 section 3."""
    if changed.get("acr") == "password":
        changed = {"acr": acr_of("password", urn_namespace=person.management.settings.urn_namespace)}
    path = f"{OWN}/{(await person.factors())['Key']['id']}"
    answer = await person.request("DELETE", path, **changed)
    assert refusal(answer) == TOO_WEAK
    assert answer.headers["WWW-Authenticate"].endswith(f', acr_values="{person.acr}", max_age="600"')
    assert len(await person.factors()) == 2


async def test_a_user_removes_factors_and_is_told_by_mail(person: Person) -> None:
    factors = await person.factors()
    other = await created(person.pages)
    unknown = (404, "entity.not_found")
    assert refusal(await other.request("DELETE", f"{OWN}/{factors['Key']['id']}")) == unknown
    assert refusal(await person.request("DELETE", f"{OWN}/{UNKNOWN}")) == unknown
    assert issues(await person.request("DELETE", f"{OWN}/{factors['Key']['id']}?all=true")) == {"all"}

    answer = await person.request("DELETE", f"{OWN}/{factors['Key']['id']}")
    assert (answer.status_code, answer.content) == (204, b"")
    assert revision_of(answer) == await person.management.revision()
    assert (await person.factors()).keys() == {""}
    assert refusal(await person.request("DELETE", f"{OWN}/{factors['Key']['id']}")) == unknown
    assert (await person.request("DELETE", f"{OWN}/{factors['']['id']}")).status_code == 204
    shown = (await person.management.client.get(person.path)).json()
    assert shown == {"factors": [], "recoveryCodes": 0}
    assert [(each.language, each.values["factor"], each.values.get("by", "user")) for each in await person.told()] == [
        ("de", "passkey", "user"),
        ("de", "authenticator", "user"),
    ]


@pytest.mark.usefixtures("required")
async def test_where_it_is_required_the_last_factor_stays_even_in_a_race(person: Person) -> None:
    ids = [each["id"] for each in (await person.factors()).values()]
    answers = await asyncio.gather(*(person.request("DELETE", f"{OWN}/{each}") for each in ids))
    assert sorted(each.status_code for each in answers) == [204, 422]
    last = next(iter((await person.factors()).values()))["id"]
    for refused in (
        next(each for each in answers if each.status_code == 422),
        await person.request("DELETE", f"{OWN}/{last}"),
        await person.management.client.delete(f"{person.path}/{last}"),
    ):
        assert refusal(refused) == (422, "user.last_factor")
    assert (await person.management.client.get(person.path)).json()["recoveryCodes"] == 10
    reset = await person.management.client.post(f"{person.path}/reset", json={"reason": "A lost phone."})
    assert (reset.status_code, await person.factors()) == (204, {})


async def test_the_last_passkey_of_a_user_without_a_password_stays(pages: FactorPages) -> None:
    person = await created(pages, password=None)
    assert isinstance(await person.adds_passkey("Key", await person.enrolment_code()), FactorAdded)
    assert isinstance(await person.adds_passkey("Another"), FactorAdded)
    key, another = [each["id"] for each in (await person.factors()).values()]
    assert (await person.request("DELETE", f"{OWN}/{another}")).status_code == 204
    assert refusal(await person.request("DELETE", f"{OWN}/{key}")) == (422, "user.last_credential")
    assert (await person.factors()).keys() == {"Key"}


async def test_the_last_passkey_may_go_where_its_user_signs_in_at_a_provider(pages: FactorPages) -> None:
    person = await created(pages, password=None)
    assert isinstance(await person.adds_passkey("Key", await person.enrolment_code()), FactorAdded)
    [key] = [each["id"] for each in (await person.factors()).values()]
    database, tenant_id = person.management.database, person.management.tenant_id
    identity = await stored_identity(database, tenant_id, person.id, await stored_connector(database, tenant_id))
    await database.execute("UPDATE connectors SET client_id = 'stead' WHERE tenant_id = $1", tenant_id)
    assert refusal(await person.request("DELETE", f"{OWN}/{key}")) == (422, "user.last_credential"), "never there"
    await database.execute("UPDATE identities SET signed_in_at = 1 WHERE id = $1", identity)
    assert (await person.request("DELETE", f"{OWN}/{key}")).status_code == 204


async def test_a_reset_takes_everything_and_ends_the_sessions(person: Person) -> None:
    management, pending, signed_in_at = person.management, await created(person.pages), time.time()
    for reason, problem in ({}, "reason"), ({"reason": " "}, "reason"), ({"reason": "x" * 257}, "reason"):
        answer = await management.client.post(f"{person.path}/reset", json=reason)
        assert issues(answer) == {problem}
    before = await management.revision()
    answer = await management.client.post(f"{person.path}/reset", json={"reason": " A lost phone. "})
    assert (answer.status_code, answer.content) == (204, b"")
    assert revision_of(answer) == await management.revision() > before
    assert (await management.client.get(person.path)).json() == {"factors": [], "recoveryCodes": 0}
    assert refusal(await person.request("GET", OWN, issued_at=signed_in_at)) == (401, "auth.unauthorized")
    (told,) = await person.told()
    assert (told.values["factor"], told.values["by"]) == ("all", "administrator")
    entry = await _entry(management, "ResetUserFactors", person.id)
    assert (entry.context.reason if entry.context else None) == "A lost phone."

    # Leave to set up a first factor ends too: it may be why a reset was asked for.
    code = await pending.enrolment_code()
    await management.client.post(f"{pending.path}/reset", json={"reason": "A stolen letter."})
    assert await pending.adds_passkey("Key", code) == Refused(reason="wrong-enrolment-code")
    unknown = await management.client.post(f"/api/users/{UNKNOWN}/factors/reset", json={"reason": "x"})
    assert refusal(unknown) == (404, "entity.not_exists_with_id")


async def _entry(management: Management, operation: str, user_id: str) -> AuditEntry:
    """Return the entry of an operation on a user in the audit trail, once it is there."""
    subject = f"identity-audit.{management.tenant_id}.management"
    async with asyncio.timeout(WAIT_S):
        while True:
            for entry in await entries_on_the_bus(management._jetstream, subject):
                if (entry.operation, entry.ids) == (operation, {"user_id": user_id}):
                    return entry
            await asyncio.sleep(0.05)


async def test_an_enrolment_code_is_for_a_first_factor_and_replaces_the_earlier_one(pages: FactorPages) -> None:
    person, client = await created(pages), pages.management.client
    first, second = await person.enrolment_code(), await person.enrolment_code()
    assert await person.adds_passkey("Key", first) == Refused(reason="wrong-enrolment-code")
    assert isinstance(await person.adds_passkey("Key", second), FactorAdded)
    assert refusal(await client.post(f"{person.path}/enrolment-code")) == (422, "user.has_factor")
    other = await created(pages)
    await client.patch("/api/configs/sign-in", json={"secondFactor": "off"})
    assert refusal(await client.post(f"{other.path}/enrolment-code")) == (422, "factor.off")
    await client.patch("/api/configs/sign-in", json={"secondFactor": None})


async def test_factors_of_an_administrator_need_the_administrators_rights(person: Person) -> None:
    client = person.management.client
    resources = (await client.get("/api/resources")).json()
    of_api = next(each["id"] for each in resources if each["indicator"] == AUDIENCE)
    scopes = (await client.get(f"/api/resources/{of_api}/scopes")).json()
    every = next(each["id"] for each in scopes if each["name"] == "all")
    role = await person.management.created("roles", name=unique("r"), description="", type="User", scopeIds=[every])
    await client.post(f"/api/users/{person.id}/roles", json={"roleIds": [role["id"]]})
    key = (await person.factors())["Key"]["id"]
    missing = (403, "auth.scopes_missing")
    async with person.management.client_with(person.management.token(scope="factors users roles")) as lesser:
        assert refusal(await lesser.delete(f"{person.path}/{key}")) == missing
        assert refusal(await lesser.post(f"{person.path}/reset", json={"reason": "x"})) == missing
        assert refusal(await lesser.post(f"{person.path}/enrolment-code")) == missing
        assert (await lesser.get(person.path)).status_code == 200
    assert len(await person.factors()) == 2
    assert (await person.request("DELETE", f"{OWN}/{key}", issued_at=time.time() + 2)).status_code == 204


async def test_an_administrator_changes_own_factors_on_the_account_page_alone(person: Person) -> None:
    """A stolen session of an administrator would otherwise remove what protects the account."""
    key = (await person.factors())["Key"]["id"]
    own = (403, "user.own_factors")
    async with person.management.client_with(person.management.token(subject=person.id)) as administrator:
        assert refusal(await administrator.delete(f"{person.path}/{key}")) == own
        assert refusal(await administrator.post(f"{person.path}/reset", json={"reason": "x"})) == own
        assert refusal(await administrator.post(f"{person.path}/enrolment-code")) == own
    assert len(await person.factors()) == 2
    assert refusal(await person.request("DELETE", f"{OWN}/{key}", acr=None)) == TOO_WEAK


async def test_an_operator_lets_in_who_has_lost_every_factor(person: Person) -> None:
    management = person.management
    for user, reason in (("nobody", "A lost phone."), (person.id, " "), (person.id, "x" * 257)):
        with pytest.raises(CommandError):
            await asyncio.to_thread(reset_factors, management.settings, user=user, reason=reason)
    assert len(await person.factors()) == 2
    reset = partial(reset_factors, management.settings, user=person.user["primaryEmail"], reason=" A lost phone. ")
    code = await asyncio.to_thread(reset)
    assert await person.factors() == {}
    entry = await _entry(management, "ResetUserFactors", person.id)
    assert (entry.application_id, entry.user_id) == (None, None)
    assert (entry.context.reason if entry.context else None) == "A lost phone."
    assert isinstance(await person.adds_passkey("Key", code or ""), FactorAdded)
