"""The operations of the Management API, grouped as clients offer them: ``client.users.create`` and so on.

Each group is written once for both clients: an operation blocks on a ``Group[Run]`` and is awaited on a
``Group[AsyncRun]``; a list is iterated with ``for`` or ``async for``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Generic, ParamSpec, Self, TypeVar, overload

from stead._transport.operations import AsyncRun, Operation, Run
from stead.manage.lists import AsyncListing, Listing, ListRequest
from stead.manage.operations import (
    applications,
    connectors,
    custom_claims,
    impersonation_policy,
    impersonations,
    just_in_time,
    logs,
    mail,
    my_account,
    organization_invitations,
    organization_permissions,
    organization_roles,
    organization_template,
    organizations,
    resources,
    roles,
    sign_in_policy,
    subject_tokens,
    users,
)
from stead.manage.operations.organization_members import APPLICATIONS, USERS

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R", Run, AsyncRun)


class Group(Generic[R]):
    """Operations on one resource of the API, bound to one client."""

    def __init__(self, run: R, *, is_async: bool) -> None:
        self.run: R = run
        self.is_async = is_async


class _Method(Generic[P, T]):
    """Offers an operation as a method of a group."""

    def __init__(self, describe: Callable[P, Operation[T]]) -> None:
        self._describe = describe
        self.__doc__ = describe.__doc__

    @overload
    def __get__(self, group: None, owner: type) -> Self: ...

    @overload
    def __get__(self, group: Group[Run], owner: type) -> Callable[P, T]: ...

    @overload
    def __get__(self, group: Group[AsyncRun], owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...

    def __get__(self, group: Group[Any] | None, owner: type) -> Any:
        if group is None:
            return self

        if group.is_async:

            @functools.wraps(self._describe)
            async def async_carry_out(*args: P.args, **kwargs: P.kwargs) -> Any:
                return await group.run(self._describe(*args, **kwargs))

            return async_carry_out

        @functools.wraps(self._describe)
        def carry_out(*args: P.args, **kwargs: P.kwargs) -> Any:
            return group.run(self._describe(*args, **kwargs))

        return carry_out


class _List(Generic[P, T]):
    """Offers a list as a method of a group; calling it sends nothing until the result is iterated."""

    def __init__(self, describe: Callable[P, ListRequest[T]]) -> None:
        self._describe = describe
        self.__doc__ = describe.__doc__

    @overload
    def __get__(self, group: None, owner: type) -> Self: ...

    @overload
    def __get__(self, group: Group[Run], owner: type) -> Callable[P, Listing[T]]: ...

    @overload
    def __get__(self, group: Group[AsyncRun], owner: type) -> Callable[P, AsyncListing[T]]: ...

    def __get__(self, group: Group[Any] | None, owner: type) -> Any:
        if group is None:
            return self

        @functools.wraps(self._describe)
        def open_list(*args: P.args, **kwargs: P.kwargs) -> Any:
            listed = self._describe(*args, **kwargs)
            return AsyncListing(listed, group.run) if group.is_async else Listing(listed, group.run)

        return open_list


class Users(Group[R]):
    """``client.users``: users who sign in, their API roles, consents, factors, sessions and identities."""

    create = _Method(users.create_user)
    import_users = _Method(users.import_users)
    get = _Method(users.get_user)
    list = _List(users.list_users)
    update = _Method(users.update_user)
    delete = _Method(users.delete_user)
    suspend = _Method(users.suspend_user)
    set_password = _Method(users.set_user_password)
    invite = _Method(users.invite_user)
    withdraw_invitation = _Method(users.withdraw_user_invitation)
    invitations = _List(users.list_invitations)
    clear_sign_in_attempts = _Method(users.clear_user_sign_in_attempts)
    send_verification_email = _Method(users.send_user_verification_email)
    roles = _List(users.list_user_roles)
    assign_roles = _Method(users.assign_user_roles)
    replace_roles = _Method(users.replace_user_roles)
    remove_role = _Method(users.remove_user_role)
    effective_permissions = _Method(users.get_user_effective_permissions)
    organizations = _List(USERS.organizations)
    impersonations = _List(impersonations.list_user_impersonations)
    consents = _Method(users.list_user_consents)
    withdraw_consent = _Method(users.withdraw_user_consent)
    factors = _Method(users.get_user_factors)
    remove_factor = _Method(users.remove_user_factor)
    reset_factors = _Method(users.reset_user_factors)
    create_enrolment_code = _Method(users.create_user_enrolment_code)
    sessions = _List(users.list_user_sessions)
    end_session = _Method(users.end_user_session)
    identities = _List(connectors.list_user_identities)
    add_identity = _Method(connectors.add_user_identity)
    remove_identity = _Method(connectors.remove_user_identity)


class Applications(Group[R]):
    """``client.applications``: OAuth clients, their secrets and their API roles."""

    create = _Method(applications.create_application)
    get = _Method(applications.get_application)
    list = _List(applications.list_applications)
    update = _Method(applications.update_application)
    delete = _Method(applications.delete_application)
    secrets = _List(applications.list_application_secrets)
    create_secret = _Method(applications.create_application_secret)
    rename_secret = _Method(applications.rename_application_secret)
    delete_secret = _Method(applications.delete_application_secret)
    roles = _List(applications.list_application_roles)
    assign_roles = _Method(applications.assign_application_roles)
    replace_roles = _Method(applications.replace_application_roles)
    remove_role = _Method(applications.remove_application_role)
    organizations = _List(APPLICATIONS.organizations)


class Resources(Group[R]):
    """``client.resources``: the APIs that tokens are issued for, and their scopes."""

    create = _Method(resources.create_resource)
    get = _Method(resources.get_resource)
    list = _List(resources.list_resources)
    update = _Method(resources.update_resource)
    set_default = _Method(resources.set_default_resource)
    delete = _Method(resources.delete_resource)
    scopes = _List(resources.list_resource_scopes)
    create_scope = _Method(resources.create_scope)
    update_scope = _Method(resources.update_scope)
    delete_scope = _Method(resources.delete_scope)


class Roles(Group[R]):
    """``client.roles``: API roles, which are sets of scopes, and their holders."""

    create = _Method(roles.create_role)
    get = _Method(roles.get_role)
    list = _List(roles.list_roles)
    update = _Method(roles.update_role)
    delete = _Method(roles.delete_role)
    scopes = _List(roles.list_role_scopes)
    assign_scopes = _Method(roles.assign_role_scopes)
    remove_scope = _Method(roles.remove_role_scope)
    users = _List(roles.list_role_users)
    assign_users = _Method(roles.assign_role_users)
    remove_user = _Method(roles.remove_role_user)
    applications = _List(roles.list_role_applications)
    assign_applications = _Method(roles.assign_role_applications)
    remove_application = _Method(roles.remove_role_application)


class OrganizationPermissions(Group[R]):
    """``client.organization_permissions``: the permissions of the organization template."""

    create = _Method(organization_permissions.create_organization_permission)
    get = _Method(organization_permissions.get_organization_permission)
    list = _List(organization_permissions.list_organization_permissions)
    update = _Method(organization_permissions.update_organization_permission)
    delete = _Method(organization_permissions.delete_organization_permission)


class OrganizationRoles(Group[R]):
    """``client.organization_roles``: the roles of the organization template, and what they grant."""

    create = _Method(organization_roles.create_organization_role)
    get = _Method(organization_roles.get_organization_role)
    list = _List(organization_roles.list_organization_roles)
    update = _Method(organization_roles.update_organization_role)
    delete = _Method(organization_roles.delete_organization_role)
    permissions = _List(organization_roles.list_organization_role_permissions)
    assign_permissions = _Method(organization_roles.assign_organization_role_permissions)
    replace_permissions = _Method(organization_roles.replace_organization_role_permissions)
    remove_permission = _Method(organization_roles.remove_organization_role_permission)
    resource_scopes = _List(organization_roles.list_organization_role_resource_scopes)
    assign_resource_scopes = _Method(organization_roles.assign_organization_role_resource_scopes)
    replace_resource_scopes = _Method(organization_roles.replace_organization_role_resource_scopes)
    remove_resource_scope = _Method(organization_roles.remove_organization_role_resource_scope)


class OrganizationTemplate(Group[R]):
    """``client.organization_template``: all permissions and roles of the template as one document."""

    get = _Method(organization_template.get_organization_template)
    put = _Method(organization_template.put_organization_template)
    affected_members = _Method(organization_template.list_affected_members)


class Organizations(Group[R]):
    """``client.organizations``: organizations, their members and these members' roles, and who joins just in time."""

    create = _Method(organizations.create_organization)
    get = _Method(organizations.get_organization)
    list = _List(organizations.list_organizations)
    update = _Method(organizations.update_organization)
    delete = _Method(organizations.delete_organization)
    users = _List(USERS.list)
    add_users = _Method(USERS.add)
    replace_users = _Method(USERS.replace)
    remove_user = _Method(USERS.remove)
    assign_roles_to_users = _Method(USERS.assign_roles_to_all)
    user_roles = _List(USERS.roles)
    assign_user_roles = _Method(USERS.assign_roles)
    replace_user_roles = _Method(USERS.replace_roles)
    remove_user_role = _Method(USERS.remove_role)
    user_permissions = _Method(USERS.permissions)
    applications = _List(APPLICATIONS.list)
    add_applications = _Method(APPLICATIONS.add)
    replace_applications = _Method(APPLICATIONS.replace)
    remove_application = _Method(APPLICATIONS.remove)
    assign_roles_to_applications = _Method(APPLICATIONS.assign_roles_to_all)
    application_roles = _List(APPLICATIONS.roles)
    assign_application_roles = _Method(APPLICATIONS.assign_roles)
    replace_application_roles = _Method(APPLICATIONS.replace_roles)
    remove_application_role = _Method(APPLICATIONS.remove_role)
    application_permissions = _Method(APPLICATIONS.permissions)
    jit_email_domains = _List(just_in_time.list_jit_email_domains)
    add_jit_email_domain = _Method(just_in_time.add_jit_email_domain)
    replace_jit_email_domains = _Method(just_in_time.replace_jit_email_domains)
    remove_jit_email_domain = _Method(just_in_time.remove_jit_email_domain)
    jit_roles = _List(just_in_time.list_jit_roles)
    add_jit_roles = _Method(just_in_time.add_jit_roles)
    replace_jit_roles = _Method(just_in_time.replace_jit_roles)
    remove_jit_role = _Method(just_in_time.remove_jit_role)
    jit_connectors = _List(just_in_time.list_jit_connectors)
    add_jit_connectors = _Method(just_in_time.add_jit_connectors)
    replace_jit_connectors = _Method(just_in_time.replace_jit_connectors)
    remove_jit_connector = _Method(just_in_time.remove_jit_connector)
    jit_groups = _List(just_in_time.list_jit_groups)
    add_jit_group = _Method(just_in_time.add_jit_group)
    replace_jit_groups = _Method(just_in_time.replace_jit_groups)
    remove_jit_group = _Method(just_in_time.remove_jit_group)


