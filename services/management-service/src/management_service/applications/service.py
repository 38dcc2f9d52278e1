"""Creates, reads, changes and deletes applications and their secrets."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.clock import Clock, now_ms, whole_second
from identity_common.failures import (
    Conflict,
    ErrorData,
    Issue,
    body_too_large,
    duplicate,
    invalid_input,
    missing_by_id,
    wrong_kind,
)
from identity_common.fields import FreeForm, free_form_text, is_too_large, merged
from identity_common.identifiers import new_id, new_secret
from identity_common.names import accepted_name, canonical_name
from identity_common.outbox.changes import Changes, Transaction
from identity_common.paging import Page
from identity_common.stores.database import refusals, retry_on_conflict
from identity_common.stores.lookups import Lookups
from identity_common.wire.events import ApplicationState, ApplicationType, AssignmentState, SecretState
from management_service.applications import rules, store
from management_service.applications.store import Application, ApplicationFilter, Secret
from management_service.attainable_scopes import AttainableScopes
from management_service.party_ends import Cause, client_party, put_party_end
from management_service.reachable_levels import require_reachable


def _third_party_exchange() -> Conflict:
    return Conflict(
        "application.third_party_application_cannot_enable_token_exchange",
        "A third-party application cannot exchange tokens.",
    )


def _third_party_without_pkce() -> Conflict:
    return Conflict(
        "application.third_party_application_cannot_disable_pkce",
        "A third-party application must use PKCE.",
    )


def _http_redirect_uris(paths: Iterable[str]) -> Conflict:
    why = (
        "must be https: http is for Native applications, and for others only during development, with the setting "
        "ALLOW_HTTP_LOOPBACK_REDIRECTS of management-service"
    )
    issues = [Issue(path=path, message=why) for path in paths]
    return Conflict("application.http_redirect_uri", f"A redirect URI {why}.", data=ErrorData(issues=issues))


_REFUSALS = {
    "applications_third_party_exchange": _third_party_exchange,
    "applications_third_party_pkce": _third_party_without_pkce,
    "application_secrets_pkey": lambda: duplicate(
        "application.secret_name_exists", "The application already has a secret with this name."
    ),
}

_OIDC_MEMBERS = ("redirect_uris", "post_logout_redirect_uris")
_LISTS = (*_OIDC_MEMBERS, "cors_allowed_origins")
_BRANDING_MEMBERS = ("logo_uri", "primary_color")
_CUSTOM_MEMBERS = {
    "allow_token_exchange": "allow_token_exchange",
    "allow_management_api": "allow_management_api",
    "cors_allowed_origins": "cors_allowed_origins",
    "id_token_ttl": "id_token_ttl_s",
    "refresh_token_ttl_in_days": "refresh_token_ttl_days",
    "rotate_refresh_token": "rotate_refresh_token",
    "always_issue_refresh_token": "always_issue_refresh_token",
    "token_endpoint_auth_method": "token_endpoint_auth_method",
    "require_pkce": "require_pkce",
    "minimum_acr": "minimum_acr",
}
_CREDENTIALS = (*_LISTS, "token_endpoint_auth_method", "require_pkce", "minimum_acr", "is_third_party")
"""The members that decide who gets the application's tokens."""

_OF_SIGN_INS = (
    *(*_OIDC_MEMBERS, *_BRANDING_MEMBERS, "id_token_ttl_s", "refresh_token_ttl_days", "rotate_refresh_token"),
    *("always_issue_refresh_token", "minimum_acr"),
)
"""The members that mean nothing without users who sign in."""

_DEFAULTS = {
    field.name: field.default for field in msgspec.structs.fields(Application) if field.default is not msgspec.NODEFAULT
}


def application_state(application: Application, secrets: list[Secret]) -> ApplicationState:
    """Return the state of an application for its event, with the hashes of its secrets."""
    return ApplicationState(
        id=application.id,
        name=application.name,
        type=application.type,
        is_third_party=application.is_third_party,
        allow_token_exchange=application.allow_token_exchange,
        exchanged_valid_after=application.exchanged_valid_after,
        allow_management_api=application.allow_management_api,
        id_token_ttl_s=application.id_token_ttl_s,
        refresh_token_ttl_days=application.refresh_token_ttl_days,
        rotate_refresh_token=application.rotate_refresh_token,
        always_issue_refresh_token=application.always_issue_refresh_token,
        token_endpoint_auth_method=application.token_endpoint_auth_method,
        require_pkce=application.require_pkce,
        minimum_acr=application.minimum_acr,
        redirect_uris=application.redirect_uris,
        post_logout_redirect_uris=application.post_logout_redirect_uris,
        cors_allowed_origins=application.cors_allowed_origins,
        secrets=tuple(SecretState(sha256=secret.sha256, expires_at=secret.expires_at) for secret in secrets),
        logo_uri=application.logo_uri,
        primary_color=application.primary_color,
        custom_data=Raw(application.custom_data.encode()),
    )


