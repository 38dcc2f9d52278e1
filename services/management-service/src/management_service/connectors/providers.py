"""The metadata and keys of OpenID providers, read from them and kept for a while.

Source:
    OpenID Connect Discovery 1.0 section 4 (metadata), RFC 7517 section 5 (keys).
"""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.algorithms import OKPAlgorithm

from identity_common.outgoing import OutgoingCallError, OutgoingCalls, url_problem
from identity_common.telemetry.logs import get_logger
from identity_common.wire.actor_tokens import ACTOR_TOKEN_TIMEOUT_S

_log = get_logger(__name__)

_FRESH_S: Final = 600.0
_USABLE_S: Final = 3600.0
"""How old keys may be while the provider does not answer."""
_DEADLINE_S: Final = ACTOR_TOKEN_TIMEOUT_S - 1
"""For metadata and keys together, so that token-service still waits when known keys have to do."""
_AGAIN_S: Final = 10.0
"""How soon the provider is asked again, because a token names an unknown key or it did not answer."""
_MAX_KEYS: Final = 50
_MAX_WAITING: Final = 64
"""How many tokens may wait for one provider: a slow one must not hold up those of others."""
_MIN_RSA_BITS: Final = 2048
_MAX_RSA_BITS: Final = 8192
_MAX_EXPONENT_BITS: Final = 32
"""Longer ones make a verification cost a hundred times as much, and no provider has them."""
_EC_ALGORITHMS: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_RSA_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
with suppress(ValueError):  # a release of PyJWT may know it
    jwt.register_algorithm("Ed25519", OKPAlgorithm())  # EdDSA with such a key (RFC 9864 section 2.2)

T = TypeVar("T")
PublicKey = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey


class ProviderError(Exception):
    """A provider is not usable; the text tells an administrator why."""


class Client(msgspec.Struct, frozen=True):
    """A client at a provider.

    Attributes:
        secret: None for a public client.
    """

    id: str
    secret: str | None

    def __repr__(self) -> str:
        """Hide the secret."""
        return f"Client({self.id!r})"


class ProviderKey(NamedTuple):
    """A public key of a provider, and the algorithms that it can verify: the key decides, rather than the token."""

    key: PublicKey
    algorithms: tuple[str, ...]


class Metadata(msgspec.Struct, frozen=True):
    """What a provider says of itself.

    Attributes:
        code_challenge_methods: None if it does not say: then it may support PKCE, or ignore it.
        names_itself: Whether it names its issuer in every answer (RFC 9207).
    """

    issuer: str
    jwks_uri: str
    authorization_endpoint: str | None = None
    token_endpoint: str | None = None
    userinfo_endpoint: str | None = None
    token_auth_methods: tuple[str, ...] = msgspec.field(
        name="token_endpoint_auth_methods_supported", default=("client_secret_basic",)
    )
    code_challenge_methods: tuple[str, ...] | None = msgspec.field(
        name="code_challenge_methods_supported", default=None
    )
    names_itself: bool = msgspec.field(name="authorization_response_iss_parameter_supported", default=False)


class _KeySet(msgspec.Struct, frozen=True):
    keys: list[dict[str, Any]]


class _Known(NamedTuple):
    metadata: Metadata
    keys: dict[str, ProviderKey]
    read_at: float


_decode_metadata: Final = msgspec.json.Decoder(Metadata).decode
_decode_keys: Final = msgspec.json.Decoder(_KeySet).decode


