"""``Identity-Revision`` of a response: the revisions that the request has written, as its transactions noted them."""

from litestar.types import ASGIApp, Message, Receive, Scope, Send

from identity_common.revisions import HEADER, begin_noting, format_revisions

_NAME = HEADER.lower().encode()


class WrittenRevisions:
    """ASGI layer that adds ``Identity-Revision`` to the successful response of a write."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        written = begin_noting()

        async def send_with_revisions(message: Message) -> None:
            if written and message["type"] == "http.response.start" and message["status"] < 400:
                message["headers"] = [*message["headers"], (_NAME, format_revisions(written).encode())]
            await send(message)

        await self._app(scope, receive, send_with_revisions)
