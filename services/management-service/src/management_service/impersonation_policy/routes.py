"""``/api/configs/impersonation``: the policy of impersonations."""

import msgspec
from litestar import Controller, get, patch
from litestar.di import NamedDependency
from litestar.params import JSONBody

from identity_common.fields import Answer
from identity_common.wire.events import DemandedLevel
from management_service.impersonation_policy.rules import ImpersonationPolicyUpdate
from management_service.impersonation_policy.service import ImpersonationPolicies
from management_service.impersonation_policy.store import ImpersonationPolicy


class ImpersonationPolicyAnswer(Answer):
    """The policy of impersonations.

    Attributes:
        tenant_id: Id of the tenant.
        require_actor: Whether an exchange without an actor token is refused.
        require_context: Names of members that the context of every subject token must have as text that is not blank.
        excluded_roles: Sorted ids of API roles whose holders cannot be impersonated.
        actor_max_age_s: How long ago an actor may have signed in, seconds; null for any time.
        actor_acr: How strongly an actor must have signed in: ``mfa``, with a second factor or a passkey; ``phr``, with
            a passkey; null for any sign-in.
    """

    tenant_id: str
    require_actor: bool
    require_context: list[str]
    excluded_roles: list[str]
    actor_max_age_s: int | None
    actor_acr: DemandedLevel | None


class ImpersonationPolicyController(Controller):
    """The policy of impersonations; there is always one."""

    path = "/configs/impersonation"
    tags = ("Impersonations",)

    @get("/", operation_id="GetImpersonationPolicy", summary="Get the policy of impersonations")
    async def get_policy(
        self, impersonation_policies: NamedDependency[ImpersonationPolicies]
    ) -> ImpersonationPolicyAnswer:
        """Get what impersonations need, and which users they exclude; by default nothing and none."""
        return _answer(await impersonation_policies.get())

    @patch("/", operation_id="UpdateImpersonationPolicy", summary="Change the policy of impersonations")
    async def update_policy(
        self,
        data: JSONBody[ImpersonationPolicyUpdate],
        impersonation_policies: NamedDependency[ImpersonationPolicies],
    ) -> ImpersonationPolicyAnswer:
        """Change the given members. Tokens that were issued before stay valid.

        `requireActor`, `actorMaxAgeS` and `actorAcr` are judged when a subject token is exchanged, and leave it
        unspent; the last two refuse no exchange without an actor. `requireContext` is judged
        when it is minted, and `excludedRoles` both times; at the exchange that spends it. A role that is deleted
        leaves `excludedRoles`. To delete such a role, or to take it from a user, the scope `config` is needed too.
        """
        return _answer(await impersonation_policies.update(data))


def _answer(policy: ImpersonationPolicy) -> ImpersonationPolicyAnswer:
    return msgspec.convert(policy, ImpersonationPolicyAnswer, from_attributes=True)
