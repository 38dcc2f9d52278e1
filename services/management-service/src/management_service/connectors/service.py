"""Creates, reads, changes, checks and deletes connectors, and the identities of users."""

from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from typing import Final

import msgspec
from msgspec import UNSET
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.access.callers import Caller
from identity_common.clock import Clock, now_ms
from identity_common.email_domains import canonical_domains
from identity_common.failures import UNKNOWN_RELATION, Conflict, Issue, duplicate, invalid_input, missing_by_id
from identity_common.identifiers import new_id
from identity_common.names import accepted_name
from identity_common.outbox.changes import Changes, Transaction
from identity_common.outbox.mail import MailOutbox
from identity_common.paging import Page
from identity_common.stores.database import refusals, retry_on_conflict
from identity_common.wire.account_links import LinkContext
from identity_common.wire.events import ConnectorState
from management_service.administrators import Administrators
from management_service.attainable_scopes import AttainableScopes
from management_service.connectors import rules, store
from management_service.connectors.clients import Clients
from management_service.connectors.events import CONNECTOR, IDENTITY, record_connector, record_identity_deleted
from management_service.connectors.notices import identity_notice
from management_service.connectors.providers import ProviderError, Providers
from management_service.connectors.rules import TrustedFactor
from management_service.connectors.store import Connector, Identity
from management_service.provider_people import find_way_in, signs_in_at_provider
from management_service.users.store import User, lock_user

REFUSALS: Final = {
    "connectors_name_unique": lambda: duplicate("connector.name_in_use", "A connector with this name already exists."),
    "connectors_issuer_unique": lambda: duplicate(
        "connector.issuer_in_use", "A connector to this provider already exists."
    ),
    "connector_domains_pkey": lambda: duplicate("connector.domain_in_use", "A domain belongs to another connector."),
    "identities_value_unique": lambda: duplicate("identity.in_use", "A user has this identity already."),
}


def _last_way_in() -> Conflict:
    message = "It is the only way to sign in to the account. An administrator can allow another one."
    return Conflict("user.last_way_in", message)


class OwnIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """An identity as its user sees it.

    Attributes:
        provider: Name of the connector.
    """

    identity: Identity
    provider: str


