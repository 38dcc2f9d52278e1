"""The custom-claims function: an exchange with a script that adds three claims, beside the exchange without one."""

import base64
import time
from collections.abc import Callable, Iterator, Mapping
from statistics import median
from typing import Final

import msgspec

from benchmarks.measure import Measurement, children_of, memory_mb
from identity_common.wire.events import ClaimsFunctionState
from tests.support.function_events import publish_function

_SCRIPT: Final = """
const getCustomJwtClaims = async ({ token, context }) => ({
  plan: context.user.customData.plan,
  roles: context.user.roles.map((role) => role.name),
  ticket: context.grant.subjectTokenContext.ticket,
});
"""
_CONNECTIONS: Final = (1, 16)
_WARM_UP_PASSES: Final = 500
_PATIENCE_S: Final = 10
_SHARE: Final = 0.6
_OVERHEAD_MS: Final = 2.0
_WORKER_MB: Final = 20.0


class Function:
    """The function of the deployment; set and removed by its event."""

    def __init__(self, management_nats_url: str, *, revision: int, access_token: Callable[[], str]) -> None:
        self._management_nats_url = management_nats_url
        self._revision = revision
        self._access_token = access_token

    def set(self, script: str) -> None:
        """Make a script the active version, or remove the function for an empty one; return when it is in force."""
        state = ClaimsFunctionState(kind="access-token", version=1, script=script, deleted=not script)
        publish_function(self._management_nats_url, "default", state, revision=self._revision)
        deadline = time.monotonic() + _PATIENCE_S
        while ("plan" in _claims(self._access_token())) != bool(script):
            if time.monotonic() > deadline:
                raise RuntimeError("the function does not take effect")
            time.sleep(0.05)


def lines(
    function: Function, measure: Callable[[int, int], Measurement], *, token_service: int, rounds: int, seconds: float
) -> Iterator[str]:
    """Measure without and with the script in every round, so that noise affects both alike.

    Args:
        function: The function of the deployment.
        measure: Measures the exchange with this many connections and passes.
        token_service: Its process id.
        rounds: How often.
        seconds: Approximate length of each measurement.
    """
    for connections in _CONNECTIONS:
        found: Mapping[str, list[Measurement]] = {"": [], _SCRIPT: []}
        rates = {script: _rate(function, measure, script, connections) for script in found}
        for _ in range(rounds):
            for script, measurements in found.items():
                function.set(script)
                measurements.append(measure(connections, max(connections, int(rates[script] * seconds))))
        yield from _report(connections, found[""], found[_SCRIPT])
    sizes = [memory_mb(worker)[0] for worker in children_of(token_service)]
    function.set("")
    met = sizes and max(sizes) < _WORKER_MB
    yield f"{_verdict(met)}  {len(sizes)} workers of at most {max(sizes, default=0):.1f} MB (target: {_WORKER_MB:.0f})"


def _rate(function: Function, measure: Callable[[int, int], Measurement], script: str, connections: int) -> float:
    function.set(script)
    return measure(connections, _WARM_UP_PASSES).rate


def _report(connections: int, without: list[Measurement], with_script: list[Measurement]) -> Iterator[str]:
    for name, measurements in (("without", without), ("with", with_script)):
        yield (
            f"{connections} connections, {name} a script: {median(each.rate for each in measurements):,.0f} req/s,"
            f" p50 {median(each.p50_ms for each in measurements):.2f} ms,"
            f" p99 {median(each.p99_ms for each in measurements):.2f} ms,"
            f" {median(each.own_cpu_us for each in measurements):.0f} µs of our own CPU"
        )
    pairs = list(zip(with_script, without, strict=True))
    share = median(one.rate / other.rate for one, other in pairs)
    overhead = median(one.p99_ms - other.p99_ms for one, other in pairs)
    yield f"{_verdict(share >= _SHARE)}  {share:.0%} of the throughput without one (target: {_SHARE:.0%})"
    yield f"{_verdict(overhead < _OVERHEAD_MS)}  p99 {overhead:+.2f} ms (target: {_OVERHEAD_MS:.0f} ms)"


def _claims(access_token: str) -> dict[str, object]:
    payload = access_token.split(".")[1]
    return msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)), type=dict)


def _verdict(met: object) -> str:
    return "met   " if met else "MISSED"
