"""The Secrets that ``provision secrets`` prints: what each reader needs, and no password of others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from provision.__main__ import main

if TYPE_CHECKING:
    from pathlib import Path


def test_each_service_gets_what_render_writes_and_each_server_the_passwords_of_its_users(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secrets, rendered = tmp_path / "secrets", tmp_path / "rendered"
    secrets.mkdir()
    hosts = ["--postgres", "db.example:5432", "--redis", "rediss://cache.example:6379", "--nats", "bus.example:4222"]
    assert main(["render", "--secrets", str(secrets), "--output", str(rendered), *hosts]) == 0
    capsys.readouterr()

    assert main(["secrets", "--secrets", str(secrets), "--namespace", "elsewhere", *hosts]) == 0

    manifests = msgspec.json.decode(capsys.readouterr().out)
    assert {each["metadata"]["namespace"] for each in manifests["items"]} == {"elsewhere"}
    printed = {each["metadata"]["name"]: each["stringData"] for each in manifests["items"]}
    stored = msgspec.json.decode((secrets / "secrets.json").read_bytes())
    for reader, server in (("provision", "postgres"), ("redis", "redis"), ("nats", "nats")):
        assert msgspec.json.decode(printed.pop(reader)["secrets.json"]) == {server: stored[server]}
    assert printed == {
        reader.name: {file.name: file.read_text() for file in reader.iterdir()}
        for reader in rendered.iterdir()
        if reader.name not in ("redis", "nats")
    }


@pytest.mark.parametrize("server", ["nats", "redis"])
def test_a_server_is_configured_from_its_secret_as_from_all_passwords(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], server: str
) -> None:
    secrets, mounted = tmp_path / "secrets", tmp_path / "mounted"
    secrets.mkdir()
    mounted.mkdir()
    assert main(["render", "--secrets", str(secrets), "--output", str(tmp_path / "all")]) == 0
    capsys.readouterr()
    assert main(["secrets", "--secrets", str(secrets)]) == 0
    printed = {
        each["metadata"]["name"]: each["stringData"] for each in msgspec.json.decode(capsys.readouterr().out)["items"]
    }
    (mounted / "secrets.json").write_text(printed[server]["secrets.json"])

    assert main(["render", server, "--secrets", str(mounted), "--output", str(tmp_path / "one")]) == 0

    (directory,) = (tmp_path / "one").iterdir()
    (file,) = directory.iterdir()
    assert file.read_text() == (tmp_path / "all" / server / file.name).read_text()
    assert [each.name for each in mounted.iterdir()] == ["secrets.json"]


def test_a_secret_from_before_a_user_was_added_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "secrets.json"
    file.write_text('{"redis": {"default": "a", "management": "b", "token": ""}}')

    assert main(["render", "redis", "--secrets", str(tmp_path), "--output", str(tmp_path / "rendered")]) == 1

    assert capsys.readouterr().err == f"error: {file} has no password of redis/template, redis/console, redis/token\n"
    assert not (tmp_path / "rendered").exists()
