"""Turns failures of a store into OAuth errors."""

from identity_common.failures import StoreUnavailable
from identity_common.oauth import OAuthError, temporarily_unavailable
from identity_common.telemetry.logs import get_logger

_log = get_logger(__name__)


def redis_unavailable(error: StoreUnavailable, description: str) -> OAuthError:
    """Log that Redis is away; return ``temporarily_unavailable``.

    Args:
        error: The failure.
        description: For the developer of the client.
    """
    _log.warning("store.unavailable", store="redis", error=str(error))
    return temporarily_unavailable(description)
