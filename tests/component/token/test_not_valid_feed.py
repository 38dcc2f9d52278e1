"""The not-valid feed of a running system: every trigger is in it, signed, and it goes on where a reader was."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx2 as httpx
import jwt
import pytest

from identity_common.clock import now_ms
from identity_common.identifiers import new_id
from stead.verify.feed.entries import ALWAYS, entry_of, unpack
from stead.verify.feed.messages import Message, Snapshot, read_message, read_snapshot, records_of
from stead.verify.keys import KeySet
from tests.support.waiting import WAIT_S, eventually
from tests.support.world import World

PATH = "/oidc/not-valid"


class Feed:
    """A reader of the running system's feed."""

    def __init__(self, world: World) -> None:
        self.http = world.stack.http
        self.auth = world.machine.basic
        self.keys = KeySet.parse(self.http.get(f"{PATH}/jwks").content)
        self.issuer = world.stack.issuer

    def snapshot(self) -> tuple[Snapshot, bytes]:
        answer = self.http.get(PATH, auth=self.auth)
        assert answer.status_code == 200, answer.text
        return read_snapshot(answer.content, self.keys, issuer=self.issuer)

    def not_before(self, entry: bytes) -> int | None:
        found = {record.entry: record.not_before for record in unpack(self.snapshot()[1])}
        return found.get(entry)

    @contextmanager
    def events(self, position: str | None = None) -> Iterator[Iterator[tuple[str, Message]]]:
        headers = {} if position is None else {"Last-Event-ID": position}
        with self.http.stream("GET", f"{PATH}/events", auth=self.auth, headers=headers, timeout=10) as answer:
            assert answer.status_code == 200
            assert answer.headers["Content-Type"] == "text/event-stream"
            yield self._messages(answer)

    def _messages(self, answer: httpx.Response) -> Iterator[tuple[str, Message]]:
        position = ""
        for line in answer.iter_lines():
            name, _, value = line.partition(": ")
            if name == "id":
                position = value
            elif name == "data":
                yield position, read_message(value, self.keys, issuer=self.issuer)


@pytest.fixture(scope="module")
def feed(world: World) -> Feed:
    world.caught_up()
    return Feed(world)


def exchanged(world: World, user: str) -> tuple[str, dict[str, str]]:
    answer = world.exchange(world.subject_token(user))
    assert answer.status_code == 200, answer.text
    token = answer.json()["access_token"]
    return token, jwt.decode(token, options={"verify_signature": False})


def revoked_token(world: World) -> bytes:
    token, claims = exchanged(world, world.customer)
    form = {"token": token}
    answer = world.stack.http.post("/oidc/token/revocation", data=form, auth=world.traditional.basic)
    assert answer.status_code == 200
    return entry_of("token", claims["jti"])


def suspended_user(world: World) -> bytes:
    user = world.user()
    world.management.users.suspend(user)
    return entry_of("user", user)


def deleted_user(world: World) -> bytes:
    user = world.user()
    world.management.users.delete(user)
    return entry_of("user", user)


def deleted_client(world: World) -> bytes:
    client = world.client("Traditional")
    world.management.applications.delete(client.id)
    return entry_of("client", client.id)


def client_without_exchange(world: World) -> bytes:
    client = world.client("Traditional")
    world.management.applications.update(client.id, custom_client_metadata={"allowTokenExchange": False})
    return entry_of("exchange", client.id)


def deleted_resource(world: World) -> bytes:
    resource = world.management.resources.create("Gone", f"https://{new_id()}.example.com/api")
    world.management.resources.delete(resource.id)
    return entry_of("resource", resource.indicator)


def deleted_organization(world: World) -> bytes:
    organization = world.template.organization()
    world.management.organizations.delete(organization)
    return entry_of("organization", organization)


def removed_member(world: World) -> bytes:
    user = world.user()
    world.template.member(world.organization, user, world.clerk_roles["user"])
    world.management.organizations.remove_user(world.organization, user)
    return entry_of("member", world.organization, user)


@pytest.mark.parametrize(
    "trigger",
    [
        revoked_token,
        suspended_user,
        deleted_user,
        deleted_client,
        client_without_exchange,
        deleted_resource,
        deleted_organization,
        removed_member,
    ],
)
def test_each_trigger_is_in_the_feed(world: World, feed: Feed, trigger: Callable[[World], bytes]) -> None:
    entry = trigger(world)
    eventually(lambda: feed.not_before(entry) == ALWAYS)


