"""A limit of token requests per client, off by default (``CLIENT_REQUESTS_PER_MINUTE``).

Only clients that authenticate are counted: with the id of a public client any caller could use up its room.
"""

from typing import Final, NamedTuple

from identity_common.failures import StoreUnavailable
from identity_common.stores.source_limit import SourceLimit, Throttled
from token_service.audit import AuditedTokenRequest
from token_service.grants.failures import log_unavailable
from token_service.grants.oauth_errors import too_many_requests

WINDOW_S: Final = 60


class Quota(NamedTuple):
    """What is left of a client's limit.

    Attributes:
        limit: Requests in a window.
        window_s: Its length.
        remaining: Requests that are left in it.
        resets_s: Seconds until it ends.
    """

    limit: int
    window_s: int
    remaining: int
    resets_s: int


class RequestLimit:
    """Counts the token requests of each client over all replicas."""

    def __init__(self, requests: SourceLimit) -> None:
        self._requests = requests

    async def count(self, client_id: str, quotas: list[Quota], audited: AuditedTokenRequest) -> None:
        """Count a request; without Redis it is not counted, and no quota is stated.

        Args:
            client_id: The client, authenticated.
            quotas: What is left is added here, also with a refusal.
            audited: The first refusal of a window is recorded as the client's; a flood must not fill the trail.

        Raises:
            OAuthError: 429.
        """
        limit, window_s = self._requests.limit, self._requests.window_s
        try:
            counted = await self._requests.room(client_id)
        except StoreUnavailable as unavailable:
            log_unavailable(unavailable)
            return
        if isinstance(counted, Throttled):
            quotas.append(Quota(limit, window_s, 0, counted.wait_s))
            if counted.is_first:
                audited.note_client(client_id, is_public=False)
                audited.note_reason("client.too_many_requests")
            raise too_many_requests("this client has sent too many token requests", retry_after_s=counted.wait_s)
        quotas.append(Quota(limit, window_s, *counted))
