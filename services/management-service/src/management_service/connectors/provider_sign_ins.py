"""Signs people in at the providers of connectors: where a browser is sent, and who comes back.

Source:
    OpenID Connect Core 1.0 section 3.1; RFC 7636; RFC 9207; OpenID Connect Back-Channel Logout 1.0 section 2.6.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from identity_common.clock import Clock, now_ms
from identity_common.email_addresses import is_same_mailbox
from identity_common.failures import Conflict
from identity_common.identifiers import new_id
from identity_common.outbox.changes import Changes, Transaction
from identity_common.outbox.mail import MailOutbox
from identity_common.stores.database import refusals, retry_on_conflict
from identity_common.telemetry.logs import get_logger
from identity_common.wire.account_links import LinkContext, Visitor
from identity_common.wire.provider_sign_in import (
    PROVIDER_TIMEOUT_S,
    AccountFound,
    BeginAtProvider,
    EndedAtProvider,
    FinishAtProvider,
    LinkIdentity,
    NotAcceptedReason,
    ProviderAddress,
    ProviderPerson,
    ReadLogoutToken,
)
from management_service.connectors import id_tokens, people, store
from management_service.connectors.clients import Clients
from management_service.connectors.events import record_groups
from management_service.connectors.id_tokens import NotAcceptableError, WrongKeyError
from management_service.connectors.notices import identity_notice
from management_service.connectors.people import Person
from management_service.connectors.providers import Client, ProviderError, Providers
from management_service.connectors.service import REFUSALS
from management_service.connectors.store import Connector, Identity
from management_service.connectors.tickets import LinkTicket, LinkTickets, spend
from management_service.connectors.token_endpoint import CodeRefusedError, TokenEndpoints
from management_service.provider_people import signs_in_elsewhere
from management_service.users.rules import UserCreation
from management_service.users.service import Users
from management_service.users.store import User, find_user_by_email, lock_user
from management_service.visitors import DefaultRolesRefusedError, audit_visitor, creating_account
from stead.verify.acr import satisfies

_log = get_logger(__name__)

_PROVIDER_S: Final = PROVIDER_TIMEOUT_S - 1.5
_ATTEMPTS: Final = 3
_MS: Final = 1000


class NotAcceptedError(Exception):
    """A person is not signed in; the detail is for the log."""

    def __init__(self, reason: NotAcceptedReason, detail: str = "") -> None:
        super().__init__(reason)
        self.reason: NotAcceptedReason = reason
        self.detail = detail


class _AgainError(Exception):
    """Another request has just changed what this one has read."""


class ProviderSignIns:
    """The sign-ins of one tenant's people at providers.

    Args:
        reader: Reads connectors.
        changes: Writes.
        users: The users.
        providers: Metadata and keys of the providers.
        endpoints: Their token endpoints.
        clients: The clients there.
        tickets: Tickets for links.
        mail: Tells of new links.
        open_enrolment: Lets a new user set up a first factor.
        tenant_id: The tenant.
        clock: Clock, for tests.
    """

    def __init__(
        self,
        reader: AsyncEngine,
        changes: Changes,
        users: Users,
        providers: Providers,
        endpoints: TokenEndpoints,
        clients: Clients,
        tickets: LinkTickets,
        mail: MailOutbox,
        open_enrolment: Callable[[AsyncConnection, str, str], Awaitable[None]],
        *,
        tenant_id: str,
        clock: Clock = now_ms,
    ) -> None:
        self._reader = reader
        self._changes = changes
        self._users = users
        self._providers = providers
        self._endpoints = endpoints
        self._clients = clients
        self._tickets = tickets
        self._mail = mail
        self._open_enrolment = open_enrolment
        self._tenant_id = tenant_id
        self._clock = clock

    async def begin(self, question: BeginAtProvider) -> ProviderAddress:
        """Return where a browser is sent.

        Raises:
            NotAcceptedError: The connector is closed.
            ProviderError: The provider does not answer.
        """
        connector, client = await self._open_connector(question.connector_id)
        address = (await self._providers.metadata(connector.issuer)).authorization_endpoint
        if address is None:
            raise ProviderError("The metadata of the provider name no authorization_endpoint.")
        max_age_s = 0 if question.must_sign_in else question.max_age_s  # without it ``auth_time`` may be missing
        parameters = {
            "response_type": "code",
            "client_id": client.id,
            "redirect_uri": question.redirect_uri,
            "scope": connector.scope,
            "state": question.state,
            "nonce": question.nonce,
            "code_challenge": question.code_challenge,
            "code_challenge_method": "S256",
            "login_hint": question.login_hint,
            "max_age": max_age_s,
            "prompt": "login" if question.must_sign_in else None,
            "acr_values": _acr_values(connector, question) or None,
            "ui_locales": question.ui_locales,
        }
        query = urlencode({name: value for name, value in parameters.items() if value is not None})
        return ProviderAddress(url=f"{address}{'&' if '?' in address else '?'}{query}")

    async def finish(self, question: FinishAtProvider) -> ProviderPerson | AccountFound:
        """Return the user of the person with whom a provider sent a browser back, or the account to link.

        Raises:
            NotAcceptedError: The person is not signed in.
            NotAcceptableError: The provider's tokens are not acceptable.
            ProviderError: The provider does not answer.
        """
        connector, client = await self._open_connector(question.connector_id)
        try:
            async with asyncio.timeout(_PROVIDER_S):
                signed, claims = await self._redeem(connector, client, question)
        except TimeoutError:
            raise ProviderError("The provider did not answer in time.") from None
        person = people.person_of(signed, claims, connector)
        if question.max_age_s is not None:
            earliest = question.begun_at / _MS - question.max_age_s - id_tokens.LEEWAY_S
            if person.auth_time is None or person.auth_time < earliest:
                raise NotAcceptedError("signed-in-too-long-ago", f"auth_time {person.auth_time}")
        if (objection := people.objection(connector, claims)) is not None:
            raise NotAcceptedError("not-allowed", objection)
        for _ in range(_ATTEMPTS):
            try:
                return await self._sign_in(connector, person, people.objection_to_new(connector, claims), question)
            except (_AgainError, Conflict):
                continue
        raise NotAcceptedError("not-allowed", "the address or the identity is taken")

    async def link(self, question: LinkIdentity) -> ProviderPerson:
        """Link an identity to the account whose owner has signed in.

        Raises:
            NotAcceptedError: It is not linked.
        """
        ticket = self._tickets.open(question.link)
        if ticket is None:
            raise NotAcceptedError("link-expired", "not genuine, or too old")
        if ticket.user_id != question.user_id:
            raise NotAcceptedError("another-account", ticket.user_id)
        try:
            return await self._link(ticket, question)
        except Conflict:
            raise NotAcceptedError("link-expired", "the identity is taken") from None

    async def read_logout(self, question: ReadLogoutToken) -> EndedAtProvider:
        """Return whose sign-ins have ended at a provider.

        Raises:
            NotAcceptedError: The connector has no client, or the token names neither a session nor a known person.
            NotAcceptableError: The token is not acceptable.
            ProviderError: The provider does not answer.
        """
        async with self._reader.connect() as connection:
            connector = await store.find_connector(connection, self._tenant_id, question.connector_id)
        if connector is None or connector.client_id is None:
            raise NotAcceptedError("connector-closed")
        said = id_tokens.read_unverified(question.logout_token, types=("jwt", "logout+jwt"))
        if said.issuer != connector.issuer:
            raise NotAcceptableError("another issuer")
        key = await self._providers.key(connector.issuer, said.key_id)
        if key is None:
            raise NotAcceptableError("unknown key")
        claims = id_tokens.verified_logout(
            question.logout_token,
            key,
            issuer=connector.issuer,
            client_id=connector.client_id,
            now_s=self._clock() / _MS,
        )
        session_id = id_tokens.text_claim(claims, "sid")
        value = id_tokens.text_claim(claims, connector.match_claim)
        if session_id is None and value is None:
            raise NotAcceptedError("no-identity", f"neither sid nor {connector.match_claim}")
        expires_at = int(claims["iat"] + id_tokens.MAX_AGE_S + id_tokens.LEEWAY_S) * _MS
        async with self._changes.unpublished() as connection:
            name = f"logout {connector.id} {claims['jti']}"
            is_first = await spend(connection, self._tenant_id, name, expires_at=expires_at, now=self._clock())
            user_id = None if value is None else await store.user_with_identity(connection, connector, value)
        before = None if is_first else int(claims["iat"]) * _MS
        subject = None if value is None else store.subject_of(connector.id, value)
        return EndedAtProvider(user_id=user_id, provider_session_id=session_id, subject=subject, before=before)

    async def _open_connector(self, connector_id: str) -> tuple[Connector, Client]:
        async with self._reader.connect() as connection:
            connector = await store.find_connector(connection, self._tenant_id, connector_id)
        client = None if connector is None or not connector.is_enabled else self._clients.client(connector)
        if connector is None or client is None:
            raise NotAcceptedError("connector-closed")
        return connector, client

    async def _redeem(
        self, connector: Connector, client: Client, question: FinishAtProvider
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the claims of the ID token, and these with those of userinfo."""
        metadata = await self._providers.metadata(connector.issuer)
        if question.issuer != connector.issuer and (question.issuer is not None or metadata.names_itself):
            raise NotAcceptedError("provider-refused", "the answer is of another issuer")
        try:
            async with self._providers.waiting(connector.issuer):
                redeemed = await self._endpoints.redeem(
                    metadata,
                    client,
                    code=question.code,
                    code_verifier=question.code_verifier,
                    redirect_uri=question.redirect_uri,
                )
        except CodeRefusedError as refused:
            raise NotAcceptedError("provider-refused", str(refused)) from None
        signed = await self._signed(connector, client, redeemed.id_token)
        if signed.get("nonce") != question.nonce:
            raise NotAcceptableError("another nonce")
        if people.wanted_claims(connector) <= signed.keys():
            return signed, signed
        async with self._providers.waiting(connector.issuer):
            return signed, await self._endpoints.userinfo(metadata, redeemed, subject=signed["sub"]) | signed

    async def _signed(self, connector: Connector, client: Client, id_token: str) -> dict[str, Any]:
        """Return the claims of an ID token that the provider has just sent; its key may be newer than those known."""
        said = id_tokens.read_unverified(id_token, longest=id_tokens.MAX_ANSWERED)
        if said.issuer != connector.issuer:
            raise NotAcceptableError("another issuer")
        claims = partial(
            id_tokens.verified_claims,
            id_token,
            issuer=connector.issuer,
            clients=[client.id],
            max_age_s=id_tokens.MAX_AGE_S,
            now_s=self._clock() / _MS,
        )
        key = await self._providers.key(connector.issuer, said.key_id)
        if key is not None:
            with suppress(WrongKeyError):
                return claims(key)
        key = await self._providers.newer_key(connector.issuer, said.key_id, than=key)
        if key is None:
            raise NotAcceptableError("unknown key")
        return claims(key)

    @retry_on_conflict
    async def _sign_in(
        self, connector: Connector, person: Person, objection: str | None, question: FinishAtProvider
    ) -> ProviderPerson | AccountFound:
        is_new = False
        async with self._changes.transaction() as transaction:
            connection = transaction.connection
            identity = await store.find_identity(connection, connector, person.value)
            if identity is not None:
                user = await self._known_user(transaction, identity)
                connector = await self._lock_open(transaction, connector)
                if connector.sync_profile:
                    user = await self._follow(transaction, user, person, question.visitor)
            else:
                connector = await self._lock_open(transaction, connector)
                if objection is not None:
                    raise NotAcceptedError("not-allowed", objection)
                account = await self._account(connection, connector, person)
                if isinstance(account, User):
                    if await store.find_identity(connection, connector, person.value) is not None:
                        raise _AgainError  # the account was made for this identity just now
                    return AccountFound(
                        link=self._tickets.issue(connector, account, person), identifier=account.identifier or ""
                    )
                user, is_new = await self._create(transaction, person, question.visitor, email=account), True
                identity = await self._add_identity(transaction, connector, user, person)
            await self._record(transaction, connector, identity, person)
        _log.info("provider-sign-in.completed", user_id=user.id, connector_id=connector.id)
        return _answer(connector, user, person, transaction.revision, is_new=is_new)

    @retry_on_conflict
    async def _link(self, ticket: LinkTicket, question: LinkIdentity) -> ProviderPerson:
        async with self._changes.transaction() as transaction:
            connection = transaction.connection
            user = await lock_user(connection, self._tenant_id, ticket.user_id)
            if user is None or not ticket.fits(user):
                raise NotAcceptedError("link-expired", "the account has changed")
            connector = await store.lock_connector(connection, self._tenant_id, ticket.connector_id, shared=True)
            if connector is None or not connector.is_open:
                raise NotAcceptedError("connector-closed")
            if (connector.issuer, connector.match_claim) != (ticket.issuer, ticket.match_claim):
                raise NotAcceptedError("link-expired", "the connector leads to another provider")
            if connector.admits_since != ticket.admits_since:
                raise NotAcceptedError("link-expired", "the connector admits other people")
            await self._require_at_no_other(connection, user, connector)
            is_first = await spend(
                connection, self._tenant_id, ticket.id, expires_at=ticket.expires_at, now=self._clock()
            )
            if not is_first or await store.find_identity(connection, connector, ticket.person.value) is not None:
                raise NotAcceptedError("link-expired", "it was used, or the identity is taken")
            audit_visitor("LinkIdentity", user.id, question.visitor)
            identity = await self._add_identity(transaction, connector, user, ticket.person)
            if connector.sync_profile:
                user = await self._follow(transaction, user, ticket.person, question.visitor)
            await self._record(transaction, connector, identity, ticket.person)
            context = LinkContext(language=question.language, application_id=question.application_id)
            notice = identity_notice(user, "factor-added", connector.shown_name, context)
            await self._mail.queue(connection, notice)
        _log.info("provider-sign-in.linked", user_id=user.id, connector_id=connector.id)
        return _answer(connector, user, ticket.person, transaction.revision, is_new=True)

    async def _known_user(self, transaction: Transaction, identity: Identity) -> User:
        user = await lock_user(transaction.connection, self._tenant_id, identity.user_id)
        if user is None:
            raise _AgainError
        if user.is_suspended:
            raise NotAcceptedError("not-allowed", "the user is suspended")
        return user

    async def _lock_open(self, transaction: Transaction, read: Connector) -> Connector:
        """Return a connector that is still as it was when the provider was asked, locked against changes."""
        connector = await store.lock_connector(transaction.connection, self._tenant_id, read.id, shared=True)
        if connector is None or not connector.is_open:
            raise NotAcceptedError("connector-closed")
        if connector != read:
            raise ProviderError("The connector was changed meanwhile.")
        return connector

    async def _account(self, connection: AsyncConnection, connector: Connector, person: Person) -> User | str | None:
        """Return the account to link; without one, the address that a new user gets.

        An account whose address was never verified may be that of another person, who has registered with it first:
        it is not linked, and the new user gets no address (docs/decisions/0064).
        """
        found = None if person.email is None else await find_user_by_email(connection, self._tenant_id, person.email)
        if found is None or person.email is None:
            return person.email
        if not (found.is_email_verified and is_same_mailbox(found.primary_email or "", person.email)):
            _log.warning("provider-sign-in.address-taken", user_id=found.id)
            return None
        if found.is_suspended:
            raise NotAcceptedError("not-allowed", "the account is suspended")
        await self._require_at_no_other(connection, found, connector)
        return found

    async def _require_at_no_other(self, connection: AsyncConnection, user: User, connector: Connector) -> None:
        """Refuse to link an account that another provider decides about: by this one, it would outlast that."""
        if await signs_in_elsewhere(connection, self._tenant_id, user.id, than=connector.id):
            raise NotAcceptedError("not-allowed", "the account signs in at another provider")

    async def _create(self, transaction: Transaction, person: Person, visitor: Visitor, *, email: str | None) -> User:
        creation = UserCreation(
            name=person.name, avatar=person.avatar, primary_email=email, is_email_verified=email is not None
        )
        user = self._users.new_user(creation)
        audit_visitor("SignInAtProvider", user.id, visitor)
        try:
            with creating_account():
                await self._users.store_new(transaction, user, None)
        except DefaultRolesRefusedError:
            raise NotAcceptedError("not-allowed", "default roles grant scopes of the Management API") from None
        await self._open_enrolment(transaction.connection, self._tenant_id, user.id)
        return user

    async def _add_identity(
        self, transaction: Transaction, connector: Connector, user: User, person: Person
    ) -> Identity:
        identity = Identity(
            tenant_id=self._tenant_id,
            id=new_id(),
            user_id=user.id,
            connector_id=connector.id,
            value=person.value,
            created_at=self._clock(),
        )
        with refusals(REFUSALS):
            await store.insert_identity(transaction.connection, identity)
        return identity

    async def _follow(self, transaction: Transaction, user: User, person: Person, visitor: Visitor) -> User:
        """Let the profile of a locked user follow the provider; what it does not say is kept."""
        email = await self._free_address(transaction.connection, user, person)
        changed = await self._users.store_profile(
            transaction, user, name=person.name, avatar=person.avatar, verified_email=email
        )
        if changed != user:
            audit_visitor("SignInAtProvider", user.id, visitor)
        return changed

    async def _free_address(self, connection: AsyncConnection, user: User, person: Person) -> str | None:
        if person.email is None:
            return None
        found = await find_user_by_email(connection, self._tenant_id, person.email)
        return person.email if found is None or found.id == user.id else None

    async def _record(self, transaction: Transaction, connector: Connector, identity: Identity, person: Person) -> None:
        signed_in = msgspec.structs.replace(
            identity,
            signed_in_at=max(self._clock(), connector.admits_since),  # by the clock of another replica
            email_domain=person.email_domain,
            groups=person.groups,
        )
        if not await store.update_identity(transaction.connection, signed_in):
            raise _AgainError
        record_groups(transaction, signed_in)


def _answer(connector: Connector, user: User, person: Person, revision: int, *, is_new: bool) -> ProviderPerson:
    return ProviderPerson(
        user_id=user.id,
        revision=revision,
        tokens_valid_after=user.tokens_valid_after,
        level=person.level,
        amr=person.amr,
        auth_time=person.auth_time,
        provider_session_id=person.session_id,
        subject=store.subject_of(connector.id, person.value),
        is_new=is_new,
    )


def _acr_values(connector: Connector, question: BeginAtProvider) -> str:
    """Return the values of ``acr`` that count as the wanted level."""
    if question.level == "password":
        return ""
    wanted = [each for each in connector.trusted_factors if each.claim == "acr"]
    return " ".join(each.value for each in wanted if satisfies(each.level, question.level) and " " not in each.value)
