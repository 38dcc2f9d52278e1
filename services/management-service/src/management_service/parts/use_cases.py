"""The use cases of the Management API."""

from collections.abc import Mapping

from management_service.applications.service import Applications
from management_service.audit.reading.names import TrailNames
from management_service.audit.reading.searches import TrailSearches
from management_service.audit.reading.service import AuditTrail
from management_service.audit.tree.proofs import AuditProofs
from management_service.effective_permissions.organizations import OrganizationGrants
from management_service.effective_permissions.service import EffectivePermissions
from management_service.factors.service import Factors
from management_service.impersonation_policy.service import ImpersonationPolicies
from management_service.impersonations.register import ImpersonationRegister
from management_service.impersonations.revoking import EndRevocations
from management_service.impersonations.service import Impersonations
from management_service.invitations.service import Invitations
from management_service.mail.service import MailFailures
from management_service.memberships import Memberships
from management_service.my_account.service import MyAccounts
from management_service.organization_names import OrganizationNames
from management_service.parts.shared import Shared
from management_service.parts.shared_with_commands import administrators, attainable_scopes, resources
from management_service.roles.service import Roles
from management_service.search.organizations import OrganizationSearch
from management_service.search.service import Search
from management_service.settings import Settings
from management_service.sign_in_policy.service import SignInPolicies
from management_service.users.imports import UserImports


def use_cases(settings: Settings, shared: Shared) -> Mapping[str, object]:
    """Return the dependencies of handlers, by name."""
    connections, tenant_id = shared.connections, settings.tenant_id
    reader, lookups, changes = connections.reader, connections.lookups, shared.changes
    last_administrator, attainable = administrators(settings), attainable_scopes(settings)
    names = TrailNames(OrganizationNames(connections.bus, tenant_id=tenant_id), tenant_id=tenant_id)
    searches = TrailSearches(reader)
    register = ImpersonationRegister(reader, names, searches, tenant_id=tenant_id)
    return {
        "users": shared.users,
        "user_imports": UserImports(changes, shared.users, tenant_id=tenant_id),
        "email_verifications": shared.links.verifications,
        "my_accounts": MyAccounts(
            reader,
            changes,
            shared.users,
            shared.passwords,
            shared.attempts,
            shared.links.verifications,
            shared.mail,
            tenant_id=tenant_id,
        ),
        "factors": Factors(
            reader,
            changes,
            shared.users,
            shared.factors.changes,
            shared.factors.enrolments,
            last_administrator,
            attainable,
            offers_passkeys=shared.factors.ceremonies.are_on,
            tenant_id=tenant_id,
        ),
        "invitations": Invitations(reader, changes, shared.users, shared.passwords, attainable, tenant_id=tenant_id),
        "applications": Applications(
            reader,
            lookups,
            changes,
            attainable,
            tenant_id=tenant_id,
            allow_http_redirects=settings.allow_http_loopback_redirects,
            offers_passkeys=shared.factors.ceremonies.are_on,
        ),
        "connectors": shared.connectors.connectors,
        "resources": resources(settings, reader, lookups, changes),
        "roles": Roles(reader, lookups, changes, last_administrator, attainable, tenant_id=tenant_id),
        "assignments": shared.assignments,
        "effective_permissions": EffectivePermissions(
            reader,
            OrganizationGrants(connections.bus, tenant_id=tenant_id),
            tenant_id=tenant_id,
            management_api=settings.management_api_resource,
        ),
        "impersonation_policies": ImpersonationPolicies(
            reader, changes, tenant_id=tenant_id, offers_passkeys=shared.factors.ceremonies.are_on
        ),
        "sign_in_policies": SignInPolicies(reader, changes, tenant_id=tenant_id),
        "claims_functions": shared.claims_functions,
        "impersonations": Impersonations(
            changes,
            EndRevocations(connections.redis, tenant_id=tenant_id, replicas=settings.redis_replicas),
            connections.commands,
            register,
            tenant_id=tenant_id,
        ),
        "impersonation_register": register,
        "mail_failures": MailFailures(reader, tenant_id=tenant_id),
        "memberships": Memberships(connections.bus, tenant_id=tenant_id),
        "audit_trail": AuditTrail(reader, names, searches, tenant_id=tenant_id),
        "audit_proofs": AuditProofs(reader, shared.sealing, tenant_id=tenant_id),
        "head_keys": shared.head_keys,
        "search": Search(
            connections.searcher, OrganizationSearch(connections.bus, tenant_id=tenant_id), tenant_id=tenant_id
        ),
    }
