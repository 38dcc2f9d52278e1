"""Calls the function for access tokens that are about to be signed.

A place at a worker is reserved before anything is spent, so that a request that finds none can be retried. Without a
function and a recording, neither a place nor the arguments are needed.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

from identity_common.background import end
from identity_common.failures import Refused, TemporarilyUnavailable
from identity_common.sealing import NoFittingKeyError
from identity_common.telemetry.logs import get_logger
from identity_common.wire.claims_function import SealedVariables, TokenKind
from identity_common.wire.events import ClaimsFunctionState
from token_service.claims_function.context import MOST_ORGANIZATIONS, Arguments, TooManyOrganizations, call_data
from token_service.claims_function.failures import FailedCalls
from token_service.claims_function.on_demand import WorkersOnDemand
from token_service.claims_function.recordings import Recordings
from token_service.claims_function.rules import ExtraClaims, judged
from token_service.claims_function.sandbox import Denied, NoWorkerFree, Outcome, Problem
from token_service.directory import InMemoryDirectory

_log = get_logger(__name__)

_RESERVED_WITHIN_S: Final = 0.05
_RESERVED_LATE_WITHIN_S: Final = 2.0
_START_AGAIN_S: Final = 60.0
_NO_CLAIMS: Final[Mapping[str, Any]] = {}
_TOO_MANY_ORGANIZATIONS: Final = Problem("arguments", f"the user belongs to over {MOST_ORGANIZATIONS} organizations")
_MOST_CHARACTERS: Final = 256
_NOT_IN_DESCRIPTIONS: Final = re.compile(r"[^\x20-\x21\x23-\x5B\x5D-\x7E]")


class CustomClaims:
    """The function of one tenant, as of the newest event.

    Args:
        in_memory: Source of the active versions.
        workers: Runs the scripts.
        variables: Opens the environment variables.
        recordings: Stores the arguments while a recording is on.
        failures: Stores the failed calls.
    """

    def __init__(
        self,
        in_memory: InMemoryDirectory,
        workers: WorkersOnDemand,
        variables: SealedVariables,
        recordings: Recordings,
        failures: FailedCalls,
    ) -> None:
        self._in_memory = in_memory
        self._workers = workers
        self._variables = variables
        self._recordings = recordings
        self._failures = failures
        self._opened: dict[TokenKind, tuple[ClaimsFunctionState, Mapping[str, str]]] = {}
        self._starting: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start waiting for functions in the background, so that a function's first call finds workers running."""
        self._starting = asyncio.create_task(self._start_workers(), name="claims-workers")

    async def stop(self) -> None:
        """Stop waiting."""
        await end(self._starting)

    def reserved(self, kind: TokenKind) -> "Reservation":
        """Return a reservation for one token; entering it holds a place if there is a function."""
        return Reservation(self, kind)

    def active(self, kind: TokenKind) -> ClaimsFunctionState | None:
        """Return the active version, if there is a function."""
        return self._in_memory.claims_function(kind)

    def is_needed(self, kind: TokenKind) -> bool:
        """Return whether the arguments are needed: for a call, or to be recorded."""
        return self.active(kind) is not None or self._recordings.is_on(kind)

    def record(self, kind: TokenKind, arguments: Arguments) -> None:
        """Record the arguments if a recording is on."""
        if self._recordings.is_on(kind):
            self._recordings.add(kind, arguments)

    async def hold_place(self, *, within_s: float) -> None:
        """Hold a place for one call, until ``release_place``.

        Raises:
            TemporarilyUnavailable: None becomes free in time.
        """
        try:
            await self._workers.hold_place(within_s=within_s)
        except NoWorkerFree:
            raise _no_worker_free() from None

    def release_place(self) -> None:
        """Release a place."""
        self._workers.release_place()

    async def call(self, function: ClaimsFunctionState, arguments: Arguments) -> Mapping[str, Any]:
        """Call the function, with a place; return the claims to add.

        Raises:
            Refused: The script denied access, or failed and is set to block then.
            TemporarilyUnavailable: The workers were lost, and could not be replaced.
        """
        try:
            variables = self._opened_variables(function)
        except NoFittingKeyError:
            _log.error("claims-function.unreadable", kind=function.kind, version=function.version)
            outcome: Outcome = Problem("exception", "the environment variables are not readable")
        else:
            data = call_data(arguments.token, arguments.context, variables)
            try:
                outcome = await self._workers.run(function.script, data)
            except NoWorkerFree:
                raise _no_worker_free() from None
        result = judged(outcome, arguments.token)
        if isinstance(result, ExtraClaims):
            return result.claims
        client_id = arguments.token.client_id
        if isinstance(result, Denied):
            _log.info("claims-function.denied", kind=function.kind, version=function.version, client_id=client_id)
            raise Refused("claims_function.denied", _description(result.message))
        return self.failed(function, result, client_id=client_id)

    def failed(self, function: ClaimsFunctionState, problem: Problem, *, client_id: str) -> Mapping[str, Any]:
        """Record a failed call; return the claims to add then, which are none.

        Raises:
            Refused: The function is set to block then.
        """
        self._failures.add(problem, kind=function.kind, version=function.version, client_id=client_id)
        if function.block_issuance_on_error:
            raise Refused("claims_function.failed", "the custom-claims function failed")
        return _NO_CLAIMS

    async def _start_workers(self) -> None:
        while True:
            await self._in_memory.has_claims_function.wait()
            with suppress(NoWorkerFree):  # logged where it was raised; the next use tries again
                await self._workers.start()
            await asyncio.sleep(_START_AGAIN_S)

    def _opened_variables(self, function: ClaimsFunctionState) -> Mapping[str, str]:
        kept = self._opened.get(function.kind)
        if kept is not None and kept[0] is function:
            return kept[1]
        variables = self._variables.open(
            function.sealed_environment_variables, kind=function.kind, version=function.version
        )
        self._opened[function.kind] = function, variables
        return variables


