"""``python -m all_in_one.compose`` without containers."""

import sys
from pathlib import Path

import pytest

from all_in_one.compose import main


def test_without_docker_there_is_one_line_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["compose", "--directory", str(tmp_path / "new" / "local")])

    assert main() == 1
    assert capsys.readouterr().err == "error: docker is not installed, or not in the PATH\n"
    assert list((tmp_path / "new" / "local").iterdir()) == []
