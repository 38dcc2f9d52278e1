"""Passkeys, as token-service's pages create and verify them over the bus."""

from __future__ import annotations

import asyncio
import json
from base64 import urlsafe_b64decode
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec
import nats
import pytest
import pytest_asyncio

from identity_common.authentication import FactorMethod
from identity_common.relying_party import relying_party
from identity_common.wire.events import UserState
from identity_common.wire.factors import (
    AddPasskey,
    ArmedFactors,
    BeginPasskey,
    FactorAccepted,
    FactorAdded,
    PasskeyBegun,
    ReadFactors,
    Refused,
    VerifyPasskey,
)
from management_service.factors.rules import MAX_PASSKEYS
from tests.support.authenticator import BE, BS, SYNCED, VERIFIED, base64url, new_challenge
from tests.support.captured_logs import captured_logs
from tests.support.databases import until_waited_for
from tests.support.factors import FactorPages, signed_in
from tests.support.management_api import Management, unique

NOT_ACCEPTED: Final = Refused(reason="not-accepted")
_GOOGLE: Final = bytes.fromhex("ea9b8d664d011d213ce4b6b48cb575d4")


async def published(browser: FactorPages, user: dict[str, Any]) -> UserState:
    event = (await browser.management.last_events())[f"user.{user['id']}"]
    return msgspec.json.decode(event.data, type=UserState)


async def stored(browser: FactorPages, user: dict[str, Any]) -> list[dict[str, Any]]:
    rows = await browser.management.database.fetch(
        "SELECT * FROM passkeys WHERE tenant_id = $1 AND user_id = $2 ORDER BY created_at",
        *(browser.management.tenant_id, user["id"]),
    )
    return [dict(row) for row in rows]


@pytest_asyncio.fixture
async def browser(management: Management) -> AsyncIterator[FactorPages]:
    client = await nats.connect(management.addresses.token_nats_url, inbox_prefix="_INBOX_token")
    yield FactorPages(management, client)
    await client.close()


async def test_a_passkey_is_set_up_and_signs_in_by_itself(browser: FactorPages) -> None:
    user, authenticator = await browser.user(name="Ada"), browser.new_passkey(aaguid=_GOOGLE)
    armed = await browser.ask(ReadFactors(user_id=user["id"]))
    assert isinstance(armed, ArmedFactors)
    assert (armed.passkeys, armed.needs_code) == ((), True)
    added = await browser.add_passkey(user, authenticator, first=True)
    assert isinstance(added, FactorAdded)
    assert (added.method, len(set(added.recovery_codes))) == ("passkey", 10)
    state = await published(browser, user)
    assert state.second_factors == ("passkey",)
    assert added.revision == await browser.management.revision()

    accepted = FactorAccepted(
        user_id=user["id"], method="passkey", tokens_valid_after=state.tokens_valid_after, revision=added.revision
    )
    assert await browser.use_passkey(authenticator) == accepted
    assert await browser.use_passkey(authenticator, user_id=user["id"]) == accepted
    assert await browser.use_passkey(authenticator, user_id=user["id"], user_handle=None) == accepted
    (passkey,) = await stored(browser, user)
    assert (passkey["name"], passkey["sign_count"], passkey["is_backup_eligible"], passkey["is_backed_up"]) == (
        *("Google Password Manager", 0, True, True),
    )
    assert passkey["last_used_at"] >= passkey["created_at"]
    entry = await browser.links.entry("AddPasskey", user["id"])
    assert (entry.application_id, entry.ids) == (None, {"user_id": user["id"]})


async def test_a_handle_stays_and_does_not_tell_who_it_is(browser: FactorPages) -> None:
    user = await browser.user(name="Ada")
    begun = [await browser.ask(BeginPasskey(user_id=user["id"])) for _ in range(2)]
    assert isinstance(begun[0], PasskeyBegun)
    assert begun[0] == begun[1]
    assert (begun[0].name, begun[0].display_name, begun[0].existing) == (user["primaryEmail"], "Ada", ())
    handle = urlsafe_b64decode(begun[0].user_handle + "=")
    assert (len(handle), user["id"].encode() in handle) == (32, False)
    assert await browser.ask(BeginPasskey(user_id="unknown")) == NOT_ACCEPTED


async def test_further_passkeys_come_without_codes_and_are_told_to_browsers(browser: FactorPages) -> None:
    user, first = await browser.passkey_owner()
    second = browser.new_passkey()
    added = await browser.add_passkey(user, second, name="  Office   laptop ")
    assert isinstance(added, FactorAdded)
    assert added.recovery_codes == ()
    ids = tuple(base64url(each.credential_id) for each in (first, second))
    armed, begun = (
        await browser.ask(ReadFactors(user_id=user["id"])),
        await browser.ask(BeginPasskey(user_id=user["id"])),
    )
    assert isinstance(armed, ArmedFactors)
    assert isinstance(begun, PasskeyBegun)
    assert (armed.passkeys, begun.existing, armed.recovery_codes) == (ids, ids, 10)
    assert [each["name"] for each in await stored(browser, user)] == ["", "Office laptop"]


