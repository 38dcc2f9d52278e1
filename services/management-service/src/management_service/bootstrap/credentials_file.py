"""Keeps credentials in a file that only its owner can read, where there is no Kubernetes Secret."""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec


class CredentialsFile:
    """A file with a JSON object of strings; a drop-in for ``KubernetesSecret``."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def aclose(self) -> None:
        """Do nothing: there is no connection."""

    async def read(self) -> dict[str, str] | None:
        """Return the values by key; None if there is no file."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, str])
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError:
            return {}  # malformed: the caller replaces it

    async def write(self, values: Mapping[str, str]) -> None:
        """Create the file with these values, or replace it atomically."""
        new = self._path.with_name(f".{self._path.name}.new")
        new.unlink(missing_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(msgspec.json.encode(values))
        new.replace(self._path)
