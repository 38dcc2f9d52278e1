"""Creates the demo data over HTTP with the SDK: idempotent, and adapted to the address of the stack."""

import secrets
import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final, Literal, TypeVar

from identity_common.rights.roles import ADMINISTRATOR
from identity_common.rights.scopes import MANAGEMENT_SCOPES, SCOPE_ALL, SCOPE_SUBJECT_TOKENS
from provision.credentials import (
    Administrator,
    BusSubscriber,
    ConfidentialClient,
    Credentials,
    Demo,
    DemoUser,
    ManagementApi,
    PublicClient,
)
from provision.errors import ProvisionError
from stead import (
    Conflict,
    CustomClientMetadata,
    ManagementClient,
    OAuthError,
    OidcClientMetadata,
    Resource,
    User,
    client_credentials,
)

RESOURCE: Final = "https://orders.example.com/api"
SCOPES: Final = {"read:orders": "See orders", "write:orders": "Change and cancel orders"}
_AGENT: Final = ("agent", "Support agent", ("read:orders",))
_CUSTOMER: Final = ("customer", "Customer", ("read:orders", "write:orders"))
_TRADITIONAL: Final = "Demo web application"
_SPA: Final = "Demo single-page application"
_SECRET: Final = "demo"  # noqa: S105 - the secret's name
_ADMINISTRATOR: Final = "administrator"
_CONSOLE: Final = "Console"
_ACCOUNT: Final = "Account page"
_BACKEND: Final = "Demo backend"

_KNOWN_WITHIN_S: Final = 10.0

Item = TypeVar("Item")


def seed(
    base_url: str,
    *,
    urn_namespace: str,
    known: Credentials | None,
    bootstrap: Callable[[], ManagementApi],
    nats: BusSubscriber,
    management_url: str = "",
    token_url: str = "",
) -> Credentials:
    """Create what is missing and return everything needed to try the stack. Blocks.

    Args:
        base_url: The address of the stack.
        urn_namespace: The second part of its URNs.
        known: The credentials of an earlier start; their secrets and passwords are kept.
        bootstrap: Creates the first Management API client and the API's scopes; called unless the known client still
            works and no scope is missing.
        nats: The read-only user of the bus.
        management_url: Where management-service answers, if not at ``base_url``.
        token_url: Where token-service answers, if not at ``base_url``.
    """
    services = _Services(management=management_url or base_url, token=token_url or base_url)
    if known is not None and services.accept(known.management_api) and services.have_all_scopes(known.management_api):
        access = known.management_api
    else:
        access = bootstrap()
        services.wait_for(access)
    with services.management_client(access) as management:
        resource = _resource(management)
        known_users = {user.username: user for user in known.demo.users} if known else {}
        users = [
            _user(management, resource, *person, known=known_users.get(person[0])) for person in (_AGENT, _CUSTOMER)
        ]
        return Credentials(
            base_url=base_url,
            urn_namespace=urn_namespace,
            management_api=access,
            demo=Demo(resource=RESOURCE, scopes=sorted(SCOPES), users=users),
            backend=_backend(management, access.resource, known.backend if known else None),
            traditional=_traditional(management, base_url, known.traditional if known else None),
            spa=PublicClient(client_id=_application(management, base_url, _SPA, "SPA", may_exchange=False)),
            administrator=_administrator(management, access.resource, known.administrator if known else None),
            console=_console(management, base_url, known.console if known else None),
            account=_account(management, base_url, known.account if known else None),
            nats=nats,
        )


def redirect_uri(base_url: str) -> str:
    """Return the redirect URI of the demo's applications; it has no page, since ``make demo`` stops before it."""
    return f"{base_url}/demo/callback"


class _Services:
    """management-service and token-service, without an edge."""

    def __init__(self, *, management: str, token: str) -> None:
        self._management = management
        self._token = token

    def accept(self, access: ManagementApi) -> bool:
        """Return whether a token is issued to this client."""
        try:
            self._access_token(access)
        except OAuthError:
            return False
        return True

    def have_all_scopes(self, access: ManagementApi) -> bool:
        """Return whether the Management API has all its scopes; one that an earlier version set up may lack some."""
        with self.management_client(access) as management:
            resource = _first(management.resources.list(), lambda each: each.indicator == access.resource)
            if resource is None:
                return False
            return MANAGEMENT_SCOPES.keys() <= {scope.name for scope in management.resources.scopes(resource.id)}

    def wait_for(self, access: ManagementApi) -> None:
        """Block until the token endpoint knows a new client, which the bus tells it, or ten seconds have passed."""
        deadline = time.monotonic() + _KNOWN_WITHIN_S
        while not self.accept(access) and time.monotonic() < deadline:
            time.sleep(_KNOWN_WITHIN_S / 50)

    def management_client(self, access: ManagementApi) -> ManagementClient:
        @lru_cache(maxsize=1)
        def access_token(refused: str | None) -> str:
            return self._access_token(access)

        return ManagementClient(
            self._management, access_token=access_token, resource=access.resource, scope=access.scope
        )

    def _access_token(self, access: ManagementApi) -> str:
        return client_credentials(
            self._token,
            client_id=access.client_id,
            client_secret=access.client_secret,
            resource=access.resource,
            scope=access.scope,
        ).access_token


