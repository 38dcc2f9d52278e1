"""Permissions by name, and which roles grant them: what both kinds of roles are judged by. Pure.

Effective permissions are the union over a holder's roles, computed at the moment of the question: an edit of a role is
one event, however many hold it. Ids of what is gone, roles and permissions alike, grant nothing.
"""

import sys
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

Name = TypeVar("Name", bound=Hashable)


class NameIndex(Generic[Name]):
    """Which id has a name right now.

    A reader that was away for a while may hear of the new owner of a name before it hears that the former one has let
    go of it; therefore a name is taken away only from whoever has it.
    """

    def __init__(self) -> None:
        self._ids: dict[Name, str] = {}
        self._names: dict[str, Name] = {}
        self._descriptions: dict[str, str] = {}

    def id_of(self, name: Name) -> str | None:
        """Return who has this name."""
        return self._ids.get(name)

    def description(self, name: Name) -> str | None:
        """Return what an administrator says of whoever has this name."""
        return self._descriptions.get(self._ids.get(name, ""))

    def put(self, id_: str, name: Name, description: str | None = None) -> None:
        """Give somebody a name, the only one it has from now on."""
        self.remove(id_)
        if description:
            self._descriptions[id_] = description
        self._ids[name] = id_
        self._names[id_] = name

    def remove(self, id_: str) -> None:
        """Take note that somebody is gone."""
        self._descriptions.pop(id_, None)
        name = self._names.pop(id_, None)
        if name is not None and self._ids.get(name) == id_:
            del self._ids[name]


class RoleContents:
    """Ids of what each role grants."""

    def __init__(self) -> None:
        self._contents: dict[str, frozenset[str]] = {}

    def put(self, role_id: str, ids: Iterable[str]) -> None:
        """Take note of everything that a role grants."""
        self._contents[role_id] = frozenset(map(sys.intern, ids))  # many roles grant the same

    def remove(self, role_id: str) -> None:
        """Take note that a role is gone."""
        self._contents.pop(role_id, None)

    def of(self, role_ids: Iterable[str]) -> list[frozenset[str]]:
        """Return what each of these roles grants that exists."""
        return [self._contents[role_id] for role_id in role_ids if role_id in self._contents]


def held(names: NameIndex[Name], among: Iterable[Name], granted: Iterable[frozenset[str]]) -> set[Name]:
    """Return which of these permissions exist and are granted by one of the roles.

    Args:
        names: The permissions that exist.
        among: The names of those that are asked for.
        granted: What each role grants.
    """
    asked = {id_: name for name in among if (id_ := names.id_of(name)) is not None}
    return {asked[id_] for contents in granted for id_ in contents.intersection(asked)}