class Providers:
    """The providers of connectors, by their issuers. Memory is bounded by the number of connectors."""

    def __init__(self, calls: OutgoingCalls) -> None:
        self._calls = calls
        self._known: dict[str, _Known] = {}
        self._asked_at: dict[str, float] = {}
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._waiting: Counter[str] = Counter()

    async def check(self, issuer: str, *, client: Client | None = None) -> None:
        """Read a provider's metadata and keys anew.

        Args:
            issuer: The provider.
            client: The client through which people sign in there, if any.

        Raises:
            ProviderError: They are not usable.
        """
        found = await self._fetched(issuer)
        if client is not None:
            _require_sign_in(found.metadata, client)
        if issuer in self._known:  # others may belong to no connector: an administrator can try any number
            self._known[issuer] = found

    async def key(self, issuer: str, key_id: str | None) -> ProviderKey | None:
        """Return a key of a provider, asking it if the key is not known; None if the provider has no such key.

        Args:
            issuer: The provider.
            key_id: ``kid`` of a token; without one, the provider must have a single key.

        Raises:
            ProviderError: The provider has not answered for too long, or too many wait for it.
        """
        return await self._read_if(issuer, lambda known: _key_of(known, key_id))

    async def newer_key(self, issuer: str, key_id: str | None, *, than: ProviderKey | None) -> ProviderKey | None:
        """Return the key that the provider has now, since another one has not signed a token; None if it has none.

        The provider is asked each time, so the token must come from the provider itself.

        Args:
            issuer: The provider.
            key_id: ``kid`` of the token.
            than: The key that was known, if any.

        Raises:
            ProviderError: The provider does not answer, or too many wait for it.
        """
        async with self.waiting(issuer), self._turns[issuer]:
            known = self._known.get(issuer)
            if known is None or _key_of(known, key_id) == than:  # else another token has brought it
                await self._read(issuer)
            return _key_of(self._known[issuer], key_id)

    async def metadata(self, issuer: str) -> Metadata:
        """Return the metadata of a provider.

        Raises:
            ProviderError: The provider has not answered for too long, or too many wait for it.
        """
        found = await self._read_if(issuer, lambda known: known.metadata)
        if found is None:
            raise ProviderError("The provider did not answer.")
        return found

    @asynccontextmanager
    async def waiting(self, issuer: str) -> AsyncGenerator[None, None]:
        """Be one of those who wait for a provider.

        Raises:
            ProviderError: Too many wait for it.
        """
        if self._waiting[issuer] >= _MAX_WAITING:
            raise ProviderError("Too many tokens wait for the provider.")
        self._waiting[issuer] += 1
        try:
            yield
        finally:
            self._waiting[issuer] -= 1

    async def _read_if(self, issuer: str, part: Callable[[_Known], T | None]) -> T | None:
        """Return a part of what a provider says; read it again if it is old, or the part is missing."""
        if (found := self._kept(issuer, part, for_s=_FRESH_S)) is not None:
            return found
        turn = self._turns[issuer]
        if turn.locked() and (found := self._kept(issuer, part, for_s=_USABLE_S)) is not None:
            return found  # it is being read again
        async with self.waiting(issuer), turn:
            if (found := self._kept(issuer, part, for_s=_FRESH_S)) is not None:
                return found
            await self._read_again(issuer)
            if issuer not in self._known or time.monotonic() - self._known[issuer].read_at >= _USABLE_S:
                raise ProviderError("The provider did not answer.")
            return self._kept(issuer, part, for_s=_USABLE_S)

    def _kept(self, issuer: str, part: Callable[[_Known], T | None], *, for_s: float) -> T | None:
        known = self._known.get(issuer)
        return None if known is None or time.monotonic() - known.read_at >= for_s else part(known)

    async def _read_again(self, issuer: str) -> None:
        if time.monotonic() - self._asked_at.get(issuer, float("-inf")) < _AGAIN_S:
            return
        try:
            await self._read(issuer)
        except ProviderError as error:
            _log.warning("provider.unavailable", address=issuer, reason=str(error))

    async def _read(self, issuer: str) -> None:
        self._asked_at[issuer] = time.monotonic()
        self._known[issuer] = await self._fetched(issuer)

    async def _fetched(self, issuer: str) -> _Known:
        try:
            async with asyncio.timeout(_DEADLINE_S):
                metadata = await self._metadata(issuer)
                return _Known(metadata, await self._keys(metadata.jwks_uri), time.monotonic())
        except TimeoutError as error:
            raise ProviderError(f"The provider did not answer within {_DEADLINE_S:.0f} seconds.") from error

    async def _metadata(self, issuer: str) -> Metadata:
        what = "metadata"
        content = await self._content(f"{issuer.removesuffix('/')}/.well-known/openid-configuration", what)
        try:
            metadata = _decode_metadata(content)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ProviderError(f"The {what} of the provider are not those of OpenID Connect: {error}.") from error
        if metadata.issuer != issuer:  # section 4.3: identical, or the provider speaks for another one
            raise ProviderError("The metadata of the provider name another issuer.")
        for name in ("jwks_uri", "authorization_endpoint", "token_endpoint", "userinfo_endpoint"):
            if (address := getattr(metadata, name)) is None:
                continue
            if (problem := url_problem(address)) is not None:
                raise ProviderError(f"The metadata of the provider name an unusable {name}. {problem}")
            if urlsplit(address).scheme != urlsplit(issuer).scheme:
                raise ProviderError(f"The metadata of the provider name a {name} that is not https.")
        return metadata

    async def _keys(self, address: str) -> dict[str, ProviderKey]:
        what = "keys"
        content = await self._content(address, what)
        try:
            found = _decode_keys(content).keys
        except (msgspec.DecodeError, RecursionError) as error:
            raise ProviderError(f"The {what} of the provider are no JSON Web Key Set: {error}.") from error
        if len(found) > _MAX_KEYS:
            raise ProviderError(f"The provider has more than {_MAX_KEYS} keys.")
        usable = {str(each.get("kid", "")): key for each in found if (key := _usable_key(each)) is not None}
        if not usable:
            raise ProviderError("The provider has no public key for signatures that can be used.")
        return usable

    async def _content(self, address: str, what: str) -> bytes:
        try:
            answer = await self._calls.get(address)
        except OutgoingCallError as error:
            raise ProviderError(f"The {what} of the provider cannot be read from {address}. {error}") from error
        if answer.status != 200:
            raise ProviderError(f"The {what} of the provider cannot be read from {address}: status {answer.status}.")
        return answer.content


