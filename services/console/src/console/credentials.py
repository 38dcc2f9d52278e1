"""The OAuth clients of the sites: read from files whenever they are needed, as they may appear and change later."""

from pathlib import Path
from typing import NamedTuple

_CONSOLE = "console"


class Client(NamedTuple):
    """Credentials of a site's client."""

    client_id: str
    client_secret: str


class NotConfigured(Exception):  # noqa: N818 - the name is what happened
    """The console has no client yet."""


class ClientCredentials:
    """Reads the credentials of the sites.

    Args:
        directory: Holds two files for each site, which the bootstrap writes; None if there is no console.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory

    def read(self, site: str) -> Client:
        """Return the credentials of a site, or the console's if it has none of its own.

        Raises:
            NotConfigured: The console has none either.
        """
        client = self._find(site) or self._find(_CONSOLE)
        if client is None:
            raise NotConfigured
        return client

    def _find(self, site: str) -> Client | None:
        if self._directory is None:
            return None
        try:
            values = [(self._directory / f"{site}_client_{part}").read_text().strip() for part in ("id", "secret")]
        except (OSError, UnicodeDecodeError):
            return None
        return Client(*values) if all(values) else None