class OrganizationInvitations(Group[R]):
    """``client.organization_invitations``: invitations of people to organizations, by e-mail address."""

    create = _Method(organization_invitations.create_organization_invitation)
    get = _Method(organization_invitations.get_organization_invitation)
    list = _List(organization_invitations.list_organization_invitations)
    accept = _Method(organization_invitations.accept_organization_invitation)
    revoke = _Method(organization_invitations.revoke_organization_invitation)
    send = _Method(organization_invitations.send_organization_invitation)
    delete = _Method(organization_invitations.delete_organization_invitation)


class Connectors(Group[R]):
    """``client.connectors``: OpenID providers at which people sign in."""

    create = _Method(connectors.create_connector)
    get = _Method(connectors.get_connector)
    list = _List(connectors.list_connectors)
    update = _Method(connectors.update_connector)
    delete = _Method(connectors.delete_connector)
    test = _Method(connectors.check_connector)


class CustomClaims(Group[R]):
    """``client.custom_claims``: the function that adds claims to access tokens, its versions and failures."""

    save = _Method(custom_claims.save_claims_function)
    get = _Method(custom_claims.get_claims_function)
    update = _Method(custom_claims.update_claims_function)
    delete = _Method(custom_claims.delete_claims_function)
    versions = _List(custom_claims.list_claims_function_versions)
    get_version = _Method(custom_claims.get_claims_function_version)
    activate = _Method(custom_claims.activate_claims_function_version)
    test = _Method(custom_claims.try_claims_script)
    dry_run = _Method(custom_claims.dry_run_claims_script)
    record = _Method(custom_claims.record_claims_function_inputs)
    recording = _Method(custom_claims.get_claims_function_recording)
    failures = _Method(custom_claims.list_claims_function_failures)


