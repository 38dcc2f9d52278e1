"""Digests of passwords that other implementations made, as they were published."""

from __future__ import annotations

import base64
import time
import unicodedata

import bcrypt
import pytest

from management_service.passwords.digests import Algorithm, matches, objection
from management_service.passwords.hashing import Passwords

_SALT = base64.b64encode(b"sixteen bytes...").decode().rstrip("=")
_KEY = base64.b64encode(b"k" * 32).decode().rstrip("=")
_LONG = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def _base64(hexadecimal: str) -> str:
    return base64.b64encode(bytes.fromhex(hexadecimal)).decode().rstrip("=")


_OF_RFC_7914 = {
    "PBKDF2": _base64(
        "4ddcd8f60b98be21830cee5ef22701f9641a4418d04c0414aeff08876b34ab56"
        "a1d425a1225833549adb841b51c9b3176a272bdebba1d078478f62b397f33c8d"
    ),
    "scrypt": _base64(
        "7023bdcb3afd7348461c06cd81fd38ebfda8fbba904f8e3ea9b543f6545da1f2"
        "d5432955613f0fcf62d49705242a9af9e61e85dc0d651e40dfcf017b45575887"
    ),
}


@pytest.mark.parametrize(
    ("digest", "password"),
    [
        ("$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW", "U*U"),  # crypt_blowfish, as the next
        ("$2a$05$abcdefghijklmnopqrstuu5s2v8.iXieOjg/.AySBTTZIIVFJeBui", f"{_LONG}chars after 72 are ignored"),
        ("$2a$05$abcdefghijklmnopqrstuu5s2v8.iXieOjg/.AySBTTZIIVFJeBui", _LONG),
        (
            f"$scrypt$ln=14,r=8,p=1${base64.b64encode(b'SodiumChloride').decode()}${_OF_RFC_7914['scrypt']}",
            "pleaseletmein",
        ),
        (f"$pbkdf2-sha256$80000${base64.b64encode(b'NaCl').decode()}${_OF_RFC_7914['PBKDF2']}", "Password"),
        # passlib 1.7.4, as the next two
        ("$pbkdf2-sha256$6400$MDEyMzQ1Njc4OWFiY2RlZg$GAgw.j2X2FQf6rCn19KJonkGfQQsVMJDdhR2EPZ/a9I", "password"),
        ("$pbkdf2$6400$MDEyMzQ1Njc4OWFiY2RlZg$3GRGz.if.kMIc82fQVPGfU.uPIQ", "password"),
        ("pbkdf2_sha256$6400$saltsaltsalt$RiR+vMfCDRd6CUmtrBv+bNch6Xfh4bkdqqxxs9fsCec=", "password"),
    ],
)
def test_published_digests_match_their_passwords_and_no_others(digest: str, password: str) -> None:
    assert matches(digest, password)
    assert not matches(digest, f"x{password}")


@pytest.mark.parametrize(
    "parameters",
    ["ln=10,r=128,p=1", "ln=10,r=1,p=1024", "ln=15,r=1,p=4", "ln=16,r=2,p=1", "ln=16,r=8,p=2", "ln=16,r=1,p=2"],
)
def test_what_is_accepted_can_be_checked(parameters: str) -> None:
    digest = f"$scrypt${parameters}${_SALT}${_KEY}"
    reason = objection("Scrypt", digest)
    assert reason is not None or not matches(digest, "password")
    assert reason == ("ln must be less than 16 times r" if parameters == "ln=16,r=1,p=2" else None)


@pytest.mark.parametrize(
    ("algorithm", "digest", "reason"),
    [
        ("Bcrypt", f"$2b$14${'a' * 21}e{'a' * 31}", "the cost must be from 8 to 13"),
        ("Bcrypt", f"$2b$10${'a' * 21}e{'a' * 30}b", "must have the form $2b$12$<salt and digest>"),
        ("PBKDF2", f"$pbkdf2-sha256$9999${_SALT}${_KEY}", "the number of iterations must be from 10000 to 1500000"),
        ("Scrypt", f"$scrypt$ln=17,r=8,p=1${_SALT}${_KEY}", "ln must be from 10 to 16"),
        ("Argon2i", f"$argon2i$v=19$m=65536,t=5,p=1${_SALT}${_KEY}", "m times t must be from 16384 to 262144"),
    ],
)
def test_a_refusal_says_which_bound_is_missed(algorithm: Algorithm, digest: str, reason: str) -> None:
    assert objection(algorithm, digest) == reason


async def test_a_digest_of_a_password_as_it_was_typed_matches_it_composed_or_not() -> None:
    """Vietnamese keyboards, for one, send marks by themselves; a system that hashed them so has a digest of that."""
    typed = unicodedata.normalize("NFD", "mật khẩu của tôi")
    passwords = Passwords(threads=1)
    try:
        for stored in (typed, unicodedata.normalize("NFC", typed)):
            digest = bcrypt.hashpw(stored.encode(), bcrypt.gensalt(4)).decode()
            assert await passwords.verify(digest, typed, deadline=time.monotonic() + 60)
        renewed = await passwords.hash(typed)
        for again in (typed, unicodedata.normalize("NFC", typed)):
            assert await passwords.verify(renewed, again, deadline=time.monotonic() + 60)
    finally:
        passwords.close()
