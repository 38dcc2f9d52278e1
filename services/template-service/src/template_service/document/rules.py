"""The template document: its validation, and the difference between two templates. No I/O."""

import functools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from identity_common.failures import Issue
from identity_common.fields import MAX_RELATED, Answer, Body, Description, Name
from identity_common.names import by_name, canonical_name, name_problem
from identity_common.scope_names import ScopeName, is_scope_name
from stead.event_types import GrantedPermission, OrganizationRoleType, permission_order
from template_service.permissions.rules import PermissionDescription

Indicator = Annotated[str, msgspec.Meta(max_length=4096)]

MAX_ISSUES: Final = 100
"""The most issues that one refusal reports."""

MAX_GRANTS: Final = 250_000
"""Grants of all roles of a document, which is one transaction; it takes a fraction of the statement timeout."""


class TemplatePermission(Body):
    """An organization permission of a document.

    Attributes:
        name: The scope token in organization tokens: printable ASCII without spaces; unique.
        description: Description, shown on the consent page.
    """

    name: ScopeName
    description: PermissionDescription | None = None


class TemplateScope(Body):
    """A scope of an API resource that a role of a document grants.

    Attributes:
        resource: The resource's indicator.
        name: The scope token.
    """

    resource: Indicator
    name: ScopeName


class TemplateRole(Body):
    """An organization role of a document.

    Attributes:
        name: Unique name.
        description: Description.
        type: Whether users or machine-to-machine applications hold the role.
        permissions: Names of organization permissions of the same document.
        scopes: Scopes of API resources that it grants.
    """

    name: Name
    description: Description | None = None
    type: OrganizationRoleType = "User"
    permissions: tuple[ScopeName, ...] = ()
    scopes: tuple[TemplateScope, ...] = ()


class TemplateDocument(Body):
    """All organization permissions and roles, by name.

    Attributes:
        permissions: The organization permissions.
        roles: The organization roles.
    """

    permissions: tuple[TemplatePermission, ...]
    roles: tuple[TemplateRole, ...]


class Role(msgspec.Struct, frozen=True):
    """An organization role without its name.

    Attributes:
        grants: Organization permissions, and scopes of API resources.
    """

    description: str | None
    type: OrganizationRoleType
    grants: frozenset[GrantedPermission]


class Template(msgspec.Struct, frozen=True):
    """The content of a document: the description of each permission, and each role, by name."""

    permissions: Mapping[str, str | None]
    roles: Mapping[str, Role]


class DescriptionChange(Answer):
    """A changed description.

    Attributes:
        before: The current description.
        after: The description in the document.
    """

    before: str | None
    after: str | None


class TypeChange(Answer):
    """A changed type of a role.

    Attributes:
        before: The current type.
        after: The type in the document.
    """

    before: OrganizationRoleType
    after: OrganizationRoleType


class PermissionChange(Answer):
    """The difference of an organization permission.

    Attributes:
        name: Name of the organization permission.
        description: How its description changes.
    """

    name: str
    description: DescriptionChange


class RoleChange(Answer):
    """The difference of an organization role; unchanged members are absent.

    Attributes:
        name: Name of the organization role.
        description: How its description changes.
        type: How its type changes.
        added: Permissions that it newly grants, sorted.
        removed: Permissions that it no longer grants, sorted.
    """

    name: str
    description: DescriptionChange | UnsetType = UNSET
    type: TypeChange | UnsetType = UNSET
    added: tuple[GrantedPermission, ...] = ()
    removed: tuple[GrantedPermission, ...] = ()


class PermissionChanges(Answer):
    """The differences of the organization permissions, by name.

    Attributes:
        created: Names of new permissions.
        updated: Permissions whose description changes.
        deleted: Names of permissions that the document does not contain.
    """

    created: tuple[str, ...]
    updated: tuple[PermissionChange, ...]
    deleted: tuple[str, ...]


class RoleChanges(Answer):
    """The differences of the organization roles, by name.

    Attributes:
        created: Names of new roles.
        updated: Roles that change.
        deleted: Names of roles that the document does not contain.
    """

    created: tuple[str, ...]
    updated: tuple[RoleChange, ...]
    deleted: tuple[str, ...]


class Reach(Answer):
    """A number of members, and of the organizations that they are in.

    Attributes:
        members: The number of members.
        organizations: The number of organizations that they are in.
    """

    members: int
    organizations: int


class MemberEffect(Answer, kw_only=True):
    """The members that gain or lose one permission.

    Attributes:
        name: The scope token.
        resource: Indicator of the API resource that the permission belongs to; absent for an organization permission.
        gaining: Members that did not hold it.
        losing: Members that no longer hold it by any of their roles.
    """

    name: str
    resource: str | UnsetType = UNSET
    gaining: Reach
    losing: Reach


