"""Password digests that other systems made: which are acceptable, and whether a password matches one.

A digest brings the parameters of its function along, so its sender decides what each attempt at the password costs.
Within the bounds below, that is at most a second of a core and 64 MiB. With less it would be cheap to guess.
"""

import base64
import binascii
import hashlib
import hmac
import re
from typing import Annotated, Final, Literal

import bcrypt
import msgspec

Algorithm = Literal["Argon2id", "Argon2i", "Argon2d", "Bcrypt", "Scrypt", "PBKDF2"]
Digest = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]

MIN_SALT_BYTES: Final = 8
MIN_DIGEST_BYTES: Final = 16
MAX_BYTES: Final = 128
"""Of a salt, and of a digest."""

ARGON2_MEMORY_KIB: Final = range(4 * 1024, 64 * 1024 + 1)
ARGON2_COST: Final = range(16 * 1024, 256 * 1024 + 1)
"""Memory in KiB times iterations."""
ARGON2_LANES: Final = range(1, 17)
BCRYPT_COST: Final = range(8, 14)
SCRYPT_EXPONENT: Final = range(10, 17)
SCRYPT_MEMORY: Final = 64 * 1024 * 1024
SCRYPT_COST: Final = range(2**14 * 8, 2**20 + 1)
"""The product of N, r and p."""
PBKDF2_ITERATIONS: Final = range(10_000, 1_500_001)

_BASE64: Final = r"([A-Za-z0-9+/.]+={0,2})"
_NUMBER: Final = r"([1-9][0-9]{0,8})"
_ARGON2: Final = re.compile(
    rf"\$argon2(?:id|i|d)\$v=(?:16|19)\$m={_NUMBER},t={_NUMBER},p={_NUMBER}\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)"
)
# The last characters of its salt and of its digest have bits left over, which are 0.
_BCRYPT: Final = re.compile(r"\$2[aby]\$([0-9]{2})\$[./A-Za-z0-9]{21}[.Oeu][./A-Za-z0-9]{30}[.CGKOSWaeimquy26]")
_BCRYPT_BYTES: Final = 72
_SCRYPT: Final = re.compile(rf"\$scrypt\$ln={_NUMBER},r={_NUMBER},p={_NUMBER}\${_BASE64}\${_BASE64}")
_PBKDF2: Final = re.compile(
    rf"\$pbkdf2(?:-(sha1|sha256|sha512))?\$(?:i=)?{_NUMBER}(?:,l=[0-9]+)?\${_BASE64}\${_BASE64}"
)
_PBKDF2_OF_DJANGO: Final = re.compile(rf"pbkdf2_(sha1|sha256)\${_NUMBER}\$([!-#%-~]+)\${_BASE64}")

_NOTATIONS: Final[dict[Algorithm, str]] = {
    "Argon2id": "$argon2id$v=19$m=19456,t=2,p=1$<salt>$<digest>",
    "Argon2i": "$argon2i$v=19$m=19456,t=2,p=1$<salt>$<digest>",
    "Argon2d": "$argon2d$v=19$m=19456,t=2,p=1$<salt>$<digest>",
    "Bcrypt": "$2b$12$<salt and digest>",
    "Scrypt": "$scrypt$ln=16,r=8,p=1$<salt>$<digest>",
    "PBKDF2": "$pbkdf2-sha256$600000$<salt>$<digest> or pbkdf2_sha256$600000$<salt>$<digest>",
}


class _UnacceptableError(ValueError):
    """The digest is not accepted; the message says why, without the digest."""


class _Scrypt(msgspec.Struct, frozen=True):
    exponent: int
    block_size: int
    parallelization: int
    salt: bytes
    digest: bytes


class _Pbkdf2(msgspec.Struct, frozen=True):
    function: str
    iterations: int
    salt: bytes
    digest: bytes


def objection(algorithm: Algorithm, digest: str) -> str | None:
    """Return why a digest of this algorithm is not accepted; None if it is."""
    try:
        if algorithm == "Bcrypt":
            _require_bcrypt(digest)
        elif algorithm == "Scrypt":
            _require_scrypt(_scrypt_of(digest))
        elif algorithm == "PBKDF2":
            _require_pbkdf2(_pbkdf2_of(digest))
        else:
            _require_argon2(algorithm, digest)
    except _UnacceptableError as error:
        return str(error)
    return None


def is_argon2(digest: str) -> bool:
    """Return whether a stored digest is of Argon2, in any variant."""
    return digest.startswith("$argon2")


def matches(digest: str, password: str) -> bool:
    """Return whether a password matches an accepted digest of another function than Argon2."""
    text = password.encode()
    if digest.startswith("$2"):
        # As in nearly every implementation, whatever follows is ignored. They differ in whether a NUL character ends
        # the password: no sign-in page and no request accepts one.
        return bcrypt.checkpw(text[:_BCRYPT_BYTES], digest.encode())
    if digest.startswith("$scrypt$"):
        return _matches_scrypt(_scrypt_of(digest), text)
    return _matches_pbkdf2(_pbkdf2_of(digest), text)


