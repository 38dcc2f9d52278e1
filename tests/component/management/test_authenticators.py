"""Authenticator apps, recovery codes and enrolment codes, as token-service asks about them over the bus."""

from __future__ import annotations

import asyncio
import base64
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any
from urllib.parse import quote

import nats
import pytest
import pytest_asyncio
import segno
from msgspec import structs

from identity_common.authentication import FactorMethod
from identity_common.clock import Clock, now_ms
from identity_common.failures import TemporarilyUnavailable
from identity_common.identifiers import new_id
from identity_common.sealing import SealingKeys
from identity_common.wire.account_links import ConfirmAddress, Done, Recover, Visitor
from identity_common.wire.factors import (
    AddAuthenticator,
    Answer,
    ArmedFactors,
    BeginAuthenticator,
    CodeSent,
    FactorAccepted,
    FactorAdded,
    NewRecoveryCodes,
    ReadFactors,
    RecoveryCodes,
    Refused,
    SendEnrolmentCode,
    VerifyCode,
)
from identity_common.wire.known_devices import KnownDevice
from management_service.app import VERSIONS
from management_service.factors.authenticators import STEP_S, Authenticators
from management_service.factors.enrolments import MAILED_CODE_ATTEMPTS
from management_service.factors.rules import FactorRefusedError
from management_service.links.rules import REQUESTED_MAILS
from management_service.parts.shared import Shared
from management_service.passwords.attempts import CODES_TOGETHER, SignInAttempts
from management_service.restoration import mend
from tests.support.captured_logs import captured_logs
from tests.support.factors import AuthenticatorApp, FactorPages, signed_in
from tests.support.lengths import length
from tests.support.mailed_links import CONTEXT, PASSWORD
from tests.support.management_api import Management

WRONG = Refused(reason="wrong-code")
NOT_ACCEPTED = Refused(reason="not-accepted")
AGAIN = Refused(reason="sign-in-again")
PER_ACCOUNT = 10
VISITOR = Visitor(address="192.0.2.1", user_agent="a browser")
TABLES = ("authenticators", "recovery_codes", "factor_enrolments")


@pytest_asyncio.fixture
async def factors(management: Management) -> AsyncIterator[FactorPages]:
    client = await nats.connect(management.addresses.token_nats_url, inbox_prefix="_INBOX_token")
    yield FactorPages(management, client)
    await client.close()


@pytest_asyncio.fixture
async def own_factors(own: Management) -> AsyncIterator[FactorPages]:
    client = await nats.connect(own.addresses.token_nats_url, inbox_prefix="_INBOX_token")
    yield FactorPages(own, client)
    await client.close()


@pytest_asyncio.fixture
async def shared(management: Management) -> AsyncIterator[Shared]:
    """The parts of the service, to call with another clock or other keys."""
    shared = Shared(management.settings, versions=VERSIONS)
    yield shared
    await shared.connections.stop()


def authenticators(
    shared: Shared,
    management: Management,
    *,
    keys: Sequence[str] | None = None,
    limit: int = PER_ACCOUNT,
    clock: Clock = now_ms,
) -> Authenticators:
    """Return the use cases with other keys, limits, or another clock."""
    commands, tenant_id = shared.connections.commands, management.tenant_id
    return Authenticators(
        shared.connections.reader,
        shared.changes,
        shared.factors.changes,
        shared.factors.enrolments,
        SealingKeys(keys or management.settings.audit_head_keys),
        SignInAttempts(commands, tenant_id=tenant_id, window_s=900, limit=limit),
        issuer="Stead",
        tenant_id=tenant_id,
        clock=clock,
    )


async def rows(factors: FactorPages, user: dict[str, Any]) -> list[Any]:
    """Return everything that the database has about a user's factors."""
    statements = [f"SELECT * FROM {table} WHERE tenant_id = $1 AND user_id = $2" for table in TABLES]
    values = (factors.management.tenant_id, user["id"])
    return [dict(row) for each in statements for row in await factors.management.database.fetch(each, *values)]


