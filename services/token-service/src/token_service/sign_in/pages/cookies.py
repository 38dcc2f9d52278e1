"""Names of the three cookies: the session, the browser's secret, and the users that have signed in with it before."""

from typing import Final

SESSION: Final = "identity-session"
BROWSER: Final = "identity-browser"
DEVICE: Final = "identity-device"
