"""What a verifier makes of the not-valid feed: entries; and only the genuine, current feed counts as fresh."""

from __future__ import annotations

import hashlib
import math
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import httpx2 as httpx
import pytest

from stead import AccessTokenVerifier, AsyncAccessTokenVerifier
from stead.errors import TokenInvalid, Unavailable
from stead.verify.access_tokens import AccessToken
from stead.verify.feed import NotValidFeed
from stead.verify.feed.endpoint import repeat
from stead.verify.feed.entries import ALWAYS, Kind, Narrowed, NotValid, entry_of, lookups_of, narrowed_entries, unpack
from stead.verify.feed.http_source import _data_of
from stead.verify.feed.messages import (
    MESSAGE_TYPE,
    SNAPSHOT_TYPE,
    InvalidFeed,
    Message,
    digest_of,
    encoded_records,
    read_message,
    read_snapshot,
)
from stead.verify.feed.records import Records
from stead.verify.feed.state import FeedState, Gap
from stead.verify.impersonations import actors_of, organization_of
from stead.verify.keys import KeySet
from tests.support.waiting import WAIT_S, eventually
from tests.unit.sdk.http_server import Answer, HttpServer, Received
from tests.unit.sdk.issuer import ISSUER, NOW, SigningKey, compact, jwks

KEY = SigningKey("feed", "EdDSA")
KEYS = KeySet.parse(jwks(KEY))
LATER = int(NOW) + 3600
AHEAD = {"organization_id": "o1", "claims": {"iat_ms": (int(NOW) + 1) * 1000}}
"""Of a token for a member who joined, by the clock of another machine, in the second after ``iat``."""


def access_token(**changes: Any) -> AccessToken:
    values: dict[str, Any] = {
        "id": "auth1.abc",
        "key_id": "kid1",
        "issuer": ISSUER,
        "subject": "user1",
        "audience": "https://api.example.com",
        "client_id": "client1",
        "scopes": frozenset(),
        "issued_at": NOW,
        "expires_at": NOW + 3600,
        "actor": None,
        "grant_type": None,
        "organization_id": None,
        "claims": {},
    }
    return AccessToken(**{**values, **changes})


def signed(typ: str, key: SigningKey = KEY, **claims: Any) -> str:
    return compact({"alg": key.alg, "typ": typ, "kid": key.kid}, {"iss": ISSUER, **claims}, key)


def message(key: SigningKey = KEY, *, typ: str = MESSAGE_TYPE, records: bytes = b"", **changes: Any) -> str:
    claims = {"epoch": 1, "from": 0, "to": 0, "time": int(NOW * 1000), "records": encoded_records(records), **changes}
    return signed(typ, key, **claims)


def snapshot(records: bytes = b"", *, sha256: str | None = None, **changes: Any) -> bytes:
    claims = {"epoch": 1, "to": 0, "sha256": sha256 or digest_of(records), **changes}
    return signed(SNAPSHOT_TYPE, **claims).encode() + b"\n" + records


class Reader:
    """A state whose time stands still until a test moves it; ``jump`` is how far the clock was set forward."""

    def __init__(self) -> None:
        self.now = NOW
        self.jump = 0.0
        self.state = FeedState(
            stale_after_s=4, clock_leeway_s=5, clock=lambda: self.now + self.jump, monotonic=lambda: self.now
        )

    def load(self, body: bytes) -> None:
        self.state.load(*read_snapshot(body, KEYS, issuer=ISSUER))

    def take(self, jws: str) -> None:
        self.state.take(read_message(jws, KEYS, issuer=ISSUER))

    def heartbeat(self, sequence: int, **changes: Any) -> None:
        self.take(message(**{"from": sequence, "to": sequence, "time": int(self.now * 1000), **changes}))


@pytest.fixture
def reader() -> Reader:
    reader = Reader()
    reader.load(snapshot(to=5))
    return reader


def ended(kind: Kind, *ids: str, not_before: int = ALWAYS) -> bytes:
    return NotValid(entry_of(kind, *ids), not_before, LATER).pack()


