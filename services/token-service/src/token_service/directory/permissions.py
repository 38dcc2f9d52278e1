"""Permissions by name, and which roles grant them, for roles of both kinds. Pure.

Effective permissions are the union over the holder's roles, computed on every lookup: editing a role is one event,
however many hold it. Ids of deleted roles and permissions grant nothing.
"""

import sys
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

Name = TypeVar("Name", bound=Hashable)


class NameIndex(Generic[Name]):
    """Maps names to ids, and back.

    A reader that was disconnected may see the new owner of a name before it sees the former one lose it; so removing
    an id frees its name only if the id still owns it.
    """

    def __init__(self) -> None:
        self._ids: dict[Name, str] = {}
        self._names: dict[str, Name] = {}
        self._descriptions: dict[str, str] = {}

    def id_of(self, name: Name) -> str | None:
        """Return the id that owns this name."""
        return self._ids.get(name)

    def description(self, name: Name) -> str | None:
        """Return the description of the id that owns this name."""
        return self._descriptions.get(self._ids.get(name, ""))

    def of(self, id_: str) -> tuple[Name, str | None] | None:
        """Return the name of this id, with its description; None if there is none."""
        name = self._names.get(id_)
        return None if name is None else (name, self._descriptions.get(id_))

    def put(self, id_: str, name: Name, description: str | None = None) -> None:
        """Set this id's name."""
        self.remove(id_)
        if description:
            self._descriptions[id_] = description
        self._ids[name] = id_
        self._names[id_] = name

    def remove(self, id_: str) -> None:
        """Remove this id."""
        self._descriptions.pop(id_, None)
        name = self._names.pop(id_, None)
        if name is not None and self._ids.get(name) == id_:
            del self._ids[name]


class RoleContents:
    """The ids that each role grants."""

    def __init__(self) -> None:
        self._contents: dict[str, frozenset[str]] = {}

    def put(self, role_id: str, ids: Iterable[str]) -> None:
        """Set what a role grants."""
        self._contents[role_id] = frozenset(map(sys.intern, ids))  # many roles grant the same

    def remove(self, role_id: str) -> None:
        """Remove a role."""
        self._contents.pop(role_id, None)

    def of(self, role_ids: Iterable[str]) -> list[frozenset[str]]:
        """Return what each of these roles grants; unknown roles are left out."""
        return [self._contents[role_id] for role_id in role_ids if role_id in self._contents]


def held(names: NameIndex[Name], among: Iterable[Name], granted: Iterable[frozenset[str]]) -> set[Name]:
    """Return which of these permissions exist and are granted by one of the roles.

    Args:
        names: The permissions that exist.
        among: The requested names.
        granted: What each role grants.
    """
    wanted = {id_: name for name in among if (id_ := names.id_of(name)) is not None}
    return {wanted[id_] for contents in granted for id_ in contents.intersection(wanted)}
