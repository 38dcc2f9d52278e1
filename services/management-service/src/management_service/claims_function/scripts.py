"""Sends scripts to token-service, which alone runs them: by request and reply on the bus."""

from typing import Final, TypeVar

from nats.errors import Error as NatsError

from identity_common.bus.connection import Bus
from identity_common.bus.requests import ask
from identity_common.failures import TemporarilyUnavailable, body_too_large
from identity_common.telemetry.logs import get_logger
from identity_common.wire.claims_function import (
    MAX_MESSAGE_BYTES,
    REPLY_TIMEOUT_S,
    Answer,
    CheckScript,
    ClaimsFunctionRequests,
    DryRun,
    DryRunAnswer,
    Failure,
    Failures,
    Question,
    ReadFailures,
    ReadRecording,
    RecordingState,
    ScriptChecked,
    ScriptProblem,
    ScriptTested,
    StartRecording,
    TestScript,
    TokenKind,
    Unavailable,
)
from identity_common.wire.sealed_requests import UnreadableMessageError

A = TypeVar("A", bound=Answer)

_log = get_logger(__name__)

_RETRY_AFTER_S: Final = 1


def scripts_unavailable(retry_after_s: int = _RETRY_AFTER_S) -> TemporarilyUnavailable:
    """Return the failure of a token-service that does not answer, or is busy. Nothing was saved."""
    message = "Scripts cannot be checked or run at the moment. Nothing was changed. Try again later."
    return TemporarilyUnavailable(message, retry_after_s=max(retry_after_s, 1))


class Scripts:
    """token-service's operations on scripts. Every method raises ``TemporarilyUnavailable`` if it does not answer."""

    def __init__(self, bus: Bus, requests: ClaimsFunctionRequests) -> None:
        self._bus = bus
        self._requests = requests

    async def problem(self, script: str) -> ScriptProblem | None:
        """Parse a script without running it; return why it is rejected, None if it is not."""
        return (await self._ask(CheckScript(script=script), ScriptChecked)).problem

    async def test(self, test: TestScript) -> ScriptTested:
        """Run a script once.

        Raises:
            TooLarge: The arguments.
        """
        return await self._ask(test, ScriptTested)

    async def dry_run(self, dry_run: DryRun) -> DryRunAnswer:
        """Run a candidate over the recorded inputs."""
        return await self._ask(dry_run, DryRunAnswer)

    async def record(self, kind: TokenKind, minutes: int) -> RecordingState:
        """Start recording inputs; 0 minutes stop it and delete the inputs."""
        return await self._ask(StartRecording(kind=kind, minutes=minutes), RecordingState)

    async def recording(self, kind: TokenKind) -> RecordingState:
        """Return the state of the recording."""
        return await self._ask(ReadRecording(kind=kind), RecordingState)

    async def failures(self, kind: TokenKind) -> list[Failure]:
        """Return the last failures of a kind, newest first."""
        return (await self._ask(ReadFailures(kind=kind), Failures)).failures

    async def _ask(self, question: Question, expected: type[A]) -> A:
        sealed = self._requests.seal_question(question)
        if len(sealed) > MAX_MESSAGE_BYTES:
            raise body_too_large("The script and its arguments are too large together.")
        if not self._bus.is_connected:
            raise scripts_unavailable()
        try:
            reply = await ask(
                self._bus, self._requests.subject, sealed, name="claims-function", timeout_s=REPLY_TIMEOUT_S
            )
            answer = self._requests.open_answer(reply, sealed_question=sealed)
        except (NatsError, OSError, TimeoutError, UnreadableMessageError) as error:
            _log.warning("claims-function.unavailable", error=type(error).__name__)
            raise scripts_unavailable() from None
        if isinstance(answer, Unavailable):
            raise scripts_unavailable(answer.retry_after_s)
        if not isinstance(answer, expected):
            _log.error("claims-function.unavailable", reason="unexpected answer", error=type(answer).__name__)
            raise scripts_unavailable()
        return answer
