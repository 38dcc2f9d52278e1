"""Turns measurements into a table: medians of the rounds, ratios within each round, and targets."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Final

from benchmarks.measure import Measurement
from benchmarks.rounds import Key, Round
from benchmarks.scenarios import FLOOR

_LEAST_SHARES: Final[Mapping[Key, float]] = {
    ("token exchange", 1): 0.60,
    ("token exchange", 16): 0.50,
    ("token exchange", 64): 0.52,
    **{("client credentials", connections): 0.50 for connections in (1, 16, 64)},
    ("reading a user", 16): 0.35,
}
"""Of the floor's throughput."""
_MOST_SIGNATURES: Final[Mapping[Key, float]] = {
    ("client credentials", 16): 8.5,
    ("minting", 16): 14.0,
    ("full cycle", 16): 36.0,
}
"""CPU time of our processes and the stores together."""
_MOST_OWN_US: Final[Mapping[Key, float]] = {
    **{("full cycle", connections): 1000.0 for connections in (1, 16, 64)},
    ("creating a user", 16): 1500.0,
}
_COLUMNS: Final = (
    "connections",
    "scenario",
    "req/s",
    "of floor",
    "p50 ms",
    "p99 ms",
    "own µs",
    "of floor",
    "signatures",
    "stores µs",
    "signatures",
    "signatures together",
)


class Report:
    """The measurements of all rounds, in chronological order."""

    def __init__(self, rounds: Sequence[Round]) -> None:
        self._rounds = {key: [each.measurements[key] for each in rounds] for key in rounds[0].measurements}
        self._signatures = [each.signature_us for each in rounds]

    def lines(self) -> Iterator[str]:
        """Yield the table."""
        rows = [_COLUMNS, *self._rows()]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
        connections = ""
        for number, row in enumerate(rows):
            if row[0] != connections and number > 1:
                yield ""
            connections = row[0]
            cells = (
                cell.ljust(width) if column == 1 else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            yield "  ".join(cells).rstrip()

    def _rows(self) -> Iterator[tuple[str, ...]]:
        for (scenario, connections), measurements in self._rounds.items():
            floor = self._rounds[FLOOR, connections]
            yield (
                str(connections),
                scenario,
                f"{self._median(measurements, _rate):,.0f}",
                f"{_ratio(measurements, floor, _rate):.0%}",
                f"{self._median(measurements, lambda each: each.p50_ms):.2f}",
                f"{self._median(measurements, lambda each: each.p99_ms):.2f}",
                f"{self._median(measurements, lambda each: each.own_cpu_us):.0f}",
                f"{_ratio(measurements, floor, lambda each: each.own_cpu_us):.2f} x",
                f"{self._in_signatures(measurements, lambda each: each.own_cpu_us):.1f}",
                f"{self._median(measurements, lambda each: each.store_cpu_us):.0f}",
                f"{self._in_signatures(measurements, lambda each: each.store_cpu_us):.1f}",
                f"{self._in_signatures(measurements, _together_us):.1f}",
            )

    def _in_signatures(self, measurements: Sequence[Measurement], value: Callable[[Measurement], float]) -> float:
        return median(value(one) / signature for one, signature in zip(measurements, self._signatures, strict=True))

    @staticmethod
    def _median(measurements: Sequence[Measurement], value: Callable[[Measurement], float]) -> float:
        return median(map(value, measurements))

    def targets(self) -> Iterator[str]:
        """Yield a line for each target and number of connections: met or missed, and the figure."""
        for key, measurements in self._rounds.items():
            scenario, connections = key
            name = f"{scenario} at {connections}"
            if key in _LEAST_SHARES:
                share, least = _ratio(measurements, self._rounds[FLOOR, connections], _rate), _LEAST_SHARES[key]
                yield f"{_verdict(share >= least)}  {name}: {share:.0%} of the floor's req/s (target: {least:.0%})"
            if key in _MOST_SIGNATURES:
                signatures, most = self._in_signatures(measurements, _together_us), _MOST_SIGNATURES[key]
                yield (
                    f"{_verdict(signatures <= most)}  {name}: {signatures:.1f} signatures, stores included"
                    f" (target: {most:.1f})"
                )
            if key in _MOST_OWN_US:
                own_us, most = self._median(measurements, lambda each: each.own_cpu_us), _MOST_OWN_US[key]
                yield f"{_verdict(own_us < most)}  {name}: {own_us:.0f} µs of our own CPU (target: {most:.0f} µs)"

    def busiest_load(self) -> float:
        """Return the largest median CPU utilization of the load generator."""
        return max(self._median(measurements, lambda each: each.load) for measurements in self._rounds.values())


def _rate(measurement: Measurement) -> float:
    return measurement.rate


def _together_us(measurement: Measurement) -> float:
    return measurement.own_cpu_us + measurement.store_cpu_us


def _ratio(
    measurements: Sequence[Measurement], floor: Sequence[Measurement], value: Callable[[Measurement], float]
) -> float:
    """Return the median of the ratios within a round, as temporary noise affects both."""
    return median(value(one) / value(other) for one, other in zip(measurements, floor, strict=True))


def _verdict(met: bool) -> str:
    return "met   " if met else "MISSED"
