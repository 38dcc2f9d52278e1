"""What is missing between signing in and consent. Pure."""

from typing import Final

from identity_common.wire.events import ApplicationState, SignInPolicyState, UserState
from stead.verify.acr import Level, satisfies
from token_service.grants.demanded_levels import demanded_at_sign_in
from token_service.sign_in.request import ACTION_MAX_AGE_S, AuthorizationRequest, Refusal
from token_service.sign_in.steps import (
    NeedsAction,
    NeedsEnrolment,
    NeedsFactor,
    NeedsLink,
    NeedsMore,
    NeedsSignIn,
    SignedIn,
)

_MS: Final = 1000


def missing_before_consent(
    request: AuthorizationRequest,
    who: SignedIn,
    application: ApplicationState,
    policy: SignInPolicyState,
    *,
    links: bool,
    now: int,
) -> NeedsSignIn | NeedsMore | None:
    """Return what is missing between signing in and consent, if anything.

    Args:
        request: The request.
        who: The user.
        application: The client.
        policy: Of the tenant.
        links: Whether an identity at a provider waits for this sign-in.
        now: In milliseconds.

    Raises:
        Refusal: ``unmet_authentication_requirements``.
    """
    user, signed_in = who.person.user, who.session.authentication
    demanded = demanded_at_sign_in(policy, user, application, request.acr)
    lacking = None if satisfies(signed_in.level, demanded) else demanded
    if lacking is not None and _has_set_up(user, lacking) and not signed_in.used("recovery-code"):
        return NeedsFactor(who, lacking)
    if links:
        return NeedsLink(who)
    wanted: NeedsEnrolment | NeedsAction
    if lacking is not None:
        wanted = NeedsEnrolment(who, lacking)
    elif request.action is not None:
        wanted = NeedsAction(who, request.action)
    else:
        return None
    if policy.second_factor == "off":
        raise Refusal("unmet_authentication_requirements", "the tenant's policy lets no factor be set up")
    return _missing_before_change(who, now=now) or wanted


def _missing_before_change(who: SignedIn, *, now: int) -> NeedsSignIn | NeedsFactor | None:
    """Return what is missing before a user may change how they sign in: a stolen session must not be enough."""
    signed_in = who.session.authentication
    is_recent = now - signed_in.latest < ACTION_MAX_AGE_S * _MS
    if who.person.user.second_factors and not (is_recent and signed_in.level != "password"):
        return NeedsFactor(who, "mfa")
    return None if is_recent else NeedsSignIn()


def _has_set_up(user: UserState, level: Level) -> bool:
    """Return whether a user has a factor that makes a sign-in as strong as this."""
    return "passkey" in user.second_factors if level == "phr" else bool(user.second_factors)