async def test_an_authenticator_app_is_set_up_with_a_mailed_code_and_verified(factors: FactorPages) -> None:
    user = await factors.user()
    assert await factors.read(user["id"]) == ArmedFactors(masked_email=f"{user['primaryEmail'][0]}…@i….test")
    sent = await factors.ask(
        SendEnrolmentCode(user_id=user["id"], language="de", application_id="app", visitor=VISITOR)
    )
    assert sent == CodeSent(minutes=15)
    (mail,) = await factors.links.sent(user["primaryEmail"])
    assert (mail.kind, mail.language, mail.application_id, mail.values["minutes"]) == (
        "enrolment-code",
        "de",
        "app",
        "15",
    )
    assert (await factors.links.entry("SendEnrolmentCode", user["id"])).key == "management.enrolment-code.create"
    assert mail.values["code"].replace("-", "") not in repr(await rows(factors, user))

    begun = await factors.begun(user)
    name = f"Stead:{quote(user['primaryEmail'], safe='')}"
    uri = f"otpauth://totp/{name}?secret={begun.secret}&issuer=Stead"
    assert begun.picture == segno.make(uri, micro=False).svg_inline(border=2, light="#fff", omitsize=True)
    app = AuthenticatorApp(begun.secret)
    adding = AddAuthenticator(
        user_id=user["id"],
        sealed=begun.sealed,
        current=app.wrong(),
        signed_in=signed_in(),
        code=mail.values["code"].lower().replace("-", " "),
        visitor=VISITOR,
    )
    assert await factors.ask(adding) == WRONG
    current = app.code()
    added = await factors.ask(structs.replace(adding, current=f" {current[:3]} {current[3:]}"))
    assert isinstance(added, FactorAdded)
    assert (added.method, len(set(added.recovery_codes))) == ("authenticator", 10)
    assert await factors.verify(user, current) == WRONG  # it counts as used
    await factors.forget_steps(user)
    accepted = await factors.verify(user, app.code())
    assert isinstance(accepted, FactorAccepted)
    assert (accepted.user_id, accepted.method, accepted.recovery_codes) == (user["id"], "authenticator", None)

    armed = await factors.read(user["id"])
    assert (armed.has_authenticator, armed.recovery_codes, armed.needs_code) == (True, 10, True)
    assert (await factors.management.event_data("user", user["id"]))["second_factors"] == ["authenticator"]
    (_, notice) = await factors.links.sent(user["primaryEmail"])
    assert (notice.kind, notice.values) == ("factor-added", {"factor": "authenticator", "link": "/account"})
    entry = await factors.links.entry("AddAuthenticator", user["id"])
    assert (entry.key, entry.address, entry.user_agent) == ("management.user.update", *structs.astuple(VISITOR))
    stored = repr(await rows(factors, user))
    assert begun.secret not in stored
    assert not any(code in stored or code.replace("-", "") in stored for code in added.recovery_codes)


@pytest.mark.heavy
@pytest.mark.servers
async def test_a_code_is_accepted_once_however_many_send_it(factors: FactorPages, shared: Shared) -> None:
    user, many = await factors.user(), length(short=250, long=1000)
    app, _ = await factors.authenticator(user)
    question, at_once = VerifyCode(user_id=user["id"], code=app.code()), asyncio.Semaphore(16)
    verifying = authenticators(shared, factors.management, limit=many)

    async def accepts() -> bool:
        async with at_once:
            try:
                await verifying.verify(question)
            except FactorRefusedError as refused:
                assert refused.reason == "wrong-code"
                return False
        return True

    assert (await asyncio.gather(*(accepts() for _ in range(many)))).count(True) == 1


async def test_codes_of_one_step_before_and_after_are_accepted_and_none_after_a_later_one(
    factors: FactorPages, shared: Shared
) -> None:
    user = await factors.user()
    app, _ = await factors.authenticator(user)
    now = 60_000_000
    verifying = authenticators(shared, factors.management, clock=lambda: now * STEP_S * 1000 + STEP_S * 999)

    async def accepts(step: int) -> bool:
        try:
            await verifying.verify(VerifyCode(user_id=user["id"], code=app.of_step(now + step)))
        except FactorRefusedError as refused:
            assert refused.reason == "wrong-code"
            return False
        return True

    steps = (-2, 2, -1, -1, 0, -1, 1, 0, 1)
    assert [await accepts(step) for step in steps] == [False, False, True, False, True, False, True, False, False]


