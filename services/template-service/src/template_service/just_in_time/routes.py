"""``/api/organizations/{id}/jit``: who joins by signing in through a connector, and with which roles."""

from typing import Final

from litestar import Controller, Response, delete, get, post, put
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody

from identity_common.access.parents import parent_exists
from identity_common.fields import Answer, each_once
from identity_common.http.listing import WHOLE, Listing
from template_service.just_in_time.rules import (
    AddedJitConnectors,
    AddedJitRoles,
    JitConnectors,
    JitEmailDomainCreation,
    JitEmailDomains,
    JitGroup,
    JitGroups,
    JitRoles,
)
from template_service.just_in_time.service import JustInTime
from template_service.roles.routes import OrganizationRoleAnswer, organization_role_answer
from template_service.roles.store import Named

_TAGS: Final = ("Organizations",)
_GUARDS: Final = (parent_exists("organization"),)


class JitEmailDomainAnswer(Answer):
    """A domain whose owners of e-mail addresses join an organization.

    Attributes:
        tenant_id: Id of the tenant.
        organization_id: Id of the organization.
        email_domain: The domain, in lower case and its ASCII form.
    """

    tenant_id: str
    organization_id: str
    email_domain: str


class JitConnectorAnswer(Answer):
    """A connector whose people join an organization.

    Attributes:
        tenant_id: Id of the tenant.
        id: Id of the connector.
        connector_name: Its name.
    """

    tenant_id: str
    id: str
    connector_name: str


class JitGroupAnswer(Answer):
    """A group at a connector's provider, and the organization roles of those who are in it.

    Attributes:
        tenant_id: Id of the tenant.
        id: Id of the entry.
        sso_connector_id: Id of the connector.
        group: A value of the connector's claim of groups, compared exactly.
        organization_roles: The roles; one that was deleted is left out.
    """

    tenant_id: str
    id: str
    sso_connector_id: str
    group: str
    organization_roles: tuple[Named, ...]


class AddedJitGroupAnswer(Answer):
    """A group that gives roles from now on.

    Attributes:
        id: Id of the entry.
        sso_connector_id: Id of the connector.
        group: A value of the connector's claim of groups, compared exactly.
        organization_role_ids: Ids of the roles, each once.
    """

    id: str
    sso_connector_id: str
    group: str
    organization_role_ids: tuple[str, ...]


class JitEmailDomainController(Controller):
    """Domains whose owners of e-mail addresses join an organization."""

    path = "/organizations/{organization_id:str}/jit/email-domains"
    tags = _TAGS
    dependencies = WHOLE
    guards = _GUARDS

    @get("/", operation_id="ListOrganizationJitEmailDomains", summary="List the e-mail domains that join")
    async def list_domains(
        self,
        organization_id: FromPath[str],
        listing: NamedDependency[Listing],
        just_in_time: NamedDependency[JustInTime],
        tenant_id: NamedDependency[str],
    ) -> Response[list[JitEmailDomainAnswer]]:
        """List the domains whose owners of verified e-mail addresses join the organization, sorted."""
        found, total = await just_in_time.list_domains(organization_id, listing.page)
        answers = [
            JitEmailDomainAnswer(tenant_id=tenant_id, organization_id=organization_id, email_domain=domain)
            for domain in found
        ]
        return listing.answer(answers, total)

    @post("/", operation_id="AddOrganizationJitEmailDomain", summary="Let an e-mail domain join")
    async def add_domain(
        self,
        organization_id: FromPath[str],
        data: JSONBody[JitEmailDomainCreation],
        just_in_time: NamedDependency[JustInTime],
        tenant_id: NamedDependency[str],
    ) -> JitEmailDomainAnswer:
        """Let people join who sign in through a connector with a verified e-mail address of this domain.

        They join at their next sign-in, once: those who are removed later do not return by it.
        """
        domain = await just_in_time.add_domain(organization_id, data.email_domain)
        return JitEmailDomainAnswer(tenant_id=tenant_id, organization_id=organization_id, email_domain=domain)

    @put(
        "/",
        operation_id="ReplaceOrganizationJitEmailDomains",
        summary="Replace the e-mail domains that join",
        status_code=204,
    )
    async def replace_domains(
        self,
        organization_id: FromPath[str],
        data: JSONBody[JitEmailDomains],
        just_in_time: NamedDependency[JustInTime],
    ) -> None:
        """Replace the domains whose owners of verified e-mail addresses join the organization; members stay."""
        await just_in_time.replace_domains(organization_id, data.email_domains)

    @delete(
        "/{email_domain:str}",
        operation_id="RemoveOrganizationJitEmailDomain",
        summary="Let an e-mail domain no longer join",
        status_code=204,
    )
    async def remove_domain(
        self,
        organization_id: FromPath[str],
        email_domain: FromPath[str],
        just_in_time: NamedDependency[JustInTime],
    ) -> None:
        """Let people with e-mail addresses of this domain no longer join; members stay."""
        await just_in_time.remove(organization_id, "email-domain", email_domain)


