"""What a client of people knows: the sign-ins under way, who is signed in, which tokens there are. No I/O.

``IdentityClient`` (threads) and ``AsyncIdentityClient`` (tasks) drive the same steps over it.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec

from stead import _http
from stead.errors import SignInRequired
from stead.token_endpoint import TokenResponse

_ORGANIZATIONS: Final = ":scope:organizations"
_RENEW_AHEAD_S: Final = 30.0
_MAX_SIGN_INS: Final = 16
_ANSWER: Final = frozenset({"code", "state", "iss", "error", "error_description"})


class Storage(Protocol):
    """Keeps texts by key, for one person: a session of a web framework, a file of a native application.

    What is stored are secrets: refresh tokens and access tokens. One client at a time may use it.
    """

    def get(self, key: str) -> str | None:
        """Return what was stored; None if nothing was."""

    def set(self, key: str, value: str) -> None:
        """Store a text."""

    def remove(self, key: str) -> None:
        """Forget a text, if there is one."""


class MemoryStorage:
    """Keeps texts as long as the process runs."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def get(self, key: str) -> str | None:
        """Return what was stored; None if nothing was."""
        return self._texts.get(key)

    def set(self, key: str, value: str) -> None:
        """Store a text."""
        self._texts[key] = value

    def remove(self, key: str) -> None:
        """Forget a text, if there is one."""
        self._texts.pop(key, None)


class SignIn(msgspec.Struct, frozen=True):
    """One sign-in under way, by its ``state``."""

    code_verifier: str
    nonce: str
    redirect_uri: str


class StoredToken(msgspec.Struct, frozen=True):
    """An access token and when it expires, in seconds since the epoch."""

    access_token: str
    expires_at: float


class SignedIn(msgspec.Struct, frozen=True):
    """Who is signed in, and what there is of them.

    Attributes:
        claims: Of the ID token.
        tokens: By target; see ``target_key``.
    """

    id_token: str
    claims: dict[str, Any]
    refresh_token: str | None
    tokens: dict[str, StoredToken]

    def __repr__(self) -> str:
        return f"SignedIn({self.claims.get('sub')!r})"


_encode: Final = msgspec.json.Encoder().encode