async def test_wrong_codes_lock_out_no_one_elsewhere(factors: FactorPages) -> None:
    user = await factors.user()
    app, added = await factors.authenticator(user)
    known = (KnownDevice("known", user["id"], 0),)
    for number in range(PER_ACCOUNT):
        visitor = Visitor(address=f"192.0.2.{number}")
        other = (KnownDevice("other", "another-user", 0), KnownDevice("outdated", user["id"], 1))
        assert await factors.verify(user, app.wrong(), visitor=visitor, devices=other) == WRONG
    throttled = await factors.verify(user, app.code(), visitor=Visitor(address="198.51.100.1"))
    assert isinstance(throttled, Refused)
    assert (throttled.reason, 0 < throttled.retry_after_s <= 6 * 60 * 60) == ("throttled", True)
    assert isinstance(await factors.verify(user, app.code(), devices=known), FactorAccepted)
    assert isinstance(await factors.verify(user, added.recovery_codes[0]), FactorAccepted)
    assert await factors.links.signs_in(user, PASSWORD)

    await factors.forget_steps(user)
    await factors.management.client.post(f"/api/users/{user['id']}/sign-in-attempts/clear")
    assert isinstance(await factors.verify(user, app.code()), FactorAccepted)


async def test_a_thief_of_the_password_cannot_have_collected_browsers_beforehand(factors: FactorPages) -> None:
    user = await factors.user()
    app, added = await factors.authenticator(user)

    async def verify(code: str, browser: int) -> Answer:
        return await factors.verify(user, code, devices=(KnownDevice(f"d{browser}", user["id"], 0),))

    for browser in range(CODES_TOGETHER * PER_ACCOUNT - 1):
        assert await verify(app.wrong(), browser) == WRONG
    assert isinstance(await verify(app.code(), 0), FactorAccepted)  # takes back what counted for this browser
    answers = [await verify(app.wrong(), browser) for browser in range(100, 103)]
    assert [answer.reason for answer in answers if isinstance(answer, Refused)] == ["wrong-code"] * 2 + ["throttled"]
    assert isinstance(await verify(added.recovery_codes[0], 200), FactorAccepted)


async def test_new_passwords_give_who_reads_the_mail_no_new_attempts_at_codes(factors: FactorPages) -> None:
    user = await factors.user()
    app, added = await factors.authenticator(user)
    client = factors.management.client
    answers: list[Answer] = []
    for number in range(CODES_TOGETHER + 1):  # as by a link for a forgotten password
        await client.patch(f"/api/users/{user['id']}/password", json={"password": f"chosen by a link {number}"})
        answers += [await factors.verify(user, app.wrong()) for _ in range(PER_ACCOUNT)]
    assert answers[: CODES_TOGETHER * PER_ACCOUNT] == [WRONG] * CODES_TOGETHER * PER_ACCOUNT
    assert {answer.reason for answer in answers[-PER_ACCOUNT:] if isinstance(answer, Refused)} == {"throttled"}
    assert isinstance(await factors.verify(user, added.recovery_codes[0]), FactorAccepted)


@pytest.mark.parametrize(
    "code",
    [
        "",
        " ",
        "12345",
        "1234567",
        "abcdef",
        "\uff10\uff11\uff12\uff13\uff14x",
        "1" * 100_000,
        "\0" * 6,
        "-" * 16,
        "🔑" * 16,
        "%27 OR 1=1",
    ],
)
async def test_what_is_not_a_code_is_refused_and_not_counted(factors: FactorPages, code: str) -> None:
    user = await factors.user()
    app, _ = await factors.authenticator(user)
    for _ in range(PER_ACCOUNT + 1):
        assert await factors.verify(user, code) == WRONG
    assert isinstance(await factors.verify(user, app.code()), FactorAccepted)


