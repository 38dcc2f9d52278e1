"""The connectors to providers: which are offered, whose addresses they have, which sign-ins through them are over."""

import asyncio
from collections.abc import Sequence
from typing import Final

from identity_common.authentication import AtProvider
from identity_common.email_domains import MAX_DOMAIN, canonical_domain
from identity_common.wire.events import ConnectorState

_MS: Final = 1000


class Connectors:
    """The connectors, as of the last event.

    Attributes:
        offered: The open ones, by name.
        have_domains: Whether an open one has domains.
        has_closed: Set when one is closed, or was when this replica started; its reader clears it.
    """

    def __init__(self) -> None:
        self.offered: Sequence[ConnectorState] = ()
        self.have_domains = False
        self.has_closed = asyncio.Event()
        self._states: dict[str, ConnectorState] = {}
        self._by_domain: dict[str, ConnectorState] = {}
        self._closed: dict[str, ConnectorState] = {}

    def put(self, connector: ConnectorState) -> None:
        """Apply an event."""
        self._states[connector.id] = connector
        is_open = (each for each in self._states.values() if each.is_open and not each.deleted)
        self.offered = sorted(is_open, key=lambda each: (each.name.casefold(), each.id))
        self._by_domain = {domain: each for each in self.offered for domain in each.domains}
        self.have_domains = bool(self._by_domain)
        if connector.deleted or not connector.is_open or connector.closed_at:
            self._closed[connector.id] = connector
            self.has_closed.set()

    def closed(self) -> Sequence[ConnectorState]:
        """Return those that were closed since ``settle``; some may be open again."""
        return list(self._closed.values())

    def settle(self, connector: ConnectorState) -> None:
        """Forget that one was closed: what came through it has ended."""
        if self._closed.get(connector.id) is connector:
            del self._closed[connector.id]

    def open(self, connector_id: str | None) -> ConnectorState | None:
        """Return a connector that people can sign in through."""
        connector = self._states.get(connector_id or "")
        return None if connector is None or connector.deleted or not connector.is_open else connector

    def of_address(self, identifier: str | None) -> ConnectorState | None:
        """Return the open connector whose domain an e-mail address has."""
        _, at, domain = (identifier or "").strip().rpartition("@")
        if not at or not self._by_domain or len(domain) > MAX_DOMAIN:
            return None
        return self._by_domain.get(canonical_domain(domain) or "")

    def why_over(self, at: AtProvider | None, *, signed_in_at: int, now: int) -> str | None:
        """Return why a sign-in is over, for the log; None if it goes on, or came through no connector.

        Args:
            at: The sign-in at the provider.
            signed_in_at: When the user signed in here, milliseconds since the epoch.
            now: Milliseconds since the epoch.
        """
        if at is None:
            return None
        connector = self.open(at.connector_id)
        if connector is None or signed_in_at < connector.closed_at:
            return "its connector was closed"
        return "its connector asks again by now" if is_over_age(connector, signed_in_at=signed_in_at, now=now) else None


def is_over_age(connector: ConnectorState, *, signed_in_at: int, now: int) -> bool:
    """Return whether the provider must be asked again."""
    max_age_s = connector.session_max_age_s
    return max_age_s is not None and now - signed_in_at >= max_age_s * _MS