@pytest.mark.parametrize(
    ("record", "changes", "verdict"),
    [
        (ended("token", "auth1.abc"), {}, "token"),
        (ended("token", "auth1"), {}, "token"),
        (ended("token", "imp2"), {"id": "imp1.imp2.own.abc"}, "token"),
        (ended("token", "auth"), {}, None),
        (ended("key", "kid1"), {}, "key"),
        (ended("user", "user1"), {}, "user"),
        (ended("user", "user1"), {"subject": "client1"}, None),
        (ended("user", "agent2"), {"actor": {"sub": "agent1", "act": {"sub": "agent2"}}}, "user"),
        (ended("user", "user1", not_before=int(NOW)), {}, None),
        (ended("user", "user1", not_before=int(NOW) + 1), {}, "user"),
        (ended("client", "client1"), {}, "client"),
        (ended("exchange", "client1"), {}, None),
        (ended("exchange", "client1"), {"grant_type": "urn:ietf:params:oauth:grant-type:token-exchange"}, "exchange"),
        (ended("resource", "https://api.example.com"), {}, "resource"),
        (ended("organization", "o1"), {"organization_id": "o1"}, "organization"),
        (ended("organization", "o1"), {"audience": "urn:service:organization:o1"}, "organization"),
        (ended("member", "o1", "user1"), {"organization_id": "o1"}, "member"),
        (ended("member", "o1", "user2"), {"organization_id": "o1"}, None),
        (ended("member", "o1", "user1", not_before=int(NOW) + 1), AHEAD, None),
        (ended("member", "o1", "user1", not_before=int(NOW) + 2), AHEAD, "member"),
    ],
)
def test_a_token_is_judged_by_everything_that_it_depends_on(
    reader: Reader, record: bytes, changes: dict[str, Any], verdict: str | None
) -> None:
    presented = access_token(**changes)
    assert reader.state.why_not_valid(presented) is None
    reader.take(message(records=record, **{"from": 5, "to": 6}))
    assert reader.state.why_not_valid(presented) == verdict


def test_entries_of_different_kinds_and_ids_never_meet() -> None:
    assert len({entry_of("member", "a", "bc"), entry_of("member", "ab", "c"), entry_of("token", "a", "bc")}) == 3
    assert entry_of("user", "u1").hex() == "033f0f0eec4606a1b03c7610bb42ca53"
    presented = access_token(organization_id="o1", actor={"sub": "a"})
    assert sum(len(names) for _, names in lookups_of(presented, stale_permissions=False)) == 10


def test_what_two_tokens_share_is_looked_up_again_in_other_records(reader: Reader) -> None:
    one, other = access_token(id="a.1", subject="u1"), access_token(id="b.2", subject="u2")
    assert reader.state.why_not_valid(one) is None
    reader.load(snapshot(ended("client", "client1"), to=9))
    assert [reader.state.why_not_valid(each) for each in (one, other)] == ["client", "client"]
    reader.load(snapshot(to=10))
    assert [reader.state.why_not_valid(each) for each in (one, other)] == [None, None]
    reader.take(message(records=ended("key", "kid1"), **{"from": 10, "to": 11}))
    assert [reader.state.why_not_valid(each) for each in (one, other)] == ["key", "key"]


RESTORED = 17_900_000_000_000  # a revision after a restoration: more than 32 bits


@pytest.mark.parametrize(
    ("lost", "own", "is_stale"),
    [
        (8, 7, True),
        (8, 8, False),
        (8, 9, False),
        (RESTORED, 7, True),
        (RESTORED, RESTORED - 1, True),
        (RESTORED, RESTORED, False),
        (RESTORED, RESTORED + 2**32, False),
        (RESTORED + 2**32, RESTORED + 1, True),
        (2**32, 2**32 - 1, True),
        (8, 2**32, False),
    ],
)
def test_permissions_are_stale_below_the_revision_in_which_they_were_lost(
    reader: Reader, lost: int, own: int, is_stale: bool
) -> None:
    presented = access_token(organization_id="o1", claims={"pv": {"management": own + 1, "template": own}})
    entries = narrowed_entries("member-permissions", "o1", "user1", revision=lost)
    records = b"".join(NotValid(entry, number, LATER).pack() for entry, number in entries.items())
    reader.take(message(records=records, **{"from": 5, "to": 5 + len(entries)}))
    assert reader.state.why_not_valid(presented) is None
    assert reader.state.why_not_valid(presented, stale_permissions=True) == ("permissions" if is_stale else None)


