"""What the not-valid feed costs a verifier: the look-up of a token, loading, and memory, by the number of records.

Measured in this process, without a service: the records are generated, and each look-up is of another token.
"""

import hashlib
import time
import tracemalloc
from collections.abc import Iterator
from statistics import median
from typing import Final

import msgspec

from stead.verify.access_tokens import AccessToken
from stead.verify.feed.entries import ALWAYS, NotValid
from stead.verify.feed.messages import Message, Snapshot, encoded_records
from stead.verify.feed.state import FeedState

_TOKENS: Final = 2_000
_ROUNDS: Final = 9
_RECORDS: Final = (0, 10_000, 1_000_000)
_ARRIVING: Final = 20_001
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


def _exchanged(number: int) -> AccessToken:
    """Return a token that an actor got by exchange, in an impersonation that began within others."""
    token = _token(number)
    begun_at = f"{1_790_000_000_000 + number:012x}"
    return msgspec.structs.replace(
        token,
        id=f"{number:021}.{number + 1:021}.authorization{number:08}.{begun_at}{number:020x}",
        grant_type="urn:ietf:params:oauth:grant-type:token-exchange",
        actor={"sub": f"agent{number % 50:016}", "act": {"sub": f"lead{number % 10:017}"}},
    )


def _look_up_us(state: FeedState, tokens: list[AccessToken], *, stale_permissions: bool) -> float:
    """Return the CPU time of a look-up, microseconds."""
    begun = time.process_time()
    for token in tokens:
        if state.why_not_valid(token, stale_permissions=stale_permissions) is not None:
            raise RuntimeError("a valid token was refused")
    return (time.process_time() - begun) / len(tokens) * 1e6


def _compact(state: FeedState) -> None:
    """Add as many records as trigger a compaction."""
    added = (NotValid(hashlib.sha256(b"%d" % number).digest()[:16], ALWAYS, _LATER) for number in range(_ARRIVING))
    message = Message(
        iss="", epoch=1, from_=1, to=2, time=0, records=encoded_records(b"".join(each.pack() for each in added))
    )
    state.take(message)


def _loaded(count: int) -> tuple[FeedState, float, float, float, float]:
    """Load this many records, and measure it.

    Returns:
        The state; the CPU time of loading it, seconds; its memory in MB, and the peaks while the same records are
        loaded again and while new ones are merged.
    """
    received = bytearray(_records(count))
    snapshot = Snapshot(iss="", epoch=1, to=1, sha256="")
    state = FeedState(stale_after_s=4, clock_leeway_s=5)
    begun = time.process_time()
    state.load(snapshot, received)
    load_s = time.process_time() - begun
    del received
    tracemalloc.start()
    state = FeedState(stale_after_s=4, clock_leeway_s=5)
    state.load(snapshot, bytearray(_records(count)))
    held_mb = tracemalloc.get_traced_memory()[0] / 1e6
    again = bytearray(_records(count))
    tracemalloc.reset_peak()
    state.load(snapshot, again)
    peak_mb = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.reset_peak()
    _compact(state)
    compacted_mb = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    return state, load_s, held_mb, peak_mb, compacted_mb


def lines() -> Iterator[str]:
    """Measure, and yield the results line by line."""
    for count in _RECORDS:
        state, load_s, held_mb, peak_mb, compacted_mb = _loaded(count)
        yield (
            f"  {count:>9,} records: loaded in {load_s:4.2f} s CPU, {held_mb:5.1f} MB, {peak_mb:5.1f} MB while "
            f"replaced, {compacted_mb:5.1f} MB while compacted"
        )
        for name, token in (("token of an authorization", _token), ("exchanged token, with two actors", _exchanged)):
            firsts, permissions, repeated = [], [], []
            for round_ in range(_ROUNDS):
                tokens = [token(round_ * _TOKENS + number) for number in range(_TOKENS)]
                firsts.append(_look_up_us(state, tokens, stale_permissions=False))
                repeated.append(_look_up_us(state, tokens, stale_permissions=False))
                permissions.append(_look_up_us(state, tokens, stale_permissions=True))
            yield (
                f"            {name}: first look-up {median(firsts):5.1f} µs, with permissions "
                f"{median(permissions):5.1f} µs, repeated {median(repeated):4.1f} µs"
            )
    yield f"  Target: {_TARGET_US} µs a request, under 50 MB, loaded in 5 s"
