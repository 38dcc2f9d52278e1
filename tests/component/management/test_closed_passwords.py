"""A connector's people sign in at its provider: passwords, recovery and registration are closed to them."""

import secrets
import time
from collections.abc import AsyncIterator

import msgspec
import nats
import pytest_asyncio
from nats.aio.client import Client

from identity_common.wire.account_links import ConfirmAddress, Recover, Refused, RequestRecovery, RequestRegistration
from identity_common.wire.password_check import PasswordAnswer, PasswordQuestion, password_check_subject
from identity_common.wire.provider_sign_in import AccountFound, LinkIdentity, NotAccepted, ProviderPerson
from tests.support.mailed_links import CONTEXT, PASSWORD, Pages
from tests.support.management_api import Management
from tests.support.provider import CLIENT, SECRET, Provider
from tests.support.provider_sign_ins import ProviderPages


class Company:
    """A company whose people are in a domain of its own."""

    def __init__(self, management: Management, client: Client, provider: Provider) -> None:
        self.management = management
        self.domain = f"d{secrets.token_hex(5)}.test"
        self.sign_ins = ProviderPages(management, client, provider)
        self.pages = Pages(management, client)
        self.client = client

    async def employee(self, **members: object) -> dict[str, str]:
        address = f"{secrets.token_hex(5)}@{self.domain}"
        return await self.pages.user(primaryEmail=address, **{"isEmailVerified": True, **members})

    async def check(self, user: dict[str, str], link: str | None = None) -> PasswordAnswer:
        question = PasswordQuestion(user["primaryEmail"], PASSWORD, link=link)
        subject = password_check_subject(self.management.tenant_id)
        reply = await self.client.request(subject, msgspec.json.encode(question), timeout=20)
        return msgspec.json.decode(reply.data, type=PasswordAnswer)

    async def signs_in(self, user: dict[str, str]) -> bool:
        return (await self.check(user)).user_id == user["id"]


@pytest_asyncio.fixture
async def company(management: Management) -> AsyncIterator[Company]:
    client = await nats.connect(management.addresses.token_nats_url, inbox_prefix="_INBOX_token")
    with Provider() as provider:
        company = Company(management, client, provider)
        yield company
        await company.sign_ins.disconnect()
    await client.close()


async def test_a_password_counts_until_the_connector_opens_and_for_whom_an_administrator_allows_it(
    company: Company,
) -> None:
    employee, other = await company.employee(), await company.pages.user()
    provider = company.sign_ins.provider
    await company.sign_ins.connect(config={"issuer": provider.issuer}, domains=[company.domain])
    await company.sign_ins.management.created(
        f"users/{other['id']}/identities", connectorId=company.sign_ins.connector, value="agent-7"
    )
    assert await company.signs_in(employee), "no one signs in through it"
    assert await company.signs_in(other)
    await company.sign_ins.change(config={"clientId": CLIENT, "clientSecret": SECRET})
    assert await company.check(employee) == PasswordAnswer()
    assert await company.check(other) == PasswordAnswer(), "an identity suffices"
    path = f"/api/users/{employee['id']}"
    answer = await company.management.client.patch(f"{path}/password", json={"password": "Countess-of-1815"})
    assert (answer.status_code, answer.json()["code"]) == (422, "user.signs_in_at_provider")
    changed = await company.management.client.patch(path, json={"allowsPassword": True})
    assert changed.json()["allowsPassword"] is True
    assert await company.signs_in(employee)
    await company.sign_ins.change(isEnabled=False)
    assert await company.signs_in(other)


async def test_an_account_is_signed_in_to_with_its_password_once_to_link_it(company: Company) -> None:
    employee, colleague = await company.employee(), await company.employee()
    await company.sign_ins.connect(domains=[company.domain])
    claims = {"sub": "person-1", "email": employee["primaryEmail"], "email_verified": True}
    found = await company.sign_ins.sign_in(**claims)
    assert isinstance(found, AccountFound)
    assert await company.check(colleague, found.link) == PasswordAnswer()
    assert await company.check(employee, "x") == PasswordAnswer()
    assert (await company.check(employee, found.link)).user_id == employee["id"]
    linked = await company.sign_ins.ask(LinkIdentity(link=found.link, user_id=employee["id"], language="de"))
    assert isinstance(linked, ProviderPerson)
    assert await company.check(employee) == PasswordAnswer()
    [mail] = await company.pages.sent(employee["primaryEmail"])
    assert (mail.kind, mail.language) == ("factor-added", "de")


