"""Rounds: each measures every scenario once, so that noise affects all of them alike."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from benchmarks.measure import Measurement
from benchmarks.signature import signature_us

Key = tuple[str, int]
"""A scenario and a number of connections."""


class Round(msgspec.Struct, frozen=True):
    """What was measured in one round.

    Attributes:
        signature_us: CPU time of one P-256 signature, microseconds.
        measurements: Of every scenario.
    """

    signature_us: float
    measurements: Mapping[Key, Measurement]


def measure_round(
    measure: Callable[[str, int, int], Measurement], keys: Sequence[Key], rates: dict[Key, float], seconds: float
) -> Round:
    """Measure every scenario for about so many seconds.

    Args:
        measure: Runs a number of passes of a scenario with so many connections.
        keys: The scenarios.
        rates: Passes per second, by which the number of passes is chosen; updated.
        seconds: Approximate duration of each.
    """
    signature = signature_us()
    measurements = {key: measure(*key, max(key[1], int(rates[key] * seconds))) for key in keys}
    rates.update({key: each.rate for key, each in measurements.items()})
    return Round(signature, measurements)