@pytest.mark.parametrize(
    ("kind", "ids", "changes", "verdict"),
    [
        ("holder", ("user1",), {}, "permissions"),
        ("holder", ("user2",), {}, None),
        ("holder", ("user1",), {"claims": {}}, None),  # its scopes do not come from roles
        ("holder", ("user1",), {"claims": {"pv": {"management": True}}}, "permissions"),
        ("scope", ("https://api.example.com", "read"), {"scopes": frozenset({"read", "write"})}, "permissions"),
        ("scope", ("https://api.example.com", "read"), {"scopes": frozenset({"write"})}, None),
        ("scope", ("https://api.example.com", "read"), {"scopes": frozenset({"read"}), "organization_id": "o"}, None),
        ("member-permissions", ("o1", "user1"), {}, None),
    ],
)
def test_permissions_are_lost_by_holder_scope_or_member(
    reader: Reader, kind: Narrowed, ids: tuple[str, ...], changes: dict[str, Any], verdict: str | None
) -> None:
    presented = access_token(**{"claims": {"pv": {"management": 7, "template": 7}}, **changes})
    entries = narrowed_entries(kind, *ids, revision=8)
    records = b"".join(NotValid(entry, number, LATER).pack() for entry, number in entries.items())
    reader.take(message(records=records, **{"from": 5, "to": 6}))
    assert reader.state.why_not_valid(presented, stale_permissions=True) == verdict


OTHER = SigningKey("feed", "EdDSA")


@pytest.mark.parametrize(
    "forged",
    [
        message(OTHER),
        message(SigningKey("unknown", "EdDSA")),
        message(typ="at+jwt"),
        message(typ=SNAPSHOT_TYPE),
        message(iss="https://other.example.com/oidc"),
        message(**{"from": 6, "to": 5}),
        message(time="now"),
        "x.y.z",
        "",
    ],
)
def test_a_forged_message_is_refused(forged: str) -> None:
    with pytest.raises(InvalidFeed):
        read_message(forged, KEYS, issuer=ISSUER)


@pytest.mark.parametrize(
    "forged",
    [
        snapshot(ended("user", "u"), sha256=digest_of(b"")),
        snapshot(iss="https://other.example.com/oidc"),
        snapshot(b"short", sha256=digest_of(b"short")),
        message().encode() + b"\n",
        b"",
    ],
)
def test_a_forged_snapshot_is_refused(forged: bytes) -> None:
    with pytest.raises(InvalidFeed):
        read_snapshot(forged, KEYS, issuer=ISSUER)


def test_an_unsorted_snapshot_is_refused(reader: Reader) -> None:
    records = b"".join(sorted((ended("user", "a"), ended("user", "b")), reverse=True))
    with pytest.raises(InvalidFeed):
        reader.load(snapshot(records, to=9))


def test_the_feed_is_fresh_until_the_heartbeats_cease(reader: Reader) -> None:
    assert (reader.state.is_fresh, reader.state.age_s) == (False, math.inf)
    reader.heartbeat(5)
    assert (reader.state.is_fresh, reader.state.age_s) == (True, 0)
    reader.now += 3.5
    assert (reader.state.is_fresh, reader.state.age_s) == (True, 3.5)
    reader.now += 0.4
    assert reader.state.is_fresh
    reader.now += 0.2
    assert not reader.state.is_fresh
    reader.heartbeat(5)
    assert reader.state.is_fresh


