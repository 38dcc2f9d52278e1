"""Being sure that the NATS server knows what a client has told it."""

from nats.aio.client import Client


async def round_trip(client: Client) -> None:
    """Wait until the server has dealt with everything that the client sent: messages, and whom it listens to.

    A flush overtakes what still waits to be written; the second one comes behind it.
    """
    await client.flush()
    await client.flush()
