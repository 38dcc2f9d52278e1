"""The claims of ID tokens and userinfo. Pure."""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from identity_common.wire.events import UserState
from token_service.tokens.profile_claims import ProfileClaims, profile_claims


class PersonClaims(ProfileClaims, frozen=True, kw_only=True):
    """Claims about a user (OpenID Connect Core 1.0 section 5.1); unknown and ungranted ones are left out.

    Attributes:
        sub: The user's id; always present.
        name: Full name.
        picture: URL of a picture.
        username: Name for signing in.
        email: E-mail address.
        email_verified: Whether the address is verified, by a mailed link or by an administrator.
        phone_number: Phone number.
        created_at: Seconds since the epoch.
        updated_at: Seconds since the epoch.
        roles: Names of API roles, sorted.
        organizations: Ids, sorted.
        organization_roles: ``<organization id>:<name of the role>``, sorted.
    """

    sub: str
    name: str | UnsetType = UNSET
    picture: str | UnsetType = UNSET
    username: str | UnsetType = UNSET
    email: str | UnsetType = UNSET
    email_verified: bool | UnsetType = UNSET
    phone_number: str | UnsetType = UNSET
    created_at: int | UnsetType = UNSET
    updated_at: int | UnsetType = UNSET
    roles: Sequence[str] | UnsetType = UNSET
    organizations: Sequence[str] | UnsetType = UNSET
    organization_roles: Sequence[str] | UnsetType = UNSET


class IdTokenClaims(PersonClaims, frozen=True, kw_only=True):
    """The claims of an ID token (OpenID Connect Core 1.0 section 2).

    Attributes:
        aud: The client: a single string.
        iat: Seconds since the epoch.
        exp: Seconds since the epoch.
        auth_time: When the user used the first factor of the sign-in, seconds since the epoch; absent if that was at
            a connector's provider, which does not say.
        amr: The methods of the sign-in (RFC 8176), sorted.
        acr: How strong the sign-in was.
        nonce: From the authorization request; absent after a refresh (section 12.2).
        sid: Id of the sign-in session (OpenID Connect Front-Channel Logout 1.0 section 3).
        at_hash: Binds the ID token to its access token.
    """

    iss: str
    aud: str
    iat: int
    exp: int
    auth_time: int | UnsetType = UNSET
    amr: Sequence[str]
    acr: str
    nonce: str | UnsetType = UNSET
    sid: str | UnsetType = UNSET
    at_hash: str


def person_claims(
    user: UserState,
    scopes: frozenset[str],
    *,
    roles: Sequence[str] = (),
    organizations: Sequence[str] | UnsetType = UNSET,
    organization_roles: Sequence[str] | UnsetType = UNSET,
) -> PersonClaims:
    """Return the claims about a user.

    Args:
        user: The user.
        scopes: The granted scopes; ``profile``, ``email``, ``phone``, ``address`` and ``roles`` add claims.
        roles: Names of the user's API roles.
        organizations: Ids of the user's organizations, if their scope was granted.
        organization_roles: ``<organization id>:<role name>``, if their scope was granted.

    Source:
        OpenID Connect Core 1.0 section 5.4 (which scope asks for which claims).
    """
    has_profile, has_email = "profile" in scopes, "email" in scopes and user.primary_email is not None
    claims = PersonClaims(
        sub=user.id,
        name=_if(has_profile, user.name),
        picture=_if(has_profile, user.avatar),
        username=_if(has_profile, user.username),
        preferred_username=_if(has_profile, user.username),
        created_at=user.created_at // 1000 if has_profile else UNSET,
        updated_at=user.updated_at // 1000 if has_profile else UNSET,
        email=_if(has_email, user.primary_email),
        email_verified=user.is_email_verified if has_email else UNSET,
        phone_number=_if("phone" in scopes, user.primary_phone),
        roles=sorted(roles) if "roles" in scopes else UNSET,
        organizations=_sorted(organizations),
        organization_roles=_sorted(organization_roles),
    )
    return msgspec.structs.replace(claims, **profile_claims(user.profile, scopes))


def without_unbounded(claims: IdTokenClaims) -> IdTokenClaims:
    """Return the claims of an ID token without lists and those from the profile, which have no bound of their own."""
    from_profile = dict.fromkeys(ProfileClaims.__struct_fields__, UNSET)
    return msgspec.structs.replace(claims, **from_profile, roles=UNSET, organizations=UNSET, organization_roles=UNSET)


def _sorted(names: Sequence[str] | UnsetType) -> Sequence[str] | UnsetType:
    return UNSET if isinstance(names, UnsetType) else sorted(names)


def _if(granted: bool, value: str | None) -> str | UnsetType:
    return value if granted and value is not None else UNSET
