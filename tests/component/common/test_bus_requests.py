"""Requests between services: one replica replies to each, and a failure has a reply of its own."""

import asyncio
import base64
import io
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import pytest_asyncio
from nats.errors import NoRespondersError

from identity_common.bus.connection import Bus
from identity_common.bus.requests import Responder, ask
from identity_common.bus.sealed_questions import SealedQuestions
from identity_common.bus.sealed_responder import sealed_responder
from identity_common.failures import TemporarilyUnavailable
from identity_common.sealing import SealingKeys
from identity_common.telemetry.logs import REQUEST_ID, get_logger
from identity_common.wire.memberships import members_subject
from identity_common.wire.organization_invitations import (
    Answer,
    InvitationAccepted,
    Invited,
    IsInvited,
    OrganizationInvitationRequests,
    Question,
    Refused,
    Unavailable,
)
from provision import ServerAddresses
from tests.support.captured_logs import captured_logs
from tests.support.management_api import unique
from tests.support.waiting import WAIT_S, round_trip

pytestmark = pytest.mark.servers

PROBE = b"are you there?"
AT_ONCE = 101

Reply = Callable[[bytes, float], Awaitable[bytes | None]]


@asynccontextmanager
async def connected(url: str, service: str) -> AsyncIterator[Bus]:
    bus = Bus(url, service=service)
    bus.start()
    try:
        async with asyncio.timeout(WAIT_S):
            await bus.connected()
        yield bus
    finally:
        await bus.stop()


@pytest.fixture
def subject() -> str:
    return members_subject(unique("t"))


@pytest_asyncio.fixture
async def sender(servers: ServerAddresses) -> AsyncIterator[Bus]:
    async with connected(servers.management_nats_url, "management") as bus:
        yield bus


@pytest_asyncio.fixture
async def receiver(servers: ServerAddresses) -> AsyncIterator[Bus]:
    async with connected(servers.template_nats_url, "template") as bus:
        yield bus


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    with captured_logs("tests") as log:
        yield log


def responder_of(bus: Bus, subject: str, reply: Reply) -> Responder:
    return Responder(
        bus,
        subject,
        reply,
        unavailable=lambda request: b"unavailable: " + request,
        name="members",
        log=get_logger(__name__),
        failed="members.unavailable",
        expected=(ConnectionError,),
        at_once=AT_ONCE,
    )


async def started(sender: Bus, receiver: Bus, subject: str, reply: Reply) -> Responder:
    """Return a responder that receives requests."""
    is_subscribed = asyncio.Event()

    async def reply_or_note(request: bytes, arrived: float) -> bytes | None:
        if request == PROBE:
            is_subscribed.set()
            return request
        return await reply(request, arrived)

    responder = responder_of(receiver, subject, reply_or_note)
    responder.start()
    async with asyncio.timeout(WAIT_S):
        while not is_subscribed.is_set():  # a probe may reach another replica
            with suppress(NoRespondersError):
                await asked(sender, subject, PROBE)
            await asyncio.sleep(0)
    return responder


async def asked(bus: Bus, subject: str, request: bytes) -> bytes:
    return await ask(bus, subject, request, name="members", timeout_s=WAIT_S)


def lines(log: io.StringIO, event: str) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, log.getvalue().splitlines()) if line["event"] == event]


async def test_a_slow_request_does_not_delay_the_next_one(sender: Bus, receiver: Bus, subject: str) -> None:
    go_on = asyncio.Event()

    async def reply(request: bytes, _: float) -> bytes:
        if request == b"slow":
            await go_on.wait()
        return b"reply to " + request

    responder = await started(sender, receiver, subject, reply)
    slow = asyncio.create_task(asked(sender, subject, b"slow"))
    assert await asked(sender, subject, b"quick") == b"reply to quick"
    go_on.set()
    assert await slow == b"reply to slow"
    await responder.stop()


async def test_a_request_beyond_what_is_replied_to_at_once_is_told_so_without_waiting(
    sender: Bus, receiver: Bus, subject: str, log: io.StringIO
) -> None:
    begun, go_on = asyncio.Semaphore(0), asyncio.Event()

    async def reply(request: bytes, _: float) -> bytes:
        begun.release()
        await go_on.wait()
        return request

    responder = await started(sender, receiver, subject, reply)
    waiting = [asyncio.create_task(asked(sender, subject, b"waits")) for _ in range(AT_ONCE)]
    for _ in waiting:
        await begun.acquire()
    assert await asked(sender, subject, b"late") == b"unavailable: late"
    go_on.set()
    assert await asyncio.gather(*waiting) == [b"waits"] * AT_ONCE
    assert await asked(sender, subject, b"later") == b"later"
    await responder.stop()
    (line,) = lines(log, "members.unavailable")
    assert {**line, "level": "warning", "error": "busy", "count": AT_ONCE} == line


async def test_one_replica_replies_to_each_request(
    servers: ServerAddresses, sender: Bus, receiver: Bus, subject: str
) -> None:
    received: list[tuple[str, bytes]] = []

    def replica(name: str) -> Reply:
        async def reply(request: bytes, _: float) -> bytes:
            received.append((name, request))
            return request

        return reply

    async with connected(servers.template_nats_url, "template") as other:
        replicas = ((receiver, replica("one")), (other, replica("other")))
        responders = [await started(sender, bus, subject, reply) for bus, reply in replicas]
        requests = [b"%d" % number for number in range(100)]
        assert await asyncio.gather(*(asked(sender, subject, each) for each in requests)) == requests
        for responder in responders:
            await responder.stop()
    assert sorted(request for _, request in received) == sorted(requests)
    assert {name for name, _ in received} == {"one", "other"}


