"""The settings of the verifier process, from options and the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from identity_common.settings import InvalidSettingsError
from tests.unit.sdk.issuer import AUDIENCE, ISSUER
from verifier.__main__ import main
from verifier.settings import read_settings

REQUIRED = ["--issuer", ISSUER, "--audience", AUDIENCE]


def test_options_win_over_the_environment_and_a_secret_may_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret\n")
    environment = {
        "AUDIENCE": "https://other.example.com",
        "FEED_URL": "https://id.example.com",
        "CLIENT_ID": "client",
        "CLIENT_SECRET_FILE": str(tmp_path / "secret"),
        "WHEN_STALE": "closed",
        "REJECT_STALE_PERMISSIONS": "true",
        "JWKS_URL": "",
    }
    arguments = [*REQUIRED, "--leeway-s", "5", "--clock-leeway-s", "0", "--port", "9000"]
    settings = read_settings(arguments, environment)
    assert (settings.audience, settings.client_secret, settings.when_stale) == (AUDIENCE, "s3cret", "closed")
    assert (settings.leeway_s, settings.port, settings.jwks_url) == (5.0, 9000, None)
    assert (settings.reject_stale_permissions, settings.clock_leeway_s) == (True, 0.0)


@pytest.mark.parametrize(
    ("arguments", "environment", "problems"),
    [
        ([], {}, ["--issuer or ISSUER: must be set", "--audience or AUDIENCE: must be set"]),
        (
            ["--leeway-s", "soon", "--when-stale", "ajar"],
            {},
            ["LEEWAY_S: not acceptable", "WHEN_STALE: not acceptable"],
        ),
        (["--stale-after-s", "0"], {}, ["STALE_AFTER_S: must be a positive number of seconds"]),
        (["--leeway-s", "nan"], {}, ["LEEWAY_S: must be a number of seconds, 0 or more"]),
        (["--clock-leeway-s", "-1"], {}, ["CLOCK_LEEWAY_S: must be a number of seconds, 0 or more"]),
        (
            ["--reject-stale-permissions", "sometimes"],
            {},
            ["REJECT_STALE_PERMISSIONS: not acceptable"],
        ),
        ([], {"REJECT_STALE_PERMISSIONS": "true"}, ["REJECT_STALE_PERMISSIONS: of use only with FEED_URL"]),
        (["--port", "65536"], {}, ["PORT: not a port"]),
        ([], {"CLIENT_SECRET": "x"}, ["CLIENT_ID and CLIENT_SECRET: set both or neither"]),
        (["--client-id", "c"], {"CLIENT_SECRET": "x"}, ["CLIENT_ID: of use only with FEED_URL"]),
        (
            ["--client-id", "c", "--feed-url", "https://id.example.com"],
            {"CLIENT_SECRET_FILE": "/nowhere"},
            ["CLIENT_SECRET_FILE: cannot be read (FileNotFoundError)"],
        ),
        (
            ["--client-id", "c", "--feed-url", "https://id.example.com"],
            {"CLIENT_SECRET": "x", "CLIENT_SECRET_FILE": "/nowhere"},
            ["CLIENT_SECRET: set it or CLIENT_SECRET_FILE, not both"],
        ),
    ],
)
def test_all_invalid_settings_are_reported_at_once(
    arguments: list[str], environment: dict[str, Any], problems: list[str]
) -> None:
    required = REQUIRED if "must be set" not in problems[0] else []
    with pytest.raises(InvalidSettingsError) as invalid:
        read_settings([*required, *arguments], environment)
    assert str(invalid.value).splitlines() == problems


def test_an_address_that_is_none_ends_the_process(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*REQUIRED, "--feed-url", "id.example.com"]) == 2
    assert "invalid settings" in capsys.readouterr().err
