"""token-service checks passwords over the bus; the hashes stay in management-service."""

import unicodedata
from collections.abc import AsyncIterator
from typing import Literal

import msgspec
import nats
import nats.errors
import pytest
import pytest_asyncio
from argon2 import PasswordHasher

from identity_common.wire.password_check import PasswordAnswer, PasswordQuestion, password_check_subject
from tests.support.management_api import Management, issues, refusal, unique

PASSWORD = "correct horse battery staple"


class Caller:
    """Sends the same requests as token-service."""

    def __init__(self, client: nats.NATS, tenant_id: str) -> None:
        self._client = client
        self._subject = password_check_subject(tenant_id)

    async def __call__(self, identifier: str, password: str) -> str | None:
        return (await self.ask(identifier, password)).user_id

    async def ask(self, identifier: str, password: str) -> PasswordAnswer:
        question = msgspec.json.encode(PasswordQuestion(identifier, password))
        message = await self._client.request(self._subject, question, timeout=5)
        answer = msgspec.json.decode(message.data, type=PasswordAnswer)
        assert not answer.busy
        return answer


@pytest_asyncio.fixture
async def ask(management: Management) -> AsyncIterator[Caller]:
    client = await nats.connect(management.addresses.token_nats_url, inbox_prefix="_INBOX_token")
    yield Caller(client, management.tenant_id)
    await client.close()


async def test_a_user_is_found_by_user_name_e_mail_address_and_telephone_number(
    management: Management, ask: Caller
) -> None:
    name = unique("Ada").replace("-", "_")
    phone = f"+49151{int(name[-6:], 16):08}"
    user = await management.created(
        "users", username=name, primaryEmail=f"{name}@Example.com", primaryPhone=phone, password=PASSWORD
    )
    with_trunk_prefix = phone.replace("+49", "+490")
    for identifier in (name, name.upper(), f"{name}@example.COM", phone, phone.removeprefix("+"), with_trunk_prefix):
        assert await ask(identifier, PASSWORD) == user["id"], identifier
        assert await ask(identifier, "another password") is None


@pytest.mark.parametrize(
    "identifier", ["", "nobody", "\0", "x" * 100_000, "nobody@example.com", "+1", "\uff41\uff44\uff41"]
)
async def test_an_unknown_identifier_is_refused(ask: Caller, identifier: str) -> None:
    assert await ask(identifier, PASSWORD) is None


async def test_a_user_name_cannot_shadow_a_telephone_number(management: Management, ask: Caller) -> None:
    """Otherwise the user with that name could sign in in place of the number's owner."""
    number = f"49151{int(unique('')[-6:], 16):08}"
    owner = await management.created("users", primaryPhone=f"+{number}", password=PASSWORD)
    taken = [await management.client.post("/api/users", json={"username": each}) for each in (number, f"+{number}")]
    assert [issues(answer) for answer in taken] == [{"username"}] * 2
    other = await management.created("users", username=unique("other"))
    answer = await management.client.patch(f"/api/users/{other['id']}", json={"username": number})
    assert issues(answer) == {"username"}
    assert await ask(number, PASSWORD) == owner["id"]


async def test_the_answer_carries_tokens_valid_after_and_its_revision(management: Management, ask: Caller) -> None:
    name = unique("Ada").replace("-", "_")
    user = await management.created("users", username=name, password=PASSWORD)
    before = await ask.ask(name, PASSWORD)
    assert before == PasswordAnswer(user_id=user["id"], revision=await management.revision())
    await management.client.patch(f"/api/users/{user['id']}/password", json={"password": PASSWORD})
    after = await ask.ask(name, PASSWORD)
    assert after.revision == await management.revision() > before.revision
    stored = "SELECT tokens_valid_after FROM users WHERE tenant_id = $1 AND id = $2"
    assert after.tokens_valid_after == await management.database.fetchval(stored, management.tenant_id, user["id"]) > 0
    assert await ask.ask(name, "wrong") == PasswordAnswer()


