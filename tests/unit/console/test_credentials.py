"""The files with the OAuth clients of the sites."""

from pathlib import Path

import pytest

from console.credentials import Client, ClientCredentials, NotConfigured


def test_a_site_uses_its_own_client_once_both_files_are_there_and_the_consoles_otherwise(tmp_path: Path) -> None:
    credentials = ClientCredentials(tmp_path)
    for directory in (None, tmp_path):
        with pytest.raises(NotConfigured):
            ClientCredentials(directory).read("account")
    (tmp_path / "console_client_id").write_text("c")
    with pytest.raises(NotConfigured):
        credentials.read("console")
    (tmp_path / "console_client_secret").write_text("s\n")
    (tmp_path / "account_client_id").write_text("a")
    for site in ("console", "account"):
        assert credentials.read(site) == Client("c", "s")
    (tmp_path / "account_client_secret").write_bytes(b"\xff")
    assert credentials.read("account") == Client("c", "s")
    (tmp_path / "account_client_secret").write_text("t")
    assert credentials.read("account") == Client("a", "t")
    assert credentials.read("console") == Client("c", "s")
