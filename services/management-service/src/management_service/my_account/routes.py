"""``/api/my-account``: people read and change their own account.

The caller is the person: a userinfo token of their own sign-in, with the scope ``account``. What changes how they sign
in needs a recent sign-in.
"""

from typing import Final

from litestar import Controller, Response, get, patch, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody
from msgspec import UNSET

from identity_common.access.management_api import admitted_caller
from identity_common.access.own_sign_in import ACCOUNT, ACCOUNT_SIGN_IN, require_recent_sign_in
from identity_common.audited_request import audit_reason
from identity_common.http.json_body import JsonRequest
from identity_common.http.openapi.declarations import PUBLISHES_NOTHING, documented
from management_service.impersonations.own_routes import own_page
from management_service.impersonations.register import ImpersonationRegister
from management_service.impersonations.routes import ACTIVE, EXAMPLE, PAGES
from management_service.impersonations.rules import ImpersonationEnding
from management_service.impersonations.service import Impersonations
from management_service.my_account.rules import (
    MyAccount,
    MyAccountUpdate,
    MyEmail,
    MyImpersonation,
    MyPassword,
    MyProfileUpdate,
    shown_profile,
)
from management_service.my_account.service import MyAccounts
from management_service.users.store import User

_TAG: Final = "My account"
_EXAMPLE: Final = {**EXAMPLE, "actorName": "Alice Archer", "clientName": "Support desk"}


def _user_id(request: JsonRequest) -> str:
    return admitted_caller(request).user_id or ""


async def _shown(user: User, my_accounts: MyAccounts) -> MyAccount:
    return MyAccount(
        tenant_id=user.tenant_id,
        id=user.id,
        username=user.username,
        primary_email=user.primary_email,
        primary_phone=user.primary_phone,
        name=user.name,
        avatar=user.avatar,
        profile=shown_profile(user.profile),
        is_email_verified=user.is_email_verified,
        has_password=user.has_password,
        can_change_password=await my_accounts.can_change_password(user.id),
        can_change_email=my_accounts.can_change_email,
        created_at=user.created_at,
        updated_at=user.updated_at,
    )


class MyAccountController(Controller):
    """The person's account, and how they sign in."""

    path = "/my-account"
    tags = (_TAG,)

    @get("/", operation_id="GetOwnAccount", summary="Get the person's own account", opt=documented(own_sign_in=ACCOUNT))
    async def get_account(self, request: JsonRequest, my_accounts: NamedDependency[MyAccounts]) -> MyAccount:
        """Get the account of the person who is signed in."""
        user = await my_accounts.get(_user_id(request))
        return await _shown(user, my_accounts)

    @patch(
        "/",
        operation_id="UpdateOwnAccount",
        summary="Update the person's own account",
        opt=documented(own_sign_in=ACCOUNT),
    )
    async def update_account(
        self, request: JsonRequest, data: JSONBody[MyAccountUpdate], my_accounts: NamedDependency[MyAccounts]
    ) -> MyAccount:
        """Change the given fields; null clears one.

        A change of the user name, which is for signing in, needs a sign-in at most 600 seconds ago. A user name, an
        e-mail address or a telephone number must remain.
        """
        if data.username is not UNSET:
            require_recent_sign_in(admitted_caller(request))
        user = await my_accounts.update(_user_id(request), data)
        return await _shown(user, my_accounts)

    @patch(
        "/profile",
        operation_id="UpdateOwnProfile",
        summary="Update the person's own profile",
        opt=documented(own_sign_in=ACCOUNT, never=(422,)),
    )
    async def update_profile(
        self, request: JsonRequest, data: JSONBody[MyProfileUpdate], my_accounts: NamedDependency[MyAccounts]
    ) -> MyAccount:
        """Change the given fields of the profile; null removes one. All other fields are kept."""
        user = await my_accounts.update_profile(_user_id(request), data)
        return await _shown(user, my_accounts)

    @post(
        "/password",
        operation_id="UpdateOwnPassword",
        summary="Change the person's own password",
        status_code=204,
        opt=documented(own_sign_in=ACCOUNT_SIGN_IN, refuses=(429,)),
    )
    async def set_password(
        self, request: JsonRequest, data: JSONBody[MyPassword], my_accounts: NamedDependency[MyAccounts]
    ) -> None:
        """Set a new password, which ends every session of the person and all earlier tokens, this request's too.

        A person without a password, for example after an invitation by other means, sets the first one. Wrong current
        passwords are limited, apart from sign-ins: beyond the limit, the response is 429.
        """
        await my_accounts.set_password(admitted_caller(request), data)

    @post(
        "/primary-email",
        operation_id="UpdateOwnPrimaryEmail",
        summary="Change the person's own e-mail address",
        status_code=204,
        opt={**PUBLISHES_NOTHING, **documented(own_sign_in=ACCOUNT_SIGN_IN, refuses=(429,))},
    )
    async def request_email(
        self, request: JsonRequest, data: JSONBody[MyEmail], my_accounts: NamedDependency[MyAccounts]
    ) -> None:
        """Send a link to a new e-mail address, which becomes the person's once they have followed it.

        The earlier address is told then. The response is the same if another account has the address: only who receives
        its mail learns that, from the page that the link leads to. Refused where no mail is sent (``canChangeEmail``);
        to people who sign in at a provider because of the present address; and, with 429, beyond three mails in a
        quarter of an hour.
        """
        await my_accounts.request_email(admitted_caller(request), data.email)


class MyImpersonationController(Controller):
    """Lists the impersonations of the person's own account, and ends them one by one."""

    path = "/my-account/impersonations"
    tags = (_TAG,)

    @get(
        "/",
        operation_id="ListOwnAccountImpersonations",
        summary="List who acted as the person",
        opt=documented(example=[_EXAMPLE], filters=(ACTIVE, *PAGES), headers=("Link",), own_sign_in=ACCOUNT),
    )
    async def list_impersonations(
        self,
        request: JsonRequest,
        impersonation_register: NamedDependency[ImpersonationRegister],
        my_accounts: NamedDependency[MyAccounts],
    ) -> Response[list[MyImpersonation]]:
        """List impersonations in which the person is the subject, newest first."""
        page = await own_page(request, impersonation_register)
        return Response(await my_accounts.named(page.content), headers=page.headers)

    @post(
        "/{impersonation_id:str}/end",
        operation_id="EndOwnAccountImpersonation",
        summary="End an impersonation of the person",
        status_code=204,
        opt=documented(body=ImpersonationEnding, body_required=False, refuses=(422,), own_sign_in=ACCOUNT),
    )
    async def end(
        self,
        impersonation_id: FromPath[str],
        request: JsonRequest,
        impersonations: NamedDependency[Impersonations],
    ) -> None:
        """End an impersonation in which the person is the subject, and those within it; see EndOwnImpersonation."""
        audit_reason((await request.options_as(ImpersonationEnding)).reason or None)
        await impersonations.end_own(_user_id(request), impersonation_id)
