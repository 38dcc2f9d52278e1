"""The part of the directory that every replica holds in memory: clients, resources, roles, claims functions and policy.

Loaded from the bus at start and kept current by the same readers. Lookups are plain dictionary reads.
"""

import asyncio
import itertools
from collections.abc import Collection, Iterable
from functools import partial
from typing import Final, NamedTuple

import msgspec

from identity_common.bus.connection import Bus
from identity_common.bus.stream_follower import StreamFollower
from identity_common.bus.stream_reader import Batch, StreamMessage, StreamPosition
from identity_common.bus.streams import SNAPSHOT_OF, STREAM_OF
from identity_common.projection.freshness import Freshness
from identity_common.revisions import Source
from identity_common.telemetry.logs import get_logger
from identity_common.wire.claims_function import TokenKind
from identity_common.wire.events import (
    ApplicationState,
    AppliedState,
    AssignmentState,
    ClaimsFunctionState,
    ConnectorState,
    ImpersonationPolicyState,
    ResourceState,
    RoleState,
    ScopeState,
    SignInPolicyState,
    Watermark,
    event_subject,
    watermark_subject,
)
from stead.event_types import OrganizationPermissionState, OrganizationRoleState
from token_service.directory.connectors import Connectors
from token_service.directory.organization_template import OrganizationTemplate
from token_service.directory.origins import registered_origins
from token_service.directory.permissions import NameIndex, RoleContents, held

_log = get_logger(__name__)

_decode_watermark = msgspec.json.Decoder(Watermark).decode


_KINDS: Final[dict[Source, tuple[tuple[str, ...], ...]]] = {
    "management": (
        ("application", "*"),
        ("resource", "*"),
        ("scope", "*", "*"),
        ("role", "*"),
        ("assignment", "application", "*"),
        ("claims-function", "*"),
        ("impersonation-policy", "*"),
        ("sign-in-policy", "*"),
        ("connector", "*"),
    ),
    "template": (("permission", "*"), ("role", "*"), ("applied", "*")),
}


class HeldScope(NamedTuple):
    """A scope that a role grants."""

    id: str
    name: str
    description: str | None
    resource: ResourceState


class HeldRole(NamedTuple):
    """An API role and what it grants; ``scopes`` is None if there are too many."""

    id: str
    name: str
    description: str
    scopes: list[HeldScope] | None