async def test_a_failed_request_is_logged_under_its_id_and_has_a_reply(
    sender: Bus, receiver: Bus, subject: str, log: io.StringIO
) -> None:
    async def reply(request: bytes, _: float) -> bytes:
        raise ConnectionError if request == b"store away" else ArithmeticError

    responder = await started(sender, receiver, subject, reply)
    request_id = unique("r")
    earlier = REQUEST_ID.set(request_id)
    assert await asked(sender, subject, b"store away") == b"unavailable: store away"
    assert await asked(sender, subject, b"bug") == b"unavailable: bug"
    REQUEST_ID.reset(earlier)
    await responder.stop()
    warning, error = lines(log, "members.unavailable")
    assert {**warning, "level": "warning", "error": "ConnectionError", "request_id": request_id} == warning
    assert {**error, "level": "error", "error": "ArithmeticError", "request_id": request_id} == error
    assert ("traceback" in warning, "traceback" in error) == (False, True)


async def test_a_request_that_must_not_be_answered_has_no_reply(sender: Bus, receiver: Bus, subject: str) -> None:
    async def reply(request: bytes, _: float) -> bytes | None:
        return None if request == b"unreadable" else request

    responder = await started(sender, receiver, subject, reply)
    unanswered = asyncio.create_task(asked(sender, subject, b"unreadable"))
    for _ in range(10):  # replies are in the order of the requests here: none of them waits
        assert await asked(sender, subject, b"readable") == b"readable"
    assert not unanswered.done()
    unanswered.cancel()
    await responder.stop()


async def test_a_sealed_request_has_a_sealed_reply_and_one_that_is_not_readable_has_none(
    sender: Bus, receiver: Bus, log: io.StringIO
) -> None:
    tenant = unique("t")
    ours, others = (
        OrganizationInvitationRequests(SealingKeys([base64.b64encode(os.urandom(32)).decode()]), tenant_id=tenant)
        for _ in range(2)
    )

    async def answer(question: Question, _: float) -> Answer:
        if question == IsInvited(email="away"):
            raise ConnectionError
        return Invited(is_invited=True)

    responder = sealed_responder(
        receiver,
        ours,
        answer,
        unavailable=Unavailable(),
        name="invitations",
        log=get_logger(__name__),
        expected=(ConnectionError,),
        at_once=AT_ONCE,
    )
    responder.start()

    async def answered(email: str) -> Answer:
        sealed = ours.seal_question(IsInvited(email=email))
        async with asyncio.timeout(WAIT_S):
            while True:
                with suppress(NoRespondersError):
                    return ours.open_answer(await asked(sender, ours.subject, sealed), sealed_question=sealed)
                await asyncio.sleep(0)

    assert await answered("ada@example.com") == Invited(is_invited=True)
    unanswered = asyncio.create_task(asked(sender, ours.subject, others.seal_question(IsInvited(email="ada"))))
    assert await answered("away") == Unavailable()
    assert await answered("ada@example.com") == Invited(is_invited=True)
    assert not unanswered.done()
    unanswered.cancel()
    await responder.stop()
    assert [line["level"] for line in lines(log, "invitations.unreadable")] == ["error"]
    assert [line["error"] for line in lines(log, "invitations.unavailable")] == ["ConnectionError"]


async def test_a_sealed_question_has_an_expected_reply_or_a_refusal(
    sender: Bus, receiver: Bus, log: io.StringIO
) -> None:
    """Any other reply, one that cannot be opened, and none are the same: it may or may not have happened."""
    requests = OrganizationInvitationRequests(
        SealingKeys([base64.b64encode(os.urandom(32)).decode()]), tenant_id=unique("t")
    )
    questions = SealedQuestions(
        sender, requests, refused=Refused, unavailable=Unavailable, name="invitations", timeout_s=WAIT_S, why="a test"
    )

    async def failed() -> int:
        with pytest.raises(TemporarilyUnavailable) as failure:
            await questions.ask(IsInvited(email="ada@example.com"), Invited)
        return failure.value.retry_after_s

    assert await failed() == 1
    replies: list[Answer] = [
        Invited(is_invited=True),
        Refused(reason="link-not-valid"),
        Unavailable(retry_after_s=7),
        InvitationAccepted(organization="o"),
    ]

    async def reply(sealed: bytes, _: float) -> bytes:
        requests.open_question(sealed)
        return requests.seal_answer(replies.pop(0), sealed_question=sealed) if replies else b"not sealed"

    responder = await started(sender, receiver, requests.subject, reply)
    returned = replies[:2]
    assert [await questions.ask(IsInvited(email="ada@example.com"), Invited) for _ in range(2)] == returned
    assert [await failed() for _ in range(3)] == [7, 1, 1]
    await responder.stop()
    assert [line["level"] for line in lines(log, "invitations.unavailable")] == ["warning", "error", "warning"]


async def test_a_stopped_responder_is_not_sent_requests_and_ends_those_in_progress(
    sender: Bus, receiver: Bus, subject: str
) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def reply(_: bytes, __: float) -> bytes:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return b""

    responder = await started(sender, receiver, subject, reply)
    in_progress = asyncio.create_task(asked(sender, subject, b"one"))
    async with asyncio.timeout(WAIT_S):
        await begun.wait()
    await responder.stop()
    assert ended.is_set()
    await round_trip(receiver.client)
    with pytest.raises(NoRespondersError):
        await asked(sender, subject, b"another")
    in_progress.cancel()


async def test_a_responder_that_never_connected_stops(subject: str, servers: ServerAddresses) -> None:
    async def reply(request: bytes, _: float) -> bytes:
        return request

    bus = Bus(servers.template_nats_url, service="template")  # not started
    await responder_of(bus, subject, reply).stop()
    responder = responder_of(bus, subject, reply)
    responder.start()
    await responder.stop()
