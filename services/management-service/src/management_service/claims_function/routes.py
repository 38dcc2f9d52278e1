"""``/api/configs/jwt-customizer``: the custom-claims function for each kind of token."""

from typing import Any, Final, cast

import msgspec
from litestar import Controller, Response, delete, get, patch, post, put
from litestar.di import NamedDependency, Provide
from litestar.handlers import BaseRouteHandler
from litestar.params import FromPath, JSONBody

from identity_common.access.callers import Caller
from identity_common.access.management_api import Connection, admitted_caller
from identity_common.failures import NotFound, missing_by_id
from identity_common.fields import Answer, FreeFormAnswer
from identity_common.http.listing import PAGED, Listing
from identity_common.http.openapi.declarations import PUBLISHES_NOTHING, documented
from identity_common.wire.claims_function import TOKEN_KINDS, ProblemReason, RecordingState, ScriptProblem, TokenKind
from management_service.claims_function.rules import (
    FunctionDryRun,
    FunctionReplacement,
    FunctionTest,
    FunctionUpdate,
    RecordingRequest,
)
from management_service.claims_function.service import ClaimsFunctions
from management_service.claims_function.store import FoundVersion, Version

DROPPED: Final = "Dropped-Claims"
_PATH: Final = "/configs/jwt-customizer"
_MAX_DIGITS: Final = 9
_DEPENDENCIES: Final = {**PAGED, "caller": Provide(admitted_caller, sync_to_thread=False)}


class CallerAnswer(Answer):
    """Who saved a version: an application, and the user if the application used a user's token.

    Attributes:
        application_id: Id of the application.
        user_id: Id of the user; null if the token was not a user's.
    """

    application_id: str
    user_id: str | None


class VersionSummary(Answer):
    """A version of the custom-claims function, without its script; ``environmentVariables`` lists only their names.

    Attributes:
        tenant_id: Id of the tenant.
        token_type: Kind of the tokens that the function is for.
        version: Number of the version, from 1.
        is_active: Whether this version is active.
        environment_variables: Names of the environment variables; their values are never shown.
        block_issuance_on_error: Whether the token request is refused when the script fails; otherwise the token has no
            custom claims.
        created_at: Milliseconds since the epoch.
        created_by: Who saved the version.
    """

    tenant_id: str
    token_type: TokenKind
    version: int
    is_active: bool
    environment_variables: list[str]
    block_issuance_on_error: bool
    created_at: int
    created_by: CallerAnswer


class VersionAnswer(VersionSummary):
    """A version of the custom-claims function; ``environmentVariables`` lists only their names.

    Attributes:
        script: Source of the function, in JavaScript.
        context_sample: A ``context`` to test the function with.
        token_sample: A ``token`` to test the function with.
    """

    script: str
    context_sample: FreeFormAnswer | None
    token_sample: FreeFormAnswer | None


class ScriptProblemAnswer(Answer):
    """Why a script failed.

    Attributes:
        reason: Kind of failure.
        message: What the engine reported.
        line: Line in the script, from 1; null if unknown.
        column: Column in the line, from 1; null if unknown.
    """

    reason: ProblemReason
    message: str
    line: int | None
    column: int | None


class DryRunOfInputAnswer(Answer):
    """Changes for one recorded input; ``removed`` are names.

    Attributes:
        recorded_at: Milliseconds since the epoch.
        added: Claims that only the candidate returns.
        changed: Claims that both return, with the candidate's values.
        removed: Names of claims that only the active version returns.
        dropped: Names of claims that the candidate returns and that are dropped because they are reserved.
        denied: Message of the denial; null if the candidate did not deny access.
        problem: Why the candidate failed; null if it did not.
        active_denied: Message of the active version's denial, which counts as no claims; null if it did not deny
            access.
        active_problem: Why the active version failed; null if it did not.
    """

    recorded_at: int
    added: dict[str, Any]
    changed: dict[str, Any]
    removed: list[str]
    dropped: list[str]
    denied: str | None
    problem: ScriptProblemAnswer | None
    active_denied: str | None
    active_problem: ScriptProblemAnswer | None


class DryRunReport(Answer):
    """What a candidate would change; ``omitted`` inputs were not reached, for lack of time or space.

    Attributes:
        runs: One for each recorded input, newest first.
        omitted: Number of inputs that were not reached.
    """

    runs: list[DryRunOfInputAnswer]
    omitted: int


class RecordingAnswer(Answer):
    """When the recording ends and its inputs are deleted.

    Attributes:
        expires_at: Milliseconds since the epoch; null if nothing is recorded.
        input_count: Number of recorded inputs, at most 100.
    """

    expires_at: int | None
    input_count: int