class Connectors:
    """Connectors and identities.

    Args:
        reader: Reads.
        changes: Writes.
        providers: Checks that a provider can be used before it is stored.
        clients: Seals the secrets of clients.
        administrators: Keeps the last administrator.
        attainable: Refuses callers who lack what the user of an identity holds.
        mail: Tells users of removed identities.
        tenant_id: The tenant.
        issuer: Our own, which is no other provider.
        clock: Clock, for tests.
    """

    def __init__(
        self,
        reader: AsyncEngine,
        changes: Changes,
        providers: Providers,
        clients: Clients,
        administrators: Administrators,
        attainable: AttainableScopes,
        mail: MailOutbox,
        *,
        tenant_id: str,
        issuer: str,
        clock: Clock = now_ms,
    ) -> None:
        self._reader = reader
        self._changes = changes
        self._providers = providers
        self._clients = clients
        self._administrators = administrators
        self._attainable = attainable
        self._mail = mail
        self._tenant_id = tenant_id
        self._issuer = issuer
        self._clock = clock

    async def create(self, creation: rules.ConnectorCreation) -> Connector:
        """Create a connector.

        Raises:
            Invalid: A member is not acceptable.
            Conflict: The name is not valid, or in use; the provider or a domain has a connector; the provider cannot be
                used; or the domains would end the last administrator.
            Refused: See ``_require_attainable``.
        """
        _require_acceptable(creation)
        config, connector_id, now = creation.config, new_id(), self._clock()
        secret = config.client_secret
        connector = Connector(
            tenant_id=self._tenant_id,
            id=connector_id,
            name=accepted_name(creation.connector_name),
            issuer=config.issuer,
            client_id=config.client_id,
            sealed_secret=None if secret is None else self._clients.seal(connector_id, secret),
            scope=config.scope or rules.DEFAULT_SCOPE,
            match_claim=creation.match_claim,
            is_enabled=creation.is_enabled,
            domains=canonical_domains(creation.domains, path="domains"),
            display_name=None,
            logo_uri=None,
            allowed_domains=canonical_domains(creation.allowed_domains, path="allowedDomains"),
            required_claims=creation.required_claims,
            groups_claim=creation.groups_claim,
            sync_profile=creation.sync_profile,
            session_max_age_s=creation.session_max_age_s,
            actor_clients=(),
            trusted_factors=(),
            closed_at=now,
            admits_since=now,
            created_at=now,
        )
        connector = _trusting(_branded(connector, creation.branding), creation.trusts)
        _require_client(connector)
        await self._require_usable(connector)
        return await self._insert(connector)

    @retry_on_conflict
    async def _insert(self, connector: Connector) -> Connector:
        async with self._changing() as transaction:
            await self._require_attainable(transaction, None, connector)
            with refusals(REFUSALS):
                await store.insert_connector(transaction.connection, connector)
            record_connector(transaction, connector, "created")
        return connector

    async def get(self, connector_id: str) -> Connector:
        """Return a connector."""
        async with self._reader.connect() as connection:
            connector = await store.find_connector(connection, self._tenant_id, connector_id)
        if connector is None:
            raise missing_by_id()
        return connector

    async def list_connectors(self, page: Page) -> tuple[list[Connector], int]:
        """Return a page of the connectors by name, and their total."""
        async with self._reader.connect() as connection:
            return await store.list_connectors(connection, self._tenant_id, page)

    async def test(self, connector_id: str) -> None:
        """Read the provider's metadata and keys now.

        Raises:
            Conflict: They cannot be used.
        """
        connector = await self.get(connector_id)
        await self._changes.record_action(CONNECTOR, (connector_id,), "test")
        await self._require_usable(connector)

    async def update(self, connector_id: str, update: rules.ConnectorUpdate) -> Connector:
        """Change the given members of a connector.

        Raises:
            Invalid: A member is not acceptable.
            Conflict: The name is not valid, or in use; the provider or a domain has a connector, or the provider cannot
                be used; users are known by the present issuer and claim; or this would end the last administrator.
            Refused: See ``_require_attainable``.
        """
        _require_acceptable(update)
        if update.config is not UNSET:
            await self._require_usable(self._changed(await self.get(connector_id), update))
        return await self._update(connector_id, update)

    @retry_on_conflict
    async def _update(self, connector_id: str, update: rules.ConnectorUpdate) -> Connector:
        async with self._changing() as transaction:
            connector = await self._lock(transaction, connector_id)
            changed = self._changed(connector, update)
            if changed == connector:
                return connector
            await self._require_attainable(transaction, connector, changed)
            if (changed.issuer, changed.match_claim) != (connector.issuer, connector.match_claim):
                await self._require_no_identities(transaction, connector)
            with refusals(REFUSALS):
                await store.update_connector(transaction.connection, changed)
            record_connector(transaction, changed, "updated")
        return changed

    @retry_on_conflict
    async def delete(self, connector_id: str) -> None:
        """Delete a connector with the identities of its users.

        Raises:
            Conflict: This would end the last administrator.
            Refused: The caller lacks scopes that one of them holds.
        """
        async with self._changing() as transaction:
            connection = transaction.connection
            if await store.lock_connector(connection, self._tenant_id, connector_id) is None:
                raise missing_by_id("entity.not_found")
            await self._attainable.require_people(connection, connector_id)  # locked: no identity is added meanwhile
            await store.delete_connector(connection, self._tenant_id, connector_id)
            transaction.record(CONNECTOR, (connector_id,), "deleted", ConnectorState(id=connector_id, deleted=True))

    async def renew_seals(self) -> None:
        """Reseal the secrets that an older key has sealed, so that the older key can be removed from the settings."""
        async with self._changes.unpublished() as connection:
            for each in await store.lock_all(connection, self._tenant_id):
                if (sealed := self._clients.renewed(each)) is not None:
                    await store.update_connector(connection, msgspec.structs.replace(each, sealed_secret=sealed))

    @retry_on_conflict
    async def add_identity(self, user_id: str, creation: rules.IdentityCreation) -> Identity:
        """Let a user be known by an identity.

        Raises:
            Conflict: The connector does not exist, or a user has the identity; or the user is the last administrator
                and only has a password, which this closes.
            Refused: The caller lacks scopes that the user holds.
        """
        async with self._changing() as transaction:
            await self._lock_user(transaction, user_id)
            connector = await store.lock_connector(
                transaction.connection, self._tenant_id, creation.connector_id, shared=True
            )
            if connector is None:
                raise Conflict(UNKNOWN_RELATION, "The connector does not exist.")
            identity = Identity(
                tenant_id=self._tenant_id,
                id=new_id(),
                user_id=user_id,
                connector_id=connector.id,
                value=creation.value,
                created_at=self._clock(),
            )
            with refusals(REFUSALS):
                await store.insert_identity(transaction.connection, identity)
            transaction.record_action(IDENTITY, (user_id, identity.id), "create")
        return identity

    async def list_identities(self, user_id: str, page: Page) -> tuple[list[Identity], int]:
        """Return a page of a user's identities, in the order of their creation, and their total."""
        async with self._reader.connect() as connection:
            return await store.list_identities(connection, self._tenant_id, user_id, page)

    @retry_on_conflict
    async def remove_identity(self, user_id: str, identity_id: str) -> None:
        """Let a user no longer be known by an identity.

        Raises:
            Conflict: This would end the last administrator.
            Refused: The caller lacks scopes that the user holds.
        """
        async with self._changing() as transaction:
            user = await self._lock_user(transaction, user_id)
            await self._remove(transaction, user, identity_id, LinkContext())

    @retry_on_conflict
    async def remove_own_identity(self, caller: Caller, identity_id: str) -> None:
        """Let the person who is signed in no longer be known by an identity.

        Raises:
            Conflict: Nothing would remain to sign in with but what is closed to the provider's people, who would keep
                the account when they leave; or this would end the last administrator.
        """
        async with self._changing() as transaction:
            user = await self._lock_user(transaction, caller.user_id or "")
            was_closed = await signs_in_at_provider(transaction.connection, self._tenant_id, user.id)
            await self._remove(transaction, user, identity_id, LinkContext(application_id=caller.application_id))
            way_in = await find_way_in(transaction.connection, self._tenant_id, user.id)
            has_other = (user.has_password and user.identifier is not None) or "passkey" in user.second_factors
            if way_in is None or not (way_in.has_identity or (has_other and not was_closed)):
                raise _last_way_in()

    async def list_own_identities(self, user_id: str, page: Page) -> tuple[list[OwnIdentity], int]:
        """Return a page of a person's identities, with the names of their providers, and their total."""
        async with self._reader.connect() as connection:
            found, total = await store.list_identities(connection, self._tenant_id, user_id, page)
            names = await store.shown_names(connection, self._tenant_id, [each.connector_id for each in found])
        return [OwnIdentity(identity=each, provider=names.get(each.connector_id, "")) for each in found], total

    @asynccontextmanager
    async def _changing(self) -> AsyncGenerator[Transaction, None]:
        """Open a transaction that changes who signs in at a provider, and keep the last administrator."""
        async with self._changes.transaction() as transaction, self._administrators.kept(transaction.connection):
            yield transaction

    async def _remove(self, transaction: Transaction, user: User, identity_id: str, context: LinkContext) -> None:
        """Delete and record an identity of a locked user, and tell the user."""
        connection = transaction.connection
        removed = await store.delete_identity(connection, self._tenant_id, user.id, identity_id)
        if removed is None:
            raise missing_by_id("entity.not_found")
        record_identity_deleted(transaction, removed, now=self._clock())
        names = await store.shown_names(connection, self._tenant_id, [removed.connector_id])
        notice = identity_notice(user, "factor-removed", names.get(removed.connector_id, ""), context)
        await self._mail.queue(connection, notice)

    async def _require_usable(self, connector: Connector) -> None:
        if connector.issuer == self._issuer:
            raise invalid_input(Issue("config.issuer", "must be another provider than this one"))
        try:
            await self._providers.check(connector.issuer, client=self._clients.client(connector))
        except ProviderError as error:
            raise Conflict("connector.provider_unusable", str(error)) from error

    async def _require_attainable(self, transaction: Transaction, stored: Connector | None, changed: Connector) -> None:
        """Refuse callers who lack what a provider gets to say about other users.

        Raises:
            Refused: The provider is about to speak for users who hold scopes that the caller lacks; or it is trusted
                for more factors, and the caller may not change the policies that these satisfy.
        """
        trusted: Collection[TrustedFactor] = ()
        domains = {*changed.domains}
        if stored is not None and stored.issuer == changed.issuer:
            trusted = stored.trusted_factors
            if _speaks_anew(stored, changed):
                await self._attainable.require_people(transaction.connection, changed.id)
            else:
                domains -= {*stored.domains}
        if not set(changed.trusted_factors) <= set(trusted):
            self._attainable.require_change_of_policy()
        await self._attainable.require_owners(transaction.connection, domains)

    async def _require_no_identities(self, transaction: Transaction, connector: Connector) -> None:
        if await store.has_identities(transaction.connection, self._tenant_id, connector.id):
            message = "Users are known by the issuer and the claim: remove their identities before these change."
            raise Conflict("connector.has_identities", message)

    async def _lock(self, transaction: Transaction, connector_id: str) -> Connector:
        connector = await store.lock_connector(transaction.connection, self._tenant_id, connector_id)
        if connector is None:
            raise missing_by_id("entity.not_exists")
        return connector

    async def _lock_user(self, transaction: Transaction, user_id: str) -> User:
        user = await lock_user(transaction.connection, self._tenant_id, user_id)
        if user is None:
            raise missing_by_id()
        await self._attainable.require_holder(transaction.connection, "user", user_id)
        return user

    def _changed(self, connector: Connector, update: rules.ConnectorUpdate) -> Connector:
        """Return a connector with the given members.

        Raises:
            Invalid: The client is not acceptable.
            Conflict: The name is not valid.
        """
        domains, allowed, now = update.domains, update.allowed_domains, self._clock()
        given = {
            "name": UNSET
            if update.connector_name is UNSET
            else accepted_name(update.connector_name, stored=connector.name),
            "match_claim": update.match_claim,
            "is_enabled": update.is_enabled,
            "domains": UNSET if domains is UNSET else canonical_domains(domains or (), path="domains"),
            "allowed_domains": UNSET if allowed is UNSET else canonical_domains(allowed or (), path="allowedDomains"),
            "required_claims": UNSET if update.required_claims is UNSET else update.required_claims or (),
            "groups_claim": update.groups_claim,
            "sync_profile": update.sync_profile,
            "session_max_age_s": update.session_max_age_s,
        }
        members = {name: value for name, value in given.items() if value is not UNSET}
        changed = msgspec.structs.replace(connector, **members)
        if update.config is not UNSET:
            changed = self._configured(changed, update.config)
        if update.branding is not UNSET:
            changed = _branded(changed, update.branding or _PLAIN)
        if update.trusts is not UNSET:
            changed = _trusting(changed, update.trusts or _NOTHING)
        if changed.is_open != connector.is_open:  # also where it is opened: a sign-in that began before ends late
            changed = msgspec.structs.replace(changed, closed_at=max(now, connector.closed_at + 1))
        if _admits_otherwise(connector, changed):
            changed = msgspec.structs.replace(changed, admits_since=max(now, connector.admits_since + 1))
        return changed

    def _configured(self, connector: Connector, config: rules.ConnectorConfigUpdate) -> Connector:
        issuer = connector.issuer if config.issuer is UNSET else config.issuer
        if issuer != connector.issuer and connector.sealed_secret is not None and config.client_secret is UNSET:
            message = "must be given again with another issuer: it would be sent to another provider"
            raise invalid_input(Issue("config.clientSecret", message))
        sealed = connector.sealed_secret
        if config.client_secret is not UNSET:
            sealed = None if config.client_secret is None else self._clients.seal(connector.id, config.client_secret)
        client_id = connector.client_id if config.client_id is UNSET else config.client_id
        if client_id is None and config.client_secret is UNSET:
            sealed = None
        scope = connector.scope if config.scope is UNSET else config.scope or rules.DEFAULT_SCOPE
        configured = msgspec.structs.replace(
            connector, issuer=issuer, client_id=client_id, sealed_secret=sealed, scope=scope
        )
        _require_client(configured)
        return configured


