"""Runs operators' JavaScript in worker processes that hold nothing worth stealing.

Owns the worker program with the JavaScript around each call, the restrictions of its process, and the pool of workers.
Does not know what the data means, which claims are reserved, or what a failure means for a token.

A worker is started by exec, with an empty environment and one socket; a forked process would carry a copy of the
signing keys. Each call gets a fresh context of the engine. See docs/decisions, number 21.
"""

from token_service.claims_function.sandbox.confinement import close_memory_to_others
from token_service.claims_function.sandbox.limits import Limits
from token_service.claims_function.sandbox.outcomes import Claims, Denied, Outcome, Problem
from token_service.claims_function.sandbox.pool import ClaimsWorkers, NotChecked, NoWorkerFree, Slot
from token_service.claims_function.sandbox.process import WorkerNotStarted

__all__ = [
    "Claims",
    "ClaimsWorkers",
    "Denied",
    "Limits",
    "NoWorkerFree",
    "NotChecked",
    "Outcome",
    "Problem",
    "Slot",
    "WorkerNotStarted",
    "close_memory_to_others",
]
