"""Replies to management-service on the bus: checks, tests and dry runs of scripts, recordings, failures.

One replica replies to each request. Its workers are separate from those of real tokens.
"""

import asyncio
import time
from contextlib import suppress
from operator import itemgetter
from typing import Final

import msgspec

from identity_common.bus.connection import Bus
from identity_common.bus.requests import Responder
from identity_common.bus.sealed_responder import sealed_responder
from identity_common.failures import StoreUnavailable
from identity_common.telemetry.logs import get_logger
from identity_common.wire.claims_function import (
    MAX_MESSAGE_BYTES,
    REPLY_TIMEOUT_S,
    Answer,
    CheckScript,
    ClaimsFunctionRequests,
    DryRun,
    DryRunAnswer,
    DryRunOfInput,
    Failures,
    Function,
    Question,
    ReadFailures,
    ReadRecording,
    RecordingState,
    ScriptChecked,
    ScriptProblem,
    ScriptTested,
    StartRecording,
    TestScript,
    Unavailable,
)
from token_service.claims_function.context import call_data
from token_service.claims_function.failures import FailedCalls
from token_service.claims_function.on_demand import WorkersOnDemand
from token_service.claims_function.recordings import Recorded, Recordings
from token_service.claims_function.rules import NO_CHANGES, ExtraClaims, changes, judged
from token_service.claims_function.sandbox import Denied, NotChecked, NoWorkerFree, Problem

_log = get_logger(__name__)

_MOST_BYTES: Final = MAX_MESSAGE_BYTES - 1024
_MS: Final = 1000
_AT_ONCE: Final = 128  # each waits for a worker, with the whole script in memory


class ClaimsFunctionAnswers:
    """Replies to the requests of one tenant.

    Args:
        requests: Opens requests and seals replies.
        workers: Runs the scripts.
        recordings: The recorded inputs.
        failures: The failed calls.
        worker_count: Number of workers, and so of the recorded inputs that a dry run processes at once.
    """

    def __init__(
        self,
        requests: ClaimsFunctionRequests,
        workers: WorkersOnDemand,
        recordings: Recordings,
        failures: FailedCalls,
        *,
        worker_count: int,
    ) -> None:
        self._requests = requests
        self._workers = workers
        self._recordings = recordings
        self._failures = failures
        self._worker_count = worker_count

    def responder(self, bus: Bus) -> Responder:
        """Return the responder to the requests on the bus."""

        async def answer(question: Question, arrived: float) -> Answer:
            return await self.answer(question, deadline=arrived + REPLY_TIMEOUT_S)

        return sealed_responder(
            bus,
            self._requests,
            answer,
            unavailable=Unavailable(),
            name="claims-function",
            log=_log,
            expected=(NoWorkerFree, NotChecked, StoreUnavailable),
            at_once=_AT_ONCE,
        )

    async def answer(self, question: Question, *, deadline: float) -> Answer:
        """Return the reply to a request.

        Args:
            question: From management-service.
            deadline: When the sender stops waiting, in seconds of the monotonic clock.

        Raises:
            NoWorkerFree: No worker became free in time. NotChecked: A check did not end.
            StoreUnavailable: Redis does not answer.
        """
        match question:
            case CheckScript():
                return await self._check(question, deadline)
            case TestScript():
                return await self._test(question, deadline)
            case DryRun():
                return await self._dry_run(question, min(deadline, time.monotonic() + question.timeout_ms / _MS))
            case StartRecording():
                return await self._record(question)
            case ReadRecording():
                return await self._recordings.state(question.kind)
            case ReadFailures():
                return Failures(failures=await self._failures.last(question.kind))

    async def _check(self, question: CheckScript, deadline: float) -> ScriptChecked:
        async with await self._workers.reserve(within_s=_left_s(deadline)) as worker:
            problem = await worker.check(question.script)
        return ScriptChecked(problem=None if problem is None else _script_problem(problem))

    async def _test(self, question: TestScript, deadline: float) -> ScriptTested:
        return await self._run(question.function, question.token, question.context, deadline)

    async def _dry_run(self, question: DryRun, deadline: float) -> DryRunAnswer:
        """Run both versions over the recorded inputs until all are done, or the time or the reply's size runs out."""
        inputs = await self._recordings.last(question.kind)
        ahead = enumerate(inputs)  # shared: each task takes the next one
        finished: list[tuple[int, DryRunOfInput]] = []

        async def run_those_ahead() -> None:
            with suppress(NoWorkerFree):
                for place, each in ahead:
                    finished.append((place, await self._run_beside(each, question, deadline)))

        with suppress(TimeoutError):
            async with asyncio.timeout(_left_s(deadline)):  # a call may take longer than what is left
                await asyncio.gather(*(run_those_ahead() for _ in range(self._worker_count)))
        runs: list[DryRunOfInput] = []
        size = 0
        for _, run in sorted(finished, key=itemgetter(0)):
            size += len(msgspec.json.encode(run))
            if size > _MOST_BYTES:
                break
            runs.append(run)
        return DryRunAnswer(runs=runs, omitted=len(inputs) - len(runs))

    async def _run_beside(self, recorded: Recorded, question: DryRun, deadline: float) -> DryRunOfInput:
        active = ScriptTested()
        if question.active is not None:
            active = await self._run(question.active, recorded.token, recorded.context, deadline)
        candidate = await self._run(question.candidate, recorded.token, recorded.context, deadline)
        has_claims = candidate.denied is None and candidate.problem is None
        found = changes(active.claims, candidate.claims) if has_claims else NO_CHANGES
        return DryRunOfInput(
            recorded_at=recorded.at,
            added=found.added,
            changed=found.changed,
            removed=list(found.removed),
            dropped=candidate.dropped,
            denied=candidate.denied,
            problem=candidate.problem,
            active_denied=active.denied,
            active_problem=active.problem,
        )

    async def _run(self, function: Function, token: object, context: object, deadline: float) -> ScriptTested:
        data = call_data(token, context, function.environment_variables)
        async with await self._workers.reserve(within_s=_left_s(deadline)) as worker:
            outcome = await worker.run(function.script, data)
        result = judged(outcome, token)
        if isinstance(result, ExtraClaims):
            return ScriptTested(claims=dict(result.claims), dropped=list(result.dropped))
        if isinstance(result, Denied):
            return ScriptTested(denied=result.message or "")
        return ScriptTested(problem=_script_problem(result))

    async def _record(self, question: StartRecording) -> RecordingState:
        if question.minutes <= 0:
            await self._recordings.end(question.kind)
        else:
            await self._recordings.begin(question.kind, minutes=question.minutes)
        return await self._recordings.state(question.kind)


def _script_problem(problem: Problem) -> ScriptProblem:
    return ScriptProblem(reason=problem.reason, message=problem.message, line=problem.line, column=problem.column)


def _left_s(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())
