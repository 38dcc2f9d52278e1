"""Names of the cookies: the session, the browser's secret, the users that have signed in with it before, and links."""

from typing import Final

SESSION: Final = "identity-session"
BROWSER: Final = "identity-browser"
DEVICE: Final = "identity-device"
INVITATION: Final = "identity-invitation"
RECOVERY: Final = "identity-recovery"
REGISTRATION: Final = "identity-registration"
VERIFICATION: Final = "identity-verification"
