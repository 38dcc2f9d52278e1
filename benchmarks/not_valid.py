"""What the not-valid feed costs a verifier: the look-up of a token, loading, and memory, by the number of records.

Measured in this process, without a service: the records are made here, each look-up is of a token of its own.
"""

import hashlib
import time
import tracemalloc
from collections.abc import Iterator
from statistics import median
from typing import Final

from stead.not_valid._state import FeedState
from stead.not_valid.entries import ALWAYS, NotValid
from stead.not_valid.messages import Snapshot
from stead.verification import AccessToken

_TOKENS: Final = 2_000
_ROUNDS: Final = 9
_RECORDS: Final = (0, 10_000, 1_000_000)
_TARGET_US: Final = 5.0
_LATER: Final = 4_000_000_000


def _records(count: int) -> bytes:
    entries = sorted(hashlib.sha256(number.to_bytes(8, "big")).digest()[:16] for number in range(count))
    return b"".join(NotValid(entry, ALWAYS, _LATER).pack() for entry in entries)


def _token(number: int) -> AccessToken:
    """Return a token like those of an authorization, for a resource within one of a hundred organizations."""
    return AccessToken(
        id=f"authorization{number:08}.{number:032x}",
        key_id="a-key",
        issuer="https://id.example.com/oidc",
        subject=f"user{number:017}",
        audience="https://api.example.com",
        client_id=f"client{number % 10:015}",
        scopes=frozenset({"read:orders", "write:orders"}),
        issued_at=1_000_000_000,
        expires_at=_LATER,
        actor=None,
        grant_type=None,
        organization_id=f"organization{number % 100:09}",
        claims={"pv": {"management": 17, "template": 17}},
    )


def _look_up_us(state: FeedState, tokens: list[AccessToken], *, stale_permissions: bool) -> float:
    """Return the CPU time of a look-up, microseconds."""
    begun = time.process_time()
    for token in tokens:
        if state.why_not_valid(token, stale_permissions=stale_permissions) is not None:
            raise RuntimeError("a valid token was refused")
    return (time.process_time() - begun) / len(tokens) * 1e6


def _measured(count: int) -> tuple[float, float, float, float, float]:
    """Return µs of a first look-up, of one with permissions, of a repeated one; s and MB of loading."""
    records = _records(count)
    state = FeedState(stale_after_s=4, clock_leeway_s=5)
    tracemalloc.start()
    state.load(Snapshot(iss="", epoch=1, to=1, sha256=""), records)
    loaded_mb = (tracemalloc.get_traced_memory()[0] + len(records)) / 1e6
    tracemalloc.stop()
    state = FeedState(stale_after_s=4, clock_leeway_s=5)
    begun = time.process_time()
    state.load(Snapshot(iss="", epoch=1, to=1, sha256=""), records)
    load_s = time.process_time() - begun
    firsts, permissions, repeated = [], [], []
    for round_ in range(_ROUNDS):
        tokens = [_token(round_ * _TOKENS + number) for number in range(_TOKENS)]
        firsts.append(_look_up_us(state, tokens, stale_permissions=False))
        repeated.append(_look_up_us(state, tokens, stale_permissions=False))
        permissions.append(_look_up_us(state, tokens, stale_permissions=True))
    return median(firsts), median(permissions), median(repeated), load_s, loaded_mb


def lines() -> Iterator[str]:
    """Measure, and yield the results line by line."""
    for count in _RECORDS:
        first, permissions, repeated, load_s, loaded_mb = _measured(count)
        yield (
            f"  {count:>9,} records: first look-up of a token {first:5.1f} µs, with permissions {permissions:5.1f} µs, "
            f"repeated {repeated:4.1f} µs; loaded in {load_s:4.2f} s CPU, {loaded_mb:5.1f} MB"
        )
    yield f"  Target: {_TARGET_US} µs a request, under 50 MB, loaded in 5 s"
