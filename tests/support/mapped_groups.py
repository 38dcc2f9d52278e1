"""A person who signs in at a provider, over HTTP at any replica, with groups that give roles in an organization."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2 as httpx

from stead import ManagementClient
from tests.support.authorizing import REDIRECT_URI, Verifier
from tests.support.provider import CLIENT, SECRET, Provider
from tests.support.waiting import eventually

_TIMEOUT_S = 30


class NotSignedIn(Exception):  # noqa: N818 - the answer to a sign-in, not an error of this module
    """The pages, or the token endpoint, did not let the person in."""


class MappedGroups:
    """A connector, an organization that everyone joins through it, and a role and a permission for each group.

    Attributes:
        provider: Where the person signs in.
        groups: What it will say.
        answered_at: When it last said who has signed in, by the monotonic clock.
        organization: Its id.
        roles: Their ids, by group.
        permissions: Their names, by group.
    """

    def __init__(self, management: ManagementClient, provider: Provider, *groups: str) -> None:
        self.provider = provider
        self.groups: Sequence[str] = groups
        self.answered_at = 0.0
        self._subject = secrets.token_hex(5)
        unique = secrets.token_hex(5)
        metadata = {"redirectUris": [REDIRECT_URI]}
        self._client = management.applications.create(name="Site", type="SPA", oidc_client_metadata=metadata).id
        config = {"issuer": provider.issuer, "clientId": CLIENT, "clientSecret": SECRET}
        self.connector = management.connectors.create(f"Provider {unique}", config, groups_claim="groups").id
        self.organization = management.organizations.create(f"Organization {unique}").id
        management.organizations.add_jit_connectors(self.organization, [self.connector])
        self.permissions = {group: f"{group}:{unique}" for group in groups}
        self.roles: dict[str, str] = {}
        for group, name in self.permissions.items():
            permission = management.organization_permissions.create(name).id
            role = management.organization_roles.create(f"{group} {unique}", permission_ids=[permission]).id
            management.organizations.add_jit_group(self.organization, self.connector, group, [role])
            self.roles[group] = role
        provider.token = self._id_token

    def _id_token(self, nonce: str) -> str:
        claims: dict[str, Any] = {"name": "Ada Archer", "email": "ada@example.com", "groups": list(self.groups)}
        token = self.provider.id_token(self._subject, nonce=nonce, auth_time=int(time.time()), **claims)
        self.answered_at = time.monotonic()
        return token

    def is_known(self, url: str) -> bool:
        """Return whether a replica of token-service sends browsers to the provider."""
        with httpx.Client(timeout=_TIMEOUT_S) as browser:
            return self._begin(browser, url, Verifier()).headers["Location"].startswith(self.provider.issuer)

    def organization_token(self, url: str) -> tuple[str, set[str]]:
        """Sign in until it works, and redeem the code; return an access token of the organization, and its scopes."""
        got: list[tuple[str, set[str]]] = []

        def has_signed_in() -> bool:
            with contextlib.suppress(NotSignedIn):
                got.append(self.sign_in(url).organization_token())
            return bool(got)

        eventually(has_signed_in)
        return got[0]

    def sign_in(self, url: str) -> SignedIn:
        """Sign in at a replica of token-service, in a new browser.

        Raises:
            NotSignedIn: It does not work at the moment.
        """
        verifier = Verifier()
        try:
            with httpx.Client(timeout=_TIMEOUT_S) as browser:
                answer = self._begin(browser, url, verifier)
                while not (location := answer.headers.get("Location", "")).startswith(REDIRECT_URI):
                    if not location:
                        raise NotSignedIn(f"{answer.status_code}: {answer.text}")
                    there = urlsplit(location)
                    is_ours = not location.startswith(self.provider.issuer)
                    answer = browser.get(f"{url}{there.path}?{there.query}" if is_ours else location)
        except httpx.TransportError as error:
            raise NotSignedIn(str(error)) from error
        returned = dict(parse_qsl(urlsplit(location).query))
        if "code" not in returned:
            raise NotSignedIn(location)
        form = {"client_id": self._client, "redirect_uri": REDIRECT_URI, "code": returned["code"]}
        return SignedIn(url, {**form, "code_verifier": verifier.secret, "organization_id": self.organization})

    def _begin(self, browser: httpx.Client, url: str, verifier: Verifier) -> httpx.Response:
        asked = {
            "client_id": self._client,
            "redirect_uri": REDIRECT_URI,
            "response_type": "code",
            "scope": " ".join(["openid", "urn:service:scope:organizations", *self.permissions.values()]),
            "resource": "urn:service:resource:organizations",
            "direct_sign_in": f"sso:{self.connector}",
            "code_challenge": verifier.challenge,
            "code_challenge_method": "S256",
        }
        return browser.get(f"{url}/oidc/auth", params=asked)


class SignedIn:
    """The end of a sign-in: a code, which works once."""

    def __init__(self, url: str, form: dict[str, Any]) -> None:
        self._url = url
        self._form = {"grant_type": "authorization_code", **form}

    def organization_token(self) -> tuple[str, set[str]]:
        """Redeem the code; return an access token of the organization, and its scopes.

        Raises:
            NotSignedIn: It is refused.
        """
        answer = httpx.post(f"{self._url}/oidc/token", data=self._form, timeout=_TIMEOUT_S)
        if answer.status_code != httpx.codes.OK:
            raise NotSignedIn(answer.text)
        content = answer.json()
        return content["access_token"], set(content.get("scope", "").split())
