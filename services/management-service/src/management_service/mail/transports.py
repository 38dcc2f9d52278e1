"""Where mail goes: what every way has in common, and the folder for development."""

import os
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from email.message import EmailMessage
from pathlib import Path
from typing import Final, Protocol

from identity_common.failures import StoreUnavailable

_MOST_FILES: Final = 200


class Refused(Exception):  # noqa: N818 - named for what happened
    """The mail will never be accepted.

    Attributes:
        code: The answer of the mail server (RFC 5321 section 4.2); None if it was not asked.
        answer: Its text.
    """

    def __init__(self, code: int | None, answer: str) -> None:
        super().__init__(answer)
        self.code = code
        self.answer = answer


class Deferred(Refused):
    """The mail was not accepted now, but may be later."""


class Unreachable(StoreUnavailable):
    """No mail can be sent now: there is no connection, no TLS or no login."""

    def __init__(self, cause: str) -> None:
        super().__init__("smtp", cause)


class NotConfigured(Exception):  # noqa: N818 - named for what happened
    """There is no mail server."""


class Session(Protocol):
    """A connection over which mails are sent, one after the other."""

    async def send(self, message: EmailMessage) -> None:
        """Send a message to its recipient.

        Raises:
            Refused, Deferred, Unreachable: It was not accepted.
        """


class Transport(Protocol):
    """A way to send mail."""

    def session(self) -> AbstractAsyncContextManager[Session]:
        """Return a session.

        Raises:
            Unreachable: On entering it.
        """


class Nowhere:
    """Stands for the mail server that the settings do not name."""

    @asynccontextmanager
    async def session(self) -> AsyncGenerator["Nowhere", None]:
        """Yield this."""
        yield self

    async def send(self, _: EmailMessage) -> None:
        """Refuse every mail.

        Raises:
            NotConfigured: Always.
        """
        raise NotConfigured


class Folder:
    """Keeps the newest mails as files, ``<id>.eml``; for development.

    Args:
        directory: Where they are; created when it is needed.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @asynccontextmanager
    async def session(self) -> AsyncGenerator["Folder", None]:
        """Yield the folder itself."""
        yield self

    async def send(self, message: EmailMessage) -> None:
        """Write a file; a repeat replaces it."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            name = str(message["Message-ID"]).strip("<>").partition("@")[0]
            new = self._directory / f".{name}"
            new.write_bytes(message.as_bytes())
            new.replace(self._directory / f"{name}.eml")
            for path in self.newest()[_MOST_FILES:]:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise Unreachable(type(error).__name__) from None

    def read(self, mail_id: str) -> bytes | None:
        """Return a mail; None if there is none with this id, which must be well-formed."""
        try:
            return (self._directory / f"{mail_id}.eml").read_bytes()
        except FileNotFoundError:
            return None

    def newest(self) -> list[Path]:
        """Return the files, the newest first."""
        if not self._directory.is_dir():
            return []
        found = [entry for entry in os.scandir(self._directory) if entry.name.endswith(".eml")]
        return [Path(entry.path) for entry in sorted(found, key=lambda each: each.stat().st_mtime_ns, reverse=True)]
