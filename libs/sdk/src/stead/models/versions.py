"""The base of entities that have a version."""

from __future__ import annotations

import msgspec


class Versioned(msgspec.Struct, frozen=True, kw_only=True, rename="camel", dict=True):
    """An entity that can be changed on the condition that it is unchanged since it was read.

    ::

        user = client.users.get(user_id)
        client.users.update(user_id, name="Ada", if_match=user.etag)

    Its ``etag`` is neither compared nor encoded.
    """

    @property
    def etag(self) -> str | None:
        """The entity tag of this version, for ``if_match``; None unless it was read individually, with ``get``."""
        etag: str | None = self.__dict__.get("etag")
        return etag


def note_etag(entity: Versioned, etag: str | None) -> None:
    """Set the entity tag of a decoded entity; None if the response has none."""
    entity.__dict__["etag"] = etag
