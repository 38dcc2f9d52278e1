"""Private keys at rest: what opens them and what does not."""

from __future__ import annotations

import base64
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from token_service.tokens.key_encryption import KeyEncryption, KeyEncryptionError


def new_key() -> str:
    return base64.b64encode(os.urandom(32)).decode()


@given(private_key=st.binary(max_size=300), kid=st.text(st.characters(exclude_categories=["Cs"]), max_size=50))
def test_an_encrypted_key_is_decrypted_and_does_not_appear_in_the_ciphertext(private_key: bytes, kid: str) -> None:
    encryption = KeyEncryption([new_key()])
    encrypted = encryption.encrypt(private_key, kid=kid)

    assert encryption.decrypt(encrypted, kid=kid) == private_key
    assert len(encrypted) == len(private_key) + 12 + 16
    assert len(private_key) < 4 or private_key not in encrypted


def test_the_same_key_is_never_encrypted_alike() -> None:
    encryption = KeyEncryption([new_key()])

    assert len({encryption.encrypt(b"private", kid="k") for _ in range(256)}) == 256


def test_a_stored_key_opens_under_its_own_kid_only() -> None:
    """A row that was moved to another kid is refused."""
    encryption = KeyEncryption([new_key()])
    encrypted = encryption.encrypt(b"private", kid="a")

    for kid in ("b", "", "A", "a "):
        with pytest.raises(KeyEncryptionError):
            encryption.decrypt(encrypted, kid=kid)


def test_every_configured_key_decrypts_and_the_first_encrypts() -> None:
    """A new key-encryption key goes in front of the old one; what the old one encrypted stays readable."""
    old, new = new_key(), new_key()
    encrypted = KeyEncryption([old]).encrypt(b"private", kid="k")

    rotated = KeyEncryption([new, old])
    assert rotated.decrypt(encrypted, kid="k") == b"private"
    assert KeyEncryption([new]).decrypt(rotated.encrypt(b"private", kid="k"), kid="k") == b"private"


def test_without_the_right_key_nothing_opens_and_the_refusal_names_the_kid_only() -> None:
    encrypted = KeyEncryption([new_key()]).encrypt(b"private", kid="the-kid")

    with pytest.raises(KeyEncryptionError) as refused:
        KeyEncryption([new_key(), new_key()]).decrypt(encrypted, kid="the-kid")
    assert str(refused.value) == "no key-encryption key opens signing key the-kid"


@given(st.integers(min_value=0), st.integers(min_value=0, max_value=7))
def test_a_single_altered_bit_is_noticed(position: int, bit: int) -> None:
    encryption = KeyEncryption([new_key()])
    encrypted = bytearray(encryption.encrypt(b"private key", kid="k"))
    encrypted[position % len(encrypted)] ^= 1 << bit

    with pytest.raises(KeyEncryptionError):
        encryption.decrypt(bytes(encrypted), kid="k")


@pytest.mark.parametrize("length", [0, 1, 11, 12, 13, 27])
def test_a_truncated_row_is_refused_like_a_wrong_one(length: int) -> None:
    """A damaged row is the same error as a wrong key, and does not end the loop that reads the keys."""
    encryption = KeyEncryption([new_key()])
    encrypted = encryption.encrypt(b"private key", kid="k")

    with pytest.raises(KeyEncryptionError):
        encryption.decrypt(encrypted[:length], kid="k")
