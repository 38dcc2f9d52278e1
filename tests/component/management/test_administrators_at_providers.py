"""The last administrator stays where passwords are closed: domains, identities and connectors, in every order."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import httpx2 as httpx
import nats
import pytest
import pytest_asyncio

from identity_common.wire.account_links import ConfirmAddress, Refused
from tests.component.management.test_administrators import LAST, PASSWORD, role_granting, scope_of
from tests.support.mailed_links import Pages
from tests.support.management_api import Management, refusal, unique
from tests.support.provider import CLIENT, SECRET, Provider
from tests.support.provider_sign_ins import ProviderPages
from tests.support.waiting import WAIT_S


class Company:
    """A tenant whose administrators work at a company with a provider.

    Attributes:
        domain: Of the company's addresses.
        ada: The only administrator, who has a password and an address in the domain.
    """

    def __init__(self, sign_ins: ProviderPages, links: Pages, role: str) -> None:
        self.sign_ins = sign_ins
        self.links = links
        self.management = sign_ins.management
        self.role = role
        self.domain = f"{secrets.token_hex(5)}.test"
        self.ada = ""

    async def administrator(self, **members: Any) -> str:
        """Create an administrator with a password, and return the id."""
        members = {"username": unique("admin"), "password": PASSWORD, **members}
        return await self.promote((await self.management.created("users", **members))["id"])

    async def promote(self, user_id: str) -> str:
        answer = await self.management.client.post(f"/api/roles/{self.role}/users", json={"userIds": [user_id]})
        assert answer.is_success, answer.text
        return user_id

    async def administrator_there(self, **claims: Any) -> str:
        """Let a person sign in at the provider, and make the user an administrator."""
        person = await self.sign_ins.signed_in(sub=unique("person"), **claims)
        return await self.promote(person.user_id)

    async def request(self, method: str, path: str, body: Any = None) -> httpx.Response:
        return await self.management.client.request(method, f"/api/{path}", **({} if body is None else {"json": body}))

    async def change(self, **members: Any) -> httpx.Response:
        return await self.request("PATCH", f"sso-connectors/{self.sign_ins.connector}", members)

    async def identity_of(self, user_id: str) -> str:
        [identity] = (await self.management.client.get(f"/api/users/{user_id}/identities")).json()
        return str(identity["id"])

    async def remove(self, user_id: str) -> None:
        """Take an administrator's role away, past the rule."""
        await self.management.database.execute("DELETE FROM user_roles WHERE user_id = $1", user_id)


@pytest_asyncio.fixture
async def company(own: Management) -> AsyncIterator[Company]:
    client = await nats.connect(own.addresses.token_nats_url, inbox_prefix="_INBOX_token")
    with Provider() as provider:
        role = await role_granting(own, await scope_of(own, "all"))
        company = Company(ProviderPages(own, client, provider), Pages(own, client), role)
        company.ada = await company.administrator(primaryEmail=f"ada@{company.domain.upper()}")
        yield company
        await own.database.execute("DELETE FROM user_roles WHERE tenant_id = $1", own.tenant_id)
        await company.sign_ins.disconnect()
    await client.close()


Closing = Callable[[Company], Awaitable[httpx.Response]]


async def by_a_new_connector(company: Company) -> httpx.Response:
    config = {"issuer": company.sign_ins.provider.issuer, "clientId": CLIENT, "clientSecret": SECRET}
    body = {"providerName": "OIDC", "connectorName": unique("c"), "config": config, "domains": [company.domain]}
    answer = await company.request("POST", "sso-connectors", body)
    company.sign_ins.connector = answer.json().get("id", "")
    return answer


async def by_a_domain(company: Company) -> httpx.Response:
    await company.sign_ins.connect()
    return await company.change(domains=["elsewhere.test", company.domain])


async def by_opening(company: Company) -> httpx.Response:
    await company.sign_ins.connect(domains=[company.domain], isEnabled=False)
    return await company.change(isEnabled=True)


