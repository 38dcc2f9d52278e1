"""OpenID providers that were written elsewhere, and another system of ours, as the providers of companies."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qsl, quote, urlencode, urljoin, urlsplit

import httpx2 as httpx
from joserfc.jwk import ECKey, OKPKey, RSAKey

from tests.support.at_a_browser import Form, Person
from tests.support.authorizing import Verifier
from tests.support.company import Connection, Employee
from tests.support.processes import free_port
from tests.support.waiting import eventually
from tests.support.world import Client, World

SECRET = "s3cr3t of the client + more"
DESK, DESK_REDIRECT_URI = "desk", "https://desk.example.com/callback"


class Key(NamedTuple):
    """A key that signs, and how."""

    private: RSAKey | ECKey | OKPKey
    algorithm: str


class OtherProvider(ABC):
    """Where people of a company have their accounts.

    Attributes:
        issuer: Its issuer.
        scope: What it is asked for.
        groups_claim: The claim with the groups of a person.
        group: One of them.
    """

    issuer: str
    scope: str
    groups_claim: str
    group: str

    @abstractmethod
    def register(self, redirect_uri: str, logout_uri: str) -> tuple[str, str]:
        """Register the client; return its id and secret."""

    @abstractmethod
    def hire(self, address: str) -> Account:
        """Create an account with a verified address, in the group."""


class Account(ABC):
    """A person's account at a provider, and a browser that may be signed in there."""

    @abstractmethod
    def sign_in(self, url: str) -> str:
        """Open a page of the provider, sign in if it asks for that, and return where it sends the browser."""

    @abstractmethod
    def leave_group(self) -> None: ...


class ProviderProgram(OtherProvider):
    """A provider that runs as a program; it reads its configuration at its start, and people at each sign-in.

    Args:
        command: The program.
        keys: With which it signs, one after another.
        directory: For its configuration.

    Attributes:
        people: The claims of people, by the names with which they sign in.
    """

    scope, groups_claim, group = "openid profile email groups", "groups", "support"

    def __init__(self, command: Sequence[str | Path], keys: Iterable[Key], directory: Path) -> None:
        self._command = command
        self._keys = iter(keys)
        self._key = next(self._keys)
        self._file = directory / "provider.json"
        self._port = free_port()
        self._clients = [_client(DESK, DESK_REDIRECT_URI)]
        self._running: subprocess.Popen[bytes] | None = None
        self.people: dict[str, dict[str, Any]] = {}
        self.issuer = f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self.write()
        environment = {**os.environ, "CONFIGURATION": str(self._file)}
        self._running = running = subprocess.Popen(self._command, env=environment)

        def accepts() -> bool:
            assert running.poll() is None, f"{self._command[-1]} ended with {running.poll()}"
            with socket.socket() as connection:
                return connection.connect_ex(("127.0.0.1", self._port)) == 0

        eventually(accepts)

    def stop(self) -> None:
        """End it at once, and with it what it remembers."""
        if self._running is not None:
            self._running.kill()
            self._running.wait()

    def freeze(self) -> None:
        """Let it accept connections, and answer nothing."""
        assert self._running is not None
        self._running.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._running is not None
        self._running.send_signal(signal.SIGCONT)

    def start_with_another_key(self) -> None:
        """Start it as if it had never had the key before."""
        self._key = next(self._keys)
        self.start()

    def register(self, redirect_uri: str, logout_uri: str) -> tuple[str, str]:
        client_id = "stead"
        at_logout = {"backchannel_logout_uri": logout_uri, "backchannel_logout_session_required": True}
        self.stop()
        self._clients.append(_client(client_id, redirect_uri) | at_logout)
        self.start()
        return client_id, SECRET

    def hire(self, address: str) -> ProgramAccount:
        name = f"p{secrets.token_hex(5)}"
        self.people[name] = {"name": "Ada Lovelace", "email": address, "email_verified": True, "groups": [self.group]}
        self.write()
        return ProgramAccount(self, name)

    def write(self) -> None:
        """Write the configuration whole, since the program may be reading it."""
        clients = [{**each, "id_token_signed_response_alg": self._key.algorithm} for each in self._clients]
        keys = [self._key.private.as_dict(private=True)]
        content = {"issuer": self.issuer, "clients": clients, "keys": keys, "people": self.people}
        written = self._file.with_suffix(".new")
        written.write_text(json.dumps(content))
        written.replace(self._file)


def _client(client_id: str, redirect_uri: str) -> dict[str, Any]:
    return {"client_id": client_id, "client_secret": SECRET, "redirect_uris": [redirect_uri]}


