"""How strongly a user must have signed in: at the authorization endpoint, and for a token. Pure."""

from identity_common.wire.events import ApplicationState, SignInPolicyState, UserState
from stead.event_types import OrganizationState
from stead.verify.acr import Level, strongest


def demanded_of_user(policy: SignInPolicyState, user: UserState) -> Level | None:
    """Return the level of every sign-in of a user, whatever the application."""
    if policy.second_factor == "required" or (policy.second_factor == "optional" and user.second_factors):
        return "mfa"
    return None


def demanded_at_sign_in(
    policy: SignInPolicyState, user: UserState, application: ApplicationState, requested: Level | None
) -> Level | None:
    """Return the level that an authorization request demands.

    Args:
        policy: Of the tenant.
        user: The user.
        application: The client.
        requested: By the request's ``acr_values``.
    """
    return strongest(demanded_of_user(policy, user), application.minimum_acr, requested)


def demanded_of_tokens(
    policy: SignInPolicyState, application: ApplicationState, organization: OrganizationState | None
) -> Level | None:
    """Return the level that the sign-in behind a token must have at each issuance.

    A second factor that the user has set up since does not count: it changes what later sign-ins need.

    Args:
        policy: Of the tenant.
        application: The client.
        organization: The token's organization, if it has one.
    """
    by_tenant: Level | None = "mfa" if policy.second_factor == "required" else None
    by_organization: Level | None = "mfa" if organization is not None and organization.is_mfa_required else None
    return strongest(by_tenant, application.minimum_acr, by_organization)