class JitRoleController(Controller):
    """Organization roles that joining just in time gives."""

    path = "/organizations/{organization_id:str}/jit/roles"
    tags = _TAGS
    dependencies = WHOLE
    guards = _GUARDS

    @get("/", operation_id="ListOrganizationJitRoles", summary="List the roles that joining gives")
    async def list_roles(
        self,
        organization_id: FromPath[str],
        listing: NamedDependency[Listing],
        just_in_time: NamedDependency[JustInTime],
    ) -> Response[list[OrganizationRoleAnswer]]:
        """List the organization roles that those get who join by signing in through a connector, by name."""
        found, total = await just_in_time.list_roles(organization_id, listing.page)
        return listing.answer([organization_role_answer(role) for role in found], total)

    @post("/", operation_id="AddOrganizationJitRoles", summary="Add roles that joining gives")
    async def add_roles(
        self,
        organization_id: FromPath[str],
        data: JSONBody[AddedJitRoles],
        just_in_time: NamedDependency[JustInTime],
    ) -> AddedJitRoles:
        """Add organization roles that those get, once, who join by signing in through a connector."""
        role_ids = each_once(data.organization_role_ids)
        await just_in_time.add(organization_id, "role", role_ids)
        return AddedJitRoles(organization_role_ids=role_ids)

    @put(
        "/",
        operation_id="ReplaceOrganizationJitRoles",
        summary="Replace the roles that joining gives",
        status_code=204,
    )
    async def replace_roles(
        self,
        organization_id: FromPath[str],
        data: JSONBody[JitRoles],
        just_in_time: NamedDependency[JustInTime],
    ) -> None:
        """Replace the organization roles that joining gives; members keep theirs."""
        await just_in_time.replace(organization_id, "role", each_once(data.organization_role_ids))

    @delete(
        "/{organization_role_id:str}",
        operation_id="RemoveOrganizationJitRole",
        summary="Remove a role that joining gives",
        status_code=204,
    )
    async def remove_role(
        self,
        organization_id: FromPath[str],
        organization_role_id: FromPath[str],
        just_in_time: NamedDependency[JustInTime],
    ) -> None:
        """Remove an organization role from those that joining gives; members keep it."""
        await just_in_time.remove(organization_id, "role", organization_role_id)


