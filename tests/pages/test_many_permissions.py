"""A sign-in with as many permissions as an application may have to list, from the request to the tokens."""

from __future__ import annotations

import re
import secrets

import pytest

from tests.support.at_a_browser import Person, application, callback, heading
from tests.support.authorizing import REDIRECT_URI, Verifier
from tests.support.world import World

pytestmark = pytest.mark.heavy

STATE = "/orders?page=2&" * 546  # 8,190 bytes, each of which may be sent as three


def test_300_permissions_of_128_characters_are_consented_to_and_issued_in_parts(world: World) -> None:
    mark, api, person = secrets.token_hex(4), world.management, Person(world)
    names = [f"{mark}:{number:03}:".ljust(128, ":") for number in range(300)]
    resource = api.resources.create("Many permissions", f"https://{mark}.example.com")
    ids = [api.resources.create_scope(resource.id, name).id for name in names]
    api.users.assign_roles(person.user_id, [api.roles.create(f"all {mark}", "", "User", ids).id])
    world.caught_up()
    partner, verifier = application(world, "SPA", third_party=True), Verifier()
    asked = {"scope": " ".join(["openid", "offline_access", *names]), "resource": resource.indicator, "state": STATE}

    page = person.follow(person.follow(person.post_authorization(partner, verifier=verifier, **asked)))
    consent = person.follow(person.sign_in(page))
    assert heading(consent) == "Allow access?"
    assert re.findall(f"<bdi>({mark}[^<]+)</bdi>", consent.text) == names
    back = callback(person.send(consent, decision="allow"))
    assert back["state"] == STATE

    client = {"client_id": partner.id}
    code = {"code": back["code"], "redirect_uri": REDIRECT_URI, "code_verifier": verifier.secret}
    tokens = world.stack.token_request({"grant_type": "authorization_code", **client, **code}).json()
    refresh = {"grant_type": "refresh_token", **client, "resource": resource.indicator}
    whole = world.stack.token_request({**refresh, "refresh_token": tokens["refresh_token"]})
    assert (whole.status_code, whole.json()["error"]) == (400, "invalid_scope")
    for part in (names[:80], names[220:]):
        tokens = world.stack.token_request(
            {**refresh, "refresh_token": tokens["refresh_token"], "scope": " ".join(part)}
        ).json()
        assert tokens["scope"].split() == part
    silent = callback(person.follow(person.post_authorization(partner, prompt="none", **asked)))
    assert silent["state"] == STATE
    assert "code" in silent
