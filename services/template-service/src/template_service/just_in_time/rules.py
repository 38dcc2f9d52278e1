"""The bodies of requests about membership just in time, and domains of e-mail addresses."""

from collections.abc import Sequence
from typing import Annotated

import msgspec

from identity_common.failures import Issue, invalid_input
from identity_common.fields import AddedIds, Body, Id, Ids, each_once
from identity_common.mail_addresses import ascii_domain

_Domain = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
_Group = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
_RoleIds = Annotated[AddedIds, msgspec.Meta(max_length=100)]


class JitEmailDomainCreation(Body):
    """A domain whose owners of e-mail addresses join.

    Attributes:
        email_domain: The domain, such as ``example.com``; without its subdomains.
    """

    email_domain: _Domain


class JitEmailDomains(Body):
    """Domains whose owners of e-mail addresses join.

    Attributes:
        email_domains: The domains, without their subdomains; repetitions are ignored.
    """

    email_domains: tuple[_Domain, ...]


class JitRoles(Body):
    """Organization roles that joining just in time gives.

    Attributes:
        organization_role_ids: Ids of organization roles of the type ``User``.
    """

    organization_role_ids: Ids


class AddedJitRoles(Body):
    """Further organization roles that joining just in time gives; without duplicates in the response.

    Attributes:
        organization_role_ids: Ids of organization roles of the type ``User``.
    """

    organization_role_ids: AddedIds


class JitConnectors(Body):
    """Connectors whose people join.

    Attributes:
        sso_connector_ids: Ids of connectors.
    """

    sso_connector_ids: Ids


class AddedJitConnectors(Body):
    """Further connectors whose people join; without duplicates in the response.

    Attributes:
        sso_connector_ids: Ids of connectors.
    """

    sso_connector_ids: AddedIds


class JitGroup(Body):
    """A group at a connector's provider, and the organization roles of those who are in it.

    Attributes:
        sso_connector_id: Id of the connector.
        group: A value of the connector's claim of groups, compared exactly.
        organization_role_ids: Ids of organization roles of the type ``User``.
    """

    sso_connector_id: Id
    group: _Group
    organization_role_ids: _RoleIds


class JitGroups(Body):
    """All groups that give roles in an organization.

    Attributes:
        groups: The groups, each at most once for a connector.
    """

    groups: tuple[JitGroup, ...]


def canonical_domain(domain: str, path: str) -> str:
    """Return the ASCII form of a domain, in lower case.

    Args:
        domain: A domain in any spelling.
        path: Where the request gives it.

    Raises:
        Invalid: It is not a domain.
    """
    try:
        return ascii_domain(domain)
    except ValueError:
        raise invalid_input(Issue(path=path, message="must be a domain such as example.com")) from None


def canonical_domains(domains: Sequence[str]) -> list[str]:
    """Return the canonical forms of domains, each once, sorted.

    Raises:
        Invalid: One of them is not a domain.
    """
    return sorted({canonical_domain(each, f"emailDomains[{place}]") for place, each in enumerate(domains)})


def require_distinct(groups: Sequence[JitGroup]) -> None:
    """Refuse a group of a connector that is named twice.

    Raises:
        Invalid: One is.
    """
    first: dict[tuple[str, str], int] = {}
    for place, each in enumerate(groups):
        if first.setdefault((each.sso_connector_id, each.group), place) != place:
            raise invalid_input(Issue(path=f"groups[{place}].group", message="must not be named twice"))


def roles_of(groups: Sequence[JitGroup]) -> list[str]:
    """Return the ids of the roles that groups give, each once."""
    return list(each_once(tuple(role_id for group in groups for role_id in group.organization_role_ids)))