@pytest.mark.parametrize("form", ["NFC", "NFD"])
async def test_a_password_is_normalized_to_composed_characters(
    management: Management, ask: Caller, form: Literal["NFC", "NFD"]
) -> None:
    """RFC 8265 section 4.2.2: NFC. Case, width and spaces are preserved."""
    name, password = unique("zoe"), "Zoë and crème brûlée"
    user = await management.created("users", username=name, password=unicodedata.normalize(form, password))
    for typed in ("NFC", "NFD"):
        assert await ask(name, unicodedata.normalize(typed, password)) == user["id"]
    for another in (password.lower(), f"{password} ", password.replace("Z", "\uff3a"), password.replace("ë", "e")):
        assert await ask(name, another) is None
    changed = unicodedata.normalize(form, "naïve café déjà vu")
    answer = await management.client.patch(f"/api/users/{user['id']}/password", json={"password": changed})
    assert answer.status_code == 200
    assert [await ask(name, unicodedata.normalize(typed, changed)) for typed in ("NFC", "NFD")] == [user["id"]] * 2


async def test_without_a_password_there_is_no_sign_in(management: Management, ask: Caller) -> None:
    name = unique("nopass").replace("-", "_")
    await management.created("users", username=name)
    assert await ask(name, "") is None
    assert await ask(name, PASSWORD) is None


async def test_a_correct_password_renews_a_hash_with_outdated_parameters(management: Management, ask: Caller) -> None:
    name = unique("old").replace("-", "_")
    user = await management.created("users", username=name, password=PASSWORD)
    old = PasswordHasher(time_cost=1, memory_cost=8 * 1024, parallelism=1).hash(PASSWORD)
    where = "WHERE tenant_id = $1 AND id = $2"
    key = (management.tenant_id, user["id"])
    await management.database.execute(f"UPDATE users SET password_hash = $3 {where}", *key, old)
    revision = await management.revision()
    assert await ask(name, "wrong") is None
    assert await management.database.fetchval(f"SELECT password_hash FROM users {where}", *key) == old
    assert await ask(name, PASSWORD) == user["id"]
    assert await management.database.fetchval(f"SELECT password_hash FROM users {where}", *key) != old
    assert await ask(name, PASSWORD) == user["id"]
    assert await management.revision() == revision


async def test_a_malformed_request_is_answered(management: Management) -> None:
    client = await nats.connect(management.addresses.token_nats_url, inbox_prefix="_INBOX_token")
    message = await client.request(password_check_subject(management.tenant_id), b"{", timeout=5)
    assert msgspec.json.decode(message.data, type=PasswordAnswer).user_id is None
    await client.close()


@pytest.mark.heavy
async def test_only_token_service_may_send_requests_and_only_management_service_may_receive_them(
    management: Management,
) -> None:
    subject = password_check_subject(management.tenant_id)
    for url, prefix in (
        (management.addresses.subscriber_nats_url, "_INBOX"),
        (management.addresses.template_nats_url, "_INBOX_template"),
    ):
        client = await nats.connect(url, inbox_prefix=prefix)
        with pytest.raises(nats.errors.TimeoutError):
            await client.request(subject, b"{}", timeout=0.3)
        await client.close()


async def test_users_that_an_earlier_release_gave_one_number_in_two_notations_keep_their_accounts(
    management: Management, ask: Caller
) -> None:
    """Each signs in with its own notation, and changes like any other user; no third one gets the number."""
    digits = f"4{int(unique('')[-6:], 16):08}"
    first = await management.created("users", primaryPhone=f"+61{digits}", password=PASSWORD)
    second = await management.created("users", password=PASSWORD)
    keep = "UPDATE users SET primary_phone = $3, primary_phone_key = $4 WHERE tenant_id = $1 AND id = $2"
    path, phone = f"/api/users/{second['id']}", f"+610{digits}"
    await management.database.execute(keep, management.tenant_id, second["id"], phone, phone[1:])
    changed = await management.client.patch(path, json={"name": "Ada", "primaryPhone": phone})
    assert (changed.status_code, changed.json()["primaryPhone"]) == (200, phone)
    assert (await ask(f"+61{digits}", PASSWORD), await ask(phone, PASSWORD)) == (first["id"], second["id"])
    await management.client.delete(f"/api/users/{first['id']}")
    third = await management.created("users")
    for answer in (
        await management.client.post("/api/users", json={"primaryPhone": phone}),
        await management.client.patch(f"/api/users/{third['id']}", json={"primaryPhone": phone}),
    ):
        assert refusal(answer) == (422, "user.phone_already_in_use")
    assert (await management.client.patch(path, json={"primaryPhone": f"61{digits}"})).status_code == 200
