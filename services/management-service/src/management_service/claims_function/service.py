"""Saves, reads, activates and deletes versions of the custom-claims function, and tests scripts."""

import msgspec
from msgspec import UNSET
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.access.callers import Caller
from identity_common.clock import Clock, now_ms
from identity_common.failures import Conflict, ErrorData, Refused, body_too_large, missing_by_id, unknown_relation
from identity_common.fields import FreeForm, free_form_text, is_too_large
from identity_common.outbox.changes import Changes, Transaction
from identity_common.paging import Page
from identity_common.sealing import NoFittingKeyError
from identity_common.stores.database import retry_on_conflict
from identity_common.telemetry.logs import get_logger
from identity_common.wire.claims_function import (
    DryRun,
    DryRunAnswer,
    Failure,
    Function,
    RecordingState,
    ScriptProblem,
    SealedVariables,
    TestScript,
    TokenKind,
)
from identity_common.wire.events import ClaimsFunctionState
from management_service.claims_function import rules, store
from management_service.claims_function.scripts import Scripts
from management_service.claims_function.store import Counter, FoundVersion, Version

_log = get_logger(__name__)

AGGREGATE = "claims-function"
"""Kind of the aggregate on the bus."""

_GENERAL = "jwt_customizer.general"


class Tested(msgspec.Struct, frozen=True):
    """Result of a test of a script.

    Attributes:
        dropped: Names of claims that were dropped because they are reserved.
    """

    claims: FreeForm
    dropped: list[str]


class _Contents(msgspec.Struct, frozen=True, kw_only=True):
    """Contents of a version, before it has a number."""

    script: str
    variables: rules.Variables
    context_sample: str | None
    token_sample: str | None
    block_issuance_on_error: bool


def function_state(version: Version) -> ClaimsFunctionState:
    """Return the state of the function for its event, when a version is active."""
    return ClaimsFunctionState(
        kind=version.kind,
        version=version.version,
        script=version.script,
        sealed_environment_variables=version.sealed_environment_variables,
        block_issuance_on_error=version.block_issuance_on_error,
    )


def _verb(counter: Counter) -> str:
    """Return the verb of the event that makes a version the active one."""
    return "created" if counter.active is None else "updated"


def _unacceptable(problem: ScriptProblem) -> Conflict:
    data = ErrorData(reason=problem.reason, line=problem.line, column=problem.column)
    return Conflict(_GENERAL, problem.message or "The script failed.", data=data)


def _too_large(what: str, *, line: int | None = None, column: int | None = None) -> Conflict:
    return Conflict(_GENERAL, what, data=ErrorData(reason="too-large", line=line, column=column))


def _unreadable(version: Version) -> Conflict:
    message = (
        f"The environment variables of version {version.version} cannot be decrypted: the service has lost their key."
        " Send others, or have the key restored."
    )
    return Conflict(_GENERAL, message, data=ErrorData(reason="unreadable-variables"))


def _log_change(verb: str, kind: TokenKind, version: int, caller: Caller) -> None:
    _log.info(
        f"claims-function.{verb}",
        kind=kind,
        version=version,
        application_id=caller.application_id,
        user_id=caller.user_id,
    )


def _require_sizes(script: str, variables: rules.Variables, *samples: str | None) -> None:
    if rules.is_script_too_large(script):
        line, column = rules.first_excess(script)
        raise _too_large(f"The script must have at most {rules.MAX_SCRIPT_BYTES} bytes.", line=line, column=column)
    if rules.are_variables_too_large(variables):
        limits = f"{rules.MAX_VARIABLES} environment variables, and {rules.MAX_VARIABLE_BYTES} bytes together"
        raise _too_large(f"There may be at most {limits}.")
    if any(sample is not None and is_too_large(sample) for sample in samples):
        raise body_too_large()


def _require_variables(version: Version, update: rules.FunctionUpdate) -> None:
    """Refuse a changed script that would get the stored environment variables: it could return their values."""
    names = [*version.environment_variable_names]
    if update.script in {UNSET, version.script} or update.environment_variables is not UNSET or not names:
        return
    message = (
        "A changed script needs its environment variables anew, because it could return the stored values: send"
        f" environmentVariables. Version {version.version} has {', '.join(names)}."
    )
    raise Conflict(_GENERAL, message, data=ErrorData(reason="variables-needed", missing=names))