def _matches_scrypt(digest: _Scrypt, text: bytes) -> bool:
    made = hashlib.scrypt(
        text,
        salt=digest.salt,
        n=2**digest.exponent,
        r=digest.block_size,
        p=digest.parallelization,
        maxmem=2 * SCRYPT_MEMORY,
        dklen=len(digest.digest),
    )
    return hmac.compare_digest(made, digest.digest)


def _matches_pbkdf2(digest: _Pbkdf2, text: bytes) -> bool:
    # Each block costs all iterations, and the first one alone decides.
    size = min(len(digest.digest), hashlib.new(digest.function).digest_size)
    made = hashlib.pbkdf2_hmac(digest.function, text, digest.salt, digest.iterations, size)
    return hmac.compare_digest(made, digest.digest[:size])


def _require_argon2(algorithm: Algorithm, digest: str) -> None:
    match = _ARGON2.fullmatch(digest)
    if match is None or not digest.startswith(f"${algorithm.lower()}$"):
        raise _not_in_notation(algorithm)
    memory, iterations, lanes = (int(number) for number in match.groups()[:3])
    _require_bytes(_decoded(algorithm, match[4]), _decoded(algorithm, match[5]))
    _require("m", memory, ARGON2_MEMORY_KIB)
    _require("m times t", memory * iterations, ARGON2_COST)
    _require("p", lanes, ARGON2_LANES)


def _require_bcrypt(digest: str) -> None:
    match = _BCRYPT.fullmatch(digest)
    if match is None:
        raise _not_in_notation("Bcrypt")
    _require("the cost", int(match[1]), BCRYPT_COST)


def _scrypt_of(digest: str) -> _Scrypt:
    match = _SCRYPT.fullmatch(digest)
    if match is None:
        raise _not_in_notation("Scrypt")
    exponent, block_size, parallelization = (int(number) for number in match.groups()[:3])
    salt, value = (_decoded("Scrypt", text) for text in match.groups()[3:])
    return _Scrypt(exponent, block_size, parallelization, salt, value)


def _require_scrypt(digest: _Scrypt) -> None:
    _require_bytes(digest.salt, digest.digest)
    _require("ln", digest.exponent, SCRYPT_EXPONENT)
    if digest.exponent >= 16 * digest.block_size:  # RFC 7914 section 2
        raise _UnacceptableError("ln must be less than 16 times r")
    if 128 * 2**digest.exponent * digest.block_size > SCRYPT_MEMORY:
        raise _UnacceptableError("128 times N times r must be at most 64 MiB")
    _require("N times r times p", 2**digest.exponent * digest.block_size * digest.parallelization, SCRYPT_COST)


def _pbkdf2_of(digest: str) -> _Pbkdf2:
    if match := _PBKDF2.fullmatch(digest):  # of passlib, where SHA-1 has no name
        salt = _decoded("PBKDF2", match[3])
    elif match := _PBKDF2_OF_DJANGO.fullmatch(digest):
        salt = match[3].encode()
    else:
        raise _not_in_notation("PBKDF2")
    return _Pbkdf2(match[1] or "sha1", int(match[2]), salt, _decoded("PBKDF2", match[4]))


def _require_pbkdf2(digest: _Pbkdf2) -> None:
    _require_bytes(digest.salt, digest.digest)
    _require("the number of iterations", digest.iterations, PBKDF2_ITERATIONS)


def _require_bytes(salt: bytes, digest: bytes) -> None:
    if not MIN_SALT_BYTES <= len(salt) <= MAX_BYTES:
        raise _UnacceptableError(f"the salt must have {MIN_SALT_BYTES} to {MAX_BYTES} bytes")
    if not MIN_DIGEST_BYTES <= len(digest) <= MAX_BYTES:
        raise _UnacceptableError(f"the digest must have {MIN_DIGEST_BYTES} to {MAX_BYTES} bytes")


def _require(what: str, value: int, bounds: range) -> None:
    if value not in bounds:
        raise _UnacceptableError(f"{what} must be from {bounds.start} to {bounds.stop - 1}")


def _decoded(algorithm: Algorithm, text: str) -> bytes:
    """Return the bytes of a text in base64, padded or not, whose ``+`` may be written as ``.``."""
    bare = text.rstrip("=").replace(".", "+")
    try:
        value = base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except binascii.Error:
        raise _not_in_notation(algorithm) from None
    if base64.b64encode(value).decode().rstrip("=") != bare:  # bits left over: Argon2's own decoder refuses them
        raise _not_in_notation(algorithm)
    return value


def _not_in_notation(algorithm: Algorithm) -> _UnacceptableError:
    return _UnacceptableError(f"must have the form {_NOTATIONS[algorithm]}")
