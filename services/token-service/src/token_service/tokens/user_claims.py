"""The claims about a user, read from the directory according to the granted scopes."""

from collections.abc import Mapping, Sequence

from msgspec import UNSET

from token_service.directory import Directory, Membership, Person
from token_service.tokens.identity import PersonClaims, person_claims
from token_service.tokens.scopes import organization_roles_scope, organizations_scope


class UserClaims:
    """Reads the claims of ID tokens and userinfo."""

    def __init__(self, directory: Directory, *, urn_namespace: str) -> None:
        self._directory = directory
        self._organizations_scope = organizations_scope(urn_namespace)
        self._organization_roles_scope = organization_roles_scope(urn_namespace)

    def opens_organizations(self, scopes: frozenset[str]) -> bool:
        """Return whether one of these scopes releases claims about organizations."""
        return not scopes.isdisjoint({self._organizations_scope, self._organization_roles_scope})

    async def claims(
        self,
        person: Person,
        scopes: frozenset[str],
        *,
        picked: frozenset[str] | None,
        at_least: Mapping[str, int],
    ) -> PersonClaims:
        """Return the claims that these scopes release.

        Args:
            person: The user.
            scopes: The granted scopes.
            picked: The organizations that the user shares with the client; None for all of them.
            at_least: Revisions by source that the user's memberships must include.
        """
        memberships: Sequence[Membership] = ()
        if self.opens_organizations(scopes):
            memberships = await self._directory.memberships_of(person.user.id, at_least=at_least)
        shown = [each for each in memberships if picked is None or each.organization.id in picked]
        in_memory = self._directory.in_memory
        return person_claims(
            person.user,
            scopes,
            roles=in_memory.role_names(person.role_ids),
            organizations=[each.organization.id for each in shown] if self._organizations_scope in scopes else UNSET,
            organization_roles=[
                f"{each.organization.id}:{name}"
                for each in shown
                for name in in_memory.organization_role_names(each.member.role_ids)
            ]
            if self._organization_roles_scope in scopes
            else UNSET,
        )
