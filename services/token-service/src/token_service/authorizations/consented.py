"""What a person has agreed to, and the authorization that came of it. Pure."""

from collections.abc import Mapping

import msgspec


class Consented(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a client may have in a person's name: everything by name, whether it is held today or not.

    Attributes:
        scopes: Scopes of OpenID Connect, and ours under the URN namespace.
        resource_scopes: The scopes of each resource, by its indicator; a resource without scopes may be a target too.
        organization_permissions: Permissions of the organization template.
        organizations: That the person picked for a client of somebody else, instead of those picked before; none where
            nothing was picked. What the client gets tokens for is said by the consent as it is now
            (``Consents.picked``), not by what an authorization began with.
    """

    scopes: frozenset[str] = frozenset()
    resource_scopes: Mapping[str, frozenset[str]] = {}
    organization_permissions: frozenset[str] = frozenset()
    organizations: frozenset[str] | None = None

    def everything(self) -> frozenset[str]:
        """Return every scope token that was consented to, whatever it belongs to."""
        return self.scopes.union(self.organization_permissions, *self.resource_scopes.values())

    def covers(self, other: "Consented") -> bool:
        """Return whether nothing in the other one is new, the picked organizations left out of account."""
        return (
            other.scopes <= self.scopes
            and other.organization_permissions <= self.organization_permissions
            and all(
                names <= self.resource_scopes.get(indicator, frozenset())
                for indicator, names in other.resource_scopes.items()
            )
        )


class Authorization(msgspec.Struct, frozen=True, kw_only=True):
    """What one client got at one sign-in; the family of its refresh tokens.

    Attributes:
        id: Safe to log; ``jti`` of every access token that descends from it begins with it and a dot.
        session_id: Of the sign-in session; none where there was none.
        auth_time: Milliseconds: when the person signed in; compared with the user's tokensValidAfter, and therefore
            never before it: that may lie ahead (docs/decisions/0004).
        consented: As it was when the code was given.
    """

    id: str
    user_id: str
    application_id: str
    session_id: str | None = None
    auth_time: int
    consented: Consented
