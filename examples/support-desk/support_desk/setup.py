"""Registers the example at Stead through the Management API; idempotent.

In production, this is done once, by hand. Every start creates a new secret, so that none has to be stored; each address
has a secret of its own, so that several desks can run.
"""

from collections.abc import Callable, Iterable
from typing import Final, Protocol, TypeVar
from urllib.parse import urlsplit

import msgspec

from stead import Application, Conflict, CustomClientMetadata, ManagementClient, OidcClientMetadata
from support_desk import backend

_NAME: Final = "Support desk"
_ENGINEERS: Final = "Support engineer"
_CUSTOMERS: Final = "Demo customer"
_BACKEND: Final = "Support backend"
BACKEND_SCOPES: Final = ("read", "subject-tokens")
_SCOPES: Final = {backend.READ: "See the customers", backend.IMPERSONATE: "Act as a customer, with a reason"}
_SAMPLES: Final = {"ines.castro": "Ines Castro", "mei.tanaka": "Mei Tanaka", "noah.okafor": "Noah Okafor"}


class _Named(Protocol):
    @property
    def name(self) -> str: ...


_Item = TypeVar("_Item", bound=_Named)


class Client(msgspec.Struct, frozen=True):
    """An application with its secret."""

    client_id: str
    client_secret: str

    def __repr__(self) -> str:
        return f"Client({self.client_id!r})"


class Registration(msgspec.Struct, frozen=True):
    """The desk, its backend, and the API role that makes a user a customer."""

    desk: Client
    backend: Client
    customer_role: str


def register(management: ManagementClient, *, management_api: str, desk_url: str, agent_id: str) -> Registration:
    """Create what is missing: the desk, its backend as a client and as a resource, the roles, some customers. Blocks.

    Args:
        management: A client with full access.
        management_api: The resource indicator of the Management API.
        desk_url: The desk's address for browsers.
        agent_id: The user who becomes a support engineer.

    Raises:
        IdentityError: Stead refused, or did not answer.
    """
    address = urlsplit(desk_url).netloc
    desk = _with_secret(management, _application(management, desk_url).id, address)
    its_backend = _with_secret(management, _backend(management, management_api).id, address)
    management.users.assign_roles(agent_id, [_engineers(management)])
    customers = _named(
        _CUSTOMERS,
        management.roles.list(),
        lambda: management.roles.create(_CUSTOMERS, "Agents can act as them", "User"),
    ).id
    for username, name in _SAMPLES.items():
        try:
            user_id = management.users.create(username=username, name=name, primary_email=f"{username}@example.com").id
        except Conflict:
            continue  # created by an earlier start
        management.users.assign_roles(user_id, [customers])
    return Registration(desk, its_backend, customers)


def _with_secret(management: ManagementClient, client_id: str, address: str) -> Client:
    if any(secret.name == address for secret in management.applications.secrets(client_id)):
        management.applications.delete_secret(client_id, address)
    secret = management.applications.create_secret(client_id, address)
    return Client(client_id, secret.value or "")


def _backend(management: ManagementClient, management_api: str) -> Application:
    """Return the backend's application, which may read the Management API, and request subject tokens."""
    application = _named(
        _BACKEND,
        management.applications.list(types=["MachineToMachine"]),
        lambda: management.applications.create(name=_BACKEND, type="MachineToMachine"),
    )
    role = _named(
        _BACKEND,
        management.roles.list(),
        lambda: management.roles.create(_BACKEND, "May find customers and act as them", "MachineToMachine"),
    )
    resource = next(each for each in management.resources.list() if each.indicator == management_api)
    scopes = [each.id for each in management.resources.scopes(resource.id) if each.name in BACKEND_SCOPES]
    management.roles.assign_scopes(role.id, scopes)
    management.applications.assign_roles(application.id, [role.id])
    return application


def _application(management: ManagementClient, desk_url: str) -> Application:
    """Return the application, with the redirect URIs of this address added."""
    found = _named(
        _NAME,
        management.applications.list(),
        lambda: management.applications.create(
            name=_NAME, type="Traditional", custom_client_metadata=CustomClientMetadata(allow_token_exchange=True)
        ),
    )
    registered = found.oidc_client_metadata
    if f"{desk_url}/callback" in registered.redirect_uris:
        return found
    extended = OidcClientMetadata(
        redirect_uris=[*registered.redirect_uris, f"{desk_url}/callback"],
        post_logout_redirect_uris=[*registered.post_logout_redirect_uris, f"{desk_url}/"],
    )
    return management.applications.update(found.id, oidc_client_metadata=extended)


def _engineers(management: ManagementClient) -> str:
    """Return the API role that grants the scopes of the backend."""
    resource = next((each for each in management.resources.list() if each.indicator == backend.AUDIENCE), None)
    if resource is None:
        resource = management.resources.create("Support backend", backend.AUDIENCE)
    scopes = {scope.name: scope.id for scope in management.resources.scopes(resource.id)}
    for name, description in _SCOPES.items():
        if name not in scopes:
            scopes[name] = management.resources.create_scope(resource.id, name, description).id
    role = _named(
        _ENGINEERS,
        management.roles.list(),
        lambda: management.roles.create(_ENGINEERS, "May act as customers", "User"),
    )
    management.roles.assign_scopes(role.id, list(scopes.values()))
    return role.id


def _named(name: str, items: Iterable[_Item], create: Callable[[], _Item]) -> _Item:
    return next((item for item in items if item.name == name), None) or create()
