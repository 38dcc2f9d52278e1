"""Creating, sending, accepting, revoking and deleting invitations to organizations."""

import hashlib
from typing import Final

from msgspec import structs
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.access.callers import admitted
from identity_common.clock import Clock, now_ms
from identity_common.failures import Conflict, missing_by_id, unknown_relation, wrong_kind
from identity_common.fields import each_once
from identity_common.identifiers import new_id, new_secret
from identity_common.outbox.changes import Changes, Transaction
from identity_common.outbox.mail import MailOutbox
from identity_common.paging import Page
from identity_common.projection.fresh_reads import FreshReads
from identity_common.stores.database import retry_on_conflict
from identity_common.wire.mail import Mail
from template_service.mail_sending import MailSender
from template_service.members.service import Members
from template_service.members.store import lock_organization, lock_roles
from template_service.organization_invitations import rules, store
from template_service.organization_invitations.rules import Invitation, InvitationMessage, InvitationStatus
from template_service.organization_invitations.store import InvitationWithRoles, OpenedInvitation

LINK_PATH: Final = "/sign-in/invitation"

_KIND: Final = "organization-invitation"
_MINUTE_MS: Final = 60_000


def link_sha256(link: str) -> str:
    """Return what is stored of a link."""
    return hashlib.sha256(link.encode()).hexdigest()


