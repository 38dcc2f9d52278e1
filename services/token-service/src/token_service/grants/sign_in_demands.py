"""Refuses tokens whose user, or actor, has not signed in strongly or recently enough."""

from identity_common.authentication import Authentication
from identity_common.clock import Clock, now_ms
from identity_common.wire.events import ApplicationState
from stead.event_types import OrganizationState
from stead.verify.acr import Level, acr_of, satisfies
from token_service.directory import InMemoryDirectory
from token_service.grants.demanded_levels import demanded_of_tokens
from token_service.grants.oauth_errors import OAuthError, insufficient_sign_in
from token_service.presented_tokens.actor_tokens import ActingParty


class SignInDemands:
    """Compares sign-ins with the policies, as of now.

    Args:
        in_memory: Source of the policies.
        urn_namespace: The setting: ``service``.
        clock: Clock, for tests.
    """

    def __init__(self, in_memory: InMemoryDirectory, *, urn_namespace: str, clock: Clock = now_ms) -> None:
        self._in_memory = in_memory
        self._urn_namespace = urn_namespace
        self._clock = clock

    def require_of_user(
        self, signed_in: Authentication, client: ApplicationState, organization: OrganizationState | None
    ) -> None:
        """Refuse a token of a user's own sign-in.

        Raises:
            OAuthError: ``access_denied``.
        """
        demanded = demanded_of_tokens(self._in_memory.sign_in_policy, client, organization)
        if not satisfies(signed_in.level, demanded):
            raise insufficient_sign_in("the user must sign in more strongly", acr_values=self._acr_values(demanded))

    def require_of_actor(self, actor: ActingParty) -> None:
        """Refuse an exchange by the policy of impersonations.

        Raises:
            OAuthError: ``access_denied``.
        """
        policy = self._in_memory.impersonation_policy
        is_strong = satisfies(actor.level, policy.actor_acr)
        if not is_strong or self._is_older(actor, policy.actor_max_age_s):
            raise insufficient_sign_in(
                "the actor must sign in again, or more strongly",
                acr_values=self._acr_values(policy.actor_acr),
                max_age_s=policy.actor_max_age_s,
            )

    def require_of_actor_in(self, organization: OrganizationState, actor: ActingParty | None) -> None:
        """Refuse an exchange for an organization.

        Raises:
            OAuthError: ``access_denied``.
        """
        if organization.is_mfa_required and not satisfies(actor.level if actor else None, "mfa"):
            raise self.refused_by_organization(actor)

    def refused_by_organization(self, actor: ActingParty | None) -> OAuthError:
        """Return the refusal of an exchange for an organization that requires a second factor."""
        who = "needs an actor who has signed in" if actor is None else "needs the actor to sign in"
        description = f"the organization {who} with a second factor"
        return insufficient_sign_in(description, acr_values=self._acr_values("mfa"))

    def _is_older(self, actor: ActingParty, max_age_s: int | None) -> bool:
        if max_age_s is None:
            return False
        signed_in_at = None if actor.signed_in is None else actor.signed_in.auth_time
        return signed_in_at is None or self._clock() // 1000 - signed_in_at > max_age_s

    def _acr_values(self, level: Level | None) -> str | None:
        return None if level is None else acr_of(level, urn_namespace=self._urn_namespace)