class ClientState:
    """The state of one client for one person, in a storage.

    Whatever reads it in order to write it does both under one lock, which is never held while anybody is waited for. So
    what a request gave may meet another state than the request was made in: it is kept only if the sign-in that it
    belongs to is still there, known by its refresh token.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        client_id: str,
        scopes: Iterable[str],
        resources: Iterable[str],
        storage: Storage,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.endpoint = _http.checked_endpoint(endpoint)
        self.issuer = f"{self.endpoint}/oidc"
        self.client_id = client_id
        self.scopes = tuple(dict.fromkeys(("openid", "offline_access", "profile", *scopes)))
        namespaces = [scope.removesuffix(_ORGANIZATIONS) for scope in self.scopes if scope.endswith(_ORGANIZATIONS)]
        reserved = [f"{namespace}:resource:organizations" for namespace in namespaces]
        self.resources = tuple(dict.fromkeys((*resources, *reserved)))
        self.clock = clock
        self._storage = storage
        self._lock = threading.Lock()
        whose = f"{self.endpoint}\n{client_id}"
        self._key = f"identity:{hashlib.sha256(whose.encode()).hexdigest()[:32]}"

    def begin(self, redirect_uri: str, *, prompt: str | None, login_hint: str | None) -> str:
        """Return where to send the person; remember what the answer must fit."""
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        with self._lock:
            sign_ins = dict(list(self._sign_ins().items())[-_MAX_SIGN_INS + 1 :])
            sign_ins[state] = SignIn(verifier, nonce, redirect_uri)
            self._storage.set(f"{self._key}:sign-ins", _encode(sign_ins).decode())
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "client_id": self.client_id,
            "redirect_uri": redirect_uri,
            "response_type": "code",
            "scope": " ".join(self.scopes),
            "resource": list(self.resources),
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        query |= {name: value for name, value in (("prompt", prompt), ("login_hint", login_hint)) if value}
        return f"{self.issuer}/auth?{urlencode(query, doseq=True)}"

    def answered(self, url: str) -> tuple[SignIn, str]:
        """Return the sign-in that a callback belongs to, and its code. It cannot be answered twice.

        Raises:
            SignInRequired: The service refused, or the answer is not to a sign-in of this client.
        """
        received = parse_qsl(urlsplit(url).query, keep_blank_values=True)
        parameters = dict(received)
        if len([name for name, _ in received if name in _ANSWER]) != len(_ANSWER & parameters.keys()):
            raise SignInRequired("repeated_parameter", "RFC 6749 section 3.1: none is included more than once")
        with self._lock:
            sign_ins = self._sign_ins()
            sign_in = sign_ins.pop(parameters.get("state", ""), None)
            if sign_in is None or not _is_same_address(url, sign_in.redirect_uri):
                raise SignInRequired("unknown_state", "this is not the answer to a sign-in that was begun here")
            self._storage.set(f"{self._key}:sign-ins", _encode(sign_ins).decode())
        if parameters.get("iss") != self.issuer:  # RFC 9207 section 2.4: an answer of another server is none
            raise SignInRequired("wrong_issuer", "the answer is not this issuer's")
        if "code" not in parameters:
            raise SignInRequired(parameters.get("error", "no_code"), parameters.get("error_description", ""))
        return sign_in, parameters["code"]

    def signed_in(self) -> SignedIn:
        """Return who is signed in.

        Raises:
            SignInRequired: Nobody is.
        """
        stored = self._storage.get(f"{self._key}:signed-in")
        if stored is None:
            raise SignInRequired("not_signed_in")
        return msgspec.json.decode(stored, type=SignedIn)

    def is_signed_in(self) -> bool:
        """Tell whether somebody is signed in, as far as this side knows."""
        return self._storage.get(f"{self._key}:signed-in") is not None

    def usable_token(self, target: str) -> str | None:
        """Return a stored token for a target that still lasts a while."""
        token = self.signed_in().tokens.get(target)
        return token.access_token if token and token.expires_at - _RENEW_AHEAD_S > self.clock() else None

    def sign_in(self, response: TokenResponse, *, target: str, claims: Mapping[str, Any], requested_at: float) -> None:
        """Remember who has signed in, in the place of whoever was; other sign-ins may still be under way."""
        token = StoredToken(response.access_token, requested_at + response.expires_in)
        signed_in = SignedIn(response.id_token or "", dict(claims), response.refresh_token, {target: token})
        with self._lock:
            self._keep(signed_in)

    def renew(
        self,
        before: SignedIn,
        response: TokenResponse,
        *,
        target: str,
        claims: Mapping[str, Any],
        requested_at: float,
    ) -> bool:
        """Remember what a refresh gave; False if somebody has signed out or in meanwhile: then it is of no use.

        Args:
            before: Who was signed in when it was asked for.
            response: What it gave.
            target: What the access token is for.
            claims: Of the newest ID token.
            requested_at: Seconds since the epoch.
        """
        token = StoredToken(response.access_token, requested_at + response.expires_in)
        with self._lock:
            if not self._is_still(before):
                return False
            self._keep(
                SignedIn(
                    id_token=response.id_token or before.id_token,
                    claims=dict(claims),
                    refresh_token=response.refresh_token or before.refresh_token,
                    tokens=self.signed_in().tokens | {target: token},
                )
            )
            return True

    def end(self, before: SignedIn) -> bool:
        """Forget who is signed in; False if it is another sign-in by now: then it stays."""
        with self._lock:
            if self.is_signed_in() and not self._is_still(before):
                return False
            self._storage.remove(f"{self._key}:signed-in")
            return True

    def drop_token(self, target: str) -> None:
        """Forget the token for a target.

        Raises:
            SignInRequired: Nobody is signed in.
        """
        with self._lock:
            signed_in = self.signed_in()
            tokens = {key: token for key, token in signed_in.tokens.items() if key != target}
            self._keep(msgspec.structs.replace(signed_in, tokens=tokens))

    def target_key(self, resource: str | None, organization_id: str | None) -> str:
        """Return the key of tokens for a target: with everything that makes two tokens different (lesson L6)."""
        return "\n".join((resource or "", organization_id or "", " ".join(sorted(self.scopes))))

    def sign_out(self, post_logout_redirect_uri: str | None) -> str:
        """Forget everybody and everything; return where to send the person to sign out there too."""
        query = {"client_id": self.client_id}
        with self._lock:
            if self.is_signed_in():
                query["id_token_hint"] = self.signed_in().id_token
            self._storage.remove(f"{self._key}:signed-in")
            self._storage.remove(f"{self._key}:sign-ins")
        if post_logout_redirect_uri:
            query["post_logout_redirect_uri"] = post_logout_redirect_uri
        return f"{self.issuer}/session/end?{urlencode(query)}"

    def _is_still(self, before: SignedIn) -> bool:
        return self.is_signed_in() and self.signed_in().refresh_token == before.refresh_token

    def _keep(self, signed_in: SignedIn) -> None:
        self._storage.set(f"{self._key}:signed-in", _encode(signed_in).decode())

    def _sign_ins(self) -> dict[str, SignIn]:
        stored = self._storage.get(f"{self._key}:sign-ins")
        return msgspec.json.decode(stored, type=dict[str, SignIn]) if stored else {}


def _is_same_address(url: str, redirect_uri: str) -> bool:
    """Tell whether a callback came to the redirect URI; its host may be named otherwise behind a proxy."""
    return urlsplit(url).path == urlsplit(redirect_uri).path
