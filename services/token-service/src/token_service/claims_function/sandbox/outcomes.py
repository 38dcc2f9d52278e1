"""Outcome of a call, read from a worker's reply.

A worker runs foreign code, so its answers are input like any other: a frame of bounded length, parsed strictly.
"""

from typing import Any, Final, Literal

import msgspec

from token_service.claims_function.sandbox.limits import Limits

Reason = Literal[
    "syntax", "no-function", "exception", "time", "memory", "result", "microtasks", "worker-died", "arguments"
]


class Claims(msgspec.Struct, frozen=True):
    """The function returned an object of JSON values within the limits; reserved names are still in it."""

    members: dict[str, Any]


class Denied(msgspec.Struct, frozen=True):
    """The function called ``api.denyAccess``.

    Attributes:
        message: The first call's message, at most 1000 characters.
        out_of_time: Whether the function caught the exception and went on until the engine stopped it.
    """

    message: str | None
    out_of_time: bool = False


class Problem(msgspec.Struct, frozen=True):
    """The script failed.

    Attributes:
        reason: ``exception`` includes an exhausted stack. ``result`` is whatever is not a JSON object within the
            limits, and a promise that is never settled. ``worker-died``: the process ended, and not because of a bound.
        message: May repeat what the script put into it, personal data included: for the script's author only.
        line: Counted from 1, in the script.
        column: Counted from 1.
    """

    reason: Reason
    message: str
    line: int | None = None
    column: int | None = None


Outcome = Claims | Denied | Problem

WORKER_DIED = Problem("worker-died", "the worker process ended")

_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError)


def longest_answer(limits: Limits) -> int:
    """Return the maximum size of an answer's body in bytes."""
    return limits.result_bytes + 16 * 1024  # room for a message, escaped


def read_run(answer: bytes, limits: Limits) -> Outcome:
    """Return the outcome of a run; ``WORKER_DIED`` for an answer that the worker program never sends."""
    kind, content = answer[:1], answer[1:]
    try:
        if kind == b"C":
            return _claims(content, limits)
        if kind in {b"D", b"E"}:
            return Denied(msgspec.json.decode(content, type=str | None), out_of_time=kind == b"E")
        if kind == b"P":
            return msgspec.json.decode(content, type=Problem)
    except _UNREADABLE:
        pass
    return WORKER_DIED


def read_check(answer: bytes) -> Problem | None:
    """Return what is wrong with the script."""
    if answer == b"Onull":
        return None
    try:
        return msgspec.json.decode(answer[1:], type=Problem) if answer[:1] == b"P" else WORKER_DIED
    except _UNREADABLE:
        return WORKER_DIED


def _claims(content: bytes, limits: Limits) -> Claims | Problem:
    if len(content) > limits.result_bytes:
        return Problem("result", f"it is longer than {limits.result_bytes} bytes")
    too_deep = Problem("result", f"it nests deeper than {limits.nesting} levels")
    try:
        members = msgspec.json.decode(content, type=dict[str, Any])
    except RecursionError:
        return too_deep
    except msgspec.ValidationError:  # only of a number: any other JSON value is allowed
        return Problem("result", "a number is out of range")
    except _UNREADABLE:  # an unpaired surrogate, which JSON.stringify escapes
        return Problem("result", "it is not valid JSON in UTF-8")
    return too_deep if _nests_deeper(members, limits.nesting) else Claims(members)


def _nests_deeper(value: object, levels: int) -> bool:
    if isinstance(value, dict):
        return levels == 0 or any(_nests_deeper(member, levels - 1) for member in value.values())
    if isinstance(value, list):
        return levels == 0 or any(_nests_deeper(member, levels - 1) for member in value)
    return False