class InMemoryDirectory:
    """Applications, resources, scopes, roles, organization permissions and claims functions, as of the last event.

    Attributes:
        freshness: The watermarks that it has seen.
        is_loaded: Whether the streams have been read to their end once, management's watermark included.
        has_new_third_parties: Set when it is loaded and when an application becomes third-party; its reader clears it.
        has_claims_function: Set while there is a claims function of any kind.
        impersonation_policy: The policy of impersonations.
        sign_in_policy: The policy of signing in.
        connectors: Those to other providers.
        applied: Management's revision that template-service has applied.
        applied_as_of: Template's revision that includes what it then changed.
    """

    def __init__(self, bus: Bus, *, tenant_id: str) -> None:
        self.freshness = Freshness()
        self.is_loaded = False
        self.has_new_third_parties = asyncio.Event()
        self.has_claims_function = asyncio.Event()
        self.impersonation_policy = ImpersonationPolicyState()
        self.sign_in_policy = SignInPolicyState()
        self.connectors = Connectors()
        self.applied = Freshness("management")
        self.applied_as_of = 0
        self._applications: dict[str, ApplicationState] = {}
        self._deleted_applications: set[str] = set()
        self._application_roles: dict[str, tuple[str, ...]] = {}
        self._origins: dict[str, frozenset[str]] = {}
        self._resources: dict[str, ResourceState] = {}
        self._indicators = NameIndex[str]()
        self._default_resources: dict[str, ResourceState] = {}  # the newest last; amid a change there may be two
        self._scopes = NameIndex[tuple[str, str]]()  # by the resource's id and the scope's name
        self._role_scopes = RoleContents()
        self._role_names: dict[str, str] = {}
        self._role_descriptions: dict[str, str] = {}
        self._template = OrganizationTemplate()
        self._claims_functions: dict[TokenKind, ClaimsFunctionState] = {}
        self._revisions: dict[str, int] = {}
        self._watermarks: dict[Source, int] = {}
        self._read_to_end: set[Source] = set()
        self._followers = [
            StreamFollower(
                bus,
                stream,
                [
                    *(event_subject(source, tenant_id, *kind) for kind in _KINDS[source]),
                    watermark_subject(source, tenant_id),
                ],
                partial(self._take_read, source),
                snapshot=SNAPSHOT_OF[source],
                name=f"directory-in-memory-{source}",
                log=_log,
                failed="directory.failed",
                interrupted="directory.interrupted",
            )
            for source, stream in STREAM_OF.items()
        ]

    def application(self, application_id: str) -> ApplicationState | None:
        """Return an application, or None."""
        return self._applications.get(application_id)

    def is_deleted(self, application_id: str) -> bool:
        """Return whether an application was deleted; an unknown one was not."""
        return application_id in self._deleted_applications

    def third_parties(self) -> frozenset[str]:
        """Return the ids of all third-party applications."""
        return frozenset(each.id for each in self._applications.values() if each.is_third_party)

    def is_registered_origin(self, origin: str, application_id: str | None) -> bool:
        """Return whether pages of this origin may request tokens for this application, or for any if none is named."""
        if application_id is not None:
            return origin in self._origins.get(application_id, ())
        return any(origin in origins for origins in self._origins.values())

    def resource(self, indicator: str) -> ResourceState | None:
        """Return the resource with this indicator, compared byte for byte."""
        resource_id = self._indicators.id_of(indicator)
        return None if resource_id is None else self._resources.get(resource_id)

    @property
    def default_resource(self) -> ResourceState | None:
        """The resource of client credentials that name no target; None unless one is marked as the default."""
        return next(reversed(self._default_resources.values()), None)

    @property
    def longest_lifetime_s(self) -> int:
        """The longest lifetime of resources' access tokens and applications' ID tokens, seconds; 0 without either."""
        access_tokens = (resource.access_token_ttl_s for resource in self._resources.values())
        id_tokens = (application.id_token_ttl_s for application in self._applications.values())
        return max((*access_tokens, *id_tokens), default=0)

    def application_roles(self, application_id: str) -> tuple[str, ...]:
        """Return the ids of the API roles of a machine-to-machine application."""
        return self._application_roles.get(application_id, ())

    def role_names(self, role_ids: Iterable[str]) -> list[str]:
        """Return the names of the API roles with these ids; unknown ids are left out."""
        return list(self.named_roles(role_ids).values())

    def named_roles(self, role_ids: Iterable[str]) -> dict[str, str]:
        """Return the names by id of the API roles with these ids; unknown ids are left out."""
        return {role_id: self._role_names[role_id] for role_id in role_ids if role_id in self._role_names}

    def roles(self, role_ids: Iterable[str], *, most_scopes: int) -> list[HeldRole]:
        """Return the API roles with these ids; unknown ids are left out.

        Args:
            role_ids: Ids of API roles.
            most_scopes: Up to how many scopes to return with them; none are if the roles grant more together.
        """
        names = self.named_roles(role_ids)
        has_few = sum(map(len, self._role_scopes.of(names))) <= most_scopes
        return [
            HeldRole(role_id, name, self._role_descriptions[role_id], self._scopes_of(role_id) if has_few else None)
            for role_id, name in names.items()
        ]

    def _scopes_of(self, role_id: str) -> list[HeldScope]:
        """Return the scopes that a role grants, by name; without its resource, a scope grants nothing."""
        found = []
        for scope_id in itertools.chain.from_iterable(self._role_scopes.of([role_id])):
            scope = self._scopes.of(scope_id)
            if scope is not None and (resource := self._resources.get(scope[0][0])) is not None:
                found.append(HeldScope(scope_id, scope[0][1], scope[1], resource))
        return sorted(found, key=lambda each: (each.name, each.id))

    def organization_role_names(self, role_ids: Iterable[str]) -> list[str]:
        """Return the names of the organization roles with these ids; unknown ids are left out."""
        return list(self.named_organization_roles(role_ids).values())

    def named_organization_roles(self, role_ids: Iterable[str]) -> dict[str, str]:
        """Return the names by id of the organization roles with these ids; unknown ids are left out."""
        names = self._template.role_names
        return {role_id: names[role_id] for role_id in role_ids if role_id in names}

    def excludes(self, role_ids: Iterable[str]) -> bool:
        """Return whether a user with these API roles cannot be impersonated."""
        return not set(self.impersonation_policy.excluded_role_ids).isdisjoint(role_ids)

    def claims_function(self, kind: TokenKind) -> ClaimsFunctionState | None:
        """Return the active version of the custom-claims function, or None."""
        return self._claims_functions.get(kind)

    def existing_scopes(self, resource: ResourceState, among: Iterable[str]) -> frozenset[str]:
        """Return which of these names are scopes of a resource, held or not."""
        return frozenset(name for name in among if self._scopes.id_of((resource.id, name)) is not None)

    def existing_permissions(self, among: Iterable[str]) -> frozenset[str]:
        """Return which of these names are organization permissions, held or not."""
        return frozenset(name for name in among if self._template.permissions.id_of(name) is not None)

    def scope_description(self, resource: ResourceState, name: str) -> str | None:
        """Return the description of a scope."""
        return self._scopes.description((resource.id, name))

    def permission_description(self, name: str) -> str | None:
        """Return the description of an organization permission."""
        return self._template.permissions.description(name)

    def held_scopes(self, resource: ResourceState, role_ids: Iterable[str], among: frozenset[str]) -> frozenset[str]:
        """Return which of the named scopes of a resource these API roles grant."""
        return self._granted_scopes(resource, self._role_scopes.of(role_ids), among)

    def held_in_organization(
        self, resource: ResourceState | None, role_ids: Iterable[str], among: frozenset[str]
    ) -> frozenset[str]:
        """Return which of the named permissions these organization roles grant.

        Args:
            resource: The resource whose scopes are requested; None for organization permissions.
            role_ids: Ids of organization roles.
            among: The requested names.
        """
        if resource is None:
            return self._template.held_permissions(role_ids, among)
        return self._granted_scopes(resource, self._template.role_scopes.of(role_ids), among)

    def _granted_scopes(
        self, resource: ResourceState, granted: Collection[frozenset[str]], among: frozenset[str]
    ) -> frozenset[str]:
        names = [(resource.id, name) for name in among]
        return frozenset(name for _, name in held(self._scopes, names, granted))

    def start(self) -> None:
        """Start reading in the background."""
        for follower in self._followers:
            follower.start()

    async def stop(self) -> None:
        """Stop reading."""
        await asyncio.gather(*(follower.stop() for follower in self._followers))

    async def _take_read(self, source: Source, batch: Batch, read: StreamPosition) -> StreamPosition:
        was_loaded = self.is_loaded
        self._take(source, batch)
        if was_loaded and (changed_at := batch.changed_at) is not None:
            self.freshness.applied(changed_at)
        if self.is_loaded and not was_loaded:
            _log.info("directory.loaded")
        return batch.end(read)

    def _take(self, source: Source, batch: Batch) -> None:
        self.freshness.received(source)
        for message in batch.messages:
            self._apply(source, message)
        if not batch.caught_up:
            return
        # Not earlier: the stream keeps only the newest state, which may follow the watermark that covers it.
        if source in self._watermarks:
            self.freshness.advance(source, self._watermarks[source])
        self._read_to_end.add(source)
        has_all = len(self._read_to_end) == len(STREAM_OF) and self.freshness.seen("management") >= 0
        if has_all and not self.is_loaded:
            self.is_loaded = True
            self.has_new_third_parties.set()

    def _apply(self, source: Source, message: StreamMessage) -> None:
        event = message.event
        kind = event.type.partition(".")[0]
        if kind == "revision":
            self._watermarks[source] = _decode_watermark(event.data).revision
            return
        if event.revision <= self._revisions.get(message.subject, -1):
            return  # repeated by a relay that died before it deleted what it had published
        self._revisions[message.subject] = event.revision
        if kind == "applied":
            self.applied_as_of = event.revision
            self.applied.advance("management", msgspec.json.decode(event.data, type=AppliedState).revision)
        elif source == "template":
            self._put_of_template(kind, event.data)
        else:
            self._put_of_management(kind, event.data)

    def _put_of_management(self, kind: str, data: msgspec.Raw) -> None:
        if kind == "application":
            self._put_application(msgspec.json.decode(data, type=ApplicationState))
        elif kind == "assignment":
            assignment = msgspec.json.decode(data, type=AssignmentState)
            self._application_roles[assignment.id] = assignment.role_ids
        elif kind == "resource":
            self._put_resource(msgspec.json.decode(data, type=ResourceState))
        elif kind == "scope":
            self._put_scope(msgspec.json.decode(data, type=ScopeState))
        elif kind == "role":
            self._put_role(msgspec.json.decode(data, type=RoleState))
        elif kind == "claims-function":
            self._put_claims_function(msgspec.json.decode(data, type=ClaimsFunctionState))
        elif kind == "impersonation-policy":
            self.impersonation_policy = msgspec.json.decode(data, type=ImpersonationPolicyState)
        elif kind == "sign-in-policy":
            self.sign_in_policy = msgspec.json.decode(data, type=SignInPolicyState)
        elif kind == "connector":
            self.connectors.put(msgspec.json.decode(data, type=ConnectorState))

    def _put_of_template(self, kind: str, data: msgspec.Raw) -> None:
        if kind == "permission":
            self._template.put_permission(msgspec.json.decode(data, type=OrganizationPermissionState))
        elif kind == "role":
            self._template.put_role(msgspec.json.decode(data, type=OrganizationRoleState))

    def _put_application(self, application: ApplicationState) -> None:
        if application.deleted:
            self._applications.pop(application.id, None)
            self._deleted_applications.add(application.id)
        else:
            earlier = self._applications.get(application.id)
            self._applications[application.id] = application
            if earlier is not None and application.is_third_party and not earlier.is_third_party:
                self.has_new_third_parties.set()
        self._origins[application.id] = registered_origins(application)

    def _put_scope(self, scope: ScopeState) -> None:
        if scope.deleted:
            self._scopes.remove(scope.id)
        else:
            self._scopes.put(scope.id, (scope.resource_id, scope.name), scope.description)

    def _put_role(self, role: RoleState) -> None:
        if role.deleted:
            self._role_scopes.remove(role.id)
            self._role_names.pop(role.id, None)
            self._role_descriptions.pop(role.id, None)
        else:
            self._role_scopes.put(role.id, role.scope_ids)
            self._role_names[role.id] = role.name
            self._role_descriptions[role.id] = role.description

    def _put_claims_function(self, function: ClaimsFunctionState) -> None:
        if function.deleted:
            self._claims_functions.pop(function.kind, None)
            if not self._claims_functions:
                self.has_claims_function.clear()
        else:
            self._claims_functions[function.kind] = function
            self.has_claims_function.set()

    def _put_resource(self, resource: ResourceState) -> None:
        if resource.deleted:
            self._resources.pop(resource.id, None)
            self._indicators.remove(resource.id)
        else:
            self._resources[resource.id] = resource
            self._indicators.put(resource.id, resource.indicator)
        self._default_resources.pop(resource.id, None)
        if resource.is_default:
            self._default_resources[resource.id] = resource
