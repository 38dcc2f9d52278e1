"""The function's arguments ``token`` and ``context``, built from the directory and the request. Pure.

All of it may be shown to the token's holder: it never contains a secret, or anything about another user but the ids in
``act``, which the token has anyway.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from identity_common.authentication import FactorMethod, UsedFactor
from identity_common.oauth import GRANT_TOKEN_EXCHANGE
from identity_common.wire.events import ApplicationState, ApplicationType
from token_service.directory import HeldRole, HeldScope, InMemoryDirectory, Membership, Person
from token_service.presented_tokens.actor_tokens import ActingParty
from token_service.tokens.claims import Actor, SignInClaims

MOST_ORGANIZATIONS: Final = 1_000
"""More would keep Redis and the event loop busy for every token of the user; a call for such a user fails."""


MOST_SCOPES: Final = 1_000
"""For the same reason; beyond, the roles of a user have no ``scopes``, so that scripts which read none keep working."""

MOST_ORGANIZATION_ROLES: Final = 5_000
"""The same for ``organizationRoles``: a member may have any number of roles."""


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
    """An organization, or an API role of an application."""

    id: str
    name: str


class ResourceOfScope(msgspec.Struct, frozen=True):
    """The API of a scope."""

    id: str
    name: str
    indicator: str


class ScopeOfRole(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A scope that a role grants, whatever the token is bound to."""

    id: str
    name: str
    description: str | None
    resource_id: str
    resource: ResourceOfScope


class RoleOfUser(msgspec.Struct, frozen=True, kw_only=True):
    """An API role of the user.

    Attributes:
        scopes: By name; absent from all roles of a user if they grant more than ``MOST_SCOPES`` together.
    """

    id: str
    name: str
    description: str
    scopes: Sequence[ScopeOfRole] | UnsetType


class OrganizationRoleOfUser(msgspec.Struct, frozen=True, rename="camel"):
    """A role that the user has in an organization."""

    organization_id: str
    role_id: str
    role_name: str


class UserOfContext(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``context.user``: unknown fields are null. Times are milliseconds since the epoch.

    Attributes:
        organization_roles: Absent if they are more than ``MOST_ORGANIZATION_ROLES``.
    """

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
    roles: Sequence[RoleOfUser]
    organizations: Sequence[Named]
    organization_roles: Sequence[OrganizationRoleOfUser] | UnsetType


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


class VerificationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A factor that the user used at the sign-in."""

    type: Literal["Password", "WebAuthn", "Totp", "BackupCode", "EnterpriseSso"]
    verified: bool = True


_RECORDS: Final[dict[FactorMethod, VerificationRecord]] = {
    "password": VerificationRecord(type="Password"),
    "passkey": VerificationRecord(type="WebAuthn"),
    "authenticator": VerificationRecord(type="Totp"),
    "recovery-code": VerificationRecord(type="BackupCode"),
    "provider": VerificationRecord(type="EnterpriseSso"),
}


class SignInOfContext(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What tokens say about a sign-in.

    Attributes:
        auth_time: Seconds since the epoch, as in the tokens; null if a connector's provider does not say.
    """

    auth_time: int | None
    amr: Sequence[str]
    acr: str


class InteractionOfContext(SignInOfContext, frozen=True, kw_only=True, rename="camel"):
    """``context.interaction``: the sign-in that the token descends from.

    Attributes:
        verification_records: The factors in the order of their use.
    """

    interaction_event: Literal["SignIn"] = "SignIn"
    user_id: str
    verification_records: Sequence[VerificationRecord]


class Context(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``context``.

    Attributes:
        user: In user tokens only.
        organization: If the token is for one.
        interaction: In user tokens that descend from a sign-in.
        actor: The claim ``act``, in an exchange with an actor token.
        actor_authentication: The claim of this name, in such an exchange.
    """

    grant: GrantOfContext
    application: ApplicationOfContext
    user: UserOfContext | UnsetType = UNSET
    interaction: InteractionOfContext | UnsetType = UNSET
    actor: Actor | UnsetType = UNSET
    actor_authentication: SignInOfContext | UnsetType = UNSET
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
    actor: ActingParty | None = None,
    signed_in: SignInClaims | None = None,
    factors: Sequence[UsedFactor] = (),
) -> Context:
    """Return the context of a user's token.

    Args:
        in_memory: Source of the roles.
        person: The user.
        memberships: All of the user's memberships.
        client: The client.
        grant_type: Of the request.
        organization: The user's membership in the organization of the token, if it is for one.
        subject_token_context: The subject token's context; ignored unless the grant is token exchange.
        actor: The actor, if the grant is token exchange and there is one.
        signed_in: How the user signed in, unless the grant is token exchange.
        factors: With what, likewise.
    """
    user, is_exchange = person.user, grant_type == GRANT_TOKEN_EXCHANGE
    return Context(
        grant=GrantOfContext(
            type=grant_type,
            subject_token_context=subject_token_context if is_exchange else UNSET,
        ),
        interaction=UNSET if signed_in is None else _interaction(user.id, signed_in, factors),
        actor=actor.claim if actor else UNSET,
        actor_authentication=_sign_in(actor.signed_in) if actor and actor.signed_in else UNSET,
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
            roles=[_role(each) for each in in_memory.roles(person.role_ids, most_scopes=MOST_SCOPES)],
            organizations=[_organization(each) for each in memberships],
            organization_roles=_organization_roles(in_memory, memberships),
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


def _interaction(user_id: str, signed_in: SignInClaims, factors: Sequence[UsedFactor]) -> InteractionOfContext:
    return InteractionOfContext(
        user_id=user_id,
        verification_records=[_RECORDS[factor.method] for factor in factors],
        **msgspec.structs.asdict(signed_in),
    )


def _sign_in(signed_in: SignInClaims) -> SignInOfContext:
    return SignInOfContext(**msgspec.structs.asdict(signed_in))


def _application(client: ApplicationState, roles: Sequence[Named] | UnsetType = UNSET) -> ApplicationOfContext:
    return ApplicationOfContext(
        id=client.id,
        name=client.name,
        type=client.type,
        is_third_party=client.is_third_party,
        custom_data=client.custom_data,
        roles=roles,
    )


def _role(role: HeldRole) -> RoleOfUser:
    scopes: Sequence[ScopeOfRole] | UnsetType = UNSET
    if role.scopes is not None:
        scopes = [_scope(each) for each in role.scopes]
    return RoleOfUser(id=role.id, name=role.name, description=role.description, scopes=scopes)


def _scope(scope: HeldScope) -> ScopeOfRole:
    resource = scope.resource
    return ScopeOfRole(
        id=scope.id,
        name=scope.name,
        description=scope.description,
        resource_id=resource.id,
        resource=ResourceOfScope(resource.id, resource.name, resource.indicator),
    )


def _organization_roles(
    in_memory: InMemoryDirectory, memberships: Sequence[Membership]
) -> Sequence[OrganizationRoleOfUser] | UnsetType:
    if sum(len(each.member.role_ids) for each in memberships) > MOST_ORGANIZATION_ROLES:
        return UNSET
    return [
        OrganizationRoleOfUser(each.organization.id, role_id, name)
        for each in memberships
        for role_id, name in in_memory.named_organization_roles(each.member.role_ids).items()
    ]


def _organization(membership: Membership) -> Named:
    return Named(membership.organization.id, membership.organization.name)


def _named(names: Mapping[str, str]) -> list[Named]:
    return [Named(id_, name) for id_, name in names.items()]
