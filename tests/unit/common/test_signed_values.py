"""Texts that a browser keeps are genuine for every replica and later keys, and for one purpose."""

import base64
import os

import pytest

from identity_common.signed_values import SignedValues

OLD, NEW = (base64.b64encode(os.urandom(32)).decode() for _ in range(2))
PURPOSE = "cookie of default"


def test_what_one_replica_signs_another_one_verifies() -> None:
    signed = SignedValues([OLD], purpose=PURPOSE).sign("id.secret")
    assert SignedValues([OLD], purpose=PURPOSE).verified(signed) == "id.secret"


def test_a_rotation_keeps_what_was_signed_until_the_old_key_is_removed() -> None:
    signed = SignedValues([OLD], purpose=PURPOSE).sign("a")
    assert SignedValues([NEW, OLD], purpose=PURPOSE).verified(signed) == "a"
    assert SignedValues([NEW], purpose=PURPOSE).verified(signed) is None


def test_another_purpose_has_another_key() -> None:
    signed = SignedValues([OLD], purpose=PURPOSE).sign("a")
    assert SignedValues([OLD], purpose="cookie of other").verified(signed) is None


@pytest.mark.parametrize(
    "change", ["", ".", "a", "b.", lambda signed: signed + "x", lambda signed: signed[:-1], "é.é", "a.b.c"]
)
def test_nothing_else_is_genuine(change: object) -> None:
    values = SignedValues([OLD], purpose=PURPOSE)
    altered = change(values.sign("a")) if callable(change) else str(change)
    assert values.verified(altered) is None
