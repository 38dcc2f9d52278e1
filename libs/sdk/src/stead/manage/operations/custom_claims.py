"""The custom-claims function: its versions, tests, and failures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import UNSET, UnsetType

from stead._transport.api import IfMatch, IfNoneMatch, api_path, command, decode, json_request
from stead._transport.operations import Operation
from stead.manage.lists import MAX_PAGE_SIZE, ListRequest
from stead.manage.operations._bodies import FreeForm, TokenKind, create_body, patch_body
from stead.models import (
    ClaimsFunction,
    ClaimsFunctionFailure,
    ClaimsFunctionVersion,
    DryRunReport,
    Recording,
    TestedClaims,
)

_DROPPED: Final = "Dropped-Claims"


def _path(*segments: str) -> str:
    return api_path("configs", "jwt-customizer", *segments)


def save_claims_function(
    kind: TokenKind,
    script: str,
    *,
    environment_variables: Mapping[str, str] | None = None,
    context_sample: FreeForm | None = None,
    token_sample: FreeForm | None = None,
    block_issuance_on_error: bool | None = None,
    if_match: IfMatch = UNSET,
    if_none_match: IfNoneMatch = UNSET,
) -> Operation[ClaimsFunction]:
    """Save a new version of the function and make it the active one.

    ::

        script = "const getCustomJwtClaims = async ({ context }) => ({ plan: context.user.customData.plan });"
        client.custom_claims.save("access-token", script)

    Args:
        kind: ``access-token`` for the tokens of users, ``client-credentials`` for those of applications themselves.
        script: JavaScript that defines ``getCustomJwtClaims``, at most 64 KiB.
        environment_variables: Passed to the script; stored encrypted, never returned. At most 64, 16 KiB together.
        context_sample: Kept for later tests.
        token_sample: Kept for later tests.
        block_issuance_on_error: Issue no token when the script fails, instead of one without custom claims.
        if_match: The ``etag`` of the active version as it was read.
        if_none_match: ``*`` to save only if no version is active.

    Raises:
        Conflict: The script does not compile, defines no such function or is too large; ``data`` says where.
        Unavailable: Scripts cannot be checked at the moment; nothing was saved.
        VersionMismatch: ``if_match`` does not name the current version, or ``if_none_match`` excludes it.
    """
    body = create_body(
        script=script,
        environmentVariables=environment_variables,
        contextSample=context_sample,
        tokenSample=token_sample,
        blockIssuanceOnError=block_issuance_on_error,
    )
    request = json_request("PUT", _path(kind), body, if_match=if_match, if_none_match=if_none_match)
    return decode((yield request), ClaimsFunction)


def get_claims_function(kind: TokenKind) -> Operation[ClaimsFunction]:
    """Return the active version.

    Raises:
        NotFound: No version is active.
    """
    return decode((yield json_request("GET", _path(kind))), ClaimsFunction)


def update_claims_function(
    kind: TokenKind,
    *,
    script: str | UnsetType = UNSET,
    environment_variables: Mapping[str, str] | UnsetType | None = UNSET,
    context_sample: FreeForm | UnsetType | None = UNSET,
    token_sample: FreeForm | UnsetType | None = UNSET,
    block_issuance_on_error: bool | UnsetType = UNSET,
    if_match: IfMatch = UNSET,
) -> Operation[ClaimsFunction]:
    """Save the active version with the given changes as a new one; None clears a member.

    Raises:
        NotFound: No version is active.
        Conflict: As for ``save``. Or the script changes and ``environment_variables`` is not given, but the active
            version has some: a changed script could return their values. ``data["missing"]`` lists their names.
        Unavailable: Scripts cannot be checked at the moment; nothing was saved.
        VersionMismatch: ``if_match`` does not name the current version.
    """
    body = patch_body(
        script=script,
        environmentVariables=environment_variables,
        contextSample=context_sample,
        tokenSample=token_sample,
        blockIssuanceOnError=block_issuance_on_error,
    )
    return decode((yield json_request("PATCH", _path(kind), body, if_match=if_match)), ClaimsFunction)


def delete_claims_function(kind: TokenKind, *, if_match: IfMatch = UNSET) -> Operation[None]:
    """Deactivate the active version; every version remains, and can be activated again.

    Raises:
        NotFound: No version is active.
        VersionMismatch: ``if_match`` does not name the current version.
    """
    return command("DELETE", _path(kind), if_match=if_match)


def list_claims_function_versions(
    kind: TokenKind, *, search: str | None = None, page_size: int = MAX_PAGE_SIZE
) -> ListRequest[ClaimsFunctionVersion]:
    """Iterate over all versions, newest first.

    Args:
        kind: Kind of tokens; see ``save``.
        search: Only versions with this text in their script.
        page_size: Items per request, 1 to 100.
    """
    return ListRequest(_path(kind, "versions"), ClaimsFunctionVersion, page_size=page_size, params={"q": search})


def get_claims_function_version(kind: TokenKind, version: int) -> Operation[ClaimsFunction]:
    """Return a version, active or not.

    Raises:
        NotFound: There is no such version.
    """
    return decode((yield json_request("GET", _path(kind, "versions", str(version)))), ClaimsFunction)


def activate_claims_function_version(kind: TokenKind, version: int) -> Operation[ClaimsFunction]:
    """Make a version the active one: a rollback.

    Raises:
        NotFound: There is no such version.
        Conflict: No key decrypts its environment variables.
    """
    return decode((yield json_request("POST", _path(kind, "versions", str(version), "activate"))), ClaimsFunction)


def try_claims_script(
    kind: TokenKind,
    script: str | None = None,
    *,
    token: FreeForm,
    context: FreeForm,
    environment_variables: Mapping[str, str] | None = None,
    version: int | None = None,
) -> Operation[TestedClaims]:
    """Run a script or a saved version once, and return the claims that it would add. Nothing is saved.

    Args:
        kind: Kind of tokens; see ``save``.
        script: Either this or ``version``.
        token: The argument ``token``.
        context: The argument ``context``.
        environment_variables: If None, those of the version; a script has none.
        version: A saved version, active or not.

    Raises:
        Forbidden: The script denied access; ``message`` is its message.
        Conflict: The script failed; ``data`` says why and where. Or there is no such version, or no key decrypts
            its variables.
        Unavailable: Scripts cannot be run at the moment.
    """
    body = create_body(
        tokenType=kind,
        script=script,
        version=version,
        token=token,
        context=context,
        environmentVariables=environment_variables,
    )
    answer = yield json_request("POST", _path("test"), body)
    claims = decode(answer, dict[str, Any])
    dropped = answer.headers.get(_DROPPED, "")
    return TestedClaims(claims=claims, dropped=dropped.split(", ") if dropped else [])


def dry_run_claims_script(
    kind: TokenKind,
    script: str | None = None,
    *,
    environment_variables: Mapping[str, str] | None = None,
    version: int | None = None,
) -> Operation[DryRunReport]:
    """Run a candidate over the recorded inputs and return what would change, compared with the active version.

    Args:
        kind: Kind of tokens; see ``save``.
        script: The candidate, which is not saved; either this or ``version``.
        environment_variables: If None, those of the version; a script has none, as stored values are write-only.
        version: A saved version as the candidate.

    Raises:
        Conflict: The script does not compile, defines no such function or is too large; ``data`` says where. Or there
            is no such version, or no key decrypts its variables or those of the active version.
        Unavailable: Scripts cannot be run at the moment.
    """
    body = create_body(script=script, version=version, environmentVariables=environment_variables)
    return decode((yield json_request("POST", _path(kind, "dry-run"), body)), DryRunReport)


def record_claims_function_inputs(kind: TokenKind, minutes: int) -> Operation[Recording]:
    """Record the last 100 inputs for a while, encrypted, for dry runs.

    Args:
        kind: Kind of tokens; see ``save``.
        minutes: At most 1440; 0 stops the recording and deletes the inputs.

    Raises:
        Unavailable: Inputs cannot be recorded at the moment.
    """
    return decode((yield json_request("POST", _path(kind, "recording"), {"minutes": minutes})), Recording)


def get_claims_function_recording(kind: TokenKind) -> Operation[Recording]:
    """Return whether inputs are being recorded, until when, and how many are held.

    Raises:
        Unavailable: The recording cannot be read at the moment.
    """
    return decode((yield json_request("GET", _path(kind, "recording"))), Recording)


def list_claims_function_failures(kind: TokenKind) -> Operation[list[ClaimsFunctionFailure]]:
    """Return the latest failures of the function, newest first.

    Raises:
        Unavailable: The failures cannot be read at the moment.
    """
    return decode((yield json_request("GET", _path(kind, "failures"))), list[ClaimsFunctionFailure])