class FailureAnswer(Answer):
    """A failed call of the function.

    Attributes:
        time: Milliseconds since the epoch.
        version: Number of the version that failed.
        reason: Kind of failure.
        line: Line in the script, from 1; null if unknown.
        column: Column in the line, from 1; null if unknown.
    """

    time: int
    version: int
    reason: ProblemReason
    line: int | None
    column: int | None


async def require_kind(connection: Connection, _: BaseRouteHandler) -> None:
    """Guard: the path names a kind of token."""
    if connection.path_params["kind"] not in TOKEN_KINDS:
        raise NotFound("entity.not_found", "Nothing exists at this path.")


def _kind(kind: str) -> TokenKind:
    return cast("TokenKind", kind)  # the guard has checked it


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS):
        raise missing_by_id()
    return int(text)


def _summary(version: Version, *, is_active: bool) -> dict[str, Any]:
    return {
        "tenant_id": version.tenant_id,
        "token_type": version.kind,
        "version": version.version,
        "is_active": is_active,
        "environment_variables": [*version.environment_variable_names],
        "block_issuance_on_error": version.block_issuance_on_error,
        "created_at": version.created_at,
        "created_by": CallerAnswer(
            application_id=version.created_by_application_id, user_id=version.created_by_user_id
        ),
    }


def version_summary(found: FoundVersion) -> VersionSummary:
    """Return a version as lists show it."""
    return VersionSummary(**_summary(found.version, is_active=found.is_active))


def version_answer(version: Version, *, is_active: bool = True) -> VersionAnswer:
    """Return a version as the API shows it."""
    return VersionAnswer(
        **_summary(version, is_active=is_active),
        script=version.script,
        context_sample=_raw(version.context_sample),
        token_sample=_raw(version.token_sample),
    )


def _raw(text: str | None) -> msgspec.Raw | None:
    return None if text is None else msgspec.Raw(text.encode())


def _problem(problem: ScriptProblem | None) -> ScriptProblemAnswer | None:
    return None if problem is None else msgspec.convert(problem, ScriptProblemAnswer, from_attributes=True)


def _recording(state: RecordingState) -> RecordingAnswer:
    return RecordingAnswer(expires_at=state.until or None, input_count=state.inputs)


class ClaimsFunctionTestController(Controller):
    """Tests of scripts, saved or not."""

    path = _PATH
    tags = ("Custom claims",)

    @post(
        "/test",
        operation_id="TestClaimsFunction",
        summary="Test a script or a version",
        status_code=200,
        opt=documented(headers=(DROPPED,)) | PUBLISHES_NOTHING,
    )
    async def test(
        self, data: JSONBody[FunctionTest], claims_functions: NamedDependency[ClaimsFunctions]
    ) -> Response[dict[str, Any]]:
        """Run a script or a saved version once and return the claims that it would add; 403 if it denies access."""
        tested = await claims_functions.test(data)
        return Response(tested.claims, headers={DROPPED: ", ".join(tested.dropped)} if tested.dropped else {})