class OrganizationInvitations:
    """Invitations of e-mail addresses to organizations. Each is accepted once, by the account with the address.

    Only the mail has the link: who follows it has shown that the address is theirs. Locks are taken in the order of
    ``Members``, with the invitation after its organization.

    Args:
        reader: For reads without a transaction.
        changes: Opens the transactions of changes.
        fresh_reads: Catches up before a user is refused as unknown.
        members: Makes the user a member.
        mail: Queues the mail.
        sender: Says whether mail is sent.
        tenant_id: The tenant.
        clock: Clock, for tests.
    """

    def __init__(
        self,
        reader: AsyncEngine,
        changes: Changes,
        fresh_reads: FreshReads,
        members: Members,
        mail: MailOutbox,
        sender: MailSender,
        *,
        tenant_id: str,
        clock: Clock = now_ms,
    ) -> None:
        self._reader = reader
        self._changes = changes
        self._fresh_reads = fresh_reads
        self._members = members
        self._mail = mail
        self._sender = sender
        self._tenant_id = tenant_id
        self._clock = clock

    async def create(self, creation: rules.OrganizationInvitationCreation) -> InvitationWithRoles:
        """Invite an address to an organization; on request, with a mail.

        Raises:
            Conflict: The address has a pending invitation to the organization; or the organization, a role or the
                inviter is unknown, or a role is not for users; or no mail is sent here.
            TooManyAttempts: The address was mailed too often.
        """
        now = self._clock()
        rules.require_valid(creation, now=now)
        if creation.message_payload:
            await self._sender.require_configured()
        caller = admitted()
        invitation = Invitation(
            tenant_id=self._tenant_id,
            id=new_id(),
            organization_id=creation.organization_id,
            invitee=rules.canonical(creation.invitee),
            inviter_id=creation.inviter_id or (None if caller is None else caller.user_id),
            role_ids=list(each_once(creation.organization_role_ids)),
            created_at=now,
            updated_at=now,
            expires_at=creation.expires_at,
        )
        await self._fresh_reads.with_catch_up(lambda: self._create(invitation, creation.message_payload or None))
        return await self.get(invitation.id)

    @retry_on_conflict
    async def _create(self, invitation: Invitation, message: InvitationMessage | None) -> None:
        async with self._changes.transaction() as transaction:
            connection = transaction.connection
            if not await lock_organization(connection, self._tenant_id, invitation.organization_id):
                raise unknown_relation()
            if invitation.inviter_id is not None and not await self._is_known(transaction, invitation.inviter_id):
                raise unknown_relation()
            await self._require_roles(transaction, invitation)
            await store.insert_invitation(connection, invitation)
            if message is not None:
                await self._send(transaction, invitation, message)
            transaction.record_action(_KIND, (invitation.id,), "create")

    async def get(self, invitation_id: str) -> InvitationWithRoles:
        """Return an invitation."""
        async with self._reader.connect() as connection:
            found = await store.find_invitation(connection, self._tenant_id, invitation_id)
        if found is None:
            raise missing_by_id()
        return self._as_of_now(found)

    async def list_invitations(
        self,
        page: Page,
        *,
        organization_id: str | None,
        invitee: str | None,
        inviter_id: str | None,
        status: InvitationStatus | None,
    ) -> tuple[list[InvitationWithRoles], int]:
        """Return a page of the invitations, by address, and their total; None does not filter."""
        async with self._reader.connect() as connection:
            found, total = await store.list_invitations(
                connection,
                self._tenant_id,
                page,
                organization_id=organization_id,
                invitee=invitee,
                inviter_id=inviter_id,
                status=status,
                now=self._clock(),
            )
        return [self._as_of_now(each) for each in found], total

    async def send(self, invitation_id: str, message: InvitationMessage) -> None:
        """Send the mail of a pending invitation again, with a new link: the earlier one ends.

        Raises:
            Conflict: The invitation is not pending; or no mail is sent here.
            TooManyAttempts: The address was mailed too often.
        """
        await self._sender.require_configured()
        await self._send_again(invitation_id, message)

    @retry_on_conflict
    async def _send_again(self, invitation_id: str, message: InvitationMessage) -> None:
        async with self._changes.transaction() as transaction:
            invitation = await self._lock(transaction, invitation_id)
            invitation.require_pending(self._clock())
            await self._send(transaction, invitation, message)
            transaction.record_action(_KIND, (invitation_id,), "send")

    @retry_on_conflict
    async def delete(self, invitation_id: str) -> None:
        """Delete an invitation, which ends its link."""
        async with self._changes.transaction() as transaction:
            if not await store.delete_invitation(transaction.connection, self._tenant_id, invitation_id):
                raise missing_by_id("entity.not_found")
            transaction.record_action(_KIND, (invitation_id,), "delete")

    async def decide(self, invitation_id: str, decision: rules.InvitationDecision) -> InvitationWithRoles:
        """Accept a pending invitation on behalf of a user, or revoke it.

        Raises:
            Conflict: The invitation is not pending; or the user is unknown, suspended, or has another address.
        """
        user_id = rules.accepting_user(decision)
        if user_id is None:
            await self._revoke(invitation_id)
        else:
            await self._accept_fresh(invitation_id, user_id, sha256=None)
        return await self.get(invitation_id)

    async def opened_by(self, sha256: str) -> OpenedInvitation | None:
        """Return the pending invitation with a link; None if there is none."""
        async with self._reader.connect() as connection:
            found = await store.find_by_link(connection, self._tenant_id, sha256)
        return found if found is not None and found.invitation.status_at(self._clock()) == "Pending" else None

    async def is_invited(self, address: str) -> bool:
        """Return whether an e-mail address has a pending invitation."""
        async with self._reader.connect() as connection:
            return await store.is_invited(connection, self._tenant_id, address, now=self._clock())

    async def accept_by_link(self, invitation_id: str, user_id: str, sha256: str) -> None:
        """Accept an invitation for an account, as long as this is its link.

        Raises:
            NotFound: It does not exist any more.
            Conflict: It is not pending or has another link; or the user is unknown, suspended, or has another address.
        """
        await self._accept_fresh(invitation_id, user_id, sha256=sha256)

    async def _accept_fresh(self, invitation_id: str, user_id: str, *, sha256: str | None) -> None:
        """Accept; catch up before the user is refused as unknown, or for an address that may be an earlier one."""
        try:
            await self._fresh_reads.with_catch_up(lambda: self._accept(invitation_id, user_id, sha256=sha256))
        except Conflict as failure:
            if failure.code != rules.OTHER_ADDRESS:
                raise
            await self._fresh_reads.catch_up()
            await self._accept(invitation_id, user_id, sha256=sha256)

    @retry_on_conflict
    async def _revoke(self, invitation_id: str) -> None:
        async with self._changes.transaction() as transaction:
            invitation = await self._lock(transaction, invitation_id)
            invitation.require_pending(self._clock())
            await self._store_decision(transaction, invitation, "Revoked")
            transaction.record_action(_KIND, (invitation_id,), "revoke")

    @retry_on_conflict
    async def _accept(self, invitation_id: str, user_id: str, *, sha256: str | None) -> None:
        """Accept an invitation; membership, roles and status are one transaction.

        Args:
            invitation_id: The invitation.
            user_id: The account that accepts.
            sha256: Of the link that must still be the invitation's; None for a caller of the Management API.
        """
        async with self._changes.transaction() as transaction:
            invitation = await self._lock(transaction, invitation_id)
            invitation.require_pending(self._clock())
            if sha256 is not None and not await store.has_link(
                transaction.connection, self._tenant_id, invitation_id, sha256
            ):
                raise rules.not_pending("Revoked")
            await self._require_invited(transaction, invitation, user_id)
            role_ids = await store.lock_given_roles(transaction.connection, self._tenant_id, invitation.role_ids)
            await self._members.admit(transaction, invitation.organization_id, user_id, role_ids)
            await self._store_decision(transaction, invitation, "Accepted", user_id=user_id)
            if not transaction.changes:  # the user was a member with these roles: no event tells of the acceptance
                transaction.record_action(_KIND, (invitation_id,), "accept")

    async def _lock(self, transaction: Transaction, invitation_id: str) -> Invitation:
        """Lock the organization of an invitation, and the invitation."""
        found = await store.find_invitation(transaction.connection, self._tenant_id, invitation_id)
        if found is None:
            raise missing_by_id()
        await lock_organization(transaction.connection, self._tenant_id, found.invitation.organization_id)
        invitation = await store.lock_invitation(transaction.connection, self._tenant_id, invitation_id)
        if invitation is None:
            raise missing_by_id()
        return invitation

    async def _require_invited(self, transaction: Transaction, invitation: Invitation, user_id: str) -> None:
        user = await store.lock_user(transaction.connection, self._tenant_id, user_id)
        if user is None:
            raise unknown_relation()
        invitation.require_invited(user.primary_email)
        if user.is_suspended:
            raise Conflict("user.suspended", "The user is suspended.")

    async def _require_roles(self, transaction: Transaction, invitation: Invitation) -> None:
        found = await lock_roles(transaction.connection, self._tenant_id, invitation.role_ids, ())
        if not found.ids.issuperset(invitation.role_ids):
            raise unknown_relation()
        if found.types - {"User"}:
            raise wrong_kind("People are invited with roles of the type User.")

    async def _is_known(self, transaction: Transaction, user_id: str) -> bool:
        return await store.lock_user(transaction.connection, self._tenant_id, user_id) is not None

    async def _send(self, transaction: Transaction, invitation: Invitation, message: InvitationMessage) -> None:
        """Give the invitation a new link, and queue the mail with it."""
        now, link, connection = self._clock(), new_secret(), transaction.connection
        mails = await store.count_mail(
            connection, self._tenant_id, invitation.invitee, now=now, window_ms=rules.HOUR_MS
        )
        rules.require_mailable(invitation, now=now, mails=mails)
        sha256 = link_sha256(link)
        opened = await store.store_link(connection, self._tenant_id, invitation.id, sha256, now=now)
        minutes = -(-(invitation.expires_at - now) // _MINUTE_MS)
        values = {"link": f"{LINK_PATH}?link={link}", "organization": opened.organization, "minutes": str(minutes)}
        if opened.inviter:
            values["inviter"] = opened.inviter
        if message.message:
            values["message"] = message.message
        mail = Mail(
            kind="organization-invitation",
            recipient=invitation.invitee,
            language=message.language,
            organization_id=invitation.organization_id,
            expires_at=invitation.expires_at,
            values=values,
        )
        await self._mail.queue(connection, mail)

    async def _store_decision(
        self, transaction: Transaction, invitation: Invitation, status: InvitationStatus, *, user_id: str | None = None
    ) -> None:
        await store.store_decision(
            transaction.connection, self._tenant_id, invitation.id, status, user_id=user_id, now=self._clock()
        )

    def _as_of_now(self, found: InvitationWithRoles) -> InvitationWithRoles:
        status = found.invitation.status_at(self._clock())
        return found._replace(invitation=structs.replace(found.invitation, status=status))