def _speaks_anew(stored: Connector, changed: Connector) -> bool:
    """Return whether other tokens of the same provider are about to count: of another client, or at all."""
    is_opened = changed.is_open and (not stored.is_open or changed.client_id != stored.client_id)
    is_enabled = changed.is_enabled and not stored.is_enabled
    return is_opened or is_enabled or not set(changed.actor_clients) <= set(stored.actor_clients)


def _admits_otherwise(stored: Connector, changed: Connector) -> bool:
    """Return whether people who could sign in so far may be refused from now on, or the other way round."""
    is_same_client = (changed.issuer, changed.client_id) == (stored.issuer, stored.client_id)
    is_stricter = not set(changed.required_claims) <= set(stored.required_claims)
    return changed.is_open != stored.is_open or not is_same_client or is_stricter


def _require_acceptable(body: rules.ConnectorCreation | rules.ConnectorUpdate) -> None:
    issues = [Issue(path, problem) for path, problem in rules.problems(body)]
    if issues:
        raise invalid_input(*issues)


def _require_client(connector: Connector) -> None:
    if connector.sealed_secret is not None and connector.client_id is None:
        raise invalid_input(Issue("config.clientId", "required with clientSecret"))


_NOTHING: Final = rules.ConnectorTrusts(actors=None, factors=None)
_PLAIN: Final = rules.ConnectorBranding(display_name=None, logo_uri=None)


def _branded(connector: Connector, branding: rules.ConnectorBranding | None) -> Connector:
    if branding is None:
        return connector
    name, logo_uri = branding.display_name, branding.logo_uri
    return msgspec.structs.replace(
        connector,
        display_name=connector.display_name
        if name is UNSET
        else None
        if name is None
        else accepted_name(name, stored=connector.display_name),
        logo_uri=connector.logo_uri if logo_uri is UNSET else logo_uri,
    )


def _trusting(connector: Connector, trusts: rules.ConnectorTrusts | None) -> Connector:
    if trusts is None:
        return connector
    return msgspec.structs.replace(
        connector,
        actor_clients=connector.actor_clients if trusts.actors is UNSET else trusts.actors or (),
        trusted_factors=connector.trusted_factors if trusts.factors is UNSET else trusts.factors or (),
    )
