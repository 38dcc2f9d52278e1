"""The database away, said in the words of OAuth."""

import contextlib
from collections.abc import Generator

from sqlalchemy.exc import SQLAlchemyError

from identity_common.http.api_errors import is_store_down
from identity_common.oauth import temporarily_unavailable
from identity_common.telemetry.logs import get_logger

_log = get_logger(__name__)


@contextlib.contextmanager
def database_answers() -> Generator[None, None, None]:
    """Turn a connection that is lost, or cannot be had, in the body into ``temporarily_unavailable``.

    Whether the transaction in it was committed is then not known.

    Raises:
        OAuthError: ``temporarily_unavailable``.
    """
    try:
        yield
    except (SQLAlchemyError, OSError) as error:
        if not is_store_down(error):
            raise
        _log.warning("store.unavailable", store="postgresql", error=type(error).__name__)
        raise temporarily_unavailable("the database does not answer right now") from None