async def by_a_client(company: Company) -> httpx.Response:
    issuer = company.sign_ins.provider.issuer
    await company.sign_ins.connect(domains=[company.domain], config={"issuer": issuer})
    return await company.change(config={"clientId": CLIENT, "clientSecret": SECRET})


async def by_an_identity(company: Company) -> httpx.Response:
    await company.sign_ins.connect()
    body = {"connectorId": company.sign_ins.connector, "value": "ada"}
    return await company.request("POST", f"users/{company.ada}/identities", body)


async def by_forbidding_the_password(company: Company) -> httpx.Response:
    await company.request("PATCH", f"users/{company.ada}", {"allowsPassword": True})
    await company.sign_ins.connect(domains=[company.domain])
    return await company.request("PATCH", f"users/{company.ada}", {"allowsPassword": False})


async def by_an_address(company: Company) -> httpx.Response:
    await company.request("PATCH", f"users/{company.ada}", {"primaryEmail": None})
    await company.sign_ins.connect(domains=[company.domain])
    return await company.request("PATCH", f"users/{company.ada}", {"primaryEmail": f"ada@{company.domain}"})


CLOSINGS = {
    each.__name__.replace("_", " "): each
    for each in (
        by_a_new_connector,
        by_a_domain,
        by_opening,
        by_a_client,
        by_an_identity,
        by_forbidding_the_password,
        by_an_address,
    )
}
"""What closes the password of the only administrator."""


@pytest.mark.parametrize("closing", CLOSINGS.values(), ids=CLOSINGS)
async def test_the_password_of_the_last_administrator_is_not_closed(company: Company, closing: Closing) -> None:
    answer = await closing(company)
    assert refusal(answer) == LAST, answer.text
    assert "allowsPassword" in answer.json()["message"]
    await company.sign_ins.disconnect()
    await company.administrator(primaryEmail=f"grace@{company.domain}", allowsPassword=True)
    assert (await closing(company)).is_success, "another one may use a password"


ENDINGS = {
    "disabled": ("PATCH", "sso-connectors/{connector}", {"isEnabled": False}),
    "without a client": ("PATCH", "sso-connectors/{connector}", {"config": {"clientId": None}}),
    "of another client": (
        "PATCH",
        "sso-connectors/{connector}",
        {"config": {"clientId": "another", "clientSecret": "another"}},
    ),
    "requires more": ("PATCH", "sso-connectors/{connector}", {"requiredClaims": [{"claim": "hd", "value": "a.test"}]}),
    "deleted": ("DELETE", "sso-connectors/{connector}", None),
    "identity deleted": ("DELETE", "users/{user}/identities/{identity}", None),
    "suspended": ("PATCH", "users/{user}/is-suspended", {"isSuspended": True}),
}
"""What may end the only way in of an administrator who signs in at the provider."""


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
async def test_the_way_in_of_the_last_administrator_at_a_provider_is_not_ended(
    company: Company, ending: tuple[str, str, Any]
) -> None:
    await company.sign_ins.connect()
    user = await company.administrator_there()
    method, path, body = ending
    place = {"connector": company.sign_ins.connector, "user": user, "identity": await company.identity_of(user)}
    await company.request("DELETE", f"users/{company.ada}/roles/{company.role}")
    assert refusal(await company.request(method, path.format(**place), body)) == LAST
    assert (await company.change(syncProfile=True, requiredClaims=[], domains=[company.domain])).is_success, "it stays"
    await company.administrator()
    assert (await company.request(method, path.format(**place), body)).is_success


async def test_an_administrator_counts_who_has_signed_in_since_the_connector_required_more(company: Company) -> None:
    await company.sign_ins.connect()
    user = await company.administrator_there()
    required = {"requiredClaims": [{"claim": "hd", "value": "a.test"}]}
    assert (await company.change(**required)).is_success, "Ada is still there"
    leaving = ("DELETE", f"users/{company.ada}/roles/{company.role}")
    assert refusal(await company.request(*leaving)) == LAST
    subject = company.sign_ins.provider.person["sub"]
    assert (await company.sign_ins.signed_in(sub=subject, hd="a.test")).user_id == user
    assert (await company.request(*leaving)).is_success