@pytest.mark.parametrize(
    "changes",
    [
        {"time": 0},  # the issuer does not hear all changes
        {"time": int((NOW - 60) * 1000)},  # recorded earlier
        {"time": int((NOW + 60) * 1000)},
        {"from": 4, "to": 4},  # before what is known
    ],
)
def test_a_heartbeat_of_another_time_does_not_count(reader: Reader, changes: dict[str, Any]) -> None:
    reader.heartbeat(5, **changes)
    assert not reader.state.is_fresh


def test_a_heartbeat_counts_once(reader: Reader) -> None:
    repeated = message(**{"from": 5, "to": 5})
    reader.take(repeated)
    reader.now += 4.5
    reader.take(repeated)
    assert not reader.state.is_fresh


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_a_feed_is_stale_as_soon_as_the_clock_says_so(reader: Reader, jump: float) -> None:
    """A machine that was suspended goes on with the same monotonic time."""
    reader.heartbeat(5)
    reader.jump = jump
    assert not reader.state.is_fresh
    reader.heartbeat(5, time=int((NOW + jump) * 1000))
    assert reader.state.is_fresh is (jump > 0)


def test_a_clock_that_is_wrong_for_a_while_drops_no_record(reader: Reader) -> None:
    reader.heartbeat(5)
    reader.take(message(records=ended("user", "user1"), **{"from": 5, "to": 6}))
    reader.jump = 2.0 * 86_400
    arriving = [NotValid(hashlib.sha256(b"%d" % number).digest()[:16], ALWAYS, LATER) for number in range(20_001)]
    records = encoded_records(b"".join(each.pack() for each in arriving))
    reader.state.take(Message(iss=ISSUER, epoch=1, from_=6, to=7, time=0, records=records))
    reader.jump = 0.0
    assert reader.state.why_not_valid(access_token()) == "user"


@pytest.mark.parametrize("changes", [{"from": 6, "to": 6}, {"from": 6, "to": 7}, {"epoch": 2}])
def test_a_gap_needs_a_snapshot_and_ends_freshness(reader: Reader, changes: dict[str, Any]) -> None:
    reader.heartbeat(5)
    with pytest.raises(Gap):
        reader.heartbeat(5, **changes)
    assert not reader.state.is_fresh
    reader.load(snapshot(to=9, epoch=2))
    assert reader.state.position == (2, 9)


@pytest.mark.parametrize("old", [{"to": 4}, {"epoch": 0, "to": 99}])
def test_an_older_snapshot_is_refused(reader: Reader, old: dict[str, int]) -> None:
    with pytest.raises(InvalidFeed):
        reader.load(snapshot(**old))
    with pytest.raises(InvalidFeed):
        reader.heartbeat(5, epoch=0)


def test_what_was_missed_may_overlap_with_what_is_known(reader: Reader) -> None:
    reader.take(message(records=ended("user", "user1") + ended("user", "user2"), **{"from": 4, "to": 6}))
    assert reader.state.position == (1, 6)
    assert reader.state.why_not_valid(access_token()) == "user"


def test_records_are_found_before_and_after_compaction() -> None:
    def hashed(number: int) -> bytes:
        return hashlib.sha256(str(number).encode()).digest()[:16]

    whole = [NotValid(hashed(number), number + 1, 10 if number % 5 == 0 else LATER) for number in range(30_000)]
    records = Records().replaced(bytearray(b"".join(sorted(record.pack() for record in whole[:5_000]))))
    records.add(b"".join(record.pack() for record in whole[5_000:]))
    records.add(whole[7]._replace(not_before=99).pack())
    expected = {record.entry: record.not_before for record in whole} | {whole[7].entry: 99}
    assert {entry: records.not_before(entry) for entry in expected} == expected
    assert records.needs_compaction and records.not_before(hashed(-1)) == 0

    compacted = records.compacted(now=11)
    kept = {record.entry: expected[record.entry] for record in whole if record.forget_at > 11}
    assert (len(compacted), compacted.needs_compaction) == (24_000, False)
    assert {entry: compacted.not_before(entry) for entry in expected} == {e: kept.get(e, 0) for e in expected}
    still = {entry: records.not_before(entry) for entry in kept}
    assert still == kept, "a reader that has the former records finds all that is not over"