class TemplateReport(Answer):
    """The changes that a document makes, or would make.

    Attributes:
        permissions: Changes of organization permissions.
        roles: Changes of organization roles.
        members: The permissions that at least one member gains or loses, by name and then resource.
    """

    permissions: PermissionChanges
    roles: RoleChanges
    members: tuple[MemberEffect, ...]


class Grant(NamedTuple):
    """Whether a role grants something, before and after the change."""

    role: str
    before: bool
    after: bool


Grants = tuple[Grant, ...]


def repetitions(document: TemplateDocument) -> list[Issue]:
    """Return the duplicates in a document: names, and what one role grants."""
    names = [permission.name for permission in document.permissions]
    found = [Issue(f"permissions[{index}].name", "repeated") for index in _repeated(names)]
    names = [role.name for role in document.roles]
    found += [Issue(f"roles[{index}].name", "repeated") for index in _repeated(names)]
    for at, role in enumerate(document.roles):
        found += [Issue(f"roles[{at}].permissions[{index}]", "repeated") for index in _repeated(role.permissions)]
        scopes = [(scope.resource, scope.name) for scope in role.scopes]
        found += [Issue(f"roles[{at}].scopes[{index}]", "repeated") for index in _repeated(scopes)]
    return found


def unacceptable_names(document: TemplateDocument, *, urn_namespace: str) -> list[Issue]:
    """Return the invalid names of permissions in a document."""
    return [
        Issue(f"permissions[{index}].name", "not a valid name of a permission")
        for index, permission in enumerate(document.permissions)
        if not is_scope_name(permission.name, urn_namespace=urn_namespace)
    ]


def with_stored_names(document: TemplateDocument, stored: Collection[str]) -> tuple[TemplateDocument, list[Issue]]:
    """Return a document whose roles have the names under which they are or will be stored, and what is wrong with them.

    A name that is stored, in whatever form, means that role, and so does another form of it: a document that was read
    changes nothing.
    """
    by_canonical = {
        canonical_name(name): name for name in sorted(stored, key=lambda name: canonical_name(name) == name)
    }
    roles, issues = [], []
    for at, role in enumerate(document.roles):
        name = canonical_name(role.name)
        if role.name in stored:
            name = role.name
        elif name in by_canonical:
            name = by_canonical[name]
        elif problem := name_problem(name):
            issues.append(Issue(f"roles[{at}].name", problem))
        roles.append(msgspec.structs.replace(role, name=name))
    return msgspec.structs.replace(document, roles=tuple(roles)), issues


def too_large_roles(document: TemplateDocument) -> list[Issue]:
    """Return the roles of a document that grant more than a role may."""
    return [
        Issue(f"roles[{index}]", "grants too much")
        for index, role in enumerate(document.roles)
        if len(role.permissions) + len(role.scopes) > MAX_RELATED
    ]


def is_too_large(document: TemplateDocument) -> bool:
    """Whether the roles of a document grant more than one transaction may change."""
    return sum(len(role.permissions) + len(role.scopes) for role in document.roles) > MAX_GRANTS


def undefined_permissions(document: TemplateDocument) -> list[Issue]:
    """Return where a role grants an organization permission that the document does not define."""
    defined = {permission.name for permission in document.permissions}
    return [
        Issue(f"roles[{at}].permissions[{index}]", "the document defines no such permission")
        for at, role in enumerate(document.roles)
        for index, name in enumerate(role.permissions)
        if name not in defined
    ]


def unknown_scopes(document: TemplateDocument, known: Collection[GrantedPermission]) -> list[Issue]:
    """Return where a role grants an unknown scope."""
    return [
        Issue(f"roles[{at}].scopes[{index}]", "there is no such scope")
        for at, role in enumerate(document.roles)
        for index, scope in enumerate(role.scopes)
        if GrantedPermission(scope.name, scope.resource) not in known
    ]


def scopes_of_resource(document: TemplateDocument, indicator: str) -> list[Issue]:
    """Return where a role grants a scope of this resource."""
    return [
        Issue(f"roles[{at}].scopes[{index}]", "belongs to the Management API")
        for at, role in enumerate(document.roles)
        for index, scope in enumerate(role.scopes)
        if scope.resource == indicator
    ]


def types_of(document: TemplateDocument, names: Collection[str]) -> list[Issue]:
    """Return an issue for the type of each of these roles, which members hold."""
    return [
        Issue(f"roles[{at}].type", "a member holds the role")
        for at, role in enumerate(document.roles)
        if role.name in names
    ]


