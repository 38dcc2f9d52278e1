"""The Secrets that ``provision secrets`` prints hold, for each reader, what ``provision render`` writes for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from provision.__main__ import main

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_each_reader_gets_a_secret_with_the_files_that_render_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secrets, rendered = tmp_path / "secrets", tmp_path / "rendered"
    secrets.mkdir()
    hosts = ["--postgres", "db.example:5432", "--redis", "cache.example:6379", "--nats", "bus.example:4222"]
    assert main(["render", "--secrets", str(secrets), "--output", str(rendered), *hosts]) == 0
    capsys.readouterr()

    assert main(["secrets", "--secrets", str(secrets), "--namespace", "elsewhere", *hosts]) == 0

    manifests = msgspec.json.decode(capsys.readouterr().out)
    assert {each["metadata"]["namespace"] for each in manifests["items"]} == {"elsewhere"}
    printed = {each["metadata"]["name"]: each["stringData"] for each in manifests["items"]}
    stored = msgspec.json.decode((secrets / "secrets.json").read_bytes())
    assert msgspec.json.decode(printed.pop("provision")["secrets.json"]) == stored
    assert printed == {
        reader.name: {file.name: file.read_text() for file in reader.iterdir()} for reader in rendered.iterdir()
    }
