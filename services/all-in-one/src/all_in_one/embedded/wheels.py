"""Finds the servers' programs inside the Python packages that contain them."""

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from all_in_one.embedded.errors import WheelMissing


def program(wheel: str, *ending: str) -> Path:
    """Return the program whose path inside the wheel ends with these parts.

    Raises:
        WheelMissing: The wheel is not installed, or the file is not there.
    """
    try:
        files = distribution(wheel).files or []
    except PackageNotFoundError:
        raise WheelMissing(wheel, ending[-1]) from None
    for file in files:
        if file.parts[-len(ending) :] == ending:  # first: to resolve the paths of all files takes a quarter of a second
            path = Path(str(file.locate())).resolve()
            if path.is_file():
                return path
    raise WheelMissing(wheel, ending[-1])


def version(wheel: str) -> str:
    """Return the installed version of the wheel."""
    return distribution(wheel).version
