"""``/api/configs/sign-in``: the policy of signing in."""

import msgspec
from litestar import Controller, get, patch
from litestar.di import NamedDependency
from litestar.params import JSONBody

from identity_common.fields import Answer
from identity_common.wire.events import RegistrationMode, SecondFactorMode
from management_service.sign_in_policy.rules import SignInPolicy, SignInPolicyUpdate
from management_service.sign_in_policy.service import SignInPolicies


class SignInPolicyAnswer(Answer):
    """The policy of signing in.

    Attributes:
        tenant_id: Id of the tenant.
        registration: Which e-mail addresses may register: ``off``; ``invited`` for those with an open invitation to an
            organization, ``domains`` for those of some domains, ``open`` for all.
        registration_domains: The domains of ``domains``, sorted, as A-labels (``xn--…``) in lower case.
        second_factor: Whether users sign in with a second factor: ``off``, none can be set up; ``optional``, with one
            that they have set up; ``required``, all of them. A passkey counts as one.
    """

    tenant_id: str
    registration: RegistrationMode
    registration_domains: list[str]
    second_factor: SecondFactorMode


class SignInPolicyController(Controller):
    """The policy of signing in; there is always one."""

    path = "/configs/sign-in"
    tags = ("Sign-in",)

    @get("/", operation_id="GetSignInPolicy", summary="Get the policy of signing in")
    async def get_policy(self, sign_in_policies: NamedDependency[SignInPolicies]) -> SignInPolicyAnswer:
        """Get who may register, and whether users need a second factor."""
        return _answer(await sign_in_policies.get())

    @patch("/", operation_id="UpdateSignInPolicy", summary="Change the policy of signing in")
    async def update_policy(
        self, data: JSONBody[SignInPolicyUpdate], sign_in_policies: NamedDependency[SignInPolicies]
    ) -> SignInPolicyAnswer:
        """Change the given members. Users who have registered before stay, and so do second factors.

        A link that was sent before is refused if its address may no longer register. With `invited`, that is once the
        invitation is accepted, revoked or expired. `domains` needs at least one domain (422
        `sign_in.domains_required`); addresses of its subdomains may not register.

        With `required`, users without a second factor set one up when they next sign in, and are refused new tokens
        until then. The first one needs a code, which is mailed to a verified address, or given out by an administrator.
        With `off`, an application, an organization or a request that demands a second factor still does.
        """
        return _answer(await sign_in_policies.update(data))


def _answer(policy: SignInPolicy) -> SignInPolicyAnswer:
    return msgspec.convert(policy, SignInPolicyAnswer, from_attributes=True)
