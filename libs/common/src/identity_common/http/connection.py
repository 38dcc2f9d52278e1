"""One HTTP/1.1 connection of a service: bounded, and notified when the server stops."""

from identity_common.http.bounded_connection import BoundedConnection
from identity_common.stopping import notify_stopping


class HttpConnection(BoundedConnection):
    """A bounded connection that releases held requests when its server stops."""

    def shutdown(self) -> None:
        """Release held requests, and take no further one on this connection: the server is stopping."""
        notify_stopping(self.loop)
        super().shutdown()
