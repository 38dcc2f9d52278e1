"""The command ``python -m provision``, in this process: that is much faster."""

import io
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest

from provision.__main__ import main


class Finished(NamedTuple):
    """What a command answered."""

    returncode: int
    stdout: str
    stderr: str


def provision(*words: str | Path | int, **environment: str) -> Finished:
    """Run the command that an operator runs."""
    with (
        pytest.MonkeyPatch.context() as patched,
        redirect_stdout(io.StringIO()) as stdout,
        redirect_stderr(io.StringIO()) as stderr,
    ):
        for name, value in environment.items():
            patched.setenv(name, value)
        returncode = main([str(word) for word in words])
    return Finished(returncode, stdout.getvalue(), stderr.getvalue())
