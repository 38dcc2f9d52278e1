"""Failed client authentications, limited by address, and by client at an address (RFC 6749 section 2.3.1).

A failure is known only after the check, which costs nothing but memory: so nothing is counted before it, a right secret
always works (docs/decisions/0043), and what the limits spare is what a failure costs, a look at the bus.
"""

import time
from typing import Final

from identity_common.addresses import network_of
from identity_common.failures import StoreUnavailable
from identity_common.stores.source_limit import SourceLimit
from identity_common.telemetry.logs import get_logger
from token_service.grants.failures import log_unavailable
from token_service.grants.oauth_errors import OAuthError, too_many_requests

_log = get_logger(__name__)

_MOST_BLOCKED: Final = 10_000


class FailedAuthentications:
    """Counts failures over all replicas, and remembers which sources are beyond their limit until their window ends.

    Args:
        per_address: Failures from one address, whichever client they name.
        per_client: Failures of one client from one address.
    """

    def __init__(self, per_address: SourceLimit, per_client: SourceLimit) -> None:
        self._per_address = per_address
        self._per_client = per_client
        self._blocked: dict[tuple[SourceLimit, str], float] = {}

    def require_room(self, client_id: str, address: str) -> None:
        """Refuse another failure of a source that is known to be beyond its limit, without asking Redis.

        Raises:
            OAuthError: 429.
        """
        if not self._blocked:
            return
        for limit, source in self._counted(client_id, address):
            wait_s = self._blocked.get((limit, source), 0.0) - time.monotonic()
            if wait_s > 0:
                limit.refused_again()
                raise too_many_failures(-int(-wait_s // 1))

    async def count(self, client_id: str, address: str, *, is_known: bool) -> None:
        """Count a failure; without Redis it is not counted.

        Args:
            client_id: As claimed.
            address: Of the client.
            is_known: Whether there is such a client: invented ids have no count of their own.

        Raises:
            OAuthError: 429, if it is one too many.
        """
        for limit, source in self._counted(client_id, address)[: 2 if is_known else 1]:
            try:
                throttled = await limit.count(source)
            except StoreUnavailable as unavailable:
                log_unavailable(unavailable)
                return
            if throttled is not None:
                self._block(limit, source, throttled.wait_s)
                if throttled.is_first:  # one line a window, whatever the number of replicas
                    known = client_id if is_known else None
                    _log.warning("client-authentication.throttled", client_id=known, address=address)
                raise too_many_failures(throttled.wait_s)

    def _counted(self, client_id: str, address: str) -> list[tuple[SourceLimit, str]]:
        """Return the sources of a failure; the address first, which bounds the number of counters that it causes."""
        network = network_of(address)
        return [(self._per_address, network), (self._per_client, f"{client_id} {network}")]

    def _block(self, limit: SourceLimit, source: str, wait_s: int) -> None:
        now = time.monotonic()
        if len(self._blocked) >= _MOST_BLOCKED:
            self._blocked = {each: until for each, until in self._blocked.items() if until > now}
        if len(self._blocked) < _MOST_BLOCKED:  # otherwise Redis is asked again
            self._blocked[limit, source] = now + wait_s


def too_many_failures(wait_s: int) -> OAuthError:
    """Client authentication failed, as too often before."""
    return too_many_requests("too many failed client authentications", retry_after_s=wait_s)