@pytest.mark.heavy
def test_a_password_change_ends_what_was_issued_before_it(world: World, feed: Feed) -> None:
    user = world.user()
    world.management.users.set_password(user, "correct horse battery")
    eventually(lambda: feed.not_before(entry_of("user", user)) is not None)
    not_before = feed.not_before(entry_of("user", user))
    assert not_before is not None and abs(not_before - now_ms() / 1000) < 60
    within_the_second = feed.not_before(entry_of("user", user, str(not_before - 1)))
    assert within_the_second is not None and 0 < within_the_second <= 1000


@pytest.mark.heavy
def test_what_is_valid_again_is_so_for_new_tokens_only(world: World, feed: Feed) -> None:
    client = world.client("Traditional")
    entry = entry_of("exchange", client.id)
    world.management.applications.update(client.id, custom_client_metadata={"allowTokenExchange": False})
    eventually(lambda: feed.not_before(entry) == ALWAYS)
    world.management.applications.update(client.id, custom_client_metadata={"allowTokenExchange": True})
    eventually(lambda: feed.not_before(entry) not in {ALWAYS, None})
    switched_on_s = feed.not_before(entry)
    _, claims = exchanged(world, world.customer)
    assert int(claims["iat"]) >= (switched_on_s or 0)

    time.sleep(1 - time.time() % 1)
    world.management.applications.update(client.id, name="Another name")
    later = client_without_exchange(world)
    eventually(lambda: feed.not_before(later) == ALWAYS)
    assert feed.not_before(entry) == switched_on_s, "another change ends nothing"


@pytest.mark.heavy
def test_a_resource_that_is_back_has_tokens_from_then_on(world: World, feed: Feed) -> None:
    resources = world.management.resources
    indicator = f"https://{new_id()}.example.com/api"
    entry = entry_of("resource", indicator)
    resources.delete(resources.create("Gone", indicator).id)
    eventually(lambda: feed.not_before(entry) == ALWAYS)
    back = resources.create("Back", indicator)
    eventually(lambda: feed.not_before(entry) not in {ALWAYS, None})
    created_s = feed.not_before(entry)

    time.sleep(1 - time.time() % 1)
    resources.update(back.id, name="Another name")
    later = deleted_resource(world)
    eventually(lambda: feed.not_before(later) == ALWAYS)
    assert feed.not_before(entry) == created_s, "another change ends nothing"


@pytest.mark.heavy
def test_a_member_that_is_back_has_tokens_from_then_on(world: World, feed: Feed) -> None:
    """Until it is removed again; what else changes in its membership ends none of them."""
    user = world.user()
    entry = entry_of("member", world.organization, user)
    world.template.member(world.organization, user)
    world.template.remove_member(world.organization, user)
    eventually(lambda: feed.not_before(entry) == ALWAYS)
    world.template.member(world.organization, user)
    eventually(lambda: feed.not_before(entry) not in {ALWAYS, None})
    joined_s = feed.not_before(entry)

    time.sleep(1 - time.time() % 1)
    world.template.member(world.organization, user, world.clerk_roles["user"])
    later = removed_member(world)
    eventually(lambda: feed.not_before(later) == ALWAYS)
    assert feed.not_before(entry) == joined_s
    world.template.remove_member(world.organization, user)
    eventually(lambda: feed.not_before(entry) == ALWAYS)


@pytest.mark.heavy
def test_a_reader_follows_from_its_snapshot_and_continues_where_it_was(world: World, feed: Feed) -> None:
    snapshot, _ = feed.snapshot()
    entry = revoked_token(world)
    with feed.events(f"{snapshot.epoch}.{snapshot.to}") as messages:
        reached, seen = snapshot.to, set()
        for position, message in messages:
            assert position == f"{message.epoch}.{message.to}"
            assert message.from_ <= reached
            reached = message.to
            seen |= {record.entry for record in unpack(records_of(message))}
            if entry in seen and message.time:
                break
    with feed.events(f"{snapshot.epoch}.{reached}") as messages:
        _, message = next(messages)
        assert message.from_ >= reached
        assert entry not in {record.entry for record in unpack(records_of(message))}
        fresh = (message.time for _, message in messages if message.time)  # 0 while more is waiting
        times = [next(fresh) for _ in range(2)]
        assert times == sorted(set(times))


