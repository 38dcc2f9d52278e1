"""A NATS client that sends no password in clear text to a ``tls://`` address, and says at once that it has ended."""

import asyncio

from nats.aio.client import Client
from nats.errors import ConnectionClosedError
from nats.errors import Error as NatsError


class NotEncryptedError(NatsError):
    """A server at a ``tls://`` address does not require TLS, or an attacker removed that from its greeting."""


class NatsClient(Client):
    """A client of nats-py.

    By itself that encrypts only if the server's greeting says so, whatever the address, and lets a request wait for its
    whole timeout although the connection is closed.

    Attributes:
        closing: Set when the connection has ended for good; also by a client that fails to close, or never finishes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.closing = asyncio.Event()

    def _connect_command(self) -> bytes:
        server = self._current_server
        if server is not None and server.uri.scheme == "tls" and not self._server_info.get("tls_required"):
            raise NotEncryptedError("the server does not require TLS")
        return super()._connect_command()

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        for answer in [*self._resp_map.values()]:
            if not answer.done():
                answer.set_exception(ConnectionClosedError())
        if status == self.CLOSED:  # not between two attempts to connect
            self.closing.set()
        await super()._close(status, do_cbs)
