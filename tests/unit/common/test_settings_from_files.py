"""A setting in a file, as a container mounts secrets: the variable with ``_FILE`` appended names the file."""

from pathlib import Path

import pytest

from identity_common.settings import ApiSettings, InvalidSettingsError

GIVEN = {"BASE_URL": "https://id.example.com", "NATS_URL": "nats://localhost:4222"}
URL = "postgresql+asyncpg://user:secret@localhost/service"


def test_a_file_holds_a_value(tmp_path: Path) -> None:
    file = tmp_path / "database-url"
    file.write_text(f"{URL}\n")
    settings = ApiSettings.from_environment({**GIVEN, "DATABASE_URL_FILE": str(file)})
    assert settings.database_url == URL


def test_an_invalid_value_in_a_file_is_reported_without_the_value(tmp_path: Path) -> None:
    file = tmp_path / "database-url"
    file.write_text("mysql://user:secret@localhost")
    with pytest.raises(InvalidSettingsError) as refused:
        ApiSettings.from_environment({**GIVEN, "DATABASE_URL_FILE": str(file)})
    assert str(refused.value) == "DATABASE_URL: must begin with postgresql+asyncpg://"


def test_every_unreadable_file_is_reported_at_once(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    environment = {
        **GIVEN,
        "DATABASE_URL_FILE": str(tmp_path / "missing"),
        "TENANT_ID_FILE": str(tmp_path),
        "JWKS_URL_FILE": str(binary),
    }
    with pytest.raises(InvalidSettingsError) as refused:
        ApiSettings.from_environment(environment)
    assert str(refused.value).splitlines() == [
        "TENANT_ID_FILE: cannot be read (IsADirectoryError)",
        "DATABASE_URL_FILE: cannot be read (FileNotFoundError)",
        "JWKS_URL_FILE: cannot be read (UnicodeDecodeError)",
    ]


def test_a_value_and_a_file_contradict_each_other(tmp_path: Path) -> None:
    file = tmp_path / "database-url"
    file.write_text(URL)
    with pytest.raises(InvalidSettingsError, match="DATABASE_URL: set it or DATABASE_URL_FILE, not both"):
        ApiSettings.from_environment({**GIVEN, "DATABASE_URL": URL, "DATABASE_URL_FILE": str(file)})


def test_an_empty_file_leaves_a_required_setting_unset(tmp_path: Path) -> None:
    file = tmp_path / "database-url"
    file.write_text("\n")
    with pytest.raises(InvalidSettingsError, match=r"^DATABASE_URL: must be set$"):
        ApiSettings.from_environment({**GIVEN, "DATABASE_URL_FILE": str(file)})
