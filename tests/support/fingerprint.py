"""What the images are built from, as a hash: of this tree as it is now."""

import subprocess
import sys
from pathlib import Path

_PROGRAM = Path(__file__).parents[2] / "deploy/images/fingerprint.py"
IN_AN_IMAGE = "/opt/stead/fingerprint"


def fingerprint() -> str:
    """Return the hash that an image of this tree has in its file."""
    return subprocess.run([sys.executable, _PROGRAM], capture_output=True, text=True, check=True).stdout.strip()
