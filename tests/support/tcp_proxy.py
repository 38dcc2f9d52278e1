"""A connection to a server that a test can cut, black-hole and mend, as if server or network went and came back."""

import asyncio
from typing import Self
from urllib.parse import urlsplit

from tests.support.processes import free_port


class TcpProxy:
    """Forwards connections to a server unless it is cut or a black hole.

    Args:
        url: The URL of the server.
        delay_s: The delay of all data in transit.

    Attributes:
        accepted: How many connections clients have opened.
    """

    def __init__(self, url: str, *, delay_s: float = 0) -> None:
        self._target = urlsplit(url)
        self._delay_s = delay_s
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._port = free_port()  # any other port could go to an outgoing connection while the wire is cut
        self._is_cut = False
        self._is_black_hole = False
        self.accepted = 0

    @property
    def url(self) -> str:
        """The same URL with the proxy's address."""
        return self.through(self._target.geturl())

    def through(self, url: str) -> str:
        """Return a URL of the server, with any credentials, with the proxy's address."""
        target = urlsplit(url)
        credentials, _, _ = target.netloc.rpartition("@")
        return target._replace(netloc=f"{credentials}@127.0.0.1:{self._port}").geturl()

    async def lead_to(self, url: str) -> None:
        """Forward to another server from now on; clients reach it when they reconnect."""
        await self.cut()
        self._target = urlsplit(url)
        await self.mend()

    async def __aenter__(self) -> Self:
        await self.mend()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.cut()
        await asyncio.sleep(2 * self._delay_s)  # let the data in transit arrive

    async def mend(self) -> None:
        """Accept connections, always on the same port."""
        self._is_cut = False
        self._is_black_hole = False
        self._server = await asyncio.start_server(self._forward, "127.0.0.1", self._port)

    async def cut(self) -> None:
        """Accept no connections, and abort the existing ones."""
        self._is_cut = True
        if self._server is not None:
            self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await asyncio.sleep(0)

    def swallow(self) -> None:
        """Keep connections and accept more, but lose all data in both directions, until ``pass_on``."""
        self._is_black_hole = True

    def pass_on(self) -> None:
        """Forward data again, on the same connections; what was lost stays lost."""
        self._is_black_hole = False

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        there = await asyncio.open_connection(self._target.hostname, self._target.port)
        self._writers |= {writer, there[1]}
        if self._is_cut:  # while connecting
            await self.cut()
        await asyncio.gather(self._pump(reader, there[1]), self._pump(there[0], writer))
        self._writers -= {writer, there[1]}

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                if self._delay_s:
                    await asyncio.sleep(self._delay_s)
                if self._is_black_hole:
                    continue
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()
