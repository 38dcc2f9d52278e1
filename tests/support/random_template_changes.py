"""Clients that change the organization template and memberships at random.

Everything has one owner, which alone changes and deletes it; but the roles of a client also grant permissions of
others, and its users join organizations of others with roles of others, which may be deleted at any moment.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any, NamedTuple

from stead import ManagementClient
from tests.support.lengths import length
from tests.support.random_writes import GONE, Acknowledged, Key, Writer

USERS = length(short=12, long=50)
"""The number of users of each client at the start; it deletes some of them."""

_FEWEST = 3
_MOST = 8


class KnownRole(NamedTuple):
    """The state of an organization role.

    Attributes:
        name: Unique.
        permission_ids: Organization permissions that it grants; deleted ones do not count.
        scope_ids: Scopes of API resources that it grants.
    """

    name: str
    permission_ids: frozenset[str] = frozenset()
    scope_ids: frozenset[str] = frozenset()


class TemplateWriter(Writer):
    """Writes permissions, roles, organizations, and members that are its users; it deletes a user now and then.

    The known state of a permission or an organization is its name; of a member, the ids of its roles, except deleted
    ones; of a user, its existence.
    """

    def __init__(self, seed: int, known: Acknowledged, management: ManagementClient, scope_ids: Sequence[str]) -> None:
        super().__init__(seed, known)
        self._management = management
        self._scope_ids = scope_ids
        self._mine: defaultdict[str, dict[Key, None]] = defaultdict(dict)
        for _ in range(USERS):
            self._make("user", True, lambda: management.users.create(name=self._name()).id)
        self.written = 0

    def _write_something(self) -> None:
        for kind, create in (
            ("permission", self._create_permission),
            ("role", self._create_role),
            ("organization", self._create_organization),
        ):
            if len(self._living(kind)) < _FEWEST or (self._random.random() < 0.03 and len(self._living(kind)) < _MOST):
                create()
                return
        change, weight = zip(*self._changes, strict=True)
        self._random.choices(change, weight)[0]()

    @property
    def _changes(self) -> Sequence[tuple[Callable[[], None], int]]:
        return (
            (self._replace_permissions, 10),
            (self._grant_permission, 10),
            (self._revoke_permission, 10),
            (self._replace_scopes, 5),
            (self._rename_permission, 4),
            (self._rename_role, 2),
            (self._rename_organization, 2),
            (self._add_member, 15),
            (self._remove_member, 5),
            (self._replace_roles, 20),
            (self._assign_role, 10),
            (self._unassign_role, 10),
            (self._delete_permission, 2),
            (self._delete_role, 2),
            (self._delete_organization, 1),
            (self._delete_user, 1),
        )

    # Permissions

    def _create_permission(self) -> None:
        name = self._name()
        self._make("permission", name, lambda: self._management.organization_permissions.create(name).id)

    def _rename_permission(self) -> None:
        key, name = self._one_of("permission"), self._name()
        self._change(key, lambda _: name, lambda: self._management.organization_permissions.update(key[1], name=name))

    def _delete_permission(self) -> None:
        key = self._one_of("permission")
        self._change(key, lambda _: GONE, lambda: self._management.organization_permissions.delete(key[1]))

    # Roles

    def _create_role(self) -> None:
        role = KnownRole(self._name())
        self._make("role", role, lambda: self._management.organization_roles.create(role.name).id)

    def _rename_role(self) -> None:
        name = self._name()
        self._change_role(
            lambda role: role._replace(name=name),
            lambda role_id: self._management.organization_roles.update(role_id, name=name),
        )

    def _delete_role(self) -> None:
        self._change_role(lambda _: GONE, self._management.organization_roles.delete)

    def _replace_permissions(self) -> None:
        chosen = self._some("permission")
        self._change_role(
            lambda role: role._replace(permission_ids=_ids(chosen)),
            lambda role_id: self._management.organization_roles.replace_permissions(role_id, _ids(chosen)),
            naming=chosen,
        )

    def _grant_permission(self) -> None:
        chosen = self._random.choice(self.known.living("permission"))
        self._change_role(
            lambda role: role._replace(permission_ids=role.permission_ids | {chosen[1]}),
            lambda role_id: self._management.organization_roles.assign_permissions(role_id, [chosen[1]]),
            naming=[chosen],
        )

    def _revoke_permission(self) -> None:
        key = self._one_of("role")
        role = self._certain(key)
        if role is None or not role.permission_ids:
            return
        chosen = self._random.choice(sorted(role.permission_ids))
        self._change(
            key,
            lambda role: role._replace(permission_ids=role.permission_ids - {chosen}),
            lambda: self._management.organization_roles.remove_permission(key[1], chosen),
            naming=[("permission", chosen)],
        )

    def _replace_scopes(self) -> None:
        chosen = frozenset(self._random.sample(self._scope_ids, self._random.randrange(len(self._scope_ids) + 1)))
        self._change_role(
            lambda role: role._replace(scope_ids=chosen),
            lambda role_id: self._management.organization_roles.replace_resource_scopes(role_id, chosen),
        )

    def _change_role(
        self,
        change: Callable[[KnownRole], KnownRole | None],
        call: Callable[[str], object],
        *,
        naming: Collection[Key] = (),
    ) -> None:
        key = self._one_of("role")
        self._change(key, change, lambda: call(key[1]), naming=naming)

    # Organizations and their members

    def _create_organization(self) -> None:
        name = self._name()
        self._make("organization", name, lambda: self._management.organizations.create(name).id)

    def _rename_organization(self) -> None:
        key, name = self._one_of("organization"), self._name()
        self._change(key, lambda _: name, lambda: self._management.organizations.update(key[1], name=name))

    def _delete_organization(self) -> None:
        key = self._one_of("organization")
        self._change(key, lambda _: GONE, lambda: self._management.organizations.delete(key[1]))

    def _add_member(self) -> None:
        organization, user = self._random.choice(self.known.living("organization")), self._one_of("user")
        key = ("member", organization[1], user[1])
        self._mine["member"][key] = None
        self._change(
            key,
            lambda roles: frozenset() if roles is GONE else roles,
            lambda: self._management.organizations.add_users(organization[1], [user[1]]),
            naming=[organization, user],
            adds=True,
        )

    def _remove_member(self) -> None:
        self._change_member(lambda _: GONE, self._management.organizations.remove_user)

    def _replace_roles(self) -> None:
        chosen = self._some("role")
        self._change_member(
            lambda _: _ids(chosen),
            lambda organization, user: self._management.organizations.replace_user_roles(
                organization, user, _ids(chosen)
            ),
            naming=chosen,
        )

    def _assign_role(self) -> None:
        chosen = self._random.choice(self.known.living("role"))
        self._change_member(
            lambda roles: roles | {chosen[1]},
            lambda organization, user: self._management.organizations.assign_user_roles(
                organization, user, [chosen[1]]
            ),
            naming=[chosen],
        )

    def _unassign_role(self) -> None:
        living = self._living("member")
        if not living:
            return
        key = self._random.choice(living)
        role_ids = self._certain(key)
        if not role_ids:
            return
        chosen = self._random.choice(sorted(role_ids))
        self._change(
            key,
            lambda roles: roles - {chosen},
            lambda: self._management.organizations.remove_user_role(key[1], key[2], chosen),
            naming=[*needed_by_member(key), ("role", chosen)],
        )

    def _change_member(
        self,
        change: Callable[[frozenset[str]], frozenset[str] | None],
        call: Callable[[str, str], object],
        *,
        naming: Collection[Key] = (),
    ) -> None:
        living = self._living("member")
        if living:
            key = self._random.choice(living)
            self._change(key, change, lambda: call(key[1], key[2]), naming=[*needed_by_member(key), *naming])

    def _delete_user(self) -> None:
        key = self._one_of("user")
        self._change(key, lambda _: GONE, lambda: self._management.users.delete(key[1]))

    # What there is to choose from

    def _make(self, kind: str, state: Hashable, call: Callable[[], str]) -> None:
        made = self._create(kind, state, call)
        if made is not None:
            self._mine[kind][made] = None

    def _living(self, kind: str) -> list[Key]:
        """Return our things that exist, or may exist."""
        return [key for key in self._mine[kind] if self.known.states(key) != {GONE} and not self._is_over(key)]

    def _is_over(self, key: Key) -> bool:
        """Return whether a membership has certainly ended because the user or the organization was deleted."""
        return key[0] == "member" and any(self.known.states(each) == {GONE} for each in needed_by_member(key))

    def _one_of(self, kind: str) -> Key:
        return self._random.choice(self._living(kind))

    def _some(self, kind: str) -> list[Key]:
        """Return a few, regardless of their owner."""
        living = self.known.living(kind)
        return self._random.sample(living, min(len(living), self._random.randrange(4)))

    def _certain(self, key: Key) -> Any:
        """Return the only possible state of something; None if there are several."""
        states = self.known.states(key)
        return next(iter(states)) if len(states) == 1 else None

    def _name(self) -> str:
        return f"n{self._random.getrandbits(64):x}"


def needed_by_member(member: Key) -> list[Key]:
    """Return the organization and the user of a membership."""
    return [("organization", member[1]), ("user", member[2])]


def _ids(keys: Collection[Key]) -> frozenset[str]:
    return frozenset(key[1] for key in keys)