class Reservation:
    """A place for the call of one token, if it needs one; released as soon as the call has ended."""

    def __init__(self, custom_claims: CustomClaims, kind: TokenKind) -> None:
        self._custom_claims = custom_claims
        self._kind = kind
        self._has_place = False

    async def __aenter__(self) -> Self:
        """Hold a place if there is a function.

        Raises:
            TemporarilyUnavailable: None becomes free within 50 ms.
        """
        if self._custom_claims.active(self._kind) is not None:
            await self._hold(within_s=_RESERVED_WITHIN_S)
        return self

    async def __aexit__(
        self, exception_type: type[BaseException] | None, exception: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the place."""
        self._release()

    @property
    def is_needed(self) -> bool:
        """Whether the arguments are needed, as far as is known now."""
        return self._custom_claims.is_needed(self._kind)

    async def claims(self, arguments: Callable[[], Awaitable[Arguments]]) -> Mapping[str, Any]:
        """Return the claims to add to the token; none without a function, and none of one that failed.

        Args:
            arguments: Gathers the arguments; called only if they are needed.

        Raises:
            Refused: The script denied access, or failed and is set to block then.
            TemporarilyUnavailable: No worker becomes free in time.
        """
        if not self.is_needed:
            return _NO_CLAIMS
        try:
            gathered = await arguments()
        except TooManyOrganizations as error:
            function = self._custom_claims.active(self._kind)
            if function is None:
                return _NO_CLAIMS
            return self._custom_claims.failed(function, _TOO_MANY_ORGANIZATIONS, client_id=error.client_id)
        self._custom_claims.record(self._kind, gathered)
        function = self._custom_claims.active(self._kind)
        if function is None:
            return _NO_CLAIMS
        # The function may have arrived since, with the revision that the presented token or code required.
        if not self._has_place:
            await self._hold(within_s=_RESERVED_LATE_WITHIN_S)
        try:
            return await self._custom_claims.call(function, gathered)
        finally:
            self._release()

    async def _hold(self, *, within_s: float) -> None:
        await self._custom_claims.hold_place(within_s=within_s)
        self._has_place = True

    def _release(self) -> None:
        if self._has_place:
            self._has_place = False
            self._custom_claims.release_place()


def _no_worker_free() -> TemporarilyUnavailable:
    return TemporarilyUnavailable(why="no worker is free for the custom-claims function")


def _description(message: str | None) -> str:
    """Return the script's message, limited to the characters of an error description (RFC 6749 section 5.2)."""
    return _NOT_IN_DESCRIPTIONS.sub("?", (message or "access was denied")[:_MOST_CHARACTERS])
