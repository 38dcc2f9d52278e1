"""The commands of the service, apart from ``migrate``: each builds what it needs from the settings, and blocks."""

import asyncio
import os
from pathlib import Path
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.audited_request import AUDITED_REQUEST, AuditedRequest
from identity_common.bus.connection import Bus
from identity_common.failures import Conflict
from identity_common.names import is_blank
from identity_common.outbox.changes import Changes
from identity_common.outbox.commands import SourceCommands
from identity_common.outbox.mail import MailOutbox
from identity_common.progress import Progress
from identity_common.rights.scopes import SCOPE_ALL
from identity_common.sealing import SealingKeys
from identity_common.serving import CommandError, run_restoration
from identity_common.stores.lookups import Lookups
from identity_common.stores.reader import autocommit
from identity_common.stores.redis import RedisCommands, connect_redis
from identity_common.telemetry.metrics import counter
from management_service.applications.service import Applications
from management_service.bootstrap.console import ConsoleBootstrap
from management_service.bootstrap.credentials_file import CredentialsFile
from management_service.bootstrap.first_client import RESOURCE_NAME, Bootstrap, Credentials
from management_service.bootstrap.first_policy import FirstPolicy
from management_service.bootstrap.kubernetes_secret import KubernetesSecret
from management_service.factors.changes import FactorChanges
from management_service.factors.enrolments import Enrolments
from management_service.factors.service import MAX_REASON, Factors
from management_service.impersonation_policy.service import ImpersonationPolicies
from management_service.invitations.service import Invitations
from management_service.parts import shared_with_commands as parts
from management_service.parts.mail import mail_limit
from management_service.passwords.hashing import Passwords
from management_service.passwords.store import find_password_hash, find_password_hash_of
from management_service.republication import republication_steps
from management_service.restoration import mend
from management_service.roles.assignments import Assignments
from management_service.roles.service import Roles
from management_service.settings import Settings
from management_service.users.phone_keys import canonicalize_phone_keys
from management_service.users.service import Users

_EVERYTHING_PUBLISHED: Final = 2**62
_BOOTSTRAP_LOCK: Final = text("SELECT pg_advisory_lock(hashtext('identity-bootstrap'))")  # until the session ends


def bootstrap(settings: Settings) -> Credentials:
    """Create the first client of the Management API and a new secret. Blocks; runs its own event loop.

    Where the settings name a Secret of Kubernetes or a file, write the credentials there, unless it has valid ones;
    where they name a Secret for the console, also create what the console needs. Where they turn on something of the
    policy of impersonations, set it, unless it was set before.

    Raises:
        CommandError: A role of another type has the name of a bootstrap role, a role to exclude does not exist, or a
            Secret cannot be written.
    """

    def secret(name: str) -> KubernetesSecret | None:
        return KubernetesSecret.in_this_pod(name, os.environ) if name else None

    file = CredentialsFile(Path(settings.bootstrap_file)) if settings.bootstrap_file else None
    return asyncio.run(
        _bootstrap(
            settings,
            secret(settings.bootstrap_secret_name) or file,
            console=secret(settings.bootstrap_console_secret_name),
            administrator=secret(settings.bootstrap_administrator_secret_name),
        )
    )


def republish(settings: Settings) -> None:
    """Ask the active relay to publish the whole state again. Blocks; runs its own event loop."""
    asyncio.run(_of_source(settings).republish())


def restored(settings: Settings) -> None:
    """Make a database that was restored to an earlier point safe to start with. Blocks; runs its own event loop.

    Raises:
        CommandError: The service is running, or NATS does not answer.
    """
    bus = Bus(settings.nats_url, service="management", replicas=settings.nats_replicas)
    run_restoration(_of_source(settings).restore(bus, mend), service="management-service")


def reset_factors(settings: Settings, *, user: str, reason: str) -> str | None:
    """Remove all factors of a user, and return a code to set up a first one. Blocks; runs its own event loop.

    Args:
        settings: Of the service.
        user: Id, user name, e-mail address or telephone number.
        reason: For the audit trail.

    Returns:
        The code; None where the policy lets no user set up a factor.

    Raises:
        CommandError: There is no such user, or the reason is blank or too long.
    """
    if is_blank(reason) or len(reason) > MAX_REASON:
        raise CommandError(f"the reason must have 1 to {MAX_REASON} characters, not all of them blank")
    return asyncio.run(_reset_factors(settings, user, reason))


