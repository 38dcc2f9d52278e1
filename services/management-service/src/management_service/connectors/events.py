"""The events of connectors, and of what sign-ins through them have said."""

from typing import Final

from identity_common.outbox.changes import Transaction
from identity_common.wire.events import ConnectorState, IdentityState, ProviderGroupsState
from management_service.connectors.store import Connector, Identity, subject_of

CONNECTOR: Final = "connector"
IDENTITY: Final = "identity"
GROUPS: Final = "provider-groups"
"""Kinds of the aggregates on the bus."""


def connector_state(connector: Connector) -> ConnectorState:
    """Return the state of a connector for its event."""
    return ConnectorState(
        id=connector.id,
        name=connector.shown_name,
        is_open=connector.is_open,
        domains=connector.domains,
        logo_uri=connector.logo_uri,
        session_max_age_s=connector.session_max_age_s,
        closed_at=connector.closed_at,
    )


def record_connector(transaction: Transaction, connector: Connector, verb: str) -> None:
    """Record the state of a connector."""
    transaction.record(CONNECTOR, (connector.id,), verb, connector_state(connector))


def record_identity_deleted(transaction: Transaction, identity: Identity, *, now: int) -> None:
    """Record that an identity was removed from its user: what came through it ends."""
    state = IdentityState(
        id=identity.id,
        deleted=True,
        user_id=identity.user_id,
        connector_id=identity.connector_id,
        subject=subject_of(identity.connector_id, identity.value),
        ended_at=now,
    )
    transaction.record(IDENTITY, (identity.user_id, identity.id), "deleted", state)
    if identity.signed_in_at is not None:
        record_groups_deleted(transaction, identity.id)


def record_groups(transaction: Transaction, identity: Identity) -> None:
    """Record what the last sign-in with an identity has said."""
    state = ProviderGroupsState(
        id=identity.id,
        user_id=identity.user_id,
        connector_id=identity.connector_id,
        email_domain=identity.email_domain,
        groups=tuple(identity.groups),
    )
    transaction.record(GROUPS, (identity.id,), "updated", state)


def record_groups_deleted(transaction: Transaction, identity_id: str) -> None:
    """Record that what sign-ins with an identity have said counts no longer."""
    transaction.record(GROUPS, (identity_id,), "deleted", ProviderGroupsState(id=identity_id, deleted=True))
