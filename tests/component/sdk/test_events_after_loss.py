"""stead.events while NATS is restarted, loses its streams or refuses the login: nothing is missed or comes twice."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlsplit

import pytest

from stead.event_types import GrantedPermission
from stead.events import EventBus, EventsRefused, PermissionCache, PermissionChange, permission_changes
from tests.support.own_servers import OwnServers
from tests.support.template_source import TemplateSource

pytestmark = pytest.mark.heavy

WITHIN_S = 40


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnServers]:
    with OwnServers(tmp_path_factory.mktemp("own")) as own:
        yield own


@pytest.fixture
async def source(own: OwnServers) -> AsyncIterator[TemplateSource]:
    async with TemplateSource(own.addresses) as source:
        yield source


@pytest.fixture
async def bus(own: OwnServers, source: TemplateSource) -> AsyncIterator[EventBus]:
    async with EventBus(own.addresses.subscriber_nats_url, tenant_id=source.tenant_id) as bus:
        yield bus


async def take(changes: AsyncIterator[PermissionChange], count: int) -> list[tuple[str, int, set[str], set[str]]]:
    async with asyncio.timeout(WITHIN_S):
        taken = [await anext(changes) for _ in range(count)]
    return [
        (change.member_id, change.version, {each.name for each in change.added}, {each.name for each in change.removed})
        for change in taken
    ]


LOSSES = pytest.mark.parametrize("lost", [None, "SUBSCRIBERS", "."], ids=["nothing", "the copy", "everything"])


@LOSSES
@pytest.mark.parametrize("durable", [False, True], ids=["ephemeral", "durable"])
async def test_changes_during_the_outage_come_once(
    own: OwnServers, source: TemplateSource, bus: EventBus, lost: str | None, durable: bool
) -> None:
    changes = permission_changes(bus, since="beginning", durable=f"{source.tenant_id}-d" if durable else None)
    await source.grant("o1", "u1", "a")
    await source.grant("o1", "u2", "a")
    assert await take(changes, 2) == [("u1", 1, {"a"}, set()), ("u2", 1, {"a"}, set())]

    own.restart_nats(without=lost)
    await source.grant("o1", "u1", "b")
    await source.grant("o1", "u3", "a")
    assert sorted(await take(changes, 2)) == [("u1", 2, {"b"}, {"a"}), ("u3", 1, {"a"}, set())]

    await source.grant("o1", "u2", "a", "c")
    assert await take(changes, 1) == [("u2", 2, {"c"}, set())]


@pytest.mark.parametrize("durable", [False, True], ids=["ephemeral", "durable"])
async def test_reading_resumes_after_the_login_was_refused_for_a_while(
    own: OwnServers, source: TemplateSource, bus: EventBus, durable: bool, caplog: pytest.LogCaptureFixture
) -> None:
    changes = permission_changes(bus, since="beginning", durable=f"{source.tenant_id}-r" if durable else None)
    await source.grant("o1", "u1", "a")
    assert await take(changes, 1) == [("u1", 1, {"a"}, set())]
    reading = asyncio.ensure_future(take(changes, 1))
    async with own.refused_by_nats():
        granting = asyncio.ensure_future(source.grant("o1", "u2", "a"))
    assert await reading == [("u2", 1, {"a"}, set())]
    await granting
    await source.grant("o1", "u1", "b")
    assert await take(changes, 1) == [("u1", 2, {"b"}, {"a"})]
    assert caplog.messages.count("bus error: the user is rejected") == 1


async def test_closing_the_bus_ends_reading_while_the_login_is_refused(own: OwnServers, source: TemplateSource) -> None:
    async with EventBus(own.addresses.subscriber_nats_url, tenant_id=source.tenant_id) as bus:
        await source.grant("o1", "u1", "a")
        changes = permission_changes(bus, since="beginning")
        await take(changes, 1)
        reading = asyncio.ensure_future(take(changes, 1))
        async with own.refused_by_nats():
            await bus.aclose()
            with pytest.raises(EventsRefused):
                await reading


async def test_a_change_that_was_lost_with_the_stream_is_reconstructed(
    own: OwnServers, source: TemplateSource, bus: EventBus
) -> None:
    """A republished event carries the whole state; the change is its difference from the last known state."""
    changes = permission_changes(bus, since="beginning")
    await source.grant("o1", "u1", "a", "b")
    await take(changes, 1)
    source.granted("o1", "u1", "b", "c")  # published, but lost before it is read

    own.restart_nats(without=".")
    assert await take(changes, 1) == [("u1", 2, {"c"}, {"a"})]


async def test_a_subscription_that_precedes_the_stream_receives_everything(
    own: OwnServers, source: TemplateSource, bus: EventBus
) -> None:
    own.restart_nats(without=".")
    reading = asyncio.ensure_future(take(permission_changes(bus, since="now"), 1))
    await source.grant("o1", "u1", "a")
    assert await reading == [("u1", 1, {"a"}, set())]


@LOSSES
async def test_the_cache_becomes_current_again(
    own: OwnServers, source: TemplateSource, bus: EventBus, lost: str | None
) -> None:
    await source.grant("o1", "u1", "a")
    await source.grant("o1", "u2", "a")
    async with PermissionCache(bus, max_age_s=7) as cache:
        async with asyncio.timeout(WITHIN_S):
            await cache.ready()
            own.restart_nats(without=lost)
            revision = await source.grant("o1", "u1", "b")
            while cache.revision < revision or not cache.is_current:  # noqa: ASYNC110 - seen from outside only
                await asyncio.sleep(0.01)
        held = [await cache.permissions("o1", member) for member in ("u1", "u2")]
        assert [each.permissions if each else None for each in held] == [
            (GrantedPermission("b"),),
            (GrantedPermission("a"),),
        ]


async def test_the_cache_forgets_members_that_the_recreated_stream_does_not_have(
    own: OwnServers, source: TemplateSource, bus: EventBus
) -> None:
    """After the databases were restored to a point before these members, and the streams were lost as well."""

    async def versions(*members: str) -> list[int | None]:
        held = [await cache.permissions("o1", member) for member in members]
        return [each.version if each else None for each in held]

    for member in ("u1", "u2", "u3"):
        await source.grant("o1", member, "a")
        await source.grant("o1", member, "b")
    async with PermissionCache(bus) as cache, asyncio.timeout(WITHIN_S):
        await cache.ready()
        for member in ("u2", "u3"):
            source.forget("o1", member)
        own.restart_nats(without=".")
        revision = await source.grant("o1", "u3", "c")  # a member again: versions begin at 1
        while cache.revision < revision:  # noqa: ASYNC110 - seen from outside only
            await asyncio.sleep(0.01)
        while await versions("u1", "u2", "u3") != [2, None, 1]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_the_bus_survives_a_malformed_greeting_and_closes_a_connection_that_is_being_made(
    own: OwnServers,
) -> None:
    """As of a proxy without a server: more than a line of INFO can have, then silence."""
    nats = urlsplit(own.addresses.subscriber_nats_url)
    greetings = asyncio.Queue[bytes | None]()
    silent = asyncio.Queue[asyncio.StreamReader]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        greeting = await greetings.get()
        if greeting is None:
            to_nats = await asyncio.open_connection(nats.hostname, nats.port)
            await asyncio.gather(copy(reader, to_nats[1]), copy(to_nats[0], writer))
        elif greeting:
            writer.write(greeting)
            await reader.read()
            writer.close()
        else:
            silent.put_nowait(reader)

    async with await asyncio.start_server(serve, "127.0.0.1") as server, asyncio.timeout(WITHIN_S):
        port = server.sockets[0].getsockname()[1]
        greetings.put_nowait(None)
        bus = EventBus(nats._replace(netloc=f"{nats.username}:{nats.password}@127.0.0.1:{port}").geturl())
        async with bus:
            for greeting in (b"INFO " + b"x" * 200_000, None):
                greetings.put_nowait(greeting)
            await bus.client.close()
            await bus.reopened()
            await bus.client.flush()
            greetings.put_nowait(b"")
            await bus.client.close()
            reader = await silent.get()
        assert await reader.read() == b""


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while received := await reader.read(65_536):
        writer.write(received)
    writer.close()
