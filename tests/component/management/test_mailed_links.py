"""Links in mails, as token-service requests, opens and spends them over the bus."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import event

from identity_common.failures import TooManyAttempts
from identity_common.wire.account_links import (
    Answer,
    ConfirmAddress,
    Done,
    LinkFound,
    ReadRecovery,
    ReadVerification,
    Recover,
    Refused,
    RequestRecovery,
    RequestRegistration,
    Unavailable,
    Visitor,
)
from management_service.app import VERSIONS
from management_service.links.recovery import PasswordRecovery
from management_service.links.rules import REQUESTED_MAILS
from management_service.parts.shared import Shared
from tests.support.mailed_links import CONTEXT, PASSWORD, SENT, Pages
from tests.support.management_api import unique
from tests.support.waiting import WAIT_S

NEW_PASSWORD = "another unlikely sentence"
_WAITING = "SELECT 1 FROM pg_locks WHERE NOT granted AND locktype IN ('transactionid', 'tuple')"
NOT_VALID = Refused(reason="link-not-valid")


async def test_a_forgotten_password_is_replaced_once_and_the_user_is_told(pages: Pages) -> None:
    user = await pages.user()
    link = await pages.recovery(user)
    (mail,) = await pages.sent(user["primaryEmail"])
    assert (mail.kind, mail.language, mail.application_id, mail.user_id) == (
        *("password-recovery", "de", "an-application", user["id"]),
    )
    assert mail.values == {"link": f"/sign-in/recovery?link={link}", "minutes": "15"}
    found = LinkFound(address=user["primaryEmail"], account=user["primaryEmail"], context=CONTEXT)
    assert [await pages.ask(ReadRecovery(link=link)) for _ in range(2)] == [found, found]
    for password in ("short", "x" * 257, ""):
        answer = await pages.ask(Recover(link=link, password=password))
        assert answer == Refused(reason="password-not-accepted")

    visitor = Visitor(address="192.0.2.1", user_agent="a browser")
    assert await pages.ask(Recover(link=link, password=NEW_PASSWORD, visitor=visitor)) == Done(context=CONTEXT)
    assert (await pages.signs_in(user, NEW_PASSWORD), await pages.signs_in(user, PASSWORD)) == (True, False)
    assert await pages.ask(ReadRecovery(link=link)) == NOT_VALID
    assert await pages.ask(Recover(link=link, password=PASSWORD)) == NOT_VALID
    (_, notice) = await pages.sent(user["primaryEmail"])
    assert (notice.kind, notice.language, notice.application_id) == ("password-changed", "de", "an-application")
    assert notice.values == {"link": "/sign-in/forgotten"}
    entry = await pages.entry("RecoverPassword", user["id"])
    assert (entry.key, entry.application_id, entry.token_id) == ("management.user.update", None, "")
    assert (entry.address, entry.user_agent) == (visitor.address, visitor.user_agent)


async def test_the_database_has_neither_the_link_nor_an_unknown_address(pages: Pages) -> None:
    user, unknown = await pages.user(), f"{unique('eve')}@id.test"
    link = await pages.recovery(user)
    assert await pages.ask(RequestRecovery(address=unknown)) == SENT
    rows = await pages.management.database.fetch(
        "SELECT * FROM mailed_links WHERE tenant_id = $1", pages.management.tenant_id
    )
    stored = repr([dict(row) for row in rows])
    assert user["primaryEmail"] in stored
    assert link not in stored
    assert unknown not in stored
    assert not await pages.sent(unknown)


@pytest.mark.servers
async def test_of_many_who_spend_a_link_one_sets_the_password(pages: Pages) -> None:
    user = await pages.user()
    link, passwords = await pages.recovery(user), [f"password number {number}" for number in range(64)]
    answers = await asyncio.gather(*(pages.ask(Recover(link=link, password=each)) for each in passwords))
    kinds = Counter(type(answer) for answer in answers)
    assert kinds[Done] == 1
    assert kinds.keys() <= {Done, Refused, Unavailable}  # the last if the queue of passwords is too long
    (winner,) = (password for password, answer in zip(passwords, answers, strict=True) if isinstance(answer, Done))
    assert await pages.signs_in(user, winner)
    assert [mail.kind for mail in await pages.sent(user["primaryEmail"])] == ["password-recovery", "password-changed"]


Change = tuple[str, str, dict[str, Any]]
CHANGES: dict[str, Change] = {
    "another password": ("PATCH", "/password", {"password": "set by an administrator"}),
    "a suspension": ("PATCH", "/is-suspended", {"isSuspended": True}),
    "another address": ("PATCH", "", {"primaryEmail": "{new}"}),
    "no address": ("PATCH", "", {"primaryEmail": None, "username": "{name}"}),
    "deletion": ("DELETE", "", {}),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_a_link_for_a_forgotten_password_ends_with_what_it_is_bound_to(pages: Pages, change: Change) -> None:
    user = await pages.user()
    link = await pages.recovery(user)
    method, path, body = change
    new = {"{new}": f"{unique('new')}@id.test", "{name}": unique("u").replace("-", "_")}
    body = {name: new.get(value, value) if isinstance(value, str) else value for name, value in body.items()}
    answer = await pages.management.client.request(method, f"/api/users/{user['id']}{path}", json=body or None)
    assert answer.is_success, answer.text
    assert await pages.ask(ReadRecovery(link=link)) == NOT_VALID
    assert await pages.ask(Recover(link=link, password=NEW_PASSWORD)) == NOT_VALID
    assert not await pages.signs_in(user, NEW_PASSWORD)


async def test_a_newer_link_replaces_the_earlier_one_and_an_expired_one_is_not_valid(pages: Pages) -> None:
    user = await pages.user()
    first, second = await pages.recovery(user), await pages.recovery(user)
    assert await pages.ask(ReadRecovery(link=first)) == NOT_VALID
    assert isinstance(await pages.ask(ReadRecovery(link=second)), LinkFound)
    assert await pages.ask(ReadVerification(link=second)) == NOT_VALID  # a link does one thing
    database, tenant_id = pages.management.database, pages.management.tenant_id
    await database.execute("UPDATE mailed_links SET expires_at = 1 WHERE tenant_id = $1", tenant_id)
    assert await pages.ask(ReadRecovery(link=second)) == NOT_VALID
    assert await pages.ask(Recover(link=second, password=NEW_PASSWORD)) == NOT_VALID


async def test_two_who_replace_and_forget_links_do_not_wait_in_a_circle(pages: Pages) -> None:
    """One has forgotten the other's expired link, and the other waits to replace it: it must not hold the first's."""
    first, second = await pages.user(), await pages.user()
    for user in (first, second):
        await pages.recovery(user)
    database, tenant_id = pages.management.database, pages.management.tenant_id
    await database.execute("UPDATE mailed_links SET expires_at = 1 WHERE tenant_id = $1", tenant_id)
    async with database.transaction():
        await database.execute("DELETE FROM mailed_links WHERE user_id = $1", second["id"])
        requesting = asyncio.create_task(pages.recovery(second))
        async with asyncio.timeout(WAIT_S):
            while not await database.fetchval(_WAITING):  # noqa: ASYNC110 - seen from outside only
                await asyncio.sleep(0.02)
        await database.fetch("SELECT FROM mailed_links WHERE user_id = $1 FOR UPDATE NOWAIT", first["id"])
    assert isinstance(await pages.ask(ReadRecovery(link=await requesting)), LinkFound)


@pytest.mark.parametrize("link", ["", "x", "0" * 43, "\0", "x" * 100_000, "' OR 1=1 --"])
async def test_what_is_not_a_link_opens_nothing(pages: Pages, link: str) -> None:
    for question in (ReadRecovery(link=link), ReadVerification(link=link), ConfirmAddress(link=link)):
        assert await pages.ask(question) == NOT_VALID
    assert await pages.ask(Recover(link=link, password=NEW_PASSWORD)) == NOT_VALID


NOT_ADDRESSES = ["", "ada", "a@b", "a\0@b.test", "a\r\nBcc: x@b.test", f"{'x' * 250}@b.test", "a@b.test, c@d.test"]


@pytest.mark.parametrize("address", NOT_ADDRESSES)
async def test_what_is_not_an_address_gets_no_mail(pages: Pages, address: str) -> None:
    assert await pages.ask(RequestRecovery(address=address)) == Refused(reason="not-an-address")


async def test_mail_goes_to_the_stored_address_and_not_to_one_that_compares_equal(pages: Pages) -> None:
    """The Kelvin sign folds to k: the owner of the domain that it is typed with must not get the mail."""
    user = await pages.user(primaryEmail=f"{unique('ada')}@kelvin.test")
    typed = user["primaryEmail"].replace("kelvin", "\u212aelvin")
    assert await pages.ask(RequestRecovery(address=typed)) == SENT
    assert len(await pages.sent(user["primaryEmail"])) == 1
    assert not await pages.sent(typed)


async def test_an_account_that_cannot_use_a_password_gets_no_mail(pages: Pages) -> None:
    suspended, without = await pages.user(), await pages.user(password=None)
    await pages.management.client.patch(f"/api/users/{suspended['id']}/is-suspended", json={"isSuspended": True})
    for user in (suspended, without):
        assert await pages.ask(RequestRecovery(address=user["primaryEmail"])) == SENT
        assert not await pages.sent(user["primaryEmail"])


async def test_an_address_gets_a_few_mails_in_a_window_whoever_asks(pages: Pages) -> None:
    user = await pages.user()
    spellings = [user["primaryEmail"], user["primaryEmail"].upper()]
    for number in range(2 * REQUESTED_MAILS):
        visitor = Visitor(address=f"192.0.2.{number}")
        answer = await pages.ask(RequestRecovery(address=spellings[number % 2], visitor=visitor))
        assert answer == SENT
    assert len(await pages.sent(user["primaryEmail"])) == REQUESTED_MAILS
    assert isinstance(await pages.ask(ReadRecovery(link=await pages.link(user["primaryEmail"]))), LinkFound)
    path = f"/api/users/{user['id']}/verification-email"
    sent = [await pages.management.client.post(path) for _ in range(REQUESTED_MAILS + 1)]
    assert [each.status_code for each in sent] == [204] * REQUESTED_MAILS + [429]
    assert sent[-1].json()["code"] == "mail.too_many_to_recipient"
    assert int(sent[-1].headers["Retry-After"]) > 0


async def test_no_other_mail_keeps_a_user_from_the_link_for_a_forgotten_password(pages: Pages, wishes: Wishes) -> None:
    user = await pages.user()
    for _ in range(2 * REQUESTED_MAILS):
        await pages.ask(RequestRegistration(address=user["primaryEmail"]))
    for _ in range(REQUESTED_MAILS):
        await wishes.link(await pages.user(), user["primaryEmail"])
    assert isinstance(await pages.ask(ReadRecovery(link=await pages.recovery(user))), LinkFound)


async def test_no_stranger_keeps_a_user_from_the_link_for_the_own_address(pages: Pages, wishes: Wishes) -> None:
    user = await pages.user()
    for _ in range(REQUESTED_MAILS):
        await wishes.link(await pages.user(), user["primaryEmail"])
    assert await pages.ask(ConfirmAddress(link=await pages.verification(user))) == Done()


async def test_a_user_has_a_few_mails_sent_in_a_window_whatever_the_addresses(pages: Pages, wishes: Wishes) -> None:
    user = await pages.user()
    for _ in range(REQUESTED_MAILS):
        await wishes.link(user, f"{unique('new')}@id.test")
    last = f"{unique('new')}@id.test"
    with pytest.raises(TooManyAttempts):
        await wishes.link(user, last)
    assert not await pages.sent(last)


class Steps:
    """The statements that a part of the service runs."""

    def __init__(self, shared: Shared) -> None:
        self._now: list[str] = []
        event.listen(shared.connections.engine.sync_engine, "before_cursor_execute", self._keep)

    def _keep(self, _: object, __: object, statement: str, ___: object, ____: object, _____: object) -> None:
        self._now.append(statement)

    async def of(self, recovery: PasswordRecovery, address: str) -> list[str]:
        self._now.clear()
        await recovery.request(address, CONTEXT, visitor_address="192.0.2.1")
        return list(self._now)


async def test_a_known_and_an_unknown_address_take_the_same_steps(pages: Pages) -> None:
    known, suspended, unknown = await pages.user(), await pages.user(), f"{unique('eve')}@id.test"
    await pages.management.client.patch(f"/api/users/{suspended['id']}/is-suspended", json={"isSuspended": True})
    shared = Shared(pages.management.settings, versions=VERSIONS)
    steps = Steps(shared)
    try:
        taken = [
            await steps.of(shared.links.recovery, address)
            for address in (known["primaryEmail"], suspended["primaryEmail"], unknown)
        ]
    finally:
        await shared.connections.stop()
    assert len(taken[0]) >= 3
    assert taken[0] == taken[1] == taken[2]
    assert sum("mail_outbox" in statement for statement in taken[2]) == 1


async def test_an_address_is_verified_by_its_link(pages: Pages) -> None:
    user = await pages.user()
    link = await pages.verification(user)
    (mail,) = await pages.sent(user["primaryEmail"])
    assert (mail.kind, mail.user_id) == ("email-verification", user["id"])
    found = await pages.ask(ReadVerification(link=link))
    assert found == LinkFound(address=user["primaryEmail"], account=user["primaryEmail"])
    path = f"/api/users/{user['id']}"
    assert not (await pages.management.client.get(path)).json()["isEmailVerified"]
    await pages.management.client.patch(f"{path}/password", json={"password": NEW_PASSWORD})  # an invitation, say
    assert await pages.ask(ConfirmAddress(link=link)) == Done()
    assert (await pages.management.client.get(path)).json()["isEmailVerified"]
    assert await pages.ask(ConfirmAddress(link=link)) == NOT_VALID
    again = await pages.management.client.post(f"{path}/verification-email")
    assert (again.status_code, again.json()["code"]) == (422, "user.email_already_verified")
    without = (await pages.management.created("users"))["id"]
    missing = await pages.management.client.post(f"/api/users/{without}/verification-email")
    assert (missing.status_code, missing.json()["code"]) == (422, "user.email_missing")


class Wishes:
    """Users who wish to have another address."""

    def __init__(self, pages: Pages, shared: Shared) -> None:
        self._pages = pages
        self._shared = shared

    async def link(self, user: dict[str, Any], address: str) -> str:
        await self._shared.links.verifications.request(user["id"], address, CONTEXT)
        return await self._pages.link(address)


@pytest_asyncio.fixture
async def wishes(pages: Pages) -> AsyncIterator[Wishes]:
    shared = Shared(pages.management.settings, versions=VERSIONS)
    yield Wishes(pages, shared)
    await shared.connections.stop()


async def test_an_account_has_another_address_once_its_link_is_confirmed_and_the_earlier_one_is_told(
    pages: Pages, wishes: Wishes
) -> None:
    user, new = await pages.user(isEmailVerified=True), f"{unique('new')}@id.test"
    link, path = await wishes.link(user, new), f"/api/users/{user['id']}"
    present = (await pages.management.client.get(path)).json()
    assert (present["primaryEmail"], present["isEmailVerified"]) == (user["primaryEmail"], True)
    assert await pages.ask(ConfirmAddress(link=link)) == Done(context=CONTEXT)
    changed = (await pages.management.client.get(path)).json()
    assert (changed["primaryEmail"], changed["isEmailVerified"]) == (new, True)
    (notice,) = await pages.sent(user["primaryEmail"])
    assert (notice.kind, notice.language, notice.values) == ("email-changed", "de", {"address": new})
    assert (await pages.entry("ConfirmEmailAddress", user["id"])).application_id is None


async def test_a_wish_for_another_address_ends_with_a_new_password_and_a_suspension(
    pages: Pages, wishes: Wishes
) -> None:
    for path, body in (("password", {"password": NEW_PASSWORD}), ("is-suspended", {"isSuspended": True})):
        user = await pages.user()
        link = await wishes.link(user, f"{unique('new')}@id.test")
        await pages.management.client.patch(f"/api/users/{user['id']}/{path}", json=body)
        assert await pages.ask(ReadVerification(link=link)) == NOT_VALID
        assert await pages.ask(ConfirmAddress(link=link)) == NOT_VALID


async def test_an_address_that_another_account_has_is_refused_at_the_end_only(pages: Pages, wishes: Wishes) -> None:
    user, other = await pages.user(), await pages.user()
    link = await wishes.link(user, other["primaryEmail"])
    assert await pages.ask(ConfirmAddress(link=link)) == Refused(reason="address-in-use")
    await pages.management.client.delete(f"/api/users/{other['id']}")
    assert await pages.ask(ConfirmAddress(link=link)) == Done(context=CONTEXT)


async def test_an_address_that_only_compares_equal_is_another_one(pages: Pages, wishes: Wishes) -> None:
    """The letter \u00df folds to ss: each of the two domains may be another person's."""
    user = await pages.user(primaryEmail=f"{unique('ada')}@strasse.test", isEmailVerified=True)
    path, other = f"/api/users/{user['id']}", user["primaryEmail"].replace("strasse", "stra\u00dfe")
    stolen = await wishes.link(user, other)
    await pages.management.client.patch(f"{path}/password", json={"password": NEW_PASSWORD})
    assert await pages.ask(ConfirmAddress(link=stolen)) == NOT_VALID
    recovery, wished = await pages.recovery(user), await wishes.link(user, other)
    assert await pages.ask(ConfirmAddress(link=wished)) == Done(context=CONTEXT)
    assert [mail.kind for mail in await pages.sent(user["primaryEmail"])] == ["password-recovery", "email-changed"]
    assert await pages.ask(ReadRecovery(link=recovery)) == NOT_VALID
    back = await pages.management.client.patch(path, json={"primaryEmail": user["primaryEmail"]})
    assert (back.status_code, back.json()["isEmailVerified"]) == (200, False)


@pytest.mark.servers
async def test_of_many_who_confirm_a_link_one_changes_the_account(pages: Pages, wishes: Wishes) -> None:
    user = await pages.user()
    link = await wishes.link(user, f"{unique('new')}@id.test")
    answers = await asyncio.gather(*(pages.ask(ConfirmAddress(link=link)) for _ in range(64)))
    assert Counter(answers_by_kind(answers)) == {"Done": 1, "link-not-valid": 63}
    assert len(await pages.sent(user["primaryEmail"])) == 1


def answers_by_kind(answers: list[Answer]) -> list[str]:
    return [answer.reason if isinstance(answer, Refused) else type(answer).__name__ for answer in answers]
