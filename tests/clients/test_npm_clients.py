"""Unmodified clients from npm: each runs every flow once (javascript/*.mjs), with a user at a browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.at_a_browser import Person
from tests.support.authorizing import REDIRECT_URI
from tests.support.conversation import NODE, converse
from tests.support.world import Client, World

pytestmark = pytest.mark.clients


@pytest.mark.parametrize("program", ["openid_client.mjs", "oauth4webapi.mjs"])
def test_a_client_completes_every_flow(
    world: World, npm_packages: Path, application: Client, person: Person, goodbye: str, program: str
) -> None:
    seen = converse(
        [NODE, npm_packages / program],
        person,
        ISSUER=world.stack.issuer,
        CLIENT_ID=application.basic[0],
        CLIENT_SECRET=application.basic[1],
        MACHINE_ID=world.machine.basic[0],
        MACHINE_SECRET=world.machine.basic[1],
        REDIRECT_URI=REDIRECT_URI,
        GOODBYE=goodbye,
        RESOURCE=world.resource,
        SUBJECT_TOKEN=world.subject_token(),
    )
    assert seen == {
        "sub": person.user_id,
        "name": "Ada Lovelace",
        "refreshed": "read:things write:things",
        "introspected": [True, person.user_id],
        "impersonated": [world.customer, {"sub": person.user_id}],
        "afterRevocation": {"active": False},
        "refused": "invalid_grant",
        "machine": [world.machine.id, "read:things"],
        "goodbye": True,
    }
