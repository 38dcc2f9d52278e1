"""The use cases of the organization template, organizations, members and invitations."""

from collections.abc import Mapping

from template_service.affected_members.service import TemplatePreview
from template_service.document.service import OrganizationTemplate
from template_service.just_in_time.service import JustInTime
from template_service.organizations.service import Organizations
from template_service.parts.shared import Shared
from template_service.permissions.service import OrganizationPermissions
from template_service.roles.service import OrganizationRoles
from template_service.settings import Settings


def use_cases(settings: Settings, shared: Shared) -> Mapping[str, object]:
    """Return the dependencies of handlers, by name."""
    tenant_id, urn_namespace = settings.tenant_id, settings.urn_namespace
    management_api = settings.management_api_resource
    reader, lookups = shared.connections.reader, shared.connections.lookups
    changes, fresh_reads = shared.changes, shared.fresh_reads
    template = OrganizationTemplate(
        reader,
        changes,
        fresh_reads,
        tenant_id=tenant_id,
        urn_namespace=urn_namespace,
        management_api=management_api,
    )
    return {
        "fresh_reads": fresh_reads,
        "permissions": OrganizationPermissions(
            reader, lookups, changes, tenant_id=tenant_id, urn_namespace=urn_namespace
        ),
        "roles": OrganizationRoles(
            reader, lookups, changes, fresh_reads, tenant_id=tenant_id, management_api=management_api
        ),
        "template": template,
        "template_preview": TemplatePreview(reader, template, tenant_id=tenant_id),
        "organizations": Organizations(reader, lookups, changes, tenant_id=tenant_id),
        "members": shared.members,
        "just_in_time": JustInTime(reader, changes, fresh_reads, tenant_id=tenant_id),
        "invitations": shared.invitations,
    }
