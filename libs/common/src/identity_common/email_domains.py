"""Domains of e-mail addresses, in a form that all spellings of a domain share."""

from collections.abc import Sequence
from typing import Annotated, Final

import idna
import msgspec

from identity_common.failures import Issue, invalid_input

MAX_DOMAINS: Final = 100
MAX_DOMAIN: Final = 253

Domain = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_DOMAIN)]
Domains = Annotated[tuple[Domain, ...], msgspec.Meta(max_length=MAX_DOMAINS)]


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


def canonical_domains(domains: Sequence[str], *, path: str) -> tuple[str, ...]:
    """Return the sorted domains in their canonical form, each once.

    Args:
        domains: As given.
        path: Of the member that has them.

    Raises:
        Invalid: Some are not domains of e-mail addresses.
    """
    canonical = [canonical_domain(domain) for domain in domains]
    issues = [
        Issue(path=f"{path}[{place}]", message="must be a domain such as example.com")
        for place, domain in enumerate(canonical)
        if domain is None
    ]
    if issues:
        raise invalid_input(*issues)
    return tuple(sorted({domain for domain in canonical if domain is not None}))
