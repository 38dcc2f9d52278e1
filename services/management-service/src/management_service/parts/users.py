"""The use cases of users, and of the roles that they are given."""

from identity_common.outbox.changes import Changes
from management_service.parts.connections import Connections
from management_service.parts.shared_with_commands import administrators, attainable_scopes
from management_service.passwords.attempts import SignInAttempts
from management_service.passwords.hashing import Passwords
from management_service.roles.assignments import Assignments
from management_service.settings import Settings
from management_service.users.service import Users


def assignments(settings: Settings, connections: Connections, changes: Changes) -> Assignments:
    """Return what gives roles to users and applications."""
    last_administrator, attainable = administrators(settings), attainable_scopes(settings)
    return Assignments(connections.reader, changes, last_administrator, attainable, tenant_id=settings.tenant_id)


def users(
    settings: Settings,
    connections: Connections,
    changes: Changes,
    passwords: Passwords,
    attempts: SignInAttempts,
    assignments: Assignments,
) -> Users:
    """Return the use cases of users."""
    return Users(
        connections.reader,
        connections.lookups,
        changes,
        passwords,
        attempts,
        administrators(settings),
        attainable_scopes(settings),
        searcher=connections.searcher,
        record_default_roles=assignments.record_default_roles,
        tenant_id=settings.tenant_id,
    )
