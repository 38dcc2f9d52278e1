"""The stored state of an ``IdentityClient``: pending sign-ins, the signed-in user, and cached tokens. No I/O."""

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

from stead._transport.http import checked_base_url, issuer_at
from stead.errors import SignInRequired
from stead.sign_in.token_endpoint import TokenResponse

_ORGANIZATIONS: Final = ":scope:organizations"
_RENEW_AHEAD_S: Final = 30.0
_MAX_SIGN_INS: Final = 16
_MAX_URL_CHARS: Final = 32_000
"""As long as the edges of the service accept; other proxies may accept less."""
_ANSWER: Final = frozenset({"code", "state", "iss", "error", "error_description"})


class Storage(Protocol):
    """A key-value store of one user, such as the session of a web framework or a file of a native application.

    ::

        class SessionStorage:
            def __init__(self, session: dict[str, str]) -> None:
                self.session = session

            def get(self, key: str) -> str | None:
                return self.session.get(key)

            def set(self, key: str, value: str) -> None:
                self.session[key] = value

            def remove(self, key: str) -> None:
                self.session.pop(key, None)

    The values are secrets: refresh tokens and access tokens. Only one client at a time may use a storage.
    """

    def get(self, key: str) -> str | None:
        """Return a value; None if there is none."""

    def set(self, key: str, value: str) -> None:
        """Store a value."""

    def remove(self, key: str) -> None:
        """Remove a value; a no-op if there is none."""


class MemoryStorage:
    """A ``Storage`` in memory, for tests and short-lived programs."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}

    def get(self, key: str) -> str | None:
        """Return a value; None if there is none."""
        return self._values.get(key)

    def set(self, key: str, value: str) -> None:
        """Store a value."""
        self._values[key] = value

    def remove(self, key: str) -> None:
        """Remove a value; a no-op if there is none."""
        self._values.pop(key, None)


class SignIn(msgspec.Struct, frozen=True):
    """A pending sign-in, stored under its ``state``.

    Attributes:
        acr_values: The requested values of ``acr``, of which the ID token must meet one; empty for any.
        max_age: How long ago the sign-in may be, in seconds; None for any time.
    """

    code_verifier: str
    nonce: str
    redirect_uri: str
    acr_values: tuple[str, ...] = ()
    max_age: int | None = None


class SignInOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What an application may ask of a sign-in; see ``IdentityClient.sign_in_url``."""

    prompt: str | None = None
    login_hint: str | None = None
    acr_values: tuple[str, ...] = ()
    max_age: int | None = None

    def fields(self) -> list[tuple[str, str]]:
        """Return the parameters of the authorization request (OpenID Connect Core 1.0 section 3.1.2.1)."""
        return [
            (name, str(value))
            for name, value in (
                ("prompt", self.prompt),
                ("login_hint", self.login_hint),
                ("acr_values", " ".join(self.acr_values)),
                ("max_age", self.max_age),
            )
            if value not in (None, "")
        ]


def sign_in_options(
    prompt: str | None, *, login_hint: str | None, acr_values: str | Iterable[str], max_age: int | None
) -> SignInOptions:
    """Return the options of a sign-in; ``acr_values`` may be one string, separated by spaces."""
    values = acr_values.split() if isinstance(acr_values, str) else tuple(acr_values)
    return SignInOptions(prompt=prompt, login_hint=login_hint, acr_values=tuple(values), max_age=max_age)


class StoredToken(msgspec.Struct, frozen=True):
    """An access token and its expiry in seconds since the epoch."""

    access_token: str
    expires_at: float

    def __repr__(self) -> str:
        """Hide the token."""
        return "StoredToken(…)"


class SignedIn(msgspec.Struct, frozen=True):
    """The signed-in user and their tokens.

    Attributes:
        claims: The claims of the ID token.
        tokens: Access tokens by target; see ``ClientState.target_key``.
    """

    id_token: str
    claims: dict[str, Any]
    refresh_token: str | None
    tokens: dict[str, StoredToken]

    def __repr__(self) -> str:
        return f"SignedIn({self.claims.get('sub')!r})"


class SignInForm(msgspec.Struct, frozen=True):
    """The form by which a browser requests a sign-in, where the request is too long for a URL.

    Attributes:
        action: The address to which the browser posts it, as ``application/x-www-form-urlencoded``.
        fields: Names and values of its hidden fields, in order; ``resource`` may come several times.
    """

    action: str
    fields: tuple[tuple[str, str], ...]


