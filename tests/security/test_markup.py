"""Markup in names, scopes and parameters is text on every page."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser
from urllib.parse import parse_qsl, urlsplit

import httpx2 as httpx
import pytest

from tests.support.at_a_browser import Person, callback, heading
from tests.support.authorizing import REDIRECT_URI
from tests.support.world import Client, World
from token_service.sign_in.pages.assets import PASSKEY_SCRIPT, SCRIPT

ORGANIZATIONS = "urn:service:scope:organizations"
MARKUP = "\"'></title><script>alert(1)</script><img src=x onerror=alert(1)>{{7*7}}"
MARKUP_IN_A_NAME = "<svg/onload=alert(1)>"
"""Without the characters that no scope may have."""


@pytest.fixture(scope="module")
def named(world: World) -> Callable[[Person], dict[str, str]]:
    """Put markup into every name; return a function that gives the parameters to request it all."""
    management = world.management
    resource = management.resources.create(MARKUP, "https://markup.example.com/api")
    management.resources.create_scope(resource.id, "read:markup", MARKUP)
    management.resources.create_scope(resource.id, MARKUP_IN_A_NAME)
    management.organization_permissions.create("pay:markup", MARKUP)
    management.organization_permissions.create(f"{MARKUP_IN_A_NAME}2")
    organization = management.organizations.create(MARKUP)

    def of(person: Person) -> dict[str, str]:
        management.users.update(person.user_id, name=MARKUP)
        management.organizations.add_users(organization.id, [person.user_id])
        return {
            "resource": "https://markup.example.com/api",
            "scope": f"openid read:markup pay:markup {MARKUP_IN_A_NAME} {MARKUP_IN_A_NAME}2 {ORGANIZATIONS}",
            "state": MARKUP,
            "nonce": MARKUP,
            "login_hint": MARKUP,
        }

    return of


class Elements(HTMLParser):
    """What a browser finds on a page."""

    def __init__(self, page: httpx.Response) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.scripts: list[dict[str, str | None]] = []
        self.attributes: set[str] = set()
        self.feed(page.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "script":
            self.scripts.append(dict(attrs))
        else:
            self.tags.add(tag)
            self.attributes |= {name for name, _ in attrs}


class TestMarkup:
    """HTML in every field that a person, an administrator or an application can name."""

    OURS = frozenset({"html", "head", "meta", "title", "link", "body", "main", "h1", "h2", "p", "strong", "bdi", "ul"})
    CONTROLS = frozenset({"li", "section", "code", "span", "form", "input", "label", "button", "fieldset", "legend"})
    COMFORT = frozenset({"div", "a", "br", "svg", "path", "circle"})

    def harmless(self, page: httpx.Response) -> None:
        elements = Elements(page)
        assert elements.tags <= self.OURS | self.CONTROLS | self.COMFORT
        ours = [SCRIPT.address, PASSKEY_SCRIPT.address]
        assert [each.get("src") for each in elements.scripts] in ([], ours[:1], ours)
        assert not {name for name in elements.attributes if name.startswith("on") or name in {"style", "src"}}
        assert "alert(1)>{{7*7}}" not in page.text

    def test_it_is_text_on_every_page(
        self, world: World, victim: Person, named: Callable[[Person], dict[str, str]]
    ) -> None:
        created = world.management.applications.create(
            name=MARKUP,
            type="SPA",
            is_third_party=True,
            oidc_client_metadata={"redirectUris": [REDIRECT_URI], "postLogoutRedirectUris": [f"{REDIRECT_URI}/bye"]},
        )
        client = Client(created.id)
        sign_in = victim.follow(victim.authorize(client, **named(victim)))
        again = victim.send(sign_in, identifier=MARKUP, password="wrong")
        consent = victim.follow(victim.sign_in(again))
        assert heading(consent) == "Allow access?"
        sign_out = victim.browser.get(
            "/oidc/session/end",
            params={"client_id": client.id, "state": MARKUP, "post_logout_redirect_uri": f"{REDIRECT_URI}/bye"},
        )
        for page in (sign_in, again, consent, sign_out):
            assert page.status_code == 200
            assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page.text
            assert "{{7*7}}" in page.text
            self.harmless(page)
        assert consent.text.count("&lt;svg/onload=alert(1)&gt;") == 2
        back = victim.send(consent, decision="allow")
        assert callback(back)["state"] == MARKUP
        assert "<" not in back.headers["Location"]
        assert callback(victim.send(sign_out), f"{REDIRECT_URI}/bye") == {"state": MARKUP}

    @pytest.mark.parametrize("name", ["client_id", "redirect_uri", "state", "scope", "prompt", "resource", "max_age"])
    def test_it_is_not_on_an_error_page(self, signed_in: Person, ours: Client, name: str) -> None:
        answer = signed_in.authorize(ours, **{"redirect_uri": "https://evil.example.com", name: MARKUP})
        assert answer.status_code == 400
        self.harmless(answer)
        assert "alert" not in answer.text
        for path in ("/sign-in", "/consent", "/oidc/session/end"):
            self.harmless(signed_in.browser.get(path, params={name: MARKUP, "request": MARKUP}))

    @pytest.mark.parametrize(
        "state", ["a\r\nSet-Cookie: x=1", "a\nLocation: //evil.example.com", "é\u2028%0d%0a&code=x"]
    )
    def test_a_state_stays_one_value_in_the_address(self, signed_in: Person, ours: Client, state: str) -> None:
        """Response splitting, and the attacker's parameters in the answer."""
        answer = signed_in.authorize(ours, state=state)
        assert callback(answer)["state"] == state
        assert "Set-Cookie" not in answer.headers
        assert len(parse_qsl(urlsplit(answer.headers["Location"]).query)) == 3