class Mail(Group[R]):
    """``client.mail``: mail that was given up."""

    failures = _List(mail.list_mail_failures)


class Logs(Group[R]):
    """``client.logs``: the audit trail."""

    get = _Method(logs.get_log_entry)
    list = _List(logs.list_log_entries)
    figures = _Method(logs.list_log_figures)
    head = _Method(logs.get_log_head)
    keys = _Method(logs.get_log_keys)
    proof = _Method(logs.get_log_proof)
    consistency = _Method(logs.get_log_consistency)


class SubjectTokens(Group[R]):
    """``client.subject_tokens``: one-time tokens, the first step of impersonation."""

    create = _Method(subject_tokens.create_subject_token)


class Impersonations(Group[R]):
    """``client.impersonations``: list impersonations, read one, and end it."""

    get = _Method(impersonations.get_impersonation)
    list = _List(impersonations.list_impersonations)
    end = _Method(impersonations.end_impersonation)
    end_all = _Method(impersonations.end_impersonations)


class ImpersonationPolicy(Group[R]):
    """``client.impersonation_policy``: what impersonations need, and which users they exclude."""

    get = _Method(impersonation_policy.get_impersonation_policy)
    update = _Method(impersonation_policy.update_impersonation_policy)


class SignInPolicy(Group[R]):
    """``client.sign_in_policy``: who may register, and whether users need a second factor."""

    get = _Method(sign_in_policy.get_sign_in_policy)
    update = _Method(sign_in_policy.update_sign_in_policy)


class MyAccount(Group[R]):
    """``client.my_account``: a person's own account, factors, identities, sessions and consents.

    The access token is the person's: a userinfo token of their own sign-in with the scope ``account``, such as
    ``IdentityClient.get_access_token()`` returns.
    """

    get = _Method(my_account.get_my_account)
    update = _Method(my_account.update_my_account)
    update_profile = _Method(my_account.update_my_profile)
    set_password = _Method(my_account.set_my_password)
    change_email = _Method(my_account.change_my_email)
    factors = _Method(my_account.get_my_factors)
    rename_factor = _Method(my_account.rename_my_factor)
    remove_factor = _Method(my_account.remove_my_factor)
    identities = _List(my_account.list_my_identities)
    remove_identity = _Method(my_account.remove_my_identity)
    impersonations = _List(my_account.list_my_impersonations)
    end_impersonation = _Method(my_account.end_my_impersonation)
    sessions = _List(my_account.list_my_sessions)
    end_session = _Method(my_account.end_my_session)
    consents = _Method(my_account.list_my_consents)
    withdraw_consent = _Method(my_account.withdraw_my_consent)
