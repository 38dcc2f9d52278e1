"""Where a browser is sent: redirect URIs, and no open redirect at any page (RFC 9700 section 4.1, 4.11)."""

from __future__ import annotations

import pytest

from tests.support.at_a_browser import PASSWORD, Person, callback, heading, is_signed_in
from tests.support.authorizing import REDIRECT_URI
from tests.support.world import Client, World


@pytest.fixture(scope="module")
def native(world: World) -> Client:
    """An application on people's own machines."""
    metadata = {"redirectUris": ["http://127.0.0.1/cb"]}
    created = world.management.applications.create(name="Native", type="Native", oidc_client_metadata=metadata)
    return Client(created.id)


class TestRedirectUris:
    """RFC 9700 section 4.1: where a code may go."""

    @pytest.mark.parametrize(
        "redirect_uri",
        [
            "https://app.example.com/callback/",
            "https://app.example.com/callback/../evil",
            "https://app.example.com/callback%2f..%2fevil",
            "https://app.example.com/callback%23",
            "https://app.example.com/callback%00",
            "https://app.example.com/callback\t",
            "https://app.example.com/callback;x",
            "https://app.example.com/CALLBACK",
            "https://APP.example.com/callback",
            "https://app.example.com:443/callback",
            "https://app.example.com./callback",
            "https://app.example.com\\@evil.example.com/callback",
            "https://app.example.com%40evil.example.com/callback",
            "https://evil.example.com/?https://app.example.com/callback",
            "https://evil.example.com#https://app.example.com/callback",
            "https://app。example.com/callback",
            "https:app.example.com/callback",
            "http://app.example.com/callback",
            " https://app.example.com/callback",
            "https://app.example.com/callback https://evil.example.com",
            "data:text/html,x",
            "",
        ],
    )
    @pytest.mark.parametrize("prompt", ["login", "none"])
    def test_neither_a_code_nor_an_error_goes_anywhere_else(
        self, signed_in: Person, ours: Client, redirect_uri: str, prompt: str
    ) -> None:
        answer = signed_in.authorize(ours, redirect_uri=redirect_uri, prompt=prompt)
        assert (answer.status_code, "Location" in answer.headers) == (400, False)
        assert heading(answer) == "This did not work"

    @pytest.mark.parametrize("evil_first", [True, False])
    def test_two_redirect_uris_are_refused(self, signed_in: Person, ours: Client, evil_first: bool) -> None:
        both = ["https://evil.example.com/", REDIRECT_URI]
        answer = signed_in.authorize(ours, redirect_uri=both if evil_first else both[::-1])
        assert (answer.status_code, "Location" in answer.headers) == (400, False)

    @pytest.mark.parametrize(
        "redirect_uri",
        [
            "http://127.0.0.1:1@evil.example.com/cb",
            "http://127.0.0.1:1.evil.example.com/cb",
            "http://127.0.0.1:1#@evil.example.com/cb",
            "http://127.0.0.1:1\\@evil.example.com/cb",
            "http://127.0.0.1:1/cb?x=1",
            "http://127.0.0.1:1/../cb",
            "http://127.0.0.1:99999/cb",
            "http://127.0.0.1:/cb",
            "http://127.0.0.2:1/cb",
            "http://localhost:1/cb",
            "http://0.0.0.0:1/cb",
            "http://[::1]:1/cb",
            "https://127.0.0.1:1/cb",
        ],
    )
    def test_only_the_loopback_port_is_free(self, signed_in: Person, native: Client, redirect_uri: str) -> None:
        """RFC 8252 section 7.3: only the port of a native application's loopback address."""
        good = signed_in.authorize(native, redirect_uri="http://127.0.0.1:49152/cb")
        assert good.headers["Location"].startswith("http://127.0.0.1:49152/cb?code=")
        answer = signed_in.authorize(native, redirect_uri=redirect_uri)
        assert (answer.status_code, "Location" in answer.headers) == (400, False)


class TestOpenRedirects:
    """RFC 9700 section 4.11: the service never redirects to an address of the attacker's choice."""

    @pytest.mark.parametrize(
        "headers",
        [
            {"Host": "evil.example.com"},
            {"X-Forwarded-Host": "evil.example.com", "X-Forwarded-Proto": "https"},
            {"Forwarded": "host=evil.example.com;proto=https"},
            {"X-Original-URL": "//evil.example.com/"},
        ],
    )
    def test_our_own_addresses_come_from_the_settings(
        self, world: World, victim: Person, ours: Client, headers: dict[str, str]
    ) -> None:
        """GHSA-7wfc-4796-gmg5."""
        victim.browser.headers.update(headers)
        answer = victim.authorize(ours)
        assert answer.headers["Location"].startswith(f"{world.stack.base_url}/sign-in?")

    def test_the_pages_ignore_an_address_in_a_form(self, victim: Person, partner: Client) -> None:
        """The redirect is that of the validated request, whatever else is sent."""
        evil = dict.fromkeys(("redirect_uri", "return_to", "next", "continue", "url"), "https://evil.example.com/")
        page = victim.follow(victim.authorize(partner))
        consent = victim.follow(victim.send(page, identifier=victim.username, password=PASSWORD, **evil))
        assert "code" in callback(victim.send(consent, decision="allow", **evil))

    @pytest.mark.parametrize(
        "target",
        [
            f"{REDIRECT_URI}/bye/",
            f"{REDIRECT_URI}/bye?next=https://evil.example.com",
            f"{REDIRECT_URI}/bye#x",
            f"{REDIRECT_URI}/bye%2e",
            "https://app.example.com@evil.example.com/callback/bye",
            "https://app.example.com.evil.example.com/callback/bye",
            "//evil.example.com",
            "javascript:alert(1)",
        ],
    )
    def test_signing_out_does_not_redirect_elsewhere(
        self, victim: Person, ours: Client, partner: Client, target: str
    ) -> None:
        """With a hint, without one, and with a form whose fields were changed."""
        id_token = victim.redeem(ours, *victim.code(ours))["id_token"]
        end = "/oidc/session/end"
        page = victim.browser.get(end, params={"client_id": ours.id, "post_logout_redirect_uri": f"{REDIRECT_URI}/bye"})
        answers = [
            victim.browser.get(end, params={"client_id": ours.id, "post_logout_redirect_uri": target}),
            victim.browser.get(end, params={"id_token_hint": id_token, "post_logout_redirect_uri": target}),
            victim.browser.get(end, params={"post_logout_redirect_uri": f"{REDIRECT_URI}/bye"}),
            victim.browser.get(end, params={"client_id": partner.id, "id_token_hint": id_token}),
            victim.send(page, post_logout_redirect_uri=target),
        ]
        assert [(answer.status_code, "Location" in answer.headers) for answer in answers] == [(400, False)] * 5
        assert is_signed_in(victim, ours)
