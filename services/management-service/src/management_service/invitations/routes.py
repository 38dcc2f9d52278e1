"""``/api/users/{userId}/invitation``, ``/api/invitations``, and ``/api/invitations/accept`` for the invited user."""

from typing import Final, cast, get_args

from litestar import Controller, Response, delete, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody

from identity_common.access.management_api import Access
from identity_common.access.own_sign_in import recent_if_own
from identity_common.access.parents import parent_exists
from identity_common.fields import Answer
from identity_common.http.auditing import audit_request
from identity_common.http.client_address import client_address
from identity_common.http.json_body import JsonRequest
from identity_common.http.listing import PAGED, Listing
from identity_common.http.openapi.declarations import CHANGES_DIRECTORY, PUBLISHES_NOTHING, Filter, documented
from management_service.invitations.rules import (
    InvitationAcceptance,
    InvitationCreation,
    InvitationStatus,
    OpenInvitation,
)
from management_service.invitations.service import Invitations

_TAG: Final = "Invitations"
_STATUS: Final = Filter("status", "Only those that are pending, or only the others.", values=get_args(InvitationStatus))
_USER: Final = Filter("userId", "Only the one of this user.")


class InvitationAnswer(Answer):
    """A new invitation, shown once.

    Attributes:
        invitation: Its value, which the invited user needs.
        expires_at: When it expires, milliseconds since the epoch.
    """

    invitation: str
    expires_at: int


class InvitationController(Controller):
    """The invitation of a user."""

    path = "/users/{user_id:str}/invitation"
    tags = (_TAG,)
    guards = (parent_exists("user"),)

    @post(
        "/",
        operation_id="CreateUserInvitation",
        summary="Invite a user to choose a password",
        status_code=200,
        opt=PUBLISHES_NOTHING,
        guards=[recent_if_own],
    )
    async def create_invitation(
        self, user_id: FromPath[str], data: JSONBody[InvitationCreation], invitations: NamedDependency[Invitations]
    ) -> InvitationAnswer:
        """Create an invitation, which is shown once; it replaces the user's earlier one.

        It can be accepted once, until it expires, the password is set in another way, or the user is suspended. Users
        who invite themselves must have signed in at most 600 seconds ago.
        """
        value, expires_at = await invitations.create(user_id, minutes=data.minutes)
        return InvitationAnswer(invitation=value, expires_at=expires_at)

    @delete(
        "/",
        operation_id="DeleteUserInvitation",
        summary="Withdraw a user's invitation",
        status_code=204,
        opt=PUBLISHES_NOTHING,
    )
    async def withdraw(self, user_id: FromPath[str], invitations: NamedDependency[Invitations]) -> None:
        """Withdraw the invitation of a user, if there is one."""
        await invitations.withdraw(user_id)


class OpenInvitationController(Controller):
    """The invitations that were not accepted."""

    path = "/invitations"
    tags = (_TAG,)
    dependencies = PAGED

    @get(
        "/",
        operation_id="ListInvitations",
        summary="List open invitations",
        opt=documented(filters=(_STATUS, _USER), refuses=(422,)),
    )
    async def list_invitations(
        self, listing: NamedDependency[Listing], invitations: NamedDependency[Invitations]
    ) -> Response[list[OpenInvitation]]:
        """List the invitations that were not accepted, pending or expired, in the order in which they expire.

        One that was replaced, was withdrawn, or ended with a new password or a suspension is not listed. ``q`` searches
        in the ids, names, user names, e-mail addresses and phone numbers of the invited users.
        """
        status = cast("InvitationStatus | None", listing.filter(_STATUS.name))
        found, total = await invitations.list_open(listing.page, status=status, user_id=listing.filter(_USER.name))
        return listing.answer(found, total)


@post(
    "/invitations/accept",
    operation_id="AcceptInvitation",
    summary="Accept an invitation",
    tags=[_TAG],
    status_code=204,
    opt={**CHANGES_DIRECTORY, **documented(refuses=(422,))},
)
async def accept(
    request: JsonRequest, data: JSONBody[InvitationAcceptance], invitations: NamedDependency[Invitations]
) -> None:
    """Set the password of the invited user, without an access token: the invitation is the credential."""
    access: Access = request.app.state.management_access
    audit_request(
        request.scope,
        request.route_handler,
        application_id=None,
        user_id=None,
        token_id="",
        address=client_address(request.scope, trusted_proxies=access.trusted_proxies),
    )
    await invitations.accept(data)