def _resource(management: ManagementClient) -> Resource:
    """Return the demo's resource, with all its scopes created."""
    resource = _first(management.resources.list(), lambda each: each.indicator == RESOURCE)
    if resource is None:
        resource = management.resources.create("Orders API", RESOURCE)
    existing = {scope.name for scope in management.resources.scopes(resource.id)}
    for name, description in SCOPES.items():
        if name not in existing:
            management.resources.create_scope(resource.id, name, description)
    return resource


def _user(
    management: ManagementClient,
    resource: Resource,
    username: str,
    name: str,
    scopes: tuple[str, ...],
    *,
    known: DemoUser | None,
) -> DemoUser:
    """Return a user who holds these scopes through an API role named after the user."""
    password = known.password if known else secrets.token_urlsafe(15)
    user = _first(management.users.list(exact={"username": username}), lambda each: each.username == username)
    if user is None:
        user = management.users.create(username=username, password=password, name=name)
    elif known is None or known.id != user.id:
        management.users.set_password(user.id, password)
    _give_address(management, user)
    role_id = _role(management, resource, f"Demo {username}", scopes)
    if role_id not in {role.id for role in management.users.roles(user.id)}:
        management.users.assign_roles(user.id, [role_id])
    return DemoUser(id=user.id, username=username, password=password, scopes=list(scopes))


def _give_address(management: ManagementClient, user: User) -> None:
    """Give a user of the demo an e-mail address, which links are mailed to, unless another user has that one."""
    if user.primary_email is None:
        address = f"{user.username}@example.com"
        if _first(management.users.list(exact={"primaryEmail": address}), lambda _: True) is None:
            management.users.update(user.id, primary_email=address, is_email_verified=True)


def _administrator(management: ManagementClient, management_api: str, known: Administrator | None) -> Administrator:
    """Return the console's administrator, who holds a role with the scope ``all``.

    Another user of this name, without the role, is left alone.
    """
    role_id = _role_granting(management, management_api, ADMINISTRATOR.name, SCOPE_ALL)
    holders = {user.username: user for user in management.roles.users(role_id)}
    if known is not None and known.username in holders:
        _give_address(management, holders[known.username])
        return known
    username, password = _ADMINISTRATOR, secrets.token_urlsafe(15)
    if username in holders:
        management.users.set_password(holders[username].id, password)
        _give_address(management, holders[username])
        return Administrator(username=username, password=password)
    if _first(management.users.list(exact={"username": username}), lambda _: True):
        username = f"{username}_{secrets.token_hex(2)}"
    user = management.users.create(username=username, password=password, name="Administrator")
    _give_address(management, user)
    management.users.assign_roles(user.id, [role_id])
    return Administrator(username=username, password=password)


def _console(management: ManagementClient, base_url: str, known: ConfidentialClient | None) -> ConfidentialClient:
    """Return the console's client: first-party, without token exchange, with the Management API for its users.

    It is the known one, or one that already redirects to the console and has what needs ``all``.
    """
    callback = f"{base_url}/console/callback"  # all that an earlier version registered
    addresses = OidcClientMetadata(
        redirect_uris=[callback, f"{base_url}/account/callback"],
        post_logout_redirect_uris=[f"{base_url}/console", f"{base_url}/account"],
    )
    named = [
        each
        for each in management.applications.list(search=_CONSOLE)
        if each.name == _CONSOLE and each.type == "Traditional"
    ]
    application = _first(named, lambda each: known is not None and each.id == known.client_id) or _first(
        named,
        lambda each: (
            each.custom_client_metadata.allow_management_api
            and {callback} <= set(each.oidc_client_metadata.redirect_uris) <= set(addresses.redirect_uris)
        ),
    )
    if application is None:
        application = management.applications.create(
            name=_CONSOLE,
            type="Traditional",
            oidc_client_metadata=addresses,
            custom_client_metadata=CustomClientMetadata(allow_management_api=True),
        )
    elif application.oidc_client_metadata.redirect_uris != addresses.redirect_uris:
        management.applications.update(application.id, oidc_client_metadata=addresses)
    return _with_secret(management, application.id, known)


