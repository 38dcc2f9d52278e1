"""The load generator: a minimal HTTP/1.1 client, so that it is not the bottleneck.

It runs in its own process: reads one ``Plan`` as JSON from standard input, executes it over keep-alive connections, and
writes one ``Outcome`` as JSON to standard output. Each *client* repeats the steps of the plan, with one request in
flight at a time, until all passes are done; the plan sets the number of concurrent clients.
"""

import asyncio
import re
import sys
import time
from collections.abc import Callable
from typing import Final, cast

import msgspec
import uvloop

HOST: Final = "127.0.0.1"
_CONTENT_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Step(msgspec.Struct, frozen=True):
    """One request; the client's subject token goes between ``head`` and ``tail``, if it has one.

    Attributes:
        port: On 127.0.0.1.
        head: The bytes before the subject token.
        tail: The bytes after it.
        status: The expected status; any other is a failure.
        mints: The answer contains a subject token for the client's next steps.
    """

    port: int
    head: bytes
    tail: bytes = b""
    status: int = 200
    mints: bool = False


class Plan(msgspec.Struct, frozen=True):
    """The load to generate.

    Attributes:
        steps: One pass of a client.
        connections: The number of clients; each has its own connection to every port.
        passes: The total number of passes.
        subject_tokens: One per pass; empty if the steps need none or mint their own.
        per_second: Passes to begin a second, at even intervals; 0 begins each as soon as a client is free. The latency
            of a pass that had to wait for a client includes the wait.
    """

    steps: list[Step]
    connections: int
    passes: int
    subject_tokens: list[str] = []
    per_second: float = 0


class Outcome(msgspec.Struct, frozen=True):
    """The result of a plan.

    Attributes:
        p50_ms: Median latency of successful passes; None if none succeeded.
        p99_ms: 99th percentile of the latency.
        seconds: From the first request to the last answer.
        cpu_s: CPU time of the load generator itself.
        failures: The number of failed passes.
        first_failure: The first unexpected answer.
    """

    p50_ms: float | None
    p99_ms: float | None
    seconds: float
    cpu_s: float
    failures: int
    first_failure: str


class _Minted(msgspec.Struct, rename="camel"):
    subject_token: str


_read_minted = msgspec.json.Decoder(_Minted).decode


class Connection(asyncio.Protocol):
    """A keep-alive connection with at most one request in flight."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._answered: Callable[[int, bytes], None] | None = None

    def send(self, request: bytes, answered: Callable[[int, bytes], None]) -> None:
        """Send a request; ``answered`` gets status and body, or 0 and an empty body if the connection is lost."""
        self._answered = answered
        if self._transport is None or self._transport.is_closing():
            self.connection_lost(None)
        else:
            self._transport.write(request)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's class does not inherit from asyncio's

    def data_received(self, data: bytes) -> None:
        """Deliver the answer once it is complete."""
        received = self._received = self._received + data
        end = received.find(b"\r\n\r\n")
        if end < 0:
            return
        length = _CONTENT_LENGTH.search(received, 0, end)
        body = end + 4
        if length is not None and len(received) < body + int(length[1]):
            return
        self._received = b""
        self._deliver(int(received[9:12]), received[body:])

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the pending request."""
        self._transport = None
        self._deliver(0, b"")

    def _deliver(self, status: int, body: bytes) -> None:
        answered, self._answered = self._answered, None
        if answered is not None:
            answered(status, body)


class Run:
    """A plan in execution."""

    def __init__(self, plan: Plan) -> None:
        self.steps = plan.steps
        self.latencies: list[float] = []
        self.failures = 0
        self.first_failure = ""
        self.done = asyncio.Event()
        self._passes = plan.passes
        self._clients = plan.connections
        self._subject_tokens = [token.encode() for token in plan.subject_tokens]
        self._interval_s = 1 / plan.per_second if plan.per_second else 0
        self._due = 0.0

    def due(self, now: float) -> float:
        """Return when the next pass is due; both are seconds of ``time.perf_counter``."""
        if self._interval_s == 0:
            return now
        self._due = self._due + self._interval_s if self._due else now
        return self._due

    def next_pass(self) -> bytes | None:
        """Return the subject token of the next pass, empty if it needs none; None if all passes are done."""
        if self._passes == 0:
            return None
        self._passes -= 1
        return self._subject_tokens.pop() if self._subject_tokens else b""

    def failed(self, status: int, body: bytes) -> None:
        """Record an unexpected answer."""
        self.failures += 1
        self.first_failure = (
            self.first_failure or f"{status or 'connection lost'} {body[:500].decode(errors='replace')}"
        )

    def latency_ms(self, percent: int) -> float | None:
        """Return a percentile of the latency."""
        ordered = sorted(self.latencies)
        return ordered[len(ordered) * percent // 100] * 1000 if ordered else None

    def client_ended(self) -> None:
        """Record that a client has finished."""
        self._clients -= 1
        if self._clients == 0:
            self.done.set()


class Client:
    """Repeats the steps of a plan."""

    def __init__(self, run: Run, connections: list[Connection]) -> None:
        self._run = run
        self._connections = connections
        self._at = 0
        self._subject_token = b""
        self._started = 0.0

    def start_pass(self) -> None:
        """Begin with the first step, unless all passes are done."""
        subject_token = self._run.next_pass()
        if subject_token is None:
            self._run.client_ended()
            return
        self._subject_token = subject_token
        self._at = 0
        now = time.perf_counter()
        self._started = self._run.due(now)
        if self._started > now:
            asyncio.get_running_loop().call_later(self._started - now, self._start_late)
        else:
            self._send()

    def _start_late(self) -> None:
        self._started = time.perf_counter()  # the timer's own delay is not a latency
        self._send()

    def _send(self) -> None:
        step = self._run.steps[self._at]
        self._connections[self._at].send(step.head + self._subject_token + step.tail, self._answered)

    def _answered(self, status: int, body: bytes) -> None:
        step = self._run.steps[self._at]
        if status != step.status:
            self._run.failed(status, body)
            if status:
                self.start_pass()
            else:
                self._run.client_ended()
            return
        if step.mints:
            self._subject_token = _read_minted(body).subject_token.encode()
        self._at += 1
        if self._at < len(self._run.steps):
            self._send()
        else:
            self._run.latencies.append(time.perf_counter() - self._started)
            self.start_pass()


async def execute(plan: Plan) -> Outcome:
    """Open all connections, then run all passes."""
    loop = asyncio.get_running_loop()
    run = Run(plan)
    clients = []
    for _ in range(plan.connections):
        connections = [(await loop.create_connection(Connection, HOST, step.port))[1] for step in plan.steps]
        clients.append(Client(run, connections))
    cpu, started = time.process_time(), time.perf_counter()
    for client in clients:
        client.start_pass()
    await run.done.wait()
    seconds, cpu_s = time.perf_counter() - started, time.process_time() - cpu
    return Outcome(
        p50_ms=run.latency_ms(50),
        p99_ms=run.latency_ms(99),
        seconds=seconds,
        cpu_s=cpu_s,
        failures=run.failures,
        first_failure=run.first_failure,
    )


if __name__ == "__main__":
    plan = msgspec.json.decode(sys.stdin.buffer.read(), type=Plan)
    sys.stdout.buffer.write(msgspec.json.encode(uvloop.run(execute(plan))))
