"""The not-valid feed: its keys, sequencer, snapshots and tail."""

from identity_common.lifetime import Lifetime
from identity_common.sealing import SealingKeys
from token_service.directory import InMemoryDirectory
from token_service.not_valid import FeedKeys, Sequencer, Snapshots, Tail
from token_service.parts.connections import Connections
from token_service.parts.signing_keys import longest_lifetime_s
from token_service.settings import Settings


class NotValidFeed:
    """The feed, which starts once the database is migrated."""

    def __init__(self, settings: Settings, connections: Connections, in_memory: InMemoryDirectory) -> None:
        engine, tenant_id = connections.engine, settings.tenant_id
        self.keys = FeedKeys(engine, SealingKeys(settings.key_encryption_keys), tenant_id=tenant_id)
        self.snapshots = Snapshots(engine, self.keys, tenant_id=tenant_id, issuer=settings.issuer)
        self.tail = Tail(
            settings.database_url,
            tenant_id=tenant_id,
            readers_per_client=settings.not_valid_feed_readers_per_client,
        )
        self._sequencer = Sequencer(
            connections.bus,
            self.keys,
            settings.database_url,
            tenant_id=tenant_id,
            issuer=settings.issuer,
            longest_lifetime_s=longest_lifetime_s(in_memory),
        )

    def start(self, lifetime: Lifetime) -> None:
        """Start what runs in the background, once the database is migrated."""
        lifetime.start(self.keys.loop, self.tail, self._sequencer)
