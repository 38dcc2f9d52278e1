"""Requests that management-service makes about the custom-claims function, and how its secrets are sealed.

management-service stores the function, token-service runs it. So the check of a saved script, a test, a dry run, the
recording of inputs and the list of failures are NATS requests on a subject that belongs to no stream. Only
management-service may send them, only token-service may reply. Requests and replies are sealed with the keys of the
environment variables, because they hold these variables and personal data.
"""

import base64
from typing import Any, Final, Literal

import msgspec

from identity_common.clock import Clock, now_ms
from identity_common.sealing import SealingKeys
from identity_common.wire.sealed_requests import SealedRequests

TokenKind = Literal["access-token", "client-credentials"]
"""Which tokens a function adds claims to: those of users, or those of machine-to-machine applications."""

ProblemReason = Literal[
    "syntax", "no-function", "exception", "time", "memory", "result", "microtasks", "worker-died", "arguments"
]
"""Why a script failed."""

TOKEN_KINDS: Final[tuple[TokenKind, ...]] = ("access-token", "client-credentials")

REPLY_TIMEOUT_S: Final = 2.0
"""How long management-service waits for the reply."""

MAX_MESSAGE_BYTES: Final = 1_000_000
"""Limit of a sealed request or reply; the bus refuses 1 MiB."""


def claims_function_subject(tenant_id: str) -> str:
    """Return the subject of the requests."""
    return f"identity-rpc.{tenant_id}.claims-function"