async def test_people_who_do_not_get_in_are_no_administrators(company: Company) -> None:
    """An identity that no one has signed in with, a passkey of people at a provider, and a domain in any spelling."""
    await company.request("PATCH", f"users/{company.ada}", {"allowsPassword": True})
    await company.sign_ins.connect(domains=[company.domain, "münchen.test"])
    others = [
        await company.administrator(allowsPassword=False),
        await company.administrator(primaryEmail=f"bob@{company.domain}"),
        await company.administrator(primaryEmail=f"{unique('eve')}@MÜNCHEN.test"),
    ]
    body = {"connectorId": company.sign_ins.connector, "value": "never-seen"}
    assert (await company.request("POST", f"users/{others[0]}/identities", body)).is_success
    await company.management.database.execute("UPDATE users SET second_factors = '{passkey}' WHERE id = $1", others[1])
    ending = ("PATCH", f"users/{company.ada}/is-suspended", {"isSuspended": True})
    assert refusal(await company.request(*ending)) == LAST
    await company.administrator(primaryEmail=f"{unique('eve')}@köln.test")
    assert (await company.request(*ending)).is_success


async def test_the_last_administrator_confirms_no_address_that_closes_the_password(company: Company) -> None:
    user = await company.administrator()
    await company.remove(company.ada)
    await company.sign_ins.connect(domains=[company.domain])
    address = f"{unique('grace')}@{company.domain}"
    async with company.management.client_with(company.management.own_token(user)) as client:
        assert (await client.post("/api/my-account/primary-email", json={"email": address})).is_success
    link = await company.links.link(address)
    assert await company.links.ask(ConfirmAddress(link=link)) == Refused(reason="account-not-accepted")
    await company.request("PATCH", f"users/{user}", {"allowsPassword": True})
    await company.links.ask(ConfirmAddress(link=link))
    assert (await company.sign_ins.user(user))["primaryEmail"] == address


WAITING = """
    SELECT count(*) FROM pg_locks
    WHERE locktype = 'advisory' AND NOT granted AND objid::bigint = hashtext($1)::bigint & 4294967295
"""


@asynccontextmanager
async def held_back(management: Management) -> AsyncIterator[Callable[[int], Awaitable[None]]]:
    """Hold the lock with which the rule decides; the body waits until so many requests wait for it."""
    connection = await asyncpg.connect(management.settings.database_url.replace("+asyncpg", ""))
    name = f"administrators {management.tenant_id}"

    async def wait_for(count: int) -> None:
        async with asyncio.timeout(WAIT_S):
            while await connection.fetchval(WAITING, name) < count:  # noqa: ASYNC110 - seen from outside only
                await asyncio.sleep(0.01)

    try:
        await connection.execute("SELECT pg_advisory_lock(hashtext($1))", name)
        yield wait_for
    finally:
        await connection.close()


async def test_of_two_changes_at_once_that_leave_each_other_s_administrator_one_is_refused(company: Company) -> None:
    """Both have changed their rows, and seen that the other administrator is left, before either commits."""
    await company.sign_ins.connect()
    user = await company.administrator_there()
    closing_ada = company.change(domains=[company.domain])
    ending_the_other = company.request("PATCH", f"users/{user}/is-suspended", {"isSuspended": True})
    async with held_back(company.management) as wait_for:
        tasks = [asyncio.create_task(each) for each in (closing_ada, ending_the_other)]
        await wait_for(len(tasks))
    answers = await asyncio.gather(*tasks)
    assert [refusal(each) for each in answers if not each.is_success] == [LAST]
    assert sum(each.is_success for each in answers) == 1
