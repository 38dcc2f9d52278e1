"""The comparison of two commits reads the table that ``make bench`` prints, also the one of older commits."""

from benchmarks.compare import lines, parse

_OLDER = """\
Stead on 2 processors

requests
2 rounds of 0.6 s, medians

connections  scenario             req/s  of floor  p50 ms  p99 ms  own µs  of floor  stores µs
          1  floor                1,000      100%    0.50    1.00     200    1.00 x         50
          1  minting                500       50%    1.00    2.00     400    2.00 x        100

         16  floor                8,000      100%    1.00    2.00     100    1.00 x         40

met     minting at 1: 50% of the floor's req/s (target: 50%)
the load generator used at most 40% of one processor
"""
_NEWER = """\
connections  scenario             req/s  of floor  p50 ms  p99 ms  own µs  of floor  signatures  stores µs  signatures
          1  floor                1,100      100%    0.50    1.00     100    1.00 x         2.5         50         1.2
          1  minting              1,000       91%    1.00    2.00     200    2.00 x         5.0         50         1.2
          1  full cycle             500       45%    1.00    2.00     300    3.00 x         7.5         50         1.2
"""


def test_tables_with_and_without_signatures_are_read_alike() -> None:
    assert parse(_OLDER) == {
        ("1", "floor"): {"req/s": 1000, "own µs": 200, "stores µs": 50},
        ("1", "minting"): {"req/s": 500, "own µs": 400, "stores µs": 100},
        ("16", "floor"): {"req/s": 8000, "own µs": 100, "stores µs": 40},
    }
    assert parse(_NEWER)["1", "full cycle"] == {"req/s": 500, "own µs": 300, "stores µs": 50}


def test_ratios_are_medians_of_the_pairs_for_the_rows_that_both_have() -> None:
    older, newer = parse(_OLDER), parse(_NEWER)
    heading, *rows = lines([(older, newer), (older, older), (older, newer)])
    assert heading.split() == ["connections", "scenario", "req/s", "own", "µs", "stores", "µs"]
    assert [row.split() for row in rows] == [
        ["1", "floor", "1.10", "(1.00-1.10)", "0.50", "(0.50-1.00)", "1.00", "(1.00-1.00)"],
        ["1", "minting", "2.00", "(1.00-2.00)", "0.50", "(0.50-1.00)", "0.50", "(0.50-1.00)"],
    ]
