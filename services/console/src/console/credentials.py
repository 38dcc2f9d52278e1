"""The console's own OAuth client: read from two files whenever it is needed, as they may appear and change later."""

from pathlib import Path
from typing import NamedTuple

CLIENT_ID = "console_client_id"
CLIENT_SECRET = "console_client_secret"  # noqa: S105 - the name of a file


class ConsoleClient(NamedTuple):
    """Credentials of the console."""

    client_id: str
    client_secret: str


class NotConfigured(Exception):  # noqa: N818 - the name is what happened
    """The console has no client yet."""


class ConsoleCredentials:
    """Reads the credentials.

    Args:
        directory: Holds the two files, which the bootstrap writes; None if there is no console.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory

    def read(self) -> ConsoleClient:
        """Return the credentials.

        Raises:
            NotConfigured: A file is missing or empty.
        """
        if self._directory is None:
            raise NotConfigured
        try:
            values = [(self._directory / name).read_text().strip() for name in (CLIENT_ID, CLIENT_SECRET)]
        except (OSError, UnicodeDecodeError):
            raise NotConfigured from None
        if not all(values):
            raise NotConfigured
        return ConsoleClient(*values)
