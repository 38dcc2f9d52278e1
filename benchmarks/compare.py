"""``python -m benchmarks.compare REV``: run the requests of a commit and of this tree in turn, and print ratios.

Each side runs its own benchmarks, services and pinned dependencies. Their printed table is the interface, because older
commits print it, too.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Final

_ROOT: Final = Path(__file__).parents[1]
_CHECKOUTS: Final = _ROOT / ".venv" / "compare"
_COMPARED: Final = ("req/s", "own µs", "stores µs")
_GAP: Final = re.compile(" {2,}")

Row = tuple[str, str]
"""Connections and scenario."""

Table = Mapping[Row, Mapping[str, float]]
"""The compared columns of every row."""


def check_out(revision: str) -> Path:
    """Return a checkout of a commit with its dependencies installed; one of an earlier comparison is used again.

    Raises:
        subprocess.CalledProcessError: The commit is unknown, or its dependencies cannot be installed.
    """
    resolved = ["git", "rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}"]
    commit = subprocess.run(resolved, cwd=_ROOT, check=True, capture_output=True, text=True).stdout.strip()
    checkout = _CHECKOUTS / commit[:12]
    if not checkout.exists():
        clone = ["git", "clone", "--quiet", "--shared", "--no-checkout", str(_ROOT), str(checkout)]
        subprocess.run(clone, check=True)
        subprocess.run(["git", "checkout", "--quiet", "--detach", commit], cwd=checkout, check=True)
    interpreter = Path(sys.executable).resolve()
    subprocess.run(["make", "--silent", f"PYTHON={interpreter}", ".venv/.installed"], cwd=checkout, check=True)
    return checkout


def run(checkout: Path, options: Sequence[str]) -> Table:
    """Run the benchmark of requests in a checkout and return its table.

    Raises:
        subprocess.CalledProcessError: It failed.
    """
    command = [str(checkout / ".venv/bin/python"), "-m", "benchmarks", "--only", "requests", *options]
    printed = subprocess.run(command, cwd=checkout, check=True, stdout=subprocess.PIPE, text=True).stdout
    return parse(printed)


def parse(printed: str) -> Table:
    """Return the compared columns of a printed table."""
    rows = [_GAP.split(line.strip()) for line in printed.splitlines()]
    start = next(number for number, row in enumerate(rows) if row[0] == "connections")
    places = {name: rows[start].index(name) for name in _COMPARED}
    return {
        (row[0], row[1]): {name: float(row[place].replace(",", "")) for name, place in places.items()}
        for row in rows[start + 1 :]
        if len(row) == len(rows[start])
    }


def lines(pairs: Sequence[tuple[Table, Table]]) -> Iterator[str]:
    """Yield the ratios of this tree to the commit: the median of the pairs, the least and the greatest."""
    yield f"{'connections':>11}  {'scenario':<20}" + "".join(f"  {name:>20}" for name in _COMPARED)
    for row in pairs[0][1]:
        if all(row in table for pair in pairs for table in pair):
            cells = (_cell([(here[row][name], there[row][name]) for there, here in pairs]) for name in _COMPARED)
            yield f"{row[0]:>11}  {row[1]:<20}" + "".join(f"  {cell:>20}" for cell in cells)


def _cell(figures: Sequence[tuple[float, float]]) -> str:
    """Return the ratios of one column; none where a cost of the commit was too small to count."""
    ratios = [here / there for here, there in figures if there]
    if len(ratios) < len(figures):
        return "-"
    return f"{median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"


def main() -> int:
    """Compare, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description="See benchmarks/README.md.")
    parser.add_argument("revision", help="the commit to compare this tree with")
    parser.add_argument("--pairs", type=int, default=2, help="how often each side runs (2)")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    options = parser.parse_args()
    rounds = ["--quick"] if options.quick else []
    try:
        other = check_out(options.revision)
        pairs = [(run(other, rounds), run(_ROOT, rounds)) for _ in range(options.pairs)]
    except subprocess.CalledProcessError as error:
        print(f"benchmarks.compare: {error}", file=sys.stderr)
        return 1
    print(f"this tree / {options.revision}: median of {options.pairs} pairs (least-greatest)\n")
    print(*lines(pairs), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