def _nested(metadata: msgspec.Struct | None, columns: dict[str, str]) -> dict[str, Any]:
    """Return the columns that the given members of a nested object set; null sets the default.

    Args:
        metadata: The object; None if it was given as null.
        columns: The column of each member.
    """
    if metadata is None:
        return {column: _DEFAULTS[column] for column in columns.values()}
    members = {}
    for name, column in columns.items():
        value = getattr(metadata, name)
        if value is not UNSET:
            members[column] = _DEFAULTS[column] if value is None else value
    return members


def _members(
    application_type: ApplicationType, body: rules.ApplicationCreation | rules.ApplicationUpdate
) -> dict[str, Any]:
    """Return the given members, as they are stored.

    Raises:
        Conflict: The type does not have a setting, or no third parties.
    """
    oidc, custom, branding = body.oidc_client_metadata, body.custom_client_metadata, body.branding
    members: dict[str, Any] = {
        name: getattr(body, name) for name in ("name", "description") if getattr(body, name) is not UNSET
    }
    _require_users(application_type, third_party=bool(body.is_third_party))
    if body.is_third_party is not UNSET:
        members["is_third_party"] = bool(body.is_third_party)
    if oidc is not UNSET:
        members |= _nested(oidc, {name: name for name in _OIDC_MEMBERS})
    if custom is not UNSET:
        members |= _nested(custom, _CUSTOM_MEMBERS)
        if refused := rules.unsuitable_setting(application_type, custom):
            raise wrong_kind(refused)
    if branding is not UNSET:
        members |= _nested(branding, {name: name for name in _BRANDING_MEMBERS})
    if body.custom_data is not UNSET:
        members["custom_data"] = free_form_text(body.custom_data)
    _require_bounded(members)
    for name in _LISTS:
        if name in members:
            members[name] = tuple(members[name])
    return members


def _require_users(application_type: ApplicationType, *, third_party: bool) -> None:
    """Refuse a third-party application that has no users, who would be asked for consent."""
    if third_party and application_type == "MachineToMachine":
        message = "A machine-to-machine application has no users whose consent could be asked for."
        raise Conflict("application.invalid_third_party_application_type", message)


def _require_no_sign_ins(members: dict[str, Any], *, stored: Application | None = None) -> None:
    """Refuse what a machine-to-machine application has no use for, unless it is the default or stored already."""
    for name in _OF_SIGN_INS:
        kept = (_DEFAULTS[name], getattr(stored, name, _DEFAULTS[name]))
        if members.get(name, _DEFAULTS[name]) not in kept:
            raise wrong_kind(
                "A machine-to-machine application has no sign-ins, and therefore no redirect URIs, no branding, no ID "
                "tokens, no refresh tokens and no minimumAcr."
            )


def _require_bounded(members: dict[str, Any]) -> None:
    uris = [uri for name in _OIDC_MEMBERS for uri in members.get(name, ())]
    texts = (
        members.get("custom_data", ""),
        msgspec.json.encode(uris).decode(),
        msgspec.json.encode(members.get("cors_allowed_origins", ())).decode(),
    )
    if any(map(is_too_large, texts)):
        raise body_too_large()


