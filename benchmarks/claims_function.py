"""The custom-claims function: an exchange with a script that adds three claims, and without."""

import base64
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Final, Protocol

import msgspec

from benchmarks.measure import Measurement, children_of, memory_mb
from stead import ManagementClient

_SCRIPT: Final = """
const getCustomJwtClaims = async ({ token, context }) => ({
  plan: context.user.customData.plan,
  roles: context.user.roles.map((role) => role.name),
  ticket: context.grant.subjectTokenContext.ticket,
});
"""
_CONNECTIONS: Final = (1, 16)
_PACE: Final = 0.5
"""Share of the throughput with a script. At full load p99 is the length of the queue; here it is the overhead."""
_WARM_UP_PASSES: Final = 500
_TIMEOUT_S: Final = 10
_SHARE: Final = 0.6
_OVERHEAD_MS: Final = 2.0
_WORKER_MB: Final = 20.0


class Measure(Protocol):
    """Measures the exchange."""

    def __call__(self, connections: int, passes: int, /, *, per_second: float = 0) -> Measurement:
        """Measure this many passes over this many connections, at ``per_second`` unless that is 0."""
        ...


class Function:
    """The function of the deployment."""

    def __init__(self, management: ManagementClient, *, access_token: Callable[[], str]) -> None:
        self._custom_claims = management.custom_claims
        self._access_token = access_token

    def set(self, script: str) -> None:
        """Save a script, or delete the function for an empty one; return when it is in force."""
        if script:
            self._custom_claims.save("access-token", script)
        elif "plan" in _claims(self._access_token()):
            self._custom_claims.delete("access-token")
        deadline = time.monotonic() + _TIMEOUT_S
        while ("plan" in _claims(self._access_token())) != bool(script):
            if time.monotonic() > deadline:
                raise RuntimeError("the function does not take effect")
            time.sleep(0.05)


def lines(function: Function, measure: Measure, *, token_service: int, rounds: int, seconds: float) -> Iterator[str]:
    """Measure without and with the script in every round, so that noise affects both alike.

    Args:
        function: The function of the deployment.
        measure: Measures the exchange.
        token_service: Its process id.
        rounds: How often.
        seconds: Approximate length of each measurement.
    """
    found: dict[str, list[Measurement]]
    for connections in _CONNECTIONS:
        found = {"": [], _SCRIPT: []}
        rates = {script: _rate(function, measure, script, connections) for script in found}
        for _ in range(rounds):
            for script, measurements in found.items():
                function.set(script)
                measurements.append(measure(connections, max(connections, int(rates[script] * seconds))))
        yield from _report(f"{connections} connections", found[""], found[_SCRIPT])
        share = median(one.rate / other.rate for one, other in zip(found[_SCRIPT], found[""], strict=True))
        yield f"{_verdict(share >= _SHARE)}  {share:.0%} of the throughput without one (target: {_SHARE:.0%})"
        yield _overhead(found[""], found[_SCRIPT])
    pace = _PACE * median(each.rate for each in found[_SCRIPT])
    found = {"": [], _SCRIPT: []}
    for _ in range(rounds):
        for script, measurements in found.items():
            function.set(script)
            measurements.append(measure(_CONNECTIONS[-1], int(pace * seconds), per_second=pace))
    yield from _report(f"{_CONNECTIONS[-1]} connections, {pace:.0f} requests a second", found[""], found[_SCRIPT])
    yield _overhead(found[""], found[_SCRIPT])
    sizes = [memory_mb(worker)[0] for worker in children_of(token_service)]
    function.set("")
    met = sizes and max(sizes) < _WORKER_MB
    yield f"{_verdict(met)}  {len(sizes)} workers of at most {max(sizes, default=0):.1f} MB (target: {_WORKER_MB:.0f})"


def _rate(function: Function, measure: Measure, script: str, connections: int) -> float:
    function.set(script)
    return measure(connections, _WARM_UP_PASSES).rate


def _report(load: str, without: list[Measurement], with_script: list[Measurement]) -> Iterator[str]:
    for name, measurements in (("without", without), ("with", with_script)):
        yield (
            f"{load}, {name} a script: {median(each.rate for each in measurements):,.0f} req/s,"
            f" p50 {median(each.p50_ms for each in measurements):.2f} ms,"
            f" p99 {median(each.p99_ms for each in measurements):.2f} ms,"
            f" {median(each.own_cpu_us for each in measurements):.0f} µs of our own CPU"
        )


def _overhead(without: list[Measurement], with_script: list[Measurement]) -> str:
    overhead = median(one.p99_ms - other.p99_ms for one, other in zip(with_script, without, strict=True))
    return f"{_verdict(overhead < _OVERHEAD_MS)}  p99 {overhead:+.2f} ms (target: {_OVERHEAD_MS:.0f} ms)"


def _claims(access_token: str) -> dict[str, object]:
    payload = access_token.split(".")[1]
    return msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)), type=dict)


def _verdict(met: object) -> str:
    return "met   " if met else "MISSED"
