"""A person at a simulated browser: cookies, forms and redirects over HTTP."""

from __future__ import annotations

import re
import secrets
from html import unescape
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2 as httpx

from tests.support.authorizing import REDIRECT_URI, Verifier
from tests.support.waiting import WAIT_S
from tests.support.world import Client, World

PASSWORD = "unlike any documented example"


class Form(HTMLParser):
    """The first form of a page: its target and its values."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.action = ""
        self.values: dict[str, str] = {}
        self._done = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        if tag == "form" and not self.action:
            self.action = named["action"]
        elif tag == "input" and self.action and not self._done and named.get("type") not in {"checkbox", "search"}:
            self.values[named["name"]] = named.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        self._done |= tag == "form"


def password_sent(url: str, client_id: str, username: str) -> httpx.Response:
    """Begin a sign-in at a replica for a public client; return the answer to the password, or the first failure."""
    asked = {
        "client_id": client_id,
        "redirect_uri": REDIRECT_URI,
        "response_type": "code",
        "scope": "openid",
        "code_challenge": Verifier().challenge,
        "code_challenge_method": "S256",
    }
    with httpx.Client(base_url=url, timeout=WAIT_S) as browser:
        begun = browser.get("/oidc/auth", params=asked)
        if begun.status_code != 303:
            return begun
        there = urlsplit(begun.headers["Location"])
        page = browser.get(f"{there.path}?{there.query}")
        form = Form(page.text)
        if not form.action:
            return page
        return browser.post(form.action, data={**form.values, "identifier": username, "password": PASSWORD})


class Person:
    """A user with a user name, a password and a browser with its own cookies."""

    def __init__(self, world: World, user_id: str | None = None) -> None:
        self.world = world
        self.username = f"person_{secrets.token_hex(5)}"
        created = world.management.users.create(username=self.username, password=PASSWORD, name="Ada Lovelace")
        self.user_id = created.id
        world.stack.recorder.keep(PASSWORD, "password")
        self.browser = self.new_browser()

    def new_browser(self) -> httpx.Client:
        return httpx.Client(base_url=self.world.stack.base_url, timeout=30)

    def authorize(self, client: Client, *, verifier: Verifier | None = None, **changes: Any) -> httpx.Response:
        """Send a valid authorization request with these changes; None leaves a parameter out."""
        return self.browser.get("/oidc/auth", params=self._request(client, verifier, changes))

    def post_authorization(self, client: Client, *, verifier: Verifier | None = None, **changes: Any) -> httpx.Response:
        """Send the same as a form of another site, which comes without cookies (``SameSite=Lax``)."""
        with self.new_browser() as without_cookies:
            without_cookies.headers.update(self.browser.headers)
            return without_cookies.post("/oidc/auth", data=self._request(client, verifier, changes))

    def _request(self, client: Client, verifier: Verifier | None, changes: dict[str, Any]) -> dict[str, Any]:
        parameters = {
            "client_id": client.id,
            "redirect_uri": REDIRECT_URI,
            "response_type": "code",
            "scope": "openid profile offline_access read:things",
            "resource": self.world.resource,
            "state": "s-1",
            "nonce": "n-1",
            "code_challenge": (verifier or Verifier()).challenge,
            "code_challenge_method": "S256",
            **changes,
        }
        return {name: value for name, value in parameters.items() if value is not None}

    def follow(self, answer: httpx.Response) -> httpx.Response:
        """Follow a redirect to one of our pages; the page that asks for a factor comes without one."""
        if asks_for_factor(answer):
            return answer
        assert answer.status_code == 303, answer.text
        return self.browser.get(answer.headers["Location"])

    def send(self, page: httpx.Response, **values: Any) -> httpx.Response:
        """Send the form of a page with these values."""
        form = Form(page.text)
        return self.browser.post(form.action, data={**form.values, **values})

    def sign_in(self, page: httpx.Response, *, password: str = PASSWORD) -> httpx.Response:
        """Fill in the sign-in page."""
        return self.send(page, identifier=self.username, password=password)

    def cancel(self, page: httpx.Response) -> httpx.Response:
        """Press the cancel button of the sign-in page."""
        return self.browser.post("/sign-in/cancel", data=Form(page.text).values)

    def go(self, url: str) -> str:
        """Open a URL and agree to every page; return the URL at which the browser leaves our pages."""
        answer = self.browser.get(url)
        while True:
            if answer.has_redirect_location:
                location = answer.headers["Location"]
                if urlsplit(location).netloc not in {"", urlsplit(self.world.stack.base_url).netloc}:
                    return location
                answer = self.browser.get(location)
            elif answer.url.path == "/sign-in":
                answer = self.sign_in(answer)
            else:
                assert answer.status_code == 200, answer.text
                answer = self.send(answer, decision="allow")

    def code(self, client: Client, **changes: Any) -> tuple[str, Verifier]:
        """Sign in and return the code."""
        verifier = Verifier()
        answer = self.authorize(client, verifier=verifier, **changes)
        if "/sign-in" in answer.headers["Location"]:
            answer = self.sign_in(self.follow(answer))
        return callback(answer)["code"], verifier

    def redeem(self, client: Client, code: str, verifier: Verifier) -> dict[str, Any]:
        """Redeem the code as the client, and return the whole answer."""
        form = {
            "grant_type": "authorization_code",
            "client_id": client.id,
            "code": code,
            "redirect_uri": REDIRECT_URI,
            "code_verifier": verifier.secret,
        }
        answer = self.world.stack.token_request(form)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())


def callback(answer: httpx.Response, redirect_uri: str = REDIRECT_URI) -> dict[str, str]:
    """Return the parameters that came back to the client."""
    assert answer.status_code == 303, answer.text
    location = answer.headers["Location"]
    assert location.startswith(redirect_uri), location
    return dict(parse_qsl(urlsplit(location).query))


def asks_for_factor(answer: httpx.Response) -> bool:
    """Return whether a page asks for another factor."""
    return answer.status_code == 200 and heading(answer) == "Confirm that it is you"


def heading(answer: httpx.Response) -> str:
    """Return the heading of a page."""
    match = re.search(r"<h1>(.*?)</h1>", answer.text, re.DOTALL)
    assert match is not None, answer.text
    return unescape(match[1])


def problem(answer: httpx.Response) -> str:
    """Return what a page says went wrong."""
    (said,) = re.findall(r'role="alert" id="problem">(.*?)</p>', answer.text, re.DOTALL)
    return unescape(" ".join(said.split()))


def application(
    world: World, kind: Any, *, third_party: bool = False, name: str = "Orders & <more>", **metadata: Any
) -> Client:
    """Create an application that a person can sign in to."""
    created = world.management.applications.create(
        name=name,
        type=kind,
        is_third_party=third_party,
        oidc_client_metadata={"redirectUris": [REDIRECT_URI], "postLogoutRedirectUris": [f"{REDIRECT_URI}/bye"]},
        **metadata,
    )
    return Client(created.id)


def plant(browser: httpx.Client, name: str, value: str) -> None:
    """Put a cookie into a browser, or replace it, as if the services had set it."""
    browser.cookies.set(name, value, domain="localhost.local")  # what http.cookiejar calls localhost


def is_signed_in(person: Person, client: Client) -> bool:
    """Tell whether the browser gets a code without being asked anything."""
    return "code" in callback(person.authorize(client, prompt="none"))
