"""The custom-claims function, whose scripts token-service checks and runs."""

from identity_common.outbox.changes import Changes
from identity_common.sealing import SealingKeys
from identity_common.wire.claims_function import ClaimsFunctionRequests, SealedVariables
from management_service.claims_function.scripts import Scripts
from management_service.claims_function.service import ClaimsFunctions
from management_service.parts.connections import Connections
from management_service.settings import Settings


def claims_functions(settings: Settings, connections: Connections, changes: Changes) -> ClaimsFunctions:
    """Return the use cases of the custom-claims function."""
    keys, tenant_id = SealingKeys(settings.environment_variable_keys), settings.tenant_id
    scripts = Scripts(connections.bus, ClaimsFunctionRequests(keys, tenant_id=tenant_id))
    variables = SealedVariables(keys, tenant_id=tenant_id)
    return ClaimsFunctions(connections.reader, changes, scripts, variables, tenant_id=tenant_id)
