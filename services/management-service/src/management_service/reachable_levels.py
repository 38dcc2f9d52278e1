"""Which levels of a sign-in can be demanded here."""

from identity_common.failures import Conflict


def require_reachable(level: object, *, offers_passkeys: bool) -> None:
    """Refuse a demand that no sign-in could meet.

    Args:
        level: What is demanded, if anything.
        offers_passkeys: Whether passkeys can be used here.

    Raises:
        Conflict: It takes a passkey.
    """
    if level == "phr" and not offers_passkeys:
        message = "The host of BASE_URL is an IP address, so there are no passkeys here, and no sign-in would be phr."
        raise Conflict("factor.no_passkeys", message)
