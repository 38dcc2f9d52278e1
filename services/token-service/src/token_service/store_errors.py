"""Turns failures of a store into OAuth errors."""

import contextlib
from collections.abc import Generator

from sqlalchemy.exc import SQLAlchemyError

from identity_common.failures import StoreUnavailable
from identity_common.oauth import OAuthError, temporarily_unavailable
from identity_common.stores.database import failure_of
from identity_common.telemetry.logs import get_logger

_log = get_logger(__name__)


@contextlib.contextmanager
def database_answers() -> Generator[None, None, None]:
    """Turn a lost or refused connection in the body into ``temporarily_unavailable``.

    The transaction in the body may or may not be committed.

    Raises:
        OAuthError: ``temporarily_unavailable``.
    """
    try:
        yield
    except (SQLAlchemyError, OSError) as error:
        failure = failure_of(error)
        if failure is None:
            raise
        _log.warning("store.unavailable", store=failure.store, error=failure.cause)
        raise temporarily_unavailable("the database does not answer right now") from None


def redis_unavailable(error: StoreUnavailable, description: str) -> OAuthError:
    """Log that Redis is away; return ``temporarily_unavailable``.

    Args:
        error: The failure.
        description: For the developer of the client.
    """
    _log.warning("store.unavailable", store="redis", error=str(error))
    return temporarily_unavailable(description)