def canonicalize_phones(settings: Settings) -> None:
    """Store the canonical keys of phone numbers; log the users whose number another has. Blocks; runs its own loop."""
    asyncio.run(_canonicalize_phones(settings))


async def _canonicalize_phones(settings: Settings) -> None:
    engine = parts.engine_for_repairs(settings)
    try:
        async with engine.begin() as connection:
            await connection.run_sync(canonicalize_phone_keys)
    finally:
        await engine.dispose()


def _of_source(settings: Settings) -> SourceCommands:
    engine, tenant_id = parts.engine_for_repairs(settings), settings.tenant_id
    changes = parts.changes(settings, engine, Progress())
    return SourceCommands(
        engine, changes, steps=republication_steps(tenant_id), source="management", tenant_id=tenant_id
    )


async def _bootstrap(
    settings: Settings,
    stored: KubernetesSecret | CredentialsFile | None,
    *,
    console: KubernetesSecret | None = None,
    administrator: KubernetesSecret | None = None,
) -> Credentials:
    engine = parts.engine(settings)
    reader = autocommit(engine)
    lookups = Lookups(settings.database_url, service="management-service")
    published = Progress()
    published.advance(_EVERYTHING_PUBLISHED)  # the running service's relay publishes; bootstrap does not wait for it
    changes = parts.changes(settings, engine, published)
    administrators, attainable = parts.administrators(settings), parts.attainable_scopes(settings)
    tenant_id = settings.tenant_id
    try:
        async with reader.connect() as one_at_a_time:
            await one_at_a_time.execute(_BOOTSTRAP_LOCK)
            await changes.prepare()
            earlier = Credentials.from_values(await stored.read()) if stored else None
            roles = Roles(reader, lookups, changes, administrators, attainable, tenant_id=tenant_id)
            credentials = await Bootstrap(
                resources=parts.resources(settings, reader, lookups, changes),
                roles=roles,
                applications=_applications(settings, reader, lookups, changes),
                assignments=Assignments(reader, changes, administrators, attainable, tenant_id=tenant_id),
                management_api=settings.management_api_resource,
            ).run(earlier)
            if stored and credentials != earlier:
                await stored.write(msgspec.structs.asdict(credentials))
            if console:
                await _bootstrap_console(settings, reader, lookups, changes, console, administrator)
            policies = ImpersonationPolicies(
                reader, changes, tenant_id=tenant_id, offers_passkeys=settings.offers_passkeys
            )
            await FirstPolicy(policies, roles, tenant_id=tenant_id).ensure(
                require_actor=settings.bootstrap_require_actor,
                require_context=settings.bootstrap_require_context,
                excluded_roles=settings.bootstrap_excluded_roles,
            )
            return credentials
    finally:
        for each in (stored, console, administrator):
            if each:
                await each.aclose()
        lookups.stop()
        await engine.dispose()


def _applications(settings: Settings, reader: AsyncEngine, lookups: Lookups, changes: Changes) -> Applications:
    # The only redirect URIs are those of the console, below BASE_URL, which is https unless that is on loopback.
    return Applications(
        reader,
        lookups,
        changes,
        parts.attainable_scopes(settings),
        tenant_id=settings.tenant_id,
        allow_http_redirects=True,
        offers_passkeys=settings.offers_passkeys,
    )


def _users(
    settings: Settings,
    reader: AsyncEngine,
    lookups: Lookups,
    changes: Changes,
    passwords: Passwords,
    commands: RedisCommands,
) -> Users:
    administrators, attainable = parts.administrators(settings), parts.attainable_scopes(settings)
    assignments = Assignments(reader, changes, administrators, attainable, tenant_id=settings.tenant_id)
    return Users(
        reader,
        lookups,
        changes,
        passwords,
        parts.sign_in_attempts(settings, commands),
        administrators,
        attainable,
        searcher=reader,
        record_default_roles=assignments.record_default_roles,
        tenant_id=settings.tenant_id,
    )