class JitConnectorController(Controller):
    """Connectors whose people join an organization."""

    path = "/organizations/{organization_id:str}/jit/sso-connectors"
    tags = _TAGS
    dependencies = WHOLE
    guards = _GUARDS

    @get("/", operation_id="ListOrganizationJitSsoConnectors", summary="List the connectors that join")
    async def list_connectors(
        self,
        organization_id: FromPath[str],
        listing: NamedDependency[Listing],
        just_in_time: NamedDependency[JustInTime],
        tenant_id: NamedDependency[str],
    ) -> Response[list[JitConnectorAnswer]]:
        """List the connectors through which people join the organization, by name."""
        found, total = await just_in_time.list_connectors(organization_id, listing.page)
        answers = [JitConnectorAnswer(tenant_id=tenant_id, id=each.id, connector_name=each.name) for each in found]
        return listing.answer(answers, total)

    @post("/", operation_id="AddOrganizationJitSsoConnectors", summary="Let connectors join")
    async def add_connectors(
        self,
        organization_id: FromPath[str],
        data: JSONBody[AddedJitConnectors],
        just_in_time: NamedDependency[JustInTime],
    ) -> AddedJitConnectors:
        """Let people join who sign in through these connectors.

        They join at their next sign-in, once: those who are removed later do not return by it.
        """
        connector_ids = each_once(data.sso_connector_ids)
        await just_in_time.add(organization_id, "connector", connector_ids)
        return AddedJitConnectors(sso_connector_ids=connector_ids)

    @put(
        "/",
        operation_id="ReplaceOrganizationJitSsoConnectors",
        summary="Replace the connectors that join",
        status_code=204,
    )
    async def replace_connectors(
        self,
        organization_id: FromPath[str],
        data: JSONBody[JitConnectors],
        just_in_time: NamedDependency[JustInTime],
    ) -> None:
        """Replace the connectors through which people join the organization; members stay."""
        await just_in_time.replace(organization_id, "connector", each_once(data.sso_connector_ids))

    @delete(
        "/{sso_connector_id:str}",
        operation_id="RemoveOrganizationJitSsoConnector",
        summary="Let a connector no longer join",
        status_code=204,
    )
    async def remove_connector(
        self,
        organization_id: FromPath[str],
        sso_connector_id: FromPath[str],
        just_in_time: NamedDependency[JustInTime],
    ) -> None:
        """Let people who sign in through this connector no longer join; members stay."""
        await just_in_time.remove(organization_id, "connector", sso_connector_id)


class JitGroupController(Controller):
    """Groups at providers that give roles in an organization."""

    path = "/organizations/{organization_id:str}/jit/groups"
    tags = _TAGS
    dependencies = WHOLE
    guards = _GUARDS

    @get("/", operation_id="ListOrganizationJitGroups", summary="List the groups that give roles")
    async def list_groups(
        self,
        organization_id: FromPath[str],
        listing: NamedDependency[Listing],
        just_in_time: NamedDependency[JustInTime],
        tenant_id: NamedDependency[str],
    ) -> Response[list[JitGroupAnswer]]:
        """List the groups at connectors' providers that give roles in the organization, sorted."""
        found, total = await just_in_time.list_groups(organization_id, listing.page)
        answers = [
            JitGroupAnswer(
                tenant_id=tenant_id,
                id=each.id,
                sso_connector_id=each.connector_id,
                group=each.group,
                organization_roles=each.roles,
            )
            for each in found
        ]
        return listing.answer(answers, total)

    @post("/", operation_id="AddOrganizationJitGroup", summary="Let a group give roles")
    async def add_group(
        self,
        organization_id: FromPath[str],
        data: JSONBody[JitGroup],
        just_in_time: NamedDependency[JustInTime],
    ) -> AddedJitGroupAnswer:
        """Let a group at a connector's provider give organization roles.

        Those who are in it become members, and hold the roles as long as each sign-in through the connector names the
        group. A change holds from the next sign-in of each person.
        """
        group_id = await just_in_time.add_group(organization_id, data)
        return AddedJitGroupAnswer(
            id=group_id,
            sso_connector_id=data.sso_connector_id,
            group=data.group,
            organization_role_ids=each_once(data.organization_role_ids),
        )

    @put(
        "/",
        operation_id="ReplaceOrganizationJitGroups",
        summary="Replace the groups that give roles",
        status_code=204,
    )
    async def replace_groups(
        self,
        organization_id: FromPath[str],
        data: JSONBody[JitGroups],
        just_in_time: NamedDependency[JustInTime],
    ) -> None:
        """Replace the groups that give roles in the organization; a change holds from the next sign-in of each person.

        A group that stays keeps its id.
        """
        await just_in_time.replace_groups(organization_id, data.groups)

    @delete(
        "/{group_id:str}",
        operation_id="RemoveOrganizationJitGroup",
        summary="Let a group no longer give roles",
        status_code=204,
    )
    async def remove_group(
        self,
        organization_id: FromPath[str],
        group_id: FromPath[str],
        just_in_time: NamedDependency[JustInTime],
    ) -> None:
        """Let a group no longer give roles; those who are in it lose them at their next sign-in."""
        await just_in_time.remove_group(organization_id, group_id)


CONTROLLERS: Final = (JitEmailDomainController, JitRoleController, JitConnectorController, JitGroupController)
