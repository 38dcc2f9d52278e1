"""People who sign in at the provider of a connector: who gets a user, who is told to link, and who is refused."""

import secrets
from collections.abc import AsyncIterator

import nats
import pytest_asyncio

from tests.support.management_api import Management
from tests.support.provider import Provider
from tests.support.provider_sign_ins import ProviderPages

DOMAIN = "people.test"


@pytest_asyncio.fixture
async def pages(management: Management) -> AsyncIterator[ProviderPages]:
    client = await nats.connect(management.addresses.token_nats_url, inbox_prefix="_INBOX_token")
    with Provider() as provider:
        pages = ProviderPages(management, client, provider)
        yield pages
        if pages.connector:
            await management.client.delete(f"/api/sso-connectors/{pages.connector}")
    await client.close()


async def test_the_first_sign_in_makes_a_user_and_the_next_one_finds_it(pages: ProviderPages) -> None:
    await pages.connect(domains=["People.Test"], groupsClaim="groups")
    name = secrets.token_hex(4)
    person = {
        "sub": name,
        "name": "Ada Archer",
        "email": f"{name}@people.test",
        "email_verified": True,
        "groups": ["staff", "admins", "staff", "x" * 256],
    }
    first = await pages.signed_in(**person)
    user = await pages.user(first.user_id)
    assert first.is_new
    assert (user["name"], user["primaryEmail"], user["isEmailVerified"], user["hasPassword"]) == (
        "Ada Archer",
        person["email"],
        True,
        False,
    )
    again = await pages.signed_in(**person)
    assert (again.user_id, again.is_new) == (first.user_id, False)
    assert again.revision > first.revision
