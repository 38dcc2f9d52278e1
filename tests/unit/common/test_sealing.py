"""Sealed values: what opens them and what does not."""

from __future__ import annotations

import base64
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from identity_common.sealing import NoFittingKeyError, SealingKeys


def new_key() -> str:
    return base64.b64encode(os.urandom(32)).decode()


@given(plaintext=st.binary(max_size=300), name=st.text(st.characters(exclude_categories=["Cs"]), max_size=50))
def test_a_sealed_value_is_opened_and_does_not_appear_in_the_ciphertext(plaintext: bytes, name: str) -> None:
    ring = SealingKeys([new_key()])
    sealed = ring.seal(plaintext, name=name)

    assert ring.open(sealed, name=name) == plaintext
    assert len(sealed) == len(plaintext) + 12 + 16
    assert len(plaintext) < 4 or plaintext not in sealed


def test_the_same_value_is_never_sealed_alike() -> None:
    ring = SealingKeys([new_key()])

    assert len({ring.seal(b"private", name="k") for _ in range(256)}) == 256


def test_a_sealed_value_opens_under_its_own_name_only() -> None:
    """A row that was moved to another name is refused."""
    ring = SealingKeys([new_key()])
    sealed = ring.seal(b"private", name="a")

    for name in ("b", "", "A", "a "):
        with pytest.raises(NoFittingKeyError):
            ring.open(sealed, name=name)


def test_every_key_of_the_ring_opens_and_the_first_seals() -> None:
    """A new key goes in front of the old one; what the old one sealed stays readable."""
    old, new = new_key(), new_key()
    sealed = SealingKeys([old]).seal(b"private", name="k")

    rotated = SealingKeys([new, old])
    assert rotated.open(sealed, name="k") == b"private"
    assert SealingKeys([new]).open(rotated.seal(b"private", name="k"), name="k") == b"private"


def test_without_the_right_key_nothing_opens_and_the_refusal_has_the_name_only() -> None:
    sealed = SealingKeys([new_key()]).seal(b"private", name="the-name")

    with pytest.raises(NoFittingKeyError) as refused:
        SealingKeys([new_key(), new_key()]).open(sealed, name="the-name")
    assert str(refused.value) == "no key decrypts the-name"


@given(st.integers(min_value=0), st.integers(min_value=0, max_value=7))
def test_a_single_altered_bit_is_noticed(position: int, bit: int) -> None:
    ring = SealingKeys([new_key()])
    sealed = bytearray(ring.seal(b"private key", name="k"))
    sealed[position % len(sealed)] ^= 1 << bit

    with pytest.raises(NoFittingKeyError):
        ring.open(bytes(sealed), name="k")


@pytest.mark.parametrize("length", [0, 1, 11, 12, 13, 27])
def test_a_truncated_row_is_refused_like_a_wrong_one(length: int) -> None:
    """A damaged row is the same error as a wrong key, and does not end the loop that reads such rows."""
    ring = SealingKeys([new_key()])
    sealed = ring.seal(b"private key", name="k")

    with pytest.raises(NoFittingKeyError):
        ring.open(sealed[:length], name="k")


@pytest.mark.parametrize("length", [0, 1, 7, 8, 12, 27])
def test_a_truncated_row_is_not_sealed_with_the_newest_key(length: int) -> None:
    ring = SealingKeys([new_key()])
    sealed = ring.seal(b"private key", name="k")

    assert not ring.is_newest(sealed[:length], name="k")