def _with_variables(function: Function, given: rules.Variables | None) -> Function:
    """Return a function with the given environment variables, or its own if none are given; check its size."""
    if given is not None:
        function = msgspec.structs.replace(function, environment_variables=given)
    _require_sizes(function.script, function.environment_variables)
    return function


def _sample(value: FreeForm | None) -> str | None:
    return None if value is None else free_form_text(value)


class ClaimsFunctions:
    """The custom-claims function for each kind of token; every save is a new version.

    A script is checked by token-service before the transaction begins. Within it the counter of the kind is locked, so
    that version numbers have no gaps and at most one version is active.

    Args:
        scripts: Checks and runs scripts, in token-service.
        variables: Seals environment variables.
    """

    def __init__(
        self,
        reader: AsyncEngine,
        changes: Changes,
        scripts: Scripts,
        variables: SealedVariables,
        *,
        tenant_id: str,
        clock: Clock = now_ms,
    ) -> None:
        self._reader = reader
        self._changes = changes
        self._scripts = scripts
        self._variables = variables
        self._tenant_id = tenant_id
        self._clock = clock

    async def get(self, kind: TokenKind, *, missing: str = "entity.not_exists_with_id") -> Version:
        """Return the active version.

        Args:
            kind: Kind of token.
            missing: Code of the failure if none is active.
        """
        async with self._reader.connect() as connection:
            version = await store.find_active(connection, self._tenant_id, kind)
        if version is None:
            raise missing_by_id(missing)
        return version

    async def get_version(self, kind: TokenKind, number: int) -> FoundVersion:
        """Return a version, active or not."""
        async with self._reader.connect() as connection:
            found = await store.find_version(connection, self._tenant_id, kind, number)
        if found is None:
            raise missing_by_id()
        return found

    async def list_versions(self, kind: TokenKind, page: Page) -> tuple[list[FoundVersion], int]:
        """Return a page of the versions, newest first, and their total; deleting the function keeps them."""
        async with self._reader.connect() as connection:
            return await store.list_versions(connection, self._tenant_id, kind, page)

    async def replace(self, kind: TokenKind, body: rules.FunctionReplacement, caller: Caller) -> tuple[Version, bool]:
        """Save a new version and make it the active one; return it and whether none was active before.

        Raises:
            Conflict: The script is not acceptable, or too large.
        """
        contents = _Contents(
            script=body.script,
            variables=body.environment_variables or {},
            context_sample=_sample(body.context_sample),
            token_sample=_sample(body.token_sample),
            block_issuance_on_error=body.block_issuance_on_error,
        )
        _require_sizes(contents.script, contents.variables, contents.context_sample, contents.token_sample)
        await self._require_acceptable(contents.script)
        return await self._replace(kind, contents, caller)

    @retry_on_conflict
    async def _replace(self, kind: TokenKind, contents: _Contents, caller: Caller) -> tuple[Version, bool]:
        async with self._changes.transaction() as transaction:
            counter = await store.lock_counter(transaction.connection, self._tenant_id, kind)
            version = await self._save(transaction, kind, counter, contents, caller)
        _log_change("saved", kind, version.version, caller)
        return version, counter.active is None

    async def update(self, kind: TokenKind, update: rules.FunctionUpdate, caller: Caller) -> Version:
        """Save the active version with these changes as a new one; without a change, nothing is saved.

        Raises:
            NotFound: No version is active.
            Conflict: The script is not acceptable, or too large. Or environment variables of the active version are not
                replaced, although the script is changed or no key opens them.
        """
        active = await self.get(kind, missing="entity.not_exists")
        contents, _ = self._updated(active, update)
        _require_sizes(contents.script, contents.variables, contents.context_sample, contents.token_sample)
        _require_variables(active, update)
        if update.script is not UNSET:
            await self._require_acceptable(update.script)
        return await self._update(kind, update, caller)

    @retry_on_conflict
    async def _update(self, kind: TokenKind, update: rules.FunctionUpdate, caller: Caller) -> Version:
        async with self._changes.transaction() as transaction:
            counter = await store.lock_counter(transaction.connection, self._tenant_id, kind)
            active = await store.find_active(transaction.connection, self._tenant_id, kind)
            if active is None:
                raise missing_by_id("entity.not_exists")
            _require_variables(active, update)
            contents, is_changed = self._updated(active, update)
            version = active
            if is_changed:
                version = await self._save(transaction, kind, counter, contents, caller)
        if version is not active:
            _log_change("saved", kind, version.version, caller)
        return version

    @retry_on_conflict
    async def activate(self, kind: TokenKind, number: int, caller: Caller) -> Version:
        """Make a version the active one; a no-op if it is already.

        Raises:
            Conflict: No key opens its environment variables: each call would fail.
        """
        async with self._changes.transaction() as transaction:
            connection = transaction.connection
            counter = await store.lock_counter(connection, self._tenant_id, kind)
            found = await store.find_version(connection, self._tenant_id, kind, number)
            if found is None:
                raise missing_by_id()
            if counter.active != number:
                self._require_readable(found.version)
                await store.set_counter(connection, self._tenant_id, kind, Counter(counter.last, number))
                self._record(transaction, found.version, _verb(counter))
        if counter.active != number:
            _log_change("activated", kind, number, caller)
        return found.version

    @retry_on_conflict
    async def delete(self, kind: TokenKind, caller: Caller) -> None:
        """Deactivate the function; its versions remain, and each can be activated again.

        Raises:
            NotFound: No version is active.
        """
        async with self._changes.transaction() as transaction:
            counter = await store.lock_counter(transaction.connection, self._tenant_id, kind)
            if counter.active is None:
                raise missing_by_id("entity.not_found")
            await store.set_counter(transaction.connection, self._tenant_id, kind, Counter(counter.last, None))
            transaction.record(AGGREGATE, (kind,), "deleted", ClaimsFunctionState(kind=kind, deleted=True))
        _log_change("deleted", kind, counter.active, caller)

    async def test(self, body: rules.FunctionTest) -> Tested:
        """Run a script or a saved version once, with given arguments.

        Raises:
            Invalid: There is neither a script nor a version.
            Refused: The script denied access.
            Conflict: The script failed or is too large; there is no such version, or no key opens its environment
                variables.
        """
        function = await self._chosen(body.token_type, body)
        await self._changes.record_action(AGGREGATE, (body.token_type,), "test")
        tested = await self._scripts.test(
            TestScript(
                kind=body.token_type,
                function=function,
                token=body.token,
                context=body.context,
            )
        )
        if tested.problem is not None:
            raise _unacceptable(tested.problem)
        if tested.denied is not None:
            raise Refused(_GENERAL, tested.denied or "The script denied access.")
        return Tested(tested.claims, tested.dropped)

    async def dry_run(self, kind: TokenKind, body: rules.FunctionDryRun) -> DryRunAnswer:
        """Run a candidate over the recorded inputs, beside the active version.

        Raises:
            Invalid: There is neither a script nor a version.
            Conflict: The script is not acceptable, or too large; there is no such version, or no key opens its
                environment variables.
        """
        candidate = await self._chosen(kind, body)
        async with self._reader.connect() as connection:
            active = await store.find_active(connection, self._tenant_id, kind)
        in_force = None if active is None else self._function(active)
        if body.script is not UNSET:
            await self._require_acceptable(body.script)
        await self._changes.record_action(AGGREGATE, (kind,), "dry-run")
        return await self._scripts.dry_run(DryRun(kind=kind, candidate=candidate, active=in_force))

    async def record(self, kind: TokenKind, minutes: int) -> RecordingState:
        """Start recording inputs; 0 minutes stop it and delete the inputs."""
        await self._changes.record_action("claims-function-recording", (kind,), "update" if minutes else "delete")
        state = await self._scripts.record(kind, minutes)
        _log.info("claims-function.recording", kind=kind, count=minutes)
        return state

    async def recording(self, kind: TokenKind) -> RecordingState:
        """Return whether inputs are being recorded, until when, and how many are held."""
        return await self._scripts.recording(kind)

    async def failures(self, kind: TokenKind) -> list[Failure]:
        """Return the last failures, newest first."""
        return await self._scripts.failures(kind)

    async def renew_seals(self) -> None:
        """Reseal what an older key has sealed, so that the older key can be removed from the settings."""
        async with self._changes.transaction(await_publication=False) as transaction:
            renewed = 0
            for found in await store.lock_all_sealed(transaction.connection, self._tenant_id):
                version = found.version
                sealed = version.sealed_environment_variables
                if self._variables.is_newest(sealed, kind=version.kind, version=version.version):
                    continue
                try:
                    changed = self._sealed(version, self._open(version))
                except NoFittingKeyError:
                    _log.error("claims-function.unreadable", kind=version.kind, version=version.version)
                    continue
                await store.reseal(transaction.connection, changed)
                if found.is_active:
                    self._record(transaction, changed, "updated")
                renewed += 1
        if renewed:
            _log.info("claims-function.resealed", count=renewed)

    async def _require_acceptable(self, script: str) -> None:
        problem = await self._scripts.problem(script)
        if problem is not None:  # without a position, the start of the script
            raise _unacceptable(msgspec.structs.replace(problem, line=problem.line or 1, column=problem.column or 1))

    async def _save(
        self, transaction: Transaction, kind: TokenKind, counter: Counter, contents: _Contents, caller: Caller
    ) -> Version:
        number = counter.last + 1
        unsealed = Version(
            tenant_id=self._tenant_id,
            kind=kind,
            version=number,
            script=contents.script,
            sealed_environment_variables="",
            environment_variable_names=tuple(sorted(contents.variables)),
            context_sample=contents.context_sample,
            token_sample=contents.token_sample,
            block_issuance_on_error=contents.block_issuance_on_error,
            created_at=self._clock(),
            created_by_application_id=caller.application_id,
            created_by_user_id=caller.user_id,
        )
        version = self._sealed(unsealed, contents.variables)
        await store.insert_version(transaction.connection, version)
        await store.set_counter(transaction.connection, self._tenant_id, kind, Counter(number, number))
        self._record(transaction, version, _verb(counter))
        return version

    def _record(self, transaction: Transaction, version: Version, verb: str) -> None:
        transaction.record(AGGREGATE, (version.kind,), verb, function_state(version))

    def _updated(self, version: Version, update: rules.FunctionUpdate) -> tuple[_Contents, bool]:
        """Return the contents of a version with the given changes, and whether there is any.

        Raises:
            Conflict: No key opens the environment variables, and they are not replaced.
        """
        stored: rules.Variables | None
        try:
            stored = self._open(version)
        except NoFittingKeyError:
            stored = None
        variables = stored if update.environment_variables is UNSET else update.environment_variables or {}
        if variables is None:
            raise _unreadable(version)
        contents = _Contents(
            script=version.script,
            variables=variables,
            context_sample=version.context_sample,
            token_sample=version.token_sample,
            block_issuance_on_error=version.block_issuance_on_error,
        )
        changed = _changed(contents, update)
        return changed, changed != contents or variables != stored

    async def _chosen(self, kind: TokenKind, body: rules.FunctionTest | rules.FunctionDryRun) -> Function:
        """Return what to run: a script, or a version with its own environment variables unless others are given.

        A script gets no stored variables: it could return their values, which are write-only.
        """
        chosen = rules.script_or_version(body)
        function = Function(script=chosen) if isinstance(chosen, str) else await self._stored(kind, chosen)
        return _with_variables(function, body.environment_variables)

    async def _stored(self, kind: TokenKind, number: int) -> Function:
        """Return a saved version with its own environment variables."""
        async with self._reader.connect() as connection:
            found = await store.find_version(connection, self._tenant_id, kind, number)
        if found is None:
            raise unknown_relation()
        return self._function(found.version)

    def _function(self, version: Version) -> Function:
        variables = self._require_readable(version)
        return Function(version=version.version, script=version.script, environment_variables=variables)

    def _require_readable(self, version: Version) -> rules.Variables:
        try:
            return self._open(version)
        except NoFittingKeyError:
            raise _unreadable(version) from None

    def _open(self, version: Version) -> rules.Variables:
        return self._variables.open(version.sealed_environment_variables, kind=version.kind, version=version.version)

    def _sealed(self, version: Version, variables: rules.Variables) -> Version:
        sealed = self._variables.seal(variables, kind=version.kind, version=version.version)
        return msgspec.structs.replace(version, sealed_environment_variables=sealed)


def _changed(contents: _Contents, update: rules.FunctionUpdate) -> _Contents:
    """Return contents with the given changes, except those to environment variables."""
    changed = contents
    if update.script is not UNSET:
        changed = msgspec.structs.replace(changed, script=update.script)
    if update.context_sample is not UNSET:
        changed = msgspec.structs.replace(changed, context_sample=_sample(update.context_sample))
    if update.token_sample is not UNSET:
        changed = msgspec.structs.replace(changed, token_sample=_sample(update.token_sample))
    if update.block_issuance_on_error is not UNSET:
        changed = msgspec.structs.replace(changed, block_issuance_on_error=bool(update.block_issuance_on_error))
    return changed
