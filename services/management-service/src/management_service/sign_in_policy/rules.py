"""The request body, and domains of e-mail addresses."""

from typing import Annotated, Final

import idna
import msgspec
from msgspec import UNSET, UnsetType

from identity_common.failures import Issue, invalid_input
from identity_common.fields import Body
from identity_common.wire.events import RegistrationMode, SecondFactorMode

MAX_DOMAINS: Final = 100
MAX_DOMAIN: Final = 253

Domain = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_DOMAIN)]
Domains = Annotated[tuple[Domain, ...], msgspec.Meta(max_length=MAX_DOMAINS)]


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


def canonical_domain(domain: str) -> str | None:
    """Return the lower-case A-labels of a domain, so that all its spellings are equal; None if it is not a domain.

    Source:
        RFC 5891 section 4 (A-labels), UTS 46 (upper case, full-width characters and dots).
    """
    try:
        canonical = idna.encode(domain, uts46=True, std3_rules=True).decode().lower()
    except idna.IDNAError:
        return None
    return canonical if "." in canonical.strip(".") and not canonical.endswith(".") else None


def domain_of(address: str) -> str | None:
    """Return the domain of an e-mail address, as ``canonical_domain`` does."""
    return canonical_domain(address.rpartition("@")[2])


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


def canonical_domains(domains: tuple[str, ...]) -> tuple[str, ...]:
    """Return the sorted domains in their canonical form, each once.

    Raises:
        Invalid: Some are not domains of e-mail addresses.
    """
    canonical = [canonical_domain(domain) for domain in domains]
    issues = [
        Issue(path=f"registrationDomains[{place}]", message="must be a domain such as example.com")
        for place, domain in enumerate(canonical)
        if domain is None
    ]
    if issues:
        raise invalid_input(*issues)
    return tuple(sorted({domain for domain in canonical if domain is not None}))
