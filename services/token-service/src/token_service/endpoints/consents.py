"""``/api/users/{userId}/consents``: what a user has agreed to, by application, for callers of the Management API."""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from litestar import Controller, delete, get
from litestar.di import NamedDependency
from litestar.params import FromPath

from identity_common.http.api_errors import missing_by_id, store_unavailable
from identity_common.oauth import OAuthError
from token_service.authorizations import Authorizations, Consent, Consents
from token_service.directory import Directory
from token_service.endpoints.management_access import require_management


class ResourceConsent(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was agreed to for one API resource.

    Attributes:
        resource: Its indicator.
        scopes: Names, sorted.
    """

    resource: str
    scopes: list[str]


class ConsentView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a user has agreed to for one application. Everything is sorted.

    Attributes:
        scopes: About the person.
        organization_permissions: Names.
        organization_ids: That were picked for an application of somebody else; one of ours has no need of it.
        consented_at: The last time that something was added, milliseconds since the epoch.
    """

    tenant_id: str
    application_id: str
    scopes: list[str]
    resources: list[ResourceConsent]
    organization_permissions: list[str]
    organization_ids: list[str]
    consented_at: int


class ConsentController(Controller):
    """Reading and withdrawing consents."""

    path = "/api/users/{user_id:str}/consents"
    tags = ["Users"]  # noqa: RUF012 - the framework's way
    guards = [require_management]  # noqa: RUF012 - the framework's way

    @get("/", operation_id="ListUserConsents", summary="List what a user has agreed to")
    async def list_consents(
        self,
        user_id: FromPath[str],
        directory: NamedDependency[Directory],
        consents: NamedDependency[Consents],
        tenant_id: NamedDependency[str],
    ) -> list[ConsentView]:
        """Answer the consents of a user, one for each application, by its id."""
        with _stores_answer():
            await _require_user(directory, user_id)
            found = await consents.of_user(user_id)
            deleted = directory.in_memory.is_deleted  # what was agreed to for those is forgotten in a while
            return [_view(consent, tenant_id) for consent in found if not deleted(consent.application_id)]

    @delete("/{application_id:str}", operation_id="DeleteUserConsent", summary="Withdraw what a user has agreed to")
    async def withdraw_consent(
        self,
        user_id: FromPath[str],
        application_id: FromPath[str],
        directory: NamedDependency[Directory],
        authorizations: NamedDependency[Authorizations],
    ) -> None:
        """Answer 204; what the application got for the user counts no more, and the user is asked anew."""
        with _stores_answer():
            await _require_user(directory, user_id)
            if not await authorizations.withdraw_consent(user_id, application_id):
                raise missing_by_id("entity.not_found")


async def _require_user(directory: Directory, user_id: str) -> None:
    if await directory.person(user_id, at_least={}) is None:
        raise missing_by_id()


@contextmanager
def _stores_answer() -> Iterator[None]:
    """Say in the words of the Management API that a store does not answer."""
    try:
        yield
    except OAuthError:
        raise store_unavailable() from None


def _view(consent: Consent, tenant_id: str) -> ConsentView:
    consented = consent.consented
    return ConsentView(
        tenant_id=tenant_id,
        application_id=consent.application_id,
        scopes=sorted(consented.scopes),
        resources=[
            ResourceConsent(resource=indicator, scopes=sorted(names))
            for indicator, names in sorted(consented.resource_scopes.items())
        ],
        organization_permissions=sorted(consented.organization_permissions),
        organization_ids=sorted(consented.organizations or ()),
        consented_at=consent.consented_at,
    )
