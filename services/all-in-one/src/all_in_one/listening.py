"""The sockets of the stack, which are opened before anything starts."""

import errno
import socket
from typing import Final

from all_in_one.errors import StackError

_LOOPBACK: Final = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}
_WITHOUT_IPV6: Final = {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}


def listening_sockets(port: int) -> list[socket.socket]:
    """Return a listening socket for each loopback address; opened first, so that a taken port fails the start at once.

    Browsers try ::1 first for ``localhost``: what another program serves there must not pass for the stack.

    Raises:
        StackError: The port is in use on one of the addresses.
    """
    listeners: list[socket.socket] = []
    for family, address in _LOOPBACK.items():
        try:
            listeners.append(socket.create_server((address, port), family=family, backlog=0))
        except OSError as error:
            if family == socket.AF_INET6 and error.errno in _WITHOUT_IPV6:
                continue
            for listener in listeners:
                listener.close()
            raise StackError(
                f"port {port} is in use; stop the program that uses it, or choose another: make run PORT={port + 1}"
            ) from None
    return listeners
