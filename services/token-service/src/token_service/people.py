"""What may be said of a person: gathered from the directory, by the scopes that were granted."""

from token_service.directory import Directory, Person
from token_service.tokens.identity import PersonClaims, person_claims


class People:
    """Knows what ID tokens and userinfo say of a person."""

    def __init__(self, directory: Directory, *, urn_namespace: str) -> None:
        self._directory = directory
        self._urn_namespace = urn_namespace

    async def claims(self, person: Person, scopes: frozenset[str]) -> PersonClaims:
        """Return the claims that these scopes open.

        Raises:
            OAuthError: ``temporarily_unavailable``.
        """
        return person_claims(person.user, scopes, roles=self._directory.small.role_names(person.role_ids))