async def test_an_answer_that_does_not_tell_the_owner_is_not_accepted(browser: FactorPages) -> None:
    user, authenticator = await browser.passkey_owner()
    other, others = await browser.passkey_owner()
    assert await browser.use_passkey(authenticator, user_id=other["id"]) == NOT_ACCEPTED
    assert await browser.use_passkey(authenticator, user_handle=others.user_handle) == NOT_ACCEPTED
    assert await browser.use_passkey(authenticator, user_id=user["id"], user_handle=user["id"].encode()) == NOT_ACCEPTED
    assert await browser.use_passkey(authenticator, user_handle=None) == NOT_ACCEPTED
    assert await browser.use_passkey(authenticator, credential_id=others.credential_id) == NOT_ACCEPTED
    assert await browser.use_passkey(authenticator, credential_id=b"unknown") == NOT_ACCEPTED
    assert await browser.use_passkey(authenticator, flags=VERIFIED) == NOT_ACCEPTED  # it was eligible for backup
    unverified = authenticator.get(new_challenge(), flags=BE)
    assert await browser.ask(VerifyPasskey(challenge=new_challenge(), credential=unverified)) == NOT_ACCEPTED
    assert (await stored(browser, user))[0]["last_used_at"] is None
    await browser.management.client.patch(f"/api/users/{user['id']}/is-suspended", json={"isSuspended": True})
    assert await browser.use_passkey(authenticator, user_id=user["id"]) == NOT_ACCEPTED


async def test_a_page_of_another_relying_party_is_refused_and_the_setting_named(browser: FactorPages) -> None:
    user, authenticator = await browser.passkey_owner()
    challenge, own = new_challenge(), relying_party(browser.management.settings.base_url)
    assert own is not None
    off = Refused(reason="off")
    question = VerifyPasskey(challenge=challenge, credential=authenticator.get(challenge), rp_id="example.com")
    with captured_logs("management-service") as log:
        assert await browser.ask(question) == off
        assert await browser.ask(BeginPasskey(user_id=user["id"], rp_id="example.com")) == off
    told = f"WEBAUTHN_RP_ID differs: passkeys belong to {own.id} here, and to example.com in token-service"
    lines = map(json.loads, log.getvalue().splitlines())
    errors = [(each["event"], each["reason"]) for each in lines if each["level"] == "error"]
    assert errors == [("passkeys.rp-id-differs", told)] * 2
    assert isinstance(await browser.ask(msgspec.structs.replace(question, rp_id=own.id)), FactorAccepted)
    assert isinstance(await browser.ask(BeginPasskey(user_id=user["id"], rp_id=own.id)), PasskeyBegun)


async def test_a_counter_that_goes_back_is_refused_and_recorded(browser: FactorPages) -> None:
    user, authenticator = await browser.passkey_owner(counter=5, flags=VERIFIED)
    assert isinstance(await browser.use_passkey(authenticator, counter=9), FactorAccepted)
    for counter in (9, 8, 0):
        assert await browser.use_passkey(authenticator, counter=counter) == NOT_ACCEPTED
    assert isinstance(await browser.use_passkey(authenticator, counter=10), FactorAccepted)
    entry = await browser.links.entry("VerifyPasskey", user["id"])
    assert (entry.key, entry.ids) == ("management.passkey.refuse", {"user_id": user["id"]})
    assert [each["sign_count"] for each in await stored(browser, user)] == [10]


async def test_one_of_many_concurrent_answers_with_the_same_counter_is_accepted(browser: FactorPages) -> None:
    _, authenticator = await browser.passkey_owner(counter=0, flags=VERIFIED)
    challenge = new_challenge()
    question = VerifyPasskey(challenge=challenge, credential=authenticator.get(challenge, counter=7))
    answers = await asyncio.gather(*(browser.ask(question) for _ in range(20)))
    assert Counter(type(each) for each in answers) == {FactorAccepted: 1, Refused: 19}


async def test_a_passkey_that_is_removed_while_it_is_judged_is_not_accepted(browser: FactorPages) -> None:
    user, authenticator = await browser.passkey_owner()
    database = browser.management.database
    async with database.transaction():
        await database.execute(
            "DELETE FROM passkeys WHERE (tenant_id, user_id) = ($1, $2)", browser.management.tenant_id, user["id"]
        )
        using = asyncio.create_task(browser.use_passkey(authenticator))
        await until_waited_for(database)
    assert await using == NOT_ACCEPTED


