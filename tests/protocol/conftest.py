"""A user with every claim, and the member that requests organization tokens."""

from __future__ import annotations

import time

import pytest

from tests.support.organization_tokens import Caller
from tests.support.world import World

PROFILE = {
    "familyName": "Lovelace",
    "givenName": "Augusta Ada",
    "middleName": "King",
    "nickname": "Ada",
    "preferredUsername": "countess",
    "profile": "https://example.com/ada",
    "website": "https://ada.example.com",
    "gender": "female",
    "birthdate": "1815-12-10",
    "zoneinfo": "Europe/London",
    "locale": "en-GB",
    "address": {
        "formatted": "12 St James's Square\nLondon SW1Y 4JH",
        "streetAddress": "12 St James's Square",
        "locality": "London",
        "region": "Greater London",
        "postalCode": "SW1Y 4JH",
        "country": "GB",
    },
    "shoeSize": "36",
}


@pytest.fixture(params=["exchange", "client credentials"])
def caller(world: World, request: pytest.FixtureRequest) -> Caller:
    return Caller(world, request.param)


@pytest.fixture
def person(world: World) -> str:
    """The id of a user with every claim."""
    return world.management.users.create(
        username=f"u{time.time_ns()}",
        primary_email=f"u{time.time_ns()}@example.com",
        primary_phone=f"+49151{str(time.time_ns())[-8:]}",
        name="Ada Lovelace",
        avatar="https://example.com/ada.png",
        profile=PROFILE,
    ).id
