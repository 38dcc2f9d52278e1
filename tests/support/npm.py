"""Packages from npm, for the tests that need them: what a lock file pins, in a directory that the test run removes."""

import shutil
import subprocess
from pathlib import Path


def installed(source: Path, directory: Path) -> Path:
    """Copy a directory with its lock file, install what it pins, and return the copy."""
    npm = shutil.which("npm")
    assert npm is not None, "these tests need node and npm: apt-get install nodejs npm"
    shutil.copytree(source, directory, dirs_exist_ok=True)
    subprocess.run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=directory, check=True)
    return directory
