"""The error that commands report."""

from urllib.parse import urlsplit


class ProvisionError(Exception):
    """A server is unreachable or refused, or an input is unusable; ``str()`` is one line without a password."""

    @classmethod
    def at(cls, server: str, url: str, error: Exception) -> "ProvisionError":
        """Return the error of a server at this URL."""
        host = urlsplit(url).netloc.rpartition("@")[2]
        return cls(f"{server} at {host}: {' '.join(str(error).split()) or type(error).__name__}")
