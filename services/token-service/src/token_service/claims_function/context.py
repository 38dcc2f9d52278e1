"""The function's arguments ``token`` and ``context``, built from the directory and the request. Pure.

All of it may be shown to the token's holder: it never contains a secret, or anything about another user.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from identity_common.oauth import GRANT_TOKEN_EXCHANGE
from identity_common.wire.events import ApplicationState, ApplicationType
from token_service.directory import InMemoryDirectory, Membership, Person

MOST_ORGANIZATIONS: Final = 1_000
"""More would keep Redis and the event loop busy for every token of the user; a call for such a user fails."""


class TooManyOrganizations(Exception):  # noqa: N818 - the name is what happened
    """The user belongs to more organizations than a call can take (``MOST_ORGANIZATIONS``).

    Attributes:
        client_id: The client that requested the token.
    """

    def __init__(self, client_id: str) -> None:
        super().__init__(client_id)
        self.client_id = client_id


class TokenArgument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``token``: the access token that is about to be signed.

    Attributes:
        scope: The granted scopes, space-separated; may be empty.
        account_id: The user's id; in user tokens only.
        resource: Indicator of the API, if the token is bound to one.
    """

    jti: str
    aud: str
    scope: str
    client_id: str
    kind: Literal["AccessToken", "ClientCredentials"]
    account_id: str | UnsetType = UNSET
    resource: str | UnsetType = UNSET


class Named(msgspec.Struct, frozen=True):
    """An organization or an API role."""

    id: str
    name: str


class OrganizationRoleOfUser(msgspec.Struct, frozen=True, rename="camel"):
    """A role that the user has in an organization."""

    organization_id: str
    role_id: str
    role_name: str


class UserOfContext(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``context.user``: unknown fields are null. Times are milliseconds since the epoch."""

    id: str
    username: str | None
    primary_email: str | None
    primary_phone: str | None
    name: str | None
    avatar: str | None
    custom_data: msgspec.Raw
    profile: msgspec.Raw
    is_email_verified: bool
    has_password: bool
    is_suspended: bool
    created_at: int
    updated_at: int
    roles: Sequence[Named]
    organizations: Sequence[Named]
    organization_roles: Sequence[OrganizationRoleOfUser]


class ApplicationOfContext(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``context.application``: the client.

    Attributes:
        roles: Its API roles; in tokens of ``client_credentials`` only.
    """

    id: str
    name: str
    type: ApplicationType
    is_third_party: bool
    custom_data: msgspec.Raw
    roles: Sequence[Named] | UnsetType = UNSET


class GrantOfContext(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``context.grant``.

    Attributes:
        subject_token_context: The context that the integrator attached to the subject token; in an exchange only.
    """

    type: str
    subject_token_context: msgspec.Raw | UnsetType = UNSET


class Context(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``context``.

    Attributes:
        user: In user tokens only.
        organization: If the token is for one.
    """

    grant: GrantOfContext
    application: ApplicationOfContext
    user: UserOfContext | UnsetType = UNSET
    organization: Named | UnsetType = UNSET


class Arguments(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs of a call.

    Attributes:
        token: The token that is about to be signed.
        context: The user, the client and the request.
    """

    token: TokenArgument
    context: Context

    def __repr__(self) -> str:
        """Hide the personal data."""
        return "Arguments(…)"


_encode: Final = msgspec.json.Encoder().encode


def call_data(token: object, context: object, environment_variables: Mapping[str, str]) -> bytes:
    """Return the function's argument as JSON, as sent to a worker."""
    return _encode({"token": token, "context": context, "environmentVariables": environment_variables})


def user_context(
    in_memory: InMemoryDirectory,
    person: Person,
    memberships: Sequence[Membership],
    *,
    client: ApplicationState,
    grant_type: str,
    organization: Membership | None = None,
    subject_token_context: msgspec.Raw | UnsetType = UNSET,
) -> Context:
    """Return the context of a user's token.

    Args:
        in_memory: Source of the role names.
        person: The user.
        memberships: All of the user's memberships.
        client: The client.
        grant_type: Of the request.
        organization: The user's membership in the organization of the token, if it is for one.
        subject_token_context: The subject token's context; ignored unless the grant is token exchange.
    """
    user = person.user
    return Context(
        grant=GrantOfContext(
            type=grant_type,
            subject_token_context=subject_token_context if grant_type == GRANT_TOKEN_EXCHANGE else UNSET,
        ),
        application=_application(client),
        user=UserOfContext(
            id=user.id,
            username=user.username,
            primary_email=user.primary_email,
            primary_phone=user.primary_phone,
            name=user.name,
            avatar=user.avatar,
            custom_data=user.custom_data,
            profile=user.profile,
            is_email_verified=user.is_email_verified,
            has_password=user.has_password,
            is_suspended=user.is_suspended,
            created_at=user.created_at,
            updated_at=user.updated_at,
            roles=_named(in_memory.named_roles(person.role_ids)),
            organizations=[_organization(each) for each in memberships],
            organization_roles=[
                OrganizationRoleOfUser(each.organization.id, role_id, name)
                for each in memberships
                for role_id, name in in_memory.named_organization_roles(each.member.role_ids).items()
            ],
        ),
        organization=UNSET if organization is None else _organization(organization),
    )


def client_context(
    in_memory: InMemoryDirectory, client: ApplicationState, *, grant_type: str, organization: Membership | None = None
) -> Context:
    """Return the context of a client's own token.

    Args:
        in_memory: Source of the client's roles.
        client: The client.
        grant_type: Of the request.
        organization: Its membership in the organization of the token, if it is for one.
    """
    roles = _named(in_memory.named_roles(in_memory.application_roles(client.id)))
    return Context(
        grant=GrantOfContext(type=grant_type),
        application=_application(client, roles),
        organization=UNSET if organization is None else _organization(organization),
    )


def _application(client: ApplicationState, roles: Sequence[Named] | UnsetType = UNSET) -> ApplicationOfContext:
    return ApplicationOfContext(
        id=client.id,
        name=client.name,
        type=client.type,
        is_third_party=client.is_third_party,
        custom_data=client.custom_data,
        roles=roles,
    )


def _organization(membership: Membership) -> Named:
    return Named(membership.organization.id, membership.organization.name)


def _named(names: Mapping[str, str]) -> list[Named]:
    return [Named(id_, name) for id_, name in names.items()]
