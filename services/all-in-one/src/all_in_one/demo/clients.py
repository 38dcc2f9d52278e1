"""Clients of the Management API."""

from provision.credentials import ManagementApi
from stead import ManagementClient


def management_client(base_url: str, access: ManagementApi) -> ManagementClient:
    """Return a client with credentials of the seed, and with the scopes that these have."""
    return ManagementClient(
        base_url,
        client_id=access.client_id,
        client_secret=access.client_secret,
        resource=access.resource,
        scope=access.scope,
    )
