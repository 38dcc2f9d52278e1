"""Membership just in time: who joins an organization by signing in through a connector, and with which roles.

All of it holds from the next sign-in of each person. Members stay when it changes, except that the roles of groups are
always those of the last sign-in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from stead._transport.api import IfMatch, api_path, command, decode, json_request
from stead._transport.operations import Operation
from stead.manage.lists import MAX_PAGE_SIZE, ListRequest
from stead.models import JitConnector, JitEmailDomain, JitGroup, OrganizationRole


class _AddedGroup(msgspec.Struct):
    id: str


def list_jit_email_domains(organization_id: str, *, page_size: int = MAX_PAGE_SIZE) -> ListRequest[JitEmailDomain]:
    """Iterate over the domains whose owners of verified e-mail addresses join the organization, sorted.

    Raises:
        NotFound: The organization does not exist.
    """
    return ListRequest(_path(organization_id, "email-domains"), JitEmailDomain, page_size=page_size)


def add_jit_email_domain(organization_id: str, email_domain: str) -> Operation[JitEmailDomain]:
    """Let people join who sign in through a connector with a verified e-mail address of a domain.

    Raises:
        NotFound: The organization does not exist.
        InvalidInput: It is not a domain.
        Conflict: The organization has this domain.
    """
    body = {"emailDomain": email_domain}
    return decode((yield json_request("POST", _path(organization_id, "email-domains"), body)), JitEmailDomain)


def replace_jit_email_domains(
    organization_id: str, email_domains: Iterable[str], *, if_match: IfMatch = UNSET
) -> Operation[None]:
    """Make these the only domains whose owners of verified e-mail addresses join.

    Raises:
        NotFound: The organization does not exist.
        InvalidInput: One of them is not a domain.
        VersionMismatch: ``if_match`` does not name the current version.
    """
    body = {"emailDomains": list(email_domains)}
    return command("PUT", _path(organization_id, "email-domains"), body, if_match=if_match)


def remove_jit_email_domain(organization_id: str, email_domain: str) -> Operation[None]:
    """Let people with e-mail addresses of a domain no longer join.

    Raises:
        NotFound: The organization does not exist, or has no such domain.
    """
    return command("DELETE", _path(organization_id, "email-domains", email_domain))


def list_jit_roles(organization_id: str, *, page_size: int = MAX_PAGE_SIZE) -> ListRequest[OrganizationRole]:
    """Iterate over the organization roles that joining just in time gives, ordered by name.

    Raises:
        NotFound: The organization does not exist.
    """
    return ListRequest(_path(organization_id, "roles"), OrganizationRole, page_size=page_size)


def add_jit_roles(organization_id: str, role_ids: Iterable[str]) -> Operation[None]:
    """Add organization roles that those get, once, who join by signing in through a connector.

    Raises:
        NotFound: The organization does not exist.
        Conflict: A role does not exist, or is for applications.
    """
    return command("POST", _path(organization_id, "roles"), {"organizationRoleIds": list(role_ids)})


def replace_jit_roles(organization_id: str, role_ids: Iterable[str], *, if_match: IfMatch = UNSET) -> Operation[None]:
    """Make these the only organization roles that joining gives.

    Raises:
        NotFound: The organization does not exist.
        Conflict: A role does not exist, or is for applications.
        VersionMismatch: ``if_match`` does not name the current version.
    """
    body = {"organizationRoleIds": list(role_ids)}
    return command("PUT", _path(organization_id, "roles"), body, if_match=if_match)


def remove_jit_role(organization_id: str, role_id: str) -> Operation[None]:
    """Remove an organization role from those that joining gives.

    Raises:
        NotFound: The organization does not exist, or joining it does not give the role.
    """
    return command("DELETE", _path(organization_id, "roles", role_id))


def list_jit_connectors(organization_id: str, *, page_size: int = MAX_PAGE_SIZE) -> ListRequest[JitConnector]:
    """Iterate over the connectors through which people join the organization, ordered by name.

    Raises:
        NotFound: The organization does not exist.
    """
    return ListRequest(_path(organization_id, "sso-connectors"), JitConnector, page_size=page_size)


def add_jit_connectors(organization_id: str, connector_ids: Iterable[str]) -> Operation[None]:
    """Let people join who sign in through these connectors.

    Raises:
        NotFound: The organization does not exist.
        Conflict: A connector does not exist.
    """
    return command("POST", _path(organization_id, "sso-connectors"), {"ssoConnectorIds": list(connector_ids)})


def replace_jit_connectors(
    organization_id: str, connector_ids: Iterable[str], *, if_match: IfMatch = UNSET
) -> Operation[None]:
    """Make these the only connectors through which people join.

    Raises:
        NotFound: The organization does not exist.
        Conflict: A connector does not exist.
        VersionMismatch: ``if_match`` does not name the current version.
    """
    body = {"ssoConnectorIds": list(connector_ids)}
    return command("PUT", _path(organization_id, "sso-connectors"), body, if_match=if_match)


def remove_jit_connector(organization_id: str, connector_id: str) -> Operation[None]:
    """Let people who sign in through a connector no longer join.

    Raises:
        NotFound: The organization does not exist, or has no such connector.
    """
    return command("DELETE", _path(organization_id, "sso-connectors", connector_id))


def list_jit_groups(organization_id: str, *, page_size: int = MAX_PAGE_SIZE) -> ListRequest[JitGroup]:
    """Iterate over the groups at providers that give roles in the organization, sorted.

    Raises:
        NotFound: The organization does not exist.
    """
    return ListRequest(_path(organization_id, "groups"), JitGroup, page_size=page_size)


def add_jit_group(organization_id: str, connector_id: str, group: str, role_ids: Iterable[str]) -> Operation[str]:
    """Let a group at the provider of a connector give organization roles.

    Those who are in it become members, and hold the roles as long as each sign-in through the connector names it.

    Args:
        organization_id: The organization.
        connector_id: The connector.
        group: A value of the connector's claim of groups, compared exactly.
        role_ids: Ids of organization roles of the type ``User``.

    Returns:
        The id of the entry.

    Raises:
        NotFound: The organization does not exist.
        Conflict: The connector or a role does not exist, a role is for applications, or the group has an entry.
    """
    body = {"ssoConnectorId": connector_id, "group": group, "organizationRoleIds": list(role_ids)}
    return decode((yield json_request("POST", _path(organization_id, "groups"), body)), _AddedGroup).id


def replace_jit_groups(
    organization_id: str, groups: Iterable[Mapping[str, Any]], *, if_match: IfMatch = UNSET
) -> Operation[None]:
    """Make these the only groups that give roles in the organization; one that stays keeps its id.

    ::

        group = {"ssoConnectorId": connector.id, "group": "support", "organizationRoleIds": [role.id]}
        client.organizations.replace_jit_groups(organization.id, [group])

    Raises:
        NotFound: The organization does not exist.
        InvalidInput: A group of a connector is named twice.
        Conflict: A connector or role does not exist, or a role is for applications.
        VersionMismatch: ``if_match`` does not name the current version.
    """
    return command("PUT", _path(organization_id, "groups"), {"groups": list(groups)}, if_match=if_match)


def remove_jit_group(organization_id: str, group_id: str) -> Operation[None]:
    """Let a group no longer give roles; those who are in it lose them at their next sign-in.

    Args:
        organization_id: The organization.
        group_id: Id of the entry, not the name of the group.

    Raises:
        NotFound: The organization does not exist, or has no such entry.
    """
    return command("DELETE", _path(organization_id, "groups", group_id))


def _path(organization_id: str, *segments: str) -> str:
    return api_path("organizations", organization_id, "jit", *segments)
