"""Sets the policy of impersonations that a new tenant begins with; later it is changed in the console or by the API."""

from collections.abc import Sequence

from identity_common.failures import Conflict
from identity_common.fields import each_once
from identity_common.serving import CommandError
from management_service.impersonation_policy.service import ImpersonationPolicies
from management_service.impersonation_policy.store import ImpersonationPolicy
from management_service.roles.service import Roles


class FirstPolicy:
    """Sets the policy, unless it was set before."""

    def __init__(self, policies: ImpersonationPolicies, roles: Roles, *, tenant_id: str) -> None:
        self._policies = policies
        self._roles = roles
        self._tenant_id = tenant_id

    async def ensure(
        self, *, require_actor: bool, require_context: Sequence[str], excluded_roles: Sequence[str]
    ) -> None:
        """Set the policy, with the roles of these names; with nothing to turn on, leave it unset.

        Raises:
            CommandError: There is no such role, or its holders are not users.
        """
        if not (require_actor or require_context or excluded_roles) or await self._policies.find() is not None:
            return
        role_ids = [await self._role_id(name) for name in excluded_roles]
        policy = ImpersonationPolicy(
            tenant_id=self._tenant_id,
            require_actor=require_actor,
            require_context=each_once(tuple(require_context)),
            excluded_roles=tuple(sorted(set(role_ids))),
        )
        try:
            await self._policies.begin_with(policy)
        except Conflict as refused:
            raise CommandError(f"BOOTSTRAP_EXCLUDED_ROLES: {refused.message}") from None

    async def _role_id(self, name: str) -> str:
        role = await self._roles.find_by_name(name)
        if role is None:
            raise CommandError(f"BOOTSTRAP_EXCLUDED_ROLES: there is no role {name!r}")
        return role.id
