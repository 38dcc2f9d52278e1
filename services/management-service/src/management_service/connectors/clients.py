"""The clients that connectors have at their providers. Their secrets are sealed, and sent to the provider alone."""

from identity_common.sealing import NoFittingKeyError, SealingKeys
from identity_common.telemetry.logs import get_logger
from management_service.connectors.providers import Client, ProviderError
from management_service.connectors.store import Connector

_log = get_logger(__name__)


class Clients:
    """The clients of one tenant's connectors.

    Args:
        sealing: Seals the secrets; no other service knows its keys.
        tenant_id: The tenant.
    """

    def __init__(self, sealing: SealingKeys, *, tenant_id: str) -> None:
        self._sealing = sealing
        self._tenant_id = tenant_id

    def seal(self, connector_id: str, secret: str) -> bytes:
        """Return a secret as it is stored."""
        return self._sealing.seal(secret.encode(), name=self._name(connector_id))

    def client(self, connector: Connector) -> Client | None:
        """Return the client of a connector; None if people do not sign in through it.

        Raises:
            ProviderError: No key opens its secret.
        """
        if connector.client_id is None:
            return None
        secret = None if connector.sealed_secret is None else self._open(connector.id, connector.sealed_secret)
        return Client(connector.client_id, secret)

    def renewed(self, connector: Connector) -> bytes | None:
        """Return the same secret sealed with the newest key; None if it is, or no key opens it."""
        sealed = connector.sealed_secret
        if sealed is None or self._sealing.is_newest(sealed, name=self._name(connector.id)):
            return None
        try:
            return self.seal(connector.id, self._open(connector.id, sealed))
        except ProviderError:
            return None

    def _open(self, connector_id: str, sealed: bytes) -> str:
        try:
            return self._sealing.open(sealed, name=self._name(connector_id)).decode()
        except NoFittingKeyError:
            _log.error("connector.secret-not-readable", connector_id=connector_id)
            raise ProviderError("No key of AUDIT_HEAD_KEYS opens the client's secret: set it again.") from None

    def _name(self, connector_id: str) -> str:
        return f"connector-secret.{self._tenant_id}.{connector_id}"
