"""The arguments of the custom-claims function for a token that is about to be signed."""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import UNSET, UnsetType

from identity_common.authentication import UsedFactor
from identity_common.oauth import GRANT_CLIENT_CREDENTIALS
from token_service.claims_function.context import (
    MOST_ORGANIZATIONS,
    Arguments,
    TokenArgument,
    TooManyOrganizations,
    client_context,
    user_context,
)
from token_service.directory import Directory, InMemoryDirectory, Membership, Person, TooManyMemberships
from token_service.grants.token_to_sign import TokenToSign
from token_service.presented_tokens.actor_tokens import ActingParty
from token_service.tokens.claims import SignInClaims
from token_service.tokens.scopes import format_scope


async def user_arguments(
    directory: Directory,
    token: TokenToSign,
    person: Person,
    *,
    grant_type: str,
    at_least: Mapping[str, int],
    memberships: Sequence[Membership] | None = None,
    subject_token_context: msgspec.Raw | UnsetType = UNSET,
    actor: ActingParty | None = None,
    signed_in: SignInClaims | None = None,
    factors: Sequence[UsedFactor] = (),
) -> Arguments:
    """Return the function's arguments for a user's token.

    Args:
        directory: Source of the memberships and names.
        token: The token to sign.
        person: The token's subject.
        grant_type: The request's grant type.
        at_least: Revisions by source that the user's memberships must include.
        memberships: All of the user's memberships, if already read; otherwise they are read here.
        subject_token_context: The subject token's context, in an exchange.
        actor: The actor of an exchange, if there is one.
        signed_in: How the user signed in, unless in an exchange.
        factors: With what, likewise.

    Raises:
        TooManyOrganizations: The user belongs to more than ``MOST_ORGANIZATIONS``.
    """
    if memberships is None:
        try:
            memberships = await directory.memberships_of(person.user.id, at_least=at_least, at_most=MOST_ORGANIZATIONS)
        except TooManyMemberships:
            raise TooManyOrganizations(token.client.id) from None
    context = user_context(
        directory.in_memory,
        person,
        memberships,
        client=token.client,
        grant_type=grant_type,
        organization=token.holder.membership,
        subject_token_context=subject_token_context,
        actor=actor,
        signed_in=signed_in,
        factors=factors,
    )
    return Arguments(token=_argument(token, account_id=person.user.id), context=context)


async def client_arguments(in_memory: InMemoryDirectory, token: TokenToSign) -> Arguments:
    """Return the function's arguments for a client's own token."""
    context = client_context(
        in_memory, token.client, grant_type=GRANT_CLIENT_CREDENTIALS, organization=token.holder.membership
    )
    return Arguments(token=_argument(token), context=context)


def _argument(token: TokenToSign, *, account_id: str | UnsetType = UNSET) -> TokenArgument:
    resource = token.target.resource
    return TokenArgument(
        jti=token.jti,
        aud=token.target.audience,
        scope=format_scope(token.scopes),
        client_id=token.client.id,
        kind="ClientCredentials" if account_id is UNSET else "AccessToken",
        account_id=account_id,
        resource=UNSET if resource is None else resource.indicator,
    )
