"""The base of entities that have a version."""

from __future__ import annotations

import msgspec


class Versioned(msgspec.Struct, frozen=True, kw_only=True, rename="camel", dict=True):
    """An entity that can be changed on condition that it is still as it was read.

    ::

        user = client.users.get(user_id)
        client.users.update(user_id, name="Ada", if_match=user.etag)

    Its ``etag`` is neither compared nor encoded.
    """

    @property
    def etag(self) -> str | None:
        """The entity tag of this version, for ``if_match``; None unless it was read by itself, with ``get``."""
        etag: str | None = self.__dict__.get("etag")
        return etag


def note_etag(entity: Versioned, etag: str | None) -> None:
    """Set the entity tag of what was decoded just now; None if the answer has none."""
    entity.__dict__["etag"] = etag
