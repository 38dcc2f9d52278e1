"""Print a hash of everything in this tree that goes into the images, so that an image can be compared with a tree.

Not the commit: a tree may have changes, and most commits leave the images as they are.
"""

import hashlib
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ("Dockerfile", "deploy/images", "libs", "locks", "services")
IGNORED = ("__pycache__", "*.egg-info")
"""As in .dockerignore."""


def is_source(path: Path) -> bool:
    """Whether a path is a file that the images are built from."""
    return path.is_file() and not any(parent.match(pattern) for parent in path.parents for pattern in IGNORED)


files = sorted(path for name in SOURCES for path in (ROOT / name, *(ROOT / name).rglob("*")) if is_source(path))
lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(ROOT).as_posix()}\n" for path in files]
print(hashlib.sha256("".join(lines).encode()).hexdigest())  # noqa: T201