@pytest.mark.parametrize(
    ("position", "status"), [("1.1", 410), ("x", 400), ("1", 400), ("9" * 16 + ".1", 400), ("999999999999999.0", 410)]
)
def test_a_position_that_cannot_be_continued_is_refused(feed: Feed, position: str, status: int) -> None:
    answer = feed.http.get(f"{PATH}/events", auth=feed.auth, headers={"Last-Event-ID": position})
    assert (answer.status_code, answer.json()["error"]) == (status, "invalid_request")


@pytest.mark.heavy
def test_a_stream_ends_and_the_next_one_needs_the_credential_again(
    world: World, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("token_service.endpoints.not_valid._STREAM_S", 0.3)
    reader = world.client("MachineToMachine")
    snapshot, _ = feed.snapshot()
    entry = revoked_token(world)
    eventually(lambda: feed.not_before(entry) == ALWAYS)
    headers = {"Last-Event-ID": f"{snapshot.epoch}.{snapshot.to}"}
    with feed.http.stream("GET", f"{PATH}/events", auth=reader.basic, headers=headers, timeout=WAIT_S) as answer:
        world.management.applications.delete(reader.id)
        lines = list(answer.iter_lines())
    assert lines[1].startswith("data: ")
    assert lines[-1] == "", "after a whole event"
    again = feed.http.get(f"{PATH}/events", auth=reader.basic)
    assert (again.status_code, again.json()["error"]) == (401, "invalid_client")


@pytest.mark.parametrize("path", [PATH, f"{PATH}/events"])
def test_reading_needs_a_client_credential(world: World, feed: Feed, path: str) -> None:
    answers = [feed.http.get(path), feed.http.get(path, auth=(world.machine.id, "wrong"))]
    assert [(answer.status_code, answer.headers["WWW-Authenticate"]) for answer in answers] == [
        (401, 'Basic realm="token endpoint", charset="UTF-8"')
    ] * 2
    answer = feed.http.post(path, auth=feed.auth)
    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, HEAD")


def test_the_snapshot_is_compressed_for_readers_that_accept_it(feed: Feed) -> None:
    for refusing in ("identity", "gzip;q=0", "br, GZIP; Q=0.000"):
        plain = feed.http.get(PATH, auth=feed.auth, headers={"Accept-Encoding": refusing})
        assert "Content-Encoding" not in plain.headers
    with feed.http.stream("GET", PATH, auth=feed.auth, headers={"Accept-Encoding": "gzip"}) as answer:
        compressed = b"".join(answer.iter_raw())
    read_snapshot(gzip.decompress(compressed), feed.keys, issuer=feed.issuer)
    assert answer.headers["ETag"] != plain.headers["ETag"], "RFC 9110 section 8.8.3.3"


@pytest.mark.parametrize("coding", ["identity", "gzip"])
@pytest.mark.parametrize(
    ("condition", "status"), [("{}", 304), ('"other", W/{}', 304), ("*", 304), ('"other"', 200), ("{}x", 200)]
)
def test_the_snapshot_is_cached_by_its_entity_tag(feed: Feed, coding: str, condition: str, status: int) -> None:
    def answered() -> int | None:
        """Return the status; None if the feed has changed meanwhile."""
        headers = {"Accept-Encoding": coding}
        etag = feed.http.get(PATH, auth=feed.auth, headers=headers).headers["ETag"]
        headers["If-None-Match"] = condition.format(etag)
        answer = feed.http.get(PATH, auth=feed.auth, headers=headers)
        assert (answer.content == b"") == (answer.status_code == 304)
        return answer.status_code if answer.headers["ETag"] == etag else None

    eventually(lambda: answered() == status)


def test_the_keys_of_the_feed_are_not_those_of_tokens(world: World) -> None:
    documents = [world.stack.http.get(path).json() for path in ("/oidc/jwks", f"{PATH}/jwks")]
    tokens, feeds = ({key["kid"] for key in document["keys"]} for document in documents)
    assert feeds and not tokens & feeds
