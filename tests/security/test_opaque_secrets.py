"""An opaque secret is compared whole (CVE-2026-27840)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.signing_in import SignIn
from tests.support.world import Client, World, outcome

ALTERATIONS: dict[str, Callable[[str], str]] = {
    "without its last character": lambda secret: secret[:-1],
    "half of it": lambda secret: secret[: len(secret) // 2],
    "with another last character": lambda secret: secret[:-1] + ("a" if secret[-1] != "a" else "b"),
    "with one more character": lambda secret: f"{secret}a",
    "twice": lambda secret: secret * 2,
}


@pytest.mark.parametrize("alter", ALTERATIONS.values(), ids=ALTERATIONS)
class TestAnAlteredSecretIsRefusedAndTheWholeOneStaysGood:
    def test_subject_token(self, world: World, alter: Callable[[str], str]) -> None:
        subject_token = world.subject_token()

        assert outcome(world.exchange(alter(subject_token))) == (400, "invalid_request")
        assert outcome(world.exchange(subject_token)) == (200, None)

    def test_code_and_refresh_token(self, world: World, alter: Callable[[str], str]) -> None:
        sign_in = SignIn(world)

        assert outcome(sign_in.redeem(code=alter(sign_in.code))) == (400, "invalid_grant")
        refresh_token = sign_in.tokens()["refresh_token"]
        assert outcome(sign_in.refresh(alter(refresh_token))) == (400, "invalid_grant")
        assert outcome(sign_in.refresh(refresh_token)) == (200, None)

    def test_client_secret(self, world: World, alter: Callable[[str], str]) -> None:
        altered = Client(world.machine.id, alter(world.machine.secret or ""))

        assert outcome(world.client_credentials(altered)) == (401, "invalid_client")
        assert outcome(world.client_credentials()) == (200, None)