async def test_a_recovery_code_is_spent_once_and_its_user_is_told(factors: FactorPages) -> None:
    user, other = await factors.user(), await factors.user()
    _, added = await factors.authenticator(user)
    await factors.authenticator(other)
    first, second, *_ = added.recovery_codes
    assert await factors.verify(other, first) == WRONG
    answers = await asyncio.gather(*(factors.verify(user, first) for _ in range(16)))
    assert Counter(type(answer) for answer in answers) == {FactorAccepted: 1, Refused: 15}
    (accepted,) = (answer for answer in answers if isinstance(answer, FactorAccepted))
    assert (accepted.method, accepted.recovery_codes) == ("recovery-code", 9)
    sloppy = second.lower().replace("-", "  ").replace("0", "o").replace("1", "l")
    spent = await factors.verify(user, sloppy, language="de", visitor=VISITOR)
    assert isinstance(spent, FactorAccepted)
    assert spent.recovery_codes == 8
    notices = [mail for mail in await factors.links.sent(user["primaryEmail"]) if mail.kind == "recovery-code-used"]
    assert [(mail.values["left"], mail.language) for mail in notices] == [("9", None), ("8", "de")]
    entry = await factors.links.entry("UseRecoveryCode", user["id"])
    assert entry.key == "management.recovery-codes.use"


async def test_new_recovery_codes_replace_the_earlier_ones_and_need_the_second_factor(factors: FactorPages) -> None:
    user = await factors.user()
    asked = NewRecoveryCodes(user_id=user["id"], signed_in=signed_in("password", "authenticator"))
    assert await factors.ask(asked) == NOT_ACCEPTED  # there is nothing yet that they could stand in for
    _, added = await factors.authenticator(user)
    assert await factors.ask(structs.replace(asked, signed_in=signed_in())) == AGAIN
    assert (await factors.read(user["id"])).recovery_codes == 10
    renewed = await factors.ask(asked)
    assert isinstance(renewed, RecoveryCodes)
    assert len({*renewed.codes, *added.recovery_codes}) == 20
    assert await factors.verify(user, added.recovery_codes[0]) == WRONG
    assert isinstance(await factors.verify(user, renewed.codes[0]), FactorAccepted)


SIGN_INS: dict[str, tuple[tuple[FactorMethod, ...], int, bool, bool]] = {
    "a password just now": (("password",), 0, True, False),
    "a password long ago": (("password",), 660, False, False),
    "a second factor just now": (("password", "authenticator"), 0, True, True),
    "a recovery code just now": (("password", "recovery-code"), 0, True, True),
    "a passkey just now": (("passkey",), 0, True, True),
    "a second factor long ago": (("password", "authenticator"), 660, False, False),
}


@pytest.mark.parametrize(("methods", "ago_s", "may_begin", "may_change"), SIGN_INS.values(), ids=SIGN_INS)
async def test_a_sign_in_changes_factors_only_if_it_is_recent_and_has_used_one(
    factors: FactorPages, methods: tuple[FactorMethod, ...], ago_s: int, may_begin: bool, may_change: bool
) -> None:
    sign_in = signed_in(*methods, ago_s=ago_s)
    user = await factors.user()
    await factors.open_enrolment(user)
    first = await factors.add(user, sign_in)
    assert isinstance(first, FactorAdded) if may_begin else first == AGAIN
    if not may_begin:
        await factors.add(user)
    second = await factors.add(user, sign_in)
    if may_change:
        assert second == structs.replace(second, method="authenticator", recovery_codes=())
        await factors.links.entry("AddAuthenticator", user["id"])
    else:
        assert second == AGAIN


async def test_a_sign_in_that_has_ended_changes_no_factors(factors: FactorPages) -> None:
    user, before = await factors.user(), signed_in()
    await factors.open_enrolment(user)
    await factors.management.client.patch(f"/api/users/{user['id']}/password", json={"password": "set by another"})
    assert await factors.add(user, before) == AGAIN


