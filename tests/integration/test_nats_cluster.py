"""A NATS cluster: services that move to another server, and an operator who scales the streams."""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
import nats
import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig

from identity_common.bus.connection import Bus
from identity_common.bus.streams import STREAMS, ensure_streams, incarnation, replicas_of
from identity_common.wire.events import STREAM_EVENTS, STREAM_INTERNAL, STREAM_STATE
from provision.nats import OPERATOR
from provision.passwords import Passwords, stored_passwords
from stead.events import EventBus
from tests.support.captured_logs import captured_logs
from tests.support.nats_cluster import MEMBERS, Member, NatsCluster
from tests.support.processes import free_port
from tests.support.provision_command import provision
from tests.support.waiting import WAIT_S, eventually_here, round_trip

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def passwords(directory: Path) -> Passwords:
    return stored_passwords(directory)


@pytest.fixture(scope="module")
def cluster(directory: Path, passwords: Passwords) -> Iterator[NatsCluster]:
    with NatsCluster(directory / "servers", passwords) as cluster:
        yield cluster


def url(passwords: Passwords, user: str, *addresses: str) -> str:
    """Return these addresses with the credentials of a user."""
    return ",".join(each.replace("//", f"//{user}:{passwords.nats[user]}@") for each in addresses)


@asynccontextmanager
async def started(url: str, *, replicas: int = 1) -> AsyncIterator[Bus]:
    bus = Bus(url, service="template", replicas=replicas)
    bus.start()
    try:
        async with asyncio.timeout(WAIT_S):
            await bus.connected()
        yield bus
    finally:
        await bus.stop()


def server_of(client: Client, cluster: NatsCluster) -> Member:
    assert client.connected_url is not None
    return next(member for member in cluster.members if member.port == client.connected_url.port)


async def moved(bus: Bus, *, connections: int) -> None:
    """Wait until the bus is connected again, and hears what it says."""
    await eventually_here(lambda: bus.connections > connections and bus.is_connected)
    await round_trip(bus.client)


class TestABusOnACluster:
    async def test_a_service_with_one_address_moves_to_servers_that_it_was_told_of(
        self, cluster: NatsCluster, passwords: Passwords
    ) -> None:
        first = cluster.members[0]
        async with started(url(passwords, "template", first.address)) as bus:
            assert server_of(bus.client, cluster) is first
            first.kill()
            await moved(bus, connections=1)
            assert server_of(bus.client, cluster) is not first
            first.start()

    async def test_a_service_leaves_a_server_that_froze(self, cluster: NatsCluster, passwords: Passwords) -> None:
        async with started(url(passwords, "template", *cluster.url.split(","))) as bus:
            frozen = server_of(bus.client, cluster)
            with frozen.frozen():
                await moved(bus, connections=1)
                assert server_of(bus.client, cluster) is not frozen

    async def test_an_address_without_a_server_is_told_once_and_does_not_matter(
        self, cluster: NatsCluster, passwords: Passwords
    ) -> None:
        dead = f"nats://127.0.0.1:{free_port()}"
        with captured_logs("tests") as log:
            unreachable = Bus(url(passwords, "template", dead, dead), service="template")
            unreachable.start()
            await eventually_here(lambda: "bus.unreachable" in log.getvalue())
            await unreachable.stop()
            (line,) = map(json.loads, log.getvalue().splitlines())
            assert (line["event"], line["address"], line["error"]) == (
                "bus.unreachable",
                dead.removeprefix("nats://"),
                "ConnectionRefusedError",
            )
            async with started(url(passwords, "template", dead, cluster.members[0].address)) as bus:
                assert server_of(bus.client, cluster) is cluster.members[0]

    async def test_servers_that_refuse_the_login_are_told_and_counted(
        self, cluster: NatsCluster, passwords: Passwords
    ) -> None:
        wrong = url(passwords, "template", *cluster.url.split(",")).replace(passwords.nats["template"], "wrong")
        with captured_logs("tests") as log:
            bus = Bus(wrong, service="template")
            bus.start()
            await eventually_here(lambda: bus.refused_logins > MEMBERS)
            await bus.stop()
        refused = refusals(log)
        assert {address for address, _ in refused} <= {
            member.address.removeprefix("nats://") for member in cluster.members
        }
        assert len(refused) == len(set(refused)), "each server is told once"
        assert {reason for _, reason in refused} == {"authorization violation"}

    async def test_a_subscriber_with_one_address_moves_too(self, cluster: NatsCluster, passwords: Passwords) -> None:
        first = cluster.members[1]
        async with EventBus(url(passwords, "subscriber", first.address)) as bus:
            first.kill()
            await eventually_here(lambda: bus.client.is_connected and server_of(bus.client, cluster) is not first)
            await round_trip(bus.client)
            first.start()


