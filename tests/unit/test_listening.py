"""The sockets of the stack: one for each address that ``localhost`` may mean."""

import socket
from contextlib import ExitStack

import pytest

from all_in_one import listening
from all_in_one.errors import StackError
from all_in_one.listening import listening_sockets
from tests.support.processes import free_port


def test_both_addresses_are_listened_on() -> None:
    port = free_port()
    with ExitStack() as opened:
        listeners = [opened.enter_context(each) for each in listening_sockets(port)]
        assert [each.getsockname()[:2] for each in listeners] == [("127.0.0.1", port), ("::1", port)]


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_a_port_that_is_taken_at_either_address_is_refused(family: socket.AddressFamily, address: str) -> None:
    with socket.create_server((address, 0), family=family) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StackError, match=f"port {port} is in use; .* make run PORT={port + 1}"):
            listening_sockets(port)


def test_a_machine_without_ipv6_is_served_at_the_other_address(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "2001:db8::1"}
    monkeypatch.setattr(listening, "_LOOPBACK", absent)
    (listener,) = listening_sockets(free_port())
    with listener:
        assert listener.family == socket.AF_INET
