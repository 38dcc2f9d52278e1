"""Turns measurements into a table: medians of the rounds, ratios within each round, and targets."""

from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Final

from benchmarks.measure import Measurement
from benchmarks.rounds import Round
from benchmarks.scenarios import FLOOR

_HALF_OF_THE_FLOOR: Final = ("token exchange", "client credentials")
_MIN_SHARE: Final = 0.5
_MAX_CYCLE_US: Final = 1000.0
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
                f"{self._median(measurements, lambda each: each.rate):,.0f}",
                f"{_ratio(measurements, floor, lambda each: each.rate):.0%}",
                f"{self._median(measurements, lambda each: each.p50_ms):.2f}",
                f"{self._median(measurements, lambda each: each.p99_ms):.2f}",
                f"{self._median(measurements, lambda each: each.own_cpu_us):.0f}",
                f"{_ratio(measurements, floor, lambda each: each.own_cpu_us):.2f} x",
                f"{self._in_signatures(measurements, lambda each: each.own_cpu_us):.1f}",
                f"{self._median(measurements, lambda each: each.store_cpu_us):.0f}",
                f"{self._in_signatures(measurements, lambda each: each.store_cpu_us):.1f}",
            )

    def _in_signatures(self, measurements: Sequence[Measurement], value: Callable[[Measurement], float]) -> float:
        return median(value(one) / signature for one, signature in zip(measurements, self._signatures, strict=True))

    @staticmethod
    def _median(measurements: Sequence[Measurement], value: Callable[[Measurement], float]) -> float:
        return median(map(value, measurements))

    def targets(self) -> Iterator[str]:
        """Yield a line for each target and number of connections: met or missed, and the figure."""
        for (scenario, connections), measurements in self._rounds.items():
            if scenario in _HALF_OF_THE_FLOOR:
                share = _ratio(measurements, self._rounds[FLOOR, connections], lambda each: each.rate)
                met = share >= _MIN_SHARE
                yield f"{_verdict(met)}  {scenario} at {connections}: {share:.0%} of the floor's req/s (target: 50%)"
            elif scenario == "full cycle":
                own_us = self._median(measurements, lambda each: each.own_cpu_us)
                met = own_us < _MAX_CYCLE_US
                yield f"{_verdict(met)}  {scenario} at {connections}: {own_us:.0f} µs of our own CPU (target: 1000 µs)"

    def busiest_load(self) -> float:
        """Return the largest median CPU utilization of the load generator."""
        return max(self._median(measurements, lambda each: each.load) for measurements in self._rounds.values())


def _ratio(
    measurements: Sequence[Measurement], floor: Sequence[Measurement], value: Callable[[Measurement], float]
) -> float:
    """Return the median of the ratios within a round, as temporary noise affects both."""
    return median(value(one) / value(other) for one, other in zip(measurements, floor, strict=True))


def _verdict(met: bool) -> str:
    return "met   " if met else "MISSED"
