"""Applying sign-ins through connectors: joining organizations, and the roles that groups give and no longer give.

The events of what changed, those of permissions included, are recorded in the transaction that applies them: behind
them, a sign-in is known to hold.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from identity_common.outbox.changes import Transaction
from stead.event_types import MemberState, PermissionCause
from template_service.fan_out.batch import BatchTooLargeError, lock_out_others, publish_differences
from template_service.fan_out.batch import MemberKey as ComparedMember
from template_service.fan_out.requests import request_members_fan_out
from template_service.provider_sign_ins import rules, store
from template_service.provider_sign_ins.rules import MemberKey, Reason, Source
from template_service.provider_sign_ins.store import SignIns

_KIND: Final = "provider-groups"

Roles = dict[str, frozenset[str]]
"""Roles by id, and their origins."""


async def apply_sign_ins(transaction: Transaction, tenant_id: str, *, now: int) -> None:
    """Apply what was stored of sign-ins, and of identities that have gone, and is to be applied."""
    sources = await store.to_apply(transaction.connection, tenant_id)
    if sources:
        await _Application(transaction, tenant_id, sources, now=now).run()


class _Application:
    """Applies the sign-ins of some users through some connectors.

    Locks are taken in the order of ``Members``, behind that of the fan-out: organization, member, roles.
    """

    def __init__(self, transaction: Transaction, tenant_id: str, sources: Mapping[Source, bool], *, now: int) -> None:
        self._transaction = transaction
        self._tenant_id = tenant_id
        self._sign_ins = SignIns(transaction.connection, tenant_id, sources)
        self._now = now
        self._connectors_of: dict[str, set[str]] = defaultdict(set)
        self._signed_in: set[str] = set()
        for (user_id, connector_id), has_signed_in in sources.items():
            self._connectors_of[user_id].add(connector_id)
            if has_signed_in:
                self._signed_in.add(user_id)

    async def run(self) -> None:
        sign_ins = self._sign_ins
        await lock_out_others(self._transaction.connection, self._tenant_id)
        reasons = await sign_ins.reasons()
        concerned = {reason.member for reason in reasons} | await sign_ins.concerned_before()
        if concerned:
            organizations = await sign_ins.lock_organizations({key.organization_id for key in concerned})
            await self._apply(
                [reason for reason in reasons if reason.organization_id in organizations],
                [key for key in concerned if key.organization_id in organizations],
            )
        await sign_ins.applied()

    async def _apply(self, reasons: Sequence[Reason], concerned: Collection[MemberKey]) -> None:
        joined = await self._join(reasons)
        members = await self._sign_ins.lock(concerned)
        held = await self._sign_ins.held(members)
        roles = await self._roles_afterwards(reasons, held, joined)
        stays = rules.lasting(reasons)
        leaving = {
            key
            for key, is_by_groups in members.items()
            if is_by_groups and key not in stays and rules.holds_for_groups_alone(roles[key])
        }
        if staying := {key for key in stays if members.get(key)}:
            await self._sign_ins.stay(staying)
        if leaving:
            await self._sign_ins.leave(leaving)
        remaining = roles.keys() - leaving
        await self._store({key: roles[key] for key in remaining}, held)
        changed = {key for key in remaining if key in joined or roles[key].keys() != held[key].keys()}
        await self._record(joined, changed, removed=leaving - joined)

    async def _join(self, reasons: Sequence[Reason]) -> set[MemberKey]:
        """Add those who are not members yet.

        Who was a member before, and is none any more, returns only for a group: domains and connectors let people join
        once.
        """
        for_groups = {reason.member for reason in reasons if reason.role_id is not None}
        lasting = rules.lasting(reasons)
        wanted = {key: key not in lasting for key in for_groups | lasting}
        joined = await self._sign_ins.join(wanted, now=self._now) if wanted else set()
        # A statement of its own, with a later snapshot: the previous one may have waited for a removal.
        returning = {MemberKey(*ids) for ids in await self._transaction.deleted("member", joined)}
        if refused := returning - for_groups:
            await self._sign_ins.leave(refused)
        if rejoined := returning - refused:
            await self._sign_ins.mark_rejoined(rejoined)
        return joined - refused

    async def _roles_afterwards(
        self, reasons: Sequence[Reason], held: Mapping[MemberKey, Roles], joined: Collection[MemberKey]
    ) -> dict[MemberKey, Roles]:
        given = rules.given_by_groups(reasons)
        joining = await self._sign_ins.given_on_joining({key.organization_id for key in joined}) if joined else {}
        wanted = {role_id for roles in (*given.values(), *joining.values()) for role_id in roles}
        available = await self._sign_ins.lock_roles(wanted) if wanted else set()
        return {
            key: rules.origins_afterwards(
                roles,
                {role_id: origins for role_id, origins in given.get(key, {}).items() if role_id in available},
                signed_in_through=self._connectors_of[key.member_id],
                joining=joining[key.organization_id] & available if key in joined else (),
            )
            for key, roles in held.items()
        }

    async def _store(self, roles: Mapping[MemberKey, Roles], held: Mapping[MemberKey, Roles]) -> None:
        changed = {
            (key, role_id): origins
            for key in roles
            for role_id, origins in roles[key].items()
            if held[key].get(role_id) != origins
        }
        if changed:
            await self._sign_ins.store_origins(changed)
        if taken := {(key, role_id) for key in roles for role_id in held[key].keys() - roles[key].keys()}:
            await self._sign_ins.take(taken)

    async def _record(
        self, joined: Collection[MemberKey], changed: Collection[MemberKey], *, removed: Collection[MemberKey]
    ) -> None:
        """Record the events of these members and of their permissions, and what each sign-in did."""
        causes: dict[MemberKey, PermissionCause] = {}
        for state in await self._sign_ins.states(changed) if changed else ():
            key = MemberKey(state.organization_id, state.member_id)
            self._transaction.record("member", key, "created" if key in joined else "updated", state)
            causes[key] = "assignment"
        for key in sorted(removed):
            state = MemberState(organization_id=key.organization_id, member_id=key.member_id, deleted=True)
            self._transaction.record("member", key, "deleted", state)
            causes[key] = "member-removed"
        # What ended an identity has an entry of its own, in management-service.
        for user_id in sorted(self._signed_in.intersection(key.member_id for key in causes)):
            members = [f"member/{key.organization_id}/{user_id}" for key in sorted(causes) if key.member_id == user_id]
            self._transaction.record_sign_in(_KIND, user_id, members)
        await self._publish(causes)

    async def _publish(self, causes: Mapping[MemberKey, PermissionCause]) -> None:
        if not causes:
            return
        recorded = len(self._transaction.changes)
        try:
            await publish_differences(
                self._transaction, self._tenant_id, {ComparedMember(*key): cause for key, cause in causes.items()}
            )
        except BatchTooLargeError:  # dozens of members whose events have their full size: the fan-out divides them
            del self._transaction.changes[recorded:]
            for cause in sorted(set(causes.values())):
                members = [key for key in sorted(causes) if causes[key] == cause]
                await request_members_fan_out(self._transaction, self._tenant_id, members, cause)
