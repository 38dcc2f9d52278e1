"""The request body, and which addresses may register."""

import msgspec
from msgspec import UNSET, UnsetType

from identity_common.email_domains import Domains, domain_of
from identity_common.fields import Body
from identity_common.wire.events import RegistrationMode, SecondFactorMode


class SignInPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Who may register, and who needs a second factor.

    Attributes:
        tenant_id: The tenant.
        registration: Which addresses may register.
        registration_domains: Sorted domains, as A-labels in lower case.
        second_factor: Whether users sign in with a second factor.
    """

    tenant_id: str
    registration: RegistrationMode = "off"
    registration_domains: tuple[str, ...] = ()
    second_factor: SecondFactorMode = "optional"


class SignInPolicyUpdate(Body):
    """Changes of the policy; null restores a default.

    Attributes:
        registration: Which e-mail addresses may register: ``off`` by default; ``invited`` for those with an open
            invitation to an organization, ``domains`` for those of some domains, ``open`` for all.
        registration_domains: The domains of ``domains``, without their subdomains; none by default.
        second_factor: Whether users sign in with a second factor: ``optional`` by default, with one that they have set
            up; ``required``, all of them; ``off``, none can be set up.
    """

    registration: RegistrationMode | UnsetType | None = UNSET
    registration_domains: Domains | UnsetType | None = UNSET
    second_factor: SecondFactorMode | UnsetType | None = UNSET


def may_register(policy: SignInPolicy, address: str, *, is_invited: bool) -> bool:
    """Return whether an e-mail address may register.

    Args:
        policy: The policy.
        address: The address.
        is_invited: Whether it has an open invitation to an organization; matters with ``invited`` alone.
    """
    match policy.registration:
        case "open":
            return True
        case "invited":
            return is_invited
        case "domains":
            return domain_of(address) in policy.registration_domains
        case _:
            return False
