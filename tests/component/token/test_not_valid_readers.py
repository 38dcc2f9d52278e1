"""Who may read the not-valid feed of a running system, and how many streams of one reader a replica keeps open."""

from __future__ import annotations

import json
import socket
import struct
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2 as httpx
import pytest

from provision import ServerAddresses
from stead import AccessTokenVerifier, NotValidFeed, TokenInvalid
from tests.support.retrying import SOON
from tests.support.waiting import eventually
from tests.support.world import Client, World, own_world

PATH = "/oidc/not-valid"
LIMIT = 200
FEW = 3
TOO_MANY = "this reader has too many open streams at this replica: keep one for each process"
MIRRORED = "203.0.113.7"


class Streams:
    """Streams that one reader keeps open, with its own headers."""

    def __init__(self, world: World, headers: Mapping[str, str]) -> None:
        self._address = urlsplit(world.stack.base_url)
        self._headers = dict(headers)
        self._open: list[HTTPConnection] = []

    def open(self) -> HTTPResponse:
        """Open one more; return its answer, or the refusal."""
        connection = HTTPConnection(str(self._address.hostname), self._address.port, timeout=30)
        self._open.append(connection)
        connection.request("GET", f"{PATH}/events", headers=self._headers)
        return connection.getresponse()

    def until_refused(self, *, at_most: int) -> tuple[int, HTTPResponse | None]:
        """Open streams until one is refused; return how many are open, and the refusal."""
        for number in range(at_most):
            answer = self.open()
            if answer.status != 200:
                return number, answer
        return at_most, None

    def close(self, *, abruptly: bool) -> None:
        """Close all: with an end of the connection, or with a reset."""
        for connection in self._open:
            if abruptly and connection.sock is not None:
                connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
        self._open.clear()


@contextmanager
def streams(world: World, **headers: str) -> Iterator[Streams]:
    opened = Streams(world, headers)
    try:
        yield opened
    finally:
        opened.close(abruptly=False)


def basic(client: Client) -> str:
    return f"Basic {b64encode(':'.join(client.basic).encode()).decode()}"


def refusal(answer: HTTPResponse | None) -> tuple[int, bool, Any]:
    assert answer is not None, "no stream was refused"
    return answer.status, answer.getheader("Retry-After") in SOON, json.loads(answer.read())["error_description"]


def hears_of_a_revocation(world: World, reader: Client) -> None:
    """Follow the feed as a verifier, until it refuses a token that is revoked meanwhile."""
    client_id, client_secret = reader.basic
    feed = NotValidFeed.over_http(world.stack.base_url, client_id=client_id, client_secret=client_secret)
    token = world.exchange(world.subject_token()).json()["access_token"]
    with feed:
        verifier = AccessTokenVerifier(base_url=world.stack.base_url, audience=world.resource, feed=feed)
        eventually(lambda: feed.is_fresh)
        verifier.verify(token)
        form = {"token": token}
        assert world.stack.http.post("/oidc/token/revocation", data=form, auth=world.traditional.basic).is_success
        eventually(lambda: is_refused(verifier, token))


def is_refused(verifier: AccessTokenVerifier, token: str) -> bool:
    try:
        verifier.verify(token)
    except TokenInvalid:
        return True
    return False


@pytest.mark.heavy
@pytest.mark.parametrize("abruptly", [False, True], ids=["ended", "reset"])
def test_one_client_cannot_take_the_places_of_others(world: World, abruptly: bool) -> None:
    greedy, modest = world.client("MachineToMachine"), world.client("MachineToMachine")
    with streams(world, Authorization=basic(greedy)) as taken:
        count, refused = taken.until_refused(at_most=LIMIT + 50)
        assert (count, refusal(refused)) == (LIMIT, (429, True, TOO_MANY))
        hears_of_a_revocation(world, modest)
        taken.close(abruptly=abruptly)
        eventually(lambda: all_return(taken, abruptly=abruptly))


def all_return(taken: Streams, *, abruptly: bool) -> bool:
    count, _ = taken.until_refused(at_most=LIMIT)
    taken.close(abruptly=abruptly)
    return count == LIMIT


@pytest.mark.parametrize("path", [PATH, f"{PATH}/events"])
def test_a_third_party_application_may_not_read_the_feed(world: World, path: str) -> None:
    answer = world.stack.http.get(path, auth=world.third_party.basic)
    assert (answer.status_code, answer.json()["error"]) == (403, "unauthorized_client")
    wrong = world.stack.http.get(path, auth=(world.third_party.id, "wrong"))
    assert (wrong.status_code, wrong.json()["error"]) == (401, "invalid_client")


@pytest.mark.heavy
def test_the_operator_may_admit_third_party_applications(servers: ServerAddresses, tmp_path: Path) -> None:
    with own_world(servers, tmp_path, "admitted", not_valid_feed_third_party=True) as world:
        assert world.stack.http.get(PATH, auth=world.third_party.basic).status_code == 200


@pytest.mark.heavy
def test_the_readers_of_a_public_feed_are_counted_by_address(servers: ServerAddresses, tmp_path: Path) -> None:
    settings = {"not_valid_feed_public": True, "not_valid_feed_readers_per_client": FEW, "trusted_proxies": 1}
    with own_world(servers, tmp_path, "public", **settings) as world:
        for claimed, address in (("", MIRRORED), (f"{MIRRORED}, ", "2001:db8:1:2::9"), ("", "2001:db8:1:2:ffff::1")):
            with streams(world, **{"X-Forwarded-For": f"{claimed}{address}"}) as taken:
                count, refused = taken.until_refused(at_most=FEW + 1)
                assert (count, refusal(refused)) == (FEW, (429, True, TOO_MANY))
                with streams(
                    world, **{"X-Forwarded-For": "198.51.100.1", "Authorization": basic(world.machine)}
                ) as other:
                    assert other.open().status == 200
                taken.close(abruptly=False)
                eventually(lambda: has_no_reader(world))


def has_no_reader(world: World) -> bool:
    return 'stead_not_valid_feed_readers{service="token"} 0.0' in httpx.get(f"{world.stack.base_url}/metrics").text