@pytest.mark.parametrize("language", ["de"])
async def test_whoever_has_the_password_alone_sets_up_no_first_factor(factors: FactorPages, language: str) -> None:
    user, other = await factors.user(), await factors.user()
    needed, wrong = Refused(reason="enrolment-code-needed"), Refused(reason="wrong-enrolment-code")
    assert await factors.add(user) == needed
    for each in (user, other):
        assert await factors.ask(SendEnrolmentCode(user_id=each["id"], language=language)) == CodeSent(minutes=15)
    code, others = await factors.mailed_code(user), await factors.mailed_code(other)
    for guess in [others, "0" * 8, "x", "0" * 100_000, code[:-1], *[others] * MAILED_CODE_ATTEMPTS]:
        assert (await factors.add(user, code=guess)) in {wrong, needed}
    assert await factors.add(user, code=code) == wrong  # after too many attempts
    assert (await rows(factors, user))[0]["attempts"] >= MAILED_CODE_ATTEMPTS
    assert isinstance(await factors.add(other, code=others), FactorAdded)
    assert [row for row in await rows(factors, other) if "origin" in row] == []


async def test_a_code_that_is_handed_out_works_after_any_number_of_wrong_ones(
    factors: FactorPages, shared: Shared
) -> None:
    user = await factors.user(isEmailVerified=False)
    assert await factors.ask(SendEnrolmentCode(user_id=user["id"])) == Refused(reason="no-address")
    async with shared.changes.unpublished() as connection:
        code, expires_at = await shared.factors.enrolments.create_code(connection, user["id"])
    assert abs(expires_at - (time.time() + 24 * 60 * 60) * 1000) < 60_000
    assert len(code.replace("-", "")) == 20
    for _ in range(MAILED_CODE_ATTEMPTS + 1):
        assert await factors.add(user, code="0" * 20) == Refused(reason="wrong-enrolment-code")
    added = await factors.add(user, code=code)
    assert isinstance(added, FactorAdded)
    assert not await factors.links.sent(user["primaryEmail"])  # which may be another person's


async def test_a_link_that_has_set_the_password_stands_in_for_the_code(factors: FactorPages) -> None:
    client = factors.management.client
    recovered, invited, given = await factors.user(), await factors.user(password=None), await factors.user()
    link = await factors.links.recovery(recovered)
    await factors.links.ask(Recover(link=link, password="chosen by a link"))
    invitation = (await client.post(f"/api/users/{invited['id']}/invitation", json={"minutes": 5})).json()["invitation"]
    accepted = await client.post("/api/invitations/accept", json={"invitation": invitation, "password": PASSWORD})
    assert accepted.status_code == 204, accepted.text
    await client.patch(f"/api/users/{given['id']}/password", json={"password": "given by an administrator"})
    users = (recovered, invited, given)
    assert [(await factors.read(user["id"])).needs_code for user in users] == [False, False, True]
    assert isinstance(await factors.add(invited), FactorAdded)
    await factors.management.database.execute(
        "UPDATE factor_enrolments SET expires_at = 1 WHERE user_id = $1", recovered["id"]
    )
    assert await factors.add(recovered) == Refused(reason="enrolment-code-needed")


async def test_an_address_of_a_thief_of_the_password_gives_no_leave(factors: FactorPages, shared: Shared) -> None:
    """The password alone changes the address; its thief gets neither a code nor a link's leave there."""
    user, of_thief = await factors.user(), f"{new_id()}@thief.test"
    await factors.ask(SendEnrolmentCode(user_id=user["id"]))
    earlier = await factors.mailed_code(user)
    await shared.links.verifications.request(user["id"], of_thief, CONTEXT)
    assert isinstance(await factors.links.ask(ConfirmAddress(link=await factors.links.link(of_thief))), Done)

    assert await factors.ask(SendEnrolmentCode(user_id=user["id"])) == Refused(reason="no-address")
    assert await factors.read(user["id"]) == ArmedFactors()
    assert await factors.add(user, code=earlier) == Refused(reason="wrong-enrolment-code")
    link = await factors.links.recovery({**user, "primaryEmail": of_thief})
    await factors.links.ask(Recover(link=link, password="chosen by the thief"))
    assert await factors.add(user, signed_in(ago_s=-1)) == Refused(reason="enrolment-code-needed")
    async with shared.changes.unpublished() as connection:
        code, _ = await shared.factors.enrolments.create_code(connection, user["id"])
    assert isinstance(await factors.add(user, signed_in(ago_s=-1), code=code), FactorAdded)