_encode: Final = msgspec.json.Encoder().encode


class ClientState:
    """The state of one client, in its storage.

    Every read-modify-write holds a lock, which is never held across a request. The state may therefore change while a
    request is in flight: its result is stored only if the sign-in that it belongs to is still current, which the
    refresh token identifies.
    """

    def __init__(
        self,
        base_url: str,
        *,
        client_id: str,
        scopes: Iterable[str],
        resources: Iterable[str],
        storage: Storage,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.base_url = checked_base_url(base_url)
        self.issuer = issuer_at(base_url)
        self.client_id = client_id
        self.scopes = tuple(dict.fromkeys(("openid", "offline_access", "profile", *scopes)))
        namespaces = [scope.removesuffix(_ORGANIZATIONS) for scope in self.scopes if scope.endswith(_ORGANIZATIONS)]
        reserved = [f"{namespace}:resource:organizations" for namespace in namespaces]
        self.resources = tuple(dict.fromkeys((*resources, *reserved)))
        self.clock = clock
        self._storage = storage
        self._lock = threading.Lock()
        holder = f"{self.base_url}\n{client_id}"
        self._key = f"identity:{hashlib.sha256(holder.encode()).hexdigest()[:32]}"

    def begin(self, redirect_uri: str, options: SignInOptions) -> SignInForm:
        """Store a pending sign-in; return its authorization request as a form."""
        sign_in, form = self._requested(redirect_uri, options)
        self._keep_sign_in(sign_in, form)
        return form

    def begin_by_url(self, redirect_uri: str, options: SignInOptions) -> str:
        """Store a pending sign-in; return the address of its authorization request.

        Raises:
            ValueError: The address is too long to be sent; nothing is stored.
        """
        sign_in, form = self._requested(redirect_uri, options)
        url = f"{form.action}?{urlencode(form.fields)}"
        if len(url) > _MAX_URL_CHARS:
            raise ValueError(f"a URL of {len(url)} characters is too long for proxies: use sign_in_form")
        self._keep_sign_in(sign_in, form)
        return url

    def _keep_sign_in(self, sign_in: SignIn, form: SignInForm) -> None:
        with self._lock:
            sign_ins = dict(list(self._sign_ins().items())[-_MAX_SIGN_INS + 1 :])
            sign_ins[dict(form.fields)["state"]] = sign_in
            self._storage.set(f"{self._key}:sign-ins", _encode(sign_ins).decode())

    def _requested(self, redirect_uri: str, options: SignInOptions) -> tuple[SignIn, SignInForm]:
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        fields = (
            ("client_id", self.client_id),
            ("redirect_uri", redirect_uri),
            ("response_type", "code"),
            ("scope", " ".join(self.scopes)),
            *(("resource", resource) for resource in self.resources),
            ("state", state),
            ("nonce", nonce),
            ("code_challenge", challenge),
            ("code_challenge_method", "S256"),
            *options.fields(),
        )
        sign_in = SignIn(verifier, nonce, redirect_uri, options.acr_values, options.max_age)
        return sign_in, SignInForm(f"{self.issuer}/auth", fields)

    def answered(self, url: str) -> tuple[SignIn, str]:
        """Return the pending sign-in of a callback, and its code. A callback cannot be replayed.

        Raises:
            SignInRequired: The service refused, or this client did not begin the sign-in.
        """
        received = parse_qsl(urlsplit(url).query, keep_blank_values=True)
        parameters = dict(received)
        if len([name for name, _ in received if name in _ANSWER]) != len(_ANSWER & parameters.keys()):
            raise SignInRequired(
                "repeated_parameter", "the callback repeats a parameter, which RFC 6749 section 3.1 forbids"
            )
        with self._lock:
            sign_ins = self._sign_ins()
            sign_in = sign_ins.pop(parameters.get("state", ""), None)
            if sign_in is None or not _is_same_address(url, sign_in.redirect_uri):
                raise SignInRequired("unknown_state", "this client did not begin the sign-in")
            self._storage.set(f"{self._key}:sign-ins", _encode(sign_ins).decode())
        if parameters.get("iss") != self.issuer:  # RFC 9207 section 2.4: reject a response from another server
            raise SignInRequired("wrong_issuer", "the callback comes from another issuer")
        if "code" not in parameters:
            raise SignInRequired(parameters.get("error", "no_code"), parameters.get("error_description", ""))
        return sign_in, parameters["code"]

    def signed_in(self) -> SignedIn:
        """Return the signed-in user.

        Raises:
            SignInRequired: No user is signed in.
        """
        stored = self._storage.get(f"{self._key}:signed-in")
        if stored is None:
            raise SignInRequired("not_signed_in")
        return msgspec.json.decode(stored, type=SignedIn)

    def is_signed_in(self) -> bool:
        """Tell whether a user is signed in."""
        return self._storage.get(f"{self._key}:signed-in") is not None

    def usable_token(self, target: str) -> str | None:
        """Return a cached token for a target, unless it expires soon."""
        token = self.signed_in().tokens.get(target)
        return token.access_token if token and token.expires_at - _RENEW_AHEAD_S > self.clock() else None

    def sign_in(self, response: TokenResponse, *, target: str, claims: Mapping[str, Any], requested_at: float) -> None:
        """Store a signed-in user in place of the previous one; pending sign-ins are kept."""
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
        """Store the result of a refresh; return False if the user has signed out or in again meanwhile.

        Args:
            before: The signed-in user when the refresh was requested.
            response: The result.
            target: The target of the access token.
            claims: The claims of the latest ID token.
            requested_at: Seconds since the epoch.
        """
        token = StoredToken(response.access_token, requested_at + response.expires_in)
        with self._lock:
            if not self._is_still(before):
                return False
            unexpired = {
                key: cached for key, cached in self.signed_in().tokens.items() if cached.expires_at > requested_at
            }
            self._keep(
                SignedIn(
                    id_token=response.id_token or before.id_token,
                    claims=dict(claims),
                    refresh_token=response.refresh_token or before.refresh_token,
                    tokens=unexpired | {target: token},
                )
            )
            return True

    def end(self, before: SignedIn) -> bool:
        """Remove the signed-in user; return False, and keep it, if it belongs to another sign-in by now."""
        with self._lock:
            if self.is_signed_in() and not self._is_still(before):
                return False
            self._storage.remove(f"{self._key}:signed-in")
            return True

    def drop_token(self, target: str) -> None:
        """Remove the cached token for a target.

        Raises:
            SignInRequired: No user is signed in.
        """
        self._drop(lambda key: key == target)

    def drop_organization_tokens(self, organization_id: str) -> None:
        """Remove the cached tokens of an organization, whatever their scopes.

        Raises:
            SignInRequired: No user is signed in.
        """
        self._drop(lambda key: key.startswith(f"\n{organization_id}\n"))

    def target_key(self, resource: str | None, organization_id: str | None, scope: tuple[str, ...] = ()) -> str:
        """Return the cache key of a target: everything that distinguishes two tokens."""
        return "\n".join((resource or "", organization_id or "", " ".join(scope or sorted(self.scopes))))

    def sign_out(self, post_logout_redirect_uri: str | None) -> str:
        """Remove all state; return the address of the end-session endpoint."""
        query = {"client_id": self.client_id}
        with self._lock:
            if self.is_signed_in():
                query["id_token_hint"] = self.signed_in().id_token
            self._storage.remove(f"{self._key}:signed-in")
            self._storage.remove(f"{self._key}:sign-ins")
        if post_logout_redirect_uri:
            query["post_logout_redirect_uri"] = post_logout_redirect_uri
        return f"{self.issuer}/session/end?{urlencode(query)}"

    def _drop(self, is_dropped: Callable[[str], bool]) -> None:
        with self._lock:
            signed_in = self.signed_in()
            tokens = {key: token for key, token in signed_in.tokens.items() if not is_dropped(key)}
            self._keep(msgspec.structs.replace(signed_in, tokens=tokens))

    def _is_still(self, before: SignedIn) -> bool:
        return self.is_signed_in() and self.signed_in().refresh_token == before.refresh_token

    def _keep(self, signed_in: SignedIn) -> None:
        self._storage.set(f"{self._key}:signed-in", _encode(signed_in).decode())

    def _sign_ins(self) -> dict[str, SignIn]:
        stored = self._storage.get(f"{self._key}:sign-ins")
        return msgspec.json.decode(stored, type=dict[str, SignIn]) if stored else {}


def _is_same_address(url: str, redirect_uri: str) -> bool:
    """Tell whether a callback has the path of the redirect URI; a proxy may change the host."""
    return urlsplit(url).path == urlsplit(redirect_uri).path