def peak(action: Callable[[], object]) -> int:
    """Return how many bytes are allocated at once, beyond those that were before."""
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    action()
    return tracemalloc.get_traced_memory()[1] - before


def peaks() -> tuple[float, float, float]:
    """Return the memory for a snapshot, compaction and another snapshot, by its size; in a process without threads."""

    def packed(numbers: range) -> bytes:
        return b"".join(
            sorted(NotValid(hashlib.sha256(str(n).encode()).digest()[:16], ALWAYS, LATER).pack() for n in numbers)
        )

    tracemalloc.start()
    body, later = snapshot(packed(range(30_000))), packed(range(30_000, 31_000))

    def load() -> None:
        received = bytearray()
        for start in range(0, len(body), 65_536):
            received += body[start : start + 65_536]
        Reader().state.load(*read_snapshot(received, KEYS, issuer=ISSUER))

    loading = peak(load)
    records = Records().replaced(bytearray(body[body.index(b"\n") + 1 :]))
    records.add(later)
    compacting = peak(lambda: records.compacted(now=NOW))
    received = bytearray(body[body.index(b"\n") + 1 :])
    replacing = peak(lambda: records.replaced(received))
    assert len(records) == 31_000, "an earlier reader has the snapshot, and what arrived"
    return loading / len(body), compacting / len(body), replacing / len(body)


@pytest.mark.heavy
def test_loading_a_snapshot_and_compaction_make_no_second_copy_of_the_records() -> None:
    """In a process of its own, as threads of other tests allocate, too."""
    program = f"from {__name__} import peaks; print(*peaks())"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    loading, compacting, replacing = map(float, printed.split())
    assert (loading < 1.8, compacting < 0.3, replacing < 0.3) == (True, True, True), printed


IMPERSONATED = [{"actor": {"sub": "a"}}, {"grant_type": "g"}]


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        ({}, [False, True, True]),
        ({"when_stale": "closed"}, [True, True, True]),
        ({"when_stale_impersonated": "open"}, [False, False, False]),
    ],
)
def test_a_stale_feed_refuses_what_it_was_configured_to(settings: dict[str, Any], refused: list[bool]) -> None:
    feed = NotValidFeed.over_http("http://127.0.0.1:1", **settings)
    outcomes = []
    for changes in ({}, *IMPERSONATED):
        try:
            feed.check(access_token(**changes))
            outcomes.append(False)
        except Unavailable:
            outcomes.append(True)
    assert outcomes == refused
    assert feed.accepted_stale == refused.count(False)


@pytest.mark.parametrize("verifier", [AccessTokenVerifier, AsyncAccessTokenVerifier])
def test_no_leeway_is_longer_than_the_feed_remembers(verifier: type[Any]) -> None:
    feed = NotValidFeed.over_http("http://127.0.0.1:1")
    audience = "https://api.example.com"
    verifier(issuer=ISSUER, audience=audience, feed=feed, leeway_s=900)
    verifier(issuer=ISSUER, audience=audience, leeway_s=901)
    with pytest.raises(ValueError, match="at most 900 with a feed"):
        verifier(issuer=ISSUER, audience=audience, feed=feed, leeway_s=901)


def test_what_a_stale_feed_names_is_refused_all_the_same(reader: Reader) -> None:
    feed = NotValidFeed(reader.state, lambda *_: None)
    reader.take(message(records=ended("user", "user1"), **{"from": 5, "to": 6}, time=0))
    with pytest.raises(TokenInvalid) as refused:
        feed.check(access_token())
    assert (refused.value.reason, feed.is_fresh) == ("ended_user", False)