def template_of(document: TemplateDocument) -> Template:
    """Return the template of a document without duplicates."""
    granted = functools.cache(GrantedPermission)  # many roles grant the same
    return Template(
        permissions={permission.name: permission.description for permission in document.permissions},
        roles={
            role.name: Role(
                role.description,
                role.type,
                frozenset(
                    [
                        *(granted(name) for name in role.permissions),
                        *(granted(scope.name, scope.resource) for scope in role.scopes),
                    ]
                ),
            )
            for role in document.roles
        },
    )


def document_of(template: Template) -> TemplateDocument:
    """Return the document of a template, sorted by name, scopes by resource and then name."""
    order = functools.cache(by_name)  # of each permission once, though many roles grant it
    return TemplateDocument(
        permissions=tuple(
            TemplatePermission(name=name, description=template.permissions[name])
            for name in sorted(template.permissions, key=order)
        ),
        roles=tuple(_entry(name, template.roles[name], order) for name in sorted(template.roles, key=by_name)),
    )


def _entry(name: str, role: Role, order: Callable[[str], tuple[str, str]]) -> TemplateRole:
    scopes = sorted((each.resource, each.name) for each in role.grants if each.resource is not None)
    return TemplateRole(
        name=name,
        description=role.description,
        type=role.type,
        permissions=tuple(sorted((each.name for each in role.grants if each.resource is None), key=order)),
        scopes=tuple(TemplateScope(resource=resource, name=scope) for resource, scope in scopes),
    )


def permission_changes(before: Template, after: Template) -> PermissionChanges:
    """Return the differences of the permissions."""
    old, new = before.permissions, after.permissions
    return PermissionChanges(
        created=tuple(sorted(new.keys() - old.keys(), key=by_name)),
        updated=tuple(
            PermissionChange(name=name, description=DescriptionChange(before=old[name], after=new[name]))
            for name in sorted(new.keys() & old.keys(), key=by_name)
            if old[name] != new[name]
        ),
        deleted=tuple(sorted(old.keys() - new.keys(), key=by_name)),
    )


def role_changes(before: Template, after: Template) -> RoleChanges:
    """Return the differences of the roles."""
    old, new = before.roles, after.roles
    return RoleChanges(
        created=tuple(sorted(new.keys() - old.keys(), key=by_name)),
        updated=tuple(
            _role_change(name, old[name], new[name])
            for name in sorted(new.keys() & old.keys(), key=by_name)
            if old[name] != new[name]
        ),
        deleted=tuple(sorted(old.keys() - new.keys(), key=by_name)),
    )


def _role_change(name: str, before: Role, after: Role) -> RoleChange:
    description = DescriptionChange(before=before.description, after=after.description)
    return RoleChange(
        name=name,
        description=description if before.description != after.description else UNSET,
        type=TypeChange(before=before.type, after=after.type) if before.type != after.type else UNSET,
        added=tuple(sorted(after.grants - before.grants, key=permission_order)),
        removed=tuple(sorted(before.grants - after.grants, key=permission_order)),
    )


def changed_grants(before: Template, after: Template) -> dict[Grants, list[GrantedPermission]]:
    """Return the permissions whose holders must be counted, grouped by the roles that grant them, before and after.

    Only existing roles are included, since a new one has no members, and only permissions whose grants by these change.
    The permissions of a group have the same holders: if a role grants a hundred of them, its members are counted once.
    """
    now = {name: after.roles[name].grants if name in after.roles else frozenset() for name in before.roles}
    changed = {permission for name, role in before.roles.items() for permission in role.grants ^ now[name]}
    grants: defaultdict[GrantedPermission, list[Grant]] = defaultdict(list)
    for name, role in before.roles.items():
        for permission in (role.grants | now[name]) & changed:
            grants[permission].append(Grant(name, permission in role.grants, permission in now[name]))
    alike: defaultdict[Grants, list[GrantedPermission]] = defaultdict(list)
    for permission, of_permission in grants.items():
        alike[tuple(of_permission)].append(permission)
    return dict(alike)


def member_effects(counted: Iterable[tuple[Collection[GrantedPermission], Reach, Reach]]) -> tuple[MemberEffect, ...]:
    """Return the members that a change affects, permission by permission.

    Args:
        counted: Permissions with the members that gain and that lose each of them.
    """
    effects = (
        MemberEffect(
            name=permission.name,
            resource=UNSET if permission.resource is None else permission.resource,
            gaining=gaining,
            losing=losing,
        )
        for permissions, gaining, losing in counted
        for permission in permissions
    )
    return tuple(sorted(effects, key=lambda effect: (effect.name, effect.resource or "")))


def _repeated(values: Collection[object]) -> Iterator[int]:
    """Yield the indices of repeated values."""
    if len(set(values)) == len(values):
        return
    seen: set[object] = set()
    for index, value in enumerate(values):
        if value in seen:
            yield index
        seen.add(value)
