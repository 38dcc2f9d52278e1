"""Reading the whole template as a document, and replacing it with one."""

from collections.abc import Collection
from typing import Final, NamedTuple

from msgspec import UNSET
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from identity_common.failures import (
    Conflict,
    ErrorData,
    Issue,
    body_too_large,
    invalid_input,
    invalid_scope_name,
    too_many_related,
    unknown_relation,
    wrong_kind,
)
from identity_common.identifiers import new_id
from identity_common.names import invalid_name
from identity_common.outbox.changes import Changes, Transaction
from identity_common.projection.fresh_reads import FreshReads
from identity_common.stores.database import retry_on_conflict
from stead.event_types import (
    GrantedPermission,
    OrganizationPermissionState,
    OrganizationRoleState,
    PermissionCause,
)
from template_service.document import rules, store
from template_service.document.rules import RoleChange, RoleChanges, TemplateDocument, TemplateReport
from template_service.document.store import StoredTemplate
from template_service.fan_out.requests import request_role_fan_outs
from template_service.role_contents.events import record_roles, touch_roles
from template_service.role_contents.store import Content

_CONTENTS: Final[tuple[Content, ...]] = ("permission", "scope")


class _Compared(NamedTuple):
    """The locked template, and a document that can replace it.

    Attributes:
        after: The template afterwards.
        roles: How the roles differ.
        content_ids: Ids of everything that roles grant before or after, except for permissions yet to be created.
    """

    before: StoredTemplate
    after: rules.Template
    roles: RoleChanges
    content_ids: dict[GrantedPermission, str]


class _Plan(NamedTuple):
    """The changes to make."""

    before: StoredTemplate
    after: rules.Template
    content_ids: dict[GrantedPermission, str]
    report: TemplateReport


