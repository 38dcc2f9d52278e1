"""Reading the body of a request up to a size limit."""

from litestar.types import Receive


async def read_whole(receive: Receive, *, at_most: int) -> bytes | None:
    """Return the body, or more than ``at_most`` bytes of it if it is larger; None if the client disconnected."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message["body"]
        if not message.get("more_body", False) or len(body) > at_most:
            return bytes(body)