async def _reset_factors(settings: Settings, identifier: str, reason: str) -> str | None:
    engine, tenant_id = parts.engine(settings), settings.tenant_id
    reader, lookups = autocommit(engine), Lookups(settings.database_url, service="management-service")
    passwords, redis = Passwords(threads=1), connect_redis(settings.redis_url)
    published = Progress()
    published.advance(_EVERYTHING_PUBLISHED)  # as for bootstrap
    changes = parts.changes(settings, engine, published)
    users = _users(settings, reader, lookups, changes, passwords, RedisCommands(redis))
    try:
        async with reader.connect() as connection:
            found = await find_password_hash_of(connection, tenant_id, identifier)
            found = found or await find_password_hash(connection, tenant_id, identifier)
        if found is None:
            raise CommandError("no user has this id, user name, e-mail address or telephone number")
        await changes.prepare()
        _audit_command("ResetUserFactors", user_id=found.id, reason=reason)
        factors = _factors(settings, reader, lookups, changes, users, RedisCommands(redis))
        await factors.reset(found.id)
        try:
            return (await factors.create_enrolment_code(found.id))[0]
        except Conflict:  # the policy is off
            return None
    finally:
        passwords.close()
        lookups.stop()
        await redis.aclose()
        await engine.dispose()


def _factors(
    settings: Settings, reader: AsyncEngine, lookups: Lookups, changes: Changes, users: Users, commands: RedisCommands
) -> Factors:
    tenant_id = settings.tenant_id
    mail = MailOutbox(SealingKeys(settings.mail_keys), tenant_id=tenant_id)
    throttled = counter(CollectorRegistry(), "throttled", "Attempts beyond a limit, by limit.", "limit")
    limit = mail_limit(commands, tenant_id=tenant_id, throttled=throttled)
    enrolments = Enrolments(
        reader,
        lookups,
        changes,
        mail,
        limit,
        offers_passkeys=False,  # nothing is shown
        is_mail_sent=settings.sends_mail,
        tenant_id=tenant_id,
    )
    return Factors(
        reader,
        changes,
        users,
        FactorChanges(users, enrolments, mail, tenant_id=tenant_id),
        enrolments,
        parts.administrators(settings),
        parts.attainable_scopes(settings),
        offers_passkeys=False,
        tenant_id=tenant_id,
    )


def _audit_command(operation: str, *, user_id: str, reason: str) -> None:
    """Have the changes of a command recorded in the audit trail, without a caller."""
    AUDITED_REQUEST.set(
        AuditedRequest(
            operation=operation,
            application_id=None,
            user_id=None,
            token_id="",
            address="",
            user_agent="",
            ids={"user_id": user_id},
            reason=reason.strip(),
        )
    )


async def _bootstrap_console(
    settings: Settings,
    reader: AsyncEngine,
    lookups: Lookups,
    changes: Changes,
    client: KubernetesSecret,
    administrator: KubernetesSecret | None,
) -> None:
    tenant_id = settings.tenant_id
    administrators, attainable = parts.administrators(settings), parts.attainable_scopes(settings)
    assignments = Assignments(reader, changes, administrators, attainable, tenant_id=tenant_id)
    # Users take the counter of sign-in attempts, but creating one does not connect to Redis.
    passwords, redis = Passwords(threads=1), connect_redis(settings.redis_url)
    users = _users(settings, reader, lookups, changes, passwords, RedisCommands(redis))
    console = ConsoleBootstrap(
        roles=Roles(reader, lookups, changes, administrators, attainable, tenant_id=tenant_id),
        applications=_applications(settings, reader, lookups, changes),
        users=users,
        invitations=Invitations(reader, changes, users, passwords, attainable, tenant_id=tenant_id),
        assignments=assignments,
        changes=changes,
        tenant_id=tenant_id,
        base_url=settings.base_url,
        minimum_acr=None if (minimum := settings.bootstrap_console_minimum_acr) == "none" else minimum,
    )
    try:
        minimum_acr = await console.client(client)
        if administrator:
            scopes = await parts.resources(settings, reader, lookups, changes).ensure_management_api(RESOURCE_NAME)
            await console.administrator(administrator, scope_id=scopes[SCOPE_ALL].id, minimum_acr=minimum_acr)
    finally:
        passwords.close()
        await redis.aclose()
