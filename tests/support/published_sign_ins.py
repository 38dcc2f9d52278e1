"""Sign-ins through connectors as management-service publishes them: through its outbox and its relay."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from identity_common.identifiers import new_id
from identity_common.outbox.changes import Changes, Transaction
from identity_common.progress import Progress
from identity_common.stores.database import create_database_engine
from identity_common.wire.events import ConnectorState, ProviderGroupsState
from tests.support.template_api import Template


class ProviderSignIns:
    """Connectors and identities that only the bus knows.

    Attributes:
        identities: The last state of each identity that was not deleted.
        connectors: Ids of those that were not deleted.
    """

    def __init__(self, template: Template, changes: Changes) -> None:
        self._template = template
        self._changes = changes
        self.identities: dict[str, ProviderGroupsState] = {}
        self.connectors: list[str] = []

    async def connector(self, name: str = "Acme") -> str:
        """Publish a new connector; return its id."""
        connector = new_id()
        self.connectors.append(connector)
        await self._publish(ConnectorState(id=connector, name=name, is_open=True))
        return connector

    async def delete_connector(self, connector: str) -> None:
        """Publish that a connector is gone, with its identities."""
        self.connectors.remove(connector)
        gone = [each.id for each in self.identities.values() if each.connector_id == connector]
        await self._publish(ConnectorState(id=connector, deleted=True), *(self._gone(each) for each in gone))

    async def sign_in(
        self,
        user: str,
        connector: str,
        *groups: str,
        domain: str | None = None,
        identity: str | None = None,
    ) -> int:
        """Publish a sign-in; return its revision once it is applied.

        Args:
            user: Who signs in.
            connector: Through what.
            groups: The user's.
            domain: Of the verified address.
            identity: The id of the identity; by default the user has one with each connector.
        """
        state = ProviderGroupsState(
            id=identity or f"{user}{connector}",
            user_id=user,
            connector_id=connector,
            email_domain=domain,
            groups=tuple(sorted(groups)),
        )
        self.identities[state.id] = state
        return await self._publish(state)

    async def sign_in_all(self, states: Sequence[ProviderGroupsState]) -> int:
        """Publish many sign-ins at once; return the last one's revision once they are applied."""
        self.identities |= {state.id: state for state in states}
        return await self._publish(*states)

    async def end_identity(self, identity: str) -> int:
        """Publish that an identity is gone."""
        return await self._publish(self._gone(identity))

    async def _publish(self, *states: ConnectorState | ProviderGroupsState) -> int:
        async with self._changes.transaction(await_publication=False) as transaction:
            for state in states:
                _record(transaction, state)
        await self._template.caught_up()
        return transaction.revision

    def _gone(self, identity: str) -> ProviderGroupsState:
        del self.identities[identity]
        return ProviderGroupsState(id=identity, deleted=True)


def _record(transaction: Transaction, state: ConnectorState | ProviderGroupsState) -> None:
    kind = "connector" if isinstance(state, ConnectorState) else "provider-groups"
    transaction.record(kind, (state.id,), "deleted" if state.deleted else "updated", state)


@asynccontextmanager
async def provider_sign_ins(template: Template) -> AsyncIterator[ProviderSignIns]:
    """Give connectors and identities; in the end all of them are deleted."""
    settings = template.management.settings
    engine = create_database_engine(settings.database_url, service="tests", pool_size=2)
    changes = Changes(engine, source="management", tenant_id=template.tenant_id, published=Progress())
    sign_ins = ProviderSignIns(template, changes)
    try:
        yield sign_ins
        for connector in list(sign_ins.connectors):
            await sign_ins.delete_connector(connector)
        for identity in list(sign_ins.identities):
            await sign_ins.end_identity(identity)
    finally:
        await engine.dispose()
