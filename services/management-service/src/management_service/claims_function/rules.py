"""The rules for the custom-claims function: bodies and limits."""

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, UnsetType

from identity_common.failures import Issue, invalid_input
from identity_common.fields import Body, FreeForm
from identity_common.wire.claims_function import TokenKind

MAX_SCRIPT_BYTES: Final = 64 * 1024
MAX_VARIABLES: Final = 64
MAX_VARIABLE_BYTES: Final = 16 * 1024
MAX_RECORDING_MINUTES: Final = 24 * 60

Variables = dict[str, str]
VersionNumber = Annotated[int, msgspec.Meta(ge=1, le=999_999_999)]
Minutes = Annotated[int, msgspec.Meta(ge=0, le=MAX_RECORDING_MINUTES)]


class FunctionReplacement(Body):
    """A new version of the function.

    Attributes:
        environment_variables: Passed to the script; stored encrypted and never returned.
        context_sample: The context for later tests; no other effect.
        token_sample: The token for later tests; no other effect.
        block_issuance_on_error: Whether the token request is refused when the script fails; otherwise the token has no
            custom claims.
        script: Source of the function, in JavaScript; at most 64 KiB.
    """

    script: str
    environment_variables: Variables | None = None
    context_sample: FreeForm | None = None
    token_sample: FreeForm | None = None
    block_issuance_on_error: bool = False


class FunctionUpdate(Body):
    """Changes to the active version, saved as a new version; null restores a default.

    Attributes:
        script: Source of the function, in JavaScript; at most 64 KiB.
        environment_variables: Variables that the function can read: at most 64, 16 KiB together; write-only. Required
            with a changed script if the active version has any.
        context_sample: A ``context`` to test the function with.
        token_sample: A ``token`` to test the function with.
        block_issuance_on_error: Whether the token request is refused when the script fails; otherwise the token has no
            custom claims.
    """

    script: str | UnsetType = UNSET
    environment_variables: Variables | UnsetType | None = UNSET
    context_sample: FreeForm | UnsetType | None = UNSET
    token_sample: FreeForm | UnsetType | None = UNSET
    block_issuance_on_error: bool | UnsetType | None = UNSET


class FunctionTest(Body):
    """A script or a saved version to run once, and its arguments.

    Attributes:
        token_type: Kind of the tokens that the function is for.
        token: Its argument ``token``.
        context: Its argument ``context``.
        script: Source of the function, in JavaScript; at most 64 KiB. Excludes ``version``.
        version: Number of a saved version. Excludes ``script``.
        environment_variables: Variables that the function can read: at most 64, 16 KiB together; write-only. By default
            those of the version; none for a script.
    """

    token_type: TokenKind
    token: FreeForm
    context: FreeForm
    script: str | UnsetType = UNSET
    version: VersionNumber | UnsetType = UNSET
    environment_variables: Variables | None = None


class FunctionDryRun(Body):
    """A candidate to run over the recorded inputs: a script or a saved version.

    Attributes:
        script: Source of the function, in JavaScript; at most 64 KiB. Excludes ``version``.
        version: Number of a saved version. Excludes ``script``.
        environment_variables: Variables that the function can read: at most 64, 16 KiB together; write-only. By default
            those of the version; none for a script.
    """

    script: str | UnsetType = UNSET
    version: VersionNumber | UnsetType = UNSET
    environment_variables: Variables | None = None


class RecordingRequest(Body):
    """How long to record inputs.

    Attributes:
        minutes: 0 stops the recording and deletes the inputs.
    """

    minutes: Minutes


def script_or_version(body: FunctionTest | FunctionDryRun) -> str | int:
    """Return the script to run, or the number of the version to run.

    Raises:
        Invalid: There is not exactly one of the two.
    """
    given = [each for each in (body.script, body.version) if each is not UNSET]
    if len(given) != 1:
        raise invalid_input(Issue(path="", message="must have exactly one of script, version"))
    return given[0]


def is_script_too_large(script: str) -> bool:
    """Return whether a script exceeds its limit, in bytes of UTF-8."""
    return len(script) > MAX_SCRIPT_BYTES or len(script.encode()) > MAX_SCRIPT_BYTES


def first_excess(script: str) -> tuple[int, int]:
    """Return the line and column, from 1, of the first character of a script beyond its limit."""
    fits = script.encode()[:MAX_SCRIPT_BYTES].decode(errors="ignore")
    return fits.count("\n") + 1, len(fits) - fits.rfind("\n")


def are_variables_too_large(variables: Mapping[str, str]) -> bool:
    """Return whether environment variables exceed a limit: their number, or the bytes of all names and values."""
    return (
        len(variables) > MAX_VARIABLES
        or sum(len(name.encode()) + len(value.encode()) for name, value in variables.items()) > MAX_VARIABLE_BYTES
    )
