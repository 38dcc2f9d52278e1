"""Exchanges without a script, while 64 other requests wait for calls of an endless script."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from statistics import median
from typing import Final

from benchmarks.measure import Measurement
from stead import IdentityError, ManagementClient

_ENDLESS: Final = "const getCustomJwtClaims = () => { for (;;); };"
_REQUESTS: Final = 64
_CONNECTIONS: Final = (1, 16)
_WARM_UP_PASSES: Final = 500
_TIMEOUT_S: Final = 10


class Function:
    """The function for tokens of machine-to-machine clients, which refuses them because it fails."""

    def __init__(self, management: ManagementClient, *, machine_token: Callable[[], None]) -> None:
        self._custom_claims = management.custom_claims
        self._machine_token = machine_token

    def set(self) -> None:
        """Save the endless script; return when it is in force."""
        self._custom_claims.save("client-credentials", _ENDLESS, block_issuance_on_error=True)
        self._wait(is_set=True)

    def remove(self) -> None:
        """Delete the function; return when tokens are issued again."""
        self._custom_claims.delete("client-credentials")
        self._wait(is_set=False)

    def _wait(self, *, is_set: bool) -> None:
        deadline = time.monotonic() + _TIMEOUT_S
        while self._is_issued() == is_set:
            if time.monotonic() > deadline:
                raise RuntimeError("the function does not take effect")
            time.sleep(0.05)

    def _is_issued(self) -> bool:
        try:
            self._machine_token()
        except IdentityError:
            return False
        return True


def lines(
    function: Function,
    measure: Callable[[int, int], Measurement],
    requesting: Callable[[int], AbstractContextManager[None]],
    *,
    rounds: int,
    seconds: float,
) -> Iterator[str]:
    """Measure an exchange without a script in every round: alone, then while others call the endless script.

    Args:
        function: The function for other tokens.
        measure: Measures the exchange with this many connections and passes.
        requesting: Requests the other tokens in the background, from this many connections.
        rounds: How often.
        seconds: Approximate length of each measurement.

    Raises:
        LoadFailed: An exchange failed.
    """
    for connections in _CONNECTIONS:
        passes = max(_WARM_UP_PASSES, int(measure(connections, _WARM_UP_PASSES).rate * seconds))
        alone, beside = [], []
        for _ in range(rounds):
            alone.append(measure(connections, passes))
            function.set()
            with requesting(_REQUESTS):
                beside.append(measure(connections, passes))
            function.remove()
        yield f"{connections} connections, alone: {_medians(alone)}"
        yield (
            f"{connections} connections, beside {_REQUESTS} requests with an endless script: {_medians(beside)};"
            f" none of {sum(passes for _ in beside):,} exchanges failed"
        )


def _medians(found: list[Measurement]) -> str:
    return (
        f"{median(each.rate for each in found):,.0f} req/s, p50 {median(each.p50_ms for each in found):.2f} ms,"
        f" p99 {median(each.p99_ms for each in found):.2f} ms"
    )