def _key_of(known: _Known, key_id: str | None) -> ProviderKey | None:
    if key_id is None:
        return next(iter(known.keys.values())) if len(known.keys) == 1 else None
    return known.keys.get(key_id)


def _require_sign_in(metadata: Metadata, client: Client) -> None:
    """Refuse a provider at which a client cannot sign people in.

    Raises:
        ProviderError: It lacks an endpoint, a way to authenticate the client, or PKCE.
    """
    for name in ("authorization_endpoint", "token_endpoint"):
        if getattr(metadata, name) is None:
            raise ProviderError(f"The metadata of the provider name no {name}.")
    if client.secret is not None and not {"client_secret_basic", "client_secret_post"} & {*metadata.token_auth_methods}:
        raise ProviderError("The token endpoint of the provider takes no client secret.")
    if metadata.code_challenge_methods is not None and "S256" not in metadata.code_challenge_methods:
        raise ProviderError("The provider does not support PKCE with S256.")


def _usable_key(described: dict[str, Any]) -> ProviderKey | None:
    """Return a public key for signatures; None if it is another kind of key, too weak, or too costly.

    Source:
        RFC 7518 sections 3.3 and 3.5 (RSA keys of 2,048 bits or more); RFC 8725 section 3.1 (an algorithm belongs to
        a key, so that a public key is never the secret of a MAC).
    """
    if described.get("use", "sig") != "sig" or described.get("kty") not in ("RSA", "EC", "OKP") or "d" in described:
        return None
    try:
        key = jwt.PyJWK({**described, "alg": None}).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    algorithms = _algorithms(key)
    if (named := described.get("alg")) is not None:
        algorithms = tuple(each for each in algorithms if each == named)
    return ProviderKey(key, algorithms) if algorithms else None


def _algorithms(key: Any) -> tuple[str, ...]:
    match key:
        case RSAPublicKey():
            is_usable = _MIN_RSA_BITS <= key.key_size <= _MAX_RSA_BITS
            is_quick = key.public_numbers().e.bit_length() <= _MAX_EXPONENT_BITS
            return _RSA_ALGORITHMS if is_usable and is_quick else ()
        case EllipticCurvePublicKey():
            algorithm = _EC_ALGORITHMS.get(key.curve.name)
            return () if algorithm is None else (algorithm,)
        case Ed25519PublicKey():
            return ("EdDSA", "Ed25519")
        case _:
            return ()
