"""Machine-to-machine applications as members of organizations."""

from __future__ import annotations

from collections.abc import Iterable

from stead._http import Steps, api_path
from stead._lists import MAX_PAGE_SIZE, ListRequest
from stead._operations._common import carry_out, held_permissions
from stead.models import HeldPermissions, OrganizationApplication, OrganizationMembership, OrganizationRole


def list_organization_applications(
    organization_id: str,
    *,
    search: str | None = None,
    role_id: str | None = None,
    page_size: int = MAX_PAGE_SIZE,
) -> ListRequest[OrganizationApplication]:
    """Go through the applications that belong to an organization with the roles that they hold there, by name.

    Args:
        organization_id: Which organization.
        search: Part of a name or id; everybody if not given.
        role_id: Only who holds this organization role; everybody if not given.
        page_size: How many items one answer brings, 1 to 100.

    Raises:
        NotFound: There is no such organization.
    """
    params = {"q": search, "organizationRoleId": role_id}
    path = api_path("organizations", organization_id, "applications")
    return ListRequest(path, OrganizationApplication, page_size=page_size, params=params)


def add_organization_applications(organization_id: str, application_ids: Iterable[str]) -> Steps[None]:
    """Let machine-to-machine applications belong to an organization beside those that do.

    Raises:
        NotFound: There is no such organization.
        Conflict: An application does not exist, or is not machine-to-machine.
    """
    path = api_path("organizations", organization_id, "applications")
    return carry_out("POST", path, {"applicationIds": list(application_ids)})


def replace_organization_applications(organization_id: str, application_ids: Iterable[str]) -> Steps[None]:
    """Let these applications and no others belong to an organization; who did already keeps the roles.

    Raises:
        NotFound: There is no such organization.
        Conflict: An application does not exist, or is not machine-to-machine.
    """
    path = api_path("organizations", organization_id, "applications")
    return carry_out("PUT", path, {"applicationIds": list(application_ids)})


def remove_organization_application(organization_id: str, application_id: str) -> Steps[None]:
    """Let an application no longer belong to an organization; the roles that it held there are gone with it.

    Raises:
        NotFound: There is no such organization, or the application does not belong to it.
    """
    return carry_out("DELETE", api_path("organizations", organization_id, "applications", application_id))


def assign_roles_to_organization_applications(
    organization_id: str, application_ids: Iterable[str], role_ids: Iterable[str]
) -> Steps[None]:
    """Give each of these machine-to-machine applications each of these organization roles beside those that they hold.

    Raises:
        NotFound: There is no such organization.
        Conflict: Somebody does not belong to it; a role does not exist or is for another kind of member.
    """
    body = {"applicationIds": list(application_ids), "organizationRoleIds": list(role_ids)}
    return carry_out("POST", api_path("organizations", organization_id, "applications", "roles"), body)


def list_organization_application_roles(
    organization_id: str, application_id: str, *, page_size: int = MAX_PAGE_SIZE
) -> ListRequest[OrganizationRole]:
    """Go through the organization roles that an application holds in an organization, by name.

    Raises:
        NotFound: There is no such organization.
        Conflict: The application does not belong to it.
    """
    path = api_path("organizations", organization_id, "applications", application_id, "roles")
    return ListRequest(path, OrganizationRole, page_size=page_size)


def assign_organization_application_roles(
    organization_id: str, application_id: str, role_ids: Iterable[str] = (), *, role_names: Iterable[str] = ()
) -> Steps[None]:
    """Give an application organization roles, named by id or by name, beside those that it holds in an organization.

    Raises:
        NotFound: There is no such organization.
        Conflict: The application does not belong to it; a role does not exist or is for another kind of member.
    """
    body = {"organizationRoleIds": list(role_ids), "organizationRoleNames": list(role_names)}
    return carry_out("POST", api_path("organizations", organization_id, "applications", application_id, "roles"), body)


def replace_organization_application_roles(
    organization_id: str, application_id: str, role_ids: Iterable[str] = (), *, role_names: Iterable[str] = ()
) -> Steps[None]:
    """Give an application these organization roles, named by id or by name, and take all others that it holds there.

    Raises:
        NotFound: There is no such organization.
        Conflict: The application does not belong to it; a role does not exist or is for another kind of member.
    """
    body = {"organizationRoleIds": list(role_ids), "organizationRoleNames": list(role_names)}
    return carry_out("PUT", api_path("organizations", organization_id, "applications", application_id, "roles"), body)


def remove_organization_application_role(organization_id: str, application_id: str, role_id: str) -> Steps[None]:
    """Take an organization role from an application that belongs to an organization.

    Raises:
        NotFound: There is no such organization, or the application does not hold the role.
        Conflict: The application does not belong to it.
    """
    return carry_out(
        "DELETE", api_path("organizations", organization_id, "applications", application_id, "roles", role_id)
    )


def get_organization_application_permissions(
    organization_id: str, application_id: str, *, known: HeldPermissions | None = None, wait_s: int = 0
) -> Steps[HeldPermissions]:
    """Return the organization permissions that an application holds in an organization.

    Args:
        organization_id: Which organization.
        application_id: Who.
        known: What was returned before; the very same is returned while it holds.
        wait_s: How many seconds to wait for something else than is known, 20 at most; 0 for not at all.

    Raises:
        NotFound: There is no such organization.
        Conflict: The application does not belong to it, or no longer.
    """
    path = api_path("organizations", organization_id, "applications", application_id, "scopes")
    return held_permissions(path, known, wait_s)


def list_application_organizations(
    application_id: str, *, page_size: int = MAX_PAGE_SIZE
) -> ListRequest[OrganizationMembership]:
    """Go through the organizations that an application belongs to with the roles that it holds there, by name.

    Raises:
        NotFound: There is no such application.
    """
    return ListRequest(
        api_path("applications", application_id, "organizations"), OrganizationMembership, page_size=page_size
    )
