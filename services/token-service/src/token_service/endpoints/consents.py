"""The consents of a user: for callers of the Management API, and for the user.

``/api/users/{userId}/consents`` and ``/api/my-account/consents``.
"""

import msgspec
from litestar import Controller, delete, get
from litestar.di import NamedDependency
from litestar.params import FromPath

from identity_common.access.management_api import require_management
from identity_common.access.own_sign_in import ACCOUNT, own_id, require_own_sign_in
from identity_common.failures import missing_by_id
from identity_common.http.json_body import JsonRequest
from identity_common.http.openapi.declarations import documented
from token_service.authorizations import Authorizations, Consent, Consents
from token_service.directory import Directory


class ResourceConsent(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The consented scopes of one API resource.

    Attributes:
        resource: Its indicator.
        scopes: Names, sorted.
    """

    resource: str
    scopes: list[str]


class ConsentView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The consent of a user to one application. All lists are sorted.

    Attributes:
        tenant_id: Id of the tenant.
        application_id: Id of the application.
        scopes: Scopes about the user.
        resources: Scopes of API resources.
        organization_permissions: Names.
        organization_ids: Organizations that the user picked for a third-party application; empty for a first-party one.
        consented_at: When it was last extended, milliseconds since the epoch.
        implicit: Whether any of it was recorded without a consent page, at a sign-in to a first-party application; that
            part does not count while the application is third-party.
    """

    tenant_id: str
    application_id: str
    scopes: list[str]
    resources: list[ResourceConsent]
    organization_permissions: list[str]
    organization_ids: list[str]
    consented_at: int
    implicit: bool


class OwnConsentView(ConsentView, frozen=True, kw_only=True, rename="camel"):
    """A consent, for the user that gave it. All lists are sorted.

    Attributes:
        tenant_id: Id of the tenant.
        application_id: Id of the application.
        application_name: Name of the application; empty until it is known here.
        scopes: Scopes about the user.
        resources: Scopes of API resources.
        organization_permissions: Names.
        organization_ids: Organizations that the user picked for a third-party application; empty for a first-party one.
        consented_at: When it was last extended, milliseconds since the epoch.
        implicit: Whether any of it was recorded without a consent page, at a sign-in to a first-party application; that
            part does not count while the application is third-party.
    """

    application_name: str


class ConsentController(Controller):
    """Lists and withdraws consents."""

    path = "/api/users/{user_id:str}/consents"
    tags = ["Users"]  # noqa: RUF012 - the framework's way
    guards = [require_management]  # noqa: RUF012 - the framework's way

    @get("/", operation_id="ListUserConsents", summary="List the consents of a user")
    async def list_consents(
        self,
        user_id: FromPath[str],
        directory: NamedDependency[Directory],
        consents: NamedDependency[Consents],
        tenant_id: NamedDependency[str],
    ) -> list[ConsentView]:
        """Return the consents of a user, one per application, sorted by its id."""
        await _require_user(directory, user_id)
        return [_view(consent, tenant_id) for consent in await _of_user(user_id, directory, consents)]

    @delete("/{application_id:str}", operation_id="DeleteUserConsent", summary="Withdraw a consent of a user")
    async def withdraw_consent(
        self,
        user_id: FromPath[str],
        application_id: FromPath[str],
        directory: NamedDependency[Directory],
        authorizations: NamedDependency[Authorizations],
    ) -> None:
        """Withdraw a consent: the application's tokens for the user are revoked, and the user is asked again.

        APIs that neither introspect nor follow the not-valid feed accept revoked tokens until they expire.
        """
        await _require_user(directory, user_id)
        if not await authorizations.withdraw_consent(user_id, application_id):
            raise missing_by_id("entity.not_found")


class OwnConsentController(Controller):
    """Lists and withdraws the user's own consents."""

    path = "/api/my-account/consents"
    tags = ("My account",)
    guards = (require_own_sign_in,)

    @get(
        "/",
        operation_id="ListOwnConsents",
        summary="List the user's own consents",
        opt=documented(own_sign_in=ACCOUNT),
    )
    async def list_consents(
        self,
        request: JsonRequest,
        directory: NamedDependency[Directory],
        consents: NamedDependency[Consents],
        tenant_id: NamedDependency[str],
    ) -> list[OwnConsentView]:
        """Return the user's consents, one per application, sorted by its id."""
        found = await _of_user(own_id(request), directory, consents)
        return [
            OwnConsentView(
                **msgspec.structs.asdict(_view(consent, tenant_id)),
                application_name=_name_of(consent.application_id, directory),
            )
            for consent in found
        ]

    @delete(
        "/{application_id:str}",
        operation_id="WithdrawOwnConsent",
        summary="Withdraw one of the user's own consents",
        opt=documented(own_sign_in=ACCOUNT),
    )
    async def withdraw_consent(
        self,
        application_id: FromPath[str],
        request: JsonRequest,
        authorizations: NamedDependency[Authorizations],
    ) -> None:
        """Withdraw a consent: the application's tokens for the user are revoked, and the user is asked again.

        APIs that neither introspect nor follow the not-valid feed accept revoked tokens until they expire.
        """
        if not await authorizations.withdraw_consent(own_id(request), application_id):
            raise missing_by_id("entity.not_found")


async def _require_user(directory: Directory, user_id: str) -> None:
    if await directory.person(user_id, at_least={}) is None:
        raise missing_by_id()


async def _of_user(user_id: str, directory: Directory, consents: Consents) -> list[Consent]:
    found = await consents.of_user(user_id)
    deleted = directory.in_memory.is_deleted  # consents to deleted applications are deleted later
    return [consent for consent in found if not deleted(consent.application_id)]


def _name_of(application_id: str, directory: Directory) -> str:
    application = directory.in_memory.application(application_id)
    return "" if application is None else application.name


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
        implicit=consent.implicit,
    )
