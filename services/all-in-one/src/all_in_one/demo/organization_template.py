"""Act two: a permission is granted and revoked, and tokens and subscribers follow."""

import asyncio
import contextlib
from collections.abc import AsyncIterable, AsyncIterator
from datetime import UTC, datetime
from typing import Final, Protocol, TypeVar

import msgspec

from all_in_one.demo.browser import sign_in_as
from all_in_one.demo.screen import act, show, show_claims, step
from provision.credentials import Credentials
from provision.seed import redirect_uri
from stead import AccessTokenVerifier, AsyncIdentityClient, AsyncManagementClient
from stead.events import EventBus, PermissionChange, permission_changes

_PERMISSION: Final = "approve:refunds"
_ROLE: Final = "Demo refund clerk"
_ORGANIZATION: Final = "Demo organization"


class _Named(Protocol):
    @property
    def name(self) -> str: ...


_Item = TypeVar("_Item", bound=_Named)


class _Created(msgspec.Struct, frozen=True):
    """Ids of the objects that the administrator works with."""

    permission: str
    role: str
    organization: str


async def organization_template(credentials: Credentials) -> None:
    """Grant a permission and revoke it again.

    Raises:
        IdentityError: The stack refused a step, or did not answer.
    """
    customer = credentials.demo.users[1]
    began = datetime.now(UTC)
    async with contextlib.AsyncExitStack() as entered:
        management = await entered.enter_async_context(_management(credentials))
        act(f"Act two: {customer.username} may approve refunds, and then may not")
        step("1. An administrator defines a permission and a role for all organizations, and assigns the role.")
        made = await _make(management, customer.id)
        show("permission", _PERMISSION)
        show("role", f"{_ROLE}, which grants it")
        show("assigned to", f"{customer.username}, as a member of {_ORGANIZATION}")

        step(f"2. {customer.username.capitalize()} signs in; the application gets an organization token.")
        client = await entered.enter_async_context(_signed_in(credentials))
        tokens = client.watch_organization_scopes(made.organization)
        _show_token(credentials, made.organization, await anext(tokens))

        step("3. The administrator revokes the permission: the role no longer grants it.")
        await management.organization_roles.remove_permission(made.role, made.permission)

        step("4. Another team's subscriber on the bus has received every change made here.")
        bus = await entered.enter_async_context(_subscriber(credentials))
        async for change in permission_changes(bus, organization_id=made.organization, since=began):
            _show_change(change)
            if _PERMISSION in (each.name for each in change.removed):
                break

        step("5. The application watches the permissions, and now has a new token without it.")
        _show_token(credentials, made.organization, await anext(tokens))


def _management(credentials: Credentials) -> AsyncManagementClient:
    access = credentials.management_api
    return AsyncManagementClient(
        credentials.base_url,
        client_id=access.client_id,
        client_secret=access.client_secret,
        resource=access.resource,
    )


def _subscriber(credentials: Credentials) -> EventBus:
    return EventBus(credentials.nats.url, user=credentials.nats.user, password=credentials.nats.password)


async def _make(management: AsyncManagementClient, user_id: str) -> _Created:
    """Make the user a member with a role that grants the permission; reuses what an earlier run created."""
    permissions, roles, organizations = (
        management.organization_permissions,
        management.organization_roles,
        management.organizations,
    )
    made = _Created(
        permission=(await _named(_PERMISSION, permissions.list()) or await permissions.create(_PERMISSION)).id,
        role=(await _named(_ROLE, roles.list()) or await roles.create(_ROLE)).id,
        organization=(
            await _named(_ORGANIZATION, organizations.list()) or await organizations.create(_ORGANIZATION)
        ).id,
    )
    await roles.assign_permissions(made.role, [made.permission])
    await organizations.add_users(made.organization, [user_id])
    await organizations.assign_user_roles(made.organization, user_id, [made.role])
    return made


async def _named(name: str, items: AsyncIterable[_Item]) -> _Item | None:
    async for item in items:
        if item.name == name:
            return item
    return None


@contextlib.asynccontextmanager
async def _signed_in(credentials: Credentials) -> AsyncIterator[AsyncIdentityClient]:
    """Sign the customer in to an application that requests the permission."""
    application = credentials.traditional
    back = redirect_uri(credentials.base_url)
    async with AsyncIdentityClient(
        credentials.base_url,
        application.client_id,
        application.client_secret,
        scopes=[f"urn:{credentials.urn_namespace}:scope:organizations", _PERMISSION],
    ) as client:
        url = client.sign_in_url(back)
        await client.handle_callback(await asyncio.to_thread(sign_in_as, credentials.demo.users[1], url, back))
        yield client


def _show_change(change: PermissionChange) -> None:
    what = [f"+{each.name}" for each in change.added] + [f"-{each.name}" for each in change.removed]
    show(f"version {change.version}", f"{', '.join(what)} ({change.cause})")


def _show_token(credentials: Credentials, organization_id: str, token: str) -> None:
    audience = f"urn:{credentials.urn_namespace}:organization:{organization_id}"
    verifier = AccessTokenVerifier(issuer=f"{credentials.base_url}/oidc", audience=audience)
    show_claims(verifier.verify(token), "aud", "sub", "scope")
