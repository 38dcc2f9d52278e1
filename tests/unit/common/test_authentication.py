"""What tokens say about a sign-in at the provider of a connector, alone and with factors that were used here."""

from __future__ import annotations

import pytest

from identity_common.authentication import AtProvider, Authentication, FactorMethod, UsedFactor
from stead.verify.acr import Level


def at_provider(*then: FactorMethod, first: bool = True, **said: object) -> Authentication:
    provider = UsedFactor("provider", 5_000, AtProvider(connector_id="c", revision=1, **said))  # type: ignore[arg-type]
    others = tuple(UsedFactor(method, 6_000) for method in then)
    return Authentication((provider, *others) if first else (*others, provider))


@pytest.mark.parametrize(
    ("signed_in", "level", "amr"),
    [
        (at_provider(), "password", ()),
        (at_provider(level="mfa", amr=("hwk", "pin")), "mfa", ("hwk", "pin")),
        (at_provider("authenticator"), "mfa", ("mfa", "otp")),
        (at_provider("passkey", amr=("pwd",)), "phr", ("mfa", "pop", "pwd", "user")),
        (at_provider("password", first=False), "password", ("pwd",)),
        (at_provider("password", first=False, level="phr"), "phr", ("mfa", "pwd")),
    ],
)
def test_a_provider_counts_as_a_password_unless_it_is_trusted(
    signed_in: Authentication, level: Level, amr: tuple[str, ...]
) -> None:
    assert (signed_in.level, signed_in.amr) == (level, amr)


def test_only_the_provider_says_when_the_person_signed_in_there() -> None:
    assert (at_provider().auth_time, at_provider().began_at) == (None, 5_000)
    assert at_provider("authenticator", auth_time=1_000).auth_time == 1_000
    assert at_provider("password", first=False).auth_time == 6_000


def test_a_provider_that_does_not_say_when_makes_no_sign_in_recent() -> None:
    assert (at_provider().latest, at_provider(auth_time=1_000).latest) == (0, 1_000)
    assert at_provider("authenticator").latest == 6_000
    assert at_provider("password", first=False).latest == 6_000