async def test_whether_it_is_backed_up_may_change(browser: FactorPages) -> None:
    user, authenticator = await browser.passkey_owner(flags=VERIFIED | BE)
    for flags, backed_up in ((SYNCED, True), (VERIFIED | BE, False)):
        assert isinstance(await browser.use_passkey(authenticator, flags=flags), FactorAccepted)
        assert [each["is_backed_up"] for each in await stored(browser, user)] == [backed_up]
    assert await browser.use_passkey(authenticator, flags=VERIFIED | BS) == NOT_ACCEPTED


@pytest.mark.parametrize(
    ("methods", "ago_s"), [(("password",), 0), (("password", "authenticator"), 700), (("passkey",), 1_000_000)]
)
async def test_a_stolen_session_adds_no_passkey(
    browser: FactorPages, methods: tuple[FactorMethod, ...], ago_s: float
) -> None:
    user, _ = await browser.passkey_owner()
    sign_in = signed_in(*methods, ago_s=ago_s)
    assert await browser.add_passkey(user, browser.new_passkey(), sign_in=sign_in) == Refused(reason="sign-in-again")
    assert len(await stored(browser, user)) == 1


async def test_a_sign_in_that_was_judged_before_a_reset_adds_no_passkey(browser: FactorPages) -> None:
    """By a clock that is ahead, it is later than the reset."""
    user = await browser.user()
    await browser.open_enrolment(user)
    sign_in = msgspec.structs.replace(signed_in(ago_s=-60), judged_valid_after=0)
    password = await browser.management.client.patch(
        f"/api/users/{user['id']}/password", json={"password": "another long password"}
    )
    assert password.is_success, password.text
    assert await browser.add_passkey(user, browser.new_passkey(), sign_in=sign_in) == Refused(reason="sign-in-again")


async def test_the_first_passkey_needs_leave_and_one_of_many_gets_it(browser: FactorPages) -> None:
    user = await browser.user()
    answer = await browser.add_passkey(user, browser.new_passkey(), sign_in=signed_in())
    assert answer == Refused(reason="enrolment-code-needed")
    await browser.open_enrolment(user)
    answers = await asyncio.gather(
        *(browser.add_passkey(user, browser.new_passkey(), sign_in=signed_in()) for _ in range(8))
    )
    assert Counter(each if isinstance(each, Refused) else type(each) for each in answers) == {
        FactorAdded: 1,
        Refused(reason="sign-in-again"): 7,
    }
    assert len(await stored(browser, user)) == 1


async def test_a_known_passkey_a_hostile_one_and_one_too_many_are_not_stored(browser: FactorPages) -> None:
    user, authenticator = await browser.passkey_owner()
    other, others = await browser.passkey_owner()
    assert await browser.add_passkey(user, authenticator) == NOT_ACCEPTED
    assert await browser.add_passkey(other, authenticator) == NOT_ACCEPTED  # another user's
    for credential in ("", "null", "[]", '{"id": 1}', others.get(new_challenge()), "{" * 5000):
        question = AddPasskey(user_id=user["id"], challenge="", credential=credential, signed_in=signed_in("passkey"))
        assert await browser.ask(question) == NOT_ACCEPTED
    question = AddPasskey(
        user_id="unknown",
        challenge=(challenge := new_challenge()),
        credential=browser.new_passkey().create(challenge, user_handle=b"h"),
        signed_in=signed_in("passkey"),
    )
    assert await browser.ask(question) == NOT_ACCEPTED
    late = browser.new_passkey()
    challenge = new_challenge()
    question = AddPasskey(
        user_id=user["id"],
        challenge=challenge,
        credential=late.create(challenge, user_handle=authenticator.user_handle or b""),
        signed_in=signed_in("passkey"),
    )
    await browser.management.database.execute(
        """INSERT INTO passkeys SELECT tenant_id, id || number, user_id, credential_id || number::text::bytea,
            public_key, sign_count, aaguid, name, transports, is_backup_eligible, is_backed_up, created_at, NULL
        FROM passkeys, generate_series(1, $2) AS number WHERE user_id = $1""",
        *(user["id"], MAX_PASSKEYS - 1),
    )
    too_many = Refused(reason="too-many")
    assert await browser.ask(question) == await browser.ask(BeginPasskey(user_id=user["id"])) == too_many
    assert len(await stored(browser, user)) == MAX_PASSKEYS
    assert isinstance(await browser.use_passkey(authenticator, user_id=user["id"], user_handle=None), FactorAccepted)


async def test_second_factors_stay_with_the_user_and_go_with_it(browser: FactorPages) -> None:
    user, authenticator = await browser.passkey_owner()
    path = f"/api/users/{user['id']}"
    assert (await browser.management.client.patch(path, json={"name": unique("Ada")})).status_code == 200
    assert (await published(browser, user)).second_factors == ("passkey",)
    assert (await browser.management.client.delete(path)).status_code == 204
    assert await stored(browser, user) == []
    handles = await browser.management.database.fetchval(
        "SELECT count(*) FROM user_handles WHERE user_id = $1", user["id"]
    )
    assert handles == 0
    assert await browser.use_passkey(authenticator) == NOT_ACCEPTED
