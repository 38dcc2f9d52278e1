"""``/api/organizations``."""

from typing import Final

from litestar import Controller, Response, delete, get, patch, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody
from msgspec import UNSET, Raw, UnsetType, structs

from identity_common.access.management_api import admitted_caller
from identity_common.fields import Answer, FreeFormAnswer
from identity_common.http.json_body import JsonRequest
from identity_common.http.listing import PAGED, Listing
from identity_common.http.openapi.declarations import Filter, Flag, documented
from stead.event_types import MemberType
from template_service.organizations.rules import OrganizationCreation, OrganizationUpdate
from template_service.organizations.service import Organizations
from template_service.organizations.store import Featured, FeaturedUser, Organization

_SHOW_FEATURED: Final = Flag(
    "showFeatured", "Include the number of users of each organization, and three example users."
)

_WITHOUT_USER: Final = Filter("excludeUserId", "Only organizations that this user is not a member of.")
_WITHOUT_APPLICATION: Final = Filter(
    "excludeApplicationId", "Only organizations that this application is not a member of."
)


class OrganizationAnswer(Answer):
    """An organization.

    Attributes:
        tenant_id: Id of the tenant.
        id: Id of the organization.
        name: Display name.
        description: Description.
        custom_data: Free-form object for the integrator.
        is_mfa_required: Whether users get tokens for the organization only from a sign-in with a second factor or a
            passkey; in an impersonation, the actor's counts.
        color: Free-form object for your own pages; the console marks the organization with its ``primaryColor``,
            such as ``#5d34f2``.
        branding: Always empty: not supported.
        custom_css: Always empty or null: not supported.
        created_at: Time of creation, milliseconds since the epoch.
    """

    tenant_id: str
    id: str
    name: str
    description: str | None
    custom_data: FreeFormAnswer
    is_mfa_required: bool
    color: FreeFormAnswer
    branding: FreeFormAnswer
    custom_css: str | None
    created_at: int


class OrganizationListAnswer(OrganizationAnswer):
    """An organization and, on request, the number of its users and three of them.

    Attributes:
        users_count: The number of members that are users; on request.
        featured_users: At most three of them, with the lowest ids; on request, for callers that may read users.
    """

    users_count: int | UnsetType = UNSET
    featured_users: tuple[FeaturedUser, ...] | UnsetType = UNSET


def organization_answer(organization: Organization) -> OrganizationAnswer:
    """Return an organization as the API represents it."""
    fields = structs.asdict(organization)
    for name in ("custom_data", "color", "branding"):
        fields[name] = Raw(fields[name].encode())
    return OrganizationAnswer(**fields)


def _list_answer(organization: Organization, featured: Featured | None, *, shows_users: bool) -> OrganizationListAnswer:
    fields = structs.asdict(organization_answer(organization))
    if featured is not None:
        fields["users_count"] = featured.users_count
        if shows_users:
            fields["featured_users"] = featured.users
    return OrganizationListAnswer(**fields)


class OrganizationController(Controller):
    """Organizations."""

    path = "/organizations"
    tags = ("Organizations",)
    dependencies = PAGED

    @post("/", operation_id="CreateOrganization", summary="Create an organization")
    async def create_organization(
        self, data: JSONBody[OrganizationCreation], organizations: NamedDependency[Organizations]
    ) -> OrganizationAnswer:
        """Create an organization without members."""
        return organization_answer(await organizations.create(data))

    @get(
        "/",
        operation_id="ListOrganizations",
        summary="List organizations",
        opt=documented(flags=(_SHOW_FEATURED,), filters=(_WITHOUT_USER, _WITHOUT_APPLICATION)),
    )
    async def list_organizations(
        self, listing: NamedDependency[Listing], request: JsonRequest, organizations: NamedDependency[Organizations]
    ) -> Response[list[OrganizationListAnswer]]:
        """List organizations by name; ``q`` searches ids, names and descriptions.

        ``featuredUsers`` is left out for callers that may not read users.
        """
        with_featured = listing.flag(_SHOW_FEATURED.name)
        without: dict[MemberType, str | None] = {
            "user": listing.filter(_WITHOUT_USER.name),
            "application": listing.filter(_WITHOUT_APPLICATION.name),
        }
        found, total = await organizations.list_organizations(
            listing.page, with_featured=with_featured, without=without
        )
        shows_users = admitted_caller(request).may("users:read")
        return listing.answer([_list_answer(*each, shows_users=shows_users) for each in found], total)

    @get("/{organization_id:str}", operation_id="GetOrganization", summary="Get an organization")
    async def get_organization(
        self, organization_id: FromPath[str], organizations: NamedDependency[Organizations]
    ) -> OrganizationAnswer:
        """Get one organization."""
        return organization_answer(await organizations.get(organization_id))

    @patch(
        "/{organization_id:str}",
        operation_id="UpdateOrganization",
        summary="Update an organization",
    )
    async def update_organization(
        self,
        organization_id: FromPath[str],
        data: JSONBody[OrganizationUpdate],
        organizations: NamedDependency[Organizations],
    ) -> OrganizationAnswer:
        """Change the given fields; null clears a field, an object is replaced as a whole."""
        return organization_answer(await organizations.update(organization_id, data))

    @delete(
        "/{organization_id:str}",
        operation_id="DeleteOrganization",
        summary="Delete an organization",
        status_code=204,
    )
    async def delete_organization(
        self, organization_id: FromPath[str], organizations: NamedDependency[Organizations]
    ) -> None:
        """Delete an organization and its memberships."""
        await organizations.delete(organization_id)