async def test_people_remove_their_identities_but_the_last_way_in(company: Company) -> None:
    management, sign_ins = company.management, company.sign_ins
    owner = await company.pages.user(isEmailVerified=True, allowsPassword=True)
    await sign_ins.connect(domains=[company.domain], branding={"displayName": "Company"})
    only = await sign_ins.signed_in(sub="person-1")
    await management.created(f"users/{owner['id']}/identities", connectorId=sign_ins.connector, value="person-2")
    await sign_ins.signed_in(sub="person-2")
    for user_id, expected in ((only.user_id, 422), (owner["id"], 204)):
        async with management.client_with(management.own_token(user_id)) as client:
            path = "/api/my-account/identities"
            [identity] = (await client.get(path)).json()
            shown = {"id": identity["id"], "providerName": "Company"}
            assert identity == shown | {name: identity[name] for name in ("createdAt", "lastUsedAt")}
            answer = await client.delete(f"{path}/{identity['id']}")
            assert answer.status_code == expected, answer.text
            assert len((await client.get(path)).json()) == (0 if expected == 204 else 1)
            assert (await client.delete(f"{path}/{identity['id']}x")).status_code == 404
        old = management.own_token(user_id, auth_time=int(time.time()) - 3600)
        async with management.client_with(old) as client:
            assert (await client.delete(f"{path}/{identity['id']}")).status_code == 401
    [mail] = await company.pages.sent(owner["primaryEmail"])
    assert (mail.kind, mail.values["provider"]) == ("factor-removed", "Company")
    await management.client.patch(f"/api/users/{only.user_id}", json={"username": f"u{secrets.token_hex(5)}"})
    [identity] = (await management.client.get(f"/api/users/{only.user_id}/identities")).json()
    path = f"/api/users/{only.user_id}/identities/{identity['id']}"
    assert (await management.client.delete(path)).status_code == 204, "an administrator may"


async def test_no_link_sets_a_password_or_registers_an_address(company: Company) -> None:
    employee, pages = await company.employee(), company.pages
    recovery = await pages.recovery(employee)
    await company.management.client.patch("/api/configs/sign-in", json={"registration": "open"})
    await company.sign_ins.connect(domains=[company.domain])
    not_valid = Refused(reason="link-not-valid")
    assert await pages.ask(Recover(link=recovery, password="Countess-of-1815")) == not_valid
    before = len(await pages.sent(employee["primaryEmail"]))
    await pages.ask(RequestRecovery(address=employee["primaryEmail"], context=CONTEXT))
    newcomer = f"new@{company.domain}"
    await pages.ask(RequestRegistration(address=newcomer, context=CONTEXT))
    assert len(await pages.sent(employee["primaryEmail"])) == before
    assert await pages.sent(newcomer) == []
    await company.management.client.patch("/api/configs/sign-in", json={"registration": None})


async def test_people_do_not_open_what_their_provider_closes(company: Company) -> None:
    """Otherwise who is about to leave keeps the account: by another address, and a password or passkey of before."""
    management, links, path = company.management, company.pages, "/api/my-account"
    employee, early = await company.employee(), await company.employee()
    async with management.client_with(management.own_token(early["id"])) as client:
        private = f"{secrets.token_hex(5)}@elsewhere.test"
        assert (await client.post(f"{path}/primary-email", json={"email": private})).is_success
    await company.sign_ins.connect(domains=[company.domain])
    assert await links.ask(ConfirmAddress(link=await links.link(private))) == Refused(reason="link-not-valid")
    async with management.client_with(management.own_token(early["id"])) as client:
        assert not (await client.get(path)).json()["canChangePassword"]
        answer = await client.post(f"{path}/primary-email", json={"email": f"x{private}"})
        assert (answer.status_code, answer.json()["code"]) == (422, "user.signs_in_at_provider")
    found = await company.sign_ins.sign_in(sub="person-1", email=employee["primaryEmail"], email_verified=True)
    assert isinstance(found, AccountFound)
    await company.sign_ins.ask(LinkIdentity(link=found.link, user_id=employee["id"], language="de"))
    async with management.client_with(management.own_token(employee["id"])) as client:
        private = f"{secrets.token_hex(5)}@elsewhere.test"
        assert (await client.post(f"{path}/primary-email", json={"email": private})).is_success
        await links.ask(ConfirmAddress(link=await links.link(private)))
        [identity] = (await client.get(f"{path}/identities")).json()
        answer = await client.delete(f"{path}/identities/{identity['id']}")
    assert (answer.status_code, answer.json().get("code")) == (422, "user.last_way_in")
    assert not await company.signs_in({**employee, "primaryEmail": private})


async def test_an_account_at_one_provider_is_not_linked_to_another_by_its_owner(company: Company) -> None:
    """Otherwise who moves to another company keeps the account, and the roles, of the first one."""
    management, domain = company.management, f"d{secrets.token_hex(5)}.test"
    mover = await company.pages.user(primaryEmail=f"{secrets.token_hex(5)}@{domain}", isEmailVerified=True)
    path, claims = f"/api/users/{mover['id']}", {"email": mover["primaryEmail"], "email_verified": True}
    await company.sign_ins.connect()
    of_first = {"connectorId": company.sign_ins.connector, "value": "person-1"}
    await management.created(f"users/{mover['id']}/identities", **of_first)
    with Provider() as provider:
        second = ProviderPages(management, company.client, provider)
        await second.connect(domains=[domain])
        refused = await second.sign_in(sub="person-2", **claims)
        assert isinstance(refused, NotAccepted)
        assert refused.reason == "not-allowed"
        await management.client.patch(path, json={"allowsPassword": True})
        found = await second.sign_in(sub="person-2", **claims)
        assert isinstance(found, AccountFound)
        await management.client.patch(path, json={"allowsPassword": False})
        linked = await second.ask(LinkIdentity(link=found.link, user_id=mover["id"], language="de"))
        assert isinstance(linked, NotAccepted)
        await company.sign_ins.change(isEnabled=False)
        assert isinstance(await second.sign_in(sub="person-2", **claims), AccountFound), "nothing is closed by it"
        await second.disconnect()
