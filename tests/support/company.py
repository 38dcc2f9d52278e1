"""A company whose people sign in at an OpenID provider of its own, through a connector, over HTTP."""

from __future__ import annotations

import asyncio
import secrets
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self
from urllib.parse import parse_qsl, urlencode, urlsplit

import asyncpg
import httpx2 as httpx

from tests.support.at_a_browser import Form, Person
from tests.support.provider import CLIENT, SECRET, Provider
from tests.support.waiting import eventually
from tests.support.world import Client, World


class Connection:
    """A connector to a provider; a context manager that deletes it, since it changes everyone's sign-in page.

    Attributes:
        issuer: The provider.
        connector: The connector's id.
        domain: Of the addresses of its people.
    """

    issuer: str
    connector: str

    def __init__(self, world: World, client: Client, **members: Any) -> None:
        self.world = world
        self.client = client
        self.domain = f"{secrets.token_hex(5)}.test"
        self._members = members
        access = world.stack.credentials.management_api
        form = {"grant_type": "client_credentials", "resource": access.resource, "scope": "all"}
        answer = world.stack.token_request(form, auth=(access.client_id, access.client_secret))
        self._authorization = {"Authorization": f"Bearer {answer.json()['access_token']}"}

    def connect(self, **config: Any) -> None:
        """Create the connector."""
        members = {
            "providerName": "OIDC",
            "connectorName": f"Provider {secrets.token_hex(4)}",
            "config": {"issuer": self.issuer, **config},
            "domains": [self.domain],
            **self._members,
        }
        created = self.request("POST", "/api/sso-connectors", **members)
        assert created.status_code == 201, created.text
        self.connector = str(created.json()["id"])

    def __exit__(self, *_: object) -> None:
        self.request("DELETE", f"/api/sso-connectors/{self.connector}")
        self.until(is_open=False)

    def request(self, method: str, path: str, **body: Any) -> httpx.Response:
        return self.world.stack.http.request(method, path, headers=self._authorization, json=body or None)

    def change(self, **members: Any) -> None:
        answer = self.request("PATCH", f"/api/sso-connectors/{self.connector}", **members)
        assert answer.status_code == 200, answer.text

    def until(self, *, is_open: bool) -> None:
        """Wait until token-service knows whether it is open: then it sends browsers there."""
        asked: dict[str, Any] = {"direct_sign_in": f"sso:{self.connector}"}
        with Employee(self).browser as browser:
            employee = Employee(self, browser)

            def is_sent() -> bool:
                # Each address has a limit, where there are proxies.
                browser.headers["X-Forwarded-For"] = f"2001:db8:ffff:{secrets.randbelow(2**16):x}::1"
                answer = employee.authorize(self.client, **asked)
                return answer.headers["Location"].startswith(self.issuer)

            eventually(lambda: is_sent() is is_open)

    def address(self, name: str) -> str:
        return f"{name}@{self.domain}"


class Company(Connection):
    """A connector to a provider of our own, which does what a test says."""

    def __init__(self, world: World, client: Client, **members: Any) -> None:
        super().__init__(world, client, **members)
        self.provider = Provider()

    def __enter__(self) -> Self:
        self.provider.__enter__()
        self.issuer = self.provider.issuer
        self.connect(clientId=CLIENT, clientSecret=SECRET)
        self.until(is_open=True)
        return self

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.provider.__exit__()

    def opened_long_ago(self) -> None:
        """Let older sign-ins count, too."""

        async def update() -> None:
            database = await asyncpg.connect(self.world.stack.addresses.management_database_url.replace("+asyncpg", ""))
            try:
                await database.execute("UPDATE connectors SET closed_at = 1 WHERE id = $1", self.connector)
            finally:
                await database.close()

        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, update()).result()
        self.change(sessionMaxAgeS=3600)  # publishes it, too

    def hire(self, **claims: Any) -> Employee:
        """Let someone new sign in at the provider from now on."""
        name = secrets.token_hex(5)
        self.provider.person = {"sub": name, "email": self.address(name), "email_verified": True, **claims}
        return Employee(self)


class Employee(Person):
    """A person with a browser, and an account at the provider alone."""

    def __init__(self, company: Connection, browser: httpx.Client | None = None) -> None:
        self.world = company.world
        self.company = company
        self.username = ""
        self.browser = browser or self.new_browser()

    def press(self, page: httpx.Response, company: Connection | None = None) -> httpx.Response:
        """Press the button of a connector on the sign-in page."""
        values = {**Form(page.text).values, "connector": (company or self.company).connector}
        return self.browser.post("/sign-in/provider", data=values)

    def begin(self, client: Client, **changes: Any) -> str:
        """Return where the provider sends the browser after a sign-in for a new authorization request."""
        answer = self.authorize(client, direct_sign_in=f"sso:{self.company.connector}", **changes)
        return self.at_provider(answer)

    def at_provider(self, sent: httpx.Response) -> str:
        """Sign in at the provider that the browser is sent to; return where that sends it."""
        assert sent.status_code == 303, sent.text
        assert sent.headers["Location"].startswith(self.company.issuer), sent.headers["Location"]
        return self.sign_in_there(sent.headers["Location"])

    def sign_in_there(self, url: str) -> str:
        answer = httpx.get(url)
        assert answer.status_code == 303, answer.text
        return str(answer.headers["Location"])

    def arrive(self, url: str, **changes: str | None) -> httpx.Response:
        """Open the callback, with changed parameters, without those that are None, and the page that it leads to."""
        parts = urlsplit(url)
        parameters = {**dict(parse_qsl(parts.query)), **changes}
        query = urlencode({name: value for name, value in parameters.items() if value is not None})
        answer = self.browser.get(f"{parts.path}?{query}")
        if answer.has_redirect_location and "/sign-in" in answer.headers["Location"]:
            return self.browser.get(answer.headers["Location"])
        return answer
