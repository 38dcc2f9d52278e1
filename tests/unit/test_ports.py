"""Port arguments of the programs that run on a laptop."""

import subprocess
import sys
from pathlib import Path

import pytest

from all_in_one.__main__ import main

EXAMPLE = Path(__file__).parents[2] / "examples" / "support-desk"


@pytest.mark.parametrize(
    ("port", "problem"),
    [
        ("99999", "99999 is not a port number: 1 to 65535"),
        ("0", "0 is not a port number: 1 to 65535"),
        ("-1", "-1 is not a port number: 1 to 65535"),
        ("abc", "invalid port value: 'abc'"),
    ],
)
def test_an_invalid_port_is_reported_in_one_line(
    port: str, problem: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["all_in_one", f"--port={port}"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"python -m all_in_one: error: argument --port: {problem}"


@pytest.mark.heavy
def test_the_example_reports_it_too() -> None:
    ended = subprocess.run([sys.executable, EXAMPLE, "--port=99999"], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.endswith(": error: argument --port: 99999 is not a port number: 1 to 65535\n")