def test_a_position_that_the_feed_cannot_continue_is_replaced_by_a_snapshot() -> None:
    """After its database was restored: the answer is 410, as the feed has another epoch."""
    snapshots = iter([snapshot(epoch=1, to=5), snapshot(epoch=2)])
    asked: list[str] = []

    def answer(request: Received) -> Answer:
        *_, what = request.path.split("/")
        if what == "jwks":
            return Answer(body=jwks(KEY))
        if what == "not-valid":
            asked.append("snapshot")
            return Answer(body=next(snapshots))
        asked.append(request.headers["last-event-id"])
        return Answer(body=f"data: {message(epoch=2)}\n\n".encode()) if asked[-1] == "2.0" else Answer(410)

    with (
        HttpServer(answer) as server,
        NotValidFeed.over_http(server.url, issuer=ISSUER, clock=lambda: NOW) as feed,
    ):
        assert feed.wait_until_fresh(WAIT_S)
    assert asked[:4] == ["snapshot", "1.5", "snapshot", "2.0"]


@pytest.mark.parametrize(("size", "fits"), [(64 * 1024, True), (64 * 1024 + 1, False)])
def test_an_event_of_up_to_64_kib_is_read(size: int, fits: bool) -> None:
    def parts() -> Iterator[bytes]:
        yield b"data: ".ljust(size, b"x")
        yield b"\n\n"

    events = _data_of(httpx.Response(200, content=parts()))
    if fits:
        assert [*events] == ["x" * (size - 6)]
    else:
        with pytest.raises(InvalidFeed, match="an event is too large"):
            next(events)


class Pauses(threading.Event):
    """Takes note of pauses instead of making them; stops after a few."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.taken.append(timeout)
        if len(self.taken) == 7:
            self.set()
        return self.is_set()


@pytest.mark.parametrize(
    ("is_heard", "pauses"), [(True, [0.1] * 7), (False, [0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0])], ids=["heard", "silent"]
)
def test_a_connection_that_brought_a_heartbeat_is_replaced_at_once(
    reader: Reader, is_heard: bool, pauses: list[float]
) -> None:
    def attempt() -> None:
        if is_heard:
            reader.now += 1
            reader.heartbeat(5)
        raise httpx.ReadError("cut")

    stopped = Pauses()
    repeat(attempt, reader.state, stopped)
    assert stopped.taken == pauses


def test_a_feed_can_be_entered_again(reader: Reader) -> None:
    entered: list[bool] = []

    def follow(_: FeedState, stopped: threading.Event) -> None:
        entered.append(stopped.is_set())
        stopped.wait()

    feed = NotValidFeed(reader.state, follow)
    with feed:
        eventually(lambda: len(entered) == 1)
    with feed:
        eventually(lambda: len(entered) == 2)
    assert entered == [False, False]


def test_records_survive_packing() -> None:
    record = NotValid(entry_of("user", "u"), 7, LATER)
    assert list(unpack(record.pack() * 2)) == [record, record]
    with pytest.raises(ValueError, match="incomplete"):
        list(unpack(record.pack()[1:]))


@pytest.mark.parametrize(
    "malformed",
    [
        {"sub": "user2", "act": {"sub": 7, "act": {"sub": "user3"}}},
        {"act": {"sub": "user2", "act": {"sub": "user3"}}},
        {"sub": "user2", "act": {"sub": "user3", "act": "user4"}},
    ],
)
def test_a_malformed_actor_claim_does_not_hide_its_other_actors_from_the_feed(malformed: dict[str, Any]) -> None:
    lookups = lookups_of(access_token(actor=malformed), stale_permissions=False)
    users = {entry for _, names in lookups for entry, kind in names.items() if kind == "user"}
    assert users == {entry_of("user", each) for each in ("user1", "user2", "user3")}
    assert actors_of(malformed) is None


@pytest.mark.parametrize(
    ("audience", "organization_id", "organization"),
    [
        ("urn:service:organization:o1", None, "o1"),
        ("urn:service:organization:o1", "o2", "o1"),
        ("https://api.example.com", "o2", "o2"),
        ("https://api.example.com/:organization:o1", None, None),
    ],
)
def test_the_organization_of_a_token_is_its_audience_or_its_claim(
    audience: str, organization_id: str | None, organization: str | None
) -> None:
    assert organization_of(access_token(audience=audience, organization_id=organization_id)) == organization