class ClaimsFunctionController(Controller):
    """The custom-claims function for one kind of token, and its versions."""

    path = f"{_PATH}/{{kind:str}}"
    tags = ("Custom claims",)
    dependencies = _DEPENDENCIES
    guards = (require_kind,)

    @put(
        "/",
        operation_id="ReplaceClaimsFunction",
        summary="Save the function",
        opt=documented(may_create=True),
    )
    async def replace(
        self,
        kind: FromPath[str],
        data: JSONBody[FunctionReplacement],
        caller: NamedDependency[Caller],
        claims_functions: NamedDependency[ClaimsFunctions],
    ) -> Response[VersionAnswer]:
        """Save a new version and activate it; 201 if none was active."""
        version, is_new = await claims_functions.replace(_kind(kind), data, caller)
        return Response(version_answer(version), status_code=201 if is_new else 200)

    @get("/", operation_id="GetClaimsFunction", summary="Get the active version")
    async def get_active(
        self, kind: FromPath[str], claims_functions: NamedDependency[ClaimsFunctions]
    ) -> VersionAnswer:
        """Get the active version, with the names of its environment variables but not their values."""
        return version_answer(await claims_functions.get(_kind(kind)))

    @patch("/", operation_id="UpdateClaimsFunction", summary="Change the function")
    async def update(
        self,
        kind: FromPath[str],
        data: JSONBody[FunctionUpdate],
        caller: NamedDependency[Caller],
        claims_functions: NamedDependency[ClaimsFunctions],
    ) -> VersionAnswer:
        """Save the active version with the given fields changed, as a new version.

        A changed script does not get stored environment variables: 422, with their names in ``data.missing``, unless
        ``environmentVariables`` is sent.
        """
        return version_answer(await claims_functions.update(_kind(kind), data, caller))

    @delete("/", operation_id="DeleteClaimsFunction", summary="Delete the function", status_code=204)
    async def remove(
        self,
        kind: FromPath[str],
        caller: NamedDependency[Caller],
        claims_functions: NamedDependency[ClaimsFunctions],
    ) -> None:
        """Deactivate the function; its versions stay and can be activated again."""
        await claims_functions.delete(_kind(kind), caller)

    @get("/versions", operation_id="ListClaimsFunctionVersions", summary="List versions")
    async def list_versions(
        self,
        kind: FromPath[str],
        listing: NamedDependency[Listing],
        claims_functions: NamedDependency[ClaimsFunctions],
    ) -> Response[list[VersionSummary]]:
        """List all versions, newest first; ``search`` finds text in scripts."""
        found, total = await claims_functions.list_versions(_kind(kind), listing.page)
        return listing.answer([version_summary(each) for each in found], total)

    @get("/versions/{version_number:str}", operation_id="GetClaimsFunctionVersion", summary="Get a version")
    async def get_version(
        self,
        kind: FromPath[str],
        version_number: FromPath[str],
        claims_functions: NamedDependency[ClaimsFunctions],
    ) -> VersionAnswer:
        """Get one version, active or not."""
        found = await claims_functions.get_version(_kind(kind), _number(version_number))
        return version_answer(found.version, is_active=found.is_active)

    @post(
        "/versions/{version_number:str}/activate",
        operation_id="ActivateClaimsFunctionVersion",
        summary="Activate a version",
        status_code=200,
        opt=documented(refuses=(422,)),
    )
    async def activate(
        self,
        kind: FromPath[str],
        version_number: FromPath[str],
        caller: NamedDependency[Caller],
        claims_functions: NamedDependency[ClaimsFunctions],
    ) -> VersionAnswer:
        """Activate a version, for a rollback or after a deletion."""
        return version_answer(await claims_functions.activate(_kind(kind), _number(version_number), caller))

    @post(
        "/dry-run",
        operation_id="DryRunClaimsFunction",
        summary="Dry-run a script or a version on recorded inputs",
        status_code=200,
        opt=PUBLISHES_NOTHING,
    )
    async def dry_run(
        self,
        kind: FromPath[str],
        data: JSONBody[FunctionDryRun],
        claims_functions: NamedDependency[ClaimsFunctions],
    ) -> Response[DryRunReport]:
        """Run a script or a saved version over the recorded inputs; compare the claims with the active version's."""
        answer = await claims_functions.dry_run(_kind(kind), data)
        runs = [
            DryRunOfInputAnswer(
                recorded_at=run.recorded_at,
                added=run.added,
                changed=run.changed,
                removed=run.removed,
                dropped=run.dropped,
                denied=run.denied,
                problem=_problem(run.problem),
                active_denied=run.active_denied,
                active_problem=_problem(run.active_problem),
            )
            for run in answer.runs
        ]
        return Response(DryRunReport(runs=runs, omitted=answer.omitted))

    @post(
        "/recording",
        operation_id="RecordClaimsFunctionInputs",
        summary="Record inputs",
        status_code=200,
        opt=documented(never=(422,)) | PUBLISHES_NOTHING,
    )
    async def record(
        self,
        kind: FromPath[str],
        data: JSONBody[RecordingRequest],
        claims_functions: NamedDependency[ClaimsFunctions],
    ) -> Response[RecordingAnswer]:
        """Record the last 100 inputs, encrypted, for at most 24 hours; 0 minutes stops it and deletes them."""
        return Response(_recording(await claims_functions.record(_kind(kind), data.minutes)))

    @get("/recording", operation_id="GetClaimsFunctionRecording", summary="Read the state of the recording")
    async def recording(
        self, kind: FromPath[str], claims_functions: NamedDependency[ClaimsFunctions]
    ) -> RecordingAnswer:
        """Read whether inputs are being recorded, until when, and how many there are, without the inputs."""
        return _recording(await claims_functions.recording(_kind(kind)))

    @get("/failures", operation_id="ListClaimsFunctionFailures", summary="List recent failures")
    async def failures(
        self, kind: FromPath[str], claims_functions: NamedDependency[ClaimsFunctions]
    ) -> list[FailureAnswer]:
        """List when and why the function failed recently, newest first, without personal data."""
        return [
            FailureAnswer(
                time=failure.at,
                version=failure.version,
                reason=failure.reason,
                line=failure.line,
                column=failure.column,
            )
            for failure in await claims_functions.failures(_kind(kind))
        ]
