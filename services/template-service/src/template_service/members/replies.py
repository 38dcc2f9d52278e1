"""Replies to management-service, which asks on the bus for the members of an organization."""

import asyncio
from typing import Final

import msgspec
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.background import end
from identity_common.bus.connection import Bus
from identity_common.bus.requests import answering
from identity_common.telemetry.logs import get_logger
from identity_common.wire.memberships import MEMBERS_IN_A_REPLY, MembersAnswer, MembersQuestion, members_subject
from template_service.members import store

_log = get_logger(__name__)

_REPLICAS: Final = "template"
_decode: Final = msgspec.json.Decoder(MembersQuestion).decode
_encode: Final = msgspec.json.Encoder().encode


class MemberReplies:
    """Replies to the requests of one tenant; one replica replies to each."""

    def __init__(self, bus: Bus, reader: AsyncEngine, *, tenant_id: str) -> None:
        self._bus = bus
        self._reader = reader
        self._tenant_id = tenant_id
        self._subscribing: asyncio.Task[None] | None = None
        self._replying: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Start replying once the bus is connected."""
        self._subscribing = asyncio.create_task(self._subscribe(), name="member-replies")

    async def stop(self) -> None:
        """Stop replying."""
        await end(self._subscribing, *self._replying)

    async def _subscribe(self) -> None:
        await self._bus.connected()
        await self._bus.client.subscribe(members_subject(self._tenant_id), queue=_REPLICAS, cb=self._take)

    async def _take(self, message: Msg) -> None:
        task = asyncio.create_task(self._reply(message))
        self._replying.add(task)
        task.add_done_callback(self._replying.discard)

    async def _reply(self, message: Msg) -> None:
        with answering(message, name="members"):
            await self._respond(message)

    async def _respond(self, message: Msg) -> None:
        try:
            answer = await self._answer(_decode(message.data))
        except (SQLAlchemyError, OSError, msgspec.DecodeError) as error:
            _log.warning("members.unavailable", error=type(error).__name__)
            answer = MembersAnswer(unavailable=True)
        except Exception as error:  # noqa: BLE001 - the edge: the sender is told to retry
            _log.error("members.unavailable", error=type(error).__name__, exc_info=error)
            answer = MembersAnswer(unavailable=True)
        try:
            await message.respond(_encode(answer))
        except (NatsError, OSError) as error:
            _log.warning("members.unanswered", error=type(error).__name__)

    async def _answer(self, question: MembersQuestion) -> MembersAnswer:
        async with self._reader.connect() as connection:
            ids = await store.next_member_ids(
                connection,
                self._tenant_id,
                question.organization_id,
                question.member_type,
                after=question.after,
                limit=MEMBERS_IN_A_REPLY,
            )
        return MembersAnswer(tuple(ids))
