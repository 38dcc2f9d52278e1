"""stead.events against the real bus: every change once, in order, despite outages."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import msgspec
import nats
import pytest

from identity_common.background import end
from provision import ServerAddresses
from stead import Unavailable
from stead.event_types import (
    CloudEvent,
    GrantedPermission,
    MemberPermissionsState,
    MemberState,
    OrganizationPermissionState,
    OrganizationRoleState,
    OrganizationState,
)
from stead.events import (
    EventBus,
    EventsRefused,
    IdentityEvent,
    PermissionChange,
    identity_events,
    permission_changes,
)
from stead.events._identity_events import STATES
from tests.support.tcp_proxy import TcpProxy
from tests.support.template_source import TemplateSource
from tests.unit.sdk.issuer import Clock
from tests.unit.sdk.service import Service

WITHIN_S = 30


async def take(changes: AsyncIterator[Any], count: int) -> list[Any]:
    """Return the next changes; the last one has not been acknowledged yet."""
    async with asyncio.timeout(WITHIN_S):
        return [await anext(changes) for _ in range(count)]


async def nothing_more(changes: AsyncIterator[Any], *, within_s: float = 0.5) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(within_s):
            await anext(changes)


def told(changes: list[PermissionChange]) -> list[tuple[str, int, list[str], list[str]]]:
    """Return the member, the version, and the added and removed names of each change."""
    return [
        (change.member_id, change.version, [each.name for each in change.added], [each.name for each in change.removed])
        for change in changes
    ]


async def publish_again(servers: ServerAddresses, source: TemplateSource, *events: CloudEvent, subject: str) -> None:
    """Publish messages as they are, whatever the stream already holds."""
    client = await nats.connect(servers.template_nats_url, inbox_prefix="_INBOX_template")
    try:
        for event in events:
            await client.jetstream().publish(f"identity.{source.tenant_id}.{subject}", msgspec.json.encode(event))
    finally:
        await client.close()


class TestContent:
    async def test_a_change_carries_all_attributes(self, source: TemplateSource, bus: EventBus) -> None:
        before = datetime.now(UTC)
        revision = await source.grant("o1", "u1", "read", "write@https://api.example.com", cause="role-changed")
        (change,) = await take(permission_changes(bus, since="beginning"), 1)
        read, write = GrantedPermission("read"), GrantedPermission("write", "https://api.example.com")
        assert change == PermissionChange(
            organization_id="o1",
            member_id="u1",
            member_type="user",
            version=1,
            cause="role-changed",
            added=(read, write),
            removed=(),
            permissions=(read, write),
            revision=revision,
            time=change.time,
        )
        assert before.replace(microsecond=0) <= change.time <= datetime.now(UTC)

    @pytest.mark.heavy
    async def test_changes_come_in_order_and_without_end(self, source: TemplateSource, bus: EventBus) -> None:
        await source.grant("o1", "u1", "a")
        changes = permission_changes(bus, since="beginning")
        heard = await take(changes, 1)
        await source.grant("o1", "u1", "a", "b")
        await source.grant("o2", "u1", "a")
        await source.grant("o1", "u1", "b")
        heard += await take(changes, 3)
        assert told(heard) == [
            ("u1", 1, ["a"], []),
            ("u1", 2, ["b"], []),
            ("u1", 1, ["a"], []),
            ("u1", 3, [], ["a"]),
        ]
        await nothing_more(changes)

    @pytest.mark.heavy
    async def test_changes_of_one_organization_only(self, source: TemplateSource, bus: EventBus) -> None:
        await source.grant("o1", "u1", "a")
        await source.grant("o2", "u2", "a")
        await source.grant("o1", "u3", "a")
        changes = permission_changes(bus, organization_id="o1", since="beginning")
        assert [change.member_id for change in await take(changes, 2)] == ["u1", "u3"]
        await nothing_more(changes)

    @pytest.mark.heavy
    async def test_events_of_another_tenant_are_not_received(
        self, servers: ServerAddresses, source: TemplateSource
    ) -> None:
        await source.grant("o1", "u1", "a")
        async with EventBus(servers.subscriber_nats_url, tenant_id="another") as bus:
            await nothing_more(permission_changes(bus, since="beginning"))

    async def test_an_unknown_cause_is_passed_on(self, source: TemplateSource, bus: EventBus) -> None:
        await source.grant("o1", "u1", "a", cause="a-new-cause")
        (change,) = await take(permission_changes(bus, since="beginning"), 1)
        assert change.cause == "a-new-cause"

    async def test_events_of_every_kind_are_typed(self, source: TemplateSource, bus: EventBus) -> None:
        states = {
            ("permission", "p1"): OrganizationPermissionState(id="p1", name="read"),
            ("role", "r1"): OrganizationRoleState(id="r1", name="Reader", permission_ids=("p1",)),
            ("organization", "o1"): OrganizationState(id="o1", name="Acme"),
            ("member", "o1", "u1"): MemberState(organization_id="o1", member_id="u1", role_ids=("r1",)),
            ("member-permissions", "o1", "u1"): source.granted("o1", "u1", "read"),
        }
        assert {kind for kind, *_ in states} == STATES.keys()
        await source.record_all([(kind, ids, "updated", state) for (kind, *ids), state in states.items()])
        await source.record("role", ("r1",), "deleted", OrganizationRoleState(id="r1", deleted=True))
        heard = await take(identity_events(bus, since="beginning"), len(states) + 1)
        assert [event.state for event in heard[:-1]] == list(states.values())
        assert heard[-1] == IdentityEvent(
            kind="role",
            type="role.deleted",
            state=OrganizationRoleState(id="r1", deleted=True),
            revision=len(states) + 1,
            time=heard[-1].time,
        )
        only = identity_events(bus, kinds=["organization", "role"], since="beginning")
        assert [event.type for event in await take(only, 3)] == ["role.updated", "organization.updated", "role.deleted"]


class TestStart:
    async def test_from_now(self, source: TemplateSource, bus: EventBus) -> None:
        await source.grant("o1", "before", "a")
        await take(permission_changes(bus, since="beginning"), 1)  # wait until it has reached the subscribers
        reading = asyncio.ensure_future(anext(permission_changes(bus)))
        later: list[str] = []
        async with asyncio.timeout(WITHIN_S):
            while not reading.done():  # there is no signal that reading has begun
                later.append(f"after-{len(later)}")
                await source.grant("o1", later[-1], "a")
        assert (await reading).member_id in later

    @pytest.mark.heavy
    async def test_after_a_revision(self, source: TemplateSource, bus: EventBus) -> None:
        revisions = [await source.grant("o1", f"u{number}", "a") for number in range(30)]
        await source.grant("o1", "last", "a")
        for number in (0, 1, 13, 28, 29):
            (change,) = await take(permission_changes(bus, since=revisions[number]), 1)
            assert change.member_id == (f"u{number + 1}" if number < 29 else "last")
        (change,) = await take(permission_changes(bus, since=0), 1)
        assert change.member_id == "u0"
        await nothing_more(permission_changes(bus, since=revisions[-1] + 1))

    async def test_after_a_revision_that_malformed_messages_follow(
        self, servers: ServerAddresses, source: TemplateSource, bus: EventBus
    ) -> None:
        """The search for the revision ignores them, as the iteration does."""
        revision = await source.grant("o1", "u1", "a")
        await take(permission_changes(bus, since="beginning"), 1)  # wait until it has reached the subscribers
        client = await nats.connect(servers.template_nats_url, inbox_prefix="_INBOX_template")
        try:
            for _ in range(3):
                await client.jetstream().publish(f"identity.{source.tenant_id}.role.r1", b"not an event")
        finally:
            await client.close()
        await source.grant("o1", "u2", "a")
        (change,) = await take(permission_changes(bus, since=revision), 1)
        assert change.member_id == "u2"

    async def test_from_a_time(self, source: TemplateSource, bus: EventBus) -> None:
        await source.grant("o1", "before", "a")
        await asyncio.sleep(0.05)
        begun = datetime.now(UTC)
        await source.grant("o1", "after", "a")
        (change,) = await take(permission_changes(bus, since=begun), 1)
        assert change.member_id == "after"

    @pytest.mark.heavy
    async def test_where_a_durable_subscription_stopped(self, source: TemplateSource, bus: EventBus) -> None:
        for number in range(5):
            await source.grant("o1", f"u{number}", "a")
        name = f"{source.tenant_id}-durable"
        async with contextlib.aclosing(permission_changes(bus, since="beginning", durable=name)) as changes:
            assert [change.member_id for change in await take(changes, 3)] == ["u0", "u1", "u2"]
        async with contextlib.aclosing(permission_changes(bus, since="now", durable=name)) as changes:
            # u2 was not acknowledged when the first subscription ended
            assert [change.member_id for change in await take(changes, 3)] == ["u2", "u3", "u4"]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await anext(changes)
        async with contextlib.aclosing(permission_changes(bus, since="now", durable=name)) as changes:
            await nothing_more(changes)

    async def test_a_change_whose_handler_failed_is_redelivered_first(
        self, source: TemplateSource, bus: EventBus
    ) -> None:
        name, handled = f"{source.tenant_id}-failing", list[str]()
        for number in range(3):
            await source.grant("o1", f"u{number}", "a")

        async def handle(*, failing_at: str) -> None:
            async with contextlib.aclosing(permission_changes(bus, since="beginning", durable=name)) as changes:
                async for change in changes:
                    if change.member_id == failing_at:
                        raise RuntimeError("the handler failed")
                    handled.append(change.member_id)

        for failing_at in ("u1", "u2"):
            with pytest.raises(RuntimeError):
                async with asyncio.timeout(WITHIN_S):
                    await handle(failing_at=failing_at)
        assert handled == ["u0", "u1"]

    @pytest.mark.heavy
    async def test_two_processes_that_share_a_name_take_turns_in_order(
        self, servers: ServerAddresses, source: TemplateSource
    ) -> None:
        for number in range(40):
            await source.grant("o1", f"u{number:02}", "a")
        handled: list[str] = []
        working = 0

        async def work() -> None:
            nonlocal working
            async with EventBus(servers.subscriber_nats_url, tenant_id=source.tenant_id) as bus:
                async for change in permission_changes(bus, since="beginning", durable=f"{source.tenant_id}-shared"):
                    working += 1
                    assert working == 1
                    await asyncio.sleep(0.005)
                    handled.append(change.member_id)
                    working -= 1

        workers = [asyncio.create_task(work()) for _ in range(2)]
        async with asyncio.timeout(WITHIN_S):
            while len(handled) < 40:  # noqa: ASYNC110 - seen from outside only
                await asyncio.sleep(0.01)
        await end(*workers)
        assert handled == [f"u{number:02}" for number in range(40)]

    async def test_a_name_in_use_for_another_subscription_is_refused(
        self, source: TemplateSource, bus: EventBus
    ) -> None:
        await source.grant("o1", "u1", "a")
        name = f"{source.tenant_id}-used"
        await take(permission_changes(bus, organization_id="o1", since="beginning", durable=name), 1)
        with pytest.raises(ValueError, match="already in use with another configuration"):
            await take(permission_changes(bus, organization_id="o2", durable=name), 1)

    @pytest.mark.parametrize(
        "wrong",
        [
            {"since": "yesterday"},
            {"since": -1},
            {"since": True},
            {"since": datetime(2026, 1, 1)},  # noqa: DTZ001 - the missing time zone is the error
            {"organization_id": "o1.>"},
            {"organization_id": "*"},
            {"organization_id": ""},
            {"durable": "a.b"},
            {"durable": ""},
        ],
        ids=str,
    )
    async def test_a_malformed_argument_is_refused_at_once(self, bus: EventBus, wrong: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=next(iter(wrong))):
            permission_changes(bus, **wrong)


class TestSkippedEvents:
    async def test_repeats(self, servers: ServerAddresses, source: TemplateSource, bus: EventBus) -> None:
        """By id, as after a crash of the relay; by version, as after a republication."""
        await source.grant("o1", "u1", "a")
        again = source.granted("o1", "u1", "a", version=1, cause="republished", added=())
        changes = permission_changes(bus, since="beginning")
        heard = await take(changes, 1)
        repeat = event_of(source, 1, msgspec.structs.replace(again, version=7))
        await publish_again(servers, source, repeat, subject="member-permissions.o1.u1")
        await source.record("member-permissions", ("o1", "u1"), "updated", again)
        await source.grant("o1", "u1", "b")
        heard += await take(changes, 1)
        assert told(heard) == [("u1", 1, ["a"], []), ("u1", 2, ["b"], ["a"])]
        assert [change.missed for change in heard] == [0, 0]

    async def test_messages_that_are_not_events_of_the_service(
        self,
        servers: ServerAddresses,
        source: TemplateSource,
        bus: EventBus,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        await source.record("organization", ("o0",), "created", OrganizationState(id="o0"))  # its relay has begun
        state = source.granted("o1", "u1", "a")
        good = event_of(source, 0, state)
        spoiled = [
            msgspec.structs.replace(good, source="/management", id=f"{source.tenant_id}:management:0"),
            msgspec.structs.replace(good, tenantid="default", id="default:template:0"),
            msgspec.structs.replace(good, subject="o1/u2"),
            msgspec.structs.replace(good, type="member.updated"),
            msgspec.structs.replace(good, id="0"),
            msgspec.structs.replace(good, time="yesterday"),
            msgspec.structs.replace(good, data=msgspec.Raw(b"[]")),
            event_of(source, 2, msgspec.structs.replace(state, member_id="u2")),
        ]
        await publish_again(servers, source, *spoiled, subject="member-permissions.o1.u1")
        await source.record("organization", ("o1",), "created", OrganizationState(id="o1"))
        await source.grant("o1", "u1", "b")
        heard = await take(permission_changes(bus, since="beginning"), 1)
        assert told(heard) == [("u1", 2, ["b"], ["a"])]
        errors = [record for record in caplog.records if record.levelname == "ERROR" and record.name == "stead.events"]
        assert len(errors) == len(spoiled)


def event_of(source: TemplateSource, revision: int, state: MemberPermissionsState) -> CloudEvent:
    return CloudEvent(
        id=f"{source.tenant_id}:template:{revision}",
        source="/template",
        type="member-permissions.updated",
        subject="o1/u1",
        time="2026-01-01T00:00:00.000+00:00",
        tenantid=source.tenant_id,
        revision=revision,
        data=msgspec.Raw(msgspec.json.encode(state)),
    )


SCOPES = "/api/organizations/o1/users/u1/scopes"


def will_hold(service: Service, *names: str, path: str = SCOPES) -> None:
    """Have endpoint 3 answer that a member holds these permissions."""
    held = [{"tenantId": "default", "id": f"id-of-{name}", "name": name, "description": None} for name in names]
    service.will_answer("GET", path, held, headers={"ETag": 'W/"1"'})


class TestGaps:
    async def test_a_gap_is_reported_and_compared_with_the_last_known_state(
        self, source: TemplateSource, bus: EventBus
    ) -> None:
        await source.grant("o1", "u1", "a", "b")
        source.granted("o1", "u1", "b")  # counted but never published
        await source.grant("o1", "u1", "b", "c")
        changes = await take(permission_changes(bus, since="beginning"), 2)
        assert told(changes) == [("u1", 1, ["a", "b"], []), ("u1", 3, ["c"], ["a"])]
        assert [(change.missed, change.healed) for change in changes] == [(0, False), (1, False)]

    async def test_a_gap_is_healed_from_the_management_api(
        self, source: TemplateSource, bus: EventBus, service: Service
    ) -> None:
        will_hold(service, "c", "d")
        await source.grant("o1", "u1", "a", "x@https://api.example.com")
        source.granted("o1", "u1", "b")
        await source.grant("o1", "u1", "c", "y@https://api.example.com")
        async with service.async_client(Clock()) as management:
            _, change = await take(permission_changes(bus, since="beginning", management=management), 2)
        c, d, y = GrantedPermission("c"), GrantedPermission("d"), GrantedPermission("y", "https://api.example.com")
        assert (change.missed, change.healed, change.permissions) == (1, True, (c, d, y))
        assert change.added == (c, d, y)
        assert [each.name for each in change.removed] == ["a", "x"]
        assert [call.path for call in service.calls] == [SCOPES]

    async def test_an_application_is_looked_up_as_an_application(
        self, source: TemplateSource, bus: EventBus, service: Service
    ) -> None:
        will_hold(service, "b", path="/api/organizations/o1/applications/a1/scopes")
        await source.grant("o1", "a1", "a", member_type="application", incomplete=True, permissions=())
        async with service.async_client(Clock()) as management:
            (change,) = await take(permission_changes(bus, since="beginning", management=management), 1)
        assert (change.member_type, change.permissions) == ("application", (GrantedPermission("b"),))

    @pytest.mark.parametrize(
        ("status", "code"), [(404, "entity.not_exists_with_id"), (422, "organization.require_membership")]
    )
    async def test_a_former_member_holds_nothing(
        self, source: TemplateSource, bus: EventBus, service: Service, status: int, code: str
    ) -> None:
        service.will_answer("GET", SCOPES, {"code": code, "message": "no"}, status=status)
        await source.grant("o1", "u1", "a")
        source.granted("o1", "u1", "b")
        await source.grant("o1", "u1", cause="member-removed")
        async with service.async_client(Clock()) as management:
            _, change = await take(permission_changes(bus, since="beginning", management=management), 2)
        assert (change.healed, change.permissions, told([change])) == (True, (), [("u1", 3, [], ["a"])])

    async def test_a_gap_is_only_reported_while_the_management_api_is_down(
        self, source: TemplateSource, bus: EventBus, service: Service
    ) -> None:
        service.will_answer("GET", SCOPES, status=503)
        await source.grant("o1", "u1", "a")
        source.granted("o1", "u1", "b")
        await source.grant("o1", "u1", "c")
        async with service.async_client(Clock()) as management:
            _, change = await take(permission_changes(bus, since="beginning", management=management), 2)
        assert (change.missed, change.healed, told([change])) == (1, False, [("u1", 3, ["c"], ["a"])])

    @pytest.mark.heavy
    async def test_an_event_without_lists_is_completed_once_the_management_api_answers(
        self, source: TemplateSource, bus: EventBus, service: Service
    ) -> None:
        service.will_answer("GET", SCOPES, status=503, headers={"Retry-After": "1"})
        await source.grant("o1", "u1", incomplete=True)
        async with service.async_client(Clock()) as management:
            filled = asyncio.ensure_future(take(permission_changes(bus, since="beginning", management=management), 1))
            async with asyncio.timeout(WITHIN_S):
                while not service.calls:  # noqa: ASYNC110 - seen from outside only
                    await asyncio.sleep(0.01)
            will_hold(service, "a")
            (change,) = await filled
        assert (change.incomplete, change.healed, change.permissions) == (True, True, (GrantedPermission("a"),))

    async def test_an_event_without_lists_is_marked_incomplete_without_the_management_api(
        self, source: TemplateSource, bus: EventBus
    ) -> None:
        await source.grant("o1", "u1", incomplete=True)
        (change,) = await take(permission_changes(bus, since="beginning"), 1)
        assert (change.incomplete, change.healed, change.permissions) == (True, False, ())

    async def test_a_refusal_of_the_management_api_is_raised(
        self, source: TemplateSource, bus: EventBus, service: Service
    ) -> None:
        from stead import Forbidden

        service.will_answer("GET", SCOPES, {"code": "auth.forbidden", "message": "no"}, status=403)
        await source.grant("o1", "u1", incomplete=True)
        async with service.async_client(Clock()) as management:
            with pytest.raises(Forbidden):
                await take(permission_changes(bus, since="beginning", management=management), 1)


class TestConnection:
    @pytest.mark.heavy
    @pytest.mark.parametrize("durable", [False, True])
    async def test_reading_resumes_after_a_reconnect(
        self, servers: ServerAddresses, source: TemplateSource, durable: bool
    ) -> None:
        tenant = source.tenant_id
        async with (
            TcpProxy(servers.subscriber_nats_url) as wire,
            EventBus(wire.url, tenant_id=tenant) as bus,
        ):
            changes = permission_changes(bus, since="beginning", durable=f"{tenant}-wire" if durable else None)
            heard = []
            for number in range(0, 9, 3):
                await source.grant("o1", f"u{number}", "a")
                await source.grant("o1", f"u{number + 1}", "a")
                heard += await take(changes, 1)
                await wire.cut()
                await source.grant("o1", f"u{number + 2}", "a")
                await wire.mend()
                heard += await take(changes, 2)
            assert [change.member_id for change in heard] == [f"u{number}" for number in range(9)]
            await nothing_more(changes)

    async def test_a_refused_connection_is_an_immediate_error(self, servers: ServerAddresses) -> None:
        url = servers.subscriber_nats_url
        secret = url.split(":")[2].partition("@")[0]
        with pytest.raises(EventsRefused) as refused:
            async with asyncio.timeout(WITHIN_S), EventBus(url.replace(secret, "wrong")):
                pass
        assert "wrong" not in repr(refused.value)

    async def test_a_wrong_address_is_an_error_that_names_it_without_credentials(
        self, servers: ServerAddresses
    ) -> None:
        async with TcpProxy(servers.subscriber_nats_url) as wire:
            await wire.cut()
            with pytest.raises(Unavailable) as unavailable:
                async with asyncio.timeout(WITHIN_S), EventBus(wire.url, connect_timeout_s=0.2):
                    pass
        parts = urlsplit(wire.url)
        address = f"nats://{parts.hostname}:{parts.port}"
        assert str(unavailable.value) == f"the bus did not answer within 0.2 s: {address}"
        assert parts.password

    @pytest.mark.heavy
    async def test_a_server_that_is_down_is_waited_for(self, servers: ServerAddresses, source: TemplateSource) -> None:
        await source.grant("o1", "u1", "a")
        async with TcpProxy(servers.subscriber_nats_url) as wire:
            await wire.cut()

            async def read() -> list[PermissionChange]:
                async with EventBus(wire.url, tenant_id=source.tenant_id, connect_timeout_s=None) as bus:
                    return await take(permission_changes(bus, since="beginning"), 1)

            reading = asyncio.ensure_future(read())
            await asyncio.sleep(0.5)
            await wire.mend()
            assert told(await reading) == [("u1", 1, ["a"], [])]

    async def test_closing_the_connection_ends_reading(self, source: TemplateSource, bus: EventBus) -> None:
        changes = permission_changes(bus)
        reading = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0.2)
        await bus.aclose()
        with pytest.raises(EventsRefused):
            async with asyncio.timeout(WITHIN_S):
                await reading