class OrganizationTemplate:
    """The template as one document.

    Args:
        reader: For reads without a transaction.
        changes: Opens the transactions of changes.
        fresh_reads: Catches up before a scope is refused as unknown.
        tenant_id: The tenant.
        urn_namespace: Reserved: no name may begin with it.
        management_api: Indicator of the Management API, whose scopes no organization role can grant.
    """

    def __init__(
        self,
        reader: AsyncEngine,
        changes: Changes,
        fresh_reads: FreshReads,
        *,
        tenant_id: str,
        urn_namespace: str,
        management_api: str,
    ) -> None:
        self._reader = reader
        self._changes = changes
        self._fresh_reads = fresh_reads
        self._tenant_id = tenant_id
        self._urn_namespace = urn_namespace
        self._management_api = management_api

    async def get(self) -> TemplateDocument:
        """Return the template, from one snapshot."""
        async with self._reader.connect() as connection:
            return rules.document_of((await store.read_template(connection, self._tenant_id)).template)

    async def put(self, document: TemplateDocument, *, dry_run: bool) -> TemplateReport:
        """Replace the template with a document in one transaction; return what that changes.

        Names are identifiers: a renamed permission or role is a new one, and what is not in the document is deleted.

        Args:
            document: The whole template.
            dry_run: Change nothing; refuse what would be refused otherwise.

        Raises:
            TooLarge: There are too many grants.
            Invalid: Something is repeated, or two roles have names that are the same once composed.
            Conflict: A name is not valid; a role grants too much, something undefined or unknown, or a scope of the
                Management API; or the type of a role that a member holds would change.
        """
        self._require_sound(document)
        return await self._fresh_reads.with_catch_up(lambda: self._put(document, dry_run=dry_run))

    async def compare(self, document: TemplateDocument) -> tuple[StoredTemplate, rules.Template]:
        """Return the template as it is, and as it would be; change nothing, and refuse what ``put`` would refuse."""
        self._require_sound(document)
        return await self._fresh_reads.with_catch_up(lambda: self._compare(document))

    @retry_on_conflict
    async def _compare(self, document: TemplateDocument) -> tuple[StoredTemplate, rules.Template]:
        async with self._changes.transaction() as transaction:
            await store.lock_template(transaction.connection, self._tenant_id)
            compared = await self._compared(transaction.connection, document)
        return compared.before, compared.after

    @retry_on_conflict
    async def _put(self, document: TemplateDocument, *, dry_run: bool) -> TemplateReport:
        async with self._changes.transaction() as transaction:
            await store.lock_template(transaction.connection, self._tenant_id)
            plan = await self._plan(transaction.connection, document)
            if not dry_run:
                await self._apply(transaction, plan)
        return plan.report

    def _require_sound(self, document: TemplateDocument) -> None:
        """Refuse a document that is invalid regardless of what is stored."""
        if rules.is_too_large(document):
            raise body_too_large(f"The roles grant more than {rules.MAX_GRANTS} permissions together.")
        if repeated := rules.repetitions(document):
            raise invalid_input(*repeated[: rules.MAX_ISSUES])
        names = rules.unacceptable_names(document, urn_namespace=self._urn_namespace)
        _refuse_at(names, invalid_scope_name())
        _refuse_at(rules.too_large_roles(document), too_many_related())
        _refuse_at(rules.undefined_permissions(document), unknown_relation())
        refusal = wrong_kind("An organization role cannot grant scopes of the Management API.")
        _refuse_at(rules.scopes_of_resource(document, self._management_api), refusal)

    async def _plan(self, connection: AsyncConnection, document: TemplateDocument) -> _Plan:
        """Compare a document with the locked template, and count the members that the difference affects."""
        before, after, roles, content_ids = await self._compared(connection, document)
        counted = rules.changed_grants(before.template, after)
        reached = await store.count_members(connection, self._tenant_id, before.role_ids, counted)
        alike = list(counted.values())
        report = TemplateReport(
            permissions=rules.permission_changes(before.template, after),
            roles=roles,
            members=rules.member_effects((alike[ordinal], *reach) for ordinal, reach in reached.items()),
        )
        return _Plan(before, after, content_ids, report)

    async def _compared(self, connection: AsyncConnection, document: TemplateDocument) -> _Compared:
        """Compare a document with the locked template; refuse one that cannot replace it."""
        scopes = {GrantedPermission(scope.name, scope.resource) for role in document.roles for scope in role.scopes}
        scope_ids = await store.lock_scopes(connection, self._tenant_id, scopes)
        _refuse_at(rules.unknown_scopes(document, scope_ids), unknown_relation())
        before = await store.read_template(connection, self._tenant_id)
        document = self._with_stored_names(document, before)
        after = rules.template_of(document)
        roles = rules.role_changes(before.template, after)
        retyped = {before.role_ids[change.name]: change.name for change in roles.updated if change.type is not UNSET}
        await self._require_unassigned(connection, document, retyped)
        return _Compared(before, after, roles, {**before.content_ids, **scope_ids})

    def _with_stored_names(self, document: TemplateDocument, stored: StoredTemplate) -> TemplateDocument:
        """Return the document with the names under which its roles are stored."""
        named, issues = rules.with_stored_names(document, stored.template.roles.keys())
        if issues:
            raise invalid_name(*issues[: rules.MAX_ISSUES])
        if repeated := rules.repetitions(named):
            raise invalid_input(*repeated[: rules.MAX_ISSUES])
        return named

    async def _require_unassigned(
        self, connection: AsyncConnection, document: TemplateDocument, retyped: dict[str, str]
    ) -> None:
        """Refuse to change the type of a role that a member holds or is being assigned."""
        if retyped:
            await store.lock_roles_exclusively(connection, self._tenant_id, retyped)
            names = {retyped[role_id] for role_id in await store.assigned(connection, self._tenant_id, retyped)}
            refusal = wrong_kind("The type of a role cannot be changed while a member holds it.")
            _refuse_at(rules.types_of(document, names), refusal)

    async def _apply(self, transaction: Transaction, plan: _Plan) -> None:
        """Apply the differences; permissions first, so that roles can grant them."""
        permission_ids = await self._apply_permissions(transaction, plan)
        await self._apply_roles(transaction, plan, {**plan.content_ids, **permission_ids})

    async def _apply_permissions(self, transaction: Transaction, plan: _Plan) -> dict[GrantedPermission, str]:
        """Create, describe and delete permissions; return the ids of the new ones."""
        connection, changes = transaction.connection, plan.report.permissions
        created = {name: new_id() for name in changes.created}
        described = [(plan.content_ids[GrantedPermission(each.name)], each) for each in changes.updated]
        deleted = [plan.content_ids[GrantedPermission(name)] for name in changes.deleted]
        await store.delete_permissions(connection, self._tenant_id, deleted)
        new = [(created[name], name, plan.after.permissions[name]) for name in created]
        await store.insert_permissions(connection, self._tenant_id, new)
        descriptions = [(permission_id, each.description.after) for permission_id, each in described]
        await store.describe_permissions(connection, self._tenant_id, descriptions)
        for name, permission_id in created.items():
            state = OrganizationPermissionState(id=permission_id, name=name, description=plan.after.permissions[name])
            transaction.record("permission", (permission_id,), "created", state)
        for permission_id, each in described:
            state = OrganizationPermissionState(id=permission_id, name=each.name, description=each.description.after)
            transaction.record("permission", (permission_id,), "updated", state)
        for permission_id in deleted:
            state = OrganizationPermissionState(id=permission_id, deleted=True)
            transaction.record("permission", (permission_id,), "deleted", state)
        return {GrantedPermission(name): permission_id for name, permission_id in created.items()}

    async def _apply_roles(
        self, transaction: Transaction, plan: _Plan, content_ids: dict[GrantedPermission, str]
    ) -> None:
        """Create, change and delete roles; schedule recomputation for the holders of changed ones."""
        connection, changes, tenant_id = transaction.connection, plan.report.roles, self._tenant_id
        created = {name: new_id() for name in changes.created}
        updated = {plan.before.role_ids[each.name]: each for each in changes.updated}
        deleted = sorted(plan.before.role_ids[name] for name in changes.deleted)
        await store.lock_roles_exclusively(connection, tenant_id, deleted)
        await store.delete_roles(connection, tenant_id, deleted)
        after = plan.after.roles
        new = [(role_id, name, after[name].description, after[name].type) for name, role_id in created.items()]
        await store.insert_roles(connection, tenant_id, new)
        others = [(role_id, after[each.name].description, after[each.name].type) for role_id, each in updated.items()]
        await store.change_roles(connection, tenant_id, others)
        added = [(role_id, granted) for role_id, each in updated.items() for granted in each.added]
        added += [(role_id, granted) for name, role_id in created.items() for granted in after[name].grants]
        removed = [(role_id, granted) for role_id, each in updated.items() for granted in each.removed]
        for content in _CONTENTS:
            await store.revoke(connection, tenant_id, content, _pairs(content, removed, content_ids))
            await store.grant(connection, tenant_id, content, _pairs(content, added, content_ids))
        if updated:
            await touch_roles(transaction, tenant_id, updated)
            await record_roles(transaction, tenant_id, updated)
        if created:
            await record_roles(transaction, tenant_id, created.values(), "created")
        for role_id in deleted:
            transaction.record("role", (role_id,), "deleted", OrganizationRoleState(id=role_id, deleted=True))
        gone = {GrantedPermission(name) for name in plan.report.permissions.deleted}
        causes: dict[PermissionCause, list[str]] = {
            "role-deleted": deleted,
            "role-changed": [],
            "permission-deleted": [],
        }
        for role_id, each in updated.items():
            if each.added or each.removed:
                causes[_cause(each, gone)].append(role_id)
        for cause, role_ids in causes.items():
            await request_role_fan_outs(transaction, tenant_id, role_ids, cause)


def _cause(change: RoleChange, gone: Collection[GrantedPermission]) -> PermissionCause:
    """Return why the grants of a role change: ``permission-deleted`` if they only lose deleted permissions."""
    if not change.added and all(permission in gone for permission in change.removed):
        return "permission-deleted"
    return "role-changed"


def _pairs(
    content: Content,
    granted: Collection[tuple[str, GrantedPermission]],
    content_ids: dict[GrantedPermission, str],
) -> list[tuple[str, str]]:
    """Return the grants of one kind of content as sorted pairs of ids: the role, the content."""
    is_permission = content == "permission"
    return sorted((role_id, content_ids[each]) for role_id, each in granted if (each.resource is None) is is_permission)


def _refuse_at(found: list[Issue], conflict: Conflict) -> None:
    """Refuse the document if issues were found; the first of them are reported."""
    if found:
        raise Conflict(conflict.code, conflict.message, data=ErrorData(found[: rules.MAX_ISSUES]))
