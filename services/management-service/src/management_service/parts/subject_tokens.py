"""Subject tokens."""

from management_service.parts.shared import Shared
from management_service.settings import Settings
from management_service.subject_tokens.service import SubjectTokens
from management_service.subject_tokens.store import SubjectTokenWriter


def subject_tokens(settings: Settings, shared: Shared) -> SubjectTokens:
    """Return the minting of subject tokens."""
    ttl_s = settings.subject_token_ttl_s
    store = SubjectTokenWriter(
        shared.connections.commands,
        tenant_id=settings.tenant_id,
        ttl_s=ttl_s,
        backlog=settings.audit_backlog,
        refusals=shared.minting_refusals,
        is_replicated=settings.redis_replicas > 0,
    )
    return SubjectTokens(store, ttl_s=ttl_s)
