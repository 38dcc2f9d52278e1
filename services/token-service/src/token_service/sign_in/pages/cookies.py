"""Names of the three cookies: the session, the browser's secret, and which users the browser is known to."""

from typing import Final

SESSION: Final = "identity-session"
BROWSER: Final = "identity-browser"
DEVICE: Final = "identity-device"
