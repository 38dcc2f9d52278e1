"""Consents of a user, and authorizations. Pure."""

from collections.abc import Mapping

import msgspec

from identity_common.authentication import Authentication, UsedFactor


class Consented(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Access that a user has consented to, by name, whether or not the user holds it now.

    Attributes:
        scopes: Scopes of OpenID Connect, and ours under the URN namespace.
        resource_scopes: The scopes of each resource, by indicator; a resource without scopes may be a target too.
        organization_permissions: Permissions of the organization template.
        organizations: Those that the user picked for a third-party client; they replace earlier ones. None if there was
            nothing to pick. Tokens depend on the current consent (``Consents.picked``), not on the authorization's.
    """

    scopes: frozenset[str] = frozenset()
    resource_scopes: Mapping[str, frozenset[str]] = {}
    organization_permissions: frozenset[str] = frozenset()
    organizations: frozenset[str] | None = None

    def everything(self) -> frozenset[str]:
        """Return all scope tokens, of every kind."""
        return self.scopes.union(self.organization_permissions, *self.resource_scopes.values())

    def covers(self, other: "Consented") -> bool:
        """Return whether this includes all of the other, apart from picked organizations."""
        return (
            other.scopes <= self.scopes
            and other.organization_permissions <= self.organization_permissions
            and all(
                names <= self.resource_scopes.get(indicator, frozenset())
                for indicator, names in other.resource_scopes.items()
            )
        )


class Authorization(msgspec.Struct, frozen=True, kw_only=True):
    """One client's authorization from one sign-in; the family of its refresh tokens.

    Attributes:
        id: Safe to log; ``jti`` of every access token that descends from it begins with it and a dot.
        session_id: The sign-in session, if there was one.
        auth_time: When the user last signed in to the session, milliseconds; never before the user's tokensValidAfter,
            by whose clock it may be in the future (docs/decisions/0004).
        consented: The consented access when the code was issued.
        first_party: Whether the application was first-party, so that no consent page was needed.
        factors: Those that the user had used in the session; none if it began before they were stored.
        judged_valid_after: The user's tokensValidAfter when the first of them was judged, milliseconds; None likewise.
    """

    id: str
    user_id: str
    application_id: str
    session_id: str | None = None
    auth_time: int
    consented: Consented
    first_party: bool
    factors: tuple[UsedFactor, ...] = ()
    judged_valid_after: int | None = None

    @property
    def authentication(self) -> Authentication:
        """How the user signed in."""
        return Authentication.of(self.factors, auth_time=self.auth_time, judged_valid_after=self.judged_valid_after)