async def test_without_redis_no_code_is_judged_or_used(factors: FactorPages) -> None:
    user = await factors.user()
    app, _ = await factors.authenticator(user)
    unreachable = Shared(
        structs.replace(factors.management.settings, redis_url="redis://127.0.0.1:1/0"), versions=VERSIONS
    )
    question = VerifyCode(user_id=user["id"], code=app.code())
    with pytest.raises(TemporarilyUnavailable):
        await unreachable.factors.authenticators.verify(question)
    await unreachable.connections.stop()
    assert isinstance(await factors.ask(question), FactorAccepted)


@pytest.mark.heavy
async def test_of_many_who_set_up_a_first_factor_one_does(factors: FactorPages) -> None:
    user = await factors.user()
    await factors.ask(SendEnrolmentCode(user_id=user["id"]))
    code = await factors.mailed_code(user)
    answers = await asyncio.gather(*(factors.add(user, code=code) for _ in range(16)))
    assert Counter(type(answer) for answer in answers) == {FactorAdded: 1, Refused: 15}
    assert (await factors.read(user["id"])).recovery_codes == 10


async def test_enrolment_codes_expire_are_replaced_and_limited(factors: FactorPages) -> None:
    user = await factors.user()
    question = SendEnrolmentCode(user_id=user["id"])
    await factors.ask(question)
    earlier = await factors.mailed_code(user)
    for _ in range(REQUESTED_MAILS - 1):
        assert await factors.ask(question) == CodeSent(minutes=15)
    throttled = await factors.ask(question)
    assert isinstance(throttled, Refused)
    assert (throttled.reason, throttled.retry_after_s > 0) == ("throttled", True)
    assert len(await factors.links.sent(user["primaryEmail"])) == REQUESTED_MAILS
    assert await factors.add(user, code=earlier) == Refused(reason="wrong-enrolment-code")
    latest = await factors.mailed_code(user)
    await factors.management.database.execute(
        "UPDATE factor_enrolments SET expires_at = 1 WHERE user_id = $1", user["id"]
    )
    assert await factors.add(user, code=latest) == Refused(reason="wrong-enrolment-code")
    assert await factors.add(user) == Refused(reason="enrolment-code-needed")
    await factors.ask(SendEnrolmentCode(user_id=(await factors.user())["id"]))
    assert await rows(factors, user) == []  # forgotten with the next one


async def test_a_secret_is_stored_once_and_only_for_the_user_that_it_was_made_for(
    factors: FactorPages, shared: Shared
) -> None:
    user, other = await factors.user(), await factors.user()
    for each in (user, other):
        await factors.open_enrolment(each)
    begun = await factors.begun(user)
    app = AuthenticatorApp(begun.secret)
    for sealed in ("", "x", "00", begun.sealed[:-2], "0" * 100_000, (await factors.begun(other)).sealed):
        assert await factors.add(user, sealed=sealed, current=app.code()) == NOT_ACCEPTED
    outdated = authenticators(shared, factors.management, clock=lambda: int(time.time() * 1000) - 16 * 60 * 1000)
    old = await outdated.begin(BeginAuthenticator(user_id=user["id"]))
    assert await factors.add(user, sealed=old.sealed, current=AuthenticatorApp(old.secret).code()) == NOT_ACCEPTED
    current = app.code()
    assert isinstance(await factors.add(user, sealed=begun.sealed, current=current), FactorAdded)
    strong = signed_in("password", "authenticator")
    assert await factors.add(user, strong, sealed=begun.sealed, current=current) == NOT_ACCEPTED
    assert await factors.verify(user, current) == WRONG  # its step stays used