def refusals(log: io.StringIO) -> list[tuple[str, str]]:
    lines = map(json.loads, log.getvalue().splitlines())
    return [(line["address"], line["reason"]) for line in lines if line["event"] == "bus.login-refused"]


async def ensured(bus: Bus) -> None:
    """Create the streams as a service does; retry while the cluster has no leader."""
    async with asyncio.timeout(WAIT_S):
        while True:
            with suppress(NatsError, TimeoutError):
                await ensure_streams(bus)
                return
            await asyncio.sleep(0.1)


class TestTheStreamsOfACluster:
    async def test_an_operator_scales_them_and_services_accept_that(
        self, cluster: NatsCluster, passwords: Passwords, directory: Path
    ) -> None:
        servers = url(passwords, "template", *cluster.url.split(","))
        async with started(servers) as bus:
            await ensured(bus)
            before = await incarnation(bus, STREAM_EVENTS)
            listed = await asyncio.to_thread(provision, "streams", "--secrets", directory, "--nats", cluster.url)
            assert listed.returncode == 0, listed.stderr
            assert [line.split(":")[0] for line in listed.stdout.splitlines()] == [
                *(f"SERVICES {stream.name}" for stream in STREAMS),
                f"SUBSCRIBERS {STREAM_EVENTS}",
            ]
            assert all(": 1 replicas (leader n" in line for line in listed.stdout.splitlines())

            change = ("--replicas", MEMBERS, "--step-down")
            async with asyncio.timeout(WAIT_S):
                while True:
                    scaled = await asyncio.to_thread(
                        provision, "streams", "--secrets", directory, "--nats", cluster.url, *change
                    )
                    if "peer offline" not in scaled.stderr:  # as one that another test restarted is for a while
                        break
            assert scaled.returncode == 0, scaled.stderr
            assert all(f": {MEMBERS} replicas (leader n" in line for line in scaled.stdout.splitlines())
            assert "behind" not in scaled.stdout
            leaders = dict(map(account_and_leader, scaled.stdout.splitlines()))
            originals = {leaders[f"SERVICES {stream}"] for stream in (STREAM_INTERNAL, STREAM_EVENTS)}
            assert leaders[f"SERVICES {STREAM_STATE}"] not in originals
            assert leaders[f"SUBSCRIBERS {STREAM_EVENTS}"] != leaders[f"SERVICES {STREAM_EVENTS}"]
            assert await incarnation(bus, STREAM_EVENTS) == before
            await ensure_streams(bus)
        async with started(servers, replicas=MEMBERS) as bus:
            await ensure_streams(bus)
            assert await replicas_of(bus, STREAM_EVENTS) == MEMBERS

    async def test_no_service_and_no_subscriber_can_do_so(
        self, cluster: NatsCluster, passwords: Passwords, directory: Path
    ) -> None:
        """Neither by a request of their own, nor by one that a server sends for them."""
        requests = ("STREAM.UPDATE.IDENTITY_EVENTS", "STREAM.LEADER.STEPDOWN.IDENTITY_EVENTS")
        secret = operators_secret(cluster.members[0])
        subjects = [f"{prefix}.{each}" for prefix in ("$JS.API", f"{OPERATOR}-guessed", secret) for each in requests]

        async def ignore(_: Exception) -> None:
            """A refusal is what is tested."""

        async with started(url(passwords, "template", cluster.members[0].address)) as bus:
            await ensured(bus)
            config = await config_of(bus)
            for user, inbox in (("template", "_INBOX_template"), ("subscriber", "_INBOX")):
                client = await nats.connect(
                    cluster.members[0].address,
                    user=user,
                    password=passwords.nats[user],
                    inbox_prefix=inbox,
                    error_cb=ignore,
                )
                for subject in subjects:
                    with pytest.raises((NatsError, TimeoutError)):
                        await client.request(subject, json.dumps(config | {"max_msgs": 1}).encode(), timeout=0.2)
                await client.close()
            # What the server delivers on behalf of a service, with the body of an update, leads nowhere either.
            await bus.jetstream().publish("identity.cluster.role.r1", json.dumps(config | {"max_msgs": 1}).encode())
            for subject in (f"$JS.API.{requests[0]}", f"{OPERATOR}-guessed.{requests[0]}"):
                consumer = ConsumerConfig(
                    deliver_subject=subject, ack_policy=AckPolicy.NONE, filter_subject="identity.cluster.role.r1"
                )
                with suppress(NatsError, TimeoutError):  # a service without such consumers is refused
                    await bus.jetstream().add_consumer(STREAM_EVENTS, consumer)
            await round_trip(bus.client)
            assert await config_of(bus) == config

    def test_a_wrong_password_and_a_wrong_address_are_errors_in_one_line(
        self, cluster: NatsCluster, passwords: Passwords, directory: Path, tmp_path: Path
    ) -> None:
        wrong = msgspec.structs.replace(passwords, nats=passwords.nats | {OPERATOR: "hunter2"})
        (tmp_path / "secrets.json").write_bytes(msgspec.json.encode(wrong))
        refused = provision("streams", "--secrets", tmp_path, "--nats", cluster.url)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr.startswith("error: NATS does not answer, or refuses the user operator: ")
        assert refused.stderr.count("\n") == 1
        assert "hunter2" not in refused.stderr
        for address, problem in (
            (f"127.0.0.1:{free_port()}", "NATS does not answer, or refuses the user operator: "),
            ("nats://", "the address of NATS is not valid: "),
        ):
            failed = provision("streams", "--secrets", directory, "--nats", address)
            assert failed.returncode == 1
            assert failed.stderr.startswith(f"error: {problem}")
        without = {user: password for user, password in passwords.nats.items() if user != OPERATOR}
        missing = provision("streams", "--nats", cluster.url, NATS_PASSWORDS=json.dumps(without))
        assert missing.stderr == "error: there is no password of the user operator of NATS\n"


def operators_secret(member: Member) -> str:
    """Return what the subjects of the operator's requests begin with, which only the servers know."""
    configuration = json.loads((member.log.parent.parent / "nats" / "nats-server.conf").read_text())
    mappings = configuration["accounts"]["SYSTEM"]["mappings"]
    (found,) = {subject.partition(".")[0] for subject in mappings if subject.startswith(OPERATOR)}
    return str(found)


def account_and_leader(line: str) -> tuple[str, str]:
    """Return the stream of a line of the command, and the server that leads it."""
    stream, _, rest = line.partition(": ")
    return stream, rest.partition("(leader ")[2].partition(",")[0]


async def config_of(bus: Bus) -> dict[str, object]:
    answer = await bus.client.request(f"$JS.API.STREAM.INFO.{STREAM_EVENTS}", timeout=WAIT_S)
    config: dict[str, object] = json.loads(answer.data)["config"]
    return config
