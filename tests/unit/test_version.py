"""Which version runs: on the command line, and in the first line of the log."""

from __future__ import annotations

import json
import sys

import pytest

import all_in_one.__main__
import provision.__main__
from identity_common.serving import run_service
from identity_common.settings import ServiceSettings
from identity_common.telemetry.logs import log_start
from identity_common.version import VERSION
from tests.support.captured_logs import captured_logs
from verifier.__main__ import main as verifier


def test_every_command_prints_its_version_without_any_setting(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for run in (
        lambda: run_service("token_service", settings=ServiceSettings, commands={}, arguments=["--version"]),
        lambda: provision.__main__.main(["--version"]),
        lambda: verifier(["--version"]),
        all_in_one.__main__.main,
    ):
        monkeypatch.setattr(sys, "argv", ["", "--version"])
        with pytest.raises(SystemExit) as ended:
            run()
        assert (ended.value.code, capsys.readouterr()) == (0, (f"{VERSION}\n", ""))


def test_a_process_that_serves_logs_its_version_first() -> None:
    with captured_logs("token-service") as log:
        log_start()
    line = json.loads(log.getvalue())
    assert (line["event"], line["service"], line["version"]) == ("process.started", "token-service", VERSION)