class ProgramAccount(Account):
    """An account of a program, which asks for a name and accepts any password."""

    def __init__(self, provider: ProviderProgram, name: str) -> None:
        self._provider = provider
        self._name = name
        self.browser = httpx.Client(timeout=30)

    def leave_group(self) -> None:
        self._provider.people[self._name]["groups"] = []
        self._provider.write()

    def sign_in(self, url: str) -> str:
        return self._follow(self.browser.get(url))

    def id_token_of_desk(self) -> str:
        """Sign in to a desk, an application that has nothing to do with us, and return the ID token that it gets."""
        metadata = httpx.get(f"{self._provider.issuer}/.well-known/openid-configuration").json()
        verifier = Verifier()
        asked = {
            "response_type": "code",
            "client_id": DESK,
            "redirect_uri": DESK_REDIRECT_URI,
            "scope": "openid",
            "code_challenge": verifier.challenge,
            "code_challenge_method": "S256",
        }
        back = self.sign_in(f"{metadata['authorization_endpoint']}?{urlencode(asked)}")
        form = {
            "grant_type": "authorization_code",
            "code": dict(parse_qsl(urlsplit(back).query))["code"],
            "redirect_uri": DESK_REDIRECT_URI,
            "code_verifier": verifier.secret,
        }
        answer = httpx.post(metadata["token_endpoint"], data=form, auth=(DESK, quote(SECRET)))
        assert answer.status_code == 200, answer.text
        return str(answer.json()["id_token"])

    def sign_out(self) -> None:
        """Sign out there, and agree."""
        page = self.browser.get(f"{self._provider.issuer}/session/end")
        form = Form(page.text)
        self._follow(self.browser.post(form.action, data={**form.values, "logout": "yes"}))

    def _follow(self, answer: httpx.Response) -> str:
        """Follow redirects and send forms until the browser leaves the provider, or has reached a last page."""
        while True:
            if answer.has_redirect_location:
                url = urljoin(str(answer.url), answer.headers["Location"])
                if not url.startswith(self._provider.issuer):
                    return url
                answer = self.browser.get(url)
                continue
            assert answer.status_code == 200, answer.text
            if "<form" not in answer.text:
                return str(answer.url)
            form = Form(answer.text)
            typed = {**form.values, "login": self._name, "password": "any"}
            answer = self.browser.post(urljoin(str(answer.url), form.action), data=typed)


class OurProvider(OtherProvider):
    """Another system of ours, in a tenant of its own."""

    scope, groups_claim = "openid profile email urn:service:scope:organizations", "organizations"

    def __init__(self, world: World) -> None:
        self.world = world
        self.issuer = world.stack.issuer
        self.group = world.template.organization()

    def register(self, redirect_uri: str, logout_uri: str) -> tuple[str, str]:
        created = self.world.management.applications.create(
            name="Another system", type="Traditional", oidc_client_metadata={"redirectUris": [redirect_uri]}
        )
        return created.id, self.world.management.applications.create_secret(created.id, "first").value or ""

    def hire(self, address: str) -> OurAccount:
        account = OurAccount(self)
        self.world.management.users.update(account.person.user_id, primary_email=address, is_email_verified=True)
        self.world.template.member(self.group, account.person.user_id)
        self.world.caught_up()
        return account


class OurAccount(Account):
    """An account of another system of ours."""

    def __init__(self, provider: OurProvider) -> None:
        self._provider = provider
        self.person = Person(provider.world)

    def sign_in(self, url: str) -> str:
        return self.person.go(url)

    def leave_group(self) -> None:
        self._provider.world.template.remove_member(self._provider.group, self.person.user_id)
        self._provider.world.caught_up()


class OtherCompany(Connection):
    """A company whose people have their accounts at another provider, connected as the guide says."""

    def __init__(self, world: World, client: Client, provider: OtherProvider) -> None:
        super().__init__(world, client, groupsClaim=provider.groups_claim)
        self.provider = provider
        self.issuer = provider.issuer

    def __enter__(self) -> Self:
        self.connect(scope=self.provider.scope)
        at = self.world.stack.base_url
        client_id, secret = self.provider.register(
            f"{at}/sign-in/callback/{self.connector}", f"{at}/sign-in/backchannel-logout/{self.connector}"
        )
        self.change(config={"clientId": client_id, "clientSecret": secret})
        self.until(is_open=True)
        return self

    def hire(self) -> OtherEmployee:
        address = self.address(secrets.token_hex(4))
        return OtherEmployee(self, self.provider.hire(address), address)


class OtherEmployee(Employee):
    """A person with an account at another provider, and no browser that is signed in here."""

    def __init__(self, company: Connection, account: Account, address: str) -> None:
        super().__init__(company)
        self.account = account
        self.address = address

    def elsewhere(self) -> OtherEmployee:
        """Return the same person at another browser of ours."""
        return OtherEmployee(self.company, self.account, self.address)

    def sign_in_there(self, url: str) -> str:
        return self.account.sign_in(url)
