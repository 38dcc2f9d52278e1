"""Names of the cookies: the session, the browser's secret, the users that have signed in with it before, and links."""

from typing import Final

from litestar.datastructures import Cookie

from identity_common.pages.cookies import Cookies
from token_service.sign_in.devices import DEVICE_TTL_S
from token_service.sign_in.sign_ins import Begun

SESSION: Final = "identity-session"
BROWSER: Final = "identity-browser"
DEVICE: Final = "identity-device"
INVITATION: Final = "identity-invitation"
RECOVERY: Final = "identity-recovery"
REGISTRATION: Final = "identity-registration"
VERIFICATION: Final = "identity-verification"


def of_sign_in(begun: Begun, cookies: Cookies) -> list[Cookie]:
    """Return the cookies of a sign-in that began or went on."""
    session = cookies.set(SESSION, begun.session_cookie, max_age_s=begun.max_age_s)
    if begun.device_cookie is None:
        return [session]
    return [session, cookies.set(DEVICE, begun.device_cookie, max_age_s=DEVICE_TTL_S)]