def _account(management: ManagementClient, base_url: str, known: ConfidentialClient | None) -> ConfidentialClient:
    """Return the client of the account page, whose sign-in then has its name: the known one, or one that leads there.

    Another application of this name is left alone.
    """
    addresses = OidcClientMetadata(
        redirect_uris=[f"{base_url}/account/callback"], post_logout_redirect_uris=[f"{base_url}/account"]
    )
    application = _first(
        management.applications.list(search=_ACCOUNT),
        lambda each: (
            (each.name, each.type) == (_ACCOUNT, "Traditional")
            and (
                (known is not None and each.id == known.client_id)
                or each.oidc_client_metadata.redirect_uris == addresses.redirect_uris
            )
        ),
    )
    if application is None:
        application = management.applications.create(name=_ACCOUNT, type="Traditional", oidc_client_metadata=addresses)
    elif application.oidc_client_metadata != addresses:
        management.applications.update(application.id, oidc_client_metadata=addresses)
    return _with_secret(management, application.id, known)


def _backend(management: ManagementClient, management_api: str, known: ManagementApi | None) -> ManagementApi:
    """Return the integrator's backend, which may request subject tokens, and end the impersonations that it began.

    It is the holder of the role: another application of this name is left alone.
    """
    role_id = _role_granting(management, management_api, _BACKEND, SCOPE_SUBJECT_TOKENS, "MachineToMachine")
    application = _first(management.roles.applications(role_id), lambda each: each.name == _BACKEND)
    if application is None:
        application = management.applications.create(name=_BACKEND, type="MachineToMachine")
        management.applications.assign_roles(application.id, [role_id])
    earlier = ConfidentialClient(client_id=known.client_id, client_secret=known.client_secret) if known else None
    client = _with_secret(management, application.id, earlier)
    return ManagementApi(
        client_id=client.client_id,
        client_secret=client.client_secret,
        resource=management_api,
        scope=SCOPE_SUBJECT_TOKENS,
    )


def _role_granting(
    management: ManagementClient,
    management_api: str,
    name: str,
    scope: str,
    kind: Literal["User", "MachineToMachine"] = "User",
) -> str:
    """Return the id of the role of this name that grants a scope of the Management API; create one if it is missing.

    A name alone proves nothing: callers of the API may choose it, but not the scopes that they lack.

    Raises:
        ProvisionError: A role has the name, but not the scope or the type.
    """
    (resource,) = (each for each in management.resources.list() if each.indicator == management_api)
    (scope_id,) = (each.id for each in management.resources.scopes(resource.id) if each.name == scope)
    role = _first(management.roles.list(), lambda each: each.name == name)
    if role is None:
        return management.roles.create(name, "Created by the seed", kind, [scope_id]).id
    if role.type != kind or scope_id not in {each.id for each in management.roles.scopes(role.id)}:
        raise ProvisionError(f"the role {name!r} ({role.id}) does not grant the scope {scope!r}: rename or delete it")
    return role.id


def _role(management: ManagementClient, resource: Resource, name: str, scopes: tuple[str, ...]) -> str:
    scope_ids = [scope.id for scope in management.resources.scopes(resource.id) if scope.name in scopes]
    try:
        return management.roles.create(name, "Created by the seed", "User", scope_ids).id
    except Conflict:
        role_id = next(role.id for role in management.roles.list() if role.name == name)
        held = {scope.id for scope in management.roles.scopes(role_id)}
        if not held.issuperset(scope_ids):
            management.roles.assign_scopes(role_id, [each for each in scope_ids if each not in held])
        return role_id


def _application(management: ManagementClient, base_url: str, name: str, kind: str, *, may_exchange: bool) -> str:
    """Return the id of an application that redirects to this address."""
    oidc = OidcClientMetadata(redirect_uris=[redirect_uri(base_url)], post_logout_redirect_uris=[f"{base_url}/"])
    application = _first(management.applications.list(), lambda each: each.name == name and each.type == kind)
    if application is None:
        return management.applications.create(
            name=name,
            type=kind,  # type: ignore[arg-type]
            oidc_client_metadata=oidc,
            custom_client_metadata=CustomClientMetadata(allow_token_exchange=may_exchange),
        ).id
    if application.oidc_client_metadata != oidc:
        management.applications.update(application.id, oidc_client_metadata=oidc)
    return application.id


def _traditional(management: ManagementClient, base_url: str, known: ConfidentialClient | None) -> ConfidentialClient:
    client_id = _application(management, base_url, _TRADITIONAL, "Traditional", may_exchange=True)
    return _with_secret(management, client_id, known)


def _with_secret(management: ManagementClient, client_id: str, known: ConfidentialClient | None) -> ConfidentialClient:
    """Return an application with its known secret, or with a new one."""
    has_secret = any(secret.name == _SECRET for secret in management.applications.secrets(client_id))
    if known is not None and known.client_id == client_id and has_secret:
        return known
    if has_secret:
        management.applications.delete_secret(client_id, _SECRET)
    secret = management.applications.create_secret(client_id, _SECRET)
    return ConfidentialClient(client_id=client_id, client_secret=secret.value or "")


def _first(items: Iterable[Item], matches: Callable[[Item], bool]) -> Item | None:
    return next((item for item in items if matches(item)), None)
