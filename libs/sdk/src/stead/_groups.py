"""The names under which clients offer the operations of the Management API: ``client.users.create`` and so on.

Written once for both clients: on a ``Group`` an operation blocks, on an ``AsyncGroup`` it is awaited; a list is gone
through with ``for`` or ``async for``.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterable, Callable, Coroutine, Iterable
from typing import Any, Generic, ParamSpec, Self, TypeVar, overload

from stead._http import AsyncRun, Run, Steps
from stead._lists import AsyncListing, Listing, ListRequest
from stead._operations import (
    applications,
    organization_applications,
    organization_permissions,
    organization_roles,
    organization_template,
    organization_users,
    organizations,
    resources,
    roles,
    subject_tokens,
    users,
)

P = ParamSpec("P")
T = TypeVar("T")


class Group:
    """Operations on one resource, carried out by one client."""

    def __init__(self, run: Run) -> None:
        self.run = run


class AsyncGroup:
    """Operations on one resource, carried out by one client in tasks."""

    def __init__(self, run: AsyncRun) -> None:
        self.run = run


class _Operation(Generic[P, T]):
    """An operation under a short name: calling it on a group carries it out."""

    def __init__(self, describe: Callable[P, Steps[T]]) -> None:
        self._describe = describe
        self.__doc__ = describe.__doc__

    @overload
    def __get__(self, group: None, owner: type) -> Self: ...

    @overload
    def __get__(self, group: Group, owner: type) -> Callable[P, T]: ...

    @overload
    def __get__(self, group: AsyncGroup, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...

    def __get__(
        self, group: Group | AsyncGroup | None, owner: type
    ) -> Self | Callable[P, T] | Callable[P, Coroutine[Any, Any, T]]:
        if group is None:
            return self
        return self._bound(group) if isinstance(group, Group) else self._async_bound(group)

    def _bound(self, group: Group) -> Callable[P, T]:
        @functools.wraps(self._describe)
        def carry_out(*args: P.args, **kwargs: P.kwargs) -> T:
            return group.run(self._describe(*args, **kwargs))

        return carry_out

    def _async_bound(self, group: AsyncGroup) -> Callable[P, Coroutine[Any, Any, T]]:
        @functools.wraps(self._describe)
        async def carry_out(*args: P.args, **kwargs: P.kwargs) -> T:
            return await group.run(self._describe(*args, **kwargs))

        return carry_out


class _List(Generic[P, T]):
    """A list under a short name: calling it on a group gives something to go through, and sends nothing yet."""

    def __init__(self, describe: Callable[P, ListRequest[T]]) -> None:
        self._describe = describe
        self.__doc__ = describe.__doc__

    @overload
    def __get__(self, group: None, owner: type) -> Self: ...

    @overload
    def __get__(self, group: Group, owner: type) -> Callable[P, Iterable[T]]: ...

    @overload
    def __get__(self, group: AsyncGroup, owner: type) -> Callable[P, AsyncIterable[T]]: ...

    def __get__(
        self, group: Group | AsyncGroup | None, owner: type
    ) -> Self | Callable[P, Iterable[T]] | Callable[P, AsyncIterable[T]]:
        if group is None:
            return self

        @functools.wraps(self._describe)
        def go_through(*args: P.args, **kwargs: P.kwargs) -> Any:
            listed = self._describe(*args, **kwargs)
            return Listing(listed, group.run) if isinstance(group, Group) else AsyncListing(listed, group.run)

        return go_through


class UserOperations:
    """``client.users``: people."""

    create = _Operation(users.create_user)
    get = _Operation(users.get_user)
    list = _List(users.list_users)
    update = _Operation(users.update_user)
    delete = _Operation(users.delete_user)
    suspend = _Operation(users.suspend_user)
    set_password = _Operation(users.set_user_password)
    roles = _List(users.list_user_roles)
    assign_roles = _Operation(users.assign_user_roles)
    replace_roles = _Operation(users.replace_user_roles)
    remove_role = _Operation(users.remove_user_role)
    organizations = _List(organization_users.list_user_organizations)
    consents = _Operation(users.list_user_consents)
    withdraw_consent = _Operation(users.withdraw_user_consent)


class ApplicationOperations:
    """``client.applications``: clients of the token endpoint, with their secrets."""

    create = _Operation(applications.create_application)
    get = _Operation(applications.get_application)
    list = _List(applications.list_applications)
    update = _Operation(applications.update_application)
    delete = _Operation(applications.delete_application)
    secrets = _List(applications.list_application_secrets)
    create_secret = _Operation(applications.create_application_secret)
    delete_secret = _Operation(applications.delete_application_secret)
    roles = _List(applications.list_application_roles)
    assign_roles = _Operation(applications.assign_application_roles)
    replace_roles = _Operation(applications.replace_application_roles)
    remove_role = _Operation(applications.remove_application_role)
    organizations = _List(organization_applications.list_application_organizations)


class ResourceOperations:
    """``client.resources``: APIs that tokens are issued for, with their scopes."""

    create = _Operation(resources.create_resource)
    get = _Operation(resources.get_resource)
    list = _List(resources.list_resources)
    update = _Operation(resources.update_resource)
    delete = _Operation(resources.delete_resource)
    scopes = _List(resources.list_resource_scopes)
    create_scope = _Operation(resources.create_scope)
    delete_scope = _Operation(resources.delete_scope)


class RoleOperations:
    """``client.roles``: sets of scopes that are assigned to users or applications."""

    create = _Operation(roles.create_role)
    get = _Operation(roles.get_role)
    list = _List(roles.list_roles)
    delete = _Operation(roles.delete_role)
    scopes = _List(roles.list_role_scopes)
    assign_scopes = _Operation(roles.assign_role_scopes)
    remove_scope = _Operation(roles.remove_role_scope)
    users = _List(roles.list_role_users)
    assign_users = _Operation(roles.assign_role_users)
    remove_user = _Operation(roles.remove_role_user)
    applications = _List(roles.list_role_applications)
    assign_applications = _Operation(roles.assign_role_applications)
    remove_application = _Operation(roles.remove_role_application)


class OrganizationPermissionOperations:
    """``client.organization_permissions``: permissions that all organizations share."""

    create = _Operation(organization_permissions.create_organization_permission)
    get = _Operation(organization_permissions.get_organization_permission)
    list = _List(organization_permissions.list_organization_permissions)
    update = _Operation(organization_permissions.update_organization_permission)
    delete = _Operation(organization_permissions.delete_organization_permission)


class OrganizationRoleOperations:
    """``client.organization_roles``: roles that all organizations share, and what they grant."""

    create = _Operation(organization_roles.create_organization_role)
    get = _Operation(organization_roles.get_organization_role)
    list = _List(organization_roles.list_organization_roles)
    update = _Operation(organization_roles.update_organization_role)
    delete = _Operation(organization_roles.delete_organization_role)
    permissions = _List(organization_roles.list_organization_role_permissions)
    assign_permissions = _Operation(organization_roles.assign_organization_role_permissions)
    replace_permissions = _Operation(organization_roles.replace_organization_role_permissions)
    remove_permission = _Operation(organization_roles.remove_organization_role_permission)
    resource_scopes = _List(organization_roles.list_organization_role_resource_scopes)
    assign_resource_scopes = _Operation(organization_roles.assign_organization_role_resource_scopes)
    replace_resource_scopes = _Operation(organization_roles.replace_organization_role_resource_scopes)
    remove_resource_scope = _Operation(organization_roles.remove_organization_role_resource_scope)


class OrganizationTemplateOperations:
    """``client.organization_template``: permissions and roles that all organizations share, as one document."""

    get = _Operation(organization_template.get_organization_template)
    put = _Operation(organization_template.put_organization_template)


class OrganizationOperations:
    """``client.organizations``: organizations, who belongs to them, and what their members may do."""

    create = _Operation(organizations.create_organization)
    get = _Operation(organizations.get_organization)
    list = _List(organizations.list_organizations)
    update = _Operation(organizations.update_organization)
    delete = _Operation(organizations.delete_organization)
    users = _List(organization_users.list_organization_users)
    add_users = _Operation(organization_users.add_organization_users)
    replace_users = _Operation(organization_users.replace_organization_users)
    remove_user = _Operation(organization_users.remove_organization_user)
    assign_roles_to_users = _Operation(organization_users.assign_roles_to_organization_users)
    user_roles = _List(organization_users.list_organization_user_roles)
    assign_user_roles = _Operation(organization_users.assign_organization_user_roles)
    replace_user_roles = _Operation(organization_users.replace_organization_user_roles)
    remove_user_role = _Operation(organization_users.remove_organization_user_role)
    user_permissions = _Operation(organization_users.get_organization_user_permissions)
    applications = _List(organization_applications.list_organization_applications)
    add_applications = _Operation(organization_applications.add_organization_applications)
    replace_applications = _Operation(organization_applications.replace_organization_applications)
    remove_application = _Operation(organization_applications.remove_organization_application)
    assign_roles_to_applications = _Operation(organization_applications.assign_roles_to_organization_applications)
    application_roles = _List(organization_applications.list_organization_application_roles)
    assign_application_roles = _Operation(organization_applications.assign_organization_application_roles)
    replace_application_roles = _Operation(organization_applications.replace_organization_application_roles)
    remove_application_role = _Operation(organization_applications.remove_organization_application_role)
    application_permissions = _Operation(organization_applications.get_organization_application_permissions)


class SubjectTokenOperations:
    """``client.subject_tokens``: the first step of impersonation."""

    create = _Operation(subject_tokens.create_subject_token)


class Users(UserOperations, Group):
    __doc__ = UserOperations.__doc__


class AsyncUsers(UserOperations, AsyncGroup):
    __doc__ = UserOperations.__doc__


class Applications(ApplicationOperations, Group):
    __doc__ = ApplicationOperations.__doc__


class AsyncApplications(ApplicationOperations, AsyncGroup):
    __doc__ = ApplicationOperations.__doc__


class Resources(ResourceOperations, Group):
    __doc__ = ResourceOperations.__doc__


class AsyncResources(ResourceOperations, AsyncGroup):
    __doc__ = ResourceOperations.__doc__


class Roles(RoleOperations, Group):
    __doc__ = RoleOperations.__doc__


class AsyncRoles(RoleOperations, AsyncGroup):
    __doc__ = RoleOperations.__doc__


class OrganizationPermissions(OrganizationPermissionOperations, Group):
    __doc__ = OrganizationPermissionOperations.__doc__


class AsyncOrganizationPermissions(OrganizationPermissionOperations, AsyncGroup):
    __doc__ = OrganizationPermissionOperations.__doc__


class OrganizationRoles(OrganizationRoleOperations, Group):
    __doc__ = OrganizationRoleOperations.__doc__


class AsyncOrganizationRoles(OrganizationRoleOperations, AsyncGroup):
    __doc__ = OrganizationRoleOperations.__doc__


class OrganizationTemplate(OrganizationTemplateOperations, Group):
    __doc__ = OrganizationTemplateOperations.__doc__


class AsyncOrganizationTemplate(OrganizationTemplateOperations, AsyncGroup):
    __doc__ = OrganizationTemplateOperations.__doc__


class Organizations(OrganizationOperations, Group):
    __doc__ = OrganizationOperations.__doc__


class AsyncOrganizations(OrganizationOperations, AsyncGroup):
    __doc__ = OrganizationOperations.__doc__


class SubjectTokens(SubjectTokenOperations, Group):
    __doc__ = SubjectTokenOperations.__doc__


class AsyncSubjectTokens(SubjectTokenOperations, AsyncGroup):
    __doc__ = SubjectTokenOperations.__doc__
