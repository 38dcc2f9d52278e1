"""How many requests of one client may wait for a revision at a time."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from identity_common.failures import TemporarilyUnavailable
from identity_common.places import NoPlaceLeftError, Places

_OF_ONE_CLIENT: Final = 200
"""A tenth of all: an unreachable revision makes a request wait, and the id of a public client is no secret."""


class WaitingRequests:
    """The requests that wait."""

    def __init__(self) -> None:
        self._places = Places(of_one=_OF_ONE_CLIENT)

    @contextmanager
    def of(self, client_id: str) -> Generator[None, None, None]:
        """Count a request of this client for the body.

        Raises:
            TemporarilyUnavailable: Too many requests of the client are waiting already.
        """
        try:
            with self._places.taken_by(client_id):
                yield
        except NoPlaceLeftError:
            why = "too many requests of this client are waiting for a change"
            raise TemporarilyUnavailable(why=why) from None
