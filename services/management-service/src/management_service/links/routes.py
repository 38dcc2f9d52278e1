"""``/api/users/{userId}/verification-email``."""

from litestar import Controller, post
from litestar.di import NamedDependency
from litestar.params import FromPath

from identity_common.access.parents import parent_exists
from identity_common.http.openapi.declarations import PUBLISHES_NOTHING, documented
from management_service.links.verification import EmailVerifications


class VerificationEmailController(Controller):
    """Mails that verify e-mail addresses."""

    path = "/users/{user_id:str}/verification-email"
    tags = ("Users",)
    guards = (parent_exists("user"),)

    @post(
        "/",
        operation_id="SendUserVerificationEmail",
        summary="Have a user's e-mail address verified",
        status_code=204,
        opt={**PUBLISHES_NOTHING, **documented(refuses=(422, 429))},
    )
    async def send(self, user_id: FromPath[str], email_verifications: NamedDependency[EmailVerifications]) -> None:
        """Mail a link to the user's e-mail address; opening it, and a click there, verify the address.

        The link is valid for a day and replaces an earlier one. An address, and a user, gets three such mails in a
        quarter of an hour. Refused if the address is verified, or if no mail is sent here.
        """
        await email_verifications.request_present(user_id)
