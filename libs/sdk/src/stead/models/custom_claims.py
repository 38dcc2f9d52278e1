"""The custom-claims function: versions, tests, dry runs, recordings and failures."""

from __future__ import annotations

from typing import Any

import msgspec

from stead.models.versions import Versioned


class SavedBy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Who saved a version.

    Attributes:
        user_id: The user that the application acted for; None if it acted for itself.
    """

    application_id: str
    user_id: str | None = None


class ClaimsFunctionVersion(Versioned, frozen=True, kw_only=True, rename="camel"):
    """A version of the custom-claims function, without its script. Versions never change.

    Attributes:
        token_type: ``access-token`` or ``client-credentials``.
        version: Counts from 1 without gaps.
        is_active: Whether it is in force; one version at most is.
        environment_variables: Their names.
        block_issuance_on_error: Whether no token is issued when the script fails.
    """

    token_type: str
    version: int
    is_active: bool
    environment_variables: list[str] = []
    block_issuance_on_error: bool = False
    created_at: int = 0
    created_by: SavedBy
    tenant_id: str = ""


class ClaimsFunction(ClaimsFunctionVersion, frozen=True, kw_only=True, rename="camel"):
    """A version of the custom-claims function.

    Attributes:
        context_sample: Saved for tests.
        token_sample: Saved for tests.
    """

    script: str
    context_sample: dict[str, Any] | None = None
    token_sample: dict[str, Any] | None = None


class TestedClaims(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a test of a script.

    Attributes:
        claims: The claims that would be added.
        dropped: Names of claims that the script returned and that were dropped, because they are reserved.
    """

    __test__ = False  # not a test of pytest

    claims: dict[str, Any]
    dropped: list[str] = []


class ScriptProblem(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Why a script failed.

    Attributes:
        reason: ``syntax``, ``no-function``, ``exception``, ``time``, ``memory``, ``result``, ``microtasks``,
            ``worker-died`` or ``arguments``.
        line: From 1; None if the failure has no position in the script.
        column: From 1.
    """

    reason: str
    message: str = ""
    line: int | None = None
    column: int | None = None


class DryRunOfInput(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a script would change for one recorded input. Its repr shows the time only.

    Attributes:
        added: Claims that only the script returns.
        changed: Claims that the active version returns with other values.
        removed: Names of claims that only the active version returns.
        dropped: Names of claims that the script returned and that were dropped, because they are reserved.
        denied: The script's message if it denied access; None otherwise.
        problem: Why the script failed; None if it did not.
        active_denied: The active version's message if it denied access; it is compared as if it returned no claims.
        active_problem: Why the active version failed; likewise.
    """

    recorded_at: int
    added: dict[str, Any] = {}
    changed: dict[str, Any] = {}
    removed: list[str] = []
    dropped: list[str] = []
    denied: str | None = None
    problem: ScriptProblem | None = None
    active_denied: str | None = None
    active_problem: ScriptProblem | None = None

    def __repr__(self) -> str:
        return f"DryRunOfInput(recorded_at={self.recorded_at}, …)"


class DryRunReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a script would change, compared with the active version.

    Attributes:
        runs: One for each recorded input, newest first.
        omitted: How many inputs have no run, for lack of time or space.
    """

    runs: list[DryRunOfInput]
    omitted: int = 0


class Recording(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A recording of inputs.

    Attributes:
        expires_at: When it ends and the inputs are deleted (ms since the epoch); None if nothing is recorded.
        input_count: How many inputs are held, at most 100.
    """

    expires_at: int | None
    input_count: int = 0


class ClaimsFunctionFailure(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A failed call of the custom-claims function.

    Attributes:
        version: The version that failed.
        reason: As in ``ScriptProblem``.
    """

    time: int
    version: int
    reason: str
    line: int | None = None
    column: int | None = None
