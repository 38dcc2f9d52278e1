"""Machines with addresses of their own on one network, which a test cuts and makes lose packets."""

import os
import random
import shutil
import subprocess
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Self

import pytest

_HOOKS: Final = (("in", "input", "saddr"), ("out", "output", "daddr"))


class Machine:
    """A network namespace.

    Attributes:
        host: Its address.
    """

    def __init__(self, name: str, host: str) -> None:
        self._name = name
        self.host = host

    def command(self, *command: object) -> Sequence[str]:
        """Return a command that runs another one on this machine; both are one process."""
        return ("ip", "netns", "exec", self._name, *map(str, command))

    @contextmanager
    def cut_from(self, others: Collection["Machine"]) -> Iterator[None]:
        """Lose every packet between this machine and others during the body, silently; clients still reach both."""
        hosts = ", ".join(other.host for other in others)
        with self._filtered({chain: f"ip {address} {{ {hosts} }} drop" for chain, _, address in _HOOKS}):
            yield

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        """Lose every packet that arrives and leaves during the body, silently: clients do not reach it either."""
        with self._filtered({chain: "drop" for chain, _, _ in _HOOKS}):
            yield

    @contextmanager
    def losing(self, percent: int) -> Iterator[None]:
        """Lose so many of the packets that arrive and leave during the body."""
        with self._filtered({chain: f"numgen random mod 100 < {percent} drop" for chain, _, _ in _HOOKS}):
            yield

    @contextmanager
    def _filtered(self, rules: dict[str, str]) -> Iterator[None]:
        for chain, hook, _ in _HOOKS:
            added = f"add chain inet faults {chain} {{ type filter hook {hook} priority 0; }}"
            _run(*self.command("nft", "add table inet faults;", added, ";"))
        for chain, rule in rules.items():
            _run(*self.command("nft", f"add rule inet faults {chain} {rule}"))
        try:
            yield
        finally:
            _run(*self.command("nft", "delete table inet faults"))


class Network:
    """Machines that reach each other, and this one; a context manager.

    Attributes:
        machines: The machines.
    """

    def __init__(self, machines: int) -> None:
        self._id = f"{os.getpid():x}"
        self._bridge = f"stead-{self._id}"
        net = f"198.18.{random.randrange(256)}"  # RFC 2544: for tests of networks
        self._here = f"{net}.254/24"
        self.machines = [Machine(f"{self._bridge}-{number}", f"{net}.{number}") for number in range(1, machines + 1)]

    def __enter__(self) -> Self:
        if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("nft") is None:
            pytest.skip("needs root, and Debian's iproute2 and nftables")
        try:
            self._make()
        except subprocess.CalledProcessError as error:
            self.__exit__()
            pytest.skip(f"needs network namespaces: {error}")
        return self

    def __exit__(self, *_: object) -> None:
        for name in (self._bridge, *(machine._name for machine in self.machines)):
            subprocess.run(("ip", "netns", "delete", name), check=False, capture_output=True)

    def _make(self) -> None:
        _run("ip", "netns", "add", self._bridge)
        _run("ip", "-n", self._bridge, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", self._bridge, "link", "set", "bridge", "up")
        for number, machine in enumerate(self.machines):
            _run("ip", "netns", "add", machine._name)
            self._join(f"machine{number}", "net", machine.host + "/24", "-n", machine._name)
            _run("ip", "-n", machine._name, "link", "set", "lo", "up")
        self._join("here", f"stead{self._id}", self._here)

    def _join(self, port: str, device: str, address: str, *where: str) -> None:
        """Connect a device to the bridge."""
        peer = ("peer", "name", port, "netns", self._bridge)
        _run("ip", *where, "link", "add", device, "type", "veth", *peer)
        _run("ip", "-n", self._bridge, "link", "set", port, "master", "bridge", "up")
        _run("ip", *where, "address", "add", address, "dev", device)
        _run("ip", *where, "link", "set", device, "up")


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
