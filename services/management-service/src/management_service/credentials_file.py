"""Values in a file that only its owner can read, in the place of a Secret of Kubernetes."""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec


class CredentialsFile:
    """A JSON object of strings."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def aclose(self) -> None:
        """Do nothing: there is no connection."""

    async def read(self) -> dict[str, str] | None:
        """Return its values by key; None if it does not exist."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, str])
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError:
            return {}  # they will be replaced

    async def write(self, values: Mapping[str, str]) -> None:
        """Create the file with these values, or replace it."""
        new = self._path.with_name(f".{self._path.name}.new")
        new.unlink(missing_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(msgspec.json.encode(values))
        new.replace(self._path)
