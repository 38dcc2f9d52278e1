"""The entities that the Management API returns: camelCase on the wire, times in milliseconds since the epoch (UTC).

Unknown members are ignored, so this version works with newer services.
"""

from stead.models.applications import Application, ApplicationSecret, CustomClientMetadata, OidcClientMetadata
from stead.models.audit import (
    AuditContext,
    AuditEntry,
    AuditFigure,
    AuditGap,
    ConsistencyProof,
    InclusionProof,
    SignedHead,
)
from stead.models.custom_claims import (
    ClaimsFunction,
    ClaimsFunctionFailure,
    ClaimsFunctionVersion,
    DryRunOfInput,
    DryRunReport,
    Recording,
    SavedBy,
    ScriptProblem,
    TestedClaims,
)
from stead.models.impersonations import Impersonation, ImpersonationPolicy, SubjectToken
from stead.models.organization_template import (
    MemberEffect,
    OrganizationTemplate,
    Reach,
    TemplateChange,
    TemplateChanges,
    TemplatePermission,
    TemplateReport,
    TemplateRole,
    TemplateScope,
    TextChange,
)
from stead.models.organizations import (
    HeldPermissions,
    Organization,
    OrganizationApplication,
    OrganizationMembership,
    OrganizationPermission,
    OrganizationRole,
    OrganizationRoleReference,
    OrganizationUser,
)
from stead.models.resources import Resource, ResourceReference, ResourceScope, Role, Scope
from stead.models.users import Consent, Invitation, ResourceConsent, User
from stead.models.versions import Versioned, note_etag

__all__ = [
    "Application",
    "ApplicationSecret",
    "AuditContext",
    "AuditEntry",
    "AuditFigure",
    "AuditGap",
    "ClaimsFunction",
    "ClaimsFunctionFailure",
    "ClaimsFunctionVersion",
    "Consent",
    "ConsistencyProof",
    "CustomClientMetadata",
    "DryRunOfInput",
    "DryRunReport",
    "HeldPermissions",
    "Impersonation",
    "ImpersonationPolicy",
    "InclusionProof",
    "Invitation",
    "MemberEffect",
    "OidcClientMetadata",
    "Organization",
    "OrganizationApplication",
    "OrganizationMembership",
    "OrganizationPermission",
    "OrganizationRole",
    "OrganizationRoleReference",
    "OrganizationTemplate",
    "OrganizationUser",
    "Reach",
    "Recording",
    "Resource",
    "ResourceConsent",
    "ResourceReference",
    "ResourceScope",
    "Role",
    "SavedBy",
    "Scope",
    "ScriptProblem",
    "SignedHead",
    "SubjectToken",
    "TemplateChange",
    "TemplateChanges",
    "TemplatePermission",
    "TemplateReport",
    "TemplateRole",
    "TemplateScope",
    "TestedClaims",
    "TextChange",
    "User",
    "Versioned",
    "note_etag",
]