async def test_suspended_unknown_and_deleted_users_have_no_factors(factors: FactorPages) -> None:
    user, unknown = await factors.user(), {"id": new_id()}
    app, added = await factors.authenticator(user)
    path = f"/api/users/{user['id']}"
    strong = signed_in("password", "authenticator")
    await factors.management.client.patch(f"{path}/is-suspended", json={"isSuspended": True})

    async def answers(of: dict[str, Any]) -> set[Answer]:
        return {
            await factors.verify(of, app.code()),
            await factors.ask(NewRecoveryCodes(user_id=of["id"], signed_in=strong)),
            await factors.ask(SendEnrolmentCode(user_id=of["id"])),
        }

    assert await answers(user) == {NOT_ACCEPTED}
    assert await factors.verify(user, added.recovery_codes[0]) == NOT_ACCEPTED
    assert await factors.add(user, strong) == NOT_ACCEPTED
    assert await answers(unknown) == {NOT_ACCEPTED}
    assert await factors.ask(ReadFactors(user_id=unknown["id"])) == NOT_ACCEPTED
    assert await factors.ask(BeginAuthenticator(user_id=unknown["id"])) == NOT_ACCEPTED
    assert len(await rows(factors, user)) == 11
    await factors.management.client.delete(path)
    assert await rows(factors, user) == []


async def test_removed_factors_take_recovery_codes_with_them(factors: FactorPages, shared: Shared) -> None:
    user = await factors.user()
    _, added = await factors.authenticator(user)
    async with shared.changes.transaction(await_publication=False) as transaction:
        locked = await shared.users.get(user["id"])
        changed = await shared.factors.changes.remove_all(transaction, locked, CONTEXT)
    assert list(changed.second_factors) == []
    assert await rows(factors, user) == []
    assert await factors.verify(user, added.recovery_codes[0]) == WRONG
    notice = (await factors.links.sent(user["primaryEmail"]))[-1]
    assert (notice.kind, notice.values) == (
        *("factor-removed", {"factor": "all", "by": "administrator", "link": "/account"}),
    )
    assert await factors.add(user) == Refused(reason="enrolment-code-needed")


async def test_the_policy_off_sets_up_nothing_and_verifies_what_is_there(own_factors: FactorPages) -> None:
    factors, own = own_factors, own_factors.management
    user, other = await factors.user(), await factors.user()
    app, _ = await factors.authenticator(user)
    await factors.open_enrolment(other)
    answer = await own.client.patch("/api/configs/sign-in", json={"secondFactor": "off"})
    assert answer.status_code == 200, answer.text
    off, strong = Refused(reason="off"), signed_in("password", "authenticator")
    assert await factors.add(other) == off
    assert await factors.add(user, strong) == off
    assert await factors.ask(SendEnrolmentCode(user_id=other["id"])) == off
    assert isinstance(await factors.verify(user, app.code()), FactorAccepted)
    await own.client.patch("/api/configs/sign-in", json={"secondFactor": None})


async def test_what_was_restored_accepts_no_code_that_may_have_been_used(own_factors: FactorPages) -> None:
    factors, own = own_factors, own_factors.management
    user, other = await factors.user(), await factors.user()
    app, added = await factors.authenticator(user)
    await factors.open_enrolment(other)
    code = app.code()
    shared = Shared(own.settings, versions=VERSIONS)
    async with shared.changes.transaction(await_publication=False) as transaction:
        await mend(transaction, [], revision=0, tenant_id=own.tenant_id)
    await shared.connections.stop()
    assert await factors.verify(user, added.recovery_codes[0]) == WRONG
    assert await factors.verify(user, code) == WRONG
    assert await factors.add(other, signed_in(ago_s=-1)) == Refused(reason="enrolment-code-needed")
    await factors.forget_steps(user)  # as time does
    assert isinstance(await factors.verify(user, app.code()), FactorAccepted)


async def test_secrets_are_resealed_with_the_newest_key(factors: FactorPages, shared: Shared) -> None:
    user = await factors.user()
    app, _ = await factors.authenticator(user)
    (old,), new = factors.management.settings.audit_head_keys, base64.b64encode(os.urandom(32)).decode()
    question = VerifyCode(user_id=user["id"], code=app.code())
    with captured_logs("management") as log, pytest.raises(FactorRefusedError):
        await authenticators(shared, factors.management, keys=(new,)).verify(question)
    assert "authenticator.unreadable" in log.getvalue()
    rotating = authenticators(shared, factors.management, keys=(new, old))
    for _ in range(2):
        await rotating.renew_seals()
    await authenticators(shared, factors.management, keys=(new,)).verify(question)
    await authenticators(shared, factors.management, keys=(old, new)).renew_seals()  # for the other tests
