"""The in-memory directory: lookups are those of the fold of all events, also after changes, deletions and returns."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from identity_common.bus.connection import Bus
from identity_common.bus.stream_reader import Batch, StreamMessage
from identity_common.wire.claims_function import TOKEN_KINDS
from identity_common.wire.events import (
    ApplicationState,
    AssignmentState,
    ClaimsFunctionState,
    ResourceState,
    RoleState,
    ScopeState,
    Watermark,
    event_subject,
    watermark_subject,
)
from stead.event_types import CloudEvent, OrganizationPermissionState, OrganizationRoleState
from token_service.directory import HeldRole, HeldScope, InMemoryDirectory

IDS = st.sampled_from(["a", "b", "c"])
KINDS = st.sampled_from(TOKEN_KINDS)
NAMES = st.sampled_from(["read", "write"])
SCOPE_IDS = st.lists(IDS, max_size=3, unique=True).map(tuple)
STATES = st.one_of(
    st.builds(ApplicationState, id=IDS, deleted=st.booleans(), name=NAMES),
    st.builds(ResourceState, id=IDS, indicator=st.sampled_from(["x", "y"]), is_default=st.booleans()),
    st.builds(ResourceState, id=IDS, deleted=st.just(True)),
    st.builds(ScopeState, id=IDS, deleted=st.booleans(), resource_id=IDS, name=NAMES),
    st.builds(RoleState, id=IDS, deleted=st.booleans(), name=NAMES, description=NAMES, scope_ids=SCOPE_IDS),
    st.builds(AssignmentState, id=IDS, holder_kind=st.just("application"), role_ids=SCOPE_IDS),
    st.builds(OrganizationPermissionState, id=IDS, deleted=st.booleans(), name=NAMES),
    st.builds(
        OrganizationRoleState, id=IDS, deleted=st.booleans(), permission_ids=SCOPE_IDS, scope_ids=SCOPE_IDS, name=NAMES
    ),
    st.builds(ClaimsFunctionState, kind=KINDS, deleted=st.booleans(), version=st.integers(1, 3)),
)
State = (
    ApplicationState
    | ResourceState
    | ScopeState
    | RoleState
    | AssignmentState
    | OrganizationPermissionState
    | OrganizationRoleState
    | ClaimsFunctionState
)


def id_of(state: State) -> str:
    return state.kind if isinstance(state, ClaimsFunctionState) else state.id


def subject_of(state: State) -> str:
    ids: tuple[str, ...] = (id_of(state),)
    if isinstance(state, ClaimsFunctionState):
        return event_subject("management", "default", "claims-function", state.kind)
    if isinstance(state, OrganizationPermissionState):
        return event_subject("template", "default", "permission", state.id)
    if isinstance(state, OrganizationRoleState):
        return event_subject("template", "default", "role", state.id)
    if isinstance(state, ScopeState):
        ids = ("r", state.id)
    if isinstance(state, AssignmentState):
        ids = ("application", state.id)
    kind = type(state).__name__.removesuffix("State").lower()
    return event_subject("management", "default", kind, *ids)


def message(subject: str, sequence: int, state: msgspec.Struct, *, revision: int | None = None) -> StreamMessage:
    """Return a message; its revision is its place in the stream, unless it is a repetition."""
    revision = sequence if revision is None else revision
    prefix, _, kind, *ids = subject.split(".")
    source = "template" if prefix == "identity" else "management"
    event = CloudEvent(
        id=f"default:{source}:{revision}",
        source=f"/{source}",
        type=f"{kind}.{'deleted' if getattr(state, 'deleted', False) else 'updated'}",
        subject="/".join(ids),
        time="2026-01-01T00:00:00.000Z",
        tenantid="default",
        revision=revision,
        data=msgspec.Raw(msgspec.json.encode(state)),
    )
    return StreamMessage(subject, sequence, event)


def consistent(states: Sequence[State]) -> list[State]:
    """Leave out what the services refuse: an indicator, a scope's name within its resource, or a permission's name."""
    kept: list[State] = []
    alive: dict[tuple[type, str], State] = {}
    for state in states:
        taken = {(type(each), *unique(each)) for key, each in alive.items() if key != (type(state), id_of(state))}
        if not getattr(state, "deleted", False) and unique(state) and (type(state), *unique(state)) in taken:
            continue
        kept.append(state)
        alive.pop((type(state), id_of(state)), None)
        if not getattr(state, "deleted", False):
            alive[type(state), id_of(state)] = state
    return kept


def unique(state: State) -> tuple[str, ...]:
    if isinstance(state, ResourceState):
        return (state.indicator,)
    if isinstance(state, OrganizationPermissionState):
        return (state.name,)
    return (state.resource_id, state.name) if isinstance(state, ScopeState) else ()


def filled(messages: Sequence[StreamMessage]) -> InMemoryDirectory:
    half = InMemoryDirectory(Bus("nats://127.0.0.1:9", service="token"), tenant_id="default")
    for source, prefix in (("management", "identity-internal."), ("template", "identity.")):
        of_source = [each for each in messages if each.subject.startswith(prefix)]
        half._take(source, Batch(of_source, caught_up=True))
    return half


def answers(half: InMemoryDirectory) -> list[object]:
    """Return the result of every possible lookup."""
    resources = [half.resource(indicator) for indicator in ("x", "y")]
    return [
        *map(half.claims_function, TOKEN_KINDS),
        half.roles("abc", most_scopes=9),
        *(half.application(each) for each in "abc"),
        *resources,
        half.default_resource,
        *(
            held(resource, roles, frozenset({"read", "write", "other"}))
            for resource in resources
            if resource is not None
            for roles in ((), ("a",), ("b", "c"), half.application_roles("a"))
            for held in (half.held_scopes, half.held_in_organization)
        ),
        *(
            half.held_in_organization(None, roles, frozenset({"read", "write"}))
            for roles in ((), ("a",), ("b", "c"), ("r",))
        ),
    ]


def history_of(states: Sequence[State]) -> list[StreamMessage]:
    return [message(subject_of(state), sequence, state) for sequence, state in enumerate(states, 1)]


def compacted(history: Sequence[StreamMessage]) -> list[StreamMessage]:
    """Return what the stream holds of a history: the last message of each subject."""
    return sorted({each.subject: each for each in history}.values(), key=lambda each: each.sequence)


@given(st.lists(STATES, max_size=40).map(consistent))
def test_a_snapshot_gives_the_same_answers_as_the_whole_history(states: list[State]) -> None:
    """The design: one event is enough to be right; the stream keeps the last one of each subject."""
    history = history_of(states)

    assert answers(filled(history)) == answers(filled(compacted(history)))


@pytest.mark.heavy
@given(st.lists(STATES, min_size=20, max_size=40).map(consistent), st.integers(0, 20))
@example(
    [
        OrganizationRoleState(id="r", permission_ids=("b",)),
        OrganizationPermissionState(id="a", name="read"),
        OrganizationPermissionState(id="a", name="other"),
        OrganizationPermissionState(id="b", name="read"),
        OrganizationPermissionState(id="a", name="write"),
    ],
    2,
)
def test_a_directory_that_was_away_gives_the_same_answers(states: list[State], left_at: int) -> None:
    """A name that moved: the event of its new owner may arrive before that of its old one."""
    history = history_of(states)
    missed = [each for each in compacted(history) if each.sequence > left_at]

    assert answers(filled([*history[:left_at], *missed])) == answers(filled(history))


@pytest.mark.heavy
@given(st.lists(STATES, min_size=10, max_size=20).map(consistent), st.integers(0, 10))
@example([ApplicationState(id="a", name="read"), ApplicationState(id="a", name="write")], 0)
def test_repeated_events_change_nothing(states: list[State], again_from: int) -> None:
    """A relay that dies before it marks events as published repeats them; no state goes back."""
    history = history_of(states)
    for count in range(len(states) - again_from + 1):
        repeated = [
            message(each.subject, len(states) + number, states[again_from + number], revision=each.sequence)
            for number, each in enumerate(history[again_from : again_from + count])
        ]
        assert answers(filled([*history, *repeated])) == answers(filled(history))


@given(st.lists(STATES, max_size=40).map(consistent))
def test_scopes_are_held_through_live_roles_scopes_and_resources_only(states: list[State]) -> None:
    """Computed anew from nothing but the last state of each aggregate."""
    half = filled([message(subject_of(state), sequence, state) for sequence, state in enumerate(states, 1)])
    last: dict[tuple[type, str], State] = {(type(state), id_of(state)): state for state in states}
    alive = [state for state in last.values() if not getattr(state, "deleted", False)]
    roles = {state.id: state for state in alive if isinstance(state, RoleState)}
    for resource in (state for state in alive if isinstance(state, ResourceState)):
        for role_ids in (("a",), ("b", "c"), ("a", "b", "c", "unknown")):
            granted = {scope for role_id in role_ids if role_id in roles for scope in roles[role_id].scope_ids}
            expected = {
                state.name
                for state in alive
                if isinstance(state, ScopeState) and state.resource_id == resource.id and state.id in granted
            }
            assert half.held_scopes(resource, role_ids, frozenset({"read", "write", "x"})) == expected
            assert half.held_scopes(resource, role_ids, frozenset({"read"})) == expected & {"read"}
        assert half.resource(resource.indicator) == resource
    resources = {state.id: state for state in alive if isinstance(state, ResourceState)}
    scopes = {state.id: state for state in alive if isinstance(state, ScopeState) and state.resource_id in resources}
    granted = [len(roles[role_id].scope_ids) for role_id in ("c", "a") if role_id in roles]
    too_many = half.roles(("unknown", "c", "a"), most_scopes=sum(granted) - 1)
    assert [role.scopes for role in too_many] == [None for _ in granted]
    assert half.roles(("unknown", "c", "a"), most_scopes=sum(granted)) == [
        HeldRole(
            role.id,
            role.name,
            role.description,
            [
                HeldScope(scope.id, scope.name, None, resources[scope.resource_id])
                for scope in sorted(scopes.values(), key=lambda each: (each.name, each.id))
                if scope.id in role.scope_ids
            ],
        )
        for role_id in ("c", "a")
        if (role := roles.get(role_id)) is not None
    ]


@given(st.lists(STATES, max_size=40).map(consistent))
def test_permissions_are_held_through_live_organization_roles_only(states: list[State]) -> None:
    """Computed anew from nothing but the last state of each aggregate; no API role grants any of it."""
    half = filled(history_of(states))
    last: dict[tuple[type, str], State] = {(type(state), id_of(state)): state for state in states}
    alive = [state for state in last.values() if not getattr(state, "deleted", False)]
    roles = {state.id: state for state in alive if isinstance(state, OrganizationRoleState)}
    for role_ids in (("a",), ("b", "c"), ("a", "b", "c", "unknown")):
        held = [roles[role_id] for role_id in role_ids if role_id in roles]
        permission_ids = {each for role in held for each in role.permission_ids}
        scope_ids = {each for role in held for each in role.scope_ids}
        assert half.held_in_organization(None, role_ids, frozenset({"read", "write", "x"})) == {
            state.name
            for state in alive
            if isinstance(state, OrganizationPermissionState) and state.id in permission_ids
        }
        for resource in (state for state in alive if isinstance(state, ResourceState)):
            assert half.held_in_organization(resource, role_ids, frozenset({"read", "write", "x"})) == {
                state.name
                for state in alive
                if isinstance(state, ScopeState) and state.resource_id == resource.id and state.id in scope_ids
            }


def test_it_is_loaded_when_the_streams_are_read_to_their_end_with_managements_watermark() -> None:
    watermark = message(watermark_subject("management", "default"), 2, Watermark(7))
    application = message(event_subject("management", "default", "application", "a"), 1, ApplicationState(id="a"))
    half = InMemoryDirectory(Bus("nats://127.0.0.1:9", service="token"), tenant_id="default")
    seen = []
    for source, batch in (
        ("management", Batch([], caught_up=True)),
        ("management", Batch([application], caught_up=False)),
        ("management", Batch([watermark], caught_up=True)),
        ("template", Batch([], caught_up=False)),
        ("template", Batch([], caught_up=True)),
    ):
        half._take(source, batch)
        seen.append((half.is_loaded, half.freshness.seen("management")))

    assert seen == [(False, -1), (False, -1), (False, 7), (False, 7), (True, 7)]
    assert half.application("a") == ApplicationState(id="a")
    assert answers(half) == answers(filled([application]))


def test_a_watermark_counts_when_nothing_is_behind_it_any_more() -> None:
    """The stream keeps only the newest state of an aggregate, which may come behind the watermark."""
    half = InMemoryDirectory(Bus("nats://127.0.0.1:9", service="token"), tenant_id="default")
    watermark = message(watermark_subject("template", "default"), 1, Watermark(7))
    role = OrganizationRoleState(id="r", deleted=True)
    seen = []
    for batch in (
        Batch([watermark], caught_up=False),
        Batch([message(subject_of(role), 2, role)], caught_up=False),
        Batch([], caught_up=True),
    ):
        half._take("template", batch)
        seen.append(half.freshness.seen("template"))

    assert seen == [-1, -1, 7]
