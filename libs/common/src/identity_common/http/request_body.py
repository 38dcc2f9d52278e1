"""The body of a request, read no further than it may go."""

from litestar.types import Receive


async def read_whole(receive: Receive, *, at_most: int) -> bytes | None:
    """Return the body, or as much of it as shows that it is larger than this; none when the request ended early."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message["body"]
        if not message.get("more_body", False) or len(body) > at_most:
            return bytes(body)
