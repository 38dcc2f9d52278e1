"""Codes that people type to prove or set up a second factor."""

import pytest

from management_service.factors.codes import (
    canonical_code,
    is_authenticator_code,
    is_recovery_code,
    masked,
    new_handed_out_code,
    new_mailed_code,
    new_recovery_codes,
)


@pytest.mark.parametrize(
    ("typed", "code"),
    [
        ("123 456", "123456"),
        ("\u0661\u0662\u0663\u0664\u0665\u0666", "123456"),
        ("\uff11\uff12\uff13456", "123456"),
        (" abcd-efgh jkmn\u2013pqrs\n", "ABCDEFGHJKMNPQRS"),
        ("oOiIlL", "001111"),
        ("\u00df" * 40, "SS" * 40),
        ("1" * 65, ""),
        ("\0\u202e-", ""),
    ],
)
def test_a_code_is_read_as_it_was_meant(typed: str, code: str) -> None:
    assert canonical_code(typed) == code


def test_the_forms_of_codes_differ() -> None:
    recovery_codes = new_recovery_codes()
    assert len(set(recovery_codes)) == 10
    for code in recovery_codes:
        assert is_recovery_code(code.lower())
        assert [len(group) for group in code.split("-")] == [4, 4, 4, 4]
    others = (new_mailed_code(), new_handed_out_code(), "123456", "")
    assert [len(canonical_code(code)) for code in others] == [8, 20, 6, 0]
    assert [is_recovery_code(code) for code in others] == [False] * 4
    assert [is_authenticator_code(canonical_code(code)) for code in others] == [False, False, True, False]
    assert not is_authenticator_code("12345\u00b2")


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("ada@example.com", "a\u2026@e\u2026.com"),
        ("a@b.c.test", "a\u2026@b\u2026.test"),
        ('"a@b"@c.test', '"\u2026@c\u2026.test'),
    ],
)
def test_an_address_is_masked(address: str, shown: str) -> None:
    assert masked(address) == shown
