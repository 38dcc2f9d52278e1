"""The socket of the stack, which is opened before anything starts."""

import socket

from all_in_one.errors import StackError


def listening_socket(port: int) -> socket.socket:
    """Return a listening socket on 127.0.0.1; opened first, so that a taken port fails the start at once.

    Raises:
        StackError: The port is in use.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen(0)
    except OSError:
        listener.close()
        raise StackError(
            f"port {port} is in use; stop the program that uses it, or choose another: make run PORT={port + 1}"
        ) from None
    return listener