class Applications:
    """Applications; each, with the hashes of its secrets, is an aggregate on the bus.

    Args:
        reader: For queries.
        changes: For writes.
        attainable: Keeps callers from scopes of the Management API that they lack.
        tenant_id: The tenant.
        allow_http_redirects: Whether other applications than Native ones may have redirect URIs with ``http``.
        offers_passkeys: Whether passkeys can be used here.
        clock: Milliseconds since the epoch.
    """

    def __init__(
        self,
        reader: AsyncEngine,
        lookups: Lookups,
        changes: Changes,
        attainable: AttainableScopes,
        *,
        tenant_id: str,
        allow_http_redirects: bool,
        offers_passkeys: bool,
        clock: Clock = now_ms,
    ) -> None:
        self._reader = reader
        self._lookups = lookups
        self._changes = changes
        self._attainable = attainable
        self._tenant_id = tenant_id
        self._allow_http_redirects = allow_http_redirects
        self._offers_passkeys = offers_passkeys
        self._clock = clock

    @retry_on_conflict
    async def create(self, creation: rules.ApplicationCreation) -> Application:
        """Create an application, without a secret.

        Raises:
            Conflict: The name is not valid; or the type, or a third-party application, may not have a setting or URI.
        """
        self._require_acceptable(creation.type, creation, stored={})
        members = _members(creation.type, creation)
        if creation.type == "MachineToMachine":
            _require_no_sign_ins(members)
        members["name"] = accepted_name(creation.name)
        now = self._clock()
        application = Application(
            tenant_id=self._tenant_id, id=new_id(), type=creation.type, created_at=now, updated_at=now, **members
        )
        if application.allow_management_api:
            self._attainable.require_everything()
        async with self._changes.transaction() as transaction:
            with refusals(_REFUSALS):
                await store.insert_application(transaction.connection, application)
            transaction.record("application", (application.id,), "created", application_state(application, []))
        return application

    async def get(self, application_id: str) -> Application:
        """Return an application."""
        application = await store.find_application(self._lookups, self._tenant_id, application_id)
        if application is None:
            raise missing_by_id()
        return application

    async def list_applications(
        self, page: Page, only: ApplicationFilter, *, without: Sequence[str]
    ) -> tuple[list[Application], int]:
        """Return a page of the applications that a filter selects, except the ids in ``without``, and their total."""
        async with self._reader.connect() as connection:
            return await store.list_applications(connection, self._tenant_id, page, only, without=without)

    @retry_on_conflict
    async def update(self, application_id: str, update: rules.ApplicationUpdate) -> Application:
        """Change the given members of an application.

        Raises:
            Conflict: The name is not valid; or the type, or a third-party application, may not have a setting or URI.
        """
        async with self._changes.transaction() as transaction:
            application = await self._lock(transaction, application_id, otherwise="entity.not_exists")
            stored = {name: frozenset(getattr(application, name)) for name in _LISTS}
            self._require_acceptable(application.type, update, stored=stored)
            members = _members(application.type, update)
            if application.type == "MachineToMachine":
                _require_no_sign_ins(members, stored=application)
            if update.name is not UNSET:
                members["name"] = accepted_name(update.name, stored=application.name)
            return await self._store_change(transaction, application, members)

    @retry_on_conflict
    async def merge_custom_data(self, application_id: str, members: FreeForm) -> Application:
        """Change members of an application's custom data; null removes one."""
        async with self._changes.transaction() as transaction:
            application = await self._lock(transaction, application_id)
            custom_data = free_form_text(merged(application.custom_data, members))
            if is_too_large(custom_data):
                raise body_too_large()
            return await self._store_change(transaction, application, {"custom_data": custom_data})

    @retry_on_conflict
    async def delete(self, application_id: str) -> None:
        """Delete an application with its secrets and roles."""
        async with self._changes.transaction() as transaction:
            application = await self._lock(transaction, application_id, otherwise="entity.not_found")
            self._require_keeping(application)
            await store.delete_application(transaction.connection, self._tenant_id, application_id)
            await self._record_end(transaction, application_id, "deleted")
            state = ApplicationState(id=application_id, deleted=True)
            transaction.record("application", (application_id,), "deleted", state)
            if application.type == "MachineToMachine":
                assignment = AssignmentState(id=application_id, deleted=True, holder_kind="application")
                transaction.record("assignment", ("application", application_id), "deleted", assignment)

    @retry_on_conflict
    async def create_secret(self, application_id: str, creation: rules.SecretCreation) -> tuple[Secret, str]:
        """Create a secret; its value is returned but not stored.

        Raises:
            Conflict: The name is blank or in use, it is one secret too many, or the client is public.
        """
        issues = [
            Issue(path=path, message=message) for path, message in rules.secret_problems(creation, now=self._clock())
        ]
        if issues:
            raise invalid_input(*issues)
        name = accepted_name(creation.name)
        value = new_secret()
        secret = Secret(
            tenant_id=self._tenant_id,
            application_id=application_id,
            name=name,
            sha256=hashlib.sha256(value.encode()).hexdigest(),
            created_at=self._clock(),
            expires_at=creation.expires_at,
        )
        async with self._changes.transaction() as transaction:
            application = await self._lock(transaction, application_id)
            if not rules.may_have_secrets(application.type):
                raise wrong_kind(
                    "An application of the type SPA or Native has no secrets, as every copy of it would contain them; "
                    "it uses PKCE."
                )
            await self._require_attainable(transaction, application)
            with refusals(_REFUSALS):
                await store.insert_secret(transaction.connection, secret)
            if await self._record(transaction, application) > rules.MAX_SECRETS:
                message = f"An application can have at most {rules.MAX_SECRETS} secrets."
                raise Conflict("entity.db_constraint_violated", message)
        return secret, value

    async def list_secrets(self, application_id: str, page: Page) -> tuple[list[Secret], int]:
        """Return a page of an application's secrets, without their values, and their total."""
        async with self._reader.connect() as connection:
            return await store.list_secrets(connection, self._tenant_id, application_id, page)

    @retry_on_conflict
    async def rename_secret(self, application_id: str, name: str, update: rules.SecretUpdate) -> Secret:
        """Rename a secret, if a new name is given.

        Raises:
            Conflict: The name is blank or in use.
        """
        new_name = name if update.name is UNSET else update.name
        if new_name != name:
            problems = rules.secret_name_problems(new_name)
            issues = [Issue(path=path, message=message) for path, message in problems]
            if issues:
                raise invalid_input(*issues)
            new_name = accepted_name(new_name)
        async with self._changes.transaction() as transaction:
            application = await self._lock(transaction, application_id)
            stored_name = await self._stored_secret_name(transaction, application_id, name)
            if update.name is UNSET:
                new_name = stored_name
            with refusals(_REFUSALS):
                secret = await store.rename_secret(
                    transaction.connection, self._tenant_id, application_id, stored_name, new_name
                )
            if secret is None:
                raise missing_by_id("entity.not_exists")
            if new_name != stored_name:
                await self._record(transaction, application)
        return secret

    @retry_on_conflict
    async def delete_secret(self, application_id: str, name: str) -> None:
        """Delete a secret."""
        async with self._changes.transaction() as transaction:
            application = await self._lock(transaction, application_id)
            self._require_keeping(application)
            name = await self._stored_secret_name(transaction, application_id, name)
            if not await store.delete_secret(transaction.connection, self._tenant_id, application_id, name):
                raise missing_by_id("entity.not_found")
            await self._record(transaction, application)

    def _require_acceptable(
        self,
        application_type: ApplicationType,
        body: rules.ApplicationCreation | rules.ApplicationUpdate,
        *,
        stored: rules.Stored,
    ) -> None:
        """Refuse unacceptable URIs, origins and looks, and a minimum that no sign-in reaches."""
        oidc, custom = body.oidc_client_metadata or None, body.custom_client_metadata or None
        require_reachable(custom and custom.minimum_acr, offers_passkeys=self._offers_passkeys)
        problems = (
            *rules.problems(application_type, oidc, custom, stored=stored),
            *rules.branding_problems(body.branding or None),
        )
        if problems:
            raise invalid_input(*(Issue(path=path, message=message) for path, message in problems))
        insecure = list(rules.http_redirect_uris(application_type, oidc, stored=stored))
        if insecure and not self._allow_http_redirects:
            raise _http_redirect_uris(insecure)

    async def _stored_secret_name(self, transaction: Transaction, application_id: str, name: str) -> str:
        """Return the name that a path means: as it is if there is such a secret, else in canonical form."""
        if await store.has_secret(transaction.connection, self._tenant_id, application_id, name):
            return name
        return canonical_name(name)

    async def _lock(
        self, transaction: Transaction, application_id: str, *, otherwise: str = "entity.not_exists_with_id"
    ) -> Application:
        application = await store.lock_application(transaction.connection, self._tenant_id, application_id)
        if application is None:
            raise missing_by_id(otherwise)
        return application

    async def _store_change(
        self, transaction: Transaction, application: Application, members: dict[str, Any]
    ) -> Application:
        """Store and record the application with these members; a no-op if nothing changes."""
        changed = msgspec.structs.replace(application, **members)
        if changed == application:
            return application
        if any(getattr(changed, name) != getattr(application, name) for name in _CREDENTIALS):
            await self._require_attainable(transaction, application)
        if changed.allow_management_api != application.allow_management_api:
            self._attainable.require_everything()
        now = self._clock()
        changed = msgspec.structs.replace(changed, updated_at=max(now, application.updated_at))
        is_switched = changed.allow_token_exchange != application.allow_token_exchange
        if is_switched and (application.allow_token_exchange or application.exchanged_valid_after):
            # At both switches: a token may still be issued for a moment after token exchange is switched off.
            changed = msgspec.structs.replace(changed, exchanged_valid_after=whole_second(now))
        with refusals(_REFUSALS):
            await store.update_application(transaction.connection, changed)
        if is_switched and not changed.allow_token_exchange:
            await self._record_end(transaction, application.id, "exchange_off")
        await self._record(transaction, changed)
        return changed

    async def _require_attainable(self, transaction: Transaction, application: Application) -> None:
        """Require what the application holds, or lets the users hold who sign in to it: its credentials change."""
        self._require_keeping(application)
        await self._attainable.require_holder(transaction.connection, "application", application.id)

    def _require_keeping(self, application: Application) -> None:
        """Require ``all`` for the application that administrators sign in to: without it, none can undo a change."""
        if application.allow_management_api:
            self._attainable.require_everything()

    async def _record_end(self, transaction: Transaction, application_id: str, cause: Cause) -> None:
        party = client_party(application_id)
        await put_party_end(transaction.connection, self._tenant_id, party, cause, now=self._clock())

    async def _record(self, transaction: Transaction, application: Application) -> int:
        """Record an application with its secrets; return how many it has."""
        whole = Page(size=None)
        secrets, count = await store.list_secrets(transaction.connection, self._tenant_id, application.id, whole)
        transaction.record("application", (application.id,), "updated", application_state(application, secrets))
        return count
