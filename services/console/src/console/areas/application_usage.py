"""How to use an application: code for this very client, with an API that it can call."""

from collections.abc import Mapping
from typing import Final

from console.requests import HOME, ConsoleRequest
from console.snippets import Snippets, UsedClient, client_credentials, sign_in, token_exchange
from stead import Application

_MACHINE: Final = "MachineToMachine"
_PUBLIC: Final = ("SPA", "Native")
_SCOPES: Final = 3


async def usage(request: ConsoleRequest, application: Application) -> Mapping[str, Snippets]:
    """Return code for what an application can do, by kind: ``machine``, ``sign-in`` and ``exchange``."""
    resource, scopes = await _called_api(request, application)
    custom, redirect_uris = application.custom_client_metadata, application.oidc_client_metadata.redirect_uris
    client = UsedClient(
        base_url=request.base_url,
        client_id=application.id,
        type=application.type,
        authentication=_authentication(application),
        redirect_uri=redirect_uris[0] if redirect_uris else "",
        resource=resource,
        scopes=scopes,
    )
    found: dict[str, Snippets] = {}
    if application.type == _MACHINE:
        found["machine"] = client_credentials(client)
    elif client.redirect_uri:
        found["sign-in"] = sign_in(client)
    if custom.allow_token_exchange:
        found["exchange"] = token_exchange(client)
    return found


def _authentication(application: Application) -> str:
    if application.type in _PUBLIC:
        return "none"
    return application.custom_client_metadata.token_endpoint_auth_method or "client_secret_basic"


async def _called_api(request: ConsoleRequest, application: Application) -> tuple[str, list[str]]:
    """Return the indicator and some scopes of an API that an application can call, as far as the administrator sees it.

    For a machine-to-machine application it is the first one of which its API roles grant something; for others the
    default one, or else the first besides the Management API.
    """
    if not request.may(f"{HOME}/resources"):
        return "", []
    if application.type == _MACHINE:
        return await _granted_api(request, application)
    own = [each async for each in request.api.resources.list() if each.indicator != request.management_api]
    chosen = next((each for each in own if each.is_default), own[0] if own else None)
    if chosen is None:
        return "", []
    scopes = [scope.name async for scope in request.api.resources.scopes(chosen.id)]
    return chosen.indicator, scopes[:_SCOPES]


async def _granted_api(request: ConsoleRequest, application: Application) -> tuple[str, list[str]]:
    if not request.may(f"{HOME}/roles"):
        return "", []
    async for role in request.api.applications.roles(application.id):
        granted = [scope async for scope in request.api.roles.scopes(role.id)]
        if granted:
            resource = await request.api.resources.get(granted[0].resource_id)
            names = [scope.name for scope in granted if scope.resource_id == resource.id]
            return resource.indicator, names[:_SCOPES]
    return "", []