class _Private(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of a message; its text is hidden, because it holds secrets or personal data."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"


class Function(_Private, frozen=True, kw_only=True):
    """A script and what it is run with.

    Attributes:
        version: Its version; 0 for one that is not saved.
        script: JavaScript, at most 64 KiB.
        environment_variables: At most 64, 16 KiB together.
    """

    version: int = 0
    script: str
    environment_variables: dict[str, str] = {}


class CheckScript(_Private, frozen=True, kw_only=True, tag="check"):
    """Parse a script and look for the function; do not call it. The reply is ``ScriptChecked``."""

    script: str


class TestScript(_Private, frozen=True, kw_only=True, tag="test"):
    """Run a script once, as for a token of this kind. The reply is ``ScriptTested``.

    Attributes:
        token: The argument ``token`` of the function.
        context: The argument ``context`` of the function.
    """

    __test__ = False  # not a test of pytest

    kind: TokenKind
    function: Function
    token: dict[str, Any]
    context: dict[str, Any]


class DryRun(_Private, frozen=True, kw_only=True, tag="dry-run"):
    """Run a candidate over the recorded inputs, beside the active version. The reply is ``DryRunAnswer``.

    Attributes:
        candidate: The function to judge.
        active: The active version; None without one, which adds nothing.
        timeout_ms: How long the caller waits, counted from the arrival of the request; inputs that are not reached in
            time are counted in the reply.
    """

    kind: TokenKind
    candidate: Function
    active: Function | None = None
    timeout_ms: int = msgspec.field(name="patience_ms", default=1700)


class StartRecording(_Private, frozen=True, kw_only=True, tag="start-recording"):
    """Record the inputs of this kind from now on. The reply is ``RecordingState``.

    Attributes:
        minutes: 1 to 1440; 0 stops the recording and deletes the inputs.
    """

    kind: TokenKind
    minutes: int


class ReadRecording(_Private, frozen=True, kw_only=True, tag="read-recording"):
    """Return whether inputs of this kind are being recorded. The reply is ``RecordingState``."""

    kind: TokenKind


class ReadFailures(_Private, frozen=True, kw_only=True, tag="failures"):
    """Return the last failures of this kind. The reply is ``Failures``."""

    kind: TokenKind


class ScriptProblem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a script was refused, or gave no claims.

    Attributes:
        message: For the author of the script: may quote it.
        line: From 1, in the script; None if no place is to blame.
        column: From 1.
    """

    reason: ProblemReason
    message: str = ""
    line: int | None = None
    column: int | None = None


class ScriptChecked(_Private, frozen=True, kw_only=True, tag="checked"):
    """Reply to ``CheckScript``.

    Attributes:
        problem: None if the script is acceptable.
    """

    problem: ScriptProblem | None = None


class ScriptTested(_Private, frozen=True, kw_only=True, tag="tested"):
    """Reply to ``TestScript``.

    Attributes:
        claims: What would be added to the token; empty if the script denied access or failed.
        dropped: Members that were dropped because their names are reserved, sorted.
        denied: The message of ``api.denyAccess``, empty if it had none; None if access was not denied.
        problem: Why the script failed; None if it did not.
    """

    claims: dict[str, Any] = {}
    dropped: list[str] = []
    denied: str | None = None
    problem: ScriptProblem | None = None


class DryRunOfInput(_Private, frozen=True, kw_only=True):
    """Changes for one recorded input.

    Attributes:
        recorded_at: Milliseconds since the epoch.
        added: Claims that only the candidate returns.
        changed: Claims that both give, with the candidate's values where these differ.
        removed: Names of claims that only the active version gives, sorted.
        dropped: Members of the candidate's result that were dropped because their names are reserved, sorted.
        denied: The message if the candidate denied access, as in ``ScriptTested``.
        problem: Why the candidate failed.
        active_denied: The message if the active version denied access; it is compared as if it gave no claims.
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


class DryRunAnswer(_Private, frozen=True, kw_only=True, tag="dry-run"):
    """Reply to ``DryRun``.

    Attributes:
        runs: One for each recorded input, newest first.
        omitted: How many inputs have no run because time or the size of the reply did not suffice.
    """

    runs: list[DryRunOfInput] = []
    omitted: int = 0


class RecordingState(_Private, frozen=True, kw_only=True, tag="recording"):
    """Reply to ``StartRecording`` and ``ReadRecording``.

    Attributes:
        until: When the recording ends and its inputs are forgotten, milliseconds since the epoch; 0 if there is none.
        inputs: Number of inputs that are held.
    """

    until: int
    inputs: int = 0


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call that gave no claims, without personal data.

    Attributes:
        at: Milliseconds since the epoch.
        version: The version that failed.
        line: From 1; None if no place is to blame.
        column: From 1.
    """

    at: int
    version: int
    reason: ProblemReason
    line: int | None = None
    column: int | None = None


class Failures(_Private, frozen=True, kw_only=True, tag="failures"):
    """Reply to ``ReadFailures``.

    Attributes:
        failures: The last ones, newest first.
    """

    failures: list[Failure] = []


class Unavailable(_Private, frozen=True, kw_only=True, tag="unavailable"):
    """Reply to any request: no worker was free, or a store does not answer.

    Attributes:
        retry_after_s: Seconds until another attempt makes sense.
    """

    retry_after_s: int = 1


Question = CheckScript | TestScript | DryRun | StartRecording | ReadRecording | ReadFailures
Answer = ScriptChecked | ScriptTested | DryRunAnswer | RecordingState | Failures | Unavailable


_encode: Final = msgspec.json.Encoder().encode
_questions: Final[msgspec.json.Decoder[Question]] = msgspec.json.Decoder(Question)
_answers: Final[msgspec.json.Decoder[Answer]] = msgspec.json.Decoder(Answer)
_decode_variables: Final = msgspec.json.Decoder(dict[str, str]).decode


class ClaimsFunctionRequests(SealedRequests[Question, Answer]):
    """Seals and opens requests and replies.

    Args:
        keys: Of the environment variables.
        tenant_id: The tenant.
        clock: Clock, for tests.
    """

    def __init__(self, keys: SealingKeys, *, tenant_id: str, clock: Clock = now_ms) -> None:
        super().__init__(keys, claims_function_subject(tenant_id), _questions, _answers, clock=clock)


class SealedVariables:
    """Seals and opens environment variables: of one version, at rest and in its event.

    Args:
        keys: Of the environment variables.
        tenant_id: The tenant.
    """

    def __init__(self, keys: SealingKeys, *, tenant_id: str) -> None:
        self._keys = keys
        self._tenant_id = tenant_id

    def seal(self, variables: dict[str, str], *, kind: TokenKind, version: int) -> str:
        """Return the variables as base64url; empty if there are none."""
        if not variables:
            return ""
        return base64.urlsafe_b64encode(self._keys.seal(_encode(variables), name=self._name(kind, version))).decode()

    def open(self, sealed: str, *, kind: TokenKind, version: int) -> dict[str, str]:
        """Return sealed variables.

        Raises:
            NoFittingKeyError: No key of the ring fits, or these are not the variables of this version.
        """
        if not sealed:
            return {}
        return _decode_variables(self._keys.open(base64.urlsafe_b64decode(sealed), name=self._name(kind, version)))

    def is_newest(self, sealed: str, *, kind: TokenKind, version: int) -> bool:
        """Return whether there is nothing to seal again with the newest key."""
        return not sealed or self._keys.is_newest(base64.urlsafe_b64decode(sealed), name=self._name(kind, version))

    def _name(self, kind: TokenKind, version: int) -> str:
        return f"{self._tenant_id}.claims-function.{kind}.{version}.environment-variables"
