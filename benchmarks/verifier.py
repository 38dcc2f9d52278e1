"""The verifier process behind nginx: requests to a tiny API with ``auth_request``, and without.

nginx runs with the configuration of deploy/verifier, where only addresses are replaced, and the verifier follows the
not-valid feed of the running token-service.
"""

import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any, Final

import httpx2 as httpx
import msgspec

from benchmarks.load import HOST, Plan, Step
from benchmarks.measure import Measurement, measure
from benchmarks.scenarios import RESOURCE, Client
from tests.support.processes import free_port
from tests.support.serving import serving
from tests.support.waiting import eventually

_CONFIGURATION: Final = Path(__file__).parents[1] / "deploy" / "verifier" / "nginx.conf"
_KEPT_ALIVE: Final = 'proxy_pass http://orders; proxy_http_version 1.1; proxy_set_header Connection "";'
_CONNECTIONS: Final = (1, 16)
_WARM_UP_PASSES: Final = 500
_TOKENS: Final = 2_048
"""More than a verifier caches: presented in turn, each has been evicted when its turn comes again."""

_UNCHECKED, _KNOWN, _NEW = "not checked", "checked, a known token", "checked, a new token"


class Issuer(msgspec.Struct, frozen=True):
    """Where tokens, keys and the feed come from.

    Attributes:
        name: ``iss`` of the tokens.
        url: Base address of token-service.
        client: Requests the tokens, and reads the feed.
    """

    name: str
    url: str
    client: Client

    def tokens(self) -> list[str]:
        """Request access tokens for the API."""
        form = {"grant_type": "client_credentials", "resource": RESOURCE, "scope": "read:orders"}
        with httpx.Client(headers={"Authorization": self.client.basic}) as http:
            answers = [http.post(f"{self.url}/oidc/token", data=form).raise_for_status() for _ in range(_TOKENS)]
        return [answer.json()["access_token"] for answer in answers]


async def api(scope: Any, receive: Any, send: Any) -> None:
    """Answer every request with two bytes."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"{}"})


def lines(issuer: Issuer, directory: Path, *, rounds: int, seconds: float) -> Iterator[str]:
    """Measure each kind of request in every round, so that noise affects all alike; yield the results line by line.

    Args:
        issuer: The running token-service.
        directory: For the configuration of nginx.
        rounds: How often.
        seconds: Approximate length of each measurement.
    """
    nginx = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/bin")
    if nginx is None:
        yield "not measured: this needs nginx (apt-get install nginx-light)"
        return
    with ExitStack() as running:
        bench = _Bench(issuer, nginx, directory, running)
        for connections in _CONNECTIONS:
            found: dict[str, list[Measurement]] = {_UNCHECKED: [], _KNOWN: [], _NEW: []}
            rates = {name: bench.measure(name, connections, _WARM_UP_PASSES).rate for name in found}
            for _ in range(rounds):
                for name, measurements in found.items():
                    measurements.append(bench.measure(name, connections, max(connections, int(rates[name] * seconds))))
            for name, measurements in found.items():
                yield f"{connections} connections, {name}: {_report(measurements, found[_UNCHECKED])}"


class _Bench:
    """The API, the verifier, and nginx in front of them."""

    def __init__(self, issuer: Issuer, nginx: str, directory: Path, running: ExitStack) -> None:
        api, verifier, self._unchecked, self._checked = (free_port() for _ in range(4))
        uvicorn = [
            sys.executable,
            "-m",
            "uvicorn",
            "benchmarks.verifier:api",
            "--loop",
            "uvloop",
            "--http",
            "httptools",
        ]
        quiet = ["--lifespan", "off", "--log-level", "warning", "--no-access-log", "--timeout-keep-alive", "75"]
        running.enter_context(serving([*uvicorn, *quiet, "--port", str(api)], api))
        arguments = ["--issuer", issuer.name, "--audience", RESOURCE, "--jwks-url", f"{issuer.url}/oidc/jwks"]
        arguments += ["--feed-url", issuer.url, "--client-id", issuer.client.id, "--port", str(verifier)]
        address = running.enter_context(
            serving([sys.executable, "-m", "verifier", *arguments], verifier, CLIENT_SECRET=issuer.client.secret)
        )
        eventually(lambda: "stead_verifier_feed_fresh 1.0" in httpx.get(f"{address}/metrics").text)
        main = directory / "nginx.conf"
        main.write_text(self._configuration(directory, api, verifier))
        running.enter_context(serving([nginx, "-p", directory, "-c", main], self._checked))
        issued = issuer.tokens()
        self._known, self._new = issued[0], cycle(issued)

    def _configuration(self, directory: Path, api: int, verifier: int) -> str:
        checked = _CONFIGURATION.read_text()
        for theirs, ours in {
            "verifier:8000": f"{HOST}:{verifier}",
            "listen 8080": f"listen {self._checked}",
            "proxy_pass http://orders:8080;": _KEPT_ALIVE,
        }.items():
            if theirs not in checked:
                raise RuntimeError(f"{_CONFIGURATION} does not have: {theirs}")
            checked = checked.replace(theirs, ours)
        return f"""
            daemon off; pid {directory}/nginx.pid; error_log stderr; events {{}}
            http {{
                access_log off; keepalive_requests 1000000000;
                upstream orders {{ server {HOST}:{api}; keepalive 32; }}
                server {{ listen {self._unchecked}; location / {{ proxy_set_header Host $http_host; {_KEPT_ALIVE} }} }}
                {checked}
            }}"""

    def measure(self, name: str, connections: int, passes: int) -> Measurement:
        port = self._unchecked if name == _UNCHECKED else self._checked
        head = f"GET /orders/17 HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer ".encode()
        tokens = list(islice(self._new, passes))[::-1] if name == _NEW else [self._known] * passes  # taken from the end
        return measure(Plan([Step(port, head, b"\r\n\r\n")], connections, passes, tokens), own=[], stores=[])


def _report(measurements: list[Measurement], unchecked: list[Measurement]) -> str:
    text = (
        f"{median(each.rate for each in measurements):,.0f} req/s,"
        f" p50 {median(each.p50_ms for each in measurements):.2f} ms,"
        f" p99 {median(each.p99_ms for each in measurements):.2f} ms"
    )
    if measurements is unchecked:
        return text
    pairs = list(zip(measurements, unchecked, strict=True))
    return (
        f"{text}; {median(one.rate / other.rate for one, other in pairs):.0%} of the throughput,"
        f" p50 {median(one.p50_ms / other.p50_ms for one, other in pairs):.2f} x,"
        f" p99 {median(one.p99_ms / other.p99_ms for one, other in pairs):.2f} x"
    )
